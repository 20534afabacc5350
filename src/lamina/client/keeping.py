"""Leases that extend themselves: one thread for all of them, however many jobs are in work."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

from lamina.client.forking import tell_after_fork
from lamina.errors import JobError

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
        self._due: dict[int, tuple[float, Kept]] = {}
        """When each lease is touched next, by the monotonic clock. One job may have two, of which one got lost."""
        self._thread: threading.Thread | None = None
        tell_after_fork(self)

    def forked(self) -> None:
        """See forking.py: the leases of the parent are extended there."""
        self._changed, self._due, self._thread = threading.Condition(), {}, None

    def keep(self, lease: Kept) -> None:
        with self._changed:
            self._due[id(lease)] = (time.monotonic() + _pause(lease.ttr_s), lease)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lamina-leases", daemon=True)
                self._thread.start()
            self._changed.notify()

    def let_go(self, lease: Kept) -> None:
        with self._changed:
            self._due.pop(id(lease), None)
            self._changed.notify()

    def stop(self) -> None:
        """Extend nothing any more."""
        with self._changed:
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while (lease := self._next()) is not None:
            again = _pause(lease.ttr_s)
            is_lost = False
            try:
                self._touch(lease.id, lease.ttr_s)
            except JobError:  # it was too late, or somebody else ended it
                is_lost = True
            except Exception as error:  # whatever it was: without this thread all leases would be lost
                again = min(again, 1.0)
                if id(lease) in self._due:  # else nobody wants to know any more
                    logger.warning("the lease of job %s could not be extended: %s", lease.id, error)
            with self._changed:
                is_kept = id(lease) in self._due
                if is_kept and not is_lost:
                    self._due[id(lease)] = (time.monotonic() + again, lease)
                elif is_kept:
                    del self._due[id(lease)]
            if is_kept and is_lost and self._lost is not None:
                self._lost(lease.id)

    def _next(self) -> Kept | None:
        """Wait for the next that is due. None when there is none left to wait for."""
        with self._changed:
            while self._due:
                by, lease = min(self._due.values(), key=lambda due: due[0])
                left = by - time.monotonic()
                if left <= 0:
                    return lease
                self._changed.wait(left)
            self._thread = None
            return None


def _pause(ttr_s: float) -> float:
    return max(ttr_s / 3, min(_SHORTEST_S, ttr_s / 2))
