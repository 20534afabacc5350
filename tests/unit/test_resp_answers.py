"""Answers of the RESP door: none before all it rests on is as safe as the policy promises, each client's in order.

A disk in memory, a commit thread that is a hand, and somebody at the disk of one log while another goes on.
"""

from __future__ import annotations

import asyncio
import errno
import random
from typing import Any

import pytest

from integration.resp_wire import OK, QUEUED
from lamina.log import ALWAYS
from resp_lab import EVERY_POLICY, POLICIES, PONG, Caller, Lab, in_loop, is_id, is_refusal, kinds, turn

# -- not before it is safe -------------------------------------------------------------------------------------------


@EVERY_POLICY
@in_loop
async def test_an_answer_waits_until_its_log_has_come_so_far(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    with lab.at_the_disk("a"):
        assert await caller.ask("XADD a * f value-1", "XLEN a") == []
    await lab.settle()
    assert kinds(caller.got()) == "i."
    assert b"value-1" in lab.safe()


@EVERY_POLICY
@in_loop
async def test_what_is_written_and_not_synced_is_answered_unless_the_policy_is_always(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    log = lab.log("a")
    with lab.at_the_disk("a"):
        caller.send("XADD a * f v")
        await lab.settle()
        log.run_round(may_sync=False)  # whoever is there has written it, and syncs it now
        await lab.settle()
        assert log.written > log.synced
        assert kinds(caller.got()) == ("" if policy == "always" else "i")
        assert await lab.caller().ask("XLEN a") == ([] if policy == "always" else [1])
    await lab.settle()
    assert len(caller.got()) == (policy == "always")


@EVERY_POLICY
@in_loop
async def test_of_many_topics_in_one_turn_all_have_to_be_safe(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    names = [f"t{number}" for number in range(15)]  # as many as are run without a look at the clock
    lab.make(*names)
    with lab.at_the_disk("t14"):
        assert await caller.ask(*(f"XADD {name} * f v" for name in names)) == []
    await lab.settle()
    assert kinds(caller.got()) == "i" * 15
    assert all(lab.values(name) == [b"v"] for name in names)


@EVERY_POLICY
@in_loop
async def test_exec_is_answered_when_every_topic_it_changed_is_safe(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    with lab.at_the_disk("b"):
        answers = await caller.ask("MULTI", "XADD a * f v", "XADD b * f v", "XADD a * f w", "EXEC")
        assert len(answers) <= 4
    await lab.settle()
    *queued, done = answers + caller.got()
    assert queued == [OK, QUEUED, QUEUED, QUEUED] and kinds(done) == "iii"


@EVERY_POLICY
@in_loop
async def test_what_another_client_did_is_not_shown_before_it_is_safe(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    publisher, reader = lab.caller(), lab.caller()
    with lab.at_the_disk("a"):
        publisher.send("XADD a * f v")
        for command in ("XLEN a", "XRANGE a - +", "EXISTS a", "KEYS *", "XREAD STREAMS a 0"):
            assert await reader.ask(command) == []
    await lab.settle()
    assert [bool(each) for each in reader.got()] == [True] * 5


@EVERY_POLICY
@in_loop
async def test_groups_have_a_log_of_their_own_to_wait_for(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    (id, made) = await caller.ask("XADD a * f v", "XGROUP CREATE a g 0")
    assert made == OK
    log: Any = lab.topic("a").groups.log
    with lab.at_the_disk(log):
        assert await caller.ask("XREADGROUP GROUP g ann STREAMS a >") == []
    await lab.settle()
    assert caller.got() == [[[b"a", [[id, [b"f", b"v"]]]]]]


@EVERY_POLICY
@pytest.mark.parametrize("seed", range(8))
@in_loop
async def test_no_client_is_ever_told_of_an_entry_that_is_not_safe(policy: str, seed: int) -> None:
    """At the moment of each answer, on a disk that is busy or full at times; and none is answered out of its turn."""
    lab, chance = Lab(POLICIES[policy]), random.Random(seed)
    names = ["a", "b", "c"]
    callers = [lab.caller() for _ in range(4)]
    asked: dict[Caller, list[bytes]] = {caller: [] for caller in callers}
    told: dict[Caller, list[Any]] = {caller: [] for caller in callers}

    unsafe: list[tuple[bytes, Any]] = []

    def look_at(caller: Caller) -> None:
        for answer in caller.got():
            value = asked[caller][len(told[caller])]
            told[caller].append(answer)
            if is_id(answer) and value not in lab.safe():
                unsafe.append((value, answer))
            assert is_id(answer) or is_refusal(answer) or answer == value

    for caller in callers:
        caller.line.on_write = lambda data, caller=caller: look_at(caller)  # type: ignore[misc]
    for step in range(60):
        for caller in chance.sample(callers, chance.randint(1, 4)):
            commands: list[str | list[bytes]] = []
            for number in range(chance.randint(1, 4)):
                value = b"<%d.%d.%d>" % (callers.index(caller), step, number)
                asked[caller].append(value)
                name = chance.choice(names).encode()
                is_echo = chance.random() < 0.3
                commands.append([b"ECHO", value] if is_echo else [b"XADD", name, b"*", b"f", value])
            caller.send(*commands)
        if chance.random() < 0.3:
            lab.full(chance.choice(names))
        if chance.random() < 0.5:
            lab.clock.advance(0.002)
        busy = chance.sample(names, chance.randint(0, 2))
        with lab.at_the_disk(*busy):
            for _ in range(chance.randint(0, 3)):
                await lab.settle() if chance.random() < 0.2 else await turn(lab)
    lab.files.heal()
    await lab.settle()
    assert not unsafe
    kept = {value for name in names for value in lab.values(name)}
    for caller in callers:
        assert len(told[caller]) == len(asked[caller])
        for value, answer in zip(asked[caller], told[caller], strict=True):
            assert (value in kept) == is_id(answer)
    assert any(is_refusal(answer) for caller in callers for answer in told[caller])


# -- one after the other, and no others ------------------------------------------------------------------------------


@EVERY_POLICY
@in_loop
async def test_what_rests_on_nothing_waits_only_for_answers_of_the_same_client(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    first, second, third = lab.caller(), lab.caller(), lab.caller()
    await third.ask("XADD b * f v", "XADD c * f v")
    with lab.at_the_disk("a"):
        assert await first.ask("XADD a * f v") == []
        assert await first.ask("PING") == []
        assert await second.ask("PING", "XLEN nothing") == [PONG, 0]
        assert await third.ask("XLEN b", "XADD c * f v" if policy != "always" else "PING") != []
    await lab.settle()
    answers = first.got()
    assert kinds(answers) == "i." and answers[1] == PONG


@EVERY_POLICY
@in_loop
async def test_a_client_that_was_held_up_is_not_so_any_more(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    with lab.at_the_disk("a"):
        await caller.ask("XADD a * f v")
    await lab.settle()
    caller.got()
    with lab.at_the_disk("a"):
        assert await caller.ask("PING") == [PONG]


@EVERY_POLICY
@in_loop
async def test_many_turns_are_answered_in_order(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller = lab.caller()
    with lab.at_the_disk("a", "c"):
        for number in range(30):
            caller.send(f"XADD {'abc'[number % 3]} * f v", f"ECHO {number}")
            await turn(lab)
        with lab.at_the_disk("b"):
            await lab.settle()
    await lab.settle()
    answers = caller.got()
    assert kinds(answers) == "i." * 30
    assert answers[1::2] == [b"%d" % number for number in range(30)]


@in_loop
async def test_who_left_while_its_answers_were_held_holds_up_nobody() -> None:
    lab = Lab(ALWAYS)
    first, second = lab.caller(), lab.caller()
    with lab.at_the_disk("a"):
        await first.ask("XADD a * f v")
        await second.ask("XADD a * f w")
        first.connection.connection_lost(None)
        await lab.settle()
    await lab.settle()
    assert kinds(second.got()) == "i" and first.line.sent == b""
    assert lab.values("a") == [b"v", b"w"]


@in_loop
async def test_who_quits_gets_all_answers_before_the_end() -> None:
    lab = Lab(ALWAYS)
    caller = lab.caller()
    with lab.at_the_disk("a"):
        assert await caller.ask("XADD a * f v", "QUIT") == [] and not caller.line.has_ended
    await lab.settle()
    assert kinds(caller.got()) == "i." and caller.line.has_ended


@EVERY_POLICY
@in_loop
async def test_a_door_that_closes_lets_held_answers_out_first(policy: str) -> None:
    lab = Lab(POLICIES[policy])
    caller, waiting = lab.caller(), lab.caller()
    await waiting.ask("XREAD BLOCK 0 STREAMS nothing $")
    lab.make("b")
    with lab.at_the_disk("a"):
        await caller.ask("XADD a * f v")
        caller.send("XADD b * f v", "PING")
        closing = asyncio.create_task(lab.door.close())
        await lab.settle()
        assert not closing.done() and not caller.line.is_closed
    await lab.settle()
    assert closing.done() and kinds(caller.got()) == "ii." and caller.line.is_closed
    assert waiting.line.sent == b"" and waiting.line.is_closed


# -- clients that are gone -------------------------------------------------------------------------------------------


@in_loop
async def test_a_client_that_is_gone_when_its_last_answer_was_sent_keeps_no_other_from_its_own() -> None:
    lab, problems = Lab(), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: problems.append(context))
    gone, other = lab.caller(), lab.caller()

    def raise_error() -> None:
        raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")

    gone.line.write_eof = raise_error  # type: ignore[method-assign]  # as asyncio's own loop: it shuts the socket down
    gone.send("QUIT")
    other.send("PING")
    await lab.settle()
    assert other.got() == [PONG]
    assert gone.line.is_closed and gone.connection not in lab.door.connections
    assert problems == []
