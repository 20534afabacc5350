"""The view ``store_entries``: every put, remove, clear, add and drop that is in the store's files, each once.

What compaction has merged is in its sorted files, without its session: there the epoch is null. A session belongs to
the piece of the file in which it begins; reading goes on behind the end of the piece until the session ends.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from lamina.log.files import Files
from lamina.log.naming import parse
from lamina.log.scan import HEADER_SIZE
from lamina.pipeline import columns as kernel
from lamina.pipeline import pieces, places, schema
from lamina.pipeline.columns import Entries
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.reading import Records, read_piece, refuse
from lamina.pipeline.schema import Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.views.base import FILE, POSITION, SIZE, TIME, TIME_NS, EventView, bad_rows, batch, common

EPOCH: Final = Column("epoch", "bigint", "of its session; null for what was compacted")
IS_DURABLE: Final = Column("is_durable", "boolean", "its epoch was durable when the read was made, and counts")
KIND: Final = Column("kind", "string", "put, remove, clear, add or drop")
STORAGE: Final = Column("storage", "bigint", "number of the storage")
MAJOR: Final = Column("major", "bigint", "first part of the write version")
MINOR: Final = Column("minor", "bigint", "second part of the write version")
KEY: Final = Column("key", "binary", "the key; empty for what concerns a whole storage")
VALUE: Final = Column("value", "binary", "the value of a put; else empty")
_KINDS: Final = ("", "", "", "put", "remove", "clear", "add", "drop")
_UNKNOWN: Final = -1


class StoreEntriesView(EventView):
    """One row per entry."""

    name = "store_entries"
    kinds = (places.STORE,)
    never_null = frozenset({"time", "time_ns", "is_durable", "kind", "storage", "major", "minor", "key", "value"})
    columns = (
        TIME,
        TIME_NS,
        EPOCH,
        IS_DURABLE,
        KIND,
        STORAGE,
        MAJOR,
        MINOR,
        KEY,
        VALUE,
        SIZE,
        FILE,
        POSITION,
    )

    def plan(self, disk: Files, snapshot: Snapshot, options: ReadOptions, times: Times) -> list[Any]:
        chosen = pieces.choose_files(snapshot.files, times)
        target = pieces.target_bytes(
            sum(file.end for file in chosen), options.min_partitions, options.max_partition_bytes
        )
        # Cut for size only, not for time: a session may have begun before the time that was asked for.
        tasks = pieces.pack(pieces.cut(disk, chosen, Times(), target), target)
        return [((snapshot.durable, snapshot.voids), task) for task in tasks]

    def read(
        self, disk: Files, task: Any, wanted: Sequence[Column], times: Times, *, is_permissive: bool = False
    ) -> Iterator[pa.RecordBatch]:
        (durable, voids), parts = task
        for piece in parts:
            yield from self._read_entries(disk, piece, wanted, times, durable, voids, is_permissive)

    def _read_entries(
        self,
        disk: Files,
        piece: Piece,
        wanted: Sequence[Column],
        times: Times,
        durable: int,
        voids: Sequence[tuple[int, int]],
        is_permissive: bool,
    ) -> Iterator[pa.RecordBatch]:
        bad: list[tuple[str, int, str]] = []
        damage = (lambda *place: bad.append(place)) if is_permissive else refuse
        name = parse(piece.file.name)
        is_part = name is not None and name.is_part
        epoch = 0 if is_part or piece.start == HEADER_SIZE else _UNKNOWN
        # To the end of the file: where the last session of the piece ends is known only there.
        long = replace(piece, stop=piece.file.end, until_ns=None)
        for records in read_piece(disk, long, Times(), damage):
            yield from bad_rows(piece.file.place, bad, wanted)
            is_over = False
            starts = array("q", kernel.positions(records.base, records.offsets, records.lengths))
            if piece.stop < piece.file.end and starts and starts[-1] >= piece.stop:
                records, is_over = _until_session_ends(records, bisect_left(starts, piece.stop), epoch)
            while len(records.times):
                good, behind = records, len(records.times)
                try:
                    found = kernel.entries(good.data, good.offsets, good.lengths, epoch)
                except ValueError as error:
                    number = error.args[1]
                    damage(piece.file.name, records.position(number), str(error.args[0]))
                    good, behind = records.part(0, number), number + 1
                    found = kernel.entries(good.data, good.offsets, good.lengths, epoch)
                epoch = found.epoch
                rows = _rows(good, array("q", found.places))
                if len(rows.times):
                    made = self._batch(piece, rows, found, wanted, durable, voids, is_part)
                    yield made if times == Times() else made.filter(_mask(rows.times, times))
                yield from bad_rows(piece.file.place, bad, wanted)
                records = records.part(behind, len(records.times))
            if is_over:
                return
        yield from bad_rows(piece.file.place, bad, wanted)

    def _batch(
        self,
        piece: Piece,
        rows: Records,
        found: Entries,
        wanted: Sequence[Column],
        durable: int,
        voids: Sequence[tuple[int, int]],
        is_part: bool,
    ) -> pa.RecordBatch:
        arrays = []
        count = len(rows.times)
        for column in wanted:
            made = common(piece, rows, column.name)
            if made is None and column == EPOCH:
                made = pa.nulls(count, pa.int64()) if is_part else schema.numbers(found.epochs)
            elif made is None and column == IS_DURABLE:
                made = pa.repeat(pa.scalar(True), count) if is_part else _durable(found.epochs, durable, voids)
            elif made is None:
                made = _column(found, column)
            arrays.append(made)
        return batch(wanted, arrays)


def _durable(epochs: bytes, durable: int, voids: Sequence[tuple[int, int]]) -> pa.Array:
    """Which of the epochs are durable, and count."""
    numbers = schema.numbers(epochs)
    counts = pc.less_equal(numbers, min(durable, (1 << 63) - 1))
    for first, last in voids:
        is_void = pc.and_(pc.greater_equal(numbers, first), pc.less_equal(numbers, last))
        counts = pc.and_not(counts, is_void)
    return counts


def _column(found: Entries, column: Column) -> pa.Array:
    if column == KIND:
        return schema.labels(found.kinds, _KINDS)
    if column in (KEY, VALUE):
        return schema.strings(*(found.keys if column == KEY else found.values), pa.binary())
    return schema.numbers({STORAGE: found.storages, MAJOR: found.majors, MINOR: found.minors}[column])


def _rows(records: Records, chosen: array[int]) -> Records:
    if len(chosen) == len(records.times):
        return records
    columns = (records.times, records.offsets, records.lengths)
    times, offsets, lengths = (array("q", map(column.__getitem__, chosen)) for column in columns)
    return Records(records.base, records.data, times, offsets, lengths)


def _until_session_ends(records: Records, first: int, epoch: int) -> tuple[Records, bool]:
    """What belongs to a piece that ends before the record ``first``: up to the end of the session open there."""
    for number in range(first - 1, -1, -1):
        kind = records.payload(number)[:1]
        if kind in (b"\x01", b"\x02"):
            epoch = int(kind == b"\x01")
            break
    at = first
    while epoch > 0 and at < len(records.times):
        if records.payload(at)[:1] == b"\x02":
            epoch = 0
        at += 1
    return records.part(0, at), epoch <= 0


def _mask(times: array[int], wanted: Times) -> pa.Array:
    since = wanted.since if wanted.since is not None else -(1 << 63)
    until = wanted.until if wanted.until is not None else (1 << 63) - 1
    return pa.array([since <= time_ns < until for time_ns in times], pa.bool_())
