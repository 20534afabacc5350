"""The view ``topic``: what was published, and what was deleted, trimmed and set.

The fields of an entry are a map: ``fields['temp']`` in SQL. Names that are no UTF-8 have their odd bytes shown as
``\\xff``. A name that an entry has twice is in the map twice.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pyarrow as pa

from lamina.pipeline import columns as kernel
from lamina.pipeline import places, schema
from lamina.pipeline.columns import Strings, Topic
from lamina.pipeline.pieces import Piece
from lamina.pipeline.reading import Records
from lamina.pipeline.schema import Column
from lamina.pipeline.views.base import FILE, POSITION, SIZE, TIME, TIME_NS, EventView, batch, common

TOPIC: Final = Column("topic", "string", "name of the topic")
KIND: Final = Column("kind", "string", "entry, deleted, trimmed (up to the id), or set (the last id)")
ID_MS: Final = Column("id_ms", "bigint", "first part of the id; of a deletion that of the first id")
ID_SEQUENCE: Final = Column("id_sequence", "bigint", "second part of the id")
FIELDS: Final = Column("fields", "map<string,binary>", "names and values of an entry")
_KINDS: Final = ("mark", "entry", "deleted", "trimmed", "set")


class TopicView(EventView):
    """One row per record of a topic."""

    name = "topic"
    kinds = (places.TOPIC,)
    never_null = frozenset({"time", "time_ns", "topic", "kind", "id_ms", "id_sequence", "fields"})
    columns = (
        TIME,
        TIME_NS,
        TOPIC,
        KIND,
        ID_MS,
        ID_SEQUENCE,
        FIELDS,
        SIZE,
        FILE,
        POSITION,
    )

    def decode(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> pa.RecordBatch:
        arrays: list[pa.Array | None] = [common(piece, records, column.name) for column in wanted]
        if None in arrays:
            found: Topic | None = None
            for place, column in enumerate(wanted):
                if arrays[place] is not None:
                    continue
                if column == TOPIC:
                    arrays[place] = schema.repeated(piece.file.place.name, len(records.times))
                    continue
                found = found or kernel.topic(records.data, records.offsets, records.lengths)
                arrays[place] = _column(found, column)
        return batch(wanted, arrays)


def _column(found: Topic, column: Column) -> pa.Array:
    if column == KIND:
        return schema.labels(found.kinds, _KINDS)
    if column == ID_MS:
        return schema.numbers(found.milliseconds)
    if column == ID_SEQUENCE:
        return schema.numbers(found.sequences)
    names = found.names if found.is_text else _as_text(found.names)
    items = pa.StructArray.from_arrays(
        [schema.strings(*names, pa.string()), schema.strings(*found.values, pa.binary())],
        fields=[FIELDS.arrow.key_field, FIELDS.arrow.item_field],
    )
    count = len(found.kinds)
    return pa.Array.from_buffers(FIELDS.arrow, count, [None, pa.py_buffer(found.fields)], children=[items])


def _as_text(names: Strings) -> Strings:
    ends = array("i", names.offsets)
    shown = [names.values[start:end].decode("utf-8", "backslashreplace").encode() for start, end in pairwise(ends)]
    offsets = array("i", [0])
    for name in shown:
        offsets.append(offsets[-1] + len(name))
    return Strings(offsets.tobytes(), b"".join(shown))
