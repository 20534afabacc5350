"""Threads that run what a loop must not: commands that have to wait for the disk, or for a lock.

A command holds the keys it works on from when its turn comes until it is done: what else asks for one of them waits,
in the order of asking, and also on the loop nobody touches them meanwhile (``taken``). So a command in a thread is as
much alone with its keys as one that runs within a turn of the loop; commands for other keys go on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

_THREADS: Final = 8

Done = Callable[[Any, BaseException | None], None]
"""Is told what the work gave, or what it raised."""


class _Job:
    """Work, the keys it waits for, and who is told."""

    __slots__ = ("done", "keys", "missing", "work")

    def __init__(self, keys: tuple[bytes, ...], work: Callable[[], Any], done: Done) -> None:
        self.keys, self.work, self.done = keys, work, done
        self.missing = 0  # keys that others hold, or wait for before it


class Workers:
    """Of one loop, and on its thread only. The threads are started when they are first needed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, threads: int = _THREADS) -> None:
        self._loop = loop
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._busy = 0
        self.done = 0
        """Jobs, since the start."""
        self._idle = asyncio.Event()
        self._idle.set()
        self.taken: dict[bytes, deque[_Job]] = {}
        """Keys that a job holds or waits for: who holds it first."""

    def run(self, keys: Iterable[bytes], work: Callable[[], Any], done: Done) -> None:
        """Do ``work`` in a thread when all of ``keys`` are free; ``done`` is called on the loop."""
        job = _Job(tuple(dict.fromkeys(keys)), work, done)
        self._busy += 1
        self._idle.clear()
        for key in job.keys:
            line = self.taken.setdefault(key, deque())
            job.missing += bool(line)
            line.append(job)
        if not job.missing:
            self._start(job)

    def _start(self, job: _Job) -> None:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "lamina-worker")
        self._pool.submit(self._work, job)

    def _work(self, job: _Job) -> None:
        """In a thread."""
        result = problem = None
        try:
            result = job.work()
        except BaseException as error:  # whoever asked for it deals with it
            problem = error
        with suppress(RuntimeError):  # the loop is over: nobody waits any more
            self._loop.call_soon_threadsafe(self._end, job, result, problem)

    def _end(self, job: _Job, result: Any, problem: BaseException | None) -> None:
        for key in job.keys:
            line = self.taken[key]
            line.popleft()
            if not line:
                del self.taken[key]
                continue
            line[0].missing -= 1
            if not line[0].missing:
                self._start(line[0])
        self._busy -= 1
        self.done += 1
        try:
            job.done(result, problem)
        finally:
            if not self._busy:
                self._idle.set()

    @property
    def is_idle(self) -> bool:
        return not self._busy

    async def all_done(self) -> None:
        """Return when nothing is left to do."""
        await self._idle.wait()

    def close(self) -> None:
        """Let the threads end. What was begun is done."""
        if self._pool is not None:
            self._pool.shutdown(wait=False)
