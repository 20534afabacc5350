"""Who receives from which queue, and what they were given: one message at a time, one subscriber a queue.

A message that was given stays the head of its queue until it is acknowledged: nothing here is stored. Whoever comes
next is given it again, under the same id.

Compiled as it stands (setup.py, _deliveries.pxd gives the types) and run as plain Python where it is not.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from lamina.engines.queues import ids
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.message import Message, Queue
from lamina.errors import LaminaError, NoMessage, Prohibited
from lamina.log.sync import Level
from lamina.log.writer import Log

logger = logging.getLogger("lamina.queues")

MESSAGE, END, DELETED = range(3)
"""What a subscriber is told: here is a message; another one took over; the queue is gone."""


class Receiver:
    """One who receives: a connection, or a reader in this process."""

    def __init__(self, push: Callable[[int, bytes, Message | None], None]) -> None:
        """``push(what, rid, message)`` tells a subscriber. It is called with the engine's lock held."""
        self.push = push
        self.given: dict[bytes, bytes | None] = {}
        """By the recipient's id of each queue it uses: the message it was given last and has not acknowledged."""
        self.gets: dict[bytes, None] = {}
        """Queues from which it gets without having subscribed."""


class Deliveries:
    """Of all queues of an engine. Threads: every method is safe from any thread."""

    def __init__(self, engine: QueueEngine) -> None:
        self.engine = engine
        self.lock = engine.lock
        self.subscribers: dict[bytes, Receiver] = {}
        self.delivered = self.redelivered = 0
        """Messages that were given since the start: for the first time, and once more, as far as that is known."""
        self.deleted_at = 0
        """Position of the deletion that is being told."""
        self._deleted: deque[tuple[bytes, int]] = deque()
        """Queues whose subscribers were told so, and when that is safe."""
        self.look_again_by(lambda look: look())

    def look_again_by(self, call: Callable[[Callable[[], None]], object]) -> None:
        """How to have ``look_again`` called when changes were refused, from whatever thread found that."""

        def tell() -> None:
            call(self.look_again)

        self.engine.told_rebuilt = tell
        if self.engine.keeper is not self.engine:
            self.engine.keeper.told_rebuilt = tell

    def subscribe(self, receiver: Receiver, queue: Queue) -> Message | None:
        """From now on the messages of ``queue`` come to ``receiver``; who had them is told. Returns the head.

        Raises: Prohibited if it gets from the queue; StorageError.
        """
        with self.lock:
            queue, rid = self.engine._current(queue), queue.rid
            if rid in receiver.gets:
                raise Prohibited("this connection gets from the queue", hint="Q.UNSUB first, or use another connection")
            head = self.engine.head_now(queue)
            before = self.subscribers.get(rid)
            if before is not None and before is not receiver:
                del before.given[rid]
                before.push(END, rid, None)
            self.subscribers[rid] = receiver
            return self._give(receiver, queue, head)

    def unsubscribe(self, receiver: Receiver, rid: bytes) -> None:
        """Nothing more of that queue; also for who gets from it."""
        with self.lock:
            receiver.given.pop(rid, None)
            receiver.gets.pop(rid, None)
            if self.subscribers.get(rid) is receiver:
                del self.subscribers[rid]

    def leave(self, receiver: Receiver) -> None:
        """The receiver is gone."""
        with self.lock:
            for rid in list(receiver.given):
                self.unsubscribe(receiver, rid)

    def get(self, receiver: Receiver, queue: Queue) -> Message | None:
        """The head, without subscribing. Raises: Prohibited if the receiver has subscribed to it; StorageError."""
        with self.lock:
            queue, rid = self.engine._current(queue), queue.rid
            if self.subscribers.get(rid) is receiver:
                raise Prohibited("this connection has subscribed to the queue", hint="Q.UNSUB first")
            receiver.gets[rid] = None
            return self._give(receiver, queue, self.engine.head_now(queue))

    def acknowledge(self, receiver: Receiver, queue: Queue, id: bytes) -> tuple[Message | None, int]:
        """The message ``id`` was received. Returns what is next, which is given at once, and the position.

        Raises: NoMessage if that is not what this receiver was given; StorageError.
        """
        with self.lock:
            rid = queue.rid
            if receiver.given.get(rid) != id:
                raise NoMessage
            engine = self.engine
            queue = engine._current(queue)
            head = engine.messages.head(queue)
            if head is not None and head.id == id:
                position = engine.acknowledge(queue, id)
            else:  # another receiver was quicker: it is gone, and nothing else goes for it
                position = engine.position_of(queue)
            return self._give(receiver, queue, engine.head_now(queue)), position

    def _give(self, receiver: Receiver, queue: Queue, message: Message | None) -> Message | None:
        if message is None:
            receiver.given[queue.rid] = None
            return None
        receiver.given[queue.rid] = message.id
        if queue.given == message.id:
            self.redelivered += 1
        else:
            self.delivered += 1
            queue.given = message.id
        return message

    def was_sent(self, queue: Queue) -> None:
        """Something was put into the queue: if its subscriber has nothing, it gets the head."""
        receiver = self.subscribers.get(queue.rid)
        if receiver is not None:
            with self.lock:
                rid = queue.rid
                found = self.engine.state.queues.get(rid)
                if found is not None and receiver.given.get(rid) is None:
                    try:
                        head = self.engine.head_now(found)
                    except LaminaError as error:  # what was sent is stored all the same; the next one tries again
                        logger.warning("queue %s: its head cannot be pushed: %s", ids.handle(rid), error)
                        return
                    if self._give(receiver, found, head) is not None:
                        receiver.push(MESSAGE, rid, head)

    def was_deleted(self, rid: bytes, position: int = 0) -> None:
        """Tell its subscriber, who stays one until the deletion, at ``position``, is safe: it may be refused yet."""
        with self.lock:
            for told in [told for told in self._deleted if told[0] == rid]:  # that deletion was refused
                self._deleted.remove(told)
            self._let_go_of_deleted()
            receiver = self.subscribers.get(rid)
            if receiver is not None:
                if position:
                    self._deleted.append((rid, position))
                else:
                    self.unsubscribe(receiver, rid)
                self.deleted_at = position
                receiver.push(DELETED, rid, None)

    def _let_go_of_deleted(self) -> None:
        log = self.engine.log
        reached = log.synced if isinstance(log, Log) and log.options.sync.level is Level.SYNCED else log.written
        while self._deleted and self._deleted[0][1] <= reached:
            rid = self._deleted.popleft()[0]
            receiver = self.subscribers.get(rid)
            if receiver is not None and rid not in self.engine.state.queues:
                self.unsubscribe(receiver, rid)

    def look_again(self) -> None:
        """The state was built anew: what a subscriber was given may never have been."""
        with self.lock:
            for rid, receiver in list(self.subscribers.items()):
                queue = self.engine.state.queues.get(rid)
                if queue is None:
                    continue  # it was told, or its maker will be
                before, receiver.given[rid] = receiver.given.get(rid), None
                with suppress(LaminaError):  # then the next message tries again
                    head = self.engine.head_now(queue)
                    if head is not None and before == head.id:
                        receiver.given[rid] = before
                    else:
                        self.was_sent(queue)
