"""The view ``store_state``: every key that has a value, as of the last epoch that was durable, or at a time.

Each task reads what is not compacted yet for itself, and of the sorted files its own range of keys. So the ranges are
only as many as make up for that: a store that was never compacted is one task.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import looking
from lamina.errors import Corruption, WrongFormat
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.naming import parse
from lamina.pipeline import places
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Times
from lamina.pipeline.schema import Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.views.base import TIME, TIME_NS
from lamina.pipeline.views.groups import signed
from lamina.pipeline.views.states.base import Row, StateView
from lamina.pipeline.views.store import MAJOR, MINOR, STORAGE
from lamina.units import MIB

KEY: Final = Column("key", "binary", "the key")
VALUE: Final = Column("value", "binary", "its value")

_LEAST: Final = 16 * MIB
"""Of sorted files: smaller ranges cost more to begin than to read."""


@dataclass(frozen=True, slots=True)
class Range:
    """What one task reads: places from ``start`` up to but without ``end``."""

    folder: str
    epoch: int
    start: bytes = b""
    end: bytes | None = None


class StoreStateView(StateView):
    """One row per key."""

    name = "store_state"
    kinds = (places.STORE,)
    columns = (STORAGE, KEY, VALUE, MAJOR, MINOR, TIME, TIME_NS)

    def plan(self, disk: Files, snapshot: Snapshot, options: ReadOptions, times: Times) -> list[Any]:
        """Raises: BadOption, TooOld, Corruption, WrongFormat, DiskError."""
        self._check(options)
        tasks: list[Any] = []
        for folder in dict.fromkeys(file.place.folder for file in snapshot.files if file.place.kind == places.STORE):
            epoch = snapshot.durable
            if options.as_of_ns is not None:
                epoch = min(epoch, looking.epoch_at(disk, folder, options.as_of_ns))
            borders = [b"", *_borders(disk, snapshot, folder, options), None]
            tasks += [Range(folder, epoch, first or b"", last) for first, last in pairwise(borders)]
        return tasks

    def rows(self, disk: Files, log: Any) -> Iterator[Row]:
        with ExitStack() as stack:
            spill_to = None
            if isinstance(disk, RealFiles):
                spill_to = stack.enter_context(tempfile.TemporaryDirectory(prefix="lamina-"))
            looked = stack.enter_context(looking.look(disk, log.folder, epoch=log.epoch, spill_to=spill_to))
            for found in looked.snapshot.scan(None, log.start, log.end):
                yield (
                    signed(found.storage),
                    found.key,
                    found.value,
                    signed(found.version.major),
                    signed(found.version.minor),
                    found.time_ns // 1000,
                    found.time_ns,
                )


def _borders(disk: Files, snapshot: Snapshot, folder: str, options: ReadOptions) -> list[bytes]:
    """Places between the ranges, in order: beginnings of sorted files."""
    try:
        parts = [part for part in catalogs.load(disk, folder).parts if part.first]
    except (Corruption, WrongFormat):
        return []  # told by who reads it
    sorted_bytes = sum(part.bytes for part in parts)
    again = sum(file.end for file in snapshot.files if (name := parse(file.name)) is not None and not name.is_part)
    count = min(options.min_partitions, sorted_bytes // max(again, _LEAST), len(parts))
    return [parts[number * len(parts) // count].first for number in range(1, count)]
