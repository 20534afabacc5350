"""Compactions of an open store: one at a time, each behind a rotation, committed by the catalog.

    1 rotate: the boundary and the rotated files, from the answer and not from the folder
    2 inputs: rotated files that the catalog does not call merged; none: nothing to do
    3 write new parts, in a process of its own (compaction_worker.py), or as the caller wants it done
    4 save the catalog that names them, and the inputs as merged      <- commit point
    5 readers go over to the new parts

Inputs and former parts stay until they are cleaned up (cleaning.py), which needs another call.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Final

from lamina.engines.elsewhere import Stopper
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, compaction_progress, epoch_file
from lamina.engines.store.baseline import Baseline
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.cleaning import CleanUp
from lamina.engines.store.compaction_task import Outcome, Task
from lamina.engines.store.compaction_worker import Compact, compact_elsewhere
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.rotation import Rotated
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.view import Layer
from lamina.errors import BadEntry, DiskFull, LaminaError, LogClosed, Stopped, StorageError
from lamina.log.history import History
from lamina.log.measured import Work
from lamina.units import show_bytes

logger = logging.getLogger("lamina.store")

Progress = Callable[[int, int], None]
_KEPT: Final = 100  # runs that can be looked at


@dataclass(frozen=True, slots=True)
class CompactionReport:
    """What a compaction did."""

    generation: int
    epoch: int
    inputs: tuple[str, ...]
    """Rotated files that are in the parts now; none: nothing was new, and nothing was done."""
    entries_read: int = 0
    entries_live: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    parts_kept: int = 0
    parts_written: int = 0
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Run:
    """A compaction that has ended, or that is going on."""

    began_ns: int
    ended_ns: int | None = None
    """None: it is going on."""
    report: CompactionReport | None = None
    """What it did; None: nothing yet, or it did not come to its end."""
    code: str = ""
    """Of the error that ended it."""
    error: str = ""
    done: int = 0
    """Of ``total``, while it is going on."""
    total: int = 0


class Compactions:
    """Of one store. Threads: safe from any thread; who comes second waits."""

    def __init__(self, engine: StoreEngine, history: History | None = None) -> None:
        """``history`` says what stays for reads as of earlier; None: nothing does."""
        self._engine = engine
        self.history = history or History(keep_s=0)
        self._one = threading.Lock()
        self._stopper: Stopper | None = None
        self._is_stopped = self._is_compacting = False
        self._guard = threading.Lock()
        self.compacted, self.cleaned = Work(), Work()
        self.last_at = engine.clock.monotonic()
        """When the last one ended."""
        self.runs: deque[Run] = deque(maxlen=_KEPT)
        """The last ones since the store was opened, oldest first."""
        self.running: Run | None = None
        """The one that is going on."""

    def compact(
        self, progress: Progress = lambda done, total: None, compact: Compact = compact_elsewhere
    ) -> CompactionReport:
        """Compact now, or when the one that is going on has ended. ``compact`` writes the parts.

        Durability: when it returns, the new catalog counts for good.
        Raises: Stopped if it was given up; StorageError: then the store is as it was, and the next one tries again.
        """
        with self._one, self._told(progress) as tell:
            stopper = self._begin()
            engine = self._engine
            start = engine.clock.monotonic()
            try:
                self._is_compacting = True
                engine.check_open()
                if engine.is_untouched():
                    return tell.ended(self._nothing())
                self._check_room()
                layers: list[Layer] = []
                request = engine.request_rotation(lambda: layers.extend(engine.view.freeze()))
                stopper.ends_by(lambda: request.fail(Stopped("the compaction was given up", hint="ask again")))
                rotated = request.wait()
                stopper.ends_by(None)
                if stopper.is_stopped:
                    raise Stopped("the compaction was given up", hint="ask again")
                report = tell.ended(self._compact(rotated, layers, tell.progress, stopper, start, compact))
                if report.inputs:
                    self.compacted.note(report.bytes_before - report.bytes_after)
                logger.info(
                    "compaction %d: up to epoch %d, %d files with %d entries merged, %d entries live, %d bytes before, "
                    "%d after, %d parts kept, %d written, took %.1f s",
                    report.generation,
                    report.epoch,
                    len(report.inputs),
                    report.entries_read,
                    report.entries_live,
                    report.bytes_before,
                    report.bytes_after,
                    report.parts_kept,
                    report.parts_written,
                    report.seconds,
                )
                return report
            finally:
                self.last_at = engine.clock.monotonic()
                with self._guard:
                    self._stopper, self._is_compacting = None, False

    @contextmanager
    def _told(self, progress: Progress) -> Iterator[_Telling]:
        """Around a run: it can be looked at while it goes on, and afterwards."""
        clock = self._engine.clock
        telling = _Telling(self, progress, Run(clock.now_ns()))
        try:
            yield telling
        except LaminaError as error:
            telling.run = replace(telling.run, code=error.code, error=str(error))
            raise
        finally:
            self.running = None
            self.runs.append(replace(telling.run, ended_ns=clock.now_ns()))

    def _begin(self) -> Stopper:
        with self._guard:
            if self._is_stopped:
                raise Stopped("the store is being closed", hint="open it and ask again")
            self._stopper = Stopper()
            return self._stopper

    def _compact(
        self,
        rotated: Rotated,
        layers: list[Layer],
        progress: Progress,
        stopper: Stopper,
        start: float,
        compact: Compact = compact_elsewhere,
    ) -> CompactionReport:
        engine = self._engine
        catalogs.begin(engine.files, engine.folder)  # it is not there when the disk was full as the store was opened
        catalog = engine.catalog
        inputs = self._inputs(rotated)
        if not inputs:
            return self._nothing()
        sizes = [cleaning.size_of(engine.files, engine.folder, name) or 0 for name in inputs]
        before = sum(sizes) + sum(part.bytes for part in catalog.parts)
        read = written = 0
        half_done = self._half_done(inputs, rotated.epoch)
        if half_done is not None and len(half_done.inputs) < len(inputs):
            outcome = compact(engine.files, half_done, progress, stopper)
            # What is in memory holds more than this: it stays in front of the new parts.
            self._commit(half_done, outcome, rotated, [engine.baseline])
            read, written = outcome.entries_read, outcome.parts_written
            half_done = None
        task = half_done or self._task(self._inputs(rotated), rotated.epoch)
        outcome = compact(engine.files, task, progress, stopper)
        self._commit(task, outcome, rotated, [*layers, engine.baseline])
        return CompactionReport(
            generation=task.generation,
            epoch=task.until,
            inputs=inputs,
            entries_read=read + outcome.entries_read,
            entries_live=outcome.entries_live,
            bytes_before=before,
            bytes_after=outcome.bytes_after,
            parts_kept=outcome.parts_kept,
            parts_written=written + outcome.parts_written,
            seconds=engine.clock.monotonic() - start,
        )

    def _check_room(self) -> None:
        """On a disk that is nearly full, what has to be written fits at least. Raises: DiskFull; DiskError."""
        engine = self._engine
        if engine.reserve is None or not engine.reserve.is_short:
            return
        new = sum(layer.bytes for layer in engine.view.snapshot().layers if layer is not engine.baseline)
        free = engine.files.room(engine.folder).free
        if new > free:
            text = f"the disk is full: a compaction writes about {show_bytes(new)}, {show_bytes(free)} are free"
            raise DiskFull(text, hint="make room; the next one tries again")

    def _nothing(self) -> CompactionReport:
        """There is nothing to do: what there is."""
        catalog = self._engine.catalog
        live, size = sum(part.entries for part in catalog.parts), sum(part.bytes for part in catalog.parts)
        parts = len(catalog.parts)
        return CompactionReport(catalog.generation, catalog.epoch, (), 0, live, size, size, parts_kept=parts)

    def _inputs(self, rotated: Rotated) -> tuple[str, ...]:
        merged = frozenset(self._engine.catalog.merged)
        return tuple(name for name in rotated.files if catalogs.is_rotated_pwal(name) and name not in merged)

    def _task(self, inputs: tuple[str, ...], until: int) -> Task:
        engine = self._engine
        return Task(
            folder=engine.folder,
            inputs=inputs,
            after=engine.catalog.epoch,
            until=until,
            voids=tuple(engine.voids),
            catalog=engine.catalog,
            generation=engine.catalog.generation + 1,
            memory_bytes=engine.options.memory_bytes,
            part_bytes=engine.options.part_bytes,
        )

    def _half_done(self, inputs: tuple[str, ...], until: int) -> Task | None:
        """One that was cut short, by a crash or because it was given up: it is gone on with first."""
        engine = self._engine
        found = compaction_progress.unfinished(engine.files, engine.folder)
        if found is None or found.generation != engine.catalog.generation + 1:
            return None
        if not engine.catalog.epoch < found.epoch <= until or not set(found.merged) <= set(inputs):
            return None
        return self._task(tuple(name for name in inputs if name in found.merged), found.epoch)

    def _commit(self, task: Task, outcome: Outcome, rotated: Rotated, gone: list[Layer]) -> None:
        engine = self._engine
        epochs = {name for name in rotated.files if (catalogs.rotated_epoch(name) or 0) <= task.until}
        merged = {*engine.catalog.merged, *task.inputs, *(name for name in epochs if name.startswith("epoch"))}
        catalog = Catalog(
            generation=task.generation,
            epoch=task.until,
            parts=outcome.parts,
            storages=outcome.storages,
            merged=tuple(name for name in engine.rotated if name in merged),
            time_ns=engine.clock.now_ns(),
        )
        baseline = Baseline.open(engine.files, engine.folder, catalog, engine.baseline)
        try:
            catalogs.save(engine.files, engine.folder, catalog)
        except StorageError:
            # If the very last sync failed it is the catalog, though a power cut may still bring back the one before.
            # Going on from that one, the next compaction would write over the parts that this one names.
            if self._is_there(catalog):
                self._go_over(catalog, baseline, gone)
            raise
        engine.vouch_for_catalog(catalog.generation)
        self._go_over(catalog, baseline, gone)
        try:
            compaction_progress.remove(engine.files, engine.folder)
        except StorageError as error:  # it is committed; opening removes what is left
            logger.warning("%s", error)

    def _is_there(self, catalog: Catalog) -> bool:
        try:
            return catalogs.load(self._engine.files, self._engine.folder).generation == catalog.generation
        except StorageError:
            return False

    def _go_over(self, catalog: Catalog, baseline: Baseline, gone: list[Layer]) -> None:
        engine = self._engine
        with engine.lock:
            engine.catalog, engine.baseline = catalog, baseline
        for layer in engine.view.replace(gone, [baseline]):
            if isinstance(layer, SortedFile):
                engine.forget_run(layer)

    def clean_up(self, keep_after_epoch: int | None = None, *, keeps_recent: bool = False) -> CleanUp:
        """Remove what compactions made obsolete; who reads it goes on reading. Raises: StorageError.

        ``keep_after_epoch``: reads as of this epoch and later ones stay possible; ``keeps_recent``: those that the
        history asks for. Without either what only reads as of earlier need goes, too.
        """
        with self._one:
            if self._is_stopped:
                raise LogClosed(f"{self._engine.folder}: the store is closed", hint="open it again")
            engine = self._engine
            if keep_after_epoch is not None and keep_after_epoch > engine.last_epoch:
                raise BadEntry(
                    f"epoch {keep_after_epoch} is not durable yet", hint=f"the last one is {engine.last_epoch}"
                )
            done = cleaning.clean_up(
                engine.files,
                engine.folder,
                engine.catalog,
                keep=engine.runs,
                keep_after_epoch=keep_after_epoch,
                history=self.history if keeps_recent else None,
                now_ns=engine.clock.now_ns(),
            )
            if not keeps_recent:
                self.history.forget(engine.folder)  # the next clean-up that keeps some knows what is left
            removed = frozenset(done.removed)
            self.cleaned.note(done.bytes)
            if removed:
                logger.info("clean-up: %d files removed, %d bytes", len(removed), done.bytes)
            with engine.lock:
                engine.catalog = done.catalog
                engine.rotated[:] = [name for name in engine.rotated if name not in removed]
            return done

    def dead_bytes(self) -> tuple[int, int]:
        """Bytes that a compaction would let go, about, and of how many: all that is not kept for the past.

        Raises: StorageError.
        """
        engine = self._engine
        total = self.counted_bytes()
        unsettled = engine.unsettled_bytes  # in the files, or about to be, and not to be seen yet
        with engine.lock:
            baseline, catalog = engine.baseline, engine.catalog
        alive = engine.view.alive(baseline, catalog.storages.cleared)
        return max(total - unsettled - alive, 0), total

    def counted_bytes(self) -> int:
        """Bytes of the parts, and of files that were written since. Raises: DiskError."""
        engine = self._engine
        epochs = [name for name in list(engine.rotated) if name.startswith("epoch.")]
        since = [name for name in epochs if (catalogs.rotated_epoch(name) or 0) > engine.catalog.epoch]
        sizes = [cleaning.size_of(engine.files, engine.folder, name) or 0 for name in [*since, epoch_file.NAME]]
        return engine.logged_bytes() + sum(part.bytes for part in engine.catalog.parts) + sum(sizes)

    def dead_ratio(self) -> float:
        """The part of all bytes that is out of date, about. Raises: StorageError."""
        dead, total = self.dead_bytes()
        return dead / total if total else 0.0

    def cancel(self) -> bool:
        """Give up the compaction that is going on: its caller gets Stopped, and the next one goes on from there.

        Returns whether there was one.
        """
        with self._guard:
            stopper = self._stopper if self._is_compacting else None
        if stopper is not None:
            stopper.stop()
        return stopper is not None

    def stop(self) -> None:
        """Give up the one that is going on, and let none begin any more."""
        with self._guard:
            self._is_stopped = True
            stopper = self._stopper
        if stopper is not None:
            stopper.stop()
        with self._one:  # it ends in order
            return

    @contextmanager
    def paused(self) -> Iterator[Stopper]:
        """Neither a compaction nor a clean-up goes on meanwhile. ``stop`` ends what is told to the stopper.

        Raises: Stopped if the store is being closed.
        """
        with self._one:
            try:
                yield self._begin()
            finally:
                with self._guard:
                    self._stopper = None


class _Telling:
    """How far a run is, for whoever looks."""

    def __init__(self, compactions: Compactions, progress: Progress, run: Run) -> None:
        self._compactions, self._progress = compactions, progress
        self.run = compactions.running = run

    def progress(self, done: int, total: int) -> None:
        self.run = self._compactions.running = replace(self.run, done=done, total=total)
        self._progress(done, total)

    def ended(self, report: CompactionReport) -> CompactionReport:
        self.run = replace(self.run, report=report)
        return report
