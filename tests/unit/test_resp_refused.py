"""Answers of the RESP door when the disk refuses records: what rests on them becomes an error, nothing else does."""

from __future__ import annotations

import asyncio

import pytest

from integration.resp_wire import OK
from lamina.errors import StorageError
from lamina.log import ALWAYS, OS, kernel
from resp_lab import EVERY_POLICY, POLICIES, PONG, Lab, in_loop, kinds, turn


@EVERY_POLICY
@in_loop
async def test_only_what_rests_on_a_refused_record_is_refused(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    first, second = lab.caller(), lab.caller()
    lab.make("a", "b")
    lab.full("a")
    first.send("XADD a * f v", "XADD b * f v", "XLEN a", "XLEN b", "PING")
    second.send("XADD b * f w", "EXISTS a", "EXISTS b")
    await lab.settle()
    answers = first.got()
    assert kinds(answers) == "xix.." and answers[3:] == [1, PONG]
    answers = second.got()
    assert kinds(answers) == "ix." and answers[2] == 1
    assert await first.ask("EXISTS a") == [0]
    assert (lab.values("a"), lab.values("b")) == ([], [b"v", b"w"])


@EVERY_POLICY
@in_loop
async def test_an_exec_of_which_one_topic_was_refused_is_an_error(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    lab.full("b")
    answers = await caller.ask("MULTI", "XADD a * f v", "XADD b * f v", "EXEC")
    assert kinds(answers) == "...x"
    assert (await caller.ask_one("XLEN b"), lab.values("b")) == (0, [])


@EVERY_POLICY
@in_loop
async def test_of_a_run_that_was_refused_each_is_an_error(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    await caller.ask("XADD a * f before")
    lab.full("a")
    assert kinds(await caller.ask(*["XADD a * f v"] * 5, "PING")) == "xxxxx."
    assert kinds(await caller.ask(*["XADD a * f w"] * 3)) == "iii"
    assert lab.values("a") == [b"before", b"w", b"w", b"w"]


@in_loop
async def test_who_wants_no_answer_gets_none_when_the_disk_refuses_either() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    lab.full("a")
    assert await caller.ask("CLIENT REPLY SKIP", "XADD a * f v", "ECHO here") == [b"here"]
    lab.full("a")
    assert await caller.ask("CLIENT REPLY OFF", "XADD a * f v", "XADD a * f v") == []
    assert await caller.ask("CLIENT REPLY ON", "ECHO here") == [OK, b"here"]


@EVERY_POLICY
@in_loop
async def test_a_later_record_that_gets_through_does_not_vouch_for_an_earlier_one(policy: str) -> None:
    """The answers to both are held, behind the sync of another log; meanwhile the state was built again."""
    lab = Lab(POLICIES[policy])
    caller, other = lab.caller(), lab.caller()
    await caller.ask("XADD a * f before", "XADD b * f before")
    with lab.at_the_disk("b"):
        other.send("XADD b * f v")
        await turn(lab)
        lab.full("a")
        caller.send("XADD a * f refused")
        await turn(lab)
        lab.log("a").run_round()
        caller.send("XADD a * f refused")
        await turn(lab)
        caller.send("XADD a * f kept")
        await lab.settle()
        assert caller.got() == []
    await lab.settle()
    assert kinds(caller.got()) == "xxi" and kinds(other.got()) == "i"
    assert lab.values("a") == [b"before", b"kept"]


@pytest.mark.parametrize("turns", range(6))
@in_loop
async def test_a_refusal_that_was_noticed_before_the_turn_ended_is_not_forgotten(turns: int) -> None:
    """Another thread has the state built again; what was held goes out, and a record gets through, before the flush."""
    lab = Lab(OS)
    first, second, third = lab.caller(), lab.caller(), lab.caller()
    await first.ask("XADD a * f before")
    with lab.at_the_disk("a"):
        await first.ask("XADD a * f held")
    first.line.on_write = lambda data: third.send("XADD a * f kept")
    lab.log("a").run_round()  # its answer is about to go out
    for _ in range(turns):
        await asyncio.sleep(0)
    second.send("XADD a * f refused")
    lab.full("a")
    with pytest.raises(StorageError):
        lab.topic("a").all_written()  # the upkeep, say
    await lab.settle()
    assert kinds(first.got() + second.got()) == "ix"
    assert lab.values("a") == [b"before", b"held", b"kept"][: 3 if kinds(third.got()) == "i" else 2]


@in_loop
async def test_a_log_that_failed_refuses_what_is_new_and_shows_what_is_old() -> None:
    lab = Lab(ALWAYS)
    caller = lab.caller()
    await caller.ask("XADD a * f before")
    lab.files.fail("sync", only="/a/")
    answers = await caller.ask("XADD a * f v", "XLEN a", "XADD b * f v")
    assert kinds(answers) == "xxi"
    answers = await caller.ask("XADD a * f v", "XLEN a", "XADD b * f v", "XRANGE a - +")
    assert kinds(answers) == "x.i." and answers[1] == 1 and answers[3][0][1] == [b"f", b"before"]


@EVERY_POLICY
@pytest.mark.parametrize("where", ["handing over", "writing"])
@in_loop
async def test_out_of_memory_is_an_error_for_who_was_concerned_and_all_others_are_answered(
    policy: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(POLICIES[policy])
    first, second, third = lab.caller(), lab.caller(), lab.caller()
    await first.ask("XADD a * f before", "XADD b * f before")
    encode = kernel.encode_into

    def fail_once(*arguments: object) -> object:
        monkeypatch.setattr(kernel, "encode_into", encode)
        raise MemoryError

    def fail_to_append(operation: str, path: str) -> None:
        if operation == "append" and "/a/" in path:
            lab.files.before = lambda operation, path: None
            raise MemoryError

    if where == "writing":
        lab.files.before = fail_to_append
    else:
        monkeypatch.setattr(kernel, "encode_into", fail_once)
    first.send("XADD a * f v")
    second.send("XADD b * f v")
    third.send("PING")
    await lab.settle()
    assert [kinds(caller.got()) for caller in (first, second, third)] == ["x", "i", "."]
    assert (lab.values("a"), lab.values("b")) == ([b"before"], [b"before", b"v"])


@EVERY_POLICY
@in_loop
async def test_what_could_not_be_handed_over_is_shown_to_nobody(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(POLICIES[policy])
    first, second = lab.caller(), lab.caller()
    await first.ask("XADD a * f before")
    with monkeypatch.context() as out_of_memory:
        out_of_memory.setattr(kernel, "encode_into", lambda *arguments: 1 / 0)
        first.send("XADD a * f v")
        await asyncio.sleep(0)  # it was tried, and not taken back yet
    second.send("XLEN a", "XRANGE a - + COUNT 1")
    await lab.settle()
    assert kinds(first.got()) == "x" and kinds(second.got()) == "x."
    assert await second.ask_one("XLEN a") == 1 and lab.values("a") == [b"before"]


@EVERY_POLICY
@in_loop
async def test_what_was_refused_is_an_error_also_when_the_log_cannot_be_read(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    await caller.ask("XADD a * f before")
    lab.full("a")
    for operation in ("open", "read", "list"):
        lab.files.fail(operation, only="/a", times=1000)
    assert kinds(await caller.ask("XADD a * f v", "XLEN a", "PING", "XADD b * f v")) == "xx.i"
    assert kinds(await caller.ask("XADD a * f v", "XADD b * f v")) == "xi"
    lab.files.heal()
    assert lab.values("a") == [b"before"]


@in_loop
async def test_an_acknowledgement_that_was_refused_is_an_error_and_is_pending_still() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    (id, _, _) = await caller.ask("XADD a * f v", "XGROUP CREATE a g 0", "XREADGROUP GROUP g ann STREAMS a >")
    lab.full("a/groups")
    assert kinds(await caller.ask(f"XACK a g {id.decode()}", "XLEN a")) == "x."
    assert (await caller.ask_one("XPENDING a g"))[0] == 1


# -- topics that go --------------------------------------------------------------------------------------------------


@EVERY_POLICY
@in_loop
async def test_answers_of_a_topic_that_is_deleted_meanwhile_come_all_the_same(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    first, second = lab.caller(), lab.caller()
    with lab.at_the_disk("a"):
        await first.ask("XADD a * f v", "XLEN a")
        assert await second.ask("DEL a") == [1]
    await lab.settle()
    answers = first.got()
    assert kinds(answers) == "i." and answers[1] == 1
    assert await second.ask_one("EXISTS a") == 0


@EVERY_POLICY
@in_loop
async def test_a_topic_that_is_deleted_and_made_again_in_one_pipeline_has_what_came_last(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    run = ["XADD a * f v"] * 3
    answers = await caller.ask(*run, "DEL a", *run, "XLEN a", "DEL a", "XADD a * f w", "XLEN a")
    assert kinds(answers) == "iii.iii..i."
    assert [answers[at] for at in (3, 7, 8, 10)] == [1, 3, 1, 1]
    assert lab.values("a") == [b"w"]


@in_loop
async def test_what_was_refused_is_told_though_the_topic_is_gone() -> None:
    lab = Lab(ALWAYS)
    first, second = lab.caller(), lab.caller()
    await first.ask("XADD a * f before")
    with lab.at_the_disk("a"):
        await first.ask("XADD a * f v")
        lab.full("a")
        assert await second.ask("DEL a") == [1]
    await lab.settle()
    assert kinds(first.got()) == "x"
