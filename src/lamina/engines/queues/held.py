"""A queue in somebody's hands, by an id and perhaps a key: what its calls do before they wait for the disk.

Threads and coroutines share this (api.py, aio.py). Who asks is checked anew in each call: a queue can be deleted,
secured or suspended at any time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from lamina.engines.queues import ids, views
from lamina.engines.queues.deliveries import Receiver
from lamina.engines.queues.message import Message, Queue
from lamina.engines.queues.views import QueueInfo, QueueMessage
from lamina.errors import NoMessage, QueueRefused, QuotaMet, StorageError

if TYPE_CHECKING:
    from lamina.engines.queues.api import Queues

T = TypeVar("T")
Seen: TypeAlias = tuple[T, int, int]
"""What was found, the position of what was changed on the way, and that of what it rests on."""
TRIES: Final = 8
"""How often it is looked again: a disk that takes nothing must not keep anybody for ever."""


class Held:
    """An id and a key. Threads: every method is safe from any thread; none waits for a sync."""

    def __init__(self, folder: Queues, id: bytes | None, key: bytes | None) -> None:
        self.folder = folder
        self.id = id
        self._key = key
        self.engine = folder.engine
        self.deliveries = folder.deliveries
        self.lock = folder.engine.lock
        self.receiver = Receiver(lambda what, rid, message: None)  # it never subscribes: nothing is pushed to it

    def _shown_keys(self) -> dict[bytes, None]:
        """The ids whose keys were shown. Raises: QueueRefused, also for a key where none is asked for."""
        if self._key is None:
            return {}
        if not self.engine.holds(self.id, self._key) or self.id is None:
            raise QueueRefused
        return {self.id: None}

    def recipient(self) -> Queue:
        """Holds the lock, as long as the queue is used: it is another object when the state was built anew.

        Raises: LogClosed; QueueRefused.
        """
        self.folder.check_open()
        return self.engine.recipient(self.id, self._shown_keys())

    def _sender(self) -> Queue:
        self.folder.check_open()
        return self.engine.sender(self.id, self._shown_keys())

    def send(self, body: bytes, flags: bytes, ttl: int) -> tuple[bytes, int]:
        """Returns id and position. Raises: QuotaMet, which has the position of the mark; as ``engine.send``."""
        with self.lock:
            queue = self._sender()
            try:
                sent = self.engine.send(queue, body, flags, ttl)
            except QuotaMet:
                self.folder.sleepers.wake(queue.rid)  # there may be a mark now, which is received too
                raise
            self.folder.sleepers.wake(queue.rid)
            return sent

    def look(self) -> Seen[Message | None]:
        """The head, without subscribing."""
        with self.lock:
            message = self.deliveries.get(self.receiver, self.recipient())
            return message, 0, self.rests_on()

    @property
    def rebuilds(self) -> int:
        """How often changes were taken back so far, because the disk refused them."""
        count: int = self.engine.keeper.rebuilds
        return count

    def rests_on(self) -> int:
        """Of who is shown a message now. Holds the lock.

        In the store ``journal`` a position speaks for the queue that was changed alone. There, all that is pending is
        pushed in any case, and ``rebuilds`` says whether something was refused.
        """
        return self.engine.newest_position() if self.engine.keeper is self.engine else 0

    def see(self, look: Callable[[], Seen[T]]) -> T:
        """What ``look`` finds, when it is as safe as the policy promises; it looks again if that was taken back.

        ``look`` gives what it found, the position of what it changed (0: nothing), and that of what it rests on.
        Raises: the disk's error, if what it changed was refused.
        """
        keeper = self.engine.keeper
        problem = StorageError("the disk refuses changes again and again", hint="try again when it takes them")
        for _ in range(TRIES):
            before = self.rebuilds
            found, changed, rests_on = look()
            if changed:
                keeper.settle(changed)
            try:
                keeper.settle(rests_on)
            except StorageError as error:  # of what somebody else did, perhaps
                problem = error
                if self.rebuilds == before:
                    break
            if self.rebuilds == before:
                return found
        raise problem

    def ack(self, receiver: Receiver, given: QueueMessage | str) -> tuple[Message | None, int]:
        """Returns what is next, and the position. Raises: NoMessage, QueueRefused, StorageError."""
        id = id_of(given)
        with self.lock:
            queue = self.recipient()
            if id is None:
                raise NoMessage
            return self.deliveries.acknowledge(receiver, queue, id)

    def give_back(self, receiver: Receiver, id: bytes | None) -> None:
        """The disk refused its acknowledgement: it may be acknowledged again, and is there for whoever waits."""
        rid = self.id
        with self.lock:
            if rid is not None and rid in receiver.given:
                receiver.given[rid] = id
        if rid is not None:
            self.folder.sleepers.wake(rid)

    def info(self) -> Seen[QueueInfo]:
        with self.lock:
            queue = self.recipient()
            found = views.info(self.engine, queue, has_subscriber=queue.rid in self.deliveries.subscribers)
            return found, 0, self.rests_on()

    def secure(self, sender_key: bytes) -> int:
        with self.lock:
            return self.engine.secure(self.recipient(), sender_key)

    def suspend(self) -> int:
        with self.lock:
            return self.engine.suspend(self.recipient())

    def delete(self) -> tuple[Queue, int]:
        with self.lock:
            queue = self.recipient()
            return queue, self.engine.delete(queue)

    def was_deleted(self, queue: Queue) -> None:
        """And that is there to stay: who subscribed or waits is told."""
        self.deliveries.was_deleted(queue.rid)
        self.folder.sleepers.wake(queue.rid)


def id_of(given: QueueMessage | str) -> bytes | None:
    return ids.parse(given.id.encode()) if isinstance(given, QueueMessage) else views.to_id(given)
