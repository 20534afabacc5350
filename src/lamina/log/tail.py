"""The end of the log, where it grows: the active segment, watermarks before batches, rotation, syncing.

Threads: none of this is locked; whoever runs a round holds the log's commit lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from lamina.clock import Clock
from lamina.errors import LogFailed, from_os
from lamina.log import index as indexes
from lamina.log import kernel
from lamina.log.files import Files, join
from lamina.log.formats import Format
from lamina.log.naming import Family, parse
from lamina.log.options import LogOptions
from lamina.log.recovery import Recovered
from lamina.log.segment import ActiveSegment, AppendFailed
from lamina.log.sync import Level


class Call(NamedTuple):
    """One append, waiting to be written: its records, framed, and their first and last position."""

    first: int
    last: int
    data: bytes
    wants_sync: bool


@dataclass(slots=True)
class LogStats:
    """What a log did since it was opened."""

    calls: int = 0
    records: int = 0
    bytes: int = 0
    writes: int = 0
    syncs: int = 0
    rotations: int = 0


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
    ) -> None:
        self.stats = LogStats()
        self._folder, self._files, self._clock = folder, files, clock
        self._options, self._family, self._format = options, family, format
        # Everything recovered was synced before it is served.
        self.written = self.synced = recovered.index.last_data
        self.unsynced_since: float | None = None
        """When the oldest unsynced byte was written, by the monotonic clock."""
        self._attested = 0
        self._newest = self._before_newest = recovered.newest
        self._active = self._reopen(recovered)

    def _reopen(self, recovered: Recovered) -> ActiveSegment | None:
        """Go on in the newest file after an orderly stop; after any other, the next call starts a new one."""
        newest = recovered.newest
        if newest is None or not recovered.report.was_clean:
            return None
        path = join(self._folder, newest.name)
        try:
            file = self._files.open(path, write=True)
        except OSError as error:
            raise from_os(error, "open the file for writing", path) from error
        self._attested = recovered.index.last_data
        return ActiveSegment(newest, file, recovered.index)

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self, calls: Sequence[Call]) -> None:
        """Write calls in order. When it raises, those up to ``written`` are in the file and the others are not.

        Raises: DiskFull, DiskError; LogFailed if the end of the file is unknown.
        """
        done = 0
        while done < len(calls):
            segment = self._segment_for(calls[done])
            chosen = self._fitting(segment, calls, done)
            self._append(segment, chosen)
            done += len(chosen)

    def _fitting(self, segment: ActiveSegment, calls: Sequence[Call], start: int) -> Sequence[Call]:
        """Calls up to the one that fills the segment."""
        room = self._options.segment_bytes - segment.size
        for end in range(start, len(calls)):
            room -= len(calls[end].data)
            if room <= 0:
                return calls[start : end + 1]
        return calls[start:]

    def _append(self, segment: ActiveSegment, calls: Sequence[Call]) -> None:
        stamp = calls[0].first - 1
        mark = self._watermark_at(stamp, segment)
        try:
            segment.append([*mark, *(call.data for call in calls)])
        except AppendFailed as failed:
            self._note(segment, stamp, mark[: failed.kept], calls[: max(failed.kept - len(mark), 0)])
            if not failed.is_cut:
                raise self._failed("cut back a failed write", failed.cause) from failed
            self._drop_if_empty(segment)
            raise from_os(failed.cause, "write to the file", segment.file.path) from failed
        self._note(segment, stamp, mark, calls)

    def _watermark_at(self, stamp: int, segment: ActiveSegment) -> list[bytes]:
        """What to write before a call: a watermark when the synced position moved, and at the head of a file.

        At the head of a file it vouches for the whole file before, so that one which lost its end is noticed.
        """
        if not self.synced or (self.synced == self._attested and not segment.is_empty):
            return []
        return [kernel.encode_many(stamp, (self._format.watermark(self.synced),))]

    def _note(self, segment: ActiveSegment, stamp: int, mark: list[bytes], calls: Sequence[Call]) -> None:
        end = segment.size
        if mark:
            end += len(mark[0])
            segment.index.note(stamp, stamp, end, 1)
            self._attested = self.synced
        for call in calls:
            end += len(call.data)
            segment.index.note(call.first, call.last, end, call.last - call.first + 1)
            self.stats.records += call.last - call.first + 1
            self.stats.bytes += len(call.data)
        if calls:
            self.written = segment.index.last_data = calls[-1].last
        segment.index.is_clean = False
        self.stats.calls += len(calls)
        self.stats.writes += 1
        if self.unsynced_since is None:
            self.unsynced_since = self._clock.monotonic()

    def _drop_if_empty(self, segment: ActiveSegment) -> None:
        """A file without a record is not left behind: it is named for a record that it does not hold."""
        if not segment.is_empty:
            return
        segment.file.close()
        self._active, self._newest = None, self._before_newest
        try:
            self._files.remove(segment.file.path)
        except OSError as error:
            raise self._failed("remove an empty file", error) from error

    # -- files ---------------------------------------------------------------------------------------------------

    def _segment_for(self, call: Call) -> ActiveSegment:
        """The active segment, or a new one if there is none or it is full."""
        segment = self._active
        if segment is not None and (segment.is_empty or segment.size < self._options.segment_bytes):
            return segment
        if segment is not None:
            # Synced before the next one is used: a power cut leaves a prefix of the log, never a hole.
            self.sync()
        try:
            self._active = self._create(call)
        except OSError as error:
            if segment is None:
                raise from_os(error, "start a new file in", self._folder) from error
            return segment  # no room or no handle for a new file: the current one goes on
        if segment is not None:
            self._close_sealed(segment)
        return self._active

    def _create(self, call: Call) -> ActiveSegment:
        first_record = call.first - 1 if self.synced else call.first
        name = parse(self._family.next_name(self._newest, first_record))
        assert name is not None
        segment = ActiveSegment.create(self._files, self._folder, name, self._format)
        try:
            self._files.sync_folder(self._folder)
        except OSError as error:
            segment.file.close()
            raise self._failed("sync the folder", error) from error
        self._before_newest, self._newest = self._newest, name
        return segment

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
        segment.file.close()
        indexes.save(self._files, self._folder, segment.name.name, segment.index)

    def age_s(self) -> float | None:
        """Seconds since the first record of the active segment."""
        segment = self._active
        if segment is None or segment.is_empty:
            return None
        return (self._clock.now_ns() - segment.index.first) / 1e9

    def readable(self) -> tuple[str, int] | None:
        """The active file and how much of it readers may see: as much as holds the policy's level."""
        segment = self._active
        if segment is None:
            return None
        is_synced = self._options.sync.level is Level.SYNCED
        return segment.name.name, segment.synced_bytes if is_synced else segment.size

    # -- syncing -------------------------------------------------------------------------------------------------

    def sync(self) -> None:
        """Raises: LogFailed, and must not be called again: the pages that failed may be gone from memory too."""
        segment = self._active
        if segment is not None and segment.synced_bytes < segment.size:
            try:
                segment.sync()
            except OSError as error:
                raise self._failed("sync the file", error) from error
            self.stats.syncs += 1
        self.unsynced_since = None
        self.synced = self.written

    def close_in_order(self, last_stamp: int) -> None:
        """Sync everything and leave a watermark behind it. Raises: LogFailed, DiskFull, DiskError."""
        segment = self._active
        if segment is None:
            return
        try:
            if not segment.is_empty and not segment.index.is_clean:
                self.sync()
                self._write_closing_mark(segment, max(self._clock.now_ns(), last_stamp + 1))
        finally:
            self.abandon()

    def _write_closing_mark(self, segment: ActiveSegment, stamp: int) -> None:
        mark = kernel.encode_many(stamp, (self._format.watermark(self.synced),))
        try:
            segment.append([mark])
            segment.index.note(stamp, stamp, segment.size + len(mark), 1)
            segment.sync()
        except AppendFailed as failed:
            raise from_os(failed.cause, "close the log in", self._folder) from failed
        except OSError as error:
            raise self._failed("sync the file", error) from error
        segment.index.is_clean = True
        indexes.save(self._files, self._folder, segment.name.name, segment.index, sync=True)

    def abandon(self) -> None:
        """Let the file go as it is."""
        if self._active is not None:
            self._active.file.close()
            self._active = None

    def _failed(self, action: str, cause: OSError) -> LogFailed:
        place = self._active.file.path if self._active else self._folder
        return LogFailed(
            f"{place}: cannot {action}: {cause.strerror or cause}",
            hint="the log refuses writes; check the disk, then close and reopen it",
            path=place,
            action=action,
        )
