"""What is in a record of the queue store, log and dump alike: a msgpack array, its kind first.

    ["CREATE", rid, rkey, sid, skey, status, created_day, ttl?]    a queue and all that is known of it
    ["SECURE", rid, skey]          ["SUSPEND", rid]        ["DELETE", rid]
    ["MSG", rid, id, ts, flags, body, ttl?]                a message was sent
    ["QUOTA", rid, id, ts]                                 a sender met the quota
    ["ACK", rid, id]               ["EXPIRE", rid, id]     the head of the queue went
    ["END", queues, messages]                              the last record of a dump

Ids are 24 bytes; of keys only hashes are kept, nil where there is none. ``status`` is "active" or "off". ``ttl`` is in
seconds and is left out where none was given. Kind 0 is the kernel's (log/formats.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from lamina.engines.queues.ids import ID_BYTES
from lamina.engines.queues.message import NO_TTL, Message, Queue

CREATE: Final = "CREATE"
SECURE: Final = "SECURE"
SUSPEND: Final = "SUSPEND"
DELETE: Final = "DELETE"
MSG: Final = "MSG"
QUOTA: Final = "QUOTA"
ACK: Final = "ACK"
EXPIRE: Final = "EXPIRE"
END: Final = "END"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


MOST: Final = (1 << 62) - 1  # of any number in a record
_ID_HEAD: Final = bytes((0xC4, ID_BYTES))
_ACK_HEAD: Final = b"\x93\xa3ACK" + _ID_HEAD


class BadRecord(ValueError):
    """A payload that is no record of the queue store."""


# -- writing ---------------------------------------------------------------------------------------------------------


def create(queue: Queue) -> bytes:
    status = "off" if queue.is_off else "active"
    facts = (CREATE, queue.rid, queue.rkey, queue.sid, queue.skey, status, queue.created_day)
    return _encode(facts if queue.ttl == NO_TTL else (*facts, queue.ttl))


def secure(rid: bytes, skey: bytes) -> bytes:
    return _encode((SECURE, rid, skey))


def suspend(rid: bytes) -> bytes:
    return _encode((SUSPEND, rid))


def delete(rid: bytes) -> bytes:
    return _encode((DELETE, rid))


def message(rid: bytes, message: Message) -> bytes:
    """As it was sent, or the marker where it met the quota."""
    if message.body is None:
        return _encode((QUOTA, rid, message.id, message.ts))
    if message.ttl == NO_TTL:
        return _encode((MSG, rid, message.id, message.ts, message.flags, message.body))
    return _encode((MSG, rid, message.id, message.ts, message.flags, message.body, message.ttl))


def ack(rid: bytes, id: bytes) -> bytes:
    return _ACK_HEAD + rid + _ID_HEAD + id  # every second record is one


def expire(rid: bytes, id: bytes) -> bytes:
    return _encode((EXPIRE, rid, id))


def end(queues: int, messages: int) -> bytes:
    return _encode((END, queues, messages))


# -- reading ---------------------------------------------------------------------------------------------------------


def decode(payload: bytes) -> list[object]:
    """The values of a record, checked in number and kind. Raises: BadRecord."""
    try:
        values = _decode(payload)
        check = _CHECKS[values[0]] if type(values) is list else None
    except (ValueError, LookupError, TypeError, RecursionError):  # whatever is in there: it is no record
        check = None
    if check is None or not check(values):
        raise BadRecord("no record of the queue store")
    found: list[object] = values
    return found


def _is_id(value: object) -> bool:
    return type(value) is bytes and len(value) == ID_BYTES


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= MOST


def _is_key(value: object) -> bool:
    return value is None or type(value) is bytes


def _is_create(values: list[object]) -> bool:
    return (
        7 <= len(values) <= 8
        and _is_id(values[1])
        and _is_key(values[2])
        and _is_id(values[3])
        and _is_key(values[4])
        and values[5] in ("active", "off")
        and _is_count(values[6])
        and (len(values) == 7 or _is_count(values[7]))
    )


def _is_message(values: list[object]) -> bool:
    return (
        6 <= len(values) <= 7
        and _is_id(values[1])
        and _is_id(values[2])
        and _is_count(values[3])
        and type(values[4]) is bytes
        and type(values[5]) is bytes
        and (len(values) == 6 or _is_count(values[6]))
    )


def _is_quota(values: list[object]) -> bool:
    return len(values) == 4 and _is_id(values[1]) and _is_id(values[2]) and _is_count(values[3])


def _is_about_a_message(values: list[object]) -> bool:
    return len(values) == 3 and _is_id(values[1]) and _is_id(values[2])


def _is_about_a_queue(values: list[object]) -> bool:
    return len(values) == 2 and _is_id(values[1])


_CHECKS: Final[dict[str, Callable[[list[Any]], bool]]] = {
    CREATE: _is_create,
    SECURE: lambda values: len(values) == 3 and _is_id(values[1]) and type(values[2]) is bytes,
    SUSPEND: _is_about_a_queue,
    DELETE: _is_about_a_queue,
    MSG: _is_message,
    QUOTA: _is_quota,
    ACK: _is_about_a_message,
    EXPIRE: _is_about_a_message,
    END: lambda values: len(values) == 3 and _is_count(values[1]) and _is_count(values[2]),
}
