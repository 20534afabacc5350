"""What a worker takes from others, what it counts, and the threads that make its calls."""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final, Protocol

from lamina.engines.jobs.api import Seconds

logger = logging.getLogger("lamina.jobs")

_LAST_S: Final = 5.0  # for what functions left behind on the loop


class LeasedJob(Protocol):
    """A job in our hands, of a folder or a server."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def attempt(self) -> int: ...
    @property
    def ttr_s(self) -> float: ...
    def complete(self, result: bytes = b"") -> None: ...
    def fail(self, error: bytes = b"") -> None: ...
    def bury(self, error: bytes = b"") -> None: ...
    def release(self, delay: Seconds = 0) -> None: ...


@dataclass(slots=True)
class Tally:
    """What a worker did."""

    done: int = 0
    failed: int = 0
    """Exceptions; some of these jobs are tried again."""
    buried: int = 0
    """No call of a task we know, or a result that cannot be kept: failed for good."""
    released: int = 0
    """Given back when we had to stop."""
    not_ours: int = 0
    """Ended by somebody else, or deleted, before we were done."""


class Crew:
    """So many threads, and a loop for coroutines. None of them keeps the process from ending."""

    def __init__(self, size: int) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=self._run, name=f"lamina-worker-{number}", daemon=True) for number in range(size)
        ]
        for thread in self._threads:
            thread.start()
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._loop_thread: threading.Thread | None = None

    def _run(self) -> None:
        while (call := self._work.get()) is not None:
            try:
                call()
            except BaseException:  # a thread that is gone would be a job less at a time, for ever
                logger.exception("a thread of the worker goes on after an error of its own")

    def give(self, call: Callable[[], None]) -> None:
        """Have it called by the next thread that is free."""
        self._work.put(call)

    def wait_for(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """From a thread of the crew: run it on the loop that all coroutines share."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._loop_thread = threading.Thread(
                    target=_run_on, args=(self._loop,), name="lamina-worker-loop", daemon=True
                )
                self._loop_thread.start()
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def dismiss(self, *, is_idle: bool) -> None:
        """Threads that are in a call are left to it. The loop is closed in order if nobody is."""
        for _ in self._threads:
            self._work.put(None)
        if not is_idle:
            return
        for thread in self._threads:
            thread.join()
        if self._loop is not None and self._loop_thread is not None:
            asyncio.run_coroutine_threadsafe(_finish(), self._loop).result()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._loop_thread.join()
            self._loop.close()


def _run_on(loop: asyncio.AbstractEventLoop) -> None:
    """Until it is stopped: SystemExit of a coroutine is the end of its call, which has it already, not of the loop."""
    while True:
        try:
            return loop.run_forever()
        except (SystemExit, KeyboardInterrupt):
            continue


async def _finish() -> None:
    """What the functions left behind on the loop."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    if others:  # one that does not want to end does not keep the worker
        await asyncio.wait(others, timeout=_LAST_S)
    await asyncio.get_running_loop().shutdown_asyncgens()
    await asyncio.get_running_loop().shutdown_default_executor()
