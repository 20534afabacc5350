"""What goes on by itself, in a thread of its own: dumps, expiry, and in the store ``journal`` syncs and idle files."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

from lamina.engines.queues import ids
from lamina.engines.queues.dumping import Dumper, DumpReport
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.folding import FoldStopped
from lamina.engines.queues.journal import copies, paths
from lamina.errors import LaminaError
from lamina.log.history import History
from lamina.log.sync import Level
from lamina.log.teardown import Teardown, shown
from lamina.log.writer import Log

_EVERY_S = 0.5
_TIDY_S = 5.0  # where nothing has to be synced: files that nobody needs go then
_PAST_S = 60.0  # how often it is looked for files that were kept for long enough
_AT_ONCE = 500  # queues that are looked at before others have the lock

logger = logging.getLogger("lamina.queues")


class Upkeep:
    """Looks after one engine until it is stopped."""

    def __init__(self, engine: QueueEngine, dumper: Dumper | None = None, *, history: History | None = None) -> None:
        """``history`` says which files stay for the recent past, in the store ``memory``; None: none does."""
        self._engine = engine
        in_memory = engine.keeper is engine
        self.dumper = dumper or Dumper(
            engine,
            engine.files,
            engine.folder,
            engine.clock,
            ttl=engine.options.ttl_s,
            keeps_messages=in_memory,
            force=engine.restored.was_forced,
            history=history if in_memory else None,
            before_fold=engine.remove_folders,
            removal=engine.removal,
        )
        self._tidy_at = 0.0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._due: list[_Task] = []
        self._sync_s = 0.0  # in the store ``journal``, how often what was answered is synced
        self._syncer: threading.Thread | None = None
        self._dumped = -1  # records that there were since the start when the last dump began; -1: there was none
        options = engine.options
        self._every(options.dump_every_s, self.dump)
        self._every(options.expire_every_s, self.expire_all)
        if not in_memory:
            self._every(options.idle_s, self.close_idle)
            assert isinstance(engine.log, Log)
            sync = engine.log.options.sync
            if sync.level is not Level.SYNCED:
                self._sync_s = sync.interval_ms / 1000 if sync.interval_ms else _TIDY_S

    def _every(self, seconds: float, work: Callable[[], Any]) -> None:
        if seconds:
            self._due.append(_Task(seconds, work, self._engine.clock.monotonic() + seconds))

    # -- what it does ----------------------------------------------------------------------------------------------

    def dump(self) -> DumpReport | None:
        """Write a dump now; None if one is being written. Raises: StorageError; then nothing was changed."""
        log = self._engine.log
        assert isinstance(log, Log)
        before = log.stats.records
        report = self.dumper.dump()
        if report is not None:
            self._dumped = before
        return report

    def expire_all(self) -> int:
        """Let all that has expired go, queue by queue. Returns how many messages went.

        In the store ``journal``, what was received goes from the files on the way: it is not to stay there for good.
        """
        engine = self._engine
        with engine.lock:
            rids = list(engine.state.queues)
        gone = 0
        for start in range(0, len(rids), _AT_ONCE):
            if self._stop.is_set():
                break
            gone += self._expire(rids[start : start + _AT_ONCE])
        engine.push()
        return gone

    def _expire(self, rids: list[bytes]) -> int:
        engine, gone = self._engine, 0
        if engine.keeper is engine:
            with engine.lock:
                for rid in rids:
                    queue = engine.state.queues.get(rid)
                    if queue is not None and queue.messages:
                        gone += engine.expire(queue)
            return gone
        for rid in rids:
            with engine.lock:  # one by one: files are opened for each
                queue = engine.state.queues.get(rid)
                if queue is None or (queue.size == 0 and not queue.is_worn):
                    continue
                try:
                    gone += engine.expire(queue)
                    engine.keeper.clean(queue)
                except LaminaError as error:  # the others have a right to it all the same
                    logger.error("queue %s: cannot be cleaned: %s", ids.handle(rid), error)
        engine.keeper.push()
        return gone

    def set_orphans_aside(self) -> int:
        """Set aside folders of queues that nobody knows of. Returns how many there were.

        Where changes are answered before they are synced, a power cut may take a queue and leave its messages. But a
        log that was brought back from a backup looks the same, so nothing is removed.
        """
        engine, count = self._engine, 0
        name = paths.ASIDE + copies.stamp(engine.clock.now_ns())
        for rid in engine.keeper.walk():
            if self._stop.is_set():
                break
            with engine.lock:
                if rid not in engine.state.queues and rid not in engine.to_remove:
                    count += engine.keeper.set_aside(rid, name)
        if count:
            logger.warning("the log of the queues does not know %d queues: their folders are in %s now", count, name)
        return count

    def close_idle(self) -> int:
        """Close the files of queues that nobody uses. Returns how many were closed."""
        closed: int = self._engine.keeper.close_idle(self._engine.options.idle_s)
        return closed

    # -- the thread ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin. What a restore left odd does not last: then a dump is written at once."""
        if self._engine.restored.wants_dump:
            self._due.append(_Task(0, self.dump, self._engine.clock.monotonic()))
        if self._engine.keeper is not self._engine and self._engine.keeper.old_layout is not None:
            self._due.append(_Task(0, self._move_all, self._engine.clock.monotonic()))
        if self._may_have_orphans():
            self._due.append(_Task(0, self.set_orphans_aside, self._engine.clock.monotonic()))
        self._thread = threading.Thread(target=self._run, name="lamina-queues-upkeep", daemon=True)
        self._thread.start()
        if self._sync_s:
            self._syncer = threading.Thread(target=self._sync_often, name="lamina-queues-sync", daemon=True)
            self._syncer.start()

    def _move_all(self) -> None:
        def check(moved: int) -> None:
            if self._stop.is_set():
                raise FoldStopped("moving the folders was given up")

        self._engine.keeper.move_all(check)

    def _sync_often(self) -> None:
        """In a thread of its own: what takes long must not keep it from being done in time."""
        while not self._stop.wait(self._sync_s):
            try:
                self._engine.keeper.sync()
            except Exception:
                logger.exception("the sync of the queues failed")

    def _may_have_orphans(self) -> bool:
        engine = self._engine
        if engine.keeper is engine:
            return False
        # Never after a forced start: what it could not read may have been the queues.
        return engine.restored.log_records > 0 and not engine.restored.was_forced

    def stop(self) -> None:
        """Return when the work at hand is done, or given up: a dump is."""
        self._stop.set()
        with Teardown(self._engine.folder) as teardown:
            teardown.step(self.dumper.cancel)
            for thread in (self._thread, self._syncer):
                if thread is not None:
                    teardown.step(thread.join)
            self._thread = self._syncer = None

    def dump_at_stop(self) -> None:
        """Leave the next start one dump to read; not worth an error."""
        log = self._engine.log
        if not isinstance(log, Log) or log.failure is not None:
            return
        if log.stats.records > self._dumped or (self._dumped < 0 and self._engine.restored.log_records):
            try:
                self.dumper.dump(at_stop=True)
            except Exception as error:  # the next start reads the logs, that is all
                logger.warning("no dump of %s: %s", self._engine.folder, shown(error))

    def _run(self) -> None:
        clock = self._engine.clock
        while not self._stop.wait(self._pause()):
            self._look_for_room()
            self._tidy()
            now = clock.monotonic()
            for task in list(self._due):
                if task.at > now or self._stop.is_set():
                    continue
                if task.every:
                    task.at = now + task.every
                else:
                    self._due.remove(task)
                try:
                    task.work()
                except FoldStopped:  # it is being stopped, and was told so
                    return
                except LaminaError as error:
                    logger.error("upkeep of the queues: %s", error)
                except Exception:  # a mistake of ours must not end dumps and syncs for good
                    logger.exception("upkeep of the queues failed")

    def _tidy(self) -> None:
        """Of files for the past: those whose time is over, or that have to give way."""
        now = self._engine.clock.monotonic()
        if now < self._tidy_at and not self.dumper.history.is_over(self._engine.folder):
            return
        self._tidy_at = now + _PAST_S
        try:
            self.dumper.tidy()
        except LaminaError as error:
            logger.error("upkeep of the queues: %s", error)

    def _pause(self) -> float:
        now = self._engine.clock.monotonic()
        return max(min([_EVERY_S, *(task.at - now for task in self._due)]), 0.001)

    def _look_for_room(self) -> None:
        if self._engine.reserve is not None:
            self._engine.reserve.look(at_most_every_s=_EVERY_S / 2)


class _Task:
    """Something to do every so many seconds; 0: once."""

    def __init__(self, every: float, work: Callable[[], Any], at: float) -> None:
        self.every = every
        self.work = work
        self.at = at
