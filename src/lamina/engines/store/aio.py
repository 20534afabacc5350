"""The store for coroutines: the methods of ``Store``, awaited.

    async with store.aio.session() as session:       # durable when this returns
        session.put(1, b"key", b"value")
    await store.aio.get(1, b"key")

None blocks the loop. What needs no more than memory is done at once; reads that go through many entries, or files, and
whatever has to wait for the disk, are done in a thread. Waiting takes none.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from lamina.engines.store.channel import MOST_GATHERED, Channel, Session
from lamina.engines.store.draft import Draft
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.view import Found, Snapshot
from lamina.units import MIB

if TYPE_CHECKING:
    from lamina.engines.store.api import StorageInfo, Store
    from lamina.engines.store.backup import Manifest
    from lamina.engines.store.cleaning import CleanUp
    from lamina.engines.store.compactions import CompactionReport, Progress
    from lamina.engines.store.rotation import Rotated
    from lamina.engines.store.storages import Storages

MOST_AT_ONCE: Final = 64
"""Sessions of one loop that end at the same time; who wants to end another one waits."""
_PAGE: Final = 500  # entries that are read at once
_PAGE_BYTES: Final = MIB


class AsyncStore:
    """``store.aio``. Threads: of any loop, of several at once."""

    def __init__(self, store: Store) -> None:
        """Use ``store.aio``."""
        self._store, self._engine = store, store.engine
        self._free: list[Channel] = []
        self._limits: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()

    # -- writing -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self, *, wait: bool = True, timeout: float | None = None) -> AsyncIterator[Draft]:
        """As ``Store.session``: its methods are called without await. An exception gives it up.

        Cancelled while it ends, it may be done or not.
        Raises: StorageError: nothing of it will ever be there; LogClosed.
        """
        self._engine.check_open()
        draft = Draft(self._engine)
        try:
            yield draft
        except BaseException:
            draft.give_up()
            raise
        async with self._limit():
            channel = self._channel()
            try:
                session = draft.join(channel)
            except BaseException:
                self._free.append(channel)
                raise
            if session is None:
                self._free.append(channel)
            else:
                await self._end(channel, session)
        if wait:
            await self.wait_durable(draft.epoch, timeout)

    def _limit(self) -> asyncio.Semaphore:
        loop = asyncio.get_running_loop()
        found = self._limits.get(loop)
        if found is None:
            found = self._limits[loop] = asyncio.Semaphore(MOST_AT_ONCE)
        return found

    def _channel(self) -> Channel:
        try:
            return self._free.pop()
        except IndexError:
            return self._engine.channel()

    async def _end(self, channel: Channel, session: Session) -> None:
        def end() -> None:
            try:
                session.end()
            finally:
                self._free.append(channel)

        if not needs_disk(channel, session):
            end()
            return
        # Not a task that can be cancelled before it has begun: a session that never ends would hold up all epochs.
        await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, end))

    async def put(self, storage: int, key: bytes, value: bytes) -> int:
        async with self.session() as session:
            session.put(storage, key, value)
        return session.epoch

    async def remove(self, storage: int, key: bytes) -> int:
        async with self.session() as session:
            session.remove(storage, key)
        return session.epoch

    # -- reading -----------------------------------------------------------------------------------------------------

    async def get(self, storage: int, key: bytes) -> bytes | None:
        found = await self.entry(storage, key)
        return None if found is None else found.value

    async def entry(self, storage: int, key: bytes) -> Found | None:
        is_known, found = self._store.known(storage, key)
        return found if is_known else await asyncio.to_thread(self._store.entry, storage, key)

    async def scan(self, storage: int, start: bytes = b"", end: bytes | None = None) -> AsyncIterator[Found]:
        """``async for``: as the storage was when the first entry was asked for."""
        snapshot = await self.snapshot()
        async for found in snapshot.scan(storage, start, end):
            yield found

    async def snapshot(self) -> AsyncSnapshot:
        return AsyncSnapshot(await asyncio.to_thread(self._store.snapshot))

    async def as_of(self, *, epoch: int | None = None, time_ns: int | None = None) -> AsyncSnapshot:
        return AsyncSnapshot(await asyncio.to_thread(self._store.as_of, epoch=epoch, time_ns=time_ns))

    async def storages(self) -> list[StorageInfo]:
        return await asyncio.to_thread(self._store.storages)

    # -- epochs ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        return self._store.epoch

    @property
    def last_epoch(self) -> int:
        return self._store.last_epoch

    async def switch_epoch(self, epoch: int | None = None) -> int:
        return self._store.switch_epoch(epoch)

    async def wait_durable(self, epoch: int, timeout: float | None = None) -> None:
        """Cancelling loses nothing. Raises: what kept it from being so; TimeoutError."""
        engine = self._engine
        async with asyncio.timeout(timeout):
            await engine.waiters.reached(epoch, engine.nudge, asyncio.get_running_loop())

    # -- looking after it --------------------------------------------------------------------------------------------

    async def rotate(self, timeout: float | None = None) -> Rotated:
        async with asyncio.timeout(timeout):
            return await rotated(self._engine)

    async def compact(self, progress: Progress = lambda done, total: None) -> CompactionReport:
        """``progress`` is called in a thread. Cancelled, it goes on."""
        return await asyncio.to_thread(self._store.compact, progress)

    async def cancel_compaction(self) -> bool:
        return self._store.cancel_compaction()

    async def clean_up(self, keep_after_epoch: int | None = None) -> CleanUp:
        return await asyncio.to_thread(self._store.clean_up, keep_after_epoch)

    async def back_up(self, folder: str, *, link: bool = True) -> Manifest:
        return await asyncio.to_thread(self._store.back_up, folder, link=link)


class AsyncSnapshot:
    """``Snapshot`` for coroutines."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    @property
    def storages(self) -> Storages:
        return self._snapshot.storages

    async def get(self, storage: int, key: bytes) -> bytes | None:
        found = await self.entry(storage, key)
        return None if found is None else found.value

    async def entry(self, storage: int, key: bytes) -> Found | None:
        is_known, found = self._snapshot.known(storage, key)
        return found if is_known else await asyncio.to_thread(self._snapshot.entry, storage, key)

    async def scan(
        self, storage: int | None = None, start: bytes = b"", end: bytes | None = None
    ) -> AsyncIterator[Found]:
        entries = self._snapshot.scan(storage, start, end)
        while page := await asyncio.to_thread(_page, entries):
            for found in page:
                yield found


def _page(entries: Iterator[Found]) -> list[Found]:
    page: list[Found] = []
    size = 0
    for found in entries:
        page.append(found)
        size += len(found.key) + len(found.value)
        if len(page) >= _PAGE or size >= _PAGE_BYTES:
            break
    return page


def needs_disk(channel: Channel, session: Session) -> bool:
    """Ending this session, which is open, would write what has gathered."""
    return channel.gathered_bytes + session.packed_bytes >= MOST_GATHERED


async def rotated(engine: StoreEngine) -> Rotated:
    """``engine.rotate`` for coroutines. Cancelled, the files are rotated all the same."""
    request = engine.request_rotation()
    is_answered = asyncio.Event()
    loop = asyncio.get_running_loop()
    request.then(lambda: _tell(loop, is_answered.set))
    await is_answered.wait()
    return request.result()


def _tell(loop: asyncio.AbstractEventLoop, told: Callable[[], None]) -> None:
    """From any thread; a loop that was closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(told)
