"""The view ``jobs``: every command of the command log, each with what it says.

A note that stands for a command (engines/jobs/codec.py) is shown as that command. A job is followed by its ``id``; what
the engine makes of all commands is the view ``job_state``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from lamina.engines.jobs import codec
from lamina.pipeline import places
from lamina.pipeline.pieces import Piece
from lamina.pipeline.reading import Records
from lamina.pipeline.schema import Column
from lamina.pipeline.views.base import FILE, POSITION, SIZE, TIME, TIME_NS, EventView, batch, common

KIND: Final = Column(
    "kind",
    "string",
    "add, schedule, complete, fail, delete, expire, start-attempt, timeout-attempt, retry, touch, release, redrive,"
    " pause, resume, traits (of the job that comes next), or fence (notes of layout 2 follow)",
)
ID: Final = Column("id", "string", "of the job; null for what concerns a queue")
NAME: Final = Column("name", "string", "of the queue; of add, schedule, pause and resume")
TTR_MS: Final = Column("ttr_ms", "bigint", "how long an attempt may take; of a touch, from its time on")
TTL_MS: Final = Column("ttl_ms", "bigint", "how long the job lives")
PRIORITY: Final = Column("priority", "bigint", "larger ones come first")
MAX_ATTEMPTS: Final = Column("max_attempts", "bigint", "so many attempts at most; 0: any number")
MAX_FAILS: Final = Column("max_fails", "bigint", "so many failures at most; 0: the first one is the last")
PAYLOAD: Final = Column("payload", "binary", "what the job is about")
RUN_AT: Final = Column("run_at", "timestamp", "of a schedule: not before this time")
CREATED: Final = Column("created", "timestamp", "when the job was made")
RESULT: Final = Column("result", "binary", "of complete and fail; of a retry what went wrong")
NUMBER: Final = Column("number", "bigint", "of retry and release the delay, of traits the back-off, in milliseconds")
TEXT: Final = Column("text", "string", "of traits: the key that only one job may have")

_OWN: Final = (
    *(KIND, ID, NAME, TTR_MS, TTL_MS, PRIORITY, MAX_ATTEMPTS, MAX_FAILS),
    *(PAYLOAD, RUN_AT, CREATED, RESULT, NUMBER, TEXT),
)
_PLACES: Final = {column.name: place for place, column in enumerate(_OWN)}
_NONE: Final = (None,) * 12
_FIRST_US: Final = -62_135_596_800_000_000  # the years 1 to 9999: what everybody who reads a timestamp can show
_LAST_US: Final = 253_402_300_799_999_999


class JobsView(EventView):
    """One row per command."""

    name = "jobs"
    kinds = (places.JOBS,)
    columns = (TIME, TIME_NS, *_OWN, SIZE, FILE, POSITION)

    def decode(self, piece: Piece, records: Records, wanted: Sequence[Column]) -> pa.RecordBatch:
        arrays: list[pa.Array | None] = [common(piece, records, column.name) for column in wanted]
        if None in arrays:
            rows = [_row(records.payload(number), number) for number in range(len(records.times))]
            for at, column in enumerate(wanted):
                if arrays[at] is None:
                    place = _PLACES[column.name]
                    arrays[at] = pa.array([row[place] for row in rows], column.arrow)
        return batch(wanted, arrays)


def _row(payload: bytes, number: int) -> tuple[Any, ...]:
    try:
        return _command(payload)
    except codec.BadRecord as error:
        raise ValueError(f"no job command: {error}", number) from error


def _command(payload: bytes) -> tuple[Any, ...]:
    """Values of the columns, in their order. Raises: BadRecord."""
    if len(payload) < 17:
        raise codec.BadRecord("a record without a job id")
    if codec.is_note(payload):
        return _note(*codec.decode_note(payload))
    kind = payload[0]
    if kind in (codec.ADD, codec.SCHEDULE):
        id, name, ttr, ttl, priority, attempts, fails, body, time, created = codec.decode_job(payload)
        known = (show_id(id), name, ttr, ttl, priority, attempts, fails, body, micros(time), micros(created))
        return (codec.NAMES[kind], *known, None, None, None)
    if kind in (codec.COMPLETE, codec.FAIL):
        return _changed(kind, payload[1:17], codec.decode_result(payload))
    if not codec.DELETE <= kind <= codec.TIMEOUT:
        raise codec.BadRecord(f"a record of the unknown kind {kind}")
    if len(payload) != 17:
        raise codec.BadRecord("bytes behind the end of a record")
    return _changed(kind, payload[1:17], None)


def _changed(kind: int, id: bytes, result: bytes | None) -> tuple[Any, ...]:
    return (codec.NAMES[kind], show_id(id), *_NONE[:9], result, None, None)


def _note(kind: int, id: bytes, number: int, text: bytes) -> tuple[Any, ...]:
    if kind > codec.BEYOND:
        stands_for = kind - codec.BEYOND
        if not codec.COMPLETE <= stands_for <= codec.TIMEOUT:
            return _unknown(kind)
        has_result = stands_for in (codec.COMPLETE, codec.FAIL)
        return _changed(stands_for, id, text if has_result else None)
    if not codec.FENCE <= kind <= codec.TRAITS:
        return _unknown(kind)
    word = codec.NOTE_NAMES[kind]
    if kind == codec.FENCE:
        return (word, *_NONE, None)
    if kind in (codec.PAUSE, codec.RESUME):
        return (word, None, text.decode("latin-1"), *_NONE[:8], None, None, None)
    if kind == codec.TOUCH:
        return (word, show_id(id), None, number, *_NONE[:7], None, None, None)
    if kind == codec.TRAITS:
        return (word, show_id(id), *_NONE[:9], None, number, text.decode("latin-1"))
    has_number = kind in (codec.RETRY, codec.RELEASE)
    result = text if kind == codec.RETRY else None
    return (word, show_id(id), *_NONE[:9], result, number if has_number else None, None)


def _unknown(kind: int) -> tuple[Any, ...]:
    """Of a later version, perhaps. The engine passes it over."""
    return (f"note-{kind}", *_NONE, None)


def show_id(id: bytes) -> str:
    """As ``lamina jobs`` shows it, only sooner."""
    text = id.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def micros(time_ns: int | None) -> int | None:
    """Nanoseconds to microseconds; None for a time outside of the years 1 to 9999, which jobs may have."""
    if time_ns is None:
        return None
    found = time_ns // 1000
    return found if _FIRST_US <= found <= _LAST_US else None
