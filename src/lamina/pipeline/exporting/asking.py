"""What an export was asked for, checked before anything is done."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from lamina.errors import BadOption
from lamina.log.files import Files, join
from lamina.pipeline.exporting import delta
from lamina.pipeline.exporting.manifest import Manifest
from lamina.pipeline.exporting.target import check_target
from lamina.pipeline.options import ReadOptions, nearest, parse_moment
from lamina.pipeline.pieces import Times
from lamina.pipeline.schema import Column
from lamina.pipeline.tables import Table
from lamina.units import MIB

PARQUET: Final = "parquet"
DELTA: Final = "delta"
FORMATS: Final = (PARQUET, DELTA)
TASK_BYTES: Final = 64 * MIB
"""Of the logs, in one task."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What to export, and where to."""

    data: str
    table: Table
    wanted: tuple[Column, ...]
    times: Times
    files: Files
    to: str
    format: str
    merge_below: int
    is_full: bool
    """Anew, and not only what is new."""

    @property
    def view(self) -> str:
        return self.table.view.name

    @property
    def is_state(self) -> bool:
        return self.table.view.is_state

    @property
    def folder(self) -> str:
        """Of the view."""
        return join(self.to, self.view)

    def empty(self) -> Manifest:
        """The manifest of such an export before it has begun."""
        return Manifest(self.view, self.format, self.data, {column.name: column.type for column in self.wanted})


def ask(
    data: str,
    to: str,
    view: str,
    columns: Sequence[str] | None,
    format: str,
    topic: str | None,
    times: tuple[str | int | None, str | int | None],
    merge_below: int,
    *,
    is_full: bool,
) -> Asked:
    """Raises: BadOption, MissingExtra; DiskError, Corruption, WrongFormat if the data folder cannot be read."""
    if format not in FORMATS:
        raise BadOption(f"there is no format {format!r}", hint=nearest(format, FORMATS))
    if merge_below < 0:
        raise BadOption(f"merge_below: {merge_below} is less than nothing", hint="0 leaves all files as they are")
    since, until = (_moment(name, given) for name, given in zip(("since", "until"), times, strict=True))
    if since is not None and until is not None and until <= since:
        raise BadOption("until is not after since", hint="exchange the two")
    data = data if "://" in data else os.path.abspath(data)
    given = {"path": data, "view": view, **({} if topic is None else {"topic": topic})}
    options = replace(ReadOptions.parse(given), min_partitions=1, max_partition_bytes=TASK_BYTES)
    table = Table(options)
    if table.view.is_state:
        if since is not None:
            raise BadOption(f"{view} is a state: it has no beginning", hint="use until for the moment it is of")
        if format == DELTA:
            raise BadOption(f"{view} is a state, not rows by day", hint="export it as parquet")
        table = Table(replace(options, as_of_ns=until))
    wanted = tuple(table.choose(columns))
    if columns is not None and len(set(columns)) < max(len(columns), 1):
        raise BadOption("columns: each once, and at least one", hint="leave them out for all of the view")
    files, to = check_target(to, data, table.view.name)
    if format == DELTA:
        delta.needed()
    is_full = is_full or table.view.is_state
    return Asked(data, table, wanted, Times(since, until), files, to, format, merge_below, is_full)


def _moment(name: str, given: str | int | None) -> int | None:
    return parse_moment(name, given) if isinstance(given, str) else given
