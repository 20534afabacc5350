"""A state as it was at a time, as Parquet: one file, or a folder with one for each share.

Commit: the rename of what is whole (target.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from lamina.errors import BadOption, from_os
from lamina.log.files import Files, join
from lamina.pipeline import schema, storage, views
from lamina.pipeline.exporting import parts
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Times
from lamina.pipeline.restoring.asking import check_is_new
from lamina.pipeline.restoring.target import Making, making
from lamina.pipeline.running import Progress, Runner
from lamina.pipeline.staging import part_name
from lamina.pipeline.tables import Table

_FILE: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class Share:
    """A task: some rows of a state."""

    number: int
    data: str
    view: str
    task: Any
    folder: str


@dataclass(frozen=True, slots=True)
class Tabled:
    """What was made."""

    rows: int
    files: int
    bytes: int


def ask(data: str, view: str, time_ns: int) -> Table:
    """Raises: BadOption if it is no state, or there is none of it; DiskError, Corruption, WrongFormat."""
    found = views.find(view, None)
    if not found.is_state:
        states = ", ".join(sorted(each.name for each in views.VIEWS.values() if each.is_state))
        raise BadOption(f"{view} has a row for each record, it is no state", hint=f"one of {states}")
    return Table(ReadOptions.parse({"path": data, "view": view, "asOf": str(time_ns)}))


def check(files: Files, path: str) -> None:
    """Raises: BadOption if the target is not new."""
    if not path.endswith(_FILE):
        check_is_new(files, path)
        return
    try:
        files.open(path).close()
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os(error, "look at", path) from error
    raise BadOption(f"{path} is there already", hint="name a new file")


def write(table: Table, data: str, files: Files, path: str, where: Runner, progress: Progress) -> Tabled:
    """Durability: when it returns, the table is synced under its name. Raises: TooOld; LogLocked; what reading does."""
    tasks = table.plan(table.pin())
    with making(files, path) as made:
        shares = [Share(number, data, table.view.name, task, made.folder) for number, task in enumerate(tasks)]
        done = where.map(write_share, shares, progress)
        result = _one_file(table, made, done) if path.endswith(_FILE) else _folder(table, made, done)
        made.commit()
    return result


def write_share(share: Share) -> list[parts.Part]:
    """Durability: synced. Raises: LaminaError."""
    disk, _ = storage.open_storage(share.data)
    to, _ = storage.open_storage(share.folder)
    view = views.find(share.view, None)
    folder = join(share.folder, part_name(share.number))
    try:
        to.make_folder(folder)
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    with parts.writing(to, folder, share.number, schema.arrow_schema(view.columns)) as out:
        for batch in view.read(disk, share.task, list(view.columns), Times()):
            out.add("", batch)
    return out.done


def _one_file(table: Table, made: Making, done: list[list[parts.Part]]) -> Tabled:
    """All shares in one."""
    types = schema.arrow_schema(table.columns)
    folder = join(made.folder, part_name(len(done)))
    made.files.make_folder(folder)
    with parts.writing(made.files, folder, 0, types) as out:
        out.add("", pa.RecordBatch.from_pylist([], schema=types))  # of nothing it is a table, too
        for share in done:
            for part in share:
                for batch in parts.read_part(part.path, types):
                    out.add("", batch)
    made.files.rename(out.done[0].path, made.whole)
    return Tabled(out.done[0].rows, 1, out.done[0].bytes)


def _folder(table: Table, made: Making, done: list[list[parts.Part]]) -> Tabled:
    made.files.make_folder(made.whole)
    found = [part for share in done for part in share]
    if not found:
        types = schema.arrow_schema(table.columns)
        with parts.writing(made.files, made.folder, 0, types) as out:
            out.add("", pa.RecordBatch.from_pylist([], schema=types))
        found = out.done
    for number, part in enumerate(found):
        made.files.rename(part.path, join(made.whole, f"part-{number:05d}{_FILE}"))
    made.files.sync_folder(made.whole)
    return Tabled(sum(part.rows for part in found), len(found), sum(part.bytes for part in found))
