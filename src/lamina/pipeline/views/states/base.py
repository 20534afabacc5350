"""What all states share: one task for each log, and what to do about damage.

A state is never guessed: of a damaged log there is none. It is an error that names file and byte or, in the mode
``permissive``, one row that tells it in place of all others of that log.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import pyarrow as pa

from lamina.errors import BadOption, Corruption, WrongFormat
from lamina.log.files import Files
from lamina.pipeline import reach
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Times
from lamina.pipeline.places import LogPlace
from lamina.pipeline.schema import DAMAGE, Column
from lamina.pipeline.snapshot import PinnedFile, Snapshot
from lamina.pipeline.views.base import batch

_AT_ONCE: Final = 4096  # rows

Row = tuple[Any, ...]
"""Values of all columns of a view, in their order."""


@dataclass(frozen=True, slots=True)
class Log:
    """What one task folds: the files of one log."""

    place: LogPlace
    files: tuple[PinnedFile, ...]
    as_of_ns: int | None
    """None: all that was pinned."""
    pinned_ns: int
    """When that was."""


class StateView:
    """One state. ``rows`` is what is left to do."""

    name: str
    kinds: tuple[str, ...]
    columns: tuple[Column, ...]
    is_state = True
    never_null: frozenset[str] = frozenset()

    def plan(self, disk: Files, snapshot: Snapshot, options: ReadOptions, times: Times) -> list[Any]:
        """Raises: BadOption, TooOld. ``times`` is a filter on rows, which Spark applies itself."""
        self._check(options)
        tasks = self.tasks(snapshot, options)
        if options.as_of_ns is not None:
            for task in tasks:
                self.check_reach(disk, task, options.as_of_ns)
        return tasks

    def tasks(self, snapshot: Snapshot, options: ReadOptions) -> list[Log]:
        logs: dict[LogPlace, list[PinnedFile]] = {}
        for file in snapshot.files:
            logs.setdefault(file.place, []).append(file)
        pinned_ns = snapshot.time_ns or time.time_ns()
        return [
            Log(place, tuple(files), options.as_of_ns, pinned_ns)
            for place, files in logs.items()
            if place.kind == self.kinds[0]
        ]

    def check_reach(self, disk: Files, log: Log, as_of_ns: int) -> None:
        reach.check_reach(disk, log.place, log.files, as_of_ns)

    def read(
        self, disk: Files, task: Any, wanted: Sequence[Column], times: Times, *, is_permissive: bool = False
    ) -> Iterator[pa.RecordBatch]:
        try:
            yield from self.batches(disk, task, wanted)
        except (Corruption, WrongFormat) as error:
            if not is_permissive:
                raise
            yield batch(wanted, [pa.array([str(error) if one == DAMAGE else None], one.arrow) for one in wanted])

    def batches(self, disk: Files, task: Any, wanted: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        rows = self.rows(disk, task)
        places = {column.name: place for place, column in enumerate(self.columns)}
        while some := list(islice(rows, _AT_ONCE)):
            values = list(zip(*some, strict=True))
            nothing = [None] * len(some)
            arrays = [
                pa.array(nothing if column == DAMAGE else values[places[column.name]], column.arrow)
                for column in wanted
            ]
            yield batch(wanted, arrays)

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        """Raises: LaminaError."""
        raise NotImplementedError

    def _check(self, options: ReadOptions) -> None:
        for name, value in (("startingTimestamp", options.since_ns), ("endingTimestamp", options.until_ns)):
            if value is not None:
                raise BadOption(
                    f"the view {self.name} is a state: it has no {name}",
                    hint="asOf gives the state at a time; for what happened read a view with a row for each record",
                )
