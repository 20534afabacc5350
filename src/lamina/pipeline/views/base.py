"""What a view is, and the work that all views with a row per record share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa

from lamina.errors import Corruption
from lamina.log.files import Files
from lamina.pipeline import columns as kernel
from lamina.pipeline import pieces, schema
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.places import LogPlace
from lamina.pipeline.reading import Records, read_piece, refuse
from lamina.pipeline.schema import DAMAGE, Column
from lamina.pipeline.snapshot import Snapshot

TIME: Final = Column("time", "timestamp", "when the record was written, in microseconds")
TIME_NS: Final = Column("time_ns", "bigint", "the same in nanoseconds: the position of the record in its log")
LOG: Final = Column("log", "string", "which log, as a path in the data folder: topics/orders")
FILE: Final = Column("file", "string", "the file it is in")
POSITION: Final = Column("position", "bigint", "the byte at which the record starts there")
SIZE: Final = Column("size", "bigint", "bytes of its payload")


class View(Protocol):
    """A table. ``plan`` runs on the driver, ``read`` on executors; tasks travel between them."""

    @property
    def name(self) -> str: ...

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of logs that have rows in it."""

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def is_state(self) -> bool:
        """It is what an engine makes of the records, and can be had as of a time."""

    @property
    def never_null(self) -> frozenset[str]:
        """Columns that always have a value, unless damage is told in rows."""

    def plan(self, disk: Files, snapshot: Snapshot, options: ReadOptions, times: Times) -> list[Any]:
        """Tasks, one for each partition. Raises: LaminaError."""

    def read(
        self, disk: Files, task: Any, wanted: Sequence[Column], times: Times, *, is_permissive: bool = False
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a task, as batches of exactly the wanted columns. Raises: LaminaError."""


class EventView:
    """A row for each record."""

    name: str
    kinds: tuple[str, ...]
    columns: tuple[Column, ...]
    is_state = False
    never_null: frozenset[str] = frozenset()

    def plan(self, disk: Files, snapshot: Snapshot, options: ReadOptions, times: Times) -> list[Any]:
        chosen = pieces.choose_files(snapshot.files, times)
        total = sum(file.end for file in chosen)
        target = pieces.target_bytes(total, options.min_partitions, options.max_partition_bytes)
        return list(pieces.pack(pieces.cut(disk, chosen, times, target), target))

    def read(
        self, disk: Files, task: Any, wanted: Sequence[Column], times: Times, *, is_permissive: bool = False
    ) -> Iterator[pa.RecordBatch]:
        for piece in task:
            yield from self.read_one(disk, piece, wanted, times, is_permissive)

    def read_one(
        self, disk: Files, piece: Piece, wanted: Sequence[Column], times: Times, is_permissive: bool
    ) -> Iterator[pa.RecordBatch]:
        bad: list[tuple[str, int, str]] = []
        damage = (lambda *place: bad.append(place)) if is_permissive else refuse
        for records in read_piece(disk, piece, times, damage):
            yield from bad_rows(piece.file.place, bad, wanted)
            try:
                yield self.decode(piece, records, wanted)
            except ValueError as error:  # BadRecord of the engines: what is wrong, and the number of the record
                if not is_permissive:
                    raise damaged(piece, records, error) from error
                yield from self._one_by_one(piece, records, wanted)
        yield from bad_rows(piece.file.place, bad, wanted)

    def _one_by_one(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        """Records of which some mean nothing."""
        for number in range(len(records.times)):
            one = records.part(number, number + 1)
            try:
                yield self.decode(piece, one, wanted)
            except ValueError as error:
                bad = [(piece.file.name, one.position(0), str(error.args[0]))]
                yield from bad_rows(piece.file.place, bad, wanted)

    def decode(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> pa.RecordBatch:
        """Raises: BadRecord (a ValueError) with the number of the record as its second argument."""
        raise NotImplementedError


def common(piece: Piece, records: Records, name: str) -> pa.Array | None:
    """A column that every view with a row per record may have; None if it is none of these."""
    count = len(records.times)
    if name == TIME.name:
        return schema.numbers(kernel.micros(records.times), TIME.arrow)
    if name == TIME_NS.name:
        return schema.numbers(records.times.tobytes())
    if name == LOG.name:
        return schema.repeated(piece.file.place.path, count)
    if name == FILE.name:
        return schema.repeated(piece.file.name, count)
    if name == POSITION.name:
        return schema.numbers(kernel.positions(records.base, records.offsets, records.lengths))
    if name == SIZE.name:
        return schema.numbers(records.lengths.tobytes())
    if name == DAMAGE.name:
        return pa.nulls(count, DAMAGE.arrow)
    return None


def batch(wanted: Sequence[Column], arrays: Sequence[pa.Array]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(arrays), schema=schema.arrow_schema(wanted))


def bad_rows(place: LogPlace, bad: list[tuple[str, int, str]], wanted: Sequence[Column]) -> Iterator[pa.RecordBatch]:
    """Rows that tell of damage: where it is and what is wrong; all else is null."""
    if not bad:
        return
    known = {
        LOG.name: [place.path] * len(bad),
        FILE.name: [file for file, _, _ in bad],
        POSITION.name: [offset for _, offset, _ in bad],
        DAMAGE.name: [reason for _, _, reason in bad],
    }
    arrays = [pa.array(known.get(column.name, [None] * len(bad)), column.arrow) for column in wanted]
    bad.clear()
    yield batch(wanted, arrays)


def damaged(piece: Piece, records: Records, error: ValueError) -> Corruption:
    """A record that is whole, and means nothing."""
    number = error.args[1] if len(error.args) > 1 else 0
    return Corruption(piece.file.name, records.position(number), str(error.args[0]))
