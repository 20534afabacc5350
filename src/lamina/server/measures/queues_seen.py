"""The queues at a glance: how many there are, how much waits in them, and for how long. Never which."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.message import Queue

if TYPE_CHECKING:
    from lamina.server.measures.queue_glimpse import QueueGlimpse
    from lamina.server.measures.unopened import Unopened


class QueuesSeen(NamedTuple):
    """All of them."""

    queues: int
    messages: int
    """In the store ``journal`` of those queues that were used or looked into since the start."""
    oldest_s: float
    """Since the oldest message was sent that is next in a queue."""
    subscribers: int
    unknown: int | None
    """Queues that were not; None: nobody looks into those that are not used."""


def look(deliveries: Deliveries, unopened: Unopened[QueueGlimpse] | None = None) -> QueuesSeen:
    """Without the lock: a queue that changes meanwhile is seen before or behind that.

    ``unopened`` says what is known of queues that nobody has used since the start.
    """
    engine = deliveries.engine
    state, now = engine.state, engine.now()
    queues = list(state.queues.values())
    if engine.keeper is engine:
        messages, oldest = state.messages, min(_heads(queues), default=now)
    else:
        messages = sum(queue.size for queue in queues if queue.size > 0)
        known = engine.keeper.oldest_known()
        oldest = now if known is None else known
        for found in () if unopened is None else unopened.seen().values():
            messages += found.size
            if not found.has_expired(now):
                oldest = min(oldest, found.sent_s)
    unknown = None if unopened is None else unopened.unknown
    return QueuesSeen(len(queues), messages, float(max(now - oldest, 0)), len(deliveries.subscribers), unknown)


def _heads(queues: list[Queue]) -> list[int]:
    """When the messages were sent that are next."""
    try:
        return [queue.messages[0].ts for queue in queues if queue.messages]
    except IndexError:  # the last one of a queue was just received
        heads = [queue.messages[:1] for queue in queues]
        return [head[0].ts for head in heads if head]
