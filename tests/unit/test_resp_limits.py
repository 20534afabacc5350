"""Limits of the RESP door: how many clients, how long they may be silent, who they are, and how much they may send."""

from __future__ import annotations

import asyncio

import pytest

from integration.resp_wire import OK, Error, Simple, packed
from lamina.engines.jobs.engine import JobEngine
from lamina.log import ALWAYS, OS
from lamina.server.resp import door
from lamina.server.workq.door import WorkqDoor
from resp_lab import Caller, Lab, Line, in_loop

PONG = Simple(b"PONG")
NOAUTH = Error(b"NOAUTH Authentication required.")
LARGE = bytes(1_000_000)
LONG_S = 0.1  # more than enough for what is due after a hundredth of it


def is_over(caller: Caller) -> bool:
    return caller.line.is_closed or caller.line.has_ended


# -- how many --------------------------------------------------------------------------------------------------------


@in_loop
async def test_one_client_too_many_is_told_so_and_closed_and_the_others_go_on() -> None:
    lab = Lab(OS, max_connections=2)
    first, second, third = lab.caller(), lab.caller(), lab.caller()
    assert third.got() == [Error(b"ERR max number of clients reached")] and third.line.is_closed
    assert await first.ask("PING") == await second.ask("PING") == [PONG]
    first.connection.connection_lost(None)
    assert await lab.caller().ask("PING") == [PONG]


@in_loop
async def test_clients_that_left_are_forgotten() -> None:
    lab = Lab(OS, max_connections=2)
    for _ in range(5):
        lab.caller().connection.connection_lost(None)
    await lab.settle()
    assert not lab.door.connections and not lab.house.sessions


@in_loop
async def test_who_was_being_let_in_when_the_door_closed_is_hung_up_on() -> None:
    lab = Lab(OS)
    engine = JobEngine.open(None)
    jobs = WorkqDoor(engine)
    late, late_worker = lab.door(), jobs()
    await lab.door.close()
    await jobs.close()
    for connection in (late, late_worker):
        line = Line(("127.0.0.1", 1))
        line.protocol = connection
        connection.connection_made(line)  # type: ignore[arg-type]
        assert line.is_closed and not line.sent
    await lab.settle()
    assert not lab.door.connections and not lab.house.sessions and not jobs.connections
    engine.close()


# -- who they are ----------------------------------------------------------------------------------------------------


@in_loop
async def test_who_has_not_said_the_password_runs_nothing() -> None:
    lab = Lab(OS, password=b"secret")
    caller = lab.caller()
    assert await caller.ask(*["XADD a * f v"] * 3, "MULTI", "PING") == [NOAUTH] * 5
    wrong, right = await caller.ask("AUTH wrong", "AUTH secret")
    assert isinstance(wrong, Error) and right == OK
    assert await caller.ask("PING", "EXISTS a") == [PONG, 0]


@in_loop
async def test_a_large_command_behind_the_password_is_taken_in_whatever_pieces_it_comes() -> None:
    for piece in (100, 5000, 60_000, 2_000_000):
        lab = Lab(OS, password=b"secret")
        caller = lab.caller()
        data = packed(["AUTH", "secret"]) + packed(["XADD", "a", "*", "f", LARGE]) + packed(["XLEN", "a"])
        for at in range(0, len(data), piece):
            caller.send_raw(data[at : at + piece])
            await asyncio.sleep(0)
        await lab.settle()
        assert caller.got()[::2] == [OK, 1]


@pytest.mark.parametrize("before", [b"", packed(["AUTH", "wrong"]), packed(["PING"])])
@in_loop
async def test_a_stranger_that_sends_a_large_command_is_hung_up_on(before: bytes) -> None:
    lab = Lab(OS, password=b"secret")
    caller = lab.caller()
    data = before + packed(["XADD", "a", "*", "f", LARGE])
    for at in range(0, len(data), 3000):
        caller.send_raw(data[at : at + 3000])
        await asyncio.sleep(0)
    await lab.settle()
    *_, last = caller.got()
    assert last == Error(b"ERR Protocol error: unauthenticated bulk length") and is_over(caller)
    assert not caller.connection.unread and caller.connection.parser.pending < 10_000


# -- how long --------------------------------------------------------------------------------------------------------


@in_loop
async def test_who_is_silent_for_too_long_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_IDLE_EVERY_S", 0.001)
    lab = Lab(OS, idle_s=60)
    silent, busy, waiting = lab.caller(), lab.caller(), lab.caller()
    for caller in (silent, busy):
        await caller.ask("PING")
    await waiting.ask("XREAD BLOCK 0 STREAMS a $")
    lab.clock.advance(59)
    await busy.ask("PING")
    lab.clock.advance(2)
    await asyncio.sleep(LONG_S)
    assert [caller.line.is_closed for caller in (silent, busy, waiting)] == [True, False, False]
    await lab.door.close()


@in_loop
async def test_who_waits_for_an_answer_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_IDLE_EVERY_S", 0.001)
    lab = Lab(ALWAYS, idle_s=60)
    caller = lab.caller()
    with lab.at_the_disk("a"):
        await caller.ask("XADD a * f v")
        lab.clock.advance(61)
        await asyncio.sleep(LONG_S)
    is_closed = caller.line.is_closed
    await lab.settle()
    await lab.door.close()
    assert not is_closed and len(caller.got()) == 1


# -- how much --------------------------------------------------------------------------------------------------------


@in_loop
async def test_a_command_larger_than_any_may_be_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door, "_MOST_COMMAND", 100_000)
    lab = Lab(OS)
    caller, other = lab.caller(), lab.caller()
    data = packed(["PING"]) + packed(["XADD", "a", "*", "f", LARGE]) + packed(["FLUSHALL"])
    for at in range(0, len(data), 30_000):
        caller.send_raw(data[at : at + 30_000])
        await asyncio.sleep(0)
    await lab.settle()
    assert caller.got() == [PONG, Error(b"ERR Protocol error: a command of more than 100000 bytes")]
    assert is_over(caller) and not caller.connection.unread
    assert await other.ask("PING", "EXISTS a") == [PONG, 0]


@pytest.mark.parametrize("line", [b"POST / HTTP/1.1\r\n", b"post /\r\n", b"Host: 127.0.0.1\r\n"])
@in_loop
async def test_what_a_browser_sends_is_not_run(line: bytes) -> None:
    lab = Lab(OS)
    caller = lab.caller()
    caller.send_raw(line + b"\r\nXADD a * f v\r\nPING\r\n")
    await lab.settle()
    assert is_over(caller) and caller.got() == [] and lab.values("a") == []


@in_loop
async def test_a_client_that_does_not_read_its_answers_is_not_read_from() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    caller.connection.pause_writing()
    caller.send("XADD a * f v")
    await lab.settle()
    assert caller.line.is_paused and lab.values("a") == []
    caller.connection.resume_writing()
    await lab.settle()
    assert not caller.line.is_paused and lab.values("a") == [b"v"]


@in_loop
async def test_answers_that_wait_for_the_disk_do_not_fill_the_memory() -> None:
    lab = Lab(ALWAYS)
    caller = lab.caller()
    await caller.ask([b"XADD", b"large", b"*", b"f", LARGE])
    with lab.at_the_disk("a"):
        caller.send("XADD a * f v", *["XRANGE large - +"] * 100)
        for _ in range(200):
            await asyncio.sleep(0)
        held = sum(len(answer) for _, out, *_ in lab.door.answers._held for answer in out)
    for _ in range(20):
        await lab.settle()
    assert len(caller.got()) == 101 and held < 20 * len(LARGE)
