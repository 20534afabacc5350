"""Counting what a store holds, so that two can be compared without holding either in memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Final, NamedTuple, TypeAlias

from lamina.engines.queues import codec
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.state import State
from lamina.log import kernel
from lamina.log.formats import QUEUE_STORE

_CHUNK: Final = 256 << 10  # bytes that are written at once

Groups: TypeAlias = Iterable[tuple[Queue, list[Message]]]
"""Queues in the order of their ids, each with its messages."""


class Counted(NamedTuple):
    """What a store holds: the same numbers and the same digest mean the same queues, messages and order."""

    queues: int
    messages: int
    """Markers included."""
    digest: str
    """Over every record that a dump with messages would have, queue by queue."""


class Counting:
    """Counts queue by queue, in the order of their ids."""

    def __init__(self) -> None:
        self._queues = self._messages = 0
        self._hash = blake2b(digest_size=32)

    def add(self, queue: Queue, messages: Iterable[Message]) -> None:
        self._queues += 1
        self._take(codec.create(queue))
        for message in messages:
            self._messages += 1
            self._take(codec.message(queue.rid, message))

    def _take(self, record: bytes) -> None:
        self._hash.update(len(record).to_bytes(8))
        self._hash.update(record)

    def done(self) -> Counted:
        return Counted(self._queues, self._messages, self._hash.hexdigest())


def count(state: State) -> Counted:
    """What a state holds, with the messages in it."""
    return counted((queue, queue.messages) for queue in in_order(state))


def counted(groups: Groups) -> Counted:
    counting = Counting()
    for queue, messages in groups:
        counting.add(queue, messages)
    return counting.done()


def in_order(state: State) -> Iterator[Queue]:
    return (state.queues[rid] for rid in sorted(state.queues))


def dump_of(groups: Groups, most: int, last_ns: int) -> Iterator[bytes]:
    """The bytes of a dump of at most ``most`` queues and messages.

    Times rise, and the last one is that of the newest record there was (``last_ns``), as folding.py has it.
    """
    yield QUEUE_STORE.header
    time_ns = last_ns - most - 1
    pending: list[bytes] = []
    size = queues = sent = 0
    for queue, messages in groups:
        queues, sent = queues + 1, sent + len(messages)
        records = [codec.create(queue), *(codec.message(queue.rid, message) for message in messages)]
        pending += records
        size += sum(map(len, records))
        if size >= _CHUNK:
            yield kernel.encode_many(time_ns, pending)
            time_ns += len(pending)
            pending, size = [], 0
    yield kernel.encode_many(time_ns, pending)
    assert time_ns + len(pending) <= last_ns, "more records than were counted"
    yield kernel.encode_many(last_ns, [codec.end(queues, sent)])
