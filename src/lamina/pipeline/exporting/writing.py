"""A task of an export: reads its share of the logs, and stages what it read, by day of the record."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamina.log.files import Files
from lamina.log.segment import open_for_reading
from lamina.pipeline import schema, storage, views
from lamina.pipeline.exporting import parts
from lamina.pipeline.exporting.parts import Part
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.views.base import TIME_NS

_DAY_NS: Final = 86400 * 10**9
_EPOCH: Final = date(1970, 1, 1).toordinal()


@dataclass(frozen=True, slots=True)
class Slice:
    """Some rows of one log."""

    log: str
    task: Any
    """Of the view."""
    times: Times

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in pieces_of(self.task))


@dataclass(frozen=True, slots=True)
class Work:
    """What one task does."""

    number: int
    data: str
    view: str
    columns: tuple[str, ...]
    folder: str
    """Where parts are staged."""
    slices: tuple[Slice, ...]


@dataclass(frozen=True, slots=True)
class Written:
    """What it did."""

    parts: tuple[Part, ...]
    newest: dict[str, int]
    """Of each log: time of the last row."""
    gone: tuple[str, ...]
    """Logs of which a file was removed meanwhile, so that perhaps not all was read."""


def pieces_of(task: Any) -> Iterator[Piece]:
    """The pieces of files in a task of a view, however it is made."""
    if isinstance(task, Piece):
        yield task
    elif isinstance(task, tuple | list):
        for each in task:
            yield from pieces_of(each)


def write(work: Work) -> Written:
    """Durability: all parts are synced. Raises: Corruption, WrongFormat, DiskFull, DiskError, StorageError."""
    disk, _ = storage.open_storage(work.data)
    to, _ = storage.open_storage(work.folder)
    view = views.find(work.view, None)
    known = {column.name: column for column in view.columns}
    wanted = [known[name] for name in work.columns]
    is_dated = not view.is_state
    asked = wanted if TIME_NS in wanted or not is_dated else [*wanted, TIME_NS]
    newest: dict[str, int] = {}
    gone = []
    types = schema.arrow_schema(wanted)
    with parts.writing(to, work.folder, work.number, types) as out:
        if not is_dated:
            out.add("", pa.RecordBatch.from_pylist([], schema=types))  # a state of nothing is a table, too
        for part in work.slices:
            for batch in view.read(disk, part.task, asked, part.times):
                if not is_dated:
                    out.add("", batch)
                    continue
                for day, rows, first_ns, last_ns in _by_day(batch):
                    newest[part.log] = max(newest.get(part.log, 0), last_ns)
                    out.add(day, rows.select(list(work.columns)), first_ns, last_ns)
            # Asked afterwards: what is there now was there when it was read.
            if is_dated and not _is_there(disk, part.task):
                gone.append(part.log)
    return Written(tuple(out.done), newest, tuple(gone))


def _by_day(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch, int, int]]:
    """Days of UTC, each with its rows and their first and last time."""
    if not batch.num_rows:
        return
    times = batch.column(TIME_NS.name)
    ends = pc.min_max(times).as_py()
    first, last = ends["min"], ends["max"]
    if first // _DAY_NS == last // _DAY_NS:
        yield show_day(first), batch, first, last
        return
    days = pc.divide(times, pa.scalar(_DAY_NS, pa.int64()))
    for day in sorted(pc.unique(days).to_pylist()):
        rows = batch.filter(pc.equal(days, pa.scalar(day, pa.int64())))
        ends = pc.min_max(rows.column(TIME_NS.name)).as_py()
        yield show_day(ends["min"]), rows, ends["min"], ends["max"]


def show_day(time_ns: int) -> str:
    return date.fromordinal(_EPOCH + time_ns // _DAY_NS).isoformat()


def _is_there(disk: Files, task: Any) -> bool:
    for piece in pieces_of(task):
        try:
            open_for_reading(disk, piece.file.place.folder, piece.file.name).close()
        except FileNotFoundError:
            return False
    return True


def pack(slices: Sequence[Slice], target: int) -> list[tuple[Slice, ...]]:
    """Neighbours in one task while they fit: many small logs make few parts."""
    tasks: list[tuple[Slice, ...]] = []
    gathered: list[Slice] = []
    size = 0
    for one in slices:
        if gathered and size + one.bytes > target:
            tasks.append(tuple(gathered))
            gathered, size = [], 0
        gathered.append(one)
        size += one.bytes
    return [*tasks, tuple(gathered)] if gathered else tasks
