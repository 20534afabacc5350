"""The queues at a glance: how many there are, how much waits in them, and for how long. Never which."""

from __future__ import annotations

from typing import NamedTuple

from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.message import Queue


class QueuesSeen(NamedTuple):
    """All of them."""

    queues: int
    messages: int
    """In the store ``journal`` of those queues that were looked into since the start."""
    oldest_s: float
    """Since the oldest message was sent that is next in a queue."""
    subscribers: int


def look(deliveries: Deliveries) -> QueuesSeen:
    """Without the lock: a queue that changes meanwhile is seen before or behind that."""
    engine = deliveries.engine
    state, now = engine.state, engine.now()
    queues = list(state.queues.values())
    if engine.keeper is engine:
        messages, oldest = state.messages, min(_heads(queues), default=now)
    else:
        messages = sum(queue.size for queue in queues if queue.size > 0)
        known = engine.keeper.oldest_known()
        oldest = now if known is None else known
    return QueuesSeen(len(queues), messages, float(max(now - oldest, 0)), len(deliveries.subscribers))


def _heads(queues: list[Queue]) -> list[int]:
    """When the messages were sent that are next."""
    try:
        return [queue.messages[0].ts for queue in queues if queue.messages]
    except IndexError:  # the last one of a queue was just received
        heads = [queue.messages[:1] for queue in queues]
        return [head[0].ts for head in heads if head]
