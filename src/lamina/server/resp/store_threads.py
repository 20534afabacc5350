"""Threads for what commands of the store cannot do on the loop, and turns, so that there are never too many of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, TypeVar

from lamina.engines.store.view import Found

_AT_ONCE: Final = 64  # keys that a thread takes along

T = TypeVar("T")

Limit = asyncio.Lock | asyncio.Semaphore


class Threads:
    """On the loop's thread only. Threads of their own: what takes long here is in nobody else's way."""

    def __init__(self, most: int) -> None:
        """``most``: as many as all limits together let through."""
        self._pool = ThreadPoolExecutor(most, "lamina-store-door")
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, work: Callable[[], T]) -> T:
        """Do ``work`` in a thread. Once asked for it is done, whoever stops waiting for it."""
        return await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._pool, work))

    async def in_turn(self, limit: Limit, work: Callable[[], Awaitable[T]]) -> T:
        """Do ``work`` when ``limit`` lets it through.

        Cancelled before that, it leaves the queue; later it is done all the same, and its turn lasts until then.
        """
        await limit.acquire()
        task = asyncio.get_running_loop().create_task(_release_behind(limit, work))
        self.keep(task)
        return await asyncio.shield(task)

    def keep(self, task: asyncio.Task[Any]) -> None:
        """Let it go on though nobody waits for it."""
        self._tasks.add(task)
        task.add_done_callback(self._is_done)

    def _is_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # told to whoever waits for it; if nobody does any more, it is no mistake of ours


class Lookups:
    """Keys that are looked up in files: all that wait while threads are busy go along with the next one."""

    def __init__(self, threads: Threads, find: Callable[[int, bytes], Found | None], most: int) -> None:
        """``most``: threads at a time."""
        self._threads, self._find, self._most = threads, find, most
        self._waiting: deque[tuple[int, bytes, asyncio.Future[Found | None]]] = deque()
        self._busy = 0

    async def find(self, storage: int, key: bytes) -> Found | None:
        """Raises: as ``find``."""
        found: asyncio.Future[Found | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((storage, key, found))
        if self._busy < self._most:
            self._busy += 1
            task = asyncio.get_running_loop().create_task(self._serve())
            self._threads.keep(task)
        return await found

    async def _serve(self) -> None:
        try:
            while self._waiting:
                batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), _AT_ONCE))]
                batch = [each for each in batch if not each[2].done()]  # whose client is there
                outcomes = await self._threads.run(partial(self._look, batch))
                for (_, _, found), outcome in zip(batch, outcomes, strict=True):
                    if found.done():
                        continue
                    if isinstance(outcome, Exception):
                        found.set_exception(outcome)
                    else:
                        found.set_result(outcome)
        finally:
            self._busy -= 1

    def _look(self, batch: list[tuple[int, bytes, Any]]) -> list[Found | Exception | None]:
        """In a thread."""
        outcomes: list[Found | Exception | None] = []
        for storage, key, _ in batch:
            try:
                outcomes.append(self._find(storage, key))
            except Exception as problem:  # of this key alone
                outcomes.append(problem)
        return outcomes


async def _release_behind(limit: Limit, work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    finally:
        limit.release()
