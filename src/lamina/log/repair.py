"""Making a damaged log whole again, keeping every byte that is taken out of it.

Torn tails are cut as at any open. A damaged range is copied to ``<name>.broken-<time>`` and the file is rewritten
without it, with a gap mark in its place: readers see that something is missing there and how many bytes. A file of
another kind or of a later version is left alone: it may be whole for somebody else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from lamina.clock import Clock
from lamina.errors import BadOption, from_os
from lamina.log import frame, kernel, manifest, recovery, rewrite
from lamina.log.files import File, Files, join
from lamina.log.formats import Format
from lamina.log.index import Index, newest_data
from lamina.log.naming import FAMILIES, Listing, follows
from lamina.log.recovery import Examined, RecoveryReport
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.survey import Damage, SegmentSurvey, Survey, survey


@dataclass(slots=True)
class RepairReport:
    """What was done, in words, and what could not be."""

    done: list[str] = field(default_factory=list)
    left: list[Damage] = field(default_factory=list)


def is_store(listing: Listing) -> bool:
    """Files of a store: what of them counts is said in others of them, which a log knows nothing of."""
    is_named = any(name.startswith("compaction_catalog") for name in listing.companions)
    return is_named or any(name.family == "pwal" for name in listing.segments)


def check_is_no_store(folder: str, listing: Listing) -> None:
    """Raises: BadOption: cutting a file of a store could make it one that is refused, or that has lost a session."""
    if is_store(listing):
        hint = f'use "lamina store verify {folder}" and "lamina store repair {folder}"'
        raise BadOption(f"{folder} is a store, whose files are not repaired one by one", hint=hint)


def plan(found: Survey) -> list[str]:
    """What a repair would do, in words."""
    steps = [
        f"{torn.file}, byte {torn.offset}: cut a torn tail of {torn.bytes} bytes ({torn.reason})" for torn in found.torn
    ]
    for damage in found.damage:
        place = f"{damage.file}, byte {damage.offset}"
        if damage.is_missing:
            steps.append(f"{damage.file}: it is missing; go on without it")
        elif damage.is_repairable:
            steps.append(f"{place}: quarantine {damage.end - damage.offset} bytes ({damage.reason}), leave a gap mark")
        else:
            steps.append(f"{place}: leave alone ({damage.reason})")
    return steps + [f"{name}: remove a half-done replacement" for name in found.listing.leftovers]


def repair_held(files: Files, folder: str, clock: Clock, max_payload: int = frame.MAX_PAYLOAD) -> RepairReport:
    """Repair every log of a folder. The caller holds its lock. Raises: DiskError, DiskFull."""
    found = survey(files, folder, max_payload, beside_writer=False)
    repair = _Repair(files, folder, clock, max_payload)
    streams: dict[str, list[SegmentSurvey]] = {}
    for segment in found.segments:
        streams.setdefault(segment.name.stream, []).append(segment)
    leftovers = found.listing.leftovers
    try:
        for stream in streams.values():
            repair.log(stream)
        if found.damage and not repair.report.left:
            names = [segment.name for segment in found.segments if segment.name.family in manifest.KEPT_FOR]
            manifest.give_up(files, folder)
            if len(names) > 1:
                manifest.rebuild(files, folder, names)
        rewrite.remove_leftovers(files, folder, leftovers)
    except OSError as error:
        raise from_os(error, "repair the log", folder) from error
    repair.report.done += [f"{name}: removed a half-done replacement" for name in leftovers]
    return repair.report


class _Repair:
    """Mends the files of a folder one after the other."""

    def __init__(self, files: Files, folder: str, clock: Clock, max_payload: int) -> None:
        self._files, self._folder, self._clock, self._max_payload = files, folder, clock, max_payload
        self.report = RepairReport()

    def log(self, segments: list[SegmentSurvey]) -> None:
        """Mend one log, oldest file first."""
        last_ns = 0
        format = next((segment.format for segment in segments if segment.format is not None), None)
        for segment, following in zip(segments, [*segments[1:], None], strict=True):
            # The times of gap marks must not go back: as-of reads choose the file by them.
            last_ns = max(last_ns, segment.attested_ns or 0)
            if any(damage.is_missing for damage in segment.damage):
                self.report.done.append(f"{segment.name.name}: it is missing, and is not asked for any more")
            elif segment.damage:
                self._take_out(segment, segment.format or format, last_ns, _attested_by(following, segment))
            elif segment.torn is not None:
                self._cut(segment)
            last_ns = max(last_ns, segment.last_ns)

    def _cut(self, segment: SegmentSurvey) -> None:
        assert segment.torn is not None
        name = segment.name.name
        kept = Index()
        kept.bytes, kept.records = segment.torn.offset, segment.records
        examined = Examined(kept, frame.Stop.TRUNCATED, is_clean=False)
        recovered = RecoveryReport()
        recovery.cut(self._files, self._folder, name, examined, recovered, self._clock)
        self.report.done += recovered.warnings() or [f"{name}: removed a file that had no record yet"]

    def _take_out(self, segment: SegmentSurvey, format: Format | None, last_ns: int, reach_ns: int) -> None:
        """Rewrite a file without its damage. The log before it ends at ``last_ns``; it should reach ``reach_ns``."""
        name, done = segment.name.name, self.report.done
        if format is None or not all(damage.is_repairable for damage in segment.damage):
            self.report.left += segment.damage
            return
        end = segment.bytes if segment.torn is None else segment.torn.offset
        file = self._files.open(join(self._folder, name))
        try:
            for damage in segment.damage:
                kept = self._keep(file, name, damage.offset, damage.end, "broken")
                done.append(f"{name}, byte {damage.offset}: {damage.reason}; {kept}, gap marked")
            if segment.torn is not None:
                kept = self._keep(file, name, end, segment.bytes, "torn")
                done.append(f"{name}, byte {end}: cut a torn tail; {kept}")
            chunks = self._rest(file, segment.damage, end, format, last_ns, reach_ns)
            rewrite.replace(self._files, self._folder, name, chunks, FAMILIES[segment.name.family])
        finally:
            file.close()

    def _keep(self, file: File, name: str, start: int, end: int, what: str) -> str:
        if start == end:
            return "nothing to keep"
        kept_as = recovery.keep_aside(self._files, self._folder, file, name, start, end, self._clock, what)
        return f"{end - start} bytes kept in {kept_as}"

    def _rest(
        self, file: File, damaged: list[Damage], end: int, format: Format, last_ns: int, reach_ns: int
    ) -> Iterator[bytes]:
        """The file without the damaged ranges, a gap mark for each."""
        yield format.header
        at, reached_ns = HEADER_SIZE, 0
        for damage in [*damaged, None]:
            stop = end if damage is None else damage.offset
            yield from recovery.chunks_of(file, at, stop)
            for batch in FileScan(file, at, stop, self._max_payload):
                last_ns = batch.times[-1]
                reached_ns = newest_data(batch, format) or reached_ns
            if damage is not None:
                # One stamp later than the record before: the records lost had later ones still.
                last_ns += 1
                yield kernel.encode_many(last_ns, (format.gap(damage.end - damage.offset),))
                at = max(damage.end, HEADER_SIZE)
        if reached_ns < reach_ns:
            # Stands in for the last record (Format.reaches): that it is missing is known now.
            yield kernel.encode_many(reach_ns, (format.watermark(reach_ns),))


def _attested_by(following: SegmentSurvey | None, segment: SegmentSurvey) -> int:
    """How far the next file says that this one reached, 0 if it does not."""
    if following is None or not follows(segment.name, following.name):
        return 0
    return following.attested_ns or 0
