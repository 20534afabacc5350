"""A folder of queues as a dump leaves it, written straight with the codec: a million queues in seconds.

Ids and keys follow from a number, so whoever drives a server on the folder knows them without being told.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from hashlib import blake2b

from lamina.engines.queues import codec, ids, keys
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.options import DAY_S
from lamina.log import kernel
from lamina.log.formats import QUEUE_STORE

KEY = b"the same for all of them"
BODY = 100
_REST = b"m" * (BODY - 12)
_DUMP = os.path.join("queues", "smp-server-store-0.dump")
_AT_ONCE = 2000  # records that are framed by one call
_SECOND = 1_000_000_000


def rid_of(number: int) -> bytes:
    return _id(number, b"recipient")


def sid_of(number: int) -> bytes:
    return _id(number, b"sender")


def body_of(number: int) -> bytes:
    return b"%012d" % number + _REST


def _id(number: int, whose: bytes) -> bytes:
    return blake2b(number.to_bytes(8, "big"), digest_size=ids.ID_BYTES, person=whose).digest()


def write(data: str, queues: int, messages: int) -> dict[str, float]:
    """A dump of so many queues in the data folder ``data``, with so many messages each. All have both keys.

    Returns how many records and bytes it has.
    """
    path = os.path.join(data, _DUMP)
    os.makedirs(os.path.dirname(path))
    now = time.time_ns() - _SECOND  # what comes next is later
    records, size, batch = 0, 0, list[bytes]()
    with open(path, "wb") as out:
        size += out.write(QUEUE_STORE.header)
        for payload in _payloads(queues, messages, now // _SECOND):
            batch.append(payload)
            if len(batch) == _AT_ONCE:
                size += out.write(kernel.encode_many(now + records, batch))
                records += len(batch)
                batch.clear()
        size += out.write(kernel.encode_many(now + records, batch))
        records += len(batch)
    return {"records": records, "bytes": size, "queues": queues, "messages": queues * messages}


def _payloads(queues: int, messages: int, now: int) -> Iterator[bytes]:
    day = now // DAY_S * DAY_S
    for number in range(queues):
        rid, sid = rid_of(number), sid_of(number)
        rkey, skey = (keys.hashed(KEY, id[: keys.SALT_BYTES]) for id in (rid, sid))
        yield codec.create(Queue(rid, rkey, sid, skey, False, day))
        for each in range(number * messages, (number + 1) * messages):
            yield codec.message(rid, Message(_id(each, b"message"), now, b"", body_of(each)))
    yield codec.end(queues, queues * messages)


def sends_and_syncs(data: str) -> tuple[int, int]:
    """How many messages the newest log of a folder has, and how many syncs there were for them.

    The writer puts a watermark before a batch if it synced since the batch before. So where nothing is answered before
    it is synced, there is one for each sync but the last.
    """
    folder = os.path.join(data, "queues")
    logs = [name for name in os.listdir(folder) if name.endswith(".log")]
    newest = max(logs, key=lambda name: int(name.split("-")[-1].removesuffix(".log")))
    with open(os.path.join(folder, newest), "rb") as file:
        content = file.read()
    found = kernel.scan(content, len(QUEUE_STORE.header), len(content))
    sends = marks = 0
    for at, length in zip(found.offsets, found.lengths, strict=True):
        payload = content[at : at + length]
        if QUEUE_STORE.is_mark(payload):
            marks += sends > 0
        elif codec.decode(payload)[0] == codec.MSG:
            sends += 1
    return sends, marks + 1
