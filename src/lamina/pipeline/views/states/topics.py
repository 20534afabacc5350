"""The views ``topic_state``, the entries of topics that are there, and ``topic_summary``, what is known of each topic.

A log is read twice: first for what was deleted and trimmed, then for the entries that were not. Of an earlier time,
entries are not here that retention or trimming has removed from the files since. Where files were written anew without
what was dead since, it is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from lamina.engines.topics import checkpoint, entries, ids
from lamina.engines.topics.codec import BadRecord
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.state import State
from lamina.errors import Corruption
from lamina.log.files import Files
from lamina.log.naming import TIMED
from lamina.log.reader import Reader
from lamina.pipeline import columns as kernel
from lamina.pipeline import places, reach, reading
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.pieces import Piece
from lamina.pipeline.reading import Records
from lamina.pipeline.schema import DAMAGE, Column
from lamina.pipeline.views.base import SIZE, TIME, TIME_NS, batch
from lamina.pipeline.views.groups import show_id
from lamina.pipeline.views.states.base import Log, Row, StateView
from lamina.pipeline.views.topic import FIELDS, ID_MS, ID_SEQUENCE, KIND, TOPIC, TopicView

ID: Final = Column("id", "string", "of the entry, as clients write it: 1700000000123-7")
LENGTH: Final = Column("length", "bigint", "entries that are there")
ADDED: Final = Column("added", "bigint", "entries that were ever added")
FIRST_ID: Final = Column("first_id", "string", "of the oldest entry that is there")
LAST_ID: Final = Column("last_id", "string", "the newest id there ever was; its entry may be gone")
MAX_DELETED_ID: Final = Column("max_deleted_id", "string", "the largest id that was ever deleted")

_DECODER: Final = TopicView()


class TopicStateView(StateView):
    """One row per entry that is there."""

    name = "topic_state"
    kinds = (places.TOPIC,)
    columns = (TOPIC, ID, ID_MS, ID_SEQUENCE, FIELDS, TIME, TIME_NS, SIZE)

    def check_reach(self, disk: Files, log: Log, as_of_ns: int) -> None:
        _check_reach(disk, log, as_of_ns)

    def batches(self, disk: Files, task: Log, wanted: Sequence[Column]) -> Iterator[pa.RecordBatch]:
        asked = [column for column in wanted if column not in (ID, DAMAGE)]
        needed = list(dict.fromkeys([*asked, KIND, ID_MS, ID_SEQUENCE]))
        piece = Piece(task.files[0], 0, 0)
        with Frozen(disk, task.place, task.files, task.as_of_ns) as frozen:
            reader = Reader(frozen.folder, family=TIMED, files=frozen.files)
            state = checkpoint.load(frozen.files, frozen.folder, reader).state
            if not state.length:
                return
            for file, records in _records(reader):
                try:
                    found = _DECODER.decode(piece, records, needed)
                except ValueError as error:
                    number = error.args[1] if len(error.args) > 1 else 0
                    raise Corruption(file, records.position(number), str(error.args[0])) from error
                there = found.filter(_mask(found, state))
                if there.num_rows:
                    yield batch(wanted, [_column(there, column) for column in wanted])


class TopicSummaryView(StateView):
    """One row per topic."""

    name = "topic_summary"
    kinds = (places.TOPIC,)
    columns = (TOPIC, LENGTH, ADDED, FIRST_ID, LAST_ID, MAX_DELETED_ID)

    def check_reach(self, disk: Files, log: Log, as_of_ns: int) -> None:
        _check_reach(disk, log, as_of_ns)

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        found = Folded(disk, log)
        if found.state.exists:
            first, state = found.first_id(), found.state
            yield (
                log.place.name,
                state.length,
                state.added,
                None if first is None else show_id(first),
                show_id(state.last_id) if state.last_id else None,
                show_id(state.max_deleted) if state.max_deleted else None,
            )


def _check_reach(disk: Files, log: Log, as_of_ns: int) -> None:
    """Raises: TooOld."""
    reach.check_reach(disk, log.place, log.files, as_of_ns)
    reach.check_compacted(disk, log.place, log.files, as_of_ns)


class Folded:
    """What is known of a topic, with its oldest entry: what the lag of a group is worked out from."""

    def __init__(self, disk: Files, log: Log) -> None:
        """Raises: TooOld, Corruption, WrongFormat, DiskError."""
        with Frozen(disk, log.place, log.files, log.as_of_ns) as frozen:
            reader = Reader(frozen.folder, family=TIMED, files=frozen.files)
            self.state: State = checkpoint.load(frozen.files, frozen.folder, reader).state
            self._first = _first_of(reader, self.state) if self.state.length else None

    def first_id(self) -> EntryId | None:
        return self._first


def _first_of(reader: Reader, state: State) -> EntryId | None:
    gone = state.deleted or None
    for segment, found in reader.batches():
        try:
            some, _, _, _ = entries.pick(
                found.data, found.offsets, found.lengths, EntryId(state.trimmed_to + 1), ids.LAST, 1, gone
            )
        except BadRecord as error:
            raise Corruption(segment.name.name, found.base, f"no record of a topic: {error}") from error
        if some:
            return entries.entry_id(some[0])
    return None


def _records(reader: Reader) -> Iterator[tuple[str, Records]]:
    for segment, found in reader.batches(window=reading.WINDOW):
        watermark, gap = segment.format.reserved
        kept = kernel.without_marks(found.data, found.times, found.offsets, found.lengths, watermark, gap)
        if len(kept[0]):
            yield segment.name.name, Records(found.base, found.data, *kept)


def _mask(found: pa.RecordBatch, state: State) -> pa.Array:
    is_entry = pc.equal(found.column(KIND.name), "entry")
    milliseconds, sequences = found.column(ID_MS.name), found.column(ID_SEQUENCE.name)
    if state.deleted or state.trimmed_to:
        pairs = zip(_unsigned(milliseconds), _unsigned(sequences), strict=True)
        return pc.and_(is_entry, pa.array([state.has(ids.make(*pair)) for pair in pairs], pa.bool_()))
    return is_entry


def _column(there: pa.RecordBatch, column: Column) -> pa.Array:
    if column == ID:
        pairs = zip(_unsigned(there.column(ID_MS.name)), _unsigned(there.column(ID_SEQUENCE.name)), strict=True)
        return pa.array([f"{first}-{second}" for first, second in pairs], ID.arrow)
    if column == DAMAGE:
        return pa.nulls(there.num_rows, DAMAGE.arrow)
    return there.column(column.name)


def _unsigned(numbers: pa.Array) -> list[int]:
    """As ids have them."""
    found: list[int] = numbers.view(pa.uint64()).to_pylist()
    return found
