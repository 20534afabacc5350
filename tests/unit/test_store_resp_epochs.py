"""``S.SNAPSHOT``, ``S.WAIT``, ``S.SWITCH``, ``S.CLEAN``, and what ``FULL`` adds."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from integration.resp_wire import Error
from lamina.server.resp import store_past
from store_doors import StoreDoors, on_its_loop

SYNTAX = Error(b"ERR syntax error")


def says(answer: object, words: bytes) -> bool:
    return isinstance(answer, Error) and answer.startswith(b"ERR ") and bytes(answer).find(words) > 0


@pytest.fixture
def lab() -> Iterator[StoreDoors]:
    with asyncio.Runner() as runner:

        async def make() -> StoreDoors:
            return StoreDoors(runner)

        made = runner.run(make())
        yield made
        made.close()


@on_its_loop
async def test_a_snapshot_is_read_by_its_epoch_whatever_comes_later(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    written = await lab.answer(caller, "S.WRITE 1 PUT a 1 NOWAIT")
    epoch = await lab.answer(caller, "S.SNAPSHOT")
    assert epoch >= written  # a client sees what it wrote itself
    await lab.answer(other, "S.WRITE 1 PUT a 2 PUT b 2 CLEAR PUT c 3")
    page = [None, [b"a", b"1"]]
    assert await lab.answers(other, f"S.SCAN 1 ASOF {epoch}", f"S.GET 1 a ASOF {epoch}") == [page, b"1"]
    assert await lab.answer(other, f"S.STORAGES ASOF {epoch}") == [[b"1", 1]]
    lab.served.past.forget(pins=True)  # half a minute later: from files
    assert await lab.answers(other, f"S.SCAN 1 ASOF {epoch}", "S.SCAN 1") == [page, [None, [b"c", b"3"]]]


@on_its_loop
async def test_only_so_many_snapshots_are_kept_and_all_can_be_read(lab: StoreDoors) -> None:
    caller = lab.caller()
    epochs = []
    for number in range(store_past._PINS + 3):
        await lab.answer(caller, f"S.WRITE 1 PUT a {number}")
        epochs.append(await lab.answer(caller, "S.SNAPSHOT"))
    assert len(lab.served.past._pins) == store_past._PINS
    for number in (0, 1, len(epochs) - 1):
        assert await lab.answer(caller, f"S.GET 1 a ASOF {epochs[number]}") == b"%d" % number


@on_its_loop
async def test_a_snapshot_of_an_earlier_moment(lab: StoreDoors) -> None:
    caller = lab.caller()
    first = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    await lab.answer(caller, "S.WRITE 1 PUT a 2")
    assert await lab.answer(caller, f"S.SNAPSHOT ASOF {first}") == first
    now_ns = lab.store.engine.clock.now_ns()
    assert await lab.answer(caller, f"S.SNAPSHOT ASOF {now_ns}ns") > first
    assert says(await lab.answer(caller, f"S.SNAPSHOT ASOF {now_ns + 10**15}ns"), b"yet to come")
    assert says(await lab.answer(caller, f"S.SNAPSHOT ASOF {10**9}"), b"not durable yet")
    assert await lab.answer(caller, "S.SNAPSHOT FULL") == SYNTAX


@on_its_loop
async def test_full_tells_version_and_time(lab: StoreDoors) -> None:
    caller = lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1 PUT b 2 IN 2 ADD")
    value, major, minor, time_ns = await lab.answer(caller, "S.GET 1 a FULL")
    assert (value, major) == (b"1", epoch) and time_ns > 10**18
    assert await lab.answer(caller, f"S.GET 1 a FULL ASOF {epoch}") == [value, major, minor, time_ns]
    assert await lab.answer(caller, "S.GET 1 none FULL") is None
    following, flat = await lab.answer(caller, "S.SCAN 1 FULL COUNT 1")
    assert following == b"b" and flat == [b"a", b"1", major, minor, time_ns]
    assert await lab.answers(caller, "S.STORAGES FULL") == [[[b"1", 2, 0], [b"2", 0, 1]]]
    for wrong in ("S.GET 1 a WHAT", "S.GET 1 a ASOF", "S.SCAN 1 FULL FROM", "S.STORAGES WHAT"):
        assert await lab.answer(caller, wrong) == SYNTAX


@on_its_loop
async def test_an_epoch_is_waited_for_as_long_as_asked(lab: StoreDoors) -> None:
    caller, other = lab.caller(), lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1 NOWAIT")
    assert await lab.answer(other, f"S.WAIT {epoch}") == 1
    assert await lab.answer(other, f"S.WAIT {epoch + 100} BLOCK 1") is None
    other.send(f"S.WAIT {epoch + 100}")
    following = await lab.answer(caller, f"S.SWITCH {epoch + 101}")
    assert following == epoch + 101
    assert await lab.answers(other, count=1) == [1]
    assert await lab.answer(caller, "S.SWITCH") == following + 1
    assert says(await lab.answer(caller, "S.SWITCH 1"), b"cannot follow")
    for wrong in ("S.WAIT 1 BLOCK", "S.WAIT 1 NOW 1", "S.SWITCH 1 2", "S.ROTATE BLOCK"):
        assert await lab.answer(caller, wrong) == SYNTAX
    assert says(await lab.answer(caller, "S.WAIT x"), b"not an integer")


@on_its_loop
async def test_files_are_cleaned_up_without_a_compaction(lab: StoreDoors) -> None:
    caller = lab.caller()
    epoch = await lab.answer(caller, "S.WRITE 1 PUT a 1")
    boundary, _, _ = await lab.answer(caller, "S.ROTATE BLOCK 30000")
    assert boundary >= epoch
    done = await lab.answer(caller, "S.CLEAN")
    facts = dict(zip(done[::2], done[1::2], strict=True))
    assert facts == {b"removed": [], b"removed-bytes": 0, b"kept": [], b"generation": 0, b"epoch": 0}
    assert says(await lab.answer(caller, f"S.CLEAN KEEP {10**9}"), b"not durable yet")
    for wrong in ("S.CLEAN KEEP", "S.CLEAN NOW 1"):
        assert await lab.answer(caller, wrong) == SYNTAX
