"""Making a damaged log whole again, keeping every byte that is taken out of it.

Torn tails are cut as at any open. A damaged range is copied to ``<name>.broken-<time>`` and the file is rewritten
without it, with a gap mark in its place: readers see that something is missing there and how many bytes. A file of
another kind or of a later version is left alone: it may be whole for somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lamina.clock import Clock
from lamina.errors import from_os
from lamina.log import frame, kernel, recovery, rewrite
from lamina.log.files import File, Files, join
from lamina.log.formats import Format
from lamina.log.index import Index, newest_data
from lamina.log.naming import FAMILIES, follows
from lamina.log.recovery import Examined, RecoveryReport
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.survey import Damage, SegmentSurvey, Survey, survey


@dataclass(slots=True)
class RepairReport:
    """What was done, in words, and what could not be."""

    done: list[str] = field(default_factory=list)
    left: list[Damage] = field(default_factory=list)


def plan(found: Survey) -> list[str]:
    """What a repair would do, in words."""
    steps = [
        f"{torn.file}, byte {torn.offset}: cut a torn tail of {torn.bytes} bytes ({torn.reason})" for torn in found.torn
    ]
    for damage in found.damage:
        place = f"{damage.file}, byte {damage.offset}"
        if damage.is_repairable:
            steps.append(f"{place}: quarantine {damage.end - damage.offset} bytes ({damage.reason}), leave a gap mark")
        else:
            steps.append(f"{place}: leave alone ({damage.reason})")
    return steps + [f"{name}: remove a half-done replacement" for name in found.listing.leftovers]


def repair_held(files: Files, folder: str, clock: Clock, max_payload: int = frame.MAX_PAYLOAD) -> RepairReport:
    """Repair every log of a folder. The caller holds its lock. Raises: DiskError, DiskFull."""
    report = RepairReport()
    found = survey(files, folder, max_payload, beside_writer=False)
    before: SegmentSurvey | None = None
    last_ns = 0
    try:
        for segment, following in zip(found.segments, [*found.segments[1:], None], strict=True):
            if before is None or before.name.stream != segment.name.stream:
                before, last_ns = None, 0
            # The times of gap marks must not go back: as-of reads choose the file by them.
            last_ns = max(last_ns, segment.attested_ns or 0)
            if segment.damage:
                neighbours = [near.format for near in (before, following) if near is not None]
                segment.format = next(filter(None, [segment.format, *neighbours]), None)
                reach_ns = _attested(segment, following)
                _rewrite(files, folder, segment, last_ns, reach_ns, clock, max_payload, report)
            elif segment.torn is not None:
                _cut(files, folder, segment, clock, report)
            before, last_ns = segment, max(last_ns, segment.last_ns)
        rewrite.remove_leftovers(files, folder, found.listing.leftovers)
    except OSError as error:
        raise from_os(error, "repair the log", folder) from error
    report.done += [f"{name}: removed a half-done replacement" for name in found.listing.leftovers]
    return report


def _attested(segment: SegmentSurvey, following: SegmentSurvey | None) -> int:
    """How far the file after it says that a file reached."""
    if following is None or following.name.stream != segment.name.stream:
        return 0
    return following.attested_ns or 0 if follows(segment.name, following.name) else 0


def _cut(files: Files, folder: str, segment: SegmentSurvey, clock: Clock, report: RepairReport) -> None:
    assert segment.torn is not None
    kept = Index()
    kept.bytes, kept.records = segment.torn.offset, segment.records
    recovered = RecoveryReport()
    examined = Examined(kept, frame.Stop.TRUNCATED, segment.bytes, is_clean=False)
    recovery.cut(files, folder, segment.name.name, examined, recovered, clock)
    report.done += recovered.warnings() or [f"{segment.name.name}: removed a file that had no record yet"]


def _rewrite(
    files: Files,
    folder: str,
    segment: SegmentSurvey,
    last_ns: int,
    reach_ns: int,
    clock: Clock,
    max_payload: int,
    report: RepairReport,
) -> None:
    """Take the damaged ranges out of a file; the one before it ends at ``last_ns``, it should reach ``reach_ns``."""
    name = segment.name.name
    if segment.format is None or not all(damage.is_repairable for damage in segment.damage):
        report.left += segment.damage
        return
    family = FAMILIES[segment.name.family]
    file = files.open(join(folder, name))
    try:
        for damage in segment.damage:
            size = damage.end - damage.offset
            kept_as = ""
            if size:
                kept_as = recovery.keep_aside(
                    files, folder, file, name, damage.offset, damage.end, clock, what="broken"
                )
            where = f"{size} bytes kept in {kept_as}" if size else "nothing to keep"
            report.done.append(f"{name}, byte {damage.offset}: {damage.reason}; {where}, gap marked")
        if segment.torn is not None:
            end = segment.torn.offset
            kept_as = recovery.keep_aside(files, folder, file, name, end, segment.bytes, clock)
            report.done.append(f"{name}, byte {end}: cut a torn tail, kept in {kept_as}")
        else:
            end = segment.bytes
        chunks = _chunks_without(file, segment.damage, end, last_ns, reach_ns, segment.format, max_payload)
        rewrite.replace(files, folder, name, chunks, family)
    finally:
        file.close()


def _chunks_without(
    file: File, damaged: list[Damage], end: int, last_ns: int, reach_ns: int, format: Format, max_payload: int
) -> Iterator[bytes]:
    yield format.header
    at, reached_ns = HEADER_SIZE, 0
    for damage in damaged:
        yield from recovery.chunks_of(file, at, damage.offset)
        last_ns, reached_ns = _last_times(file, at, damage.offset, format, max_payload, last_ns, reached_ns)
        # One stamp later than the record before: the records lost had later ones still.
        last_ns += 1
        yield kernel.encode_many(last_ns, (format.gap(damage.end - damage.offset),))
        at = max(damage.end, HEADER_SIZE)
    yield from recovery.chunks_of(file, at, end)
    last_ns, reached_ns = _last_times(file, at, end, format, max_payload, last_ns, reached_ns)
    if reached_ns < reach_ns:
        # Stands in for the last record (Format.reaches): that it is missing is known now.
        yield kernel.encode_many(reach_ns, (format.watermark(reach_ns),))


def _last_times(
    file: File, start: int, end: int, format: Format, max_payload: int, last_ns: int, reached_ns: int
) -> tuple[int, int]:
    """The last time of a range, and of the last record there that shows how far the log reached."""
    for batch in FileScan(file, start, end, max_payload):
        last_ns = batch.times[-1]
        reached_ns = newest_data(batch, format) or reached_ns
    return last_ns, reached_ns
