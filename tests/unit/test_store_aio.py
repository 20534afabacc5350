"""The store for coroutines: the same promises, and a loop that never stands still."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import lamina
from lamina.engines.store import aio
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadEntry, DiskFull, LogClosed, LogFailed, StorageError, TooOld
from lamina.testing import FaultyFiles, MemoryFiles
from resp_lab import in_loop

PATIENCE_S = 30.0


class Lab:
    """A store on a disk in memory that is slow, or refuses, when told to."""

    def __init__(self) -> None:
        self.disk = MemoryFiles()
        self.files = FaultyFiles(self.disk)
        self.store = Store.open("store", files=self.files)
        self.aio = self.store.aio

    def hold(self, what: str, only: str = "store/pwal") -> threading.Event:
        """Whoever does this is not done before the event is set."""
        may_end = threading.Event()

        def before(operation: str, path: str) -> None:
            if operation == what and path.startswith(only):
                assert may_end.wait(PATIENCE_S)

        self.files.before = before
        return may_end

    def left(self) -> dict[bytes, bytes]:
        with Store.open("store", files=MemoryFiles(self.disk.contents())) as store:
            return {found.key: found.value for found in store.scan(1)}


@pytest.fixture
def lab() -> Iterator[Lab]:
    made = Lab()
    yield made
    made.store.close()


def test_a_data_folder_has_it(tmp_path: Path) -> None:
    async def use() -> bytes | None:
        async with data.store.aio.session() as session:
            session.put(1, b"a", b"1")
        return await data.store.aio.get(1, b"a")

    with lamina.open(tmp_path) as data:
        assert asyncio.run(use()) == b"1"
        assert data.store.aio is data.store.aio
        assert asyncio.run(use()) == b"1"  # on another loop


@in_loop
async def test_a_session_is_durable_when_it_is_left(lab: Lab) -> None:
    async with lab.aio.session() as session:
        session.put(1, b"a", b"1")
        session.put_many(1, [(b"b", b"2"), (b"c", b"3")])
        session.remove(1, b"c")
    assert lab.aio.last_epoch >= session.epoch
    assert lab.left() == {b"a": b"1", b"b": b"2"}
    assert await lab.aio.put(1, b"a", b"2") > session.epoch
    await lab.aio.remove(1, b"b")
    assert lab.left() == {b"a": b"2"}


@in_loop
async def test_an_exception_gives_a_session_up(lab: Lab) -> None:
    with pytest.raises(ZeroDivisionError):
        async with lab.aio.session() as session:
            session.put(1, b"a", b"1")
            raise ZeroDivisionError
    with pytest.raises(BadEntry):
        await lab.aio.put(-1, b"a", b"1")
    await lab.aio.put(1, b"b", b"2")
    assert lab.left() == {b"b": b"2"}
    assert len(lab.store.engine.channels) == 1


@in_loop
async def test_the_loop_goes_on_while_the_disk_is_slow(lab: Lab) -> None:
    await lab.aio.put(1, b"warm", b"up")
    may_end = lab.hold("sync")
    writing = asyncio.create_task(lab.aio.put(1, b"a", b"1"))
    await asyncio.sleep(0.02)
    assert not writing.done() and await lab.aio.get(1, b"a") is None
    async with lab.aio.session(wait=False) as session:
        session.put(1, b"b", b"2")
    with pytest.raises(TimeoutError):
        await lab.aio.wait_durable(session.epoch, 0.02)
    may_end.set()
    await writing
    await lab.aio.wait_durable(session.epoch)
    assert await lab.aio.get(1, b"b") == b"2"


@pytest.mark.parametrize("large", [False, True])
@in_loop
async def test_the_loop_goes_on_while_a_file_is_made_or_much_is_written(lab: Lab, large: bool) -> None:
    if large:
        await lab.aio.put(1, b"warm", b"up")
    may_end = lab.hold("append" if large else "create")
    writing = asyncio.create_task(lab.aio.put(1, b"a", b"x" * (2 << 20 if large else 1)))
    await asyncio.sleep(0.02)
    assert not writing.done()
    may_end.set()
    await writing
    assert b"a" in lab.left()


@in_loop
async def test_a_session_that_is_cancelled_while_it_ends_holds_up_no_epoch(lab: Lab) -> None:
    may_end = lab.hold("create")
    writing = asyncio.create_task(lab.aio.put(1, b"a", b"1"))
    await asyncio.sleep(0.02)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    may_end.set()
    await asyncio.wait_for(lab.aio.put(1, b"b", b"2"), PATIENCE_S)
    assert lab.left()[b"b"] == b"2"


@in_loop
async def test_a_session_that_is_cancelled_while_it_is_open_is_given_up(lab: Lab) -> None:
    async def write() -> None:
        async with lab.aio.session() as session:
            session.put(1, b"a", b"1")
            await asyncio.sleep(PATIENCE_S)

    writing = asyncio.create_task(write())
    await asyncio.sleep(0.01)
    writing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await writing
    await asyncio.wait_for(lab.aio.put(1, b"b", b"2"), PATIENCE_S)
    assert lab.left() == {b"b": b"2"}


@in_loop
async def test_many_sessions_at_once_use_few_channels(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aio, "MOST_AT_ONCE", 5)
    monkeypatch.setattr(aio, "MOST_GATHERED", 0)  # each is ended by a thread

    async def write(number: int) -> None:
        async with lab.aio.session() as session:
            session.put(1, b"%d" % number, b"v")
            await asyncio.sleep(0.001)

    await asyncio.gather(*(write(number) for number in range(100)))
    assert 1 < len(lab.store.engine.channels) <= 5
    assert len(lab.left()) == 100


@in_loop
async def test_what_the_disk_refused_is_told(lab: Lab) -> None:
    await lab.aio.put(1, b"a", b"1")
    lab.files.fail("append", error=errno.ENOSPC, only="store/pwal")
    with pytest.raises(DiskFull):
        await lab.aio.put(1, b"a", b"2")
    assert await lab.aio.get(1, b"a") == b"1"
    await lab.aio.put(1, b"a", b"3")
    lab.files.fail("sync", only="store/pwal")
    with pytest.raises(StorageError):
        await lab.aio.put(1, b"a", b"4")
    with pytest.raises(LogFailed):
        await lab.aio.put(1, b"a", b"5")
    assert await lab.aio.get(1, b"a") == b"3"


@in_loop
async def test_entries_are_gone_through_as_they_were(lab: Lab) -> None:
    async with lab.aio.session() as session:
        session.put_many(1, [(b"%04d" % number, b"v") for number in range(1200)])
        session.put(2, b"other", b"x")
    scan = lab.aio.scan(1, b"0100", b"1150")
    first = await anext(scan)
    await lab.aio.put(1, b"0101", b"changed")
    rest = [found async for found in scan]
    assert [first.key, *(found.key for found in rest)] == [b"%04d" % number for number in range(100, 1150)]
    assert {found.value for found in rest} == {b"v"}
    snapshot = await lab.aio.snapshot()
    await lab.aio.remove(1, b"0000")
    found = await snapshot.entry(1, b"0000")
    assert found is not None and found.value == b"v"
    assert sum([1 async for _ in snapshot.scan()]) == 1201
    assert [(each.storage, each.entries) for each in await lab.aio.storages()] == [(1, 1199), (2, 1)]


@in_loop
async def test_reads_as_of_before(lab: Lab) -> None:
    first = await lab.aio.put(1, b"a", b"1")
    between = lab.store.engine.clock.now_ns()
    await lab.aio.put(1, b"a", b"2")
    for past in (await lab.aio.as_of(epoch=first), await lab.aio.as_of(time_ns=between)):
        assert [(found.key, found.value) async for found in past.scan(1)] == [(b"a", b"1")]
        assert past.storages.there == {}
    with pytest.raises(BadEntry):
        await lab.aio.as_of()
    report = await lab.aio.compact()
    assert report.entries_live == 1
    done = await lab.aio.clean_up()
    assert done.removed
    with pytest.raises(TooOld):
        await lab.aio.as_of(epoch=first)


@in_loop
async def test_files_are_rotated_while_sessions_are_written(lab: Lab) -> None:
    async def write() -> None:
        for number in range(50):
            await lab.aio.put(1, b"%d" % number, b"v")

    writing = asyncio.create_task(write())
    boundaries = [(await lab.aio.rotate()).epoch for _ in range(5)]
    await writing
    assert boundaries == sorted(set(boundaries))
    assert len(lab.left()) == 50


@in_loop
async def test_a_rotation_that_waits_for_a_session_holds_up_no_loop(lab: Lab) -> None:
    session = lab.store.channel(900).begin()
    session.put(1, b"a", b"1")
    with pytest.raises(TimeoutError):
        await lab.aio.rotate(0.02)
    session.end()
    assert (await lab.aio.rotate(PATIENCE_S)).epoch >= session.epoch


@in_loop
async def test_a_session_that_is_being_made_holds_nobody_up(lab: Lab) -> None:
    async with lab.aio.session() as session:
        session.put(1, b"a", b"old")
        await lab.aio.put(1, b"a", b"new")
        assert await lab.aio.get(1, b"a") == b"new"
    assert await lab.aio.get(1, b"a") == b"old"  # it ended later


@in_loop
async def test_epochs_are_switched(lab: Lab) -> None:
    before = lab.aio.epoch
    assert await lab.aio.switch_epoch() == before + 1
    assert await lab.aio.switch_epoch(before + 10) == before + 10 == lab.aio.epoch
    with pytest.raises(BadEntry):
        await lab.aio.switch_epoch(before)


def test_a_back_up_is_made(tmp_path: Path) -> None:
    async def work() -> None:
        async with data.store.aio.session() as session:
            session.put(1, b"a", b"1")
        await data.store.aio.back_up(str(tmp_path / "copy"))

    with lamina.open(tmp_path / "data", store=StoreOptions(epoch_ms=1)) as data:
        asyncio.run(work())
    with Store.open(str(tmp_path / "copy")) as store:
        assert store.get(1, b"a") == b"1"


@in_loop
async def test_a_store_that_is_closed_says_so(lab: Lab) -> None:
    await lab.aio.put(1, b"a", b"1")
    lab.store.close()
    with pytest.raises(LogClosed):
        await lab.aio.put(1, b"a", b"2")
    with pytest.raises(LogClosed):
        await lab.aio.get(1, b"a")
    with pytest.raises(LogClosed):
        await lab.aio.rotate()
