"""``asof``: any engine as it was at a time, as a table, or all of them as a folder that opens as it did then.

A table is a state view (views/states) of that time. A restored folder has all logs cut at the same time, so that the
engines fit together as they did. It is made beside its target:

    1 see that all logs reach back to the time     2 one task a log: copy or make it, synced     3 gather them
    4 rename the whole to the target

Commit: step 4 (restoring/target.py). Before it the target is as it was; what a run that was killed has left the next
one removes. The data folder itself is only read, and needs no lock: it works beside a server.
"""

from __future__ import annotations

import os
import time as clock
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from lamina.errors import BadOption
from lamina.pipeline import storage
from lamina.pipeline.choosing import runner
from lamina.pipeline.restoring import asking, planning
from lamina.pipeline.restoring.copying import Copy, copy
from lamina.pipeline.restoring.gathering import copy_all, gather
from lamina.pipeline.restoring.target import making
from lamina.pipeline.running import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class AsOfReport:
    """What was made."""

    time_ns: int
    to: str
    """The file or the folder."""
    view: str | None
    """None: a restored folder."""
    logs: list[str]
    """That are in a restored folder."""
    rows: int
    """Of a table."""
    files: int
    bytes: int
    notes: list[str]
    """What may not be as it was."""
    engine: str
    seconds: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def as_of(
    data: str,
    time: str | int,
    *,
    view: str | None = None,
    to: str | None = None,
    restore: str | None = None,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = lambda done, total: None,
) -> AsOfReport:
    """The state view ``view`` as of ``time`` as Parquet in ``to``, a file (``*.parquet``) or a folder; or all that is
    under ``data`` in ``restore``, a new data folder.

    Durability: when it returns, what was made is synced under its name.
    Raises: BadOption (a time to come, or before there was anything; a target that is not new); TooOld if the files do
        not reach back to it, saying how far they do; LogLocked if another run makes the same; Corruption, WrongFormat,
        DiskFull, DiskError. Then nothing was made.
    """
    start = clock.monotonic()
    if (view is None) != (to is None) or (view is None) == (restore is None):
        raise BadOption("say what to make", hint="a view and to (a table), or restore (a data folder)")
    data = data if "://" in data else os.path.abspath(data)
    moment = asking.moment(time)
    if view is not None and to is not None:
        return _table(data, moment, view, to, start, progress, engine, spark, master, conf)
    assert restore is not None
    files, path = asking.target("restore", restore, data)
    asking.check_is_new(files, path)
    disk, source = storage.open_storage(data)
    plan = planning.plan(disk, source, moment)
    size = sum(file.end for log in plan.logs for file in log.files)
    with making(files, path) as made:
        with runner(engine, size=size, spark=spark, master=master, conf=conf) as where:
            plan, copied = copy_all(
                plan,
                lambda log, number: Copy(number, data, log, moment, made.folder),
                lambda tasks: where.map(copy, tasks, progress),
                lambda: planning.plan(disk, source, moment),
            )
        gather(files, made, copied)
        made.commit()
    return AsOfReport(
        time_ns=moment,
        to=path,
        view=None,
        logs=[log.place.path for log in plan.logs],
        rows=0,
        files=sum(one.files for one in copied),
        bytes=sum(one.bytes for one in copied),
        notes=plan.notes,
        engine=where.name,
        seconds=round(clock.monotonic() - start, 3),
    )


def _table(
    data: str,
    moment: int,
    view: str,
    to: str,
    start: float,
    progress: Progress,
    engine: str,
    spark: SparkSession | None,
    master: str | None,
    conf: Mapping[str, str] | None,
) -> AsOfReport:
    from lamina.pipeline.restoring import tabling

    files, path = asking.target("to", to, data)
    tabling.check(files, path)
    table = tabling.ask(data, view, moment)
    with runner(engine, size=table.pin().bytes(), spark=spark, master=master, conf=conf) as where:
        made = tabling.write(table, data, files, path, where, progress)
    return AsOfReport(
        time_ns=moment,
        to=path,
        view=table.view.name,
        logs=[place.path for place in table.logs],
        rows=made.rows,
        files=made.files,
        bytes=made.bytes,
        notes=[],
        engine=where.name,
        seconds=round(clock.monotonic() - start, 3),
    )
