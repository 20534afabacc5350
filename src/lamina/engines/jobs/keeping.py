"""The thread of the embedded jobs: does what falls due, and extends the leases of blocks that still run."""

from __future__ import annotations

import logging
import threading
from typing import Protocol

from lamina.engines.jobs.engine import JobEngine
from lamina.errors import JobError, LaminaError
from lamina.log.writer import Log

logger = logging.getLogger("lamina.jobs")


class Kept(Protocol):
    """A lease in use."""

    @property
    def ttr_s(self) -> float: ...

    def extend(self) -> None: ...


class Keeper:
    """One thread for all jobs and leases of an engine."""

    def __init__(self, engine: JobEngine) -> None:
        self._engine = engine
        self._wake = threading.Event()
        self._is_stopped = False
        self._kept: dict[Kept, float] = {}
        """Leases in use, and when each is extended next, by the monotonic clock."""
        self._lock = threading.Lock()
        engine.on_due = self._wake.set
        self._thread = threading.Thread(target=self._run, name="lamina-jobs", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopped = True
        self._wake.set()
        try:
            self._thread.join()
        finally:
            self._engine.on_due = None

    def keep(self, lease: Kept) -> None:
        """Extend the lease whenever half of its time has passed, until ``let_go``."""
        with self._lock:
            self._kept[lease] = self._engine.clock.monotonic() + lease.ttr_s / 2
        self._wake.set()

    def let_go(self, lease: Kept) -> None:
        with self._lock:
            self._kept.pop(lease, None)

    def _run(self) -> None:
        while not self._is_stopped:
            self._wake.clear()
            try:
                wait = self._engine.tick()
                self._extend_due()
                if isinstance(self._engine.log, Log):
                    self._engine.push()
                    self._engine.log.nudge()
            except LaminaError as error:
                logger.warning("jobs of %s: %s", self._engine.folder, error)
                wait = 1.0
            with self._lock:
                now = self._engine.clock.monotonic()
                nexts = [by - now for by in self._kept.values()]
            if wait is not None:
                nexts.append(wait)
            self._wake.wait(min(max(min(nexts), 0), 3600) if nexts else None)

    def _extend_due(self) -> None:
        now = self._engine.clock.monotonic()
        with self._lock:
            due = [lease for lease, by in self._kept.items() if by <= now]
        for lease in due:
            again = now + lease.ttr_s / 2
            try:
                lease.extend()
            except JobError:  # it was too late, or somebody else ended it
                self.let_go(lease)
            except LaminaError as error:
                logger.warning("a lease could not be extended: %s", error)
                again = now + min(lease.ttr_s / 4, 1.0)
            with self._lock:
                if lease in self._kept:
                    self._kept[lease] = again
