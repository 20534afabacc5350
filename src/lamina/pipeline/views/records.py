"""The view ``records``: every record of every log as it stands.

But not of queues: their records hold the ids that open them, which belong into no table. ``queue_events`` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from lamina.pipeline import columns as kernel
from lamina.pipeline import places, schema
from lamina.pipeline.pieces import Piece
from lamina.pipeline.reading import Records
from lamina.pipeline.schema import Column
from lamina.pipeline.views.base import FILE, LOG, POSITION, SIZE, TIME, TIME_NS, EventView, batch, common

PAYLOAD: Final = Column("payload", "binary", "its bytes; what they mean says docs/formats")


class RecordsView(EventView):
    """Raw: time, place and bytes."""

    name = "records"
    kinds = (
        places.JOBS,
        places.TOPIC,
        places.GROUPS,
        places.STORE,
        places.PLAIN,
    )
    columns = (TIME, TIME_NS, LOG, FILE, POSITION, SIZE, PAYLOAD)
    never_null = frozenset(column.name for column in columns)

    def decode(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> pa.RecordBatch:
        arrays = []
        for column in wanted:
            array = common(piece, records, column.name)
            if array is None:
                payloads = kernel.gather(records.data, records.offsets, records.lengths)
                array = schema.strings(*payloads, PAYLOAD.arrow)
            arrays.append(array)
        return batch(wanted, arrays)
