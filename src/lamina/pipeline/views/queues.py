"""The view ``queue_events``: what happened to queues and their messages, as far as their files still tell.

Queues have their handle, as ``lamina queues`` shows them, and messages one of the same kind: neither an id nor a key is
in a table, for who has one could receive or send with it. The records of a dump say how queues were, not what happened
at some time: there ``time`` is null. Of the store ``journal`` the messages are in journals, one folder for each queue:
there is a row for each that has not been cleaned away yet, received or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa

from lamina.engines.queues import codec, ids
from lamina.engines.queues.journal import records as journal_records
from lamina.engines.queues.journal.home import no_path
from lamina.engines.queues.message import NO_TTL
from lamina.engines.queues.opening import JOURNALS
from lamina.engines.queues.store_reading import TORN_TAIL, StoreReading
from lamina.errors import Corruption
from lamina.log.files import Files, join
from lamina.pipeline import places
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.reading import Damage, Records
from lamina.pipeline.reading import read_piece as read_records
from lamina.pipeline.schema import Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.views import journals
from lamina.pipeline.views.base import FILE, POSITION, SIZE, TIME, TIME_NS, EventView, bad_rows, batch, common, damaged

KIND: Final = Column(
    "kind",
    "string",
    "create, secure, suspend, delete, message, quota (a sender met it), ack, expire, or end (of a dump)",
)
QUEUE: Final = Column("queue", "string", "handle of the queue, as lamina queues shows it")
MESSAGE: Final = Column("message", "string", "handle of the message: the same in its message, ack and expire")
SENT: Final = Column("sent", "timestamp", "when the message was sent, in seconds")
FLAGS: Final = Column("flags", "binary", "what the sender put beside the message")
BODY: Final = Column("body", "binary", "the message")
TTL_S: Final = Column("ttl_s", "bigint", "how long it is kept, or messages of the queue; null: nobody said")
STATUS: Final = Column("status", "string", "of create: active or off")
IS_SECURED: Final = Column("is_secured", "boolean", "of create and secure: senders have to show a key")
CREATED: Final = Column("created", "timestamp", "of create: the day")

_OWN: Final = (KIND, QUEUE, MESSAGE, SENT, FLAGS, BODY, TTL_S, STATUS, IS_SECURED, CREATED)
_WORDS: Final = {codec.MSG: "message"}
_DUMP: Final = ".dump"
_LAST_S: Final = 253_402_300_799

Row = dict[str, Any]


class QueueEventsView(EventView):
    """One row per record of the queues."""

    name = "queue_events"
    kinds = (places.QUEUES, places.JOURNAL)
    columns = (TIME, TIME_NS, *_OWN, SIZE, FILE, POSITION)

    def plan(self, disk: Files, snapshot: Snapshot, options: ReadOptions, times: Times) -> list[Any]:
        if times != Times():  # a dump has nothing that is of some time
            files = tuple(file for file in snapshot.files if not file.name.endswith(_DUMP))
            snapshot = replace(snapshot, files=files)
        tasks: list[Any] = super().plan(disk, snapshot, options, times)
        folders = dict.fromkeys(file.place.folder for file in snapshot.files if file.place.kind == places.QUEUES)
        for folder in folders:
            tasks += journals.divide(journals.find(disk, join(folder, JOURNALS)), options.min_partitions)
        return tasks

    def read(
        self, disk: Files, task: Any, wanted: Sequence[Column], times: Times, *, is_permissive: bool = False
    ) -> Iterator[pa.RecordBatch]:
        if not isinstance(task, journals.Journals):
            yield from super().read(disk, task, wanted, times, is_permissive=is_permissive)
            return
        for folder in task.folders:
            with no_path(journals.id_of(folder) or b"", "read its messages"):
                for piece in journals.pieces(disk, folder):
                    yield from self.read_one(disk, piece, wanted, times, is_permissive)

    def read_one(
        self, disk: Files, piece: Piece, wanted: Sequence[Column], times: Times, is_permissive: bool
    ) -> Iterator[pa.RecordBatch]:
        bad: list[tuple[str, int, str]] = []
        try:
            for records in read_records(disk, piece, times, _judge(disk, piece, bad if is_permissive else None)):
                yield from bad_rows(piece.file.place, bad, wanted)
                try:
                    yield self.decode(piece, records, wanted)
                except ValueError as error:
                    if not is_permissive:
                        raise damaged(piece, records, error) from error
                    yield from self._one_by_one(piece, records, wanted)
        except _TornTail:
            pass
        yield from bad_rows(piece.file.place, bad, wanted)

    def decode(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> pa.RecordBatch:
        count = len(records.times)
        is_dump = piece.file.name.endswith(_DUMP)
        handle = journals.handle_of(piece.file.place.folder) if piece.file.place.kind == places.JOURNAL else None
        rows: list[Row] | None = None
        arrays = []
        for column in wanted:
            made = None if is_dump and column in (TIME, TIME_NS) else common(piece, records, column.name)
            if is_dump and column in (TIME, TIME_NS):
                made = pa.nulls(count, column.arrow)
            elif made is None:
                if rows is None:
                    is_journal = piece.file.place.kind == places.JOURNAL
                    take = _take_journal if is_journal else _take
                    rows = [take(records.payload(number), number) for number in range(count)]
                    if is_journal:
                        for row in rows:
                            row[QUEUE.name] = handle
                made = pa.array([row.get(column.name) for row in rows], column.arrow)
            arrays.append(made)
        return batch(wanted, arrays)


class _TornTail(Exception):
    """A log that was being written when the power or the process went ends here."""


def _judge(disk: Files, piece: Piece, bad: list[tuple[str, int, str]] | None) -> Damage:
    """What to do about a bad place: every log may end torn, and stays so until a dump takes it in."""
    place = piece.file.place

    def judge(file: str, offset: int, reason: str) -> None:
        if place.kind == places.QUEUES and not file.endswith(_DUMP) and _is_torn(disk, place.folder, file, offset):
            raise _TornTail
        if bad is None:
            raise Corruption(file, offset, reason)
        bad.append((file, offset, reason))

    return judge


def _is_torn(disk: Files, folder: str, file: str, offset: int) -> bool:
    """As the engine sees it when it restores the queues."""
    torn: list[int] = []

    def tell(kind: str, record: int | None, at: int, reason: str) -> None:
        if kind == TORN_TAIL:
            torn.append(at)

    for _ in StoreReading(disk, folder, file, 0, tell):
        pass
    return offset in torn


def _take(payload: bytes, number: int) -> Row:
    try:
        values: list[Any] = codec.decode(payload)
    except codec.BadRecord as error:
        raise ValueError(str(error), number) from error
    kind = values[0]
    row: Row = {KIND.name: _WORDS.get(kind) or kind.lower()}
    if kind == codec.END:
        return row
    row[QUEUE.name] = ids.handle(values[1])
    if kind == codec.CREATE:
        row[STATUS.name], row[IS_SECURED.name], row[CREATED.name] = values[5], values[4] is not None, moment(values[6])
        row[TTL_S.name] = values[7] if len(values) > 7 else None
    elif kind == codec.SECURE:
        row[IS_SECURED.name] = True
    elif kind in (codec.MSG, codec.QUOTA, codec.ACK, codec.EXPIRE):
        row[MESSAGE.name] = ids.handle(values[2])
        if kind in (codec.MSG, codec.QUOTA):
            row[SENT.name] = moment(values[3])
        if kind == codec.MSG:
            row[FLAGS.name], row[BODY.name] = values[4], values[5]
            row[TTL_S.name] = values[6] if len(values) > 6 else None
    return row


def _take_journal(payload: bytes, number: int) -> Row:
    message = journal_records.decode(payload)
    if message is None:
        raise ValueError("no message of a journal", number)
    row: Row = {MESSAGE.name: ids.handle(message.id), SENT.name: moment(message.ts)}
    if message.body is None:
        return {KIND.name: "quota", **row}
    ttl = None if message.ttl == NO_TTL else message.ttl
    return {KIND.name: "message", **row, FLAGS.name: message.flags, BODY.name: message.body, TTL_S.name: ttl}


def moment(seconds: int) -> int | None:
    """Seconds to microseconds; None for a time behind the year 9999."""
    return seconds * 10**6 if seconds <= _LAST_S else None
