"""Leases that extend themselves: one thread for all of them, however many jobs are in work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from lamina.errors import JobError, LaminaError

logger = logging.getLogger("lamina.jobs")

_SHORTEST_S: Final = 0.05


class Kept(Protocol):
    """A lease in use."""

    @property
    def id(self) -> str: ...

    @property
    def ttr_s(self) -> float: ...


class LeaseKeeper:
    """Touches each lease whenever a third of its time has passed, so that one lost try does not lose the job.

    Threads: safe from any thread. Its own thread starts with the first lease and ends with the last.
    """

    def __init__(self, touch: Callable[[str, float], None], lost: Callable[[str], None] | None = None) -> None:
        """``touch``: extends the lease of an id by seconds. ``lost``: is told that a job is not ours any more."""
        self._touch = touch
        self._lost = lost
        self._changed = threading.Condition()
        self._due: dict[str, tuple[float, float]] = {}
        """Of each job: when it is touched next, by the monotonic clock, and its time to run."""
        self._thread: threading.Thread | None = None

    def keep(self, lease: Kept) -> None:
        with self._changed:
            self._due[lease.id] = (time.monotonic() + _pause(lease.ttr_s), lease.ttr_s)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lamina-leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def let_go(self, lease: Kept) -> None:
        with self._changed:
            self._due.pop(lease.id, None)
            self._changed.notify()

    def stop(self) -> None:
        """Extend nothing any more."""
        with self._changed:
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (due := self._next()) is not None:
            id, ttr_s = due
            again = _pause(ttr_s)
            is_lost = False
            try:
                self._touch(id, ttr_s)
            except JobError:  # it was too late, or somebody else ended it
                is_lost = True
            except LaminaError as error:
                again = min(again, 1.0)
                if id in self._due:  # else nobody wants to know any more
                    logger.warning("the lease of job %s could not be extended: %s", id, error)
            with self._changed:
                is_kept = id in self._due
                if is_kept and not is_lost:
                    self._due[id] = (time.monotonic() + again, ttr_s)
                elif is_kept:
                    del self._due[id]
            if is_kept and is_lost and self._lost is not None:
                self._lost(id)

    def _next(self) -> tuple[str, float] | None:
        """Wait for the next that is due. None when there is none left to wait for."""
        with self._changed:
            while self._due:
                id, (by, ttr_s) = min(self._due.items(), key=lambda item: item[1][0])
                left = by - time.monotonic()
                if left <= 0:
                    return id, ttr_s
                self._changed.wait(left)
            self._thread = None
            return None


def _pause(ttr_s: float) -> float:
    return max(ttr_s / 3, min(_SHORTEST_S, ttr_s / 2))
