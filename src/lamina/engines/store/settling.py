"""How epochs become durable, visible, and told: the part of the store that faces the disk.

Three locks, taken in this order. ``_disk``: whoever makes an epoch durable holds it, so that one is done at a time.
A channel's own, while its file is written or renamed. ``lock``: numbers, queues and lists, never held over disk work.

An epoch becomes durable in steps (``_take_step``): sync the channels that wrote, append one record to the epoch file,
sync that, let readers see the entries, tell who waits. If the disk refuses any of it, the epochs concerned are void:
none of their sessions counts, whichever channel it was on, and everyone who waits for one is told why.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from lamina.clock import Clock
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, codec, compaction_progress, epoch_file, inputs
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.channel import Batch, Channel
from lamina.engines.store.durable import Waiters
from lamina.engines.store.epoch_log import EpochLog
from lamina.engines.store.epochs import EpochCounter
from lamina.engines.store.opening import Opened
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.rotation import Rotated, RotationRequest, Rotations
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.table import Table
from lamina.engines.store.versions import Versions
from lamina.engines.store.view import View
from lamina.errors import LaminaError, LogClosed, LogFailed, StorageError, let_go_of_frames
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.measured import Measured
from lamina.log.reserve import Reserve

logger = logging.getLogger("lamina.store")

_SPILL_AGAIN_S = 5.0  # when the disk refused a spill


class _Step(NamedTuple):
    upper: int
    record: int
    rotation: RotationRequest | None


class Settling:
    """What a store knows, and how it goes on. Threads: every method is safe from any thread."""

    def __init__(
        self,
        opened: Opened,
        folder: str,
        files: Files,
        clock: Clock,
        options: StoreOptions,
        committer: Committer | None,
    ) -> None:
        """Use ``StoreEngine.open``."""
        self.folder, self.files, self.clock, self.options, self.committer = folder, files, clock, options, committer
        self.lock = threading.RLock()
        self._disk = threading.RLock()
        self.catalog = opened.catalog
        self.floor = max(opened.catalog.epoch, _half_done(files, folder, opened.catalog))
        """Versions that are chosen must have a larger major one: what was compacted may have forgotten what it hid."""
        self.warnings = opened.warnings()
        """What opening found and did."""
        self.voids = list(opened.epochs.voids)
        if opened.last_epoch > opened.epochs.durable:
            _add_range(self.voids, opened.epochs.durable + 1, opened.last_epoch)
        self.refusals = 0
        """How often the disk has refused epochs since the store was opened."""
        self.rotated = list(opened.rotated)
        """Rotated files, oldest first."""
        assert opened.gathered.baseline is not None
        self.baseline = opened.gathered.baseline
        """The parts of the catalog."""
        self.view = View(opened.gathered.layers, opened.gathered.storages)
        self.versions = Versions(codec.version(self.view.highest))
        self.channels: dict[int, Channel] = {}
        self._own_channel: Channel | None = None  # of sessions that begin and end at once
        self.measured = Measured()
        """What writing the files of its channels and of epochs costs."""
        self.written_sessions = self.written_entries = 0
        """Since the store was opened; of epochs that were refused afterwards, too."""
        self.failure: LaminaError | None = None
        self.write_error: StorageError | None = None
        """What kept the last epoch from being durable; None: it is."""
        self.reserve: Reserve | None = None
        """Says whether new work is taken, and keeps room for what has to go on when the disk is full."""
        self._stop_counting: Callable[[], None] = lambda: None
        self.is_closed = False
        self.entries_read = opened.gathered.entries
        """Entries that were read from files when the store was opened."""
        self.runs = list(opened.gathered.runs)
        self._run_number = 0
        self._spill_at = 0.0  # not before that: the disk refused
        self._held = opened.held
        self._last_ns = opened.last_ns
        self._last_ms = opened.last_ms
        self._names = threading.Lock()
        self._counter = EpochCounter(opened.last_epoch)
        self._rotations = Rotations()
        self._pending: list[Batch] = []
        self.unsettled_bytes = 0
        """Of sessions that are neither durable nor refused: those of ``_pending``."""
        self.newest_epoch = 0
        """The last one in which a session was written here."""
        self._owed: list[tuple[int, int]] = []  # void ranges that the epoch file does not say yet
        self._generation = opened.generation  # of the catalog that is on the disk for good; -1: none is
        self._generation_said = -1  # what the epoch file says
        self.waiters = Waiters(opened.last_epoch, self.voids)
        self.nudge: Callable[[], None] = self.settle
        """Called when something may be due; the keeper's thread then does it, without one it is done here and now."""
        self.is_ticking = False
        """The present epoch will be ended by the clock: who ends a session need not tell anybody."""
        self.switched_at = clock.monotonic()
        self.epoch_log = EpochLog(files, folder, clock, committer, opened.epochs.last_ns, self._head, self.was_rotated)
        self.epoch_log.measured = self.measured

    def _head(self) -> tuple[int, list[bytes]]:
        with self.lock:
            listed = self._listed()
            numbers = sorted({int(name[5:9]) for name in listed})
            newest = [(number, self._newest_ns(number)) for number in numbers]
            epoch = self._counter.recorded
            self._generation_said = self._generation
            about_catalog = [epoch_file.catalog(self._generation)] if self._generation >= 0 else []
            return epoch, [epoch_file.head(epoch, self.voids, listed, newest), *about_catalog]

    def _newest_ns(self, number: int) -> int:
        """Time of the newest record in the rotated files of a channel; 0: not known."""
        channel = self.channels.get(number)
        return self._last_ns.get(number, 0) if channel is None else channel.newest_ns

    def _listed(self) -> list[str]:
        """Rotated files of channels whose loss should be noticed."""
        merged = frozenset(self.catalog.merged)
        return [name for name in self.rotated if name.startswith("pwal_") and name not in merged]

    def use_reserve(self, reserve: Reserve | None) -> None:
        """From now on sessions that put anything there are refused when that one says that the disk is full."""
        self._stop_counting()
        self.reserve, self._stop_counting = reserve, lambda: None
        if reserve is not None:
            self._stop_counting = reserve.count_unwritten(lambda: self.unsettled_bytes)

    def check_open(self) -> None:
        """Raises: LogClosed, LogFailed."""
        if self.is_closed:
            raise LogClosed(f"{self.folder}: the store is closed", hint="open it again")
        if self.failure is not None:
            raise self.failure.with_traceback(None)

    # -- making epochs durable -----------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Do what is due: rename files, make epochs durable, answer requests. Errors are told to those who wait."""
        with self._disk:
            self._turn_files()
            while (step := self._next_step()) is not None:
                self._take_step(step)

    def _turn_files(self) -> None:
        with self.lock:
            begun = list(self._rotations.begun)
        for request in begun:
            for number in sorted(request.waiting):
                channel = self.channels[number]
                session = channel.session
                if session is not None and session.epoch <= request.boundary:
                    continue
                try:
                    channel.turn(request.boundary)
                except StorageError as error:
                    self._fail_rotation(request, error)
                    break
                with self.lock:
                    request.waiting.discard(number)

    def _next_step(self) -> _Step | None:
        with self.lock:
            if self.failure is not None:
                return None
            due = self._counter.due()
            upper = self._counter.informed if due is None else due.upper
            request = self._rotations.oldest()
            if request is not None and upper >= request.boundary:
                # The boundary first, and nothing behind it. If files wait to be renamed, the request came this moment:
                # who switched the epoch has us look again.
                return None if request.waiting else _Step(request.boundary, request.boundary, request)
            return None if due is None else _Step(due.upper, due.record, None)

    def _take_step(self, step: _Step) -> None:
        with self.lock:
            pending = [batch for batch in self._pending if batch.epoch <= step.upper]
            recorded = self._counter.recorded
        try:
            self.epoch_log.begin()  # no session is written before the head of the file that says when it is durable
            attested = self._sync(pending, step.upper)
            durable = max(step.record, recorded)
            is_new = step.record > recorded or step.rotation is not None
            self._record(durable, [epoch_file.durable(durable, attested.items())] if is_new else [])
        except StorageError as error:
            self._void(step, error)
            return
        self._show(step, pending)
        if step.rotation is not None:
            self._finish_rotation(step.rotation)
        self._spill_if_large()

    def _record(self, durable: int, records: Sequence[bytes]) -> None:
        """Append what is owed, and ``records``, to the epoch file. Raises: StorageError, and nothing is there."""
        generation = self._generation
        owed = [epoch_file.void(first, last) for first, last in self._owed]
        owed += [epoch_file.catalog(generation)] if generation > self._generation_said else []
        if owed or records:
            self.epoch_log.record(durable, [*owed, *records])
            self._owed.clear()
            self._generation_said, self.write_error = generation, None

    def _sync(self, pending: Sequence[Batch], upper: int) -> dict[int, int]:
        """Write and sync what is pending. Returns the newest position of each channel. Raises: StorageError."""
        newest = {batch.channel: batch for batch in pending}
        for channel in newest:
            channel.write(upper)
        for batch in newest.values():
            batch.sync()
        for batch in pending:  # each of them: one may have been refused, and those behind it not
            batch.sync()
        return {channel.number: batch.position for channel, batch in newest.items()}

    def _show(self, step: _Step, pending: Sequence[Batch]) -> None:
        """It is durable: readers see it, and who waits is told."""
        with self.view.lock:
            self.view.take((batch.first_ns, batch.packed) for batch in pending)
            if step.rotation is not None and step.rotation.at_boundary is not None:
                step.rotation.at_boundary()
        with self.lock:
            self._forget_pending(step.upper)
            self._counter.is_recorded(step.record)
            self._counter.is_informed(step.upper)
        self.waiters.tell(step.upper)

    def _void(self, step: _Step, error: StorageError) -> None:
        """The disk refused: no session of these epochs will ever count."""
        let_go_of_frames(error)
        with self.lock:
            first = self._counter.informed + 1
            self.write_error = error
            if isinstance(error, LogFailed):
                self.failure = error
            if first <= step.upper:
                self.refusals += 1
                _add_range(self._owed, first, step.upper)
                _add_range(self.voids, first, step.upper)
                self._counter.skip(step.upper)
            self._forget_pending(step.upper)
            failed = [request for request in self._rotations.begun if request.boundary <= step.upper]
            if self.failure is not None:
                self._drop_pending()
                failed = self._rotations.stop()  # nobody will serve them
        logger.error("epochs %d to %d are not durable: %s", first, step.upper, error)
        for request in failed:
            self._fail_rotation(request, error)
        self.waiters.refuse(first, step.upper, error)
        if self.failure is not None:
            self.waiters.fail(error)

    def _forget_pending(self, upper: int) -> None:
        """Batches of epochs up to ``upper`` are durable or void. Holds the lock."""
        self.unsettled_bytes -= sum(batch.bytes for batch in self._pending if batch.epoch <= upper)
        self._pending = [batch for batch in self._pending if batch.epoch > upper]

    def _drop_pending(self) -> None:
        """Nothing more will become durable. Holds the lock."""
        self._pending, self.unsettled_bytes = [], 0
        for channel in self.channels.values():
            channel.forget_gathered()

    def _finish_rotation(self, request: RotationRequest) -> None:
        try:
            self.epoch_log.rotate(self.rotated_name(epoch_file.NAME, request.boundary))
        except StorageError as error:
            self._fail_rotation(request, error)
            if isinstance(error, LogFailed):
                self.fail(error)
            return
        with self.lock:
            if request not in self._rotations.begun:  # given up by close
                return
            self._rotations.begun.remove(request)
            # A later request may have had some files renamed already.
            files = tuple(name for name in self.rotated if (catalogs.rotated_epoch(name) or 0) <= request.boundary)
            for later in self._rotations.begun:
                later.known |= frozenset(files)
        new = tuple(name for name in files if name not in request.known)
        request.answer(Rotated(request.boundary, files, new))

    def _fail_rotation(self, request: RotationRequest, error: LaminaError) -> None:
        let_go_of_frames(error)
        with self.lock:
            if request in self._rotations.begun:
                self._rotations.begun.remove(request)
        request.fail(error)

    def rotated_name(self, stream: str, boundary: int) -> str:
        """A name that no file has: milliseconds that rise, also when the clock does not."""
        with self._names:
            self._last_ms = max(self.clock.now_ns() // 1_000_000, self._last_ms + 1)
            return f"{stream}.{self._last_ms:014d}.{boundary}"

    def was_rotated(self, name: str) -> None:
        """A channel renamed its file."""
        with self.lock:
            self.rotated.append(name)

    def fail(self, error: LaminaError) -> None:
        """From now on every write is refused."""
        let_go_of_frames(error)
        with self.lock:
            self.failure = self.failure or error
            self._drop_pending()
            waiting = self._rotations.stop()
        for request in waiting:
            request.fail(error)
        self.waiters.fail(error)

    # -- memory ------------------------------------------------------------------------------------------------------

    def log_names(self) -> list[str]:
        """Files of channels, rotated and active."""
        active = [channel.name for channel in list(self.channels.values()) if channel.has_file]
        return [name for name in self.rotated if name.startswith("pwal_")] + active

    def is_untouched(self) -> bool:
        """Nothing was written, or is about to be, that is not in the parts."""
        with self.lock:
            merged = frozenset(self.catalog.merged)
            if self._counter.is_waiting() or self._counter.open_sessions():
                return False
        return all(name in merged for name in self.log_names())

    def logged_bytes(self) -> int:
        """Bytes of files of channels that no compaction has taken. Raises: DiskError."""
        merged = frozenset(self.catalog.merged)
        names = [name for name in self.log_names() if name not in merged]
        return sum(cleaning.size_of(self.files, self.folder, name) or 0 for name in names)

    def _spill_if_large(self) -> None:
        """Entries that take too much memory go to a sorted file, which a restart has no need of."""
        tables = self.view.tables()
        left = sum(table.bytes for table in tables)
        if left < self.options.memory_bytes or self.clock.monotonic() < self._spill_at:
            return
        if self.reserve is not None and not self.reserve.fits(left):
            self._spill_at = self.clock.monotonic() + _SPILL_AGAIN_S
            return
        with self.view.lock:
            self.view.seal()
        for table in sorted(tables, key=lambda table: table.bytes, reverse=True):
            if left >= self.options.memory_bytes // 2 and len(table):
                if not self._spill(table):
                    self._spill_at = self.clock.monotonic() + _SPILL_AGAIN_S
                    return
                left -= table.bytes

    def _spill(self, table: Table) -> bool:
        self._run_number += 1
        name = f"{inputs.RUN}s{self._run_number}"
        self.runs.append(name)  # before it is there: a clean-up leaves it alone
        try:
            run = inputs.spill(self.files, self.folder, name, table)
        except StorageError as error:
            self.runs.remove(name)
            logger.warning("entries stay in memory: %s", error)
            return False
        if not self.view.swap(table, run):  # made one with another table meanwhile
            self.forget_run(run)
        return True

    def forget_run(self, run: SortedFile) -> None:
        """Nobody reads it but those who do already."""
        if run.name in self.runs:
            inputs.remove_quietly(self.files, join(self.folder, run.name))
            self.runs.remove(run.name)

    def _keep_last_epoch(self) -> None:
        """Epochs in which nobody wrote are recorded at the end: the last epoch never falls over a restart."""
        if self.failure is None and (self._owed or self._counter.informed > self._counter.recorded):
            epoch = self._counter.informed
            self._record(epoch, [epoch_file.durable(epoch, ())])

    def vouch_for_catalog(self, generation: int) -> None:
        """The catalog of this generation is on the disk for good: have the epoch file say so, so that an older one in
        its place is noticed. What the disk refuses now is said at the head of the next epoch file."""
        with self._disk:
            self._generation = max(self._generation, generation)
            if self.is_closed or self.failure is not None:
                return
            try:
                self._record(self._counter.recorded, ())
            except LogFailed as error:
                self.fail(error)
            except StorageError as error:
                logger.warning("the epoch file cannot name the catalog of generation %d yet: %s", generation, error)


def _add_range(ranges: list[tuple[int, int]], first: int, last: int) -> None:
    """Ranges that follow each other are one: a disk that is full for hours leaves one, not thousands."""
    if ranges and ranges[-1][1] + 1 == first:
        ranges[-1] = ranges[-1][0], last  # in one step: others look without our lock
    else:
        ranges.append((first, last))


def _half_done(files: Files, folder: str, catalog: Catalog) -> int:
    """The epoch of a compaction that was cut short and will be gone on with: it may have forgotten removes up to it."""
    found = compaction_progress.unfinished(files, folder)
    return found.epoch if found is not None and found.generation == catalog.generation + 1 else 0
