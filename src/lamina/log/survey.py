"""Looking through every byte of a folder of log files, of whatever family, changing nothing.

What ``lamina log verify`` shows and ``lamina log repair`` works from. Needs no lock: beside a running writer the bytes
it is just writing are not taken for a torn tail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log import frame
from lamina.log.attest import is_attested, next_record
from lamina.log.files import File, Files, join, read_at
from lamina.log.formats import Format
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import FAMILIES, FileName, Listing, follows, sort_out
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
    holders = [files.lock_holder(join(folder, name)) for name in sorted(locks)]
    holder = next(filter(None, holders), None) if beside_writer else None
    result = Survey(folder, listing, holder)
    for stream in listing.streams().values():
        before: SegmentSurvey | None = None
        for name, following in zip(stream, [*stream[1:], None], strict=True):
            reach_ns = _peek_attested(files, folder, name, following, max_payload)
            looked = _look_through(
                files, folder, name, following is None, before, reach_ns, max_payload, result, progress
            )
            if looked is not None:
                result.segments.append(looked)
                before = looked
    return result


def _look_through(
    files: Files,
    folder: str,
    name: FileName,
    is_newest: bool,
    before: SegmentSurvey | None,
    reach_ns: int | None,
    max_payload: int,
    result: Survey,
    progress: Progress,
) -> SegmentSurvey | None:
    try:
        file = open_for_reading(files, folder, name.name)
    except FileNotFoundError:
        return None  # removed since the folder was listed
    segment = SegmentSurvey(name, bytes=file.size())
    done = result.bytes
    try:
        if not _check_header(file, segment, is_newest):
            return segment
        tell = lambda at: progress(done + at, done + segment.bytes)  # noqa: E731
        _scan(file, segment, before, is_newest, reach_ns, max_payload, tell)
        if before is not None:
            _check_end_of(before, segment)
    except OSError as error:
        raise from_os(error, "read the file", file.path) from error
    finally:
        file.close()
    if result.holder is not None and segment.torn is not None:
        segment.torn = None  # the writer is at it
    return segment


def _peek_attested(
    files: Files, folder: str, name: FileName, following: FileName | None, max_payload: int
) -> int | None:
    """How far the next file says that this one reached."""
    if following is None or not follows(name, following):
        return None
    try:
        file = open_for_reading(files, folder, following.name)
    except FileNotFoundError:
        return None
    try:
        head = read_record(file, HEADER_SIZE, file.size(), max_payload)
        if isinstance(head, Stop):
            return None
        return check_header(file, following.name).read_watermark(read_at(file, head.payload_at, head.size))
    except (Corruption, WrongFormat):
        return None
    finally:
        file.close()


def _check_header(file: File, segment: SegmentSurvey, is_newest: bool) -> bool:
    name = segment.name.name
    header = read_header(file)
    if is_newest and (header_is_torn(header, None) or len(header) < HEADER_SIZE):
        reason = "the file is empty" if not header else "the header is cut short"
        segment.torn = Torn(name, 0, segment.bytes, reason)
        return False
    try:
        segment.format = check_header(file, name)
    except (Corruption, WrongFormat) as error:
        is_repairable = isinstance(error, Corruption)
        segment.damage.append(Damage(name, 0, segment.bytes, error.reason, is_repairable))
        return False
    return True


def _scan(
    file: File,
    segment: SegmentSurvey,
    before: SegmentSurvey | None,
    is_newest: bool,
    reach_ns: int | None,
    max_payload: int,
    progress: Callable[[int], None],
) -> None:
    name, format = segment.name.name, segment.format
    assert format is not None
    at, end = HEADER_SIZE, segment.bytes
    while True:
        scan = FileScan(file, at, end, max_payload)
        for batch in scan:
            _count(segment, batch, format)
            progress(batch.end)
        if scan.why is Stop.END and scan.stop >= end:
            return
        reason = REASONS[scan.why or Stop.TRUNCATED]
        last_good = segment.last_data_ns or (before.last_data_ns if before else 0)
        if is_newest and not is_attested(file, scan.stop, end, last_good, format, max_payload):
            segment.torn = Torn(name, scan.stop, end - scan.stop, reason)
            return
        following = next_record(file, scan.stop, end, segment.last_ns, max_payload, reach_ns)
        at = end if following is None else following
        segment.damage.append(Damage(name, scan.stop, at, reason))
        if at >= end:
            return


def _count(segment: SegmentSurvey, batch: Batch, format: Format) -> None:
    if not segment.records:
        segment.first_ns = batch.times[0]
        if batch.base == HEADER_SIZE:
            segment.attested_ns = format.read_watermark(batch.payload(0))
    segment.records += len(batch.times)
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


def _check_end_of(before: SegmentSurvey, segment: SegmentSurvey) -> None:
    attested = segment.attested_ns
    if attested is None or attested <= before.last_data_ns or before.damage or not follows(before.name, segment.name):
        return
    reason = f"the file ends early, records up to {attested} are missing"
    before.damage.append(Damage(before.name.name, before.bytes, before.bytes, reason))


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
