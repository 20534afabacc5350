"""The end of the log, where it grows: the active segment, watermarks before batches, rotation, syncing.

Threads: none of this is locked; whoever runs a round holds the log's commit lock.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Final, NamedTuple

from lamina.clock import Clock
from lamina.errors import Corruption, LogFailed, StorageError, WrongFormat, from_os
from lamina.log import index as indexes
from lamina.log import kernel, manifest
from lamina.log.commit import FolderSyncs
from lamina.log.files import Files, join
from lamina.log.formats import Format
from lamina.log.index import State
from lamina.log.measured import Measured
from lamina.log.naming import Family, FileName, parse, sort_out
from lamina.log.options import LogOptions
from lamina.log.recovery import Recovered
from lamina.log.segment import ActiveSegment, AppendFailed
from lamina.log.sync import Level
from lamina.log.teardown import Teardown

_KEPT_PER_SEGMENT: Final = 8  # how often the index of a growing file is kept: a kill leaves an eighth to scan
_MOST_AT_ONCE: Final = 1 << 20  # bytes that a loop writes


class Call(NamedTuple):
    """One append, waiting to be written: where its framed records are in the gather buffer, and their positions."""

    first: int
    last: int
    start: int
    end: int
    points: list[tuple[int, int]]
    """(number, offset in the buffer) of records that the sparse index should know."""
    sync_within: float | None
    """Seconds after the write by which it has to be synced; 0: before it is answered; None: whenever."""


@dataclass(slots=True, eq=False)
class LogStats:
    """What a log did since it was opened."""

    calls: int = 0
    records: int = 0
    bytes: int = 0
    writes: int = 0
    syncs: int = 0
    rotations: int = 0
    failed_rotations: int = 0
    """Times a full file went on growing because no new one could be made."""
    measured: Measured = field(default_factory=Measured)
    """What writing costs; several logs may share it."""

    def measure_with(self, measured: Measured) -> None:
        """Have it measured together with other logs. For who has just opened the log, and writes nothing meanwhile."""
        self.measured.move_to(measured, self)
        self.measured = measured


class Tail:
    """Writes calls to the newest file of a folder and starts new files.

    ``written`` and ``synced`` are the times of the newest records that are so.
    """

    def __init__(
        self,
        folder: str,
        files: Files,
        clock: Clock,
        options: LogOptions,
        family: Family,
        format: Format,
        recovered: Recovered,
        names: FolderSyncs | None = None,
    ) -> None:
        """``names``: the folder is not there, and is made with the first file. Until that file is synced for the first
        time neither has a name that a power cut leaves; the syncs of the folder above are shared with others."""
        self.stats = LogStats()
        self._folder, self._files, self._clock = folder, files, clock
        self._options, self._family, self._format = options, family, format
        # Everything recovered was synced before it is served.
        self.written = self.synced = recovered.index.last_data
        self.sync_by: float | None = None
        """When the next sync is due, by the monotonic clock; None: nothing waits for one."""
        every = options.sync.interval_ms
        self._sync_interval_s = None if every is None else every / 1000
        self._shows_synced_only = options.sync.level is Level.SYNCED
        self._attested = self._index_kept = 0
        self._was_begun = False  # the active file was made before there was a record for it, and stays without one
        self._newest = self._sealed = recovered.newest
        self._has_manifest, self._manifest_limit = recovered.manifest_bytes > 0, 2 * recovered.manifest_bytes
        self._is_listed = False
        """The manifest says of the active file that it must be there."""
        self._next: FileName | None = None
        """What the next file is called, where that does not follow from the newest."""
        self._names = names
        self._is_nameless = False
        self._active = self._reopen(recovered)

    def _reopen(self, recovered: Recovered) -> ActiveSegment | None:
        """Go on in the newest file after an orderly stop; after any other, the next call starts a new one."""
        newest = recovered.newest
        if newest is None or not recovered.report.was_clean or recovered.index.state is State.SEALED:
            return None
        path = join(self._folder, newest.name)
        try:
            file = self._files.open(path, write=True)
        except OSError as error:
            raise from_os(error, "open the file for writing", path) from error
        if recovered.index.last > recovered.index.last_data:  # else it was closed without a mark
            self._attested = recovered.index.last_data
        self._index_kept = recovered.index.bytes
        return ActiveSegment(newest, file, recovered.index)

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self, data: memoryview, calls: Sequence[Call]) -> None:
        """Write calls in order. When it raises, those up to ``written`` are in the file and the others are not.

        Raises: DiskFull, DiskError; LogFailed if the end of the file is unknown.
        """
        done = 0
        while done < len(calls):
            segment = self._segment_for(calls[done])
            chosen = self._fitting(segment, calls, done)
            self._append(segment, data, chosen)
            done += len(chosen)

    def _fitting(self, segment: ActiveSegment, calls: Sequence[Call], start: int) -> Sequence[Call]:
        """Calls up to the one that fills the segment."""
        full = calls[start].start + self._options.segment_bytes - segment.index.bytes
        if start == 0 and calls[-1].end < full:
            return calls
        for end in range(start, len(calls)):
            if calls[end].end >= full:
                return calls[start : end + 1]
        return calls[start:]

    def _append(self, segment: ActiveSegment, data: memoryview, calls: Sequence[Call]) -> None:
        stamp = calls[0].first - 1
        mark = self._watermark_at(stamp, segment)
        began = perf_counter()
        try:
            records = data[calls[0].start : calls[-1].end]
            segment.append(mark, records) if mark else segment.append(records)
        except AppendFailed as failed:
            self._keep_whole_calls(segment, stamp, mark, calls, failed)
            raise from_os(failed.cause, "write to the file", segment.file.path) from failed
        self._note(segment, stamp, mark, calls, perf_counter() - began)

    def _keep_whole_calls(
        self, segment: ActiveSegment, stamp: int, mark: bytes, calls: Sequence[Call], failed: AppendFailed
    ) -> None:
        """Of a failed write, keep the calls that are whole in the file and cut off the rest."""
        room = failed.taken - len(mark)
        kept = [call for call in calls if call.end - calls[0].start <= room]
        if not kept and segment.is_empty and not self._was_begun:
            self._drop(segment)  # named for a record that it does not hold
            return
        end = len(mark) + kept[-1].end - calls[0].start if kept else 0
        if not segment.cut_back(segment.size + end):
            raise self._failed("cut back a failed write", failed.cause) from failed
        if kept:
            self._note(segment, stamp, mark, kept, 0.0)

    def _watermark_at(self, stamp: int, segment: ActiveSegment) -> bytes:
        """What to write before a call: a watermark when the synced position moved, and at the head of a file.

        At the head of a file it vouches for the whole file before, so that one which lost its end is noticed.
        """
        if not self.synced or (self.synced == self._attested and not segment.is_empty):
            return b""
        return kernel.encode_many(stamp, (self._format.watermark(self.synced),))

    def _note(self, segment: ActiveSegment, stamp: int, mark: bytes, calls: Sequence[Call], seconds: float) -> None:
        """Bring up to date what is known of the file and of the log. ``seconds``: that the write took."""
        index, stats = segment.index, self.stats
        if mark:
            index.note(stamp, index.bytes)
            index.records += 1
            self._attested = self.synced
        shift = index.bytes + len(mark) - calls[0].start
        records = 0
        due = self._sync_interval_s
        for call in calls:
            index.note(call.first, shift + call.start)
            for number, offset in call.points:
                index.note(call.first + number, shift + offset)
            records += call.last - call.first + 1
            if call.sync_within is not None and (due is None or call.sync_within < due):
                due = call.sync_within
        last = calls[-1].last
        index.grow(shift + calls[-1].end, records, last)
        index.state = State.GROWING
        self.written = index.last_data = last
        stats.calls += len(calls)
        stats.records += records
        size = calls[-1].end - calls[0].start
        stats.bytes += size
        stats.writes += 1
        now = self._clock.monotonic()
        stats.measured.wrote(stats, records, size, seconds, now)
        if due is not None:
            by = now + due
            self.sync_by = by if self.sync_by is None else min(by, self.sync_by)

    def _drop(self, segment: ActiveSegment) -> None:
        """Take away a file that holds no record."""
        self._active, self._newest = None, self._sealed
        segment.file.close()
        try:
            self._files.remove(segment.file.path)
        except OSError as error:
            raise self._failed("remove an empty file", error) from error

    # -- files ---------------------------------------------------------------------------------------------------

    def _segment_for(self, call: Call) -> ActiveSegment:
        """The active segment, or a new one if there is none or it is full."""
        segment = self._active
        if segment is not None and (segment.index.bytes < self._options.segment_bytes or segment.is_empty):
            return segment
        if segment is not None:
            # Synced before the next one is used: a power cut leaves a prefix of the log, never a hole.
            self.sync()
        try:
            created = self._create(call)
        except OSError as error:
            if segment is None:
                raise from_os(error, "start a new file in", self._folder) from error
            self.stats.failed_rotations += 1
            return segment  # no room or no handle for a new file: the current one goes on
        self._active, self._was_begun = created, False
        if segment is not None:
            self._close_sealed(segment)
        return created

    def has_room(self, size: int) -> bool:
        """So many bytes more need no new file, and are not many."""
        segment, limit = self._active, self._options.segment_age_s
        if segment is None or size > _MOST_AT_ONCE or segment.index.bytes + size >= self._options.segment_bytes:
            return False
        return limit is None or (self.age_s() or 0) < limit

    @property
    def is_to_be_listed(self) -> bool:
        """The next sync is the first of its file, so the manifest is written, too: no work for a loop."""
        return self._has_manifest and not self._is_listed

    def _create(self, call: Call) -> ActiveSegment:
        first_record = call.first - 1 if self.synced else call.first
        name = self._next_name(first_record)
        if self._names is None or self._newest is not None:
            return self._name_in_folder(self._make(name))
        self._files.make_folder_unsynced(self._folder)
        segment = self._make(name)
        self._is_nameless, self._newest, self._next, self._index_kept = True, segment.name, None, segment.size
        return segment

    def _next_name(self, first_record: int) -> FileName:
        if self._next is not None:
            return self._next
        name = parse(self._family.next_name(self._newest, first_record))
        assert name is not None
        return name

    @property
    def is_new(self) -> bool:
        """There is no file yet, or none that a power cut leaves."""
        return self._names is not None and (self._newest is None or self._is_nameless)

    def _make(self, name: FileName) -> ActiveSegment:
        return ActiveSegment.create(self._files, self._folder, name, self._format)

    def _name_in_folder(self, segment: ActiveSegment) -> ActiveSegment:
        """Make the name of a new file safe. Raises: OSError, then it is gone again; LogFailed."""
        try:
            self._files.sync_folder(self._folder)
        except BaseException as error:
            segment.file.close()
            if isinstance(error, OSError):
                if error.errno not in (errno.EMFILE, errno.ENFILE):
                    raise self._failed("sync the folder", error) from error
                self._files.remove(segment.file.path)  # nothing was synced yet, only the folder could not be opened
            raise
        self._newest, self._next = segment.name, None
        self._index_kept = segment.size
        return segment

    def begin_later(self, name: FileName) -> None:
        """The first record makes the file ``name``, or ``begin`` does: there is no room for it now."""
        self._next = name

    def begin(self, name: FileName | None = None) -> str | None:
        """Make a new file now, ``name`` or the next one, safe on the disk; what was the active one is sealed.

        Returns the name of the sealed one, if there was one. At the head of the new file stands how far the log had
        come (Format.reaches), so that it says so also while nothing else is in it.
        Raises: DiskFull, DiskError: then the active file goes on; LogFailed.
        """
        before = self._active
        self.sync()
        try:
            segment = self._make(self._next_name(self.synced) if name is None else name)
            with Teardown(segment.file.path) as teardown:
                teardown.later(lambda: self._files.remove(segment.file.path))
                teardown.later(segment.file.close)
                self._write_head(segment)
                teardown.cancel()
            self._name_in_folder(segment)
        except OSError as error:
            raise from_os(error, "start a new file in", self._folder) from error
        self._active, self._was_begun = segment, True
        if before is None:
            return None
        self._close_sealed(before)
        return before.name.name

    def _write_head(self, segment: ActiveSegment) -> None:
        """Raises: OSError."""
        if self.synced:
            mark = kernel.encode_many(self.synced, (self._format.watermark(self.synced),))
            try:
                segment.append(mark)
            except AppendFailed as failed:
                raise failed.cause from failed
            segment.index.note(self.synced, segment.size)
            segment.index.grow(segment.size + len(mark), 1, self.synced)
            segment.index.last_data = self.synced
        segment.sync()
        self._attested = self.synced

    def seal(self) -> str | None:
        """Close the active segment, the next call starts a new one. Returns its name, None if it held nothing."""
        segment = self._active
        if segment is None or segment.is_empty:
            return None
        self.sync()
        self._active = None
        self._close_sealed(segment)
        return segment.name.name

    def _close_sealed(self, segment: ActiveSegment) -> None:
        self.stats.rotations += 1
        self._sealed = segment.name
        segment.index.state = State.SEALED
        with Teardown(segment.file.path) as teardown:
            teardown.later(segment.file.close)
            indexes.save(self._files, self._folder, segment.name.name, segment.index)
            if self._family.name in manifest.KEPT_FOR:
                self._list_sealed(segment)

    def _list_sealed(self, segment: ActiveSegment) -> None:
        """Have the manifest say what is in a file that was finished; the second file of a log begins it."""
        files, folder = self._files, self._folder
        self._is_listed = False
        size = self._list(segment, sync=True) if self._has_manifest else 0
        active = None if self._active is None else self._active.name
        try:
            if not size:
                names = sort_out(files.list(folder)).segments
                size = manifest.rebuild(files, folder, [name for name in names if name != active])
            size, self._manifest_limit = manifest.shorten(files, folder, size, self._manifest_limit)
        except OSError as error:
            raise self._failed("list the folder", error) from error
        except StorageError as error:
            raise self._failed("keep the manifest", error) from error
        self._has_manifest = size > 0

    def _list_closed(self, segment: ActiveSegment | None) -> None:
        """Have the manifest say that nobody writes any more: then it knows if somebody did who does not know of it."""
        if not self._has_manifest:
            return
        if segment is not None and not segment.is_empty:
            self._list(segment, sync=False)
        elif self._sealed is not None:
            try:
                facts = manifest.facts_of(self._files, self._folder, self._sealed.name)
                if facts is not None:
                    manifest.note(self._files, self._folder, are=[facts._replace(state=State.CLEAN)], sync=False)
            except (FileNotFoundError, Corruption, WrongFormat):
                return  # cleaned away, or damaged: who reads it says so

    def _list(self, segment: ActiveSegment, *, sync: bool) -> int:
        """Have the manifest say what there is of a file. Returns its size. Raises: LogFailed."""
        try:
            facts = manifest.Facts.of(segment.file, segment.name.name, self._format, segment.index)
            size = manifest.note(self._files, self._folder, are=[facts], sync=sync)
        except StorageError as error:
            raise self._failed("keep the manifest", error) from error
        self._has_manifest = size > 0
        return size

    def age_s(self) -> float | None:
        """Seconds since the first record of the active segment."""
        segment = self._active
        if segment is None or segment.is_empty:
            return None
        return (self._clock.now_ns() - segment.index.first) / 1e9

    def readable(self) -> tuple[FileName, int | None] | None:
        """The newest file that readers may see, and how much of it has the policy's level (None: all)."""
        segment = self._active
        if segment is None:
            return None if self._sealed is None else (self._sealed, None)
        return segment.name, segment.synced_bytes if self._shows_synced_only else segment.size

    # -- syncing -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Raises: LogFailed, and must not be called again: the pages that failed may be gone from memory too."""
        segment = self._active
        if segment is not None and (segment.synced_bytes < segment.size or segment.was_cut):
            began = perf_counter()
            try:
                segment.sync()
                if self._is_nameless and self._names is not None:
                    self._names.sync_new(self._files, self._folder)
                    self._is_nameless = False
            except OSError as error:
                raise self._failed("sync the file", error) from error
            self.stats.syncs += 1
            self.stats.measured.synced(self.stats, perf_counter() - began, self._clock.monotonic())
            self._keep_index(segment)
            if self.is_to_be_listed:
                self._is_listed = True
                self._list(segment, sync=False)
        self.sync_by = None
        self.synced = self.written

    def _keep_index(self, segment: ActiveSegment) -> None:
        """Now and then keep the index of what is synced, so that opening after a kill need not scan that again."""
        if segment.size - self._index_kept >= self._options.segment_bytes // _KEPT_PER_SEGMENT:
            indexes.save(self._files, self._folder, segment.name.name, segment.index)
            self._index_kept = segment.size

    def sync_is_due(self, asked: int) -> bool:
        """Somebody asked for a sync up to that position, or the clock says so."""
        if self.written == self.synced:
            return False
        return asked > self.synced or (self.sync_by is not None and self.sync_by <= self._clock.monotonic())

    def seconds_to_next(self) -> float | None:
        """How long nothing will be due by the clock, None for ever."""
        by, limit = self.sync_by, self._options.segment_age_s
        wait = None if by is None else by - self._clock.monotonic()
        if limit is not None and (age := self.age_s()) is not None:
            left = max(limit - age, 0.01)
            wait = left if wait is None else min(wait, left)
        return wait

    def close_in_order(self, last_stamp: int, *, with_mark: bool = True) -> None:
        """Sync everything and leave a watermark behind it. Raises: LogFailed, DiskFull, DiskError.

        Without the mark only the index says that the log was closed in order: that costs no sync beyond those of the
        records. If a power cut takes the index, the log goes on in a new file, as after a kill.
        """
        segment = self._active
        if segment is None or segment.is_empty or segment.index.state is State.CLEAN:
            self._list_closed(segment)
            return
        self.sync()
        if not with_mark:
            segment.index.state = State.CLEAN
            indexes.save(self._files, self._folder, segment.name.name, segment.index)
            if self._has_manifest:
                self._list(segment, sync=False)
            return
        stamp = max(self._clock.now_ns(), last_stamp + 1)
        mark = kernel.encode_many(stamp, (self._format.watermark(self.synced),))
        try:
            segment.append(mark)
            segment.index.grow(segment.size + len(mark), 1, stamp)
            segment.sync()
        except AppendFailed as failed:
            segment.cut_back(segment.size)
            raise from_os(failed.cause, "close the log in", self._folder) from failed
        except OSError as error:
            raise self._failed("sync the file", error) from error
        segment.index.state = State.CLEAN
        indexes.save(self._files, self._folder, segment.name.name, segment.index, sync=True)
        if self._has_manifest:
            self._list(segment, sync=True)

    def abandon(self) -> None:
        """Let the file go as it is."""
        segment, self._active = self._active, None
        with Teardown(self._folder) as teardown:
            teardown.step(lambda: self.stats.measured.forget(self.stats))
            if segment is not None:
                teardown.step(segment.file.close)

    def _failed(self, action: str, cause: OSError | StorageError) -> LogFailed:
        place = self._active.file.path if self._active else self._folder
        return LogFailed(
            f"{place}: cannot {action}: {getattr(cause, 'strerror', None) or cause}",
            hint="the log refuses writes; check the disk, then close and reopen it",
            path=place,
            action=action,
        )
