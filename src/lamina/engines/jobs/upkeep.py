"""What keeps the folder small and the start short, in a thread of its own: checkpoints and cleaning.

A checkpoint is worth its cost when the log behind the last one has grown to four times what a new one would hold, and
to something worth mentioning at all. So writing them costs less than the log itself, and a start never replays more
than that.
"""

from __future__ import annotations

import logging
import threading

from lamina.engines.jobs import checkpoint
from lamina.engines.jobs.cleaner import Cleaner, CleanReport
from lamina.engines.jobs.engine import JobEngine
from lamina.errors import LaminaError
from lamina.log.history import History
from lamina.log.measured import Work
from lamina.log.sync import Level
from lamina.log.teardown import shown
from lamina.log.writer import Log

_EVERY_S = 0.5
_SOON_S = 5.0  # behind the start: one that is killed early, again and again, must not grow without end
_FEWEST = 50_000  # records
_HURRY_S = 30.0  # between two cleanings while the disk is full

logger = logging.getLogger("lamina.jobs")


class Upkeep:
    """Looks after one engine until it is stopped."""

    def __init__(self, engine: JobEngine, *, clean_ms: int = 300_000, history: History | None = None) -> None:
        """``history``: cleaning leaves the recent past alone, as long as there is room on the disk."""
        self._engine = engine
        self._clean_s = clean_ms / 1000
        self._stop = threading.Event()
        self._at_work = threading.RLock()  # whoever writes a checkpoint or cleans
        self._thread: threading.Thread | None = None
        self._covered = -engine.replayed  # a start that is killed early, again and again, must not replay more and more
        self.cleaner = Cleaner(engine, self.checkpoint, history)
        self.cleaned = Work()

    def clean(self, *, everything: bool = False) -> CleanReport:
        """One cycle of cleaning. Raises: Corruption, DiskFull, DiskError, LogFailed."""
        with self._at_work:
            report = self.cleaner.cycle(self._stop.is_set, everything=everything, needs_room=self._is_out_of_room())
            self.cleaned.note(report.freed_bytes)
            return report

    def clean_every(self, ms: int) -> None:
        """Clean so often from now on. Threads: any."""
        self._clean_s = ms / 1000

    def start(self) -> None:
        if isinstance(self._engine.log, Log):
            self._thread = threading.Thread(target=self._run, name="lamina-jobs-upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Return when the work at hand is done."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._at_work:  # somebody else may have asked for it
            pass

    def _run(self) -> None:
        clock = self._engine.clock
        clean_at = clock.monotonic() + min(_SOON_S, self._clean_s)
        while not self._stop.wait(min(_EVERY_S, self._clean_s)):
            if self._engine.reserve is not None:
                self._engine.reserve.look(at_most_every_s=_EVERY_S / 2)
            clean_at = min(clean_at, clock.monotonic() + self._clean_s)  # it may be more often now
            if self._is_out_of_room() and clean_at > clock.monotonic() + _HURRY_S:
                clean_at = clock.monotonic()
            try:
                if self.checkpoint_is_due():
                    self.checkpoint()
                if clock.monotonic() >= clean_at:
                    clean_at = clock.monotonic() + (_HURRY_S if self._is_out_of_room() else self._clean_s)
                    self.clean()
            except (LaminaError, OSError) as error:
                logger.warning("upkeep of %s: %s", self._engine.folder, error)

    def _is_out_of_room(self) -> bool:
        reserve = self._engine.reserve
        return reserve is not None and reserve.is_short

    def checkpoint_is_due(self) -> bool:
        log = self._engine.log
        if not isinstance(log, Log):
            return False
        since = log.stats.records - self._covered
        return since > max(_FEWEST, 4 * len(self._engine.state.jobs))

    def checkpoint(self) -> None:
        """Write one now. Raises: DiskFull, DiskError, LogFailed."""
        with self._at_work:
            self._checkpoint()

    def _checkpoint(self) -> None:
        engine, log = self._engine, self._engine.log
        assert isinstance(log, Log) and engine.folder is not None
        with engine.lock:
            position, records = engine.handed_over(), log.stats.records
            if position <= engine.checkpointed:
                return
            state = engine.state

        def sync_log() -> None:
            log.wait(engine.all_written(), Level.SYNCED)
            if engine.state is not state:
                raise LaminaError("the checkpoint was given up: records were refused meanwhile")

        checkpoint.save(engine.files, engine.folder, state, position, engine.lock, sync_log, engine.reserve)
        engine.checkpointed, self._covered = position, records

    def checkpoint_at_stop(self) -> None:
        """Leave the next start little to replay; not worth an error."""
        log = self._engine.log
        if not isinstance(log, Log) or log.failure is not None:
            return
        if log.stats.records - self._covered > _FEWEST // 10:
            try:
                self.checkpoint()
            except Exception as error:
                logger.warning("no checkpoint of %s: %s", self._engine.folder, shown(error))
