"""The second step of a compaction, in a task: of ranges of places, which records stay.

A range is that of an old part, or a piece of it. The runs are merged, and with them what the old part holds, if
something new falls into it or it may be taken along. What stays is staged as two columns, in order: the spots of the
records and their sizes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from lamina.engines.store.catalog import Part
from lamina.engines.store.compacting import is_concerned, is_small, newly_cleared
from lamina.engines.store.compacting import ranges as ranges_of
from lamina.engines.store.compaction_task import Task
from lamina.engines.store.merging import Feed, Run, culled, merged
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.storages import Storages
from lamina.errors import LaminaError, from_os
from lamina.log.files import File, Files, join, write_all
from lamina.pipeline.compaction.copying import as_spots, survivors
from lamina.pipeline.compaction.piece import RunFile
from lamina.pipeline.compaction.plan import Shared, entries_of_range
from lamina.pipeline.running import to_plain
from lamina.pipeline.staging import part_name


@dataclass(frozen=True, slots=True)
class Span:
    """Places from ``begin`` up to but without ``end``, all of them in the range of one part."""

    part: Part | None
    source: int
    """The number of that part among all files that are copied from."""
    begin: bytes
    end: bytes | None
    is_read: bool
    """The old part is read, whether something new is there or not."""


@dataclass(frozen=True, slots=True)
class Merge:
    """A task of the second step."""

    number: int
    shared: Shared
    runs: tuple[str, ...]
    """Oldest first."""
    storages: Storages
    spans: tuple[Span, ...]


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of a span."""

    span: Span
    has_new: bool
    spots: str
    sizes: str
    """Names of the files with the two columns."""
    start: int
    """The number of the first record in them."""
    entries: int
    problem: dict[str, Any] | None
    """What is wrong with the old part; it matters only if that is touched."""


def choose(task: Task, shared: Shared, runs: Sequence[RunFile], storages: Storages, asked: int = 0) -> list[Merge]:
    """Divide all places into tasks that have about as much to do. The result does not depend on it."""
    places = sorted((place, run.entries // len(run.sample) + 1) for run in runs for place in run.sample)
    most = entries_of_range(sum(run.entries for run in runs), asked)
    cleared = newly_cleared(task, storages)
    names = tuple(run.name for run in runs)
    works: list[Merge] = []
    spans: list[Span] = []
    weight = 0
    for number, (part, begin, end) in enumerate(ranges_of(task)):
        pieces = list(_pieces(places, begin, end, most))
        is_read = part is not None and (len(pieces) > 1 or is_small(task, part) or is_concerned(part, cleared))
        for begin, end, entries in pieces:
            spans.append(Span(part, len(task.inputs) + number, begin, end, is_read))
            weight += entries + (part.entries // len(pieces) if part and (is_read or entries) else 0)
            if weight >= most:
                works.append(Merge(len(works), shared, names, storages, tuple(spans)))
                spans, weight = [], 0
    return [*works, Merge(len(works), shared, names, storages, tuple(spans))] if spans else works


def _pieces(
    places: list[tuple[bytes, int]], begin: bytes, end: bytes | None, most: int
) -> Iterator[tuple[bytes, bytes | None, int]]:
    """A range in pieces with about so many entries of the runs each, and how many that are."""
    weight = 0
    first = bisect_left(places, (begin, 0))
    for place, entries in places[first : len(places) if end is None else bisect_left(places, (end, 0))]:
        if weight >= most and place > begin:
            yield begin, place, weight
            begin, weight = place, 0
        weight += entries
    yield begin, end, weight


# -- in the task -----------------------------------------------------------------------------------------------------


def merge(work: Merge) -> list[Kept]:
    """Raises: Corruption, DiskFull, DiskError for the runs; errors of old parts are in what is returned."""
    shared = work.shared
    runs: list[SortedFile] = []
    columns = _Columns(shared.files, shared.staging, work.number)
    try:
        for name in work.runs:
            runs.append(SortedFile.open(shared.files, shared.staging, name))
        return [_merge(work, span, runs, columns) for span in work.spans]
    finally:
        columns.close()
        for run in runs:
            run.close()


def _merge(work: Merge, span: Span, runs: Sequence[SortedFile], columns: _Columns) -> Kept:
    new = Feed(culled(merged([run.batches(span.begin, span.end) for run in runs]), work.storages))
    has_new = new.first() is not None
    start, problem = columns.entries, None
    if span.part is None:
        columns.take(new.before(None), work.shared.until)
    elif has_new or span.is_read:
        try:
            file = SortedFile.open(work.shared.files, work.shared.folder, span.part.name, span.part)
            try:
                old = file.batches(span.begin, span.end, partial(as_spots, file=span.source))
                columns.take(culled(merged([old, new.before(None)]), work.storages), work.shared.until)
            finally:
                file.close()
        except LaminaError as error:
            problem = to_plain(error)
    columns.flush()
    return Kept(span, has_new, columns.spots_name, columns.sizes_name, start, columns.entries - start, problem)


class _Columns:
    """Two files that grow side by side."""

    def __init__(self, files: Files, staging: str, number: int) -> None:
        """Raises: DiskFull, DiskError."""
        self.spots_name, self.sizes_name = part_name(number), part_name(number)
        self.entries = 0
        self._spots = _create(files, join(staging, self.spots_name))
        self._sizes = _create(files, join(staging, self.sizes_name))
        self._waiting: tuple[array[int], array[int]] = array("Q"), array("I")

    def take(self, run: Run, until: int) -> None:
        for _, items in run:
            spots, sizes = survivors(items, until)
            self._waiting[0].extend(spots)
            self._waiting[1].extend(sizes)
            if len(self._waiting[0]) >= 1 << 17:
                self.flush()

    def flush(self) -> None:
        spots, sizes = self._waiting
        self._waiting = array("Q"), array("I")
        for file, column in ((self._spots, spots), (self._sizes, sizes)):
            try:
                write_all(file, [column.tobytes()])
            except OSError as error:
                raise from_os(error, "write the file", file.path) from error
        self.entries += len(spots)

    def close(self) -> None:
        for file in (self._spots, self._sizes):
            with suppress(OSError):
                file.close()


def _create(files: Files, path: str) -> File:
    try:
        return files.create(path)
    except OSError as error:
        raise from_os(error, "create the file", path) from error
