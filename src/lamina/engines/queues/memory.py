"""The store ``memory``: messages are in the state and in the log of the queues.

Compiled as it stands (setup.py, _memory.pxd gives the types) and run as plain Python where it is not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.engines.queues import codec
from lamina.engines.queues.message import Message, Queue

if TYPE_CHECKING:
    from lamina.engines.queues.engine import QueueEngine


class MemoryMessages:
    """What an engine does with messages. The caller holds the engine's lock."""

    def __init__(self, engine: QueueEngine) -> None:
        self.engine = engine

    def head(self, queue: Queue) -> Message | None:
        return queue.messages[0] if queue.messages else None

    def messages(self, queue: Queue) -> list[Message]:
        return list(queue.messages)

    def size(self, queue: Queue) -> int:
        return len(queue.messages)

    def is_closed(self, queue: Queue) -> bool:
        return queue.is_closed

    def put(self, queue: Queue, message: Message) -> int:
        position = self.engine._append(codec.message(queue.rid, message))
        self.engine.state.append(queue, message)
        return position

    def drop_head(self, queue: Queue) -> int:
        id = queue.messages[0].id
        position = self.engine._append(codec.ack(queue.rid, id))
        self.engine.state.drop_head(queue.rid, id)
        return position

    def drop_expired(self, queue: Queue, now: int, ttl: int) -> tuple[int, int]:
        """``ttl`` is what counts for this queue. Returns how many went, and the position."""
        count = position = 0
        while queue.messages and queue.messages[0].has_expired(now, ttl):
            id = queue.messages[0].id
            position = self.engine._append(codec.expire(queue.rid, id))
            self.engine.state.drop_head(queue.rid, id)
            count += 1
        return count, position

    def position_of(self, queue: Queue) -> int:
        """There is one log: whoever is shown anything rests on all of it."""
        return self.engine.newest_position()
