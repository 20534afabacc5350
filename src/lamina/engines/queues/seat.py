"""The seat of a subscriber inside this process: there is one at each queue, and whoever sits down last has it.

It is asked for the next message, rather than told: so what it gives is what the queue has at that moment, also when
records were refused meanwhile and the state was built anew. Threads and coroutines share it (subscription.py, aio.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal, TypeAlias

from lamina.engines.queues import deliveries
from lamina.engines.queues.deliveries import Receiver
from lamina.engines.queues.held import Held, Seen, id_of
from lamina.engines.queues.message import Message
from lamina.engines.queues.views import QueueMessage
from lamina.errors import QueueRefused

Ended: TypeAlias = Literal["taken over", "deleted"]
TAKEN_OVER: Final = "taken over"
DELETED: Final = "deleted"


class Seat:
    """Threads: every method is safe from any thread; none waits for a sync."""

    def __init__(self, held: Held, wake: Callable[[], object]) -> None:
        """``wake`` is called, with the engine's lock held, when the seat is lost."""
        self._held = held
        self._wake = wake
        self.receiver = Receiver(self._told)
        self.ended: Ended | None = None
        self._in_hand: bytes | None = None
        """What was given and is acknowledged when the next one is asked for."""
        self._put_down: bytes | None = None
        """What was in hand, and was acknowledged last."""
        self.turn = 0
        self._has_left = False

    def _told(self, what: int, rid: bytes, message: Message | None) -> None:
        if what != deliveries.MESSAGE:
            self.ended = TAKEN_OVER if what == deliveries.END else DELETED
            self._wake()

    def take(self) -> None:
        """Sit down; who sat here is told. Nothing happens after ``leave``. Raises: QueueRefused, StorageError."""
        with self._held.lock:
            if not self._has_left:
                self._held.deliveries.subscribe(self.receiver, self._held.recipient())

    def leave(self) -> None:
        """What was given and not acknowledged goes to whoever comes next."""
        with self._held.lock:
            self._has_left = True
            self._in_hand = None
            self._held.deliveries.leave(self.receiver)

    def begin(self) -> int:
        """Somebody asks for the next message. What was begun before and is still under way, in a thread whose coroutine
        was cancelled, means nothing any more: it must not acknowledge what is given from now on."""
        self.turn += 1
        return self.turn

    def next(self, turn: int) -> Seen[Message | None]:
        """Acknowledge what is in hand. Returns the head.

        Raises: LogClosed, StorageError; ``put_back`` has to follow.
        """
        held, acknowledged = self._held, 0
        with held.lock:
            if self.ended is not None or self._has_left or turn != self.turn:
                return None, 0, 0
            try:
                queue = held.recipient()
            except QueueRefused:  # deleted: we are told so once that is there to stay, and it may be refused
                return None, 0, 0
            if self._in_hand is not None:
                _, acknowledged = held.deliveries.acknowledge(self.receiver, queue, self._in_hand)
                self._put_down, self._in_hand = self._in_hand, None
            head = held.engine.head(queue)
            self.receiver.given[queue.rid] = None if head is None else head.id
            return head, acknowledged, held.rests_on()

    def hand_over(self, message: Message) -> bool:
        """It is safe and goes to the caller now. False if the seat was lost meanwhile: then it does not.

        Without the lock, which may take time: if the seat is lost right now, the message is given to both.
        """
        if self.ended is not None or self._has_left:
            return False
        self._in_hand, self._put_down = message.id, None
        return True

    def keep(self) -> None:
        """What is in hand is not done with: it comes again."""
        self._in_hand = self._put_down = None

    def ack(self, given: QueueMessage | str) -> int:
        """Returns the position. Raises: NoMessage if that is not what was given here; QueueRefused; StorageError."""
        with self._held.lock:
            _, position = self._held.ack(self.receiver, given)
            self._put_down, self._in_hand = id_of(given), None
            return position

    def put_back(self, turn: int) -> None:
        """The disk refused an acknowledgement: what it was for is in hand again, and the next one is tried with it."""
        with self._held.lock:
            id = self._put_down
            if id is not None and self.ended is None and not self._has_left and turn == self.turn:
                self._in_hand, self._put_down = id, None
                self._held.give_back(self.receiver, id)
