"""The view ``groups``: every record of the logs in which topics keep their groups.

A snapshot (the groups as they are, written anew so that older files may go) is shown record by record, too. Its
records of consumers and of what is pending do not say whose they are: that is in the record before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lamina.engines.topics import group_codec as codec
from lamina.engines.topics.codec import BadRecord, Items
from lamina.engines.topics.ids import EntryId
from lamina.pipeline import places, schema
from lamina.pipeline.pieces import Piece
from lamina.pipeline.reading import Records
from lamina.pipeline.schema import Column
from lamina.pipeline.views.base import FILE, POSITION, SIZE, TIME, TIME_NS, EventView, batch, common
from lamina.pipeline.views.topic import TOPIC

KIND: Final = Column(
    "kind",
    "string",
    "created, id-set, destroyed, seen, consumer-deleted, delivered, acked, claimed, cut (the topic lost what came"
    " behind the id); of a snapshot: snapshot-begin, -group, -consumer, -pending, -end",
)
GROUP: Final = Column("group", "string", "name of the group")
CONSUMER: Final = Column("consumer", "string", "name of the consumer")
LAST_ID: Final = Column("last_id", "string", "of the newest entry that the group was given, afterwards")
READ: Final = Column("read", "bigint", "entries that the group has read, afterwards; null: nobody knows")
IS_AHEAD: Final = Column("is_ahead", "boolean", "a client asked for a last id that the topic has not come to yet")
SEEN: Final = Column("seen", "timestamp", "when the consumer did it, in milliseconds")
IDS: Final = Column("ids", "array<string>", "entries that were delivered, acknowledged, claimed, or are pending")
SINCE_MS: Final = Column("since_ms", "array<bigint>", "of claimed and pending ones: since when, in ms since 1970")
DELIVERIES: Final = Column("deliveries", "array<bigint>", "of claimed and pending ones: how often each was delivered")

_OWN: Final = (KIND, GROUP, CONSUMER, LAST_ID, READ, IS_AHEAD, SEEN, IDS, SINCE_MS, DELIVERIES)
_KINDS: Final = (
    *("", "created", "id-set", "destroyed", "seen", "consumer-deleted", "delivered", "acked", "claimed", "cut"),
    *("snapshot-begin", "snapshot-group", "snapshot-consumer", "snapshot-pending", "snapshot-end"),
)
_SEQUENCE: Final = (1 << 64) - 1
_MOST_MS: Final = 253_402_300_799_999


class GroupsView(EventView):
    """One row per record of a topic's groups."""

    name = "groups"
    kinds = (places.GROUPS,)
    columns = (TIME, TIME_NS, TOPIC, *_OWN, SIZE, FILE, POSITION)

    def decode(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> pa.RecordBatch:
        arrays: list[pa.Array | None] = [common(piece, records, column.name) for column in wanted]
        rows: list[dict[str, Any]] | None = None
        for at, column in enumerate(wanted):
            if column == TOPIC:
                arrays[at] = schema.repeated(piece.file.place.name, len(records.times))
            elif arrays[at] is None:
                if rows is None:
                    rows = [_row(records.payload(number), number) for number in range(len(records.times))]
                arrays[at] = pa.array([row.get(column.name) for row in rows], column.arrow)
        return batch(wanted, arrays)


def _row(payload: bytes, number: int) -> dict[str, Any]:
    try:
        return _read(payload)
    except BadRecord as error:
        raise ValueError(f"no record of a group: {error}", number) from error


def _read(payload: bytes) -> dict[str, Any]:
    """Raises: BadRecord."""
    items = Items(payload)
    kind = items.number()
    if not codec.CREATED <= kind <= codec.END:
        raise BadRecord(f"a record of the unknown kind {kind}")
    row: dict[str, Any] = {KIND.name: _KINDS[kind]}
    if kind == codec.CUT:
        row[LAST_ID.name] = show_id(items.id())
    elif kind == codec.PENDING:
        _take_claimed(row, items)
    elif kind == codec.CONSUMER:
        row[CONSUMER.name], row[SEEN.name] = show_name(items.bytes()), seen(items.number())
    elif kind == codec.END:
        items.number(), items.number()
    elif kind != codec.BEGIN:
        row[GROUP.name] = show_name(items.bytes())
        _take_of_group(row, kind, items)
    items.end()
    return row


def _take_of_group(row: dict[str, Any], kind: int, items: Items) -> None:
    if kind in (codec.CREATED, codec.ID_SET, codec.GROUP):
        row[LAST_ID.name], row[READ.name] = show_id(items.id()), codec.take_read(items)
        row[IS_AHEAD.name] = codec.take_flag(items)
    elif kind == codec.ACKED:
        row[IDS.name] = [show_id(id) for id in codec.take_ids(items)]
    elif kind != codec.DESTROYED:
        row[CONSUMER.name] = show_name(items.bytes())
        if kind == codec.CONSUMER_DELETED:
            return
        row[SEEN.name] = seen(items.number())
        if kind == codec.DELIVERED:
            row[LAST_ID.name], row[READ.name] = show_id(items.id()), codec.take_read(items)
            row[IDS.name] = [show_id(id) for id in codec.take_ids(items)]
        elif kind == codec.CLAIMED:
            row[LAST_ID.name], row[IS_AHEAD.name] = show_id(items.id()), codec.take_flag(items)
            _take_claimed(row, items)


def _take_claimed(row: dict[str, Any], items: Items) -> None:
    found = codec.take_claimed(items)
    row[IDS.name] = [show_id(one.id) for one in found]
    row[SINCE_MS.name] = [one.time for one in found]
    row[DELIVERIES.name] = [one.deliveries for one in found]


def signed(number: int) -> int:
    """64 bits as Spark has them: numbers past the middle are negative."""
    return number if number < 1 << 63 else number - (1 << 64)


def show_id(id: EntryId) -> str:
    """As clients write it: ``1700000000123-7``."""
    return f"{id >> 64}-{id & _SEQUENCE}"


def show_name(name: bytes) -> str:
    """Text; odd bytes as ``\\xff``."""
    return name.decode("utf-8", "backslashreplace")


def seen(time_ms: int) -> int | None:
    """Milliseconds to microseconds; None for a time that a client made up, behind the year 9999."""
    return time_ms * 1000 if time_ms <= _MOST_MS else None
