"""Group commit: who waits for what, and the thread that writes and syncs for those who do not wait.

Appending only adds to a buffer. A *round* takes all that gathered, writes it with one call and, if somebody needs it,
syncs it with one more; meanwhile the next buffer fills. A thread that waits for its record leads a round itself if
nobody leads (a lone writer pays no hand-over between threads, which can cost as much as half a sync); otherwise it
sleeps, and at the end of the round the leader wakes those it satisfied and makes one of the others the next leader.
Handing the lead over, instead of leaving it to a race for a lock, is what lets the next round gather: the old leader
would win that race and run round after round for itself alone. For records nobody waits for, for coroutines and for
syncs by the clock there is the committer's thread.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, Protocol

from lamina.errors import LaminaError
from lamina.log.files import Files
from lamina.log.sync import Level

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future


_FEW: Final = 4  # new logs that are not worth other threads
_THREADS: Final = 8


class Waiter:
    """Somebody who wants to know when a position has reached a level.

    ``tell`` is called once, from the thread of the round: with None when the level holds, with an error if it
    never will.
    """

    __slots__ = ("follows", "level", "position", "tell")

    def __init__(
        self, position: int, level: Level, tell: Callable[[LaminaError | None], None], *, follows: bool = True
    ) -> None:
        self.position, self.level, self.tell = position, level, tell
        self.follows = follows
        """Waits for a record of its own, not for whatever comes next."""


class ThreadWaiter(Waiter):
    """A thread that sleeps until it is told."""

    __slots__ = ("_gate", "error", "must_lead")

    def __init__(self, position: int, level: Level, *, follows: bool) -> None:
        super().__init__(position, level, self._told, follows=follows)
        self._gate = threading.Lock()
        self._gate.acquire()
        self.error: LaminaError | None = None
        self.must_lead = False

    def lead(self) -> None:
        """Wake it to run the next round."""
        self.must_lead = True
        self._gate.release()

    def _told(self, error: LaminaError | None) -> None:
        self.error = error
        self._gate.release()

    def sleep(self, seconds: float | None = None) -> bool:
        """Return True when told, False when the time has passed."""
        return self._gate.acquire(timeout=-1 if seconds is None else min(max(seconds, 0), threading.TIMEOUT_MAX))


class LoopWaiter(Waiter):
    """A coroutine of an event loop. All that a round satisfies in one loop are woken by one call into it."""

    __slots__ = ("future", "loop")

    def __init__(self, position: int, level: Level, loop: AbstractEventLoop) -> None:
        super().__init__(position, level, self._told)
        self.loop = loop
        self.future: Future[None] = loop.create_future()

    def _told(self, error: LaminaError | None) -> None:
        if self.future.done():  # the coroutine was cancelled
            return
        if error is None:
            self.future.set_result(None)
        else:
            self.future.set_exception(error)


class Waiters:
    """Those who wait. Not locked: the log's state lock guards it."""

    def __init__(self) -> None:
        self._all: list[Waiter] = []

    def __bool__(self) -> bool:
        return bool(self._all)

    def add(self, waiter: Waiter) -> None:
        self._all.append(waiter)

    def remove(self, waiter: Waiter) -> bool:
        """False if it was taken off before."""
        if waiter not in self._all:
            return False
        self._all.remove(waiter)
        return True

    def take(self, wanted: Callable[[Waiter], bool]) -> list[Waiter]:
        """Take off those that are ``wanted``, to be told."""
        taken = [waiter for waiter in self._all if wanted(waiter)]
        if taken:
            self._all = [waiter for waiter in self._all if not wanted(waiter)]
        return taken

    def take_heir(self) -> ThreadWaiter | None:
        """Take off the one who has waited longest of those that can lead a round."""
        for waiter in self._all:
            if isinstance(waiter, ThreadWaiter) and waiter.follows:
                self._all.remove(waiter)
                return waiter
        return None


def tell_all(told: list[tuple[Waiter, LaminaError | None]]) -> None:
    """Wake waiters; call it without holding a lock."""
    by_loop: dict[AbstractEventLoop, list[tuple[Waiter, LaminaError | None]]] = {}
    for waiter, error in told:
        if isinstance(waiter, LoopWaiter):
            by_loop.setdefault(waiter.loop, []).append((waiter, error))
        else:
            waiter.tell(error)
    for loop, group in by_loop.items():
        try:
            loop.call_soon_threadsafe(_tell_group, group)
        except RuntimeError:  # the loop was closed: nobody is left to tell
            continue


def _tell_group(group: list[tuple[Waiter, LaminaError | None]]) -> None:
    for waiter, error in group:
        waiter.tell(error)


class Committing(Protocol):
    """What a committer serves: a log."""

    @property
    def is_slow(self) -> bool:
        """Its next round takes several syncs, as its names are not safe yet."""

    def run_round(self) -> float | None:
        """Do what is due. Has itself called again when something will be due by the clock."""


class FolderSyncs:
    """Makes the names of new folders safe: of many that were made meanwhile, one sync of the folder above does for all.

    Threads: every method is safe from any thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._begun = self._failed = 0  # syncs of the folder above, by number
        self._error: OSError | None = None  # what the one that failed last said

    def sync_new(self, files: Files, folder: str) -> None:
        """Return when the names in ``folder``, and its own, are on the disk. Raises: OSError."""
        files.sync_folder(folder)
        wanted = self._begun + 1  # one that begins from now on
        with self._lock:
            if self._error is not None and self._failed >= wanted:  # what it lost, another one would not find
                raise self._error
            if self._begun >= wanted:
                return
            self._begun += 1
            try:
                files.sync_folder(folder.rpartition("/")[0])
            except OSError as error:
                self._failed, self._error = self._begun, error
                raise


def _run_round(log: Committing) -> None:
    """A round that goes wrong fails its own log and tells whoever waits there; the others go on."""
    with contextlib.suppress(Exception):
        log.run_round()


class Committer:
    """One thread that runs rounds of any number of logs: for those who do not wait, and for syncs by the clock."""

    def __init__(self) -> None:
        self._wake = threading.Condition()
        self._nudged: dict[Committing, None] = {}  # in order of nudging
        self._due: dict[Committing, float] = {}
        self._thread: threading.Thread | None = None
        self._pool: ThreadPoolExecutor | None = None  # for logs that are new: most of their rounds is waiting
        self._slow = 0  # rounds that it has, or that wait for it
        self._is_stopping = False

    def nudge(self, log: Committing) -> None:
        """There is something to do for ``log``."""
        if log not in self._nudged:
            with self._wake:
                self._nudged[log] = None
                self._rouse()

    def come_again(self, log: Committing, seconds: float) -> None:
        """There will be something to do for ``log`` by then, if not earlier."""
        when = time.monotonic() + seconds
        if when < self._due.get(log, math.inf):
            with self._wake:
                self._due[log] = when
                self._rouse()

    def _rouse(self) -> None:
        if self._thread is None and not self._is_stopping:
            self._thread = threading.Thread(target=self._run, name="lamina-commit", daemon=True)
            self._thread.start()
        self._wake.notify()

    def forget(self, log: Committing) -> None:
        """``log`` is closing; it is not called again once its own commit lock was taken."""
        with self._wake:
            self._nudged.pop(log, None)
            self._due.pop(log, None)

    def stop(self) -> None:
        """End the thread. Logs it served must be closed before."""
        with self._wake:
            self._is_stopping = True
            thread = self._thread
            self._wake.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        if self._pool is not None:
            self._pool.shutdown()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not self._nudged and not self._is_stopping:
                    timeout = self._seconds_to_next()
                    if timeout is not None and timeout <= 0:
                        break
                    self._wake.wait(timeout)
                if self._is_stopping:
                    return
                logs, self._nudged = self._nudged, {}
                now = time.monotonic()
                logs.update((log, None) for log, due in self._due.items() if due <= now)
                for log in logs:
                    self._due.pop(log, None)
            slow: list[Committing] = []
            for log in logs:
                if log.is_slow:
                    slow.append(log)
                else:
                    _run_round(log)
            if len(slow) < _FEW and not self._slow:
                for log in slow:
                    _run_round(log)
            else:
                self._run_in_pool(slow)

    def _run_in_pool(self, logs: list[Committing]) -> None:
        """Nobody waits here until it is done: others have their turn."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_THREADS, "lamina-commit-new")
        for log in logs:
            with self._wake:
                self._slow += 1
            self._pool.submit(self._run_slow, log)

    def _run_slow(self, log: Committing) -> None:
        _run_round(log)
        with self._wake:
            self._slow -= 1

    def _seconds_to_next(self) -> float | None:
        return min(self._due.values()) - time.monotonic() if self._due else None
