"""Reading a log: from the start, after a position, as of a time, the last N, backwards, and on along the live end.

A reader needs no lock. It sees whole files up to their last whole record; beside a writer in the same process it sees
exactly what the writer has made as safe as its policy promises. It keeps its place by time, not by byte: files may be
rewritten or removed under it. An open file keeps its old content, so a rewrite does not disturb a read in
progress; what was removed before the reader got there is a ``Gap``, told and never hidden.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from lamina.errors import Corruption, from_os
from lamina.log import attest, frame
from lamina.log import index as indexes
from lamina.log.files import File, Files, file_size, read_at
from lamina.log.files.real import RealFiles
from lamina.log.formats import Format
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index, newest_data
from lamina.log.manifest import KEPT_FOR, Witness
from lamina.log.naming import NUMBERED, Family, FileName, follows, sort_out
from lamina.log.scan import HEADER_SIZE, WINDOW, Batch, FileScan, read_record
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

if TYPE_CHECKING:
    from lamina.log.cursor import Cursor


class Record(NamedTuple):
    """One record, and where it stands."""

    time_ns: int
    payload: bytes
    file: str
    offset: int


class Live(Protocol):
    """The writer in this process, as a reader sees it."""

    @property
    def readable(self) -> tuple[FileName, int | None] | None: ...

    @property
    def readable_position(self) -> int: ...

    def wait_for_more(self, position: int, timeout: float | None = None) -> bool: ...


class Segment:
    """One file, open for reading up to ``end``."""

    def __init__(self, name: FileName, file: File, format: Format, end: int, *, is_newest: bool) -> None:
        self.name, self.file, self.format, self.end = name, file, format, end
        self.attested: int | None = None
        self.is_newest = is_newest
        """A tail that is not whole may yet become so (or was torn); in any older file it is damage."""


class Reader:
    """A log folder, to be read. Make cursors with ``read``."""

    def __init__(
        self,
        folder: str,
        *,
        family: Family = NUMBERED,
        stream: str | None = None,
        files: Files | None = None,
        live: Live | None = None,
        max_payload: int = frame.MAX_PAYLOAD,
    ) -> None:
        self.folder = folder
        self.stream = stream or family.name
        """Which files of the folder are the log (naming.py): one per folder, but for journals and channels."""
        self.files: Files = RealFiles() if files is None else files
        self.live = live
        self.max_payload = max_payload
        self._first_times: dict[str, int] = {}
        self._indexes: dict[str, tuple[tuple[int, int], Index]] = {}
        # A writer in this process has looked itself, when it opened the log.
        self._witness = Witness(self.files, folder) if live is None and self.stream in KEPT_FOR else None

    def read(self, *, since: int | None = None, after: int | None = None, until: int | None = None) -> Cursor:
        """A cursor over records in log order, all of them or a part. Bounds are times in nanoseconds.

        ``since``: from the first record at or past it (as of a time). ``after``: from the first record past it (the
        position to resume from). ``until``: up to but not including it.

        Raises: Gap, when reading starts, if records past ``after`` were removed.
        """
        if since is not None and after is not None:
            raise ValueError("give since or after, not both")
        from lamina.log.cursor import Cursor

        return Cursor(self, since=since, after=after, until=until)

    def last(self, count: int) -> list[Record]:
        """The newest ``count`` records, oldest of them first."""
        if count < 0:
            raise ValueError(f"the last {count} records cannot be")
        return list(islice(self.backwards(), min(count, sys.maxsize)))[::-1]

    def backwards(self, *, since: int | None = None, until: int | None = None) -> Iterator[Record]:
        """Records newest first: those before ``until``, down to ``since``."""
        names = self.segments()
        later: Segment | None = None
        for place in range(len(names) - 1, -1, -1):
            if until is not None and place and (self.first_time(names[place]) or 0) >= until:
                continue
            segment = self.open(names[place], is_newest=place == len(names) - 1)
            if segment is None:
                continue
            try:
                if later is not None and later.attested is not None and follows(segment.name, later.name):
                    self.check_reaches(segment.name, segment.end, self.index_of(segment).last_data, later.attested)
                segment.attested = attested_at_head(segment, self.max_payload)
                later = segment
                for record in self._segment_backwards(segment):
                    if since is not None and record.time_ns < since:
                        return
                    if until is None or record.time_ns < until:
                        yield record
            finally:
                segment.file.close()

    def _segment_backwards(self, segment: Segment) -> Iterator[Record]:
        index = self.index_of(segment)
        rest = FileScan(segment.file, index.bytes, segment.end, self.max_payload)
        if any(True for _ in rest) or rest.why is not Stop.END:
            self.check_stop(segment, rest, index.last_data)
        for start, end in reversed(index.ranges()):
            scan = FileScan(segment.file, start, end, self.max_payload)
            records = [record for batch in scan for record in records_of(batch, segment)]
            if scan.stop < end:
                raise Corruption(segment.name.name, scan.stop, REASONS[scan.why or Stop.TRUNCATED])
            yield from reversed(records)

    def batches(
        self,
        *,
        after: int | None = None,
        begin: tuple[FileName, int] | None = None,
        names: list[FileName] | None = None,
        are_sealed: bool = False,
        window: int = WINDOW,
    ) -> Iterator[tuple[Segment, Batch]]:
        """Everything, as columns, the kernel's marks included: the fastest way through a log.

        With ``after``, everything past that time and perhaps a little before it, up to where the index leads. With
        ``begin``, everything from that record on: its file and its offset; if the file is gone, from the one behind it.
        A batch is valid until the next one is asked for. ``names``: of all files, if they are known. ``are_sealed``:
        nothing is written to any of them any more, so the newest must be as whole as the others, and none may be gone.
        Raises: Corruption.
        """
        names = self.segments() if names is None else names
        before: tuple[FileName, int, int] | None = None  # name, size and last time of the file before
        last_data = 0
        first = 0
        if begin is not None:
            first = bisect_left(names, begin[0])
        elif after is not None:
            first = self.file_for(names, after + 1)
        for place, name in enumerate(names[first:], first):
            segment = self.open(name, is_newest=place == len(names) - 1 and not are_sealed)
            if segment is None and are_sealed:
                raise Corruption(name.name, 0, "the file is gone")
            if segment is None:
                continue
            try:
                if before is not None:
                    self.check_whole(*before, segment)
                start = HEADER_SIZE
                if begin is not None and name == begin[0]:
                    start = begin[1]
                elif after is not None and place == first:
                    start = self.index_of(segment).seek(after + 1)
                scan = FileScan(segment.file, start, segment.end, self.max_payload, window)
                for batch in scan:
                    yield segment, batch
                    last_data = newest_data(batch, segment.format) or last_data
                self.check_stop(segment, scan, last_data)
                # Of a file that was begun at its very end nothing is known.
                before = (name, segment.end, last_data) if last_data or start == HEADER_SIZE else None
            finally:
                segment.file.close()

    # -- files ---------------------------------------------------------------------------------------------------

    def segments(self) -> list[FileName]:
        """Files of the log, oldest first. Raises: DiskError."""
        if self.live is not None and self.live.readable is None:  # the folder may not be there yet
            return []
        try:
            names = sort_out(self.files.list(self.folder)).of_stream(self.stream)
        except OSError as error:
            raise from_os(error, "list the folder", self.folder) from error
        if self.live is None:
            for lost in () if self._witness is None else self._witness.missing((self.stream,), names):
                raise lost.error()
            return names
        # Beside a writer: a file is there once the writer has said so, not when it is being made.
        newest = self.live.readable
        return [name for name in names if newest is not None and name <= newest[0]]

    def open(self, name: FileName, *, is_newest: bool) -> Segment | None:
        """A file, or None if it is gone, or has nothing whole in it yet. Raises: Corruption, WrongFormat."""
        newest = self.live.readable if self.live is not None else None
        try:
            file = open_for_reading(self.files, self.folder, name.name)
        except FileNotFoundError:
            return None
        try:
            end = file_size(file)
            if newest is not None and newest[0] == name and newest[1] is not None:
                end = newest[1]
            header = read_header(file)
            is_torn = header_is_torn(header, None) or min(len(header), end) < HEADER_SIZE
            format = None if is_torn and is_newest else check_header(file, name.name, header=header)
            wrong = None if self._witness is None else self._witness.differs(name.name, file, deep=False)
            if wrong is not None:
                raise wrong.error()
            if format is None:
                file.close()
                return None
            return Segment(name, file, format, end, is_newest=is_newest)
        except BaseException:
            file.close()
            raise

    def first_time(self, name: FileName) -> int | None:
        """Time of the first record of a file, None if it has none or is gone.

        Remembered by name: a rewrite only drops records, so an older first time still leads to the right file.
        """
        if name.family == "timed":
            return name.number
        if name.name not in self._first_times:
            segment = self.open(name, is_newest=True)
            if segment is None:
                return None
            try:
                head = read_record(segment.file, HEADER_SIZE, segment.end, self.max_payload)
            finally:
                segment.file.close()
            if isinstance(head, Stop):
                return None
            self._first_times[name.name] = head.time_ns
        return self._first_times[name.name]

    def file_for(self, names: list[FileName], time_ns: int) -> int:
        """Which of the files to start in for records at or past a time: the newest that begins before it."""

        def begins_at_or_after(place: int) -> bool:
            first = self.first_time(names[place])
            return first is None or first >= time_ns

        low, high = 0, len(names)
        while low < high:
            middle = (low + high) // 2
            if begins_at_or_after(middle):
                high = middle
            else:
                low = middle + 1
        return max(low - 1, 0)

    def index_of(self, segment: Segment) -> Index:
        """The sparse index of an open file: kept, remembered, or made by a scan."""
        name, file = segment.name.name, segment.file
        known = self._indexes.get(name)
        # Being the same file is not enough: it may have been cut back, or its number reused for another.
        index = known[1] if known is not None and known[0] == file.identity else None
        if index is not None and (index.bytes > segment.end or not indexes.has_points_in(index, file)):
            index = None
        if index is None:
            index = indexes.load(self.files, self.folder, name, file, may_end_early=segment.is_newest)
        if index is None or index.bytes > segment.end:
            index = Index()
        if index.bytes < segment.end:
            index = index.copy()  # others may be reading by the one we know
            indexes.extend(index, file, segment.format, segment.end, self.max_payload)
        self._indexes[name] = (file.identity, index)
        return index

    def forget(self, name: FileName) -> None:
        """What is remembered of a file turned out to be wrong."""
        self._indexes.pop(name.name, None)
        self._first_times.pop(name.name, None)

    def check_stop(self, segment: Segment, scan: FileScan, last_good_ns: int = 0) -> None:
        """Raises: Corruption unless the scan reached the end, or stopped in a tail that may be torn."""
        if scan.why is Stop.END and scan.stop >= segment.end:
            return
        why = scan.why or Stop.TRUNCATED
        name = segment.name.name
        if not segment.is_newest or self.live is not None:
            raise Corruption(name, scan.stop, REASONS[why])
        if not last_good_ns:
            before = Index()
            indexes.extend(before, segment.file, segment.format, scan.stop, self.max_payload)
            last_good_ns = before.last_data
        if attest.is_attested(segment.file, scan.stop, segment.end, last_good_ns, segment.format, self.max_payload):
            raise Corruption(name, scan.stop, f"{REASONS[why]}, though it was once synced")

    def check_whole(self, name: FileName, size: int, last_data: int, following: Segment) -> None:
        """Raises: Corruption if the next file vouches for records that this one has lost from its end."""
        attested = attested_at_head(following, self.max_payload)
        if attested is not None and follows(name, following.name):
            self.check_reaches(name, size, last_data, attested)

    def check_reaches(self, name: FileName, size: int, last_data: int, attested: int) -> None:
        """Raises: Corruption if the file does not reach what the next one vouches for.

        While it was read it may have been rewritten, to stand in for later ones that are gone: then that counts.
        """
        if attested > last_data and not self._reaches_now(name, attested):
            reason = f"the file ends early, records up to {attested} are missing"
            raise Corruption(name.name, size, reason)

    def _reaches_now(self, name: FileName, attested: int) -> bool:
        segment = self.open(name, is_newest=False)
        if segment is None:
            return True  # removed as a whole
        try:
            # What it vouches for itself was before it, in files that may be gone: it may hold nothing else.
            before = attested_at_head(segment, self.max_payload) or 0
            return max(self.index_of(segment).last_data, before) >= attested
        finally:
            segment.file.close()


def records_of(batch: Batch, segment: Segment, start: int = 0) -> Iterator[Record]:
    mark_sizes = segment.format.mark_sizes
    name = segment.name.name
    for at in range(start, len(batch.times)):
        payload = batch.payload(at)
        if len(payload) in mark_sizes and segment.format.is_mark(payload):
            continue
        yield Record(batch.times[at], payload, name, batch.record_offset(at))


def attested_at_head(segment: Segment, max_payload: int) -> int | None:
    """What the watermark at the head of a file vouches for: the last record of the file before it."""
    head = read_record(segment.file, HEADER_SIZE, segment.end, max_payload)
    if isinstance(head, Stop):
        return None
    return segment.format.read_watermark(read_at(segment.file, head.payload_at, head.size))
