"""What is in a record of the command log: payload bytes to values and back, byte for byte as workq writes them.

    kind(1) id(16) ...                                     | fields
    1 add, 2 schedule                                      | name ttr ttl priority max-attempts max-fails payload
                                                           | time created
    3 complete, 4 fail                                     | result
    5 delete, 6 expire, 7 start-attempt, 8 timeout-attempt | none

Numbers are unsigned LEB128, only the priority is zigzag; strings have their length before them; times are 15 bytes
(docs/formats/jobs.md). What workq does not know is a *note*: a ``complete`` of an id that no job can have, whose result
is ours to fill. workq ignores it as it ignores every result of an unknown job. It checks the id and the size all the
same: so the id is of version 4, one of those that are reserved, and what is too large for a result is an ``add`` of
a job whose life was over in 1970, of which workq reads no more than that.
"""

from __future__ import annotations

from lamina.engines.jobs.packing import SECOND, YEAR_1, encode_job, encode_plain, encode_result, encode_time, uvarint

__all__ = ("encode_job", "encode_plain", "encode_result", "encode_time", "uvarint")

ADD, SCHEDULE, COMPLETE, FAIL, DELETE, EXPIRE, START, TIMEOUT = range(1, 9)
NAMES = ("", "add", "schedule", "complete", "fail", "delete", "expire", "start-attempt", "timeout-attempt")

RESERVED = b"lamjob\x40\0\x80\0\0\0\0\0\0"
"""All of an id but its last byte, which is the kind of note: no job may have such an id."""
FENCE, RETRY, TOUCH, RELEASE, REDRIVE, PAUSE, RESUME, TRAITS = range(8)
NOTE_NAMES = ("fence", "retry", "touch", "release", "redrive", "pause", "resume", "traits")
BEYOND = 16
"""A note of this kind + that of a record stands for the record, of a job whose story workq can no longer follow."""
_NOTE = COMPLETE.to_bytes(1, "big") + RESERVED
_LARGE_NOTE = ADD.to_bytes(1, "big") + RESERVED
_OLD_NOTE = COMPLETE.to_bytes(1, "big") + b"lamjob\0"
"""As notes were until layout 2 (log/mark.py): of version 0, which workq refuses."""
_NOTES = (_NOTE, _LARGE_NOTE, _OLD_NOTE)
_LARGEST_RESULT = 1 << 20  # that workq takes

LONGEST_MS = 1 << 42  # 139 years: what time in 64 bits can hold
_32_BITS = 0xFFFF_FFFF
ZERO_TIME = -YEAR_1 * SECOND
"""What workq takes for "not scheduled"."""
FENCE_RECORD = encode_job(RESERVED + bytes(1), "", LONGEST_MS + 1, 0, 0, 0, 0, b"", None, 0)
"""Stands before the first note that a lamina of before does not know: it takes the number for damage, and opens
nothing. Else it would forget what the notes say. workq passes it over."""


class BadRecord(ValueError):
    """A payload that is no command of this log."""

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message)
        self.number = number
        """Which record of a batch it is."""


# -- writing (the rest is in packing.py) -------------------------------------------------------------------------------


def encode_note(kind: int, id: bytes, number: int = 0, text: bytes = b"") -> bytes:
    """A note about the job ``id`` (or about nothing, for the queue named ``text``), with a number and a text."""
    body, own = id + uvarint(number) + text, RESERVED + kind.to_bytes(1, "big")
    if len(body) > _LARGEST_RESULT:
        return encode_job(own, "", 0, 0, 0, 0, 0, body, None, 0)
    return encode_result(COMPLETE, own, body)


# -- reading ------------------------------------------------------------------------------------------------------


class Fields:
    """Takes fields off a record one by one. Raises: BadRecord when it is cut short."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def number(self) -> int:
        data, at = self.data, self.at
        number = shift = 0
        while at < len(data) and shift < 64:
            byte = data[at]
            at += 1
            if shift == 63 and byte > 1:
                raise BadRecord("a number of more than 64 bits")
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                self.at = at
                return number
            shift += 7
        raise BadRecord("a number is cut short")

    def up_to(self, most: int) -> int:
        number = self.number()
        if number > most:
            raise BadRecord(f"a number of {number} where {most} is the most")
        return number

    def text(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise BadRecord("a field is cut short")
        end = self.at + size
        text = self.data[self.at : end]
        self.at = end
        return text


def is_note(payload: bytes) -> bool:
    return payload.startswith(_NOTES)


def is_old_note(payload: bytes) -> bool:
    return payload.startswith(_OLD_NOTE)


def renewed(payload: bytes) -> bytes:
    """The record as it is written now. Raises: BadRecord."""
    return encode_note(*decode_note(payload)) if payload.startswith(_OLD_NOTE) else payload


def decode_job(payload: bytes) -> tuple[bytes, str, int, int, int, int, int, bytes, int | None, int]:
    """The values that ``encode_job`` takes. Raises: BadRecord."""
    fields = Fields(payload, 17)
    name = fields.text(fields.number()).decode("latin-1")
    ttr = fields.up_to(LONGEST_MS)
    ttl = fields.up_to(LONGEST_MS)
    zigzag = fields.up_to(_32_BITS)
    max_attempts = fields.up_to(_32_BITS)
    max_fails = fields.up_to(_32_BITS)
    body = fields.text(fields.number())
    end = fields.at
    if end + 30 != len(payload):
        raise BadRecord("the fields of a job do not fill its record")
    return (
        payload[1:17],
        name,
        ttr,
        ttl,
        (zigzag >> 1) ^ -(zigzag & 1),
        max_attempts,
        max_fails,
        body,
        None if payload[0] == ADD else read_time(payload, end),
        read_time(payload, end + 15),
    )


def decode_result(payload: bytes) -> bytes:
    """The result in a ``complete`` or ``fail``. Raises: BadRecord."""
    fields = Fields(payload, 17)
    result = fields.text(fields.number())
    if fields.at != len(payload):
        raise BadRecord("a result does not fill its record")
    return result


def decode_note(payload: bytes) -> tuple[int, bytes, int, bytes]:
    """Kind, id, number and text of a note. Raises: BadRecord."""
    is_old = payload.startswith(_OLD_NOTE)
    kind = payload[len(_OLD_NOTE) if is_old else len(_NOTE)]
    if kind == FENCE and not is_old:
        return FENCE, bytes(16), 0, b""
    body = decode_result(payload) if payload[0] == COMPLETE else decode_job(payload)[7]
    if len(body) < 17:
        raise BadRecord("a note is too short")
    fields = Fields(body, 16)
    number = fields.up_to(LONGEST_MS)
    return kind, body[:16], number, body[fields.at :]


def read_time(data: bytes, at: int) -> int:
    """Nanoseconds since 1970. The zone is ignored: workq reads any and means UTC."""
    if data[at] != 1:
        raise BadRecord(f"a time of version {data[at]}")
    seconds = _big_endian(data, at + 1, 8)
    return (seconds - YEAR_1) * SECOND + _big_endian(data, at + 9, 4)


def _big_endian(data: bytes, at: int, size: int) -> int:
    number = 0
    for place in range(at, at + size):
        number = number << 8 | data[place]
    return number


def clamped(ns: int) -> int:
    """As near as a signed 64-bit number comes."""
    return max(min(ns, (1 << 63) - 1), -(1 << 63) + 1)


def wrapped(ns: int) -> int:
    """As a signed 64-bit number, the way workq compares times: the year 9999 comes before 1970."""
    return ((ns + (1 << 63)) & ((1 << 64) - 1)) - (1 << 63)
