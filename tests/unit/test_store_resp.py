"""The store over the RESP door: what clients are told, and when, while the disk is slow, full or odd."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from integration.resp_wire import OK, QUEUED, Error, Map
from lamina.server.resp import store_past
from lamina.server.resp.store_past import Moment
from lamina.units import MIB, show_time
from resp_lab import PONG, Lab, in_loop, is_refusal
from store_doors import FOLDER, StoreDoors, on_its_loop, says

SYNTAX = Error(b"ERR syntax error")


@contextmanager
def held_elsewhere(lock: AbstractContextManager[object]) -> Iterator[None]:
    """By another thread."""
    may_end, has_begun = threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_begun.set()
            may_end.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    has_begun.wait(30)
    try:
        yield
    finally:
        may_end.set()
        thread.join()


@pytest.fixture
def lab() -> Iterator[StoreDoors]:
    with asyncio.Runner() as runner:

        async def make() -> StoreDoors:
            return StoreDoors(runner)

        made = runner.run(make())
        yield made
        made.close()


# -- writing and reading -----------------------------------------------------------------------------------------------


@on_its_loop
async def test_what_was_written_is_read(lab: StoreDoors) -> None:
    caller = lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1 PUT b 2 DEL nothing")
    assert type(epoch) is int and epoch >= 1
    assert await lab.answers(caller, "S.GET 1 a", "S.GET 1 b", "S.GET 1 c", "S.GET 2 a") == [b"1", b"2", None, None]
    assert lab.left() == {b"a": b"1", b"b": b"2"}


@on_its_loop
async def test_changes_of_a_session_count_in_their_order(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT a 1 PUT b 1 IN 2 PUT x 1")
    await lab.answer(caller, "s.write 1 put a 2 clear put c 3 del c put d 4 in 2 put y 2")
    assert lab.left() == {b"d": b"4"}
    assert await lab.answers(caller, "S.GET 2 x", "S.GET 2 y") == [b"1", b"2"]


@on_its_loop
async def test_any_bytes_can_be_keys_and_values(lab: StoreDoors) -> None:
    caller = lab.caller()
    key, value = bytes(range(256)), b"\r\n\0" * 1000
    await lab.answer(caller, [b"S.WRITE", b"18446744073709551615", b"PUT", key, value, b"PUT", b"", b"empty"])
    assert await lab.answers(
        caller, [b"S.GET", b"18446744073709551615", key], [b"S.GET", b"18446744073709551615", b""]
    ) == [value, b"empty"]


@on_its_loop
async def test_a_client_sees_what_it_wrote_though_all_was_sent_at_once(lab: StoreDoors) -> None:
    caller = lab.caller()
    answers = await lab.answers(
        caller, "S.WRITE 1 PUT a 1", "S.GET 1 a", "S.WRITE 1 PUT a 2 NOWAIT", "S.GET 1 a", "S.SCAN 1", "PING"
    )
    assert answers[1::2] == [b"1", b"2", PONG]
    assert answers[4] == [None, [b"a", b"2"]]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        ("S.WRITE 1", b"ERR wrong number of arguments for 's.write' command"),
        ("S.WRITE 1 PUT a", SYNTAX),
        ("S.WRITE 1 PUT a 1 DEL", SYNTAX),
        ("S.WRITE 1 PUT a 1 NOPE", SYNTAX),
        ("S.WRITE 1 NOWAIT", SYNTAX),
        ("S.WRITE 1 IN", SYNTAX),
        ("S.WRITE 1 PUT a 1 IN x PUT b 2", b"ERR a storage is a number from 0 to 18446744073709551615"),
        ("S.WRITE -1 PUT a 1", b"ERR a storage is a number from 0 to 18446744073709551615"),
        ("S.WRITE 18446744073709551616 PUT a 1", b"ERR a storage is a number from 0 to 18446744073709551615"),
        ("S.GET 1", b"ERR wrong number of arguments for 's.get' command"),
        ("S.GET one a", b"ERR a storage is a number from 0 to 18446744073709551615"),
        ("S.GET 1 a ASOF", SYNTAX),
        ("S.GET 1 a SINCE 3", SYNTAX),
        ("S.GET 1 a ASOF 3 4", SYNTAX),
        ("S.SCAN", b"ERR wrong number of arguments for 's.scan' command"),
        ("S.SCAN 1 FROM", SYNTAX),
        ("S.SCAN 1 NOPE a", SYNTAX),
        ("S.SCAN 1 COUNT 0", b"ERR COUNT is from 1 to 10000"),
        ("S.SCAN 1 COUNT 10001", b"ERR COUNT is from 1 to 10000"),
        ("S.SCAN 1 COUNT -1", b"ERR value is not an integer or out of range"),
        ("S.EPOCH 1", b"ERR wrong number of arguments for 's.epoch' command"),
        ("S.ROTATE now", b"ERR syntax error"),
        ("S.STORAGES 1", b"ERR syntax error"),
        ("S.COMPACT now", SYNTAX),
        ("S.COMPACT CLEAN KEEP", SYNTAX),
        ("S.COMPACT CLEAN HOLD 3", SYNTAX),
        ("S.COMPACT CLEAN KEEP x", b"ERR value is not an integer or out of range"),
    ],
)
@on_its_loop
async def test_bad_input_is_refused_and_changes_nothing(lab: StoreDoors, command: str, problem: bytes) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT a before")
    assert await lab.answers(caller, command, "S.SCAN 1") == [Error(problem), [None, [b"a", b"before"]]]


@pytest.mark.parametrize("word", [b"", b"-1", b"1.5", b"18446744073709551616", b"17 ms", b"ms", b"2026", b"2026-11-40"])
def test_a_moment_is_an_epoch_or_a_time_and_nothing_else(word: bytes) -> None:
    if word == b"2026":
        assert Moment.parse(word) == (2026, None)
    else:
        with pytest.raises(Exception, match="ASOF"):
            Moment.parse(word)


def test_times_as_of_which_can_be_read() -> None:
    assert Moment.parse(b"1794725200506ms") == (0, 1794725200506 * 10**6)
    assert Moment.parse(b"2026-11-15T06:26:40.506Z") == (0, 1794724000506 * 10**6)
    assert Moment.parse(b"2026-11-15T07:26:40.506+01:00") == (0, 1794724000506 * 10**6)
    assert Moment.parse(b"2026-11-15") == (0, 1794700800 * 10**9)


@on_its_loop
async def test_a_session_above_the_limit_is_refused_whole(lab: StoreDoors) -> None:
    lab.options_of_store = type(lab.options_of_store)(max_session_bytes=1024)
    caller = lab.caller()
    answer = await lab.answer(caller, [b"S.WRITE", b"1", b"PUT", b"a", b"1", b"PUT", b"b", b"x" * 1024])
    assert says(answer, "ERR the session has more than 1024 bytes")
    assert await lab.answer(caller, "S.SCAN 1") == [None, []]


@in_loop
async def test_without_a_store_the_commands_are_refused() -> None:
    lab = Lab()
    off = Error(b"ERR the store is switched off (lamina serve --store)")
    commands = ("S.WRITE 1 CLEAR", "S.GET 1 a", "S.SCAN 1", "S.EPOCH", "S.ROTATE", "S.COMPACT", "S.STORAGES")
    assert await lab.caller().ask(*commands) == [off] * len(commands)


@on_its_loop
async def test_nothing_is_made_before_the_first_command(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "PING")
    assert not any(name.startswith(FOLDER) for name in lab.disk.contents())
    await lab.answer(caller, "S.EPOCH")
    assert f"{FOLDER}/epoch" in lab.disk.contents()


@on_its_loop
async def test_a_store_that_cannot_be_opened_is_tried_again_by_the_next_command(lab: StoreDoors) -> None:
    caller = lab.caller()
    lab.files.fail("create", only=f"{FOLDER}/")
    assert is_refusal(await lab.answer(caller, "S.GET 1 a"))
    assert await lab.answer(caller, "S.GET 1 a") is None


# -- told when it is so ------------------------------------------------------------------------------------------------


@on_its_loop
async def test_a_write_is_answered_when_it_is_durable_and_holds_up_nobody(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    with lab.syncing():
        caller.send("S.WRITE 1 PUT a 1", "S.WRITE 1 PUT b 2", "PING")
        other.send("XADD topic 1-1 f v", "S.GET 1 a", "PING", "S.WRITE 1 PUT n 1 NOWAIT")
        await lab.until(lambda: len(other.line.sent) > 20)
        answers = other.got()
        assert answers[1:3] == [None, PONG] and type(answers[3]) is int
        assert caller.got() == []
    answers = await lab.answers(caller, count=3)
    assert answers[2] == PONG and answers[0] <= answers[1]
    assert lab.left()[b"b"] == b"2"


@on_its_loop
async def test_who_waits_for_a_topic_does_not_wait_for_the_store_and_each_keeps_its_order(lab: StoreDoors) -> None:
    caller, other, both, turned = (lab.caller() for _ in range(4))
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    with lab.syncing():
        with lab.at_the_disk("t"):
            caller.send("S.WRITE 1 PUT a 1")
            await lab.settle()
            other.send("XADD t 1-1 f v", "PING")
            both.send("S.WRITE 1 PUT b 2")
            turned.send("XADD t 2-1 f v")
            await lab.settle()
            both.send("XADD t 3-1 f v", "PING")
            turned.send("S.WRITE 1 PUT c 3")
            await lab.settle()
            assert not any(each.got() for each in (caller, other, both, turned))
        await lab.settle()
        assert other.got() == [b"1-1", PONG]
        assert turned.got() in ([], [b"2-1"])
        assert caller.got() == both.got() == []
    epoch, *rest = await lab.answers(both, count=3)
    assert type(epoch) is int and rest == [b"3-1", PONG]
    assert type((await lab.answers(caller, count=1))[0]) is int
    await lab.until(lambda: turned.line.sent.count(b":") == 1)
    assert turned.line.sent.startswith(b"$3\r\n2-1\r\n:")
    assert not lab.door.answers._in_late


@on_its_loop
async def test_commands_that_were_sent_ahead_share_epochs(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    answers = await lab.answers(caller, *(f"S.WRITE 1 PUT key-{number} value" for number in range(1000)))
    assert all(type(each) is int for each in answers) and answers == sorted(answers)
    assert len(set(answers)) < 100
    assert len(lab.left()) == 1001


@on_its_loop
async def test_a_client_that_wants_no_answer_waits_for_none_but_waitaof_does(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    with lab.syncing():
        assert type(await lab.answer(caller, "S.WRITE 1 PUT a 1 NOWAIT")) is int
        caller.send("WAITAOF 1 0 0")
        await asyncio.sleep(0.05)
        await lab.settle()
        assert caller.got() == []
    assert await lab.answers(caller, count=1) == [[1, 0]]
    assert lab.left()[b"a"] == b"1"


@on_its_loop
async def test_a_full_disk_is_told_to_those_concerned_and_to_nobody_else(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    lab.files.fail("append", error=errno.ENOSPC, only=f"{FOLDER}/pwal")
    caller.send("S.WRITE 1 PUT a 1", "S.WRITE 1 PUT b 1", "S.GET 1 a", "S.GET 1 warm")
    (refused, also, nothing, there) = await lab.answers(caller, count=4)
    assert is_refusal(refused) and is_refusal(also)
    assert (nothing, there) == (None, b"up")
    assert type(await lab.answer(other, "S.WRITE 1 PUT a 2")) is int
    assert await lab.answer(caller, "S.GET 1 a") == b"2"
    assert lab.left() == {b"warm": b"up", b"a": b"2"}


@on_its_loop
async def test_a_refused_epoch_is_told_though_a_later_one_is_durable_before_anybody_looks(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    lab.files.fail("append", error=errno.ENOSPC, only=f"{FOLDER}/pwal")
    caller.send("S.WRITE 1 PUT a 1")
    epoch = lab.store.engine.newest_epoch
    with pytest.raises(Exception, match="room"):  # the loop does not run meanwhile
        lab.store.wait_durable(epoch, 10)
    caller.send("S.WRITE 1 PUT b 1")
    lab.store.wait_durable(lab.store.engine.newest_epoch, 10)
    refused, taken = await lab.answers(caller, count=2)
    assert is_refusal(refused) and type(taken) is int
    assert lab.left() == {b"warm": b"up", b"b": b"1"}


@pytest.mark.parametrize("only", ["pwal", "epoch"])
@on_its_loop
async def test_a_failed_sync_is_told_and_so_is_everything_behind_it(lab: StoreDoors, only: str) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    lab.files.fail("sync", only=f"{FOLDER}/{only}")
    assert is_refusal(await lab.answer(caller, "S.WRITE 1 PUT a 1"))
    assert is_refusal(await lab.answer(caller, "S.WRITE 1 PUT b 1"))
    assert await lab.answers(caller, "S.GET 1 a", "S.GET 1 warm") == [None, b"up"]
    with pytest.raises(Exception, match="sync"):
        lab.store.switch_epoch()


@on_its_loop
async def test_a_client_that_leaves_takes_nothing_along(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    with lab.syncing():
        caller.send([b"S.WRITE", b"1", b"PUT", b"large", b"x" * MIB])
        await lab.settle()
        caller.connection.connection_lost(None)
        await lab.settle()
    await lab.until(lambda: lab.store.get(1, b"large") is not None)
    assert type(await lab.answer(other, "S.WRITE 1 PUT a 2")) is int


@on_its_loop
async def test_large_sessions_of_many_clients_are_all_written(lab: StoreDoors) -> None:
    callers = [lab.caller() for _ in range(5)]
    for number, caller in enumerate(callers):
        caller.send(*([b"S.WRITE", b"1", b"PUT", b"%d-%d" % (number, at), b"x" * 300_000] for at in range(3)))
    for caller in callers:
        assert [type(each) for each in await lab.answers(caller, count=3)] == [int] * 3
    assert len(lab.left()) == 15


# -- transactions ------------------------------------------------------------------------------------------------------


@on_its_loop
async def test_a_transaction_writes_and_is_answered_when_that_is_durable(lab: StoreDoors) -> None:
    caller = lab.caller()
    answers = await lab.answers(caller, "MULTI", "S.WRITE 1 PUT a 1", "S.GET 1 a", "S.EPOCH", "EXEC", "S.GET 1 a")
    assert answers[:4] == [OK, QUEUED, QUEUED, QUEUED]
    epoch, before, epochs = answers[4]
    assert type(epoch) is int and before is None and epochs[:2] == [b"current", epoch]
    assert answers[5] == b"1"


@on_its_loop
async def test_a_transaction_is_told_what_the_disk_refused(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    lab.files.fail("append", error=errno.ENOSPC, only=f"{FOLDER}/pwal")
    assert is_refusal((await lab.answers(caller, "MULTI", "S.WRITE 1 PUT a 1", "EXEC"))[2])
    assert await lab.answer(caller, "S.GET 1 a") is None


@pytest.mark.parametrize("command", ["S.SCAN 1", "S.ROTATE", "S.COMPACT", "S.STORAGES", "S.GET 1 a ASOF 1"])
@on_its_loop
async def test_what_has_to_wait_is_refused_in_a_transaction(lab: StoreDoors, command: str) -> None:
    answers = await lab.answers(lab.caller(), "MULTI", command, "EXEC")
    assert says(answers[2][0], "ERR ") and answers[2][0].endswith(b"is not allowed inside a transaction")


@on_its_loop
async def test_a_transaction_writes_while_the_disk_is_slow(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    await lab.answer(caller, "S.EPOCH")
    engine = lab.store.engine
    with lab.creating():  # the first file of the channel
        caller.send("S.WRITE 1 PUT first 1")
        await lab.until(lambda: engine.epoch > engine.newest_epoch > 0)
        other.send("MULTI", "S.WRITE 1 PUT a 1", "EXEC", "S.WRITE 1 PUT b 1")
        await lab.until(lambda: engine.written_sessions == 3)
        assert engine.last_epoch == 0
    assert [type(each) for each in await lab.answers(caller, count=1)] == [int]
    answers = await lab.answers(other, count=4)
    assert type(answers[2][0]) is int and type(answers[3]) is int
    assert lab.left() == {b"first": b"1", b"a": b"1", b"b": b"1"}


# -- going through entries -----------------------------------------------------------------------------------------


@on_its_loop
async def test_a_scan_goes_on_from_the_key_it_names(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, " ".join(["S.WRITE 1", *(f"PUT k{n:03d} v{n}" for n in range(250))]))
    found: list[bytes] = []
    start: bytes | None = b""
    pages = 0
    while start is not None:
        start, flat = await lab.answer(caller, [b"S.SCAN", b"1", b"FROM", start])
        found += flat
        pages += 1
    assert pages == 3
    assert found[::2] == [b"k%03d" % number for number in range(250)]
    assert found[1::2] == [b"v%d" % number for number in range(250)]
    assert await lab.answer(caller, "S.SCAN 1 FROM k100 TO k102 COUNT 10000") == [
        None,
        [b"k100", b"v100", b"k101", b"v101"],
    ]
    assert await lab.answers(caller, "S.SCAN 1 COUNT 1 FROM k249", "S.SCAN 2", "S.SCAN 1 FROM z") == [
        [None, [b"k249", b"v249"]],
        [None, []],
        [None, []],
    ]


@on_its_loop
async def test_an_answer_of_a_scan_is_not_larger_than_it_may_be(lab: StoreDoors) -> None:
    caller = lab.caller()
    for number in range(6):
        await lab.answer(caller, [b"S.WRITE", b"1", b"PUT", b"%d" % number, b"x" * (1 + number // 5 * 5) * MIB])
    following, flat = await lab.answer(caller, "S.SCAN 1")
    assert (following, flat[::2]) == (b"3", [b"0", b"1", b"2"])
    following, flat = await lab.answer(caller, "S.SCAN 1 FROM 5")
    assert (following, len(flat[1])) == (None, 6 * MIB)


@on_its_loop
async def test_storages_are_counted(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 3 ADD IN 1 PUT a 1 PUT b 2 IN 18446744073709551615 PUT a 1 IN 4 PUT x y")
    await lab.answer(caller, "S.WRITE 4 DROP")
    assert await lab.answer(caller, "S.STORAGES") == [[b"1", 2], [b"3", 0], [b"18446744073709551615", 1]]


@on_its_loop
async def test_a_key_is_looked_up_while_scans_wait_and_entries_are_taken(lab: StoreDoors) -> None:
    caller, other, third = lab.caller(), lab.caller(), lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT a 1")
    for _ in range(2):
        await lab.served._reading.acquire()  # two long ones
    other.send("S.SCAN 1")
    third.send("S.STORAGES")
    assert (await lab.answers(caller, "S.WRITE 1 PUT a 2", "S.GET 1 a"))[1] == b"2"
    with held_elsewhere(lab.store.engine.view.lock):
        caller.send("S.GET 1 a", "PING")
        third.send("PING")
        await lab.settle()
        assert caller.got() == other.got() == []
    assert await lab.answers(caller, count=2) == [b"2", PONG]
    third.connection.connection_lost(None)  # it is no longer in the queue
    lab.served._reading.release()
    assert await lab.answers(other, count=1) == [[None, [b"a", b"2"]]]
    assert not lab.served._reading.locked()


# -- epochs, rotation, compaction ----------------------------------------------------------------------------------


@on_its_loop
async def test_the_epochs_are_told(lab: StoreDoors) -> None:
    caller = lab.caller()
    assert await lab.answer(caller, "S.EPOCH") == [b"current", 1, b"durable", 0, b"compacted", 0, b"generation", 0]
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    await lab.answer(caller, "HELLO 3")
    told = dict(await lab.answer(caller, "S.EPOCH"))
    assert told[b"durable"] >= epoch and told[b"current"] > told[b"durable"]


@on_its_loop
async def test_a_rotation_names_the_boundary_and_the_files(lab: StoreDoors) -> None:
    caller = lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    boundary, files, new = await lab.answer(caller, "S.ROTATE")
    assert boundary >= epoch and new == files
    assert [name.split(b".")[0] for name in files] == [b"pwal_0000", b"epoch"]
    assert all(f"{FOLDER}/{name.decode()}" in lab.disk.contents() for name in files)
    again = await lab.answers(caller, "S.WRITE 1 PUT a 2", "S.ROTATE", "S.GET 1 a")
    assert again[0] > boundary and again[1][0] >= again[0] and again[2] == b"2"


@on_its_loop
async def test_writing_goes_on_while_files_are_rotated(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT warm up")
    for number in range(20):
        caller.send(*(f"S.WRITE 1 PUT {number}-{at} v" for at in range(10)))
        other.send("S.ROTATE")
        await lab.settle()
    assert all(type(each) is int for each in await lab.answers(caller, count=200))
    boundaries = [answer[0] for answer in await lab.answers(other, count=20)]
    assert boundaries == sorted(set(boundaries))
    assert len(lab.left()) == 201


@on_its_loop
async def test_a_compaction_tells_what_it_did_and_cleans_up_if_asked_to(lab: StoreDoors) -> None:
    caller = lab.caller()
    for number in range(10):
        await lab.answer(caller, f"S.WRITE 1 PUT a {number} PUT b{number} x")
    flat = await lab.answer(caller, "S.COMPACT")
    report = dict(zip(flat[::2], flat[1::2], strict=True))
    assert (report[b"generation"], report[b"entries-read"], report[b"entries-live"]) == (1, 20, 11)
    assert len(report[b"inputs"]) == 1 and float(report[b"seconds"]) >= 0
    await lab.answer(caller, "HELLO 3")
    await lab.answer(caller, "S.WRITE 1 PUT a last")
    answer = await lab.answer(caller, "S.COMPACT CLEAN")
    assert isinstance(answer, Map)
    report = dict(answer)
    assert report[b"generation"] == 2 and report[b"removed-bytes"] > 0 and type(report[b"seconds"]) is float
    assert not {name.decode() for name in report[b"removed"]} & {
        path.removeprefix(f"{FOLDER}/") for path in lab.disk.contents()
    }
    assert await lab.answers(caller, "S.GET 1 a", "S.GET 1 b9") == [b"last", b"x"]


@on_its_loop
async def test_there_is_no_compaction_to_stop(lab: StoreDoors) -> None:
    caller = lab.caller()
    assert await lab.answer(caller, "S.COMPACT STOP") == 0
    assert says(await lab.answer(caller, "S.COMPACT STOP x"), "ERR syntax")


@on_its_loop
async def test_a_compaction_that_fails_is_told_and_changes_nothing(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT a 1")
    lab.files.fail("create", only=f"{FOLDER}/pwal_compacted", times=99)
    assert is_refusal(await lab.answer(caller, "S.COMPACT"))
    assert await lab.answer(caller, "S.GET 1 a") == b"1"


@on_its_loop
async def test_what_is_given_up_at_the_end_is_told(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, "S.WRITE 1 PUT a 1")
    lab.house.stops()
    await lab.until(lambda: lab.store.compactions._is_stopped)
    assert says(await lab.answer(caller, "S.COMPACT"), "TRYAGAIN the store is being closed")


# -- as of -------------------------------------------------------------------------------------------------------------


@on_its_loop
async def test_values_as_of_an_epoch_and_a_time(lab: StoreDoors) -> None:
    caller = lab.caller()
    first = await lab.answer(caller, "S.WRITE 1 PUT a 1 PUT gone x")
    between = lab.store.engine.clock.now_ns()
    second = await lab.answer(caller, "S.WRITE 1 PUT a 2 DEL gone")
    assert await lab.answers(
        caller,
        f"S.GET 1 a ASOF {first}",
        f"S.GET 1 a asof {second}",
        f"S.GET 1 gone ASOF {first}",
        f"S.GET 1 gone ASOF {second}",
        "S.GET 1 a ASOF 0",
        f"S.GET 1 a ASOF {show_time(between)}",
        "S.GET 1 a ASOF 2100-01-01",
        "S.GET 1 a ASOF 1000ms",
        f"S.SCAN 1 ASOF {first}",
        f"S.SCAN 1 ASOF {second}",
    ) == [b"1", b"2", b"x", None, None, b"1", b"2", None, [None, [b"a", b"1", b"gone", b"x"]], [None, [b"a", b"2"]]]


@on_its_loop
async def test_an_epoch_that_is_not_over_cannot_be_read(lab: StoreDoors) -> None:
    assert says(await lab.answer(lab.caller(), "S.GET 1 a ASOF 1000"), "ERR epoch 1000 is not durable yet")


@on_its_loop
async def test_a_client_may_ask_as_of_the_epoch_it_is_about_to_be_told(lab: StoreDoors) -> None:
    caller = lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1 NOWAIT")
    assert await lab.answer(caller, f"S.GET 1 a ASOF {epoch}") == b"1"


@on_its_loop
async def test_what_was_cleaned_up_is_too_old(lab: StoreDoors) -> None:
    caller = lab.caller()
    first = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    await lab.answer(caller, "S.WRITE 1 PUT a 2")
    await lab.answer(caller, "S.COMPACT CLEAN")
    answer = await lab.answer(caller, f"S.GET 1 a ASOF {first}")
    compacted = dict(zip(*[iter(await lab.answer(caller, "S.EPOCH"))] * 2, strict=True))[b"compacted"]
    assert says(answer, "TOOOLD ") and answer.endswith(b"the oldest epoch that can be read is %d" % compacted)


@on_its_loop
async def test_what_is_to_be_kept_can_be_read(lab: StoreDoors) -> None:
    caller = lab.caller()
    first = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    await lab.answer(caller, "S.WRITE 1 PUT a 2")
    await lab.answer(caller, f"S.COMPACT CLEAN KEEP {first}")
    assert await lab.answer(caller, f"S.GET 1 a ASOF {first}") == b"1"


@on_its_loop
async def test_who_pages_through_the_past_has_the_files_read_once(lab: StoreDoors) -> None:
    caller = lab.caller()
    await lab.answer(caller, " ".join(["S.WRITE 1", *(f"PUT k{n:03d} v" for n in range(50))]))
    reads = 0
    real = lab.store.as_of

    def counted(**how: Any) -> Any:
        nonlocal reads
        reads += 1
        return real(**how)

    lab.store.as_of = counted  # type: ignore[method-assign]
    epoch = await lab.answer(caller, "S.WRITE 1 PUT other epoch")
    keys: list[bytes] = []
    start: bytes | None = b""
    while start is not None:
        start, flat = await lab.answer(
            caller, [b"S.SCAN", b"1", b"FROM", start, b"COUNT", b"7", b"ASOF", b"%d" % epoch]
        )
        keys += flat[::2]
        await lab.answer(caller, f"S.GET 1 k000 ASOF {epoch - 1}")
    assert len(keys) == 51
    assert reads == 2
    lab.served.past.forget()
    await lab.answer(caller, f"S.GET 1 k000 ASOF {epoch}")
    assert reads == 3


@on_its_loop
async def test_views_of_the_past_are_let_go_of(lab: StoreDoors, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_past, "_KEPT_S", 0.01)
    caller = lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    await lab.answer(caller, f"S.GET 1 a ASOF {epoch}")
    await lab.until(lambda: not lab.served.past._views)


@on_its_loop
async def test_who_left_has_no_view_of_the_past_made(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    async with lab.served.past._one:  # another one is being made
        other.send(f"S.GET 1 a ASOF {epoch}")
        await lab.settle()
        other.connection.connection_lost(None)
        await lab.settle()
    await lab.settle()
    assert not lab.served.past._views
    assert await lab.answer(caller, f"S.GET 1 a ASOF {epoch}") == b"1"
