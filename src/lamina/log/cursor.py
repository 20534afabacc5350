"""Cursor: a place in a log that moves forward, across rotations and through rewrites, and along the live end."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from lamina.errors import Gap, from_os
from lamina.log import frame
from lamina.log import index as indexes
from lamina.log.files import file_size
from lamina.log.formats import Format
from lamina.log.frame import Stop
from lamina.log.index import Index, newest_data
from lamina.log.naming import FileName
from lamina.log.reader import Reader, Record, Segment, attested_at_head
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_record

SAFETY_POLL_S: Final = 0.5  # a reader beside another process's writer looks this often even if no change was told


class Cursor:
    """Iterating gives records up to the present end of the log; ``follow`` goes on waiting for more.

    ``position`` is the time of the last record given: hand it to ``Reader.read(after=...)`` to resume there.
    Threads: one at a time.
    """

    def __init__(self, reader: Reader, *, since: int | None, after: int | None, until: int | None) -> None:
        self._reader = reader
        self._until = until
        self.position = after or 0
        self.gaps: list[tuple[int, int]] = []
        """Places where salvage left a gap: (time of the record before it, bytes lost)."""
        # Records before this time are passed over; None once reading has begun, for then order decides.
        self._from: int | None = since if after is None else after + 1
        self._must_not_miss = after is not None
        self._is_past_until = False
        # Where reading goes on: behind the record at ``_behind`` (offset, time), if it still ends there.
        self._file: FileName | None = None
        self._at = HEADER_SIZE
        self._behind: tuple[int, int] | None = None
        self._names: list[FileName] = []
        self._last_data = 0
        self._lost: int | None = None  # bytes that salvage took out right before here
        self._retried_at = -1
        self._began_at_head = False

    def __iter__(self) -> Iterator[Record]:
        """Raises: Gap, Corruption, DiskError. After any of them the cursor still stands where it was."""
        segment = self._resume()
        try:
            while segment is not None:
                for record in self._records(segment):
                    if self._until is not None and record.time_ns >= self._until:
                        self._is_past_until = True
                        return
                    self.position = record.time_ns
                    yield record
                following = self._next(segment)
                if following is None or following.file is not segment.file:
                    segment.file.close()
                segment = following
        finally:
            if segment is not None:
                segment.file.close()

    def follow(self, timeout: float | None = None) -> Iterator[Record]:
        """Records as they come: for ever, until ``until``, or until none came for ``timeout`` seconds.

        Raises: LogClosed when the writer in this process closes the log; Gap, Corruption.
        """
        live = self._reader.live
        if live is None:
            yield from self._follow_files(timeout)
            return
        while True:
            seen = live.readable_position
            yield from self
            if self._is_past_until or not live.wait_for_more(seen, timeout):
                return

    def _follow_files(self, timeout: float | None) -> Iterator[Record]:
        folder = self._reader.folder
        try:
            watch = self._reader.files.watch(folder)
        except OSError as error:
            raise from_os(error, "watch the folder", folder) from error
        try:
            last_news = time.monotonic()
            while True:
                for record in self:
                    yield record
                    last_news = time.monotonic()
                left = SAFETY_POLL_S if timeout is None else timeout - (time.monotonic() - last_news)
                if left <= 0 or self._is_past_until:
                    return
                watch.wait(min(left, SAFETY_POLL_S))
        finally:
            watch.close()

    # -- records of one file -------------------------------------------------------------------------------------

    def _records(self, segment: Segment) -> Iterator[Record]:
        scan = FileScan(segment.file, self._at, segment.end, self._reader.max_payload)
        mark_sizes = segment.format.mark_sizes
        name = segment.name.name
        for batch in scan:
            if self._from is None or batch.newest >= self._from:
                for place, time_ns in enumerate(batch.times):
                    if batch.lengths[place] in mark_sizes and self._pass_mark(segment, batch, place):
                        continue
                    if self._from is not None and time_ns < self._from:
                        self._last_data, self._lost = time_ns, None
                        continue
                    self._check_no_gap_before(time_ns)
                    self._last_data, self._lost = time_ns, None
                    # Moved before the record is given: whoever stops reading there goes on behind it.
                    self._from = None
                    self._stand_behind(batch, place)
                    yield Record(time_ns, batch.payload(place), name, batch.record_offset(place))
            else:
                self._last_data = newest_data(batch, segment.format) or self._last_data
                self._lost = _lost_at_end(batch, segment.format)
            self._stand_behind(batch, len(batch.times) - 1)
        if scan.why is not Stop.END or scan.stop < segment.end:
            self._check_stop(segment, scan)

    def _stand_behind(self, batch: Batch, place: int) -> None:
        self._behind = (batch.record_offset(place), batch.times[place])
        self._at = batch.base + batch.offsets[place] + batch.lengths[place] + frame.CRC.size

    def _pass_mark(self, segment: Segment, batch: Batch, place: int) -> bool:
        """False if it is none."""
        payload, time_ns = batch.payload(place), batch.times[place]
        if not segment.format.is_mark(payload):
            return False
        if segment.format.reaches(time_ns, payload):
            self._last_data = time_ns
        lost = segment.format.read_gap(payload)
        if lost is not None:
            self._lost = lost
            if (self._last_data, lost) not in self.gaps:
                self.gaps.append((self._last_data, lost))
        return True

    def _check_no_gap_before(self, time_ns: int) -> None:
        """Raises: Gap if salvage took something out between our position and the record at ``time_ns``."""
        if self._lost is not None and self._must_not_miss and self.position < time_ns - 1:
            raise Gap(self.position, time_ns - 1, why=f"{self._lost} damaged bytes were quarantined")

    def _check_stop(self, segment: Segment, scan: FileScan) -> None:
        """The bytes at ``scan.stop`` are no record: a tail being written, damage, or a file cut back under us."""
        if segment.is_newest and self._reader.live is None and scan.why is not Stop.TRUNCATED:
            whole = Index()
            indexes.extend(whole, segment.file, segment.format, segment.end, self._reader.max_payload)
            if whole.bytes != scan.stop and self._retried_at != scan.stop:
                self._retried_at = scan.stop
                self._reader.forget(segment.name)  # not a record start any more: find the place again by time
                self._go_by_time()
                return
        self._reader.check_stop(segment, scan, self._last_data)

    def _go_by_time(self) -> None:
        self._file = self._behind = None
        if self._from is None:
            self._from = self.position + 1

    # -- from file to file ---------------------------------------------------------------------------------------

    def _resume(self) -> Segment | None:
        """The file to read on in, at ``_at``."""
        self._names = self._reader.segments()
        if self._file is not None and self._file in self._names:
            segment = self._reader.open(self._file, is_newest=self._file == self._names[-1])
            if segment is not None and self._still_stands(segment):
                return segment
            if segment is not None:
                segment.file.close()
        if self._file is not None:
            self._go_by_time()  # rewritten, cut back or removed under us
        return self._locate()

    def _still_stands(self, segment: Segment) -> bool:
        """The file still has, right before our place, the record that we read last."""
        if self._behind is None:
            return self._at == HEADER_SIZE
        offset, time_ns = self._behind
        if segment.end < self._at:
            return False
        head = read_record(segment.file, offset, segment.end, self._reader.max_payload)
        return isinstance(head, frame.Head) and (head.time_ns, head.end) == (time_ns, self._at)

    def _locate(self) -> Segment | None:
        """Find the place for ``_from``: the newest file that begins before it, then its index."""
        names = self._names
        place = 0 if self._from is None else self._reader.file_for(names, self._from)
        for number in range(place, len(names)):
            segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
            if segment is None and (now := self._reader.segments()) != names:
                self._names = now  # removed since the folder was listed: look again
                return self._locate()
            if segment is None:
                continue
            try:
                if number == 0:
                    self._check_nothing_removed(segment)
                self._enter(segment)
                if self._from is not None and number == place:
                    self._at = self._reader.index_of(segment).seek(self._from)
                    self._began_at_head = self._at == HEADER_SIZE
            except BaseException:
                segment.file.close()
                raise
            return segment
        return None

    def _enter(self, segment: Segment) -> None:
        self._file, self._at, self._behind = segment.name, HEADER_SIZE, None
        self._began_at_head = True

    def _next(self, segment: Segment) -> Segment | None:
        """The file to read when this one has given all it had; None at the end of the log."""
        if self._file is None:
            return self._resume()
        if self._names[-1] <= segment.name:
            self._names = self._reader.segments()
        following = self._next_in(segment)
        if following is None and self._names and self._names[-1] > segment.name:
            self._names = self._reader.segments()  # some of those we knew are gone
            following = self._next_in(segment)
        return following

    def _next_in(self, segment: Segment) -> Segment | None:
        names = self._names
        place = bisect_right(names, segment.name)
        if place == len(names):
            return None
        # There is a later file, so this one is full: what was added since it was opened is read first.
        size = file_size(segment.file)
        if self._at < size:
            return Segment(segment.name, segment.file, segment.format, size, is_newest=False)
        following = self._reader.open(names[place], is_newest=place == len(names) - 1)
        if following is None:
            return None
        try:
            if place == 0:
                self._check_nothing_removed(following)
            elif names[place - 1] == segment.name and (self._last_data or self._began_at_head):
                self._reader.check_whole(segment.name, self._at, self._last_data, following)
        except BaseException:
            following.file.close()
            raise
        self._enter(following)
        return following

    def _check_nothing_removed(self, oldest: Segment) -> None:
        """Raises: Gap if the oldest file says that records past our position came before it."""
        attested = attested_at_head(oldest, self._reader.max_payload)
        position = max(self.position, self._last_data)
        is_reading = self._must_not_miss or self._last_data > 0
        if attested is not None and is_reading and attested > position:
            raise Gap(position, attested, why=f"the log now begins with {oldest.name.name}")


def _lost_at_end(batch: Batch, format: Format) -> int | None:
    """What a gap mark behind the last data of a batch says was lost there."""
    for place in range(len(batch.times) - 1, -1, -1):
        payload = batch.payload(place)
        if not format.is_mark(payload):
            return None
        if (lost := format.read_gap(payload)) is not None:
            return lost
    return None
