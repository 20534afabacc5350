"""The records of a job's life to bytes: what every command writes. codec.py reads them, and says what is in them.

_packing.pyx is the compiled twin, made by hand; the two are held equal by tests.
"""

from __future__ import annotations

import struct

YEAR_1 = 62135596800  # seconds from there to 1970
SECOND = 1_000_000_000

_KINDS = tuple(bytes([kind]) for kind in range(9))
_TIME = struct.Struct(">BqiH")  # version, seconds since the year 1, nanoseconds, zone in minutes
_UTC = 0xFFFF  # -1, as Go writes it
_NO_TIME = _TIME.pack(1, 0, 0, _UTC)


def encode_job(
    id: bytes,
    name: str,
    ttr: int,
    ttl: int,
    priority: int,
    max_attempts: int,
    max_fails: int,
    payload: bytes,
    time: int | None,
    created: int,
) -> bytes:
    """An ``add``, or a ``schedule`` if it has a time (nanoseconds since 1970, as ``created``)."""
    raw = name.encode()
    return b"".join(
        (
            b"\x01" if time is None else b"\x02",
            id,
            uvarint(len(raw)),
            raw,
            uvarint(ttr),
            uvarint(ttl),
            uvarint(priority << 1 if priority >= 0 else (-priority << 1) - 1),
            uvarint(max_attempts),
            uvarint(max_fails),
            uvarint(len(payload)),
            payload,
            _NO_TIME if time is None else encode_time(time),
            encode_time(created),
        )
    )


def encode_result(kind: int, id: bytes, result: bytes) -> bytes:
    return b"".join((_KINDS[kind], id, uvarint(len(result)), result))


def encode_plain(kind: int, id: bytes) -> bytes:
    return _KINDS[kind] + id


def encode_time(ns: int) -> bytes:
    return _TIME.pack(1, ns // SECOND + YEAR_1, ns % SECOND, _UTC)


def uvarint(number: int) -> bytes:
    if number < 0x80:
        return number.to_bytes(1, "big")
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
