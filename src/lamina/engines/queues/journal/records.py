"""One message in a message file: a frame whose payload is a msgpack array.

[id, ts, flags, body]    [id, ts, flags, body, ttl]     a message
[id, ts]                                                the marker where a sender met the quota
[id, ts, "lost"]                                        the marker that says that messages were lost
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import msgspec

from lamina.engines.queues.codec import MOST
from lamina.engines.queues.ids import ID_BYTES
from lamina.engines.queues.message import LOST, NO_TTL, Message
from lamina.log import kernel
from lamina.log.formats import JOURNAL
from lamina.log.scan import HEADER_SIZE

HEADER: Final = JOURNAL.header
assert len(HEADER) == HEADER_SIZE
NAME: Final = re.compile(r"messages\.([A-Za-z0-9_-]{16})\.log")
_ID_BYTES: Final = 12
_LOST: Final = LOST.decode()

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def name_of(file_id: str) -> str:
    return f"messages.{file_id}.log"


def new_file_id(random: Callable[[int], bytes]) -> str:
    return urlsafe_b64encode(random(_ID_BYTES)).decode()


def encode(time_ns: int, message: Message) -> bytes:
    """The whole record."""
    if message.is_loss:
        payload = _encode((message.id, message.ts, _LOST))
    elif message.body is None:
        payload = _encode((message.id, message.ts))
    elif message.ttl == NO_TTL:
        payload = _encode((message.id, message.ts, message.flags, message.body))
    else:
        payload = _encode((message.id, message.ts, message.flags, message.body, message.ttl))
    return kernel.encode_many(time_ns, (payload,))


def loss(file_id: str, at: int, ts: int) -> Message:
    """The marker in place of what cannot be read at ``at``: whenever it is delivered again, its id is the same."""
    return Message(blake2b(f"{file_id} {at}".encode(), digest_size=ID_BYTES).digest(), ts, LOST, None)


def decode(payload: bytes) -> Message | None:
    """None if the payload is no message."""
    try:
        values = _decode(payload)
    except (ValueError, TypeError, RecursionError):
        return None
    if type(values) is not list or len(values) not in (2, 3, 4, 5):
        return None
    id, ts = values[0], values[1]
    if type(id) is not bytes or len(id) != ID_BYTES or type(ts) is not int or not 0 <= ts <= MOST:
        return None
    if len(values) == 2:
        return Message(id, ts, b"", None)
    if len(values) == 3:
        return Message(id, ts, LOST, None) if values[2] == _LOST else None
    flags, body = values[2], values[3]
    ttl = values[4] if len(values) == 5 else NO_TTL
    if type(flags) is not bytes or type(body) is not bytes or type(ttl) is not int or not NO_TTL <= ttl <= MOST:
        return None
    return Message(id, ts, flags, body, ttl)
