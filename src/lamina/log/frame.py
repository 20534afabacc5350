"""The record frame: the one format in which every log file of lamina stores its records.

    record = time(15) size(uvarint) payload(size) crc(u32)                       all integers big endian
    time   = 0x01 seconds(i64, since 0001-01-01) nanoseconds(i32) zone(i16)      zone is written as -1, UTC
    crc    = CRC-32C over time, size and payload

This module is the readable definition. ``_speed.pyx`` is its compiled twin; property tests hold the two equal, byte
for byte and on damaged input. Choose between them through ``kernel.py``. Prose and a worked example:
docs/formats/frame.md.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from lamina.errors import RecordTooLarge, ReservedPayload

TIME: Final = struct.Struct(">Bqih")
CRC: Final = struct.Struct(">I")
TIME_VERSION: Final = 1  # never 0, so a zero-filled tail cannot look like a record
UTC_ZONE: Final = -1
YEAR_ONE: Final = 62_135_596_800  # seconds from 0001-01-01T00:00:00Z to 1970-01-01T00:00:00Z
SECOND: Final = 1_000_000_000
MIN_RECORD: Final = TIME.size + 1 + CRC.size
MAX_PAYLOAD: Final = 64 << 20
SPACING: Final = 64 << 10  # bytes between the points of a sparse index
MAX_UVARINT: Final = 10  # bytes of a 64-bit number
# Unix seconds whose nanoseconds all fit into 64 bits: the years 1677 to 2262.
_FIRST_SECOND, _LAST_SECOND = -9_223_372_036, 9_223_372_035
LAST_TIME: Final = _LAST_SECOND * SECOND + SECOND - 1


class Stop(IntEnum):
    """Why a scan stopped."""

    END = 0  # exactly at the end of the bytes
    TRUNCATED = 1  # the bytes end inside a record
    BAD_TIME = 2  # not a time: another version, or out of range
    BAD_SIZE = 3  # not a size: over 64 bits, not in shortest form, or above the largest payload
    BAD_CRC = 4  # the checksum differs


REASONS: Final = {
    Stop.TRUNCATED: "the record is cut short",
    Stop.BAD_TIME: "this is not the start of a record",
    Stop.BAD_SIZE: "the size of the record is absurd",
    Stop.BAD_CRC: "the checksum differs",
}


class Scan(NamedTuple):
    """Records found in a buffer, as columns, and where and why the scan stopped."""

    times: array[int]  # nanoseconds since 1970
    offsets: array[int]  # of the payload, from the start of the buffer
    lengths: array[int]  # of the payload
    stop: int  # offset behind the last whole record
    why: Stop
    newest: int  # the latest of the times; 0 if there is none


def crc32c(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """CRC-32C (Castagnoli) of ``data``, going on from ``crc``."""
    # Imported here: the package costs 60 ms to import and is not needed beside the compiled twin.
    import crc32c as package

    return package.crc32c(bytes(data), crc)


def encode_time(time_ns: int) -> bytes:
    seconds, nanos = divmod(time_ns, SECOND)
    return TIME.pack(TIME_VERSION, seconds + YEAR_ONE, nanos, UTC_ZONE)


def encode_uvarint(number: int) -> bytes:
    """Unsigned LEB128: seven bits a byte, lowest first, the high bit says that more follow."""
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(time_ns: int, payload: bytes) -> bytes:
    """One record."""
    body = encode_time(time_ns) + encode_uvarint(len(payload)) + payload
    return body + CRC.pack(crc32c(body))


def encode_into(
    buffer: bytearray,
    at: int,
    first_ns: int,
    payloads: Sequence[bytes],
    max_payload: int = MAX_PAYLOAD,
    reserved: tuple[bytes, bytes] = (b"", b""),
) -> tuple[int, list[tuple[int, int]]]:
    """Put records of ``payloads``, stamped ``first_ns``, ``first_ns`` + 1 and so on, into ``buffer`` from ``at`` on.

    The buffer grows as needed. Returns where the records end, and for the sparse index (number, offset) of a record
    every ``SPACING`` bytes; the first one is not among them.
    Raises: RecordTooLarge; ReservedPayload for the form of a kernel mark (formats.py); TypeError. What is in the buffer
    before ``at`` is then as it was.
    """
    points = []
    last_point = at
    for index, payload in enumerate(payloads):
        payload = _checked(index, payload, max_payload, reserved)
        if at - last_point >= SPACING:
            points.append((index, at))
            last_point = at
        record = encode(first_ns + index, payload)
        buffer[at : at + len(record)] = record
        at += len(record)
    return at, points


def _checked(index: int, payload: bytes, max_payload: int, reserved: tuple[bytes, bytes]) -> bytes:
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError(f"payload {index} of the batch is {type(payload).__name__}, not bytes")
    payload = bytes(payload)
    if len(payload) > max_payload:
        raise RecordTooLarge(index, len(payload), max_payload)
    for prefix in reserved:
        if prefix and len(payload) == len(prefix) + 8 and payload.startswith(prefix):
            raise ReservedPayload(index)
    return payload


def encode_many(
    first_ns: int,
    payloads: Sequence[bytes],
    max_payload: int = MAX_PAYLOAD,
    reserved: tuple[bytes, bytes] = (b"", b""),
) -> bytes:
    """The same as new bytes."""
    buffer = bytearray()
    end, _ = encode_into(buffer, 0, first_ns, payloads, max_payload, reserved)
    return bytes(buffer[:end])


def record_size(payload_size: int) -> int:
    """Bytes of a whole record with a payload of that size."""
    return TIME.size + len(encode_uvarint(payload_size)) + payload_size + CRC.size


class Head(NamedTuple):
    """What stands before a payload."""

    time_ns: int
    payload_at: int
    size: int

    @property
    def end(self) -> int:
        return self.payload_at + self.size + CRC.size


def decode_head(data: bytes | memoryview, at: int, end: int, max_payload: int = MAX_PAYLOAD) -> Head | Stop:
    """Time and size of the record at ``at``, or why there is none. Does not look at payload or checksum."""
    if at == end:
        return Stop.END
    if data[at] != TIME_VERSION:
        return Stop.BAD_TIME
    if end - at < TIME.size:
        return Stop.TRUNCATED
    _, seconds, nanos, _ = TIME.unpack_from(data, at)
    if not (0 <= nanos < SECOND and _FIRST_SECOND <= seconds - YEAR_ONE <= _LAST_SECOND):
        return Stop.BAD_TIME
    size = shift = 0
    cursor = at + TIME.size
    while True:
        if cursor == end:
            return Stop.TRUNCATED
        byte = data[cursor]
        cursor += 1
        if shift == 63 and byte > 1:  # tenth byte: more than 64 bits
            return Stop.BAD_SIZE
        size |= (byte & 0x7F) << shift
        if byte == 0 and shift:  # not the shortest form: nobody writes that
            return Stop.BAD_SIZE
        if byte < 0x80:
            break
        shift += 7
    if size > max_payload:
        return Stop.BAD_SIZE
    return Head((seconds - YEAR_ONE) * SECOND + nanos, cursor, size)


def decode(data: bytes | memoryview, at: int, end: int, max_payload: int = MAX_PAYLOAD) -> Head | Stop:
    """The record at ``at`` if it is whole and its checksum right, else why not."""
    head = decode_head(data, at, end, max_payload)
    if isinstance(head, Stop):
        return head
    if head.end > end:
        return Stop.TRUNCATED
    body_end = head.payload_at + head.size
    if crc32c(data[at:body_end]) != CRC.unpack_from(data, body_end)[0]:
        return Stop.BAD_CRC
    return head


def scan(data: bytes | bytearray | memoryview, start: int, end: int, max_payload: int = MAX_PAYLOAD) -> Scan:
    """Every whole record of ``data[start:end]`` up to the first that is not."""
    view = memoryview(data)
    if not 0 <= start <= end <= len(view):
        raise ValueError("scan outside of the buffer")
    times, offsets, lengths = array("q"), array("q"), array("q")
    at = start
    while True:
        head = decode(view, at, end, max_payload)
        if isinstance(head, Stop):
            return Scan(times, offsets, lengths, at, head, max(times, default=0))
        times.append(head.time_ns)
        offsets.append(head.payload_at)
        lengths.append(head.size)
        at = head.end
