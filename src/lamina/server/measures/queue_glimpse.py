"""How much waits in a queue whose journal is not open, read from its files without opening it."""

from __future__ import annotations

from typing import NamedTuple

from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.looking import look_at_served
from lamina.engines.queues.message import NO_TTL
from lamina.errors import StorageError
from lamina.log.files import Files


class QueueGlimpse(NamedTuple):
    """One queue."""

    size: int
    """Messages that wait, markers included."""
    sent_s: int
    """When the first of them was sent, seconds since 1970."""
    expires_s: int
    """It has expired when this second is over; 0: it never does."""

    def has_expired(self, now_s: int) -> bool:
        """The first is of no interest any more: it goes when somebody uses the queue, or upkeep comes by."""
        return 0 < self.expires_s < now_s


def glimpse(engine: QueueEngine, files: Files, rid: bytes) -> QueueGlimpse | None:
    """None: nothing waits there, or there is no such queue. Raises: StorageError if it cannot be said."""
    queue = engine.state.queues.get(rid)
    if queue is None:
        return None
    looked = look_at_served(engine)
    looked.files = files
    found = looked.peek(queue)
    if found.problem:
        raise StorageError(found.problem, hint="it is healed when somebody uses the queue")
    if not found.size or found.head is None:
        return None
    head, ttl = found.head, engine.options.ttl_s if queue.ttl == NO_TTL else queue.ttl
    ttl = ttl if head.ttl == NO_TTL else head.ttl
    return QueueGlimpse(found.size, head.ts, 0 if head.is_marker or ttl <= 0 else head.ts + ttl)
