"""WAITAOF: what this client was told is made safe against a power cut, whatever the policy."""

from __future__ import annotations

import asyncio

import pytest

from integration.resp_wire import Error
from lamina.log import ALWAYS, OS, interval
from resp_lab import Lab, in_loop

NO_NUMBER = b"ERR value is not an integer or out of range"
LONG_S = 0.05  # more than enough for what takes a millisecond


@in_loop
async def test_waitaof_waits_for_the_sync_of_what_came_before_it() -> None:
    lab = Lab(interval(1000))
    caller = lab.caller()
    with lab.at_the_disk("a"):
        lab.log("a").run_round(may_sync=False)
    with lab.at_the_disk("b"):
        caller.send("XADD a * f value-a", "XADD b * f value-b", "WAITAOF 1 0 0", "PING")
        await lab.settle()
        lab.log("b").run_round(may_sync=False)
        await lab.settle()
        assert len(caller.got()) == 2
    await lab.settle()
    assert caller.got() == [[1, 0], b"PONG"]
    synced = b"".join(lab.disk.synced.values())
    assert b"value-a" in synced and b"value-b" in synced


@in_loop
async def test_waitaof_has_nothing_to_wait_for_when_all_is_synced() -> None:
    lab = Lab(ALWAYS)
    caller = lab.caller()
    assert await caller.ask_one("WAITAOF 1 0 0") == [1, 0]
    await caller.ask("XADD a * f v")
    assert await caller.ask("WAITAOF 1 0 0", "WAITAOF 0 0 0") == [[1, 0], [1, 0]]


@in_loop
async def test_waitaof_tells_how_it_is_when_the_time_is_up() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    with lab.at_the_disk("a"):
        caller.send("XADD a * f v")
        await lab.settle()
        lab.log("a").run_round(may_sync=False)
        await lab.settle()
        caller.send("WAITAOF 1 0 1")
        await asyncio.sleep(LONG_S)
        await lab.settle()
        assert caller.got()[1:] == [[0, 0]]


@in_loop
async def test_waitaof_for_replicas_waits_for_the_end_of_its_time() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XADD a * f v", "WAITAOF 1 0 0")
    caller.send("WAITAOF 1 1 1")
    await asyncio.sleep(LONG_S)
    await lab.settle()
    assert caller.got() == [[1, 0]]
    caller.send("WAITAOF 0 1 0")
    await asyncio.sleep(LONG_S)
    assert caller.got() == []


@in_loop
async def test_waitaof_tells_once_what_can_not_be_synced() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XADD a * f v", "XADD b * f v")
    lab.files.fail("sync", only="/a/")
    refused = await caller.ask_one("WAITAOF 1 0 0")
    assert isinstance(refused, Error) and refused.startswith(b"MISCONF ")
    assert await caller.ask_one("WAITAOF 1 0 0") == [1, 0]


@in_loop
async def test_waitaof_tells_what_can_not_be_synced_though_something_else_is_under_way() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XADD b * f v", "XADD a * f v")
    lab.files.fail("sync", only="/a/")
    with lab.at_the_disk("b"):
        assert isinstance(await caller.ask_one("WAITAOF 1 0 0"), Error)
        assert await caller.ask("WAITAOF 1 0 0") == []
    await lab.settle()
    assert caller.got() == [[1, 0]]


@in_loop
async def test_waitaof_does_not_wait_for_what_others_did() -> None:
    lab = Lab(OS)
    caller, other = lab.caller(), lab.caller()
    await other.ask("XADD a * f v")
    with lab.at_the_disk("a"):
        assert await caller.ask_one("WAITAOF 1 0 0") == [1, 0]


@in_loop
async def test_waitaof_waits_also_for_what_was_sent_as_a_run_and_for_groups() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XGROUP CREATE a g $ MKSTREAM", *["XADD a * f v"] * 3)
    groups = lab.topic("a").groups.log
    assert await caller.ask_one("WAITAOF 1 0 0") == [1, 0]
    assert lab.log("a").synced == lab.log("a").position and groups.written == groups.synced  # type: ignore[union-attr]


@in_loop
async def test_waitaof_waits_for_what_was_added_though_something_older_was_read_since() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XADD a * f old", "WAITAOF 1 0 0", "XADD a * f new")
    await caller.ask("XRANGE a - + COUNT 1")
    assert await caller.ask_one("WAITAOF 1 0 0") == [1, 0]
    assert b"new" in b"".join(lab.disk.synced.values())


@in_loop
async def test_waitaof_is_forgotten_when_the_client_leaves() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    with lab.at_the_disk("a"):
        await caller.ask("XADD a * f v")
        lab.log("a").run_round(may_sync=False)
        await caller.ask("WAITAOF 1 0 0")
        caller.connection.connection_lost(None)
        await lab.settle()
    await lab.settle()
    assert caller.line.sent.count(b"\r\n") == 2


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ("2 0 0", b"ERR value is out of range, value must between 0 and 1"),
        ("-1 0 0", b"ERR value is out of range, value must between 0 and 1"),
        ("1 -1 0", b"ERR value is out of range, must be positive"),
        ("1 0 -1", b"ERR timeout is negative"),
        ("1 0 soon", b"ERR timeout is not an integer or out of range"),
        ("x 0 0", NO_NUMBER),
    ],
)
@in_loop
async def test_a_waitaof_that_cannot_be_is_refused(words: str, problem: bytes) -> None:
    assert await Lab(OS).caller().ask_one(f"WAITAOF {words}") == Error(problem)
