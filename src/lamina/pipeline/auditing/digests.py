"""Rows of a table in short: how many of each log and day, the first and the last, and a sum over all of them.

The sum does not depend on the order of rows, nor on how they are divided among files and tasks. Of each row it has the
time and a checksum of all that does not change when a file is rewritten: not the file and the byte that it was in.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa

from lamina.log import kernel
from lamina.pipeline.exporting.writing import show_day
from lamina.pipeline.views.base import FILE, LOG, POSITION, TIME, TIME_NS
from lamina.pipeline.views.store import IS_DURABLE
from lamina.pipeline.views.topic import TOPIC

_LEFT_OUT: Final = frozenset({FILE.name, POSITION.name, IS_DURABLE.name, TIME.name})
_MOST: Final = (1 << 64) - 1
_MIX: Final = 0x9E3779B97F4A7C15

Place: TypeAlias = tuple[str, str]
"""Log (or topic; nothing if the rows do not say) and day."""


@dataclass(slots=True)
class Digest:
    """Rows of one log and day."""

    rows: int = 0
    first_ns: int = _MOST
    last_ns: int = -1
    total: int = 0

    def add(self, time_ns: int, crc: int) -> None:
        self.rows += 1
        self.first_ns = min(self.first_ns, time_ns)
        self.last_ns = max(self.last_ns, time_ns)
        self.total = (self.total + mixed(time_ns, crc)) & _MOST

    def take(self, other: Digest) -> None:
        self.rows += other.rows
        self.first_ns, self.last_ns = min(self.first_ns, other.first_ns), max(self.last_ns, other.last_ns)
        self.total = (self.total + other.total) & _MOST


def mixed(time_ns: int, crc: int) -> int:
    """One number of both, so that no two mistakes are likely to make up for each other."""
    number = (time_ns * _MIX ^ crc * 0xBF58476D1CE4E5B9) & _MOST
    return (number ^ number >> 29) * _MIX & _MOST


Row: TypeAlias = tuple[str, int, int]
"""Log, time, and checksum of the rest."""


def rows_of(batches: Iterable[pa.RecordBatch], columns: Sequence[str]) -> Iterator[Row]:
    """``columns``: those of the export. ``time_ns`` is one of them."""
    name = next((each for each in (LOG.name, TOPIC.name) if each in columns), None)
    rest = [each for each in columns if each not in _LEFT_OUT and each not in (TIME_NS.name, name)]
    for batch in batches:
        times = batch.column(TIME_NS.name).to_pylist()
        logs = [""] * len(times) if name is None else batch.column(name).to_pylist()
        for log, time_ns, row in zip(logs, times, _rest(batch, rest), strict=True):
            yield log, time_ns, kernel.crc32c(repr(row).encode())


def _rest(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[object, ...]]:
    if not names:
        return iter([()] * batch.num_rows)
    return zip(*(_values(batch.column(name)) for name in names), strict=True)


def _values(column: pa.Array) -> list[object]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())  # how a zone is shown depends on who read the column
    found: list[object] = column.to_pylist()
    return found


def digest(rows: Iterable[Row]) -> dict[Place, Digest]:
    found: dict[Place, Digest] = {}
    for log, time_ns, crc in rows:
        place = (log, show_day(time_ns))
        known = found.get(place)
        if known is None:
            known = found[place] = Digest()
        known.add(time_ns, crc)
    return found


def together(found: Iterable[dict[Place, Digest]]) -> dict[Place, Digest]:
    whole: dict[Place, Digest] = {}
    for one in found:
        for place, part in one.items():
            whole.setdefault(place, Digest()).take(part)
    return whole
