"""``audit``: proves over the whole history that what must be so is so, and changes nothing.

One task a log (auditing/), each of which says what it has looked at and what is wrong; what one log has wrong does not
keep the others from being looked at. Given an export, its rows are compared with those of the log. There is nothing to
commit. It needs no lock, and works beside a server: what a log holds is what it held when its task began.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.errors import Corruption, DiskError, LaminaError, WrongFormat
from lamina.log.files import Files, join
from lamina.log.naming import sort_out
from lamina.pipeline import places, storage
from lamina.pipeline.auditing import findings as finding
from lamina.pipeline.auditing import groups, queues, store, topics
from lamina.pipeline.auditing import jobs as job_log
from lamina.pipeline.auditing.findings import FRAMES, Check, Findings
from lamina.pipeline.auditing.holding import Held
from lamina.pipeline.auditing.walking import Walk
from lamina.pipeline.choosing import runner
from lamina.pipeline.jobs.place import size_of
from lamina.pipeline.places import LogPlace
from lamina.pipeline.running import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_OF_WALK: dict[str, Callable[[Findings, Walk], None]] = {
    places.JOBS: job_log.audit,
    places.TOPIC: topics.audit,
    places.GROUPS: groups.audit,
}


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What was proved."""

    data: str
    checks: list[Check]
    logs: int
    bytes: int
    engine: str
    seconds: float

    @property
    def violations(self) -> int:
        return sum(check.count for check in self.checks)

    @property
    def is_sound(self) -> bool:
        return not self.violations

    def as_dict(self) -> dict[str, object]:
        return {
            "data": self.data,
            "sound": self.is_sound,
            "violations": self.violations,
            "logs": self.logs,
            "bytes": self.bytes,
            "checks": [check.as_dict() for check in self.checks],
            "engine": self.engine,
            "seconds": self.seconds,
        }


@dataclass(frozen=True, slots=True)
class _Task:
    data: str
    place: LogPlace


def audit(
    data: str,
    *,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    export: str | None = None,
    progress: Progress = lambda done, total: None,
) -> AuditReport:
    """Look through all logs under ``data``, and compare them with ``export``, a folder that the job export has filled.

    Damage is reported, never raised. ``progress`` is told how many bytes of the logs are done.
    Raises: BadOption if there is no log, or no export; DiskError if the folder cannot be listed; MissingExtra.
    """
    start = time.monotonic()
    data = data if "://" in data else os.path.abspath(data)
    disk, path = storage.open_storage(data)
    found = places.find(disk, path)
    if export is not None:
        from lamina.pipeline.auditing import exports

        export = export if "://" in export else os.path.abspath(export)
        exported = exports.check(export)
    sizes = [_size(disk, place) for place in found]

    def step(done: int, total: int) -> None:
        progress(sum(sizes[:done]), sum(sizes))

    with runner(engine, size=sum(sizes), spark=spark, master=master, conf=conf) as where:
        results = where.map(audit_log, [_Task(data, place) for place in found], step)
        if export is not None:
            results += [_guarded(view, lambda v=view: exports.audit(data, export, v, where)) for view in exported]  # type: ignore[misc]
    return AuditReport(
        data=data,
        checks=finding.together(results),
        logs=len(found),
        bytes=sum(sizes),
        engine=where.name,
        seconds=round(time.monotonic() - start, 3),
    )


def _guarded(view: str, look: Callable[[], Findings]) -> Findings:
    """What cannot be read has been told of its log; of the export nothing is proved then."""
    try:
        return look()
    except (Corruption, WrongFormat) as error:
        findings = Findings(f"export of {view}")
        findings.violated(finding.EXPORT_ROWS, error.file, error.offset, None, f"it cannot be compared: {error.reason}")
        return findings


def audit_log(task: _Task) -> Findings:
    """One log. Raises: StorageError if it is cleaned too quickly to be looked at."""
    disk, _ = storage.open_storage(task.data)
    place = task.place
    findings = Findings(place.path)
    try:
        with Held(disk, place.folder) as held:
            if place.kind == places.STORE:
                store.audit(findings, held)
            elif place.kind == places.QUEUES:
                queues.audit(findings, held)
            else:
                _audit_walked(findings, held, place.kind)
    except (Corruption, WrongFormat) as error:
        findings.violated(FRAMES, error.file, error.offset, None, error.reason)
    except DiskError as error:
        findings.violated(FRAMES, place.folder, 0, None, error.message)
    return findings


def _audit_walked(findings: Findings, held: Held, kind: str) -> None:
    look = _OF_WALK.get(kind)
    for files in held.streams.values():
        walk = Walk(findings, files)
        if look is not None:
            look(findings, walk)
        else:
            for _ in walk.batches():
                pass


def _size(disk: Files, place: LogPlace) -> int:
    try:
        names = sort_out(disk.list(place.folder)).segments
        return sum(size_of(disk, join(place.folder, name.name)) for name in names)
    except (OSError, LaminaError):
        return 0  # told by who reads it
