"""Threads that run what a loop must not: commands that have to wait for the disk, or for a lock.

A command holds the keys it works on from when its turn comes until it is done: what else asks for one of them waits,
in the order of asking, and also on the loop nobody touches them meanwhile (``taken``). So a command in a thread is as
much alone with its keys as one that runs within a turn of the loop; commands for other keys go on. Commands that only
read one topic share it: with each other, and with whatever goes on on the loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from time import perf_counter
from typing import Any, Final

from lamina.engines import loops
from lamina.engines.loops import MustWait
from lamina.server.turns import SHARE_S

_THREADS: Final = 8

Done = Callable[[Any, BaseException | None], None]
"""Is told what the work gave, or what it raised."""


class _Job:
    """Work, the keys it waits for, and who is told."""

    __slots__ = ("done", "is_shared", "keys", "missing", "work")

    def __init__(self, keys: tuple[bytes, ...], work: Callable[[], Any], done: Done, *, is_shared: bool) -> None:
        self.keys, self.work, self.done, self.is_shared = keys, work, done, is_shared
        self.missing = 0  # keys that it was not given yet


class _Line:
    """Who has a key, and who waits for it."""

    __slots__ = ("alone", "sharing", "waiting")

    def __init__(self) -> None:
        self.alone = False
        self.sharing = 0
        self.waiting: deque[_Job] = deque()

    def takes(self, job: _Job) -> bool:
        """Whether ``job`` has it now."""
        if self.alone or (self.sharing and not job.is_shared):
            return False
        self.alone, self.sharing = not job.is_shared, self.sharing + job.is_shared
        return True


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
        self._lines: dict[bytes, _Line] = {}
        self._ready: deque[_Job] = deque()  # their turn has come
        self._is_trying = False
        self.taken: dict[bytes, int] = {}
        """Keys that a job has for itself, or waits for: how many such jobs."""

    def run(self, keys: Iterable[bytes], work: Callable[[], Any], done: Done, *, is_shared: bool = False) -> None:
        """Do ``work`` in a thread when all of ``keys`` are free, or only shared if ``is_shared``; ``done`` is called on
        the loop.
        """
        job = _Job(tuple(dict.fromkeys(keys)), work, done, is_shared=is_shared)
        self._busy += 1
        self._idle.clear()
        self._count(job, 1)
        for key in job.keys:
            line = self._lines.get(key)
            if line is None:
                line = self._lines[key] = _Line()
            if line.waiting or not line.takes(job):
                line.waiting.append(job)
                job.missing += 1
        if not job.missing:
            self._start(job)

    def _try_all(self) -> None:
        """Those whose turn has come may have waited for others alone: then the loop does it. So a crowd that comes for
        a key while a thread has it does not have to go through threads for as long as it stays.
        """
        until = perf_counter() + SHARE_S
        self._is_trying = True
        try:
            while self._ready and perf_counter() < until:
                self._try(self._ready.popleft())
        finally:
            self._is_trying = False
            if self._ready:
                self._loop.call_soon(self._try_all)

    def _try(self, job: _Job) -> None:
        # What has its keys may touch them.
        taken = {key: self.taken.pop(key) for key in job.keys if key in self.taken}
        result = problem = None
        try:
            with loops.at_once():
                result = job.work()
        except MustWait:
            self._start(job)
            return
        except BaseException as error:  # whoever asked for it deals with it
            problem = error
        finally:
            self.taken.update(taken)
        self._end(job, result, problem)

    def _count(self, job: _Job, by: int) -> None:
        for key in () if job.is_shared else job.keys:
            count = self.taken.get(key, 0) + by
            if count:
                self.taken[key] = count
            else:
                del self.taken[key]

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
        self._count(job, -1)
        for key in job.keys:
            self._give_back(key, job)
        if self._ready and not self._is_trying:
            self._loop.call_soon(self._try_all)
        self._busy -= 1
        self.done += 1
        try:
            job.done(result, problem)
        finally:
            if not self._busy:
                self._idle.set()

    def _give_back(self, key: bytes, job: _Job) -> None:
        line = self._lines[key]
        if job.is_shared:
            line.sharing -= 1
        else:
            line.alone = False
        while line.waiting and line.takes(line.waiting[0]):
            following = line.waiting.popleft()
            following.missing -= 1
            if not following.missing:
                self._ready.append(following)
        if not line.alone and not line.sharing:
            del self._lines[key]

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
