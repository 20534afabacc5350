"""The tasks of comparing an export with its log: each reads a share of one of the two, on whichever machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.errors import LaminaError
from lamina.log.files import join
from lamina.pipeline import storage, views
from lamina.pipeline.auditing import digests
from lamina.pipeline.auditing.digests import Digest, Place, Row
from lamina.pipeline.exporting import writing
from lamina.pipeline.exporting.target import list_folder
from lamina.pipeline.exporting.writing import Slice

DATE: Final = "date="
_AT_ONCE: Final = 1 << 16  # rows


@dataclass(frozen=True, slots=True)
class OfLog:
    """A task: a share of the log."""

    data: str
    view: str
    columns: tuple[str, ...]
    slices: tuple[Slice, ...]
    only: frozenset[Place] = frozenset()
    """Not in short, but all rows of these."""


@dataclass(frozen=True, slots=True)
class OfDay:
    """A task: one day of the export."""

    folder: str
    """Of the view."""
    day: str
    columns: tuple[str, ...]
    only: frozenset[Place] = frozenset()


@dataclass(slots=True)
class Day:
    """What a day of the export holds."""

    found: dict[Place, Digest]
    files: int
    rows: list[Row]
    problem: tuple[str, str] | None = None
    """A file that cannot be read, and why."""


def read_log(task: OfLog) -> dict[Place, Digest]:
    """Raises: Corruption, WrongFormat, DiskError, StorageError."""
    return digests.digest(_log_rows(task))


def rows_of_log(task: OfLog) -> list[Row]:
    """Those of some logs and days."""
    return _of(_log_rows(task), task.only)


def _of(rows: Iterator[Row], places: frozenset[Place]) -> list[Row]:
    return [row for row in rows if (row[0], writing.show_day(row[1])) in places]


def _log_rows(task: OfLog) -> Iterator[Row]:
    disk, _ = storage.open_storage(task.data)
    view = views.find(task.view, None)
    known = {column.name: column for column in view.columns}
    wanted = [known[name] for name in task.columns if name in known]
    for part in task.slices:
        yield from digests.rows_of(view.read(disk, part.task, wanted, part.times), task.columns)


def read_day(task: OfDay) -> Day:
    """Raises: DiskError."""
    files, _ = storage.open_storage(task.folder)
    folder = join(task.folder, f"{DATE}{task.day}")
    names = [name for name in sorted(list_folder(files, folder)) if name.endswith(".parquet")]
    day = Day({}, len(names), [])
    for name in names:
        try:
            rows = digests.rows_of(_batches(join(folder, name), task.columns), task.columns)
            if not task.only:
                day.found = digests.together([day.found, digests.digest(rows)])
            else:
                day.rows += _of(rows, task.only)
        except (OSError, pa.ArrowException, LaminaError, KeyError) as error:
            day.problem = day.problem or (name, f"it cannot be read: {error}")
    return day


def _batches(path: str, columns: tuple[str, ...]) -> Iterator[Any]:
    with pq.ParquetFile(path) as file:
        yield from file.iter_batches(_AT_ONCE, columns=list(columns))
