"""Threads for what commands of the store cannot do on the loop, and turns, so that there are never too many of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

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
        self._tasks.add(task)
        task.add_done_callback(self._is_done)
        return await asyncio.shield(task)

    def _is_done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # told to whoever waits for it; if nobody does any more, it is no mistake of ours


async def _release_behind(limit: Limit, work: Callable[[], Awaitable[T]]) -> T:
    try:
        return await work()
    finally:
        limit.release()
