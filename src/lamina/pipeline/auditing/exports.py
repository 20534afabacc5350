"""The log against a table that was exported from it (jobs/export.py): the same rows, none missing, none more.

    1 the manifest says which rows were exported: of each log, up to a time     2 one task a share of the log: digests
    3 one task a day of the export: digests, and what its files hold            4 where they differ, row by row

Rows of the export that the log has not are no violation if cleaning may have taken them out of the log since: their
file is gone, or was rewritten (holding.py). Rows of the log before the first that was exported are none, either: an
export may begin where somebody wanted it to. That no file of the export is missing is seen by what its manifest says.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from lamina.errors import BadOption
from lamina.log.files import join
from lamina.log.naming import sort_out
from lamina.log.reader import Reader, attested_at_head
from lamina.pipeline import places, storage, views
from lamina.pipeline.auditing import digests
from lamina.pipeline.auditing.digests import Digest, Place, Row
from lamina.pipeline.auditing.export_tasks import DATE, Day, OfDay, OfLog, read_day, read_log, rows_of_log
from lamina.pipeline.auditing.findings import EXPORT_FILES, EXPORT_ROWS, Findings
from lamina.pipeline.auditing.holding import Held
from lamina.pipeline.exporting import asking, pinning, writing
from lamina.pipeline.exporting import manifest as manifests
from lamina.pipeline.exporting.manifest import Manifest
from lamina.pipeline.exporting.target import list_folder
from lamina.pipeline.exporting.writing import Slice
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Times
from lamina.pipeline.places import LogPlace
from lamina.pipeline.running import Runner
from lamina.pipeline.tables import Table
from lamina.pipeline.views.base import TIME_NS

_SUFFIX: Final = ".json"


def check(export: str) -> list[str]:
    """The views in an export. Raises: BadOption if it is none; DiskError."""
    files, to = storage.open_storage(export)
    names = [name for name in list_folder(files, join(to, manifests.FOLDER)) if name.endswith(_SUFFIX)]
    if not names:
        raise BadOption(f"{export} is no export", hint='name the folder that "lamina pipeline export --to" has filled')
    return sorted(name.removesuffix(_SUFFIX) for name in names)


def audit(data: str, export: str, view: str, where: Runner) -> Findings:
    """One view of an export. Raises: Corruption, WrongFormat, DiskError; BadOption."""
    findings = Findings(f"export of {view}")
    files, to = storage.open_storage(export)
    manifest = manifests.load(files, to, view)
    if manifest is None:
        return findings
    if reason := _why_not(manifest):
        findings.note(EXPORT_ROWS, f"not compared: {reason}")
        return findings
    return _Audit(findings, data, to, manifest, where).run()


def _why_not(manifest: Manifest) -> str:
    if manifest.format != asking.PARQUET:
        return f"it is a {manifest.format} table, of which only its own reader knows what counts"
    if views.find(manifest.view, None).is_state:
        return "it is a state as it was at some time, not rows of the log"
    if TIME_NS.name not in manifest.columns:
        return f"it has no column {TIME_NS.name}"
    if manifest.moving or manifest.swap:
        return "a run of the export was cut short: run it once more"
    return ""


class _Audit:
    def __init__(self, findings: Findings, data: str, to: str, manifest: Manifest, where: Runner) -> None:
        self._findings, self._data, self._manifest, self._where = findings, data, manifest, where
        self._folder = join(to, manifest.view)
        self._columns = tuple(manifest.columns)
        options = ReadOptions.parse({"path": data, "view": manifest.view})
        self._table = Table(replace(options, min_partitions=1, max_partition_bytes=asking.TASK_BYTES))
        self._disk, self._path = storage.open_storage(data)

    def run(self) -> Findings:
        shares = [OfLog(self._data, self._manifest.view, self._columns, share) for share in self._shares()]
        of_log = digests.together(self._where.map(read_log, shares))
        days = self._where.map(read_day, [OfDay(self._folder, day, self._columns) for day in self._manifest.days])
        self._check_files(days)
        of_export = digests.together(day.found for day in days)
        differing = set()
        for place in {*of_log, *of_export}:
            before, after = of_log.get(place, Digest()), of_export.get(place, Digest())
            self._findings.looked(EXPORT_ROWS, max(before.rows, after.rows))
            if before != after:
                differing.add(place)
        if differing:
            self._row_by_row(shares, frozenset(differing), of_export)
        return self._findings

    # -- the log -----------------------------------------------------------------------------------------------------

    def _shares(self) -> list[tuple[Slice, ...]]:
        """All rows of the log that the export has, as one that begins anew would read them."""
        found = pinning.pin_new(self._disk, self._path, self._table.logs, {}, {}, Times(), None, 0)
        slices = []
        for new in found.news:
            position = self._manifest.positions.get(new.key)
            if position is None or not new.snapshot.files:
                continue
            snapshot, times = new.snapshot, Times(until=position + 1)
            if new.place.kind == places.STORE:  # whole files: each begins with a mark of the last record before it
                times = Times()
                kept = tuple(file for file in snapshot.files if (file.first_ns or 0) < position)
                snapshot = replace(snapshot, files=kept)
            tasks = self._table.plan(snapshot, times) if snapshot.files else []
            slices += [Slice(new.key, task, times) for task in tasks if any(writing.pieces_of(task))]
        return writing.pack(slices, asking.TASK_BYTES)

    # -- the export --------------------------------------------------------------------------------------------------

    def _check_files(self, days: list[Day]) -> None:
        for (name, known), found in zip(self._manifest.days.items(), days, strict=True):
            rows = sum(part.rows for part in found.found.values())
            file = f"{DATE}{name}"
            self._findings.looked(EXPORT_FILES, rows)
            if found.problem is not None:
                self._findings.violated(EXPORT_FILES, f"{file}/{found.problem[0]}", 0, None, found.problem[1])
            elif (found.files, rows) != (known.files, known.rows):
                reason = (
                    f"{found.files} files with {rows} rows are there, "
                    f"the manifest says {known.files} files with {known.rows} rows"
                )
                self._findings.violated(EXPORT_FILES, file, 0, None, reason)
            if strange := [day for _, day in found.found if day != name]:
                self._findings.violated(EXPORT_FILES, file, 0, None, f"it holds rows of {strange[0]}")

    # -- differences -------------------------------------------------------------------------------------------------

    def _row_by_row(self, shares: list[OfLog], differing: frozenset[Place], of_export: dict[Place, Digest]) -> None:
        days = {day for _, day in differing} & set(self._manifest.days)
        of_log = self._where.map(rows_of_log, [replace(share, only=differing) for share in shares])
        tasks = [OfDay(self._folder, day, self._columns, differing) for day in sorted(days)]
        in_log = _by_place(row for rows in of_log for row in rows)
        in_export = _by_place(row for one in self._where.map(read_day, tasks) for row in one.rows)
        for log, day in sorted(differing):
            only_log, only_export = _difference(sorted(in_log[log, day]), sorted(in_export[log, day]))
            began = min((part.first_ns for (name, _), part in of_export.items() if name == log), default=None)
            self._look_at_fewer(log, day, only_log, {time_ns for _, time_ns, _ in only_export}, began)
            theirs = {time_ns for _, time_ns, _ in only_log}
            more = [time_ns for _, time_ns, _ in only_export if time_ns not in theirs]
            self._look_at_more(log, f"{DATE}{day}", more)

    def _look_at_fewer(self, log: str, day: str, rows: list[Row], others: set[int], began: int | None) -> None:
        """Records that the export has no such row for; ``others``: times of rows that no such record has."""
        file, before = f"{DATE}{day}", 0
        for _, time_ns, _ in rows:
            if time_ns in others:
                reason = f"the row of {_shown(log)} has other values than its record"
                self._findings.violated(EXPORT_ROWS, file, 0, time_ns, reason)
            elif began is None or time_ns < began:
                before += 1
            else:
                reason = f"the row of a record of {_shown(log)} is missing"
                self._findings.violated(EXPORT_ROWS, file, 0, time_ns, reason)
        if before:
            text = f"{before} records of {_shown(log)}, {day}, are before the first that was exported"
            self._findings.note(EXPORT_ROWS, text)

    def _look_at_more(self, log: str, file: str, times: list[int]) -> None:
        """Rows that the log has no record for."""
        if not times:
            return
        removed = 0
        evidence = self._removed(log)
        for time_ns in times:
            if evidence is None or time_ns < evidence:
                removed += 1
            else:
                reason = f"{_shown(log)} has no record of that time, and nothing shows that one was removed"
                self._findings.violated(EXPORT_ROWS, file, 0, time_ns, reason)
        if removed:
            text = f"{removed} rows of {_shown(log)}, {file}, were removed from the log since they were exported"
            self._findings.note(EXPORT_ROWS, text)

    def _removed(self, log: str) -> int | None:
        """Before which time records of a log may have been removed; None: at any time."""
        logs = [place for place in self._table.logs if log in ("", place.path, place.name)]
        borders = [_removed_before(self._data, place) for place in logs]
        return None if None in borders or not borders else max(border or 0 for border in borders)


def _removed_before(data: str, place: LogPlace) -> int | None:
    """As ``_Audit._removed``, of one log. Raises: LaminaError."""
    disk, _ = storage.open_storage(data)
    if place.kind in (places.STORE, places.QUEUES):
        return None  # what was merged or folded is gone from the files that were exported
    with Held(disk, place.folder) as held:
        files = next(iter(held.streams.values()), [])
        if any(not file.is_sealed_whole for file in files) and place.kind in (places.JOBS, places.TOPIC):
            return None
        numbers = [file.name.number for file in files]
        if place.kind == places.JOBS and numbers != list(range(1, len(numbers) + 1)):
            return None
    reader = Reader(place.folder, stream=files[0].name.stream if files else None, files=disk)
    names = sort_out(disk.list(place.folder)).segments
    segment = reader.open(names[0], is_newest=True) if names else None
    if segment is None:
        return None
    try:
        return (attested_at_head(segment, reader.max_payload) or -1) + 1
    finally:
        segment.file.close()


def _by_place(rows: Iterable[Row]) -> dict[Place, list[Row]]:
    found: dict[Place, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0], writing.show_day(row[1])].append(row)
    return found


def _difference(first: list[Row], second: list[Row]) -> tuple[list[Row], list[Row]]:
    """What only one of two sorted lists has; what is in both more than once is told too."""
    ours, theirs = [], []
    at = to = 0
    while at < len(first) or to < len(second):
        if to == len(second) or (at < len(first) and first[at] < second[to]):
            ours.append(first[at])
            at += 1
        elif at == len(first) or second[to] < first[at]:
            theirs.append(second[to])
            to += 1
        else:
            at, to = at + 1, to + 1
    return ours, theirs


def _shown(log: str) -> str:
    return log or "the log"
