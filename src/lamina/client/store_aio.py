"""The store of a server for coroutines: the methods of ``RemoteStore``, awaited. No thread is used.

    async with lm.store.aio.session() as session:
        session.put(1, b"key", b"value")
    await lm.store.aio.get(1, b"key")

Inside the process ``epoch`` and ``last_epoch`` are numbers at once; here a server has to be asked: ``await`` them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import NoReturn

from lamina.client import store_talks as talks
from lamina.client.lines_aio import AsyncLines
from lamina.client.store_draft import RemoteDraft
from lamina.engines.store.api import StorageInfo
from lamina.engines.store.cleaning import CleanUp
from lamina.engines.store.compactions import CompactionReport, Progress
from lamina.engines.store.rotation import Rotated
from lamina.engines.store.view import Found


class AsyncRemoteStore:
    """``store.aio``."""

    def __init__(self, lines: AsyncLines) -> None:
        self._lines = lines

    def __repr__(self) -> str:
        return f"<AsyncRemoteStore {self._lines.endpoint}>"

    # -- writing -----------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def session(self, *, wait: bool = True, timeout: float | None = None) -> AsyncIterator[RemoteDraft]:
        """As ``RemoteStore.session``: its methods are called without await. Cancelled while it ends, it may be done."""
        draft = RemoteDraft()
        try:
            yield draft
        except BaseException:
            draft.give_up()
            raise
        draft.epoch = await self._lines.do(talks.write(draft.end(), waits=wait and timeout is None))
        if wait and timeout is not None:
            await self.wait_durable(draft.epoch, timeout)

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
        return await self._lines.do(talks.entry(storage, key))

    async def scan(self, storage: int, start: bytes = b"", end: bytes | None = None) -> AsyncIterator[Found]:
        """``async for``: as the storage was when the first entry was asked for."""
        snapshot = await self.snapshot()
        async for found in snapshot.scan(storage, start, end):
            yield found

    async def snapshot(self) -> AsyncRemoteSnapshot:
        return AsyncRemoteSnapshot(self._lines, await self._lines.do(talks.snapshot()))

    async def as_of(self, *, epoch: int | None = None, time_ns: int | None = None) -> AsyncRemoteSnapshot:
        moment = talks.moment_of(epoch, time_ns)
        return AsyncRemoteSnapshot(self._lines, await self._lines.do(talks.snapshot(moment)))

    async def storages(self) -> list[StorageInfo]:
        return await self._lines.do(talks.storages())

    # -- epochs ------------------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> Awaitable[int]:
        """The present one: ``await store.aio.epoch``."""
        return self._epoch()

    async def _epoch(self) -> int:
        return (await self._lines.do(talks.epochs())).current

    @property
    def last_epoch(self) -> Awaitable[int]:
        """The last one that is over: ``await store.aio.last_epoch``."""
        return self._last_epoch()

    async def _last_epoch(self) -> int:
        return (await self._lines.do(talks.epochs())).durable

    async def switch_epoch(self, epoch: int | None = None) -> int:
        return await self._lines.do(talks.switch(epoch))

    async def wait_durable(self, epoch: int, timeout: float | None = None) -> None:
        """Cancelling loses nothing. Raises: what kept it from being so; TimeoutError."""
        await self._lines.do(talks.wait_durable(epoch, timeout, time.monotonic))

    # -- looking after it --------------------------------------------------------------------------------------------

    async def rotate(self, timeout: float | None = None) -> Rotated:
        return await self._lines.do(talks.rotate(timeout))

    async def compact(self, progress: Progress | None = None) -> CompactionReport:
        """Cancelled, it goes on. Raises also: BadOption for a progress."""
        if progress is not None:
            raise talks.no_progress()
        return await self._lines.do(talks.compact())

    async def cancel_compaction(self) -> bool:
        return await self._lines.do(talks.cancel_compaction())

    async def clean_up(self, keep_after_epoch: int | None = None) -> CleanUp:
        return await self._lines.do(talks.clean_up(keep_after_epoch))

    async def back_up(self, folder: str, *, link: bool = True) -> NoReturn:
        """Raises: BadOption."""
        raise talks.no_back_up()


class AsyncRemoteSnapshot:
    """``RemoteSnapshot`` for coroutines."""

    def __init__(self, lines: AsyncLines, epoch: int) -> None:
        self._lines = lines
        self.epoch = epoch

    def __repr__(self) -> str:
        return f"<AsyncRemoteSnapshot of epoch {self.epoch}>"

    async def get(self, storage: int, key: bytes) -> bytes | None:
        found = await self.entry(storage, key)
        return None if found is None else found.value

    async def entry(self, storage: int, key: bytes) -> Found | None:
        return await self._lines.do(talks.entry(storage, key, self.epoch))

    async def scan(
        self, storage: int | None = None, start: bytes = b"", end: bytes | None = None
    ) -> AsyncIterator[Found]:
        if storage is None:
            if start or end is not None:
                raise talks.no_range_of_all()
            for each in await self._lines.do(talks.storages(self.epoch)):
                async for found in self.scan(each.storage):
                    yield found
            return
        following: bytes | None = start
        while following is not None:
            entries, following = await self._lines.do(talks.page(storage, following, end, self.epoch))
            for found in entries:
                yield found
