"""Cursor: a place in a log that moves forward, across rotations and through rewrites, and along the live end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from lamina.errors import Gap
from lamina.log import frame
from lamina.log import index as indexes
from lamina.log.frame import Stop
from lamina.log.index import Index
from lamina.log.naming import FileName
from lamina.log.reader import Reader, Record, Segment, attested_at_head, check_whole
from lamina.log.scan import HEADER_SIZE, Batch, FileScan

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
        # Where reading goes on, unless the file there is not the same any more.
        self._file: FileName | None = None
        self._identity = (0, 0)
        self._at = HEADER_SIZE
        self._began_at_head = False
        self._last_data = 0

    def __iter__(self) -> Iterator[Record]:
        """Raises: Gap, Corruption, DiskError. After any of them the cursor still stands where it was."""
        segment = self._resume()
        try:
            while segment is not None:
                for record in self._records(segment):
                    if self._until is not None and record.time_ns >= self._until:
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
        """Records as they come: for ever, or until none came for ``timeout`` seconds.

        Raises: LogClosed when the writer in this process closes the log; Gap, Corruption.
        """
        if self._reader.live is not None:
            while True:
                yield from self
                if not self._reader.live.wait_for_more(self._last_data, timeout):
                    return
        watch = self._reader.files.watch(self._reader.folder)
        try:
            last_news = time.monotonic()
            while True:
                for record in self:
                    yield record
                    last_news = time.monotonic()
                left = SAFETY_POLL_S if timeout is None else timeout - (time.monotonic() - last_news)
                if left <= 0:
                    return
                watch.wait(min(left, SAFETY_POLL_S))
        finally:
            watch.close()

    # -- records of one file -------------------------------------------------------------------------------------

    def _records(self, segment: Segment) -> Iterator[Record]:
        scan = FileScan(segment.file, self._at, segment.end, self._reader.max_payload)
        mark_sizes = {len(prefix) + 8 for prefix in segment.format.reserved}
        name = segment.name.name
        for batch in scan:
            for place, time_ns in enumerate(batch.times):
                payload = batch.payload(place)
                if len(payload) in mark_sizes and segment.format.is_mark(payload):
                    self._pass_mark(segment, payload, time_ns)
                elif self._from is not None and time_ns < self._from:
                    self._last_data = time_ns
                else:
                    # Moved before the record is given: whoever stops reading there goes on behind it.
                    self._from = None
                    self._last_data = time_ns
                    self._at = _end_of(batch, place)
                    yield Record(time_ns, payload, name, batch.record_offset(place))
            self._at = batch.end
        if scan.why is not Stop.END or scan.stop < segment.end:
            self._check_stop(segment, scan)

    def _pass_mark(self, segment: Segment, payload: bytes, time_ns: int) -> None:
        if segment.format.reaches(time_ns, payload):
            self._last_data = time_ns
        lost = segment.format.read_gap(payload)
        if lost is None:
            return
        self.gaps.append((self._last_data, lost))
        if self._must_not_miss and self._from is None:
            self._from = time_ns + 1
            raise Gap(self.position, time_ns, why=f"{lost} damaged bytes were quarantined")

    def _check_stop(self, segment: Segment, scan: FileScan) -> None:
        """The bytes at ``scan.stop`` are no record: a tail being written, damage, or a file cut back under us."""
        if segment.is_newest and self._reader.live is None and scan.why is not Stop.TRUNCATED:
            whole = Index()
            indexes.extend(whole, segment.file, segment.format, segment.end, self._reader.max_payload)
            if whole.bytes != scan.stop:
                self._file = None  # not a record start any more: find the place again by time
                self._from = self._from or self.position + 1
                return
        self._reader.check_stop(segment, scan, self._last_data)

    # -- from file to file ---------------------------------------------------------------------------------------

    def _resume(self) -> Segment | None:
        """The file to read on in, at ``_at``."""
        names = self._reader.segments()
        if self._file is not None and self._file in names:
            segment = self._reader.open(self._file, is_newest=self._file == names[-1])
            if segment is not None and segment.file.identity == self._identity and segment.end >= self._at:
                return segment
            if segment is not None:
                segment.file.close()
        if self._file is not None and self._from is None:
            self._from = self.position + 1  # rewritten or removed under us: go on by time
        return self._locate(names)

    def _locate(self, names: list[FileName]) -> Segment | None:
        """Find the place for ``_from``: the newest file that begins before it, then its index."""
        place = 0 if self._from is None else self._reader.file_for(names, self._from)
        for number in range(place, len(names)):
            segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
            if segment is None:
                continue
            self._enter(segment)
            if number == 0:
                self._check_nothing_removed(segment)
            if self._from is not None and number == place:
                self._at = self._reader.index_of(segment).seek(self._from)
                self._began_at_head = self._at == HEADER_SIZE
            return segment
        return None

    def _enter(self, segment: Segment) -> None:
        self._file, self._identity, self._at = segment.name, segment.file.identity, HEADER_SIZE
        self._began_at_head = True

    def _next(self, segment: Segment) -> Segment | None:
        """The file to read when this one has given all it had; None at the end of the log."""
        if self._file is None:
            return self._resume()
        names = self._reader.segments()
        later = [name for name in names if name > segment.name]
        if not later:
            return None
        # There is a later file, so this one is full: what was added since it was opened is read first.
        size = segment.file.size()
        if self._at < size:
            return Segment(segment.name, segment.file, segment.format, size, is_newest=False)
        for number, name in enumerate(later):
            following = self._reader.open(name, is_newest=number == len(later) - 1)
            if following is None:
                continue
            try:
                if name == names[0]:
                    self._check_nothing_removed(following)
                elif names[names.index(name) - 1] == segment.name and (self._last_data or self._began_at_head):
                    check_whole(segment.name, self._at, self._last_data, following, self._reader.max_payload)
            except BaseException:
                following.file.close()
                raise
            self._enter(following)
            return following
        return None

    def _check_nothing_removed(self, oldest: Segment) -> None:
        """Raises: Gap if the oldest file says that records past our position came before it."""
        attested = attested_at_head(oldest, self._reader.max_payload)
        position = max(self.position, self._last_data)
        is_reading = self._must_not_miss or self._last_data > 0
        if attested is not None and is_reading and attested > position:
            raise Gap(position, attested, why=f"the log now begins with {oldest.name.name}")


def _end_of(batch: Batch, place: int) -> int:
    return batch.base + batch.offsets[place] + batch.lengths[place] + frame.CRC.size
