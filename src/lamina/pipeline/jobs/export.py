"""``export``: a view of the log as Parquet files by day, or as a Delta table, for programs that know nothing of lamina.

    1 the manifest says how far each log was exported     2 pin what is new, and see that nothing before it is missing
    3 one task a share: read it, stage parts by day       4 merge what is small
    5 save the manifest that names the parts              6 rename them to their places

Commit: step 5 (exporting/manifest.py). What it names and a crash kept from its place, the next run puts there; what it
does not name never gets a place. So each record is exported once, however often a run was cut short. A state, and
anything with ``incremental=False``, is exported as a whole, and takes the place of what was there (committing.py).
Of a Delta table, the commit is that of the table (delta.py).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from lamina.pipeline.choosing import runner
from lamina.pipeline.exporting import running
from lamina.pipeline.exporting.asking import Asked, ask
from lamina.pipeline.exporting.holding import Holding
from lamina.pipeline.exporting.manifest import Manifest
from lamina.pipeline.exporting.pinning import Lost
from lamina.pipeline.exporting.running import Done, Run
from lamina.pipeline.exporting.target import locked
from lamina.pipeline.running import Progress
from lamina.units import MIB

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MERGE_BELOW: Final = 4 * MIB


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was done."""

    view: str
    format: str
    to: str
    """The folder of the view."""
    batch: int
    """Number of the last commit; the same as before if nothing was new."""
    rows: int
    """That were added."""
    files: int
    """That were written."""
    merged: int
    """Of these, those that took in small ones."""
    bytes: int
    """Of the files that were written."""
    days: list[str]
    """That have new rows."""
    logs: int
    """That have new rows."""
    first_ns: int | None
    """Time of the first record that was added."""
    last_ns: int | None
    total_rows: int
    """In the export now."""
    total_files: int
    gaps: list[dict[str, object]]
    """Records that were removed before they were exported: log, after_ns, until_ns, why."""
    is_full: bool
    """The export was made anew."""
    engine: str
    seconds: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def export(
    data: str,
    to: str,
    *,
    view: str = "records",
    columns: Sequence[str] | None = None,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    incremental: bool = True,
    format: str = "parquet",
    topic: str | None = None,
    since: str | int | None = None,
    until: str | int | None = None,
    merge_below: int = MERGE_BELOW,
    consumer: str | None = None,
    consumer_expiry_s: float = 7 * 86400.0,
    allow_gaps: bool = False,
    moved: bool = False,
    progress: Progress = lambda done, total: None,
) -> ExportReport:
    """Bring the export of a view in ``to`` up to what the logs hold now.

    ``since`` counts for logs that were never exported, ``until`` for all; of a state, ``until`` is the moment that it
    is of. ``merge_below``: files smaller than this are added to; 0: never. ``consumer``: the name under which cleaning
    waits for this export. ``moved``: the data folder has another path than before.
    Durability: when it returns, the rows are synced in their places, and the consumer's positions too.
    Raises: BadOption, MissingExtra; LogLocked while another export of the view goes on; Gap; Corruption, WrongFormat,
        DiskFull, DiskError, StorageError: then the export is as it was, or whole once this was run again.
    """
    start = time.monotonic()
    asked = ask(data, to, view, columns, format, topic, (since, until), merge_below, is_full=not incremental)
    holding = Holding(asked, consumer, consumer_expiry_s)
    holding.check()
    with locked(asked.files, asked.to, asked.view):
        before = running.begin(asked, is_moved=moved)
        holding.begin(before.positions)
        found = running.look(asked, before, consumer)
        running.check_lost(found.lost, is_allowed=allow_gaps)
        slices = running.divide(asked, found)
        size = sum(one.bytes for one in slices)
        with runner(engine, size=size, spark=spark, master=master, conf=conf) as where:
            after, done = Run(asked, where, before, found).run(slices, progress, allow_gaps=allow_gaps)
        holding.save(after.positions)
    return _report(asked, after, done, found.lost, where.name, start)


def _report(asked: Asked, after: Manifest, done: Done, lost: Sequence[Lost], engine: str, start: float) -> ExportReport:
    parts = done.parts
    made = [part for _, part in done.groups] or parts
    return ExportReport(
        view=after.view,
        format=asked.format,
        to=asked.folder,
        batch=after.batch,
        rows=sum(part.rows for part in parts),
        files=len(made),
        merged=sum(group.is_merged for group, _ in done.groups),
        bytes=sum(part.bytes for part in made),
        days=sorted({part.day for part in parts if part.day}),
        logs=len({log for one in done.written for log in one.newest}),
        first_ns=min((part.first_ns for part in parts if part.first_ns is not None), default=None),
        last_ns=max((part.last_ns for part in parts if part.last_ns is not None), default=None),
        total_rows=after.rows,
        total_files=sum(day.files for day in after.days.values()),
        gaps=[asdict(one) for one in lost],
        is_full=asked.is_full,
        engine=engine,
        seconds=round(time.monotonic() - start, 3),
    )
