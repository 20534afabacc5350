"""The third step of a compaction, where it was asked for: which old parts are kept, and where new ones are cut.

The rules are those of compacting.py. All they need of a record that stays is its size, four bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, groupby
from typing import Final

from lamina.engines.store.catalog import Part
from lamina.engines.store.compacting import full, is_concerned, is_small, newly_cleared
from lamina.engines.store.compaction_task import Task
from lamina.engines.store.sorted_file import EMPTY, SortedFile
from lamina.engines.store.storages import Storages
from lamina.errors import StorageError, from_os
from lamina.log.files import File, Files, join, read_into
from lamina.pipeline.compaction.ranges import Kept
from lamina.pipeline.running import from_plain

_AT_ONCE: Final = 1 << 16  # sizes


@dataclass(frozen=True, slots=True)
class Slice:
    """Records that are staged one behind the other: numbers ``start`` to ``end`` of two columns."""

    spots: str
    sizes: str
    start: int
    end: int


@dataclass(slots=True)
class NewPart:
    """A part that has to be written."""

    number: int
    slices: list[Slice] = field(default_factory=list)
    bytes: int = EMPTY
    """Index and tail not counted."""


def cut(files: Files, task: Task, staging: str, storages: Storages, kept: Sequence[Kept]) -> list[Part | NewPart]:
    """All parts of the new generation, in order. Raises: Corruption, WrongFormat of an old part; DiskError."""
    return _Cutting(files, task, staging, storages).run(kept)


class _Cutting:
    def __init__(self, files: Files, task: Task, staging: str, storages: Storages) -> None:
        self._files, self._task, self._staging = files, task, staging
        self._cleared = newly_cleared(task, storages)
        self._full = full(task)
        self._made: list[Part | NewPart] = []
        self._open: NewPart | None = None
        self._count = 0

    def run(self, kept: Sequence[Kept]) -> list[Part | NewPart]:
        for _, group in groupby(kept, lambda one: one.span.source):
            self._take_range(list(group))
        return self._made

    def _take_range(self, pieces: list[Kept]) -> None:
        part = pieces[0].span.part
        is_touched = (
            part is None
            or any(piece.has_new for piece in pieces)
            or is_concerned(part, self._cleared)
            or (self._open is not None and is_small(self._task, part))
        )
        if part is not None and not is_touched:
            self._open = None
            self._made.append(part)
            return
        for piece in pieces:
            if piece.problem is not None:
                self._raise(piece)
            for start, sizes in self._sizes(piece):
                self._take(piece, start, sizes)

    def _raise(self, piece: Kept) -> None:
        """Raise what one process would, which reads the part from its beginning."""
        part = piece.span.part
        assert part is not None and piece.problem is not None
        file = SortedFile.open(self._files, self._task.folder, part.name, part)
        try:
            for _ in file.batches():
                pass
        finally:
            file.close()
        raise from_plain(piece.problem)

    def _take(self, piece: Kept, start: int, sizes: array[int]) -> None:
        done = 0
        while done < len(sizes):
            if self._open is None:
                self._open = NewPart(self._count)
                self._made.append(self._open)
                self._count += 1
            ends = list(accumulate(sizes[done:], initial=self._open.bytes))[1:]
            taken = min(bisect_left(ends, self._full) + 1, len(ends))
            self._add(self._open, Slice(piece.spots, piece.sizes, start + done, start + done + taken))
            self._open.bytes = ends[taken - 1]
            done += taken
            if self._open.bytes >= self._full:
                self._open = None

    def _add(self, part: NewPart, new: Slice) -> None:
        before = part.slices[-1] if part.slices else None
        if before is not None and before.spots == new.spots and before.end == new.start:
            part.slices[-1] = Slice(new.spots, new.sizes, before.start, new.end)
        else:
            part.slices.append(new)

    def _sizes(self, piece: Kept) -> Iterator[tuple[int, array[int]]]:
        """The number of the first one, and the sizes, some at a time."""
        if not piece.entries:
            return
        end = piece.start + piece.entries
        with_file = open_staged(self._files, self._staging, piece.sizes)
        try:
            for start in range(piece.start, end, _AT_ONCE):
                yield start, read_column(with_file, "I", start, min(start + _AT_ONCE, end))
        finally:
            with_file.close()


def open_staged(files: Files, staging: str, name: str) -> File:
    """Raises: DiskError."""
    path = join(staging, name)
    try:
        return files.open(path)
    except OSError as error:
        raise from_os(error, "open the file", path) from error


def read_column(file: File, kind: str, start: int, end: int) -> array[int]:
    """Numbers ``start`` to ``end`` of a column. Raises: DiskError; StorageError if it has fewer."""
    column = array(kind, bytes(array(kind).itemsize * (end - start)))
    with memoryview(column).cast("B") as view:
        if read_into(file, view, start * column.itemsize) < len(view):
            raise StorageError(f"{file.path}: a staged file is shorter than it was", hint="run the compaction again")
    return column
