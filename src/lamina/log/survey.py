"""Looking through every byte of a folder of log files, of whatever family, changing nothing.

What ``lamina log verify`` shows and ``lamina log repair`` works from. Needs no lock: beside a running writer the bytes
it is just writing are not taken for a torn tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lamina.errors import Corruption, DiskError, WrongFormat, from_os
from lamina.log import frame, lock
from lamina.log import index as indexes
from lamina.log.attest import is_attested, next_record, torn_or_not
from lamina.log.files import File, Files, file_size, join, read_at
from lamina.log.formats import ALL, END_OF_DUMP, Format
from lamina.log.frame import REASONS, Stop
from lamina.log.index import State
from lamina.log.manifest import Problem, Witness, ends_early, lost_files
from lamina.log.naming import FAMILIES, Ending, FileName, Listing, follows, parse, sort_out
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_record
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""


@dataclass(frozen=True, slots=True)
class Torn:
    """A tail that a crash left, or that is being written right now."""

    file: str
    offset: int
    bytes: int
    reason: str


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that were whole once, from ``offset`` to where records go on."""

    file: str
    offset: int
    end: int
    reason: str
    is_repairable: bool = True
    is_needed: bool = True
    """False: a start does without it."""
    do: str = ""
    """What to do about it, if that follows from what else is there."""
    is_missing: bool = False


@dataclass(slots=True)
class SegmentSurvey:
    """One file, looked through."""

    name: FileName
    format: Format | None = None
    bytes: int = 0
    records: int = 0
    """Whole records, the kernel's marks included."""
    marks: int = 0
    first_ns: int = 0
    last_ns: int = 0
    last_data_ns: int = 0
    attested_ns: int | None = None
    """The watermark at the head of the file vouches for the file before it up to here."""
    gaps: int = 0
    has_end: bool = False
    """Its last record is one that ends a dump."""
    torn: Torn | None = None
    damage: list[Damage] = field(default_factory=list)


@dataclass(slots=True)
class Survey:
    """A folder, looked through."""

    folder: str
    listing: Listing
    holder: str | None
    """The process that is writing here, if one is."""
    segments: list[SegmentSurvey] = field(default_factory=list)

    @property
    def records(self) -> int:
        return sum(segment.records for segment in self.segments)

    @property
    def bytes(self) -> int:
        return sum(segment.bytes for segment in self.segments)

    @property
    def torn(self) -> list[Torn]:
        return [segment.torn for segment in self.segments if segment.torn is not None]

    @property
    def damage(self) -> list[Damage]:
        return [damage for segment in self.segments for damage in segment.damage]


def survey(
    files: Files,
    folder: str,
    max_payload: int = frame.MAX_PAYLOAD,
    progress: Progress = lambda done, total: None,
    *,
    beside_writer: bool = True,
) -> Survey:
    """Look through all log files of a folder. Raises: DiskError; damage is reported, never raised."""
    try:
        listing = sort_out(files.list(folder))
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    locks = {family.lock_name for family in FAMILIES.values()}
    holders = [*(files.lock_holder(join(folder, name)) for name in sorted(locks)), lock.holder_above(files, folder)]
    holder = next(filter(None, holders), None) if beside_writer else None
    result = Survey(folder, listing, holder)
    total = sum(_size(files, folder, name) for name in listing.segments)
    for stream in listing.streams().values():
        _Look(files, result, max_payload, lambda done: progress(done, total)).through(stream)
    for lost in lost_files(files, folder, listing):
        name = parse(lost.file)
        assert name is not None
        damage = Damage(lost.file, lost.offset, 0, lost.reason, is_missing=True)
        result.segments.append(SegmentSurvey(name, damage=[damage]))
    return result


def _size(files: Files, folder: str, name: FileName) -> int:
    try:
        file = open_for_reading(files, folder, name.name)
    except (FileNotFoundError, DiskError):
        return 0
    try:
        return file_size(file)
    finally:
        file.close()


class _Look:
    """Goes through the files of one log, oldest first."""

    def __init__(self, files: Files, result: Survey, max_payload: int, progress: Callable[[int], None]) -> None:
        self._files, self._result, self._max_payload, self._progress = files, result, max_payload, progress
        self._before: SegmentSurvey | None = None
        self._witness = Witness(files, result.folder)

    def through(self, stream: list[FileName]) -> None:
        # A crash may tear the newest file that has a record; those behind it were only just made.
        newest = len(stream) - 1
        while newest > 0 and self._first_record(stream[newest]) is None:
            newest -= 1
        for place, name in enumerate(stream):
            following = stream[place + 1] if place + 1 < len(stream) else None
            may_be_torn = name.ending is Ending.EACH or (name.ending is Ending.GROWS and place >= newest)
            self._look(name, following, may_be_torn=may_be_torn)

    def _look(self, name: FileName, following: FileName | None, *, may_be_torn: bool) -> None:
        try:
            file = open_for_reading(self._files, self._result.folder, name.name)
        except FileNotFoundError:
            return  # removed since the folder was listed
        except DiskError as error:
            segment = SegmentSurvey(name, damage=[Damage(name.name, 0, 0, error.message, is_repairable=False)])
            self._result.segments.append(segment)
            return
        try:
            segment = SegmentSurvey(name, bytes=file_size(file))
            may_be_torn = may_be_torn and not self._was_all_synced(file, name)
            if self._check_header(file, segment, may_be_torn):
                self._scan(file, segment, following, may_be_torn=may_be_torn)
                self._check_end_of_file_before(segment)
            self._check_promise(file, segment)
        finally:
            file.close()
        if self._result.holder is not None:
            segment.torn = None  # the writer is at it
        self._result.segments.append(segment)
        self._before = segment

    def _check_promise(self, file: File, segment: SegmentSurvey) -> None:
        """What the manifest, or the index of a file that grows, says must be in it."""
        name = segment.name.name
        wrong = self._witness.differs(name, file)
        if wrong is None and not segment.name.is_closed:
            promised = indexes.promised(self._files, self._result.folder, name)
            if promised > segment.bytes and file_size(file) == segment.bytes:
                wrong = ends_early(name, segment.bytes, promised)
            elif segment.torn is not None and segment.torn.offset < promised:
                wrong = Problem(name, segment.torn.offset, f"{segment.torn.reason}, though it was once synced")
        if wrong is None or segment.damage:
            return
        at = segment.bytes if segment.torn is None else segment.torn.offset
        segment.torn = None
        segment.damage.append(Damage(name, min(at, wrong.offset), segment.bytes, wrong.reason))

    def _scan(self, file: File, segment: SegmentSurvey, following: FileName | None, *, may_be_torn: bool) -> None:
        name, format = segment.name.name, segment.format
        assert format is not None
        at, end, done = HEADER_SIZE, segment.bytes, self._result.bytes
        while at < end:
            scan = FileScan(file, at, end, self._max_payload)
            for batch in scan:
                _count(segment, batch, format)
                self._progress(done + batch.end)
            if scan.why is Stop.END and scan.stop >= end:
                break
            reason = REASONS[scan.why or Stop.TRUNCATED]
            if may_be_torn and self._is_torn(file, segment, scan.stop, end, format):
                segment.torn = Torn(name, scan.stop, end - scan.stop, reason)
                return
            reach_ns = self._attested_by(segment.name, following)
            found = next_record(file, scan.stop, end, segment.last_ns, self._max_payload, reach_ns)
            at = end if found is None else found
            # In part it is not what it was written to be: cutting or leaving out would only hide that.
            is_repairable = segment.name.ending is not Ending.WHOLE
            segment.damage.append(Damage(name, scan.stop, at, reason, is_repairable))
        if segment.name.is_dump and not segment.damage and not segment.has_end:
            reason = "it is cut short: its last record is missing"
            segment.damage.append(Damage(name, end, end, reason, is_repairable=False))

    def _was_all_synced(self, file: File, name: FileName) -> bool:
        """It was closed in order, or sealed, as its index says, and has the size that it had then: a start believes
        that, and so does not look for a torn tail."""
        if name.ending is not Ending.GROWS:
            return False
        index = indexes.load(self._files, self._result.folder, name.name, file)
        return index is not None and index.state is not State.GROWING

    def _is_torn(self, file: File, segment: SegmentSurvey, bad_at: int, end: int, format: Format) -> bool:
        """What a crash can have left, in a file that it can have torn."""
        last_good = segment.last_data_ns or (self._before.last_data_ns if self._before else 0)
        if segment.name.ending is Ending.EACH and bad_at:
            return torn_or_not(file, bad_at, end, last_good, format, self._max_payload)[0]
        return not is_attested(file, bad_at, end, last_good, format, self._max_payload)

    def _check_header(self, file: File, segment: SegmentSurvey, may_be_torn: bool) -> bool:
        name, header = segment.name.name, read_header(file)
        if may_be_torn and (header_is_torn(header, None) or len(header) < HEADER_SIZE):
            known = self._before.format if self._before is not None else None
            if all(self._is_torn(file, segment, 0, segment.bytes, each) for each in ([known] if known else ALL)):
                reason = "the file is empty" if not header else "the header is cut short"
                segment.torn = Torn(name, 0, segment.bytes, reason)
                return False
        try:
            segment.format = check_header(file, name)
        except (Corruption, WrongFormat) as error:
            is_repairable = isinstance(error, Corruption) and segment.name.ending is not Ending.WHOLE
            segment.damage.append(Damage(name, 0, segment.bytes, error.reason, is_repairable))
            return False
        return True

    def _attested_by(self, name: FileName, following: FileName | None) -> int | None:
        """How far the next file says that this one reached."""
        if following is None or not follows(name, following):
            return None
        first = self._first_record(following)
        return None if first is None else first[0].read_watermark(first[1])

    def _first_record(self, name: FileName) -> tuple[Format, bytes] | None:
        """Kind of a file and payload of its first record, if that is whole."""
        try:
            file = open_for_reading(self._files, self._result.folder, name.name)
        except (FileNotFoundError, DiskError):
            return None
        try:
            format = check_header(file, name.name)
            head = read_record(file, HEADER_SIZE, file_size(file), self._max_payload)
            return None if isinstance(head, Stop) else (format, read_at(file, head.payload_at, head.size))
        except (Corruption, WrongFormat):
            return None
        finally:
            file.close()

    def _check_end_of_file_before(self, segment: SegmentSurvey) -> None:
        """The watermark at the head of a file vouches for the last record of the file before it."""
        before, attested = self._before, segment.attested_ns
        if before is None or attested is None or before.damage or not follows(before.name, segment.name):
            return
        if attested > max(before.last_data_ns, before.attested_ns or 0):  # what it vouches for itself was before it
            reason = f"the file ends early, records up to {attested} are missing"
            before.damage.append(Damage(before.name.name, before.bytes, before.bytes, reason))


def _count(segment: SegmentSurvey, batch: Batch, format: Format) -> None:
    if not segment.records:
        segment.first_ns = batch.times[0]
        if batch.base == HEADER_SIZE:
            segment.attested_ns = format.read_watermark(batch.payload(0))
    segment.records += len(batch.times)
    segment.has_end = batch.payload(len(batch.times) - 1).startswith(END_OF_DUMP)
    segment.last_ns = batch.times[-1]
    marks: set[int] = set()
    for prefix in format.reserved:
        if batch.lengths.count(len(prefix) + 8):
            marks.update(at for at, size in enumerate(batch.lengths) if size == len(prefix) + 8)
    marks = {at for at in marks if format.is_mark(batch.payload(at))}
    segment.marks += len(marks)
    gaps = {at for at in marks if format.read_gap(batch.payload(at)) is not None}
    segment.gaps += len(gaps)
    places = range(len(batch.times) - 1, -1, -1)
    data = next((at for at in places if format.reaches(batch.times[at], batch.payload(at))), None)
    if data is not None:
        segment.last_data_ns = batch.times[data]


def as_dict(result: Survey) -> dict[str, object]:
    """What ``lamina log verify --json`` prints."""
    return {
        "folder": result.folder,
        "segments": len(result.segments),
        "records": result.records,
        "marks": sum(segment.marks for segment in result.segments),
        "bytes": result.bytes,
        "first_time_ns": min((segment.first_ns for segment in result.segments if segment.records), default=None),
        "last_time_ns": max((segment.last_ns for segment in result.segments if segment.records), default=None),
        "writer": result.holder,
        "torn": [
            {"file": torn.file, "offset": torn.offset, "bytes": torn.bytes, "reason": torn.reason}
            for torn in result.torn
        ],
        "damage": [
            {"file": damage.file, "offset": damage.offset, "end": damage.end, "reason": damage.reason}
            for damage in result.damage
        ],
        "gaps": sum(segment.gaps for segment in result.segments),
        "leftovers": result.listing.leftovers,
        "foreign": result.listing.foreign,
    }
