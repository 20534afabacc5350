"""All queues of a store, as its records say: no clock, no disk, no chance. Live commands and replay go through here.

What a record cannot do to this state (an ACK of what is not the head, a message for a queue that is not there) changes
nothing, and is told in a word: in a log that is being read again it deserves a warning, from a client it was refused
before it became a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lamina.engines.queues import codec
from lamina.engines.queues.message import NO_TTL, Message, Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

UNKNOWN_QUEUE = "unknown_queue"
NOT_HEAD = "ack_not_head"
DUPLICATE = "duplicate_message"
_MANY = 64  # messages of a queue: more are not looked through one by one


class State:
    """Queues by either id."""

    def __init__(self) -> None:
        self.queues: dict[bytes, Queue] = {}
        """By the recipient's id."""
        self.senders: dict[bytes, Queue] = {}
        """By the sender's."""
        self.messages = 0
        """In all queues, markers included."""
        self.records = 0
        """That were applied since the state was made."""
        self._ids: dict[bytes, set[bytes]] = {}
        """Of queues with many messages, while records are read again: which ids are in them."""

    def apply(self, payload: bytes) -> str | None:
        """Do what a record says. Returns why it did nothing, None if it did. Raises: codec.BadRecord."""
        return self.apply_values(codec.decode(payload))

    def apply_values(self, values: list[Any]) -> str | None:
        """The same for a record that was decoded."""
        self.records += 1
        kind = values[0]
        if kind == codec.MSG:
            message = Message(values[2], values[3], values[4], values[5], values[6] if len(values) > 6 else NO_TTL)
            return self.add(values[1], message)
        if kind == codec.ACK:
            return self.drop_head(values[1], values[2])
        if kind == codec.CREATE:
            _, rid, rkey, sid, skey, status, day = values[:7]
            ttl = values[7] if len(values) > 7 else NO_TTL
            self.put(Queue(rid, rkey, sid, skey, status == "off", day, ttl))
            return None
        if kind == codec.QUOTA:
            return self.add(values[1], Message(values[2], values[3], b"", None))
        if kind == codec.EXPIRE:
            return self.drop(values[1], values[2])
        if kind == codec.END:
            return None
        queue = self.queues.get(values[1])
        if queue is None:
            return UNKNOWN_QUEUE
        if kind == codec.SECURE:
            queue.skey = values[2]
        elif kind == codec.SUSPEND:
            queue.is_off = True
        else:
            self.remove(queue)
        return None

    def put(self, queue: Queue) -> None:
        """A queue, in place of the one that had its id."""
        before = self.queues.get(queue.rid)
        if before is not None:
            self.remove(before)
        self.queues[queue.rid] = queue
        self.senders[queue.sid] = queue

    def remove(self, queue: Queue) -> None:
        self.messages -= len(queue.messages)
        self._ids.pop(queue.rid, None)
        del self.queues[queue.rid]
        if self.senders.get(queue.sid) is queue:
            del self.senders[queue.sid]

    def add(self, rid: bytes, message: Message) -> str | None:
        """A message that may be in the queue already: a dump and the log behind it may overlap."""
        queue = self.queues.get(rid)
        if queue is None:
            return UNKNOWN_QUEUE
        messages = queue.messages
        id = message.id
        if len(messages) < _MANY:
            if self._ids:
                self._ids.pop(rid, None)
            for each in messages:
                if each.id == id:
                    return DUPLICATE
        else:
            known = self._ids.get(rid)
            if known is None:
                known = self._ids[rid] = {each.id for each in messages}
            if id in known:
                return DUPLICATE
            known.add(id)
        messages.append(message)
        self.messages += 1
        return None

    def append(self, queue: Queue, message: Message) -> None:
        """A message whose id was drawn just now: nothing has to be looked for."""
        queue.messages.append(message)
        self.messages += 1

    def is_read(self) -> None:
        """All records were read again: from now on messages come by ``append``."""
        self._ids.clear()

    def drop_head(self, rid: bytes, id: bytes) -> str | None:
        queue = self.queues.get(rid)
        if queue is None:
            return UNKNOWN_QUEUE
        messages = queue.messages
        if not messages or messages[0].id != id:
            return NOT_HEAD
        del messages[0]
        if self._ids and rid in self._ids:
            self._ids[rid].discard(id)
        self.messages -= 1
        return None

    def drop(self, rid: bytes, id: bytes) -> str | None:
        """A message wherever it is in its queue: one that lasts less long than those before it expires before them."""
        queue = self.queues.get(rid)
        if queue is None:
            return UNKNOWN_QUEUE
        messages = queue.messages
        for at, each in enumerate(messages):
            if each.id == id:
                del messages[at]
                if self._ids and rid in self._ids:
                    self._ids[rid].discard(id)
                self.messages -= 1
                return None
        return NOT_HEAD


def records(queue: Queue) -> Iterator[bytes]:
    """What stands in a dump for a queue: itself as it is now, then its messages in order."""
    yield codec.create(queue)
    for message in queue.messages:
        yield codec.message(queue.rid, message)
