"""A channel: one writer with one file at a time, and the sessions it writes.

A session is made in memory, and is gathered there when it ends: nobody who writes touches a file. Whoever makes its
epoch durable gives it to the log, as one call. So one that is given up, or too large, leaves nothing, and what a crash
leaves of it belongs to an epoch that is not durable.

When the files are rotated a channel is *marked* with the boundary, the last epoch that belongs into the rotated file.
The file is closed and renamed (turned) as soon as no session of such an epoch is open, in any case before a later one
is written. A rotated file is closed and never changes again.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Final

from lamina.engines.logged import check_room
from lamina.engines.store import codec
from lamina.engines.store.entries import Entries
from lamina.errors import DiskFull, StorageError, from_os
from lamina.log import index
from lamina.log.files import join
from lamina.log.formats import PWAL as FORMAT
from lamina.log.naming import PWAL, parse
from lamina.log.options import LogOptions
from lamina.log.packed import Packed
from lamina.log.positions import Position
from lamina.log.sync import OS, Level
from lamina.log.teardown import Teardown
from lamina.log.writer import Log
from lamina.units import KIB, MIB

if TYPE_CHECKING:
    from lamina.engines.store.engine import StoreEngine

OPTIONS: Final = LogOptions(sync=OS, segment_bytes=1 << 62, gather_bytes=1 << 20)
# Synced when the epoch is over, by whoever ends it; rotated by requests, not by size.
MOST_GATHERED: Final = MIB
"""Bytes that one who writes in a thread leaves for others to write: with more it does so itself, at the disk's pace."""
_FULL: Final = 256 * KIB  # of many sessions that go together: framing them holds up other threads


class NoLock:
    """The folder's lock is the store's; its logs have none of their own."""

    def release(self) -> None:
        """Nothing to let go."""


class Batch:
    """Sessions of one epoch that are written together, and become durable or void with it. Threads: the store's lock
    while it gathers, then one at a time."""

    __slots__ = ("channel", "epoch", "error", "log", "packed", "position")

    def __init__(self, channel: Channel, epoch: int, packed: Packed) -> None:
        self.channel, self.epoch, self.packed = channel, epoch, packed
        self.log: Log | None = None
        """That which has it; None: it is not written yet, or (``error``) never will be."""
        self.position = Position(0)
        """Of its last record."""
        self.error: StorageError | None = None

    @property
    def bytes(self) -> int:
        return len(self.packed.data)

    @property
    def first_ns(self) -> int:
        """Time of its first record."""
        return self.position - self.packed.length + 1

    def sync(self) -> None:
        """Return when it is on the disk. Raises: what kept it from being so."""
        if self.log is None:
            raise self.error or AssertionError("it was not written")
        self.log.wait(self.position, Level.SYNCED)


class Channel:
    """Threads: one session at a time; everything else is safe from any thread."""

    def __init__(self, store: StoreEngine, number: int, last_ns: int) -> None:
        """Use ``store.channel``."""
        self.number = number
        self.name = f"pwal_{number:04d}"
        self._store = store
        self._lock = threading.Lock()  # guards the file; taken before nothing else
        self._log: Log | None = None
        self._last_ns = last_ns
        self.newest_ns = last_ns
        """Time of the newest record in its rotated files."""
        self.has_file = False
        self._is_sealed = False  # the log holds no file any more
        self._is_unsynced = False  # the last file was renamed, and the folder not synced since
        self._marks: list[int] = []
        self._repeated_ns = 0  # how far the epoch file had come, by what the active file says
        self._voids_repeated = 0  # void ranges that the active file says
        self.session: Session | None = None
        """The one that is open. The store's lock guards it."""
        self._gathered: list[Batch] = []  # what is to be written, in order; the store's lock guards it
        self.gathered_bytes = 0
        """Of sessions that are not written yet. The store's lock guards it."""

    def begin(self) -> Session:
        """Begin a session in the present epoch. Raises: BadEntry if one is open; LogClosed, StorageError."""
        return self._store.begin(self)

    @property
    def log(self) -> Log | None:
        """That of the active file, if there is one."""
        return self._log

    # -- the file ----------------------------------------------------------------------------------------------------

    def mark(self, boundary: int) -> None:
        """What is later than ``boundary`` goes to another file. Needs no lock: no such session has begun."""
        self._marks.append(boundary)

    def gather(self, epoch: int, packed: Packed) -> Batch | None:
        """Keep a session until it is written; small ones of an epoch go together. The caller holds the store's lock.

        Returns the batch if it is a new one.
        """
        size = len(packed.data)
        self.gathered_bytes += size
        last = self._gathered[-1] if self._gathered else None
        if last is not None and last.epoch == epoch and last.bytes + size <= _FULL:
            last.packed.data += packed.data
            last.packed.length += packed.length
            return None
        batch = Batch(self, epoch, packed)
        self._gathered.append(batch)
        return batch

    def forget_gathered(self) -> None:
        """None of it will ever be written. The caller holds the store's lock."""
        self._gathered, self.gathered_bytes = [], 0

    def write(self, until: int) -> None:
        """Give the log what gathered of epochs up to ``until``. What the disk refuses is told by ``Batch.sync``."""
        with self._lock:
            self._write(until)

    def _write(self, until: int) -> None:
        with self._store.lock:
            count = sum(batch.epoch <= until for batch in self._gathered)
            batches, self._gathered = self._gathered[:count], self._gathered[count:]
            self.gathered_bytes -= sum(batch.bytes for batch in batches)
        try:
            for batch in batches:
                try:
                    self._append(batch)
                except StorageError as error:
                    batch.error = error
        finally:
            for batch in batches:  # interrupted, or no memory: who waits for it must not wait for ever
                if batch.log is None and batch.error is None:
                    batch.error = StorageError(f"{self.name}: writing was interrupted", hint="write it again")

    def _append(self, batch: Batch) -> None:
        """Raises: DiskFull, DiskError, LogFailed, LogClosed; then it is not in the log."""
        if not self._store.epoch_log.has_begun:  # sessions without one would look like a store that lost it
            raise DiskFull(
                f"{self.name}: there is no room for an epoch file yet", hint="make room; it goes on by itself"
            )
        if self._marks and batch.epoch > self._marks[0]:
            self._turn(batch.epoch - 1)
        if self._log is None:
            self._sync_name()
            self._log = self._start()
            self._repeated_ns = self._voids_repeated = 0
            self.has_file = True
        self._repeat_epochs(self._log)  # goes with the batch, as one write
        batch.position = self._log.append_many(batch.packed)
        batch.log = self._log

    def _repeat_epochs(self, log: Log) -> None:
        """Note how far the epoch file has come, if that moved: without it that one could lose its end in silence."""
        store, reached = self._store, self._store.epoch_log.reached
        if reached.time_ns == self._repeated_ns:
            return
        voids = store.voids[self._voids_repeated :]
        compacted = store.catalog.epoch
        log.append(codec.reached(reached.epoch, reached.time_ns, [each for each in voids if each[1] > compacted]))
        self._repeated_ns = reached.time_ns
        self._voids_repeated = max(self._voids_repeated + len(voids) - 1, 0)  # the last range may grow

    def turn(self, boundary: int) -> None:
        """Close the file and rename it, if it is marked with ``boundary`` or an earlier one. No session of such an
        epoch is open. Raises: StorageError; try again."""
        with self._lock:
            if self._marks and self._marks[0] <= boundary:
                self._write(boundary)
                self._turn(boundary)

    def _turn(self, boundary: int) -> None:
        """Serves all marks up to ``boundary``: of epochs between them nothing was written."""
        log, files, folder = self._log, self._store.files, self._store.folder
        if not self.has_file:
            self._sync_name()
            self._forget_marks(boundary)
            return
        if log is not None:
            if log.rotate() is None and not self._is_sealed:
                # It holds nothing, and was not synced for that: it stays the one that is written to.
                self._forget_marks(boundary)
                return
            self._is_sealed = True
            log.close()
            self._last_ns = self.newest_ns = log.synced  # what was refused is not in it
            self._log, self._is_sealed = None, False
        name = self._store.rotated_name(self.name, self._marks[0])
        try:
            files.rename(join(folder, self.name), join(folder, name))
            self.has_file = False
            self._is_unsynced = True
            self._forget_marks(boundary)
            self._store.was_rotated(name)
        except OSError as error:
            raise from_os(error, "rotate the file", join(folder, self.name)) from error
        self._sync_name()
        index.move(files, folder, self.name, name)

    def _sync_name(self) -> None:
        """Before there is another file of that name: a power cut could leave the new one alone."""
        if self._is_unsynced:
            try:
                self._store.files.sync_folder(self._store.folder)
            except OSError as error:
                raise from_os(error, "rotate the file", join(self._store.folder, self.name)) from error
            self._is_unsynced = False

    def _forget_marks(self, boundary: int) -> None:
        # One by one, in place: the store may be adding one.
        while self._marks and self._marks[0] <= boundary:
            del self._marks[0]

    def _start(self) -> Log:
        name = parse(self.name)
        assert name is not None
        store = self._store
        log = Log.start(
            store.folder,
            name,
            last=self._last_ns,
            held=NoLock(),
            options=OPTIONS,
            family=PWAL,
            format=FORMAT,
            files=store.files,
            clock=store.clock,
            threaded=False,
        )
        log.stats.measure_with(store.measured)
        return log

    def close(self) -> None:
        """Nothing is written any more, and what the epoch file says at the end is repeated: then it cannot lose any of
        that unnoticed. Raises: StorageError; the file is let go all the same."""
        with self._lock, Teardown(self.name) as teardown:
            log, self._log = self._log, None
            if log is not None:
                if log.failure is None and log.stats.records and not self._is_sealed:
                    teardown.step(partial(self._repeat_epochs, log))
                teardown.step(log.close)


class Session(Entries):
    """Entries that become durable together. A context manager: ends it, or gives it up if an exception comes through.

    Until it ends neither its epoch nor a later one becomes durable.
    """

    def __init__(self, store: StoreEngine, channel: Channel, epoch: int) -> None:
        """Use ``channel.begin``."""
        super().__init__(store, epoch)
        self._channel = channel

    def _next_versions(self, count: int) -> tuple[int, int]:
        return self._store.versions.take(self.epoch, count)

    def _check_version(self, version: tuple[int, int]) -> None:
        self._store.check_version(version, self.epoch)
        self._store.versions.note(*version)

    def adopt(self, packed: Packed, size: int, *, grows: bool) -> None:
        """Take over entries that were packed elsewhere, the mark of its begin included."""
        self._packed, self.size, self.grows = packed, size, grows

    def end(self) -> int:
        """It is whole. Returns its epoch: wait for that to be durable (``store.wait_durable``), or to be told that the
        disk refused it. Ending twice: nothing. It may write what has gathered, at the disk's pace (``needs_disk``).

        Raises: LogClosed, LogFailed; DiskFull if it has anything to keep. Nothing of it will ever count then.
        """
        if self._is_open:
            entries = self._packed.length - 1
            if entries and self.grows:
                try:
                    check_room(self._store.reserve, self.size)
                except BaseException:
                    self.abort()
                    raise
            self._is_open = False
            self._packed.append(codec.end(self.epoch, entries))
            self._store.end(self._channel, self, self._packed if entries else None)
        return self.epoch

    def abort(self) -> None:
        """Give it up: nothing of it will be there."""
        if self._is_open:
            self._is_open = False
            self._store.end(self._channel, self, None)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: type[BaseException] | None, *problem: object) -> None:
        if kind is None:
            self.end()
        else:
            self.abort()
