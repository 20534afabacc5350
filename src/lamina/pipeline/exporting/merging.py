"""Small files of a day become one: what is new is written together with the day's file that is still small.

The result takes that file's name, in one rename. So no merge ever removes a file, and a reader finds each row once,
before and after: nothing here needs two steps. A file that has grown to the size that was asked for is left alone for
ever. The price is that each export writes up to so many bytes, or rows, again for each day that it touches: less than
a file has that is large, however long the history is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from lamina.pipeline import storage
from lamina.pipeline.exporting import parts
from lamina.pipeline.exporting.manifest import Day
from lamina.pipeline.exporting.parts import Part, read_part

_MANY_ROWS: Final = 1 << 20
"""A file with so many is large, though it has few bytes: to write it again takes its time."""


@dataclass(frozen=True, slots=True)
class Group:
    """Parts of a day that become one file."""

    day: str
    name: str
    """Of the day's file that they are added to; nothing: they become a new one."""
    parts: tuple[Part, ...]

    @property
    def is_merged(self) -> bool:
        return len(self.parts) > 1


@dataclass(frozen=True, slots=True)
class Merge:
    """A task: these parts as one."""

    number: int
    folder: str
    schema: pa.Schema
    parts: tuple[Part, ...]


def plan(new: Sequence[Part], day: str, known: Day, path: str, below: int) -> list[Group]:
    """How the new parts of a day are put together. ``path``: of its folder. ``below``: what counts as small."""
    if below <= 0:
        return [Group(day, "", (part,)) for part in new]
    groups = [Group(day, "", (part,)) for part in new if not is_small(part.rows, part.bytes, below)]
    small = [part for part in new if is_small(part.rows, part.bytes, below)]
    name = known.open if small else ""
    gathered = [Part(f"{path}/{name}", day, known.open_rows, known.open_bytes)] if name else []
    for part in small:
        gathered.append(part)
        if not is_small(sum(each.rows for each in gathered), sum(each.bytes for each in gathered), below):
            groups.append(Group(day, name, tuple(gathered)))
            gathered, name = [], ""
    return [*groups, Group(day, name, tuple(gathered))] if gathered else groups


def is_small(rows: int, size: int, below: int) -> bool:
    """Such a file is added to."""
    return size < below and rows < _MANY_ROWS


def merge(task: Merge) -> Part:
    """Durability: the new part is synced. Raises: DiskFull, DiskError."""
    files, _ = storage.open_storage(task.folder)
    day = task.parts[0].day
    with parts.writing(files, task.folder, task.number, task.schema) as out:
        for part in task.parts:
            for batch in read_part(part.path, task.schema):
                out.add(day, batch)
    (made,) = out.done
    return made
