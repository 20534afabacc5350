"""Through the files of one log, record by record: what is so for logs of every kind is looked at here.

frames       a record that is not whole is damage, unless it is the torn end of the newest file (log/attest.py)
order        times rise; in files of workq, which have no marks of the kernel, they may be equal. Marks do not count:
             the one at the head of a file may have the time of the last record before it
watermarks   what a mark says to be synced is there, or was taken out since (holding.py)

What follows is told of each record: in which file it is, at which byte, and whether something before it is missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Final, NamedTuple

from lamina.errors import Corruption, DiskError, WrongFormat
from lamina.log.attest import is_attested, next_record
from lamina.log.formats import JOBS, Format
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import follows
from lamina.log.scan import HEADER_SIZE, Batch, FileScan
from lamina.log.segment import check_header, header_is_torn, read_header
from lamina.pipeline import columns
from lamina.pipeline.auditing.findings import FRAMES, MEANING, ORDER, WATERMARKS, Findings
from lamina.pipeline.auditing.holding import HeldFile
from lamina.units import MIB

_WINDOW: Final = 2 * MIB

Judge = Callable[[HeldFile, int], bool]
"""Whether a bad place is the torn end of a file, and no damage."""


class Record(NamedTuple):
    """One record that is no mark of the kernel."""

    file: str
    position: int
    time_ns: int
    payload: bytes


@dataclass(slots=True)
class Trace:
    """What is missing before the file at hand."""

    removed: bool = False
    """Cleaning or retention may have taken records."""
    rewritten: bool = False
    """Not only whole files."""
    lost: bool = False
    """Damage has, or it was repaired."""

    @property
    def is_whole(self) -> bool:
        return not self.removed and not self.lost


class Walk:
    """Of one stream. ``trace`` and ``is_last_of_file`` are about the record at hand."""

    def __init__(
        self, findings: Findings, files: list[HeldFile], *, reach_ns: int | None = None, judge: Judge | None = None
    ) -> None:
        """``reach_ns``: how far what stands before the files had come; None: nobody says."""
        self._findings, self._files, self._judge = findings, files, judge
        self.trace = Trace()
        self.records = 0
        self.formats: set[str] = set()
        self._last_ns = -1
        is_first = bool(files) and files[0].name.family == "numbered" and files[0].name.number == 1
        self._reach_ns = 0 if is_first and reach_ns is None else reach_ns
        """Time of the newest record, as far as marks are about it; None: it may be any."""
        self._stood_in = False
        self._stands_in_ns = -1
        """The file before stands in for what came up to then."""
        self._equal: list[tuple[str, int, int]] = []
        self._has_marks = False

    def batches(self) -> Iterator[tuple[HeldFile, Format, Batch]]:
        """All whole records but the marks. Raises: DiskError."""
        before: HeldFile | None = None
        for held in self._files:
            if held.name.family == "timed" and held.name.number <= self._stands_in_ns:
                text = f"{held.name.name}: a crash left it, the file before stands in for it, and it goes the next time"
                self._findings.note(FRAMES, text)
                continue
            self._begin(before, held)
            try:
                format = self._header(held)
            except (Corruption, WrongFormat) as error:
                self._findings.violated(FRAMES, error.file, error.offset, None, error.reason)
                self.trace.lost = True
                self._reach_ns = None
                continue
            if format is not None:
                self.formats.add(format.name)
                yield from ((held, format, batch) for batch in self._scan(held, format))
                self._end(held, format)
                before = held
        self._findings.looked(FRAMES, self.records)
        self._findings.looked(ORDER, self.records)

    def records_of(self) -> Iterator[Record]:
        """The same one by one."""
        for held, _, batch in self.batches():
            for number, time_ns in enumerate(batch.times):
                yield Record(held.name.name, batch.record_offset(number), time_ns, batch.payload(number))

    def bad(self, name: str, record: Record, reason: str) -> None:
        """The record must not be there."""
        self._findings.violated(name, record.file, record.position, record.time_ns, reason)

    def means_nothing(self, record: Record, error: ValueError) -> None:
        self.bad(MEANING, record, str(error.args[0]))

    # -- files -------------------------------------------------------------------------------------------------------

    def _begin(self, before: HeldFile | None, held: HeldFile) -> None:
        if held.name.family == "numbered":
            expected = 1 if before is None else before.name.number + 1
            self.trace.removed |= held.name.number != expected
        if before is not None:
            self.trace.removed |= not before.is_sealed_whole or self._stood_in
            self.trace.rewritten |= not before.is_sealed_whole or self._stood_in
            if not follows(before.name, held.name):
                self._reach_ns = None
        self.trace.rewritten |= not held.is_newest and not held.is_sealed_whole
        self._equal, self._has_marks, self._stood_in = [], False, False

    def _header(self, held: HeldFile) -> Format | None:
        """None: it was only just made. Raises: Corruption, WrongFormat."""
        header = read_header(held.file)
        if held.is_newest and (header_is_torn(header, None) or len(header) < HEADER_SIZE):
            return None
        return check_header(held.file, held.name.name, header=header)

    def _scan(self, held: HeldFile, format: Format) -> Iterator[Batch]:
        start, name = HEADER_SIZE, held.name.name
        while start < held.size:
            scan = FileScan(held.file, start, held.size, window=_WINDOW)
            try:
                for batch in scan:
                    self._marks(held, format, batch)
                    kept = columns.without_marks(
                        batch.data, batch.times, batch.offsets, batch.lengths, *format.reserved
                    )
                    if len(kept[0]):
                        records = Batch(batch.base, batch.data, *kept, batch.end, max(kept[0]))
                        self._times(name, records)
                        self.records += len(records.times)
                        yield records
            except DiskError as error:
                self._findings.violated(FRAMES, name, scan.stop, None, error.message)
                self.trace.lost, self._reach_ns = True, None
                return
            if scan.why is Stop.END and scan.stop >= held.size:
                return
            reason = REASONS[scan.why or Stop.TRUNCATED]
            if self._is_torn(held, format, scan.stop):
                self._findings.note(FRAMES, f"{name}, byte {scan.stop}: a torn end, or one that is being written")
                return
            self._findings.violated(FRAMES, name, scan.stop, None, reason)
            self.trace.lost, self._reach_ns = True, None
            found = next_record(held.file, scan.stop, held.size, max(self._last_ns, 0))
            start = held.size if found is None else found

    def _is_torn(self, held: HeldFile, format: Format, offset: int) -> bool:
        if self._judge is not None:
            return self._judge(held, offset)
        return held.is_newest and not is_attested(held.file, offset, held.size, max(self._last_ns, 0), format)

    def _end(self, held: HeldFile, format: Format) -> None:
        if not self._equal:
            return
        if format is JOBS and not self._has_marks:
            text = f"{held.name.name}: {len(self._equal)} records have the time of the one before, as workq writes them"
            self._findings.note(ORDER, text)
            return
        for file, position, time_ns in self._equal:
            self._findings.violated(ORDER, file, position, time_ns, "it has the time of the record before it")

    # -- records -----------------------------------------------------------------------------------------------------

    def _times(self, file: str, batch: Batch) -> None:
        times = batch.times
        if times[0] <= self._last_ns or not all(map(lt, times, islice(times, 1, None))):
            before = self._last_ns
            for number, time_ns in enumerate(times):
                if time_ns == before:
                    self._equal.append((file, batch.record_offset(number), time_ns))
                elif time_ns < before:
                    reason = f"it is {before - time_ns} ns earlier than a record before it"
                    self._findings.violated(ORDER, file, batch.record_offset(number), time_ns, reason)
                before = max(before, time_ns)
        self._last_ns = max(self._last_ns, batch.newest)

    def _marks(self, held: HeldFile, format: Format, batch: Batch) -> None:
        sizes = set(format.mark_sizes)
        done = 0
        if any(batch.lengths.count(size) for size in sizes):
            for number, size in enumerate(batch.lengths):
                if size not in sizes:
                    continue
                payload = batch.payload(number)
                vouched = format.read_watermark(payload)
                if vouched is None and format.read_gap(payload) is None:
                    continue
                if number > done:
                    self._reach(max(batch.times[done:number]))
                done = number + 1
                self._has_marks = True
                if vouched is None:
                    text = (
                        f"{held.name.name}, byte {batch.record_offset(number)}: records were lost here, and set aside"
                    )
                    self._findings.note(FRAMES, text)
                    self.trace.lost, self._reach_ns = True, None
                else:
                    self._watermark(held, format, batch, number, vouched)
        if done < len(batch.times):
            self._reach(max(batch.times[done:]))

    def _reach(self, time_ns: int) -> None:
        self._reach_ns = max(self._reach_ns or 0, time_ns)

    def _watermark(self, held: HeldFile, format: Format, batch: Batch, number: int, vouched: int) -> None:
        time_ns, position = batch.times[number], batch.record_offset(number)
        self._findings.looked(WATERMARKS, 1)
        is_head, is_first = position == HEADER_SIZE, held is self._files[0]
        if is_head and is_first and vouched and self._reach_ns is None:
            self.trace.removed = True  # of files that are named by time, only this shows it
        if vouched == time_ns and not is_head:
            self._stood_in = True  # for a record that was taken out
            self._stands_in_ns = time_ns
            self._reach(time_ns)
            return
        reach = self._reach_ns
        # A rewrite keeps the marks, but not all that they vouch for. At the head of a file they are about the one
        # before, of which the last record, or what stands in for it, is there.
        is_rewritten = format is JOBS and not held.is_sealed_whole
        is_excused = reach is None or (is_rewritten and (is_first or not is_head))
        if vouched > time_ns or (not is_excused and reach is not None and vouched > reach):
            limit = "itself" if vouched > time_ns else "what is there"
            reason = f"it vouches for records up to {vouched}, which is later than {limit}"
            self._findings.violated(WATERMARKS, held.name.name, position, time_ns, reason)
