"""``report``: one page of HTML about a data folder: how much, how fast, what failed, what waits, what takes the room.

    1 pin the files, divide them     2 one task a share: counts and histograms, small whatever the share is
    3 put them together              4 draw the page, in memory
    5 write it under another name, sync, rename

Commit: the rename of step 5. Nothing is locked, and nothing of the data folder is changed: it works beside a server.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lamina.errors import BadOption, DiskError, from_os
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.rewrite import write_new
from lamina.pipeline.choosing import runner
from lamina.pipeline.options import parse_moment
from lamina.pipeline.pieces import Times
from lamina.pipeline.reporting import disk, facts
from lamina.pipeline.reporting.drawing import Drawing
from lamina.pipeline.reporting.facts import Facts
from lamina.pipeline.reporting.page import page
from lamina.pipeline.reporting.sections import sections
from lamina.pipeline.running import Progress, Runner
from lamina.units import parse_duration, show_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_NEW: Final = ".new"
"""The name of a page that is being written ends so; what a crash leaves of it, the next run replaces."""
_LEAST_NS: Final = 10**6


@dataclass(frozen=True, slots=True)
class ReportSummary:
    """What the report is about."""

    path: str
    """Of the page."""
    bytes: int
    """Of the page."""
    sections: list[str]
    totals: dict[str, int]
    """What was counted in the time of the report, such as ``jobs.added``."""
    records: int
    logs: int
    disk_bytes: int
    damage: int
    """Places that cannot be read."""
    first: str | None
    """Time of the first record."""
    last: str | None
    bucket_seconds: float
    engine: str
    seconds: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def report(
    data: str,
    to: str = "report.html",
    *,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    since: str | int | None = None,
    until: str | int | None = None,
    bucket: str | float | None = None,
    now: int | None = None,
    progress: Progress = lambda done, total: None,
) -> ReportSummary:
    """Write a report about a data folder, or one log of it, as the page ``to``.

    ``since``, ``until``: only what was written then. ``bucket``: seconds (or ``5m``) of a step of the plots, else what
    fits the time. ``now``: nanoseconds, the time that the page says it was made; the same folder then gives the same
    bytes, on every engine.
    Durability: when it returns, the page is synced under its name.
    Raises: BadOption, MissingExtra; WrongFormat; Corruption of what says which files count; DiskFull, DiskError,
        StorageError: then what had the name ``to`` before is as it was.
    """
    start = time.monotonic()
    times = Times(_moment("since", since), _moment("until", until))
    if times.is_empty:
        raise BadOption("until is not after since", hint="exchange the two")
    width = _width(bucket)
    data = data if "://" in data else os.path.abspath(data)
    files, path = _target(to, data)
    with ExitStack() as stack:

        def begin(size: int) -> Runner:
            return stack.enter_context(runner(engine, size=size, spark=spark, master=master, conf=conf))

        found, name = facts.gather(data, times, width, begin, progress)
    rooms = disk.look(data)
    drawing = Drawing(found)
    made = sections(drawing, rooms)
    text = page(data, drawing, rooms, made, time.time_ns() if now is None else now).encode("utf-8", "replace")
    _write(files, path, text)
    return ReportSummary(
        path=path,
        bytes=len(text),
        sections=["overview", *(section.name for section in made)],
        totals=_totals(drawing),
        records=sum(log.records for log in found.tally.logs.values()),
        logs=len(found.logs),
        disk_bytes=rooms.total,
        damage=found.tally.damages,
        first=_shown(found, found.first_ns),
        last=_shown(found, found.last_ns),
        bucket_seconds=found.tally.width / 10**9,
        engine=name,
        seconds=round(time.monotonic() - start, 3),
    )


def _moment(name: str, given: str | int | None) -> int | None:
    return parse_moment(name, given) if isinstance(given, str) else given


def _width(bucket: str | float | None) -> int | None:
    if bucket is None:
        return None
    try:
        width = round((parse_duration(bucket) if isinstance(bucket, str) else bucket) * 10**9)
    except BadOption as error:
        raise BadOption(f"bucket: {error.message}", hint=error.hint) from None
    if width < _LEAST_NS:
        raise BadOption(f"bucket: {bucket} is too short", hint="a step is at least 1ms")
    return width


def _shown(found: Facts, time_ns: int) -> str | None:
    return show_time(time_ns) if found.tally.logs and time_ns else None


def _totals(drawing: Drawing) -> dict[str, int]:
    levels = ("jobs.waiting", "jobs.running", "queues.waiting")
    counted = {name: drawing.total(name) for name in sorted(drawing.tally.series) if name not in levels}
    counted = {name: number for name, number in counted.items() if number}
    return counted | {name: round(drawing.levels(name)[-1] or 0) for name in levels if name in drawing.tally.series}


# -- the page on the disk --------------------------------------------------------------------------------------------


def _target(to: str, data: str) -> tuple[Files, str]:
    """Where the page goes, tried before the work begins. Raises: BadOption, DiskError, DiskFull."""
    if "://" in to:
        raise BadOption(f"{to}: the page is written to a disk", hint="name a file, such as report.html")
    if not to or to.endswith("/"):
        raise BadOption(f"to: {to!r} names no file", hint="name a file, such as report.html")
    path = os.path.abspath(to)
    if "://" not in data and os.path.realpath(path).startswith(os.path.realpath(data).rstrip("/") + "/"):
        raise BadOption(f"{to} is in the data folder itself", hint="name a file outside of it")
    if os.path.isdir(path):
        raise BadOption(f"to: {to} is a folder", hint="name a file in it, such as report.html")
    files = RealFiles()
    _write_new(files, path, b"")
    with suppress(OSError):
        files.remove(path + _NEW)
    return files, path


def _write_new(files: Files, path: str, content: bytes) -> None:
    try:
        with suppress(FileNotFoundError):
            files.remove(path + _NEW)
    except OSError as error:
        raise from_os(error, "replace the file", path + _NEW) from error
    try:
        write_new(files, path + _NEW, [content])
    except DiskError as error:
        raise DiskError(f"the report cannot be written: {error.message}", hint=error.hint, **error.facts) from error


def _write(files: Files, path: str, content: bytes) -> None:
    """The commit point: the rename, made durable by the sync of the folder."""
    try:
        _write_new(files, path, content)
        files.rename(path + _NEW, path)
        files.sync_folder(os.path.dirname(path))
    except OSError as error:
        raise from_os(error, "write the report", path) from error
