"""Queues inside your process: ``lamina.open(folder).queues``.

    rid, sid = data.queues.create(key="what the recipient knows")
    data.queue(sid).send(b"hello")                              # who has the one id can send
    box = data.queue(rid, key="what the recipient knows")       # who has the other, and the key, can receive
    message = box.receive(timeout=10)
    box.ack(message)                                            # else it comes again

Every call returns when what it says is as safe as the sync policy promises. ``.aio`` has the same for coroutines,
subscription.py the receiving that goes on.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import TYPE_CHECKING

from lamina.engines.queues import ids, views
from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.dumping import DumpReport
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.held import Held, id_of
from lamina.engines.queues.sleeping import Sleepers
from lamina.engines.queues.subscription import Subscription
from lamina.engines.queues.upkeep import Upkeep
from lamina.engines.queues.views import Key, NewQueue, QueueInfo, QueueMessage, QueueStats, Seconds, shown
from lamina.errors import LogClosed, QuotaMet, StorageError
from lamina.log.history import History
from lamina.log.teardown import Teardown

if TYPE_CHECKING:
    from lamina.engines.queues.aio import AsyncQueue, AsyncQueues


class Queues:
    """All queues of a data folder."""

    def __init__(self, engine: QueueEngine, history: History | None = None) -> None:
        """Use ``lamina.open(folder).queues``."""
        self.engine = engine
        self.clock = engine.clock
        self.sleepers = Sleepers()
        self.deliveries = Deliveries(engine)
        # Whoever sleeps looks for itself: nothing is to be done for it here, with locks held.
        self.deliveries.look_again_by(lambda look: self.sleepers.wake_all())
        self.upkeep = Upkeep(engine, history=history)
        self.upkeep.start()
        self._is_closed = False

    @property
    def aio(self) -> AsyncQueues:
        """The same for coroutines."""
        from lamina.engines.queues.aio import AsyncQueues

        return AsyncQueues(self)

    def create(
        self, key: Key | None = None, sender_key: Key | None = None, ttl: int | timedelta | None = None
    ) -> NewQueue:
        """Make a queue. Returns its two ids: the recipient's and the sender's.

        ``key``: what the recipient has to show beside its id; ``sender_key``: the same for senders. Random ones, such
        as ``secrets.token_urlsafe()``; None: the id is enough. ``ttl``: seconds that a message is kept, unless it says
        otherwise itself; 0: for ever; None: as the options say.
        Raises: BadOption; DiskFull, StorageError; then there is no queue.
        """
        self.check_open()
        queue, position = self.engine.create(views.to_key(key), views.to_key(sender_key), views.to_ttl(ttl))
        self.engine.settle(position)
        return NewQueue(ids.show(queue.rid), ids.show(queue.sid))

    def queue(self, id: str, key: Key | None = None) -> HeldQueue:
        """One end of a queue, by the recipient's id or the sender's, with its key if it has one.

        Nothing is checked yet: each call is, as a queue may be secured, suspended or deleted meanwhile.
        """
        return HeldQueue(self, id, key)

    def dump(self) -> DumpReport | None:
        """Write a dump now, so that the next start is short; None if one is being written.

        It also happens by itself, and when the folder is closed. Raises: StorageError; then nothing was changed.
        """
        self.check_open()
        return self.upkeep.dump()

    @property
    def count(self) -> int:
        """How many queues there are."""
        return len(self.engine.state.queues)

    def stats(self) -> QueueStats:
        with self.engine.lock:
            return views.stats(self.engine)

    def sizes(self) -> dict[str, int]:
        """How many messages wait, by the handle of each queue. In the store ``journal`` this may open them all."""
        self.check_open()
        engine, found = self.engine, dict[str, int]()
        with engine.lock:
            rids = list(engine.state.queues)
        for rid in rids:
            with engine.lock:  # one by one: others go on meanwhile
                queue = engine.state.queues.get(rid)
                if queue is not None:
                    found[ids.handle(rid)] = engine.messages.size(queue)
        return found

    def close(self) -> None:
        """Write and sync everything, and a dump; who waits is told. Raises: what kept records out of a log."""
        self._is_closed = True
        with Teardown(self.engine.folder) as teardown:
            teardown.step(self.sleepers.wake_all)
            teardown.step(self.upkeep.stop)
            teardown.step(self.upkeep.dump_at_stop)
            teardown.step(self.engine.close)

    def check_open(self) -> None:
        """Raises: LogClosed."""
        if self._is_closed:
            raise LogClosed("the queues are closed", hint="open the data folder again")


class HeldQueue:
    """One end of a queue, by its id. With the recipient's nothing can be sent, with the sender's all but that is
    refused. Every refusal, for whatever reason, is the same ``QueueRefused``.
    """

    def __init__(self, folder: Queues, id: str, key: Key | None = None) -> None:
        """Use ``lamina.open(folder).queue(id, key)``."""
        self.folder = folder
        self.held = Held(folder, views.to_id(id), views.to_key(key))

    def __repr__(self) -> str:
        return "<HeldQueue>"  # its id is half of what one needs to use it

    @property
    def aio(self) -> AsyncQueue:
        """The same for coroutines."""
        from lamina.engines.queues.aio import AsyncQueue

        return AsyncQueue(self)

    # -- sending -----------------------------------------------------------------------------------------------------

    def send(self, body: bytes, *, flags: bytes = b"", ttl: int | timedelta | None = None) -> str:
        """Put a message at the end of the queue. Returns its id.

        ``flags``: up to 64 bytes for the recipient, beside the body. ``ttl``: seconds that it is kept, 0: for ever;
        None: as the queue says.
        Raises: QuotaMet, and nothing is taken until the recipient received all; MessageTooLarge; QueueRefused;
            BadOption; DiskFull, StorageError. Then it was not sent.
        """
        keeper = self.folder.engine.keeper
        try:
            id, position = self.held.send(views.to_body("body", body), views.to_body("flags", flags), views.to_ttl(ttl))
        except QuotaMet as problem:
            keeper.settle(problem.position)  # the mark for the recipient
            raise
        keeper.settle(position)
        return ids.show(id)

    # -- receiving ---------------------------------------------------------------------------------------------------

    def receive(self, timeout: Seconds | None = 0.0) -> QueueMessage | None:
        """The message that is next, without subscribing; None if none came in ``timeout`` seconds (None: wait for
        ever). It stays the next one until it is acknowledged.

        Raises: QueueRefused, also when the queue is deleted while this waits; LogClosed; StorageError.
        """
        seconds = views.to_timeout(timeout)
        if seconds == 0:
            return self._look()
        told, clock, is_over = threading.Event(), self.folder.clock, False
        end = None if seconds is None else clock.monotonic() + seconds
        with self.folder.sleepers.waking(self.held.id or b"", told.set):
            while True:
                told.clear()
                message = self._look()
                if message is not None or is_over:
                    return message
                left = None if end is None else max(end - clock.monotonic(), 0)
                is_over = not told.wait(left)

    def _look(self) -> QueueMessage | None:
        message = self.held.see(self.held.look)
        return None if message is None else shown(message)

    def ack(self, message: QueueMessage | str) -> QueueMessage | None:
        """A message that ``receive`` (or this) gave here is done with. Returns what is next, or None.

        Raises: NoMessage if it is not the one that was given here last; QueueRefused; StorageError, then it comes
            again.
        """
        rebuilds = self.held.rebuilds
        following, position = self.held.ack(self.held.receiver, message)
        try:
            self.folder.engine.keeper.settle(position)
        except StorageError:
            self.held.give_back(self.held.receiver, id_of(message))
            raise
        if self.held.rebuilds != rebuilds:
            return self._look()
        return None if following is None else shown(following)

    def subscribe(self, *, timeout: Seconds | None = None) -> Subscription:
        """Iterate over the messages, waiting for more. A queue has one subscriber: a newer one takes over, and this
        one ends. ``timeout``: end after so many seconds without a message; None: never.

        Raises: QueueRefused; StorageError.
        """
        return Subscription(self.held, timeout=views.to_timeout(timeout))

    # -- looking after it --------------------------------------------------------------------------------------------

    def info(self) -> QueueInfo:
        """For the recipient: what is known of the queue. Raises: QueueRefused; StorageError."""
        return self.held.see(self.held.info)

    def secure(self, sender_key: Key) -> None:
        """For the recipient: from now on senders have to show this key. The same again changes nothing.

        Raises: QueueRefused, also if there is another key already; BadOption; StorageError.
        """
        key = views.to_key(sender_key)
        if key is None:
            raise TypeError("a key is bytes or text, not None")
        self.folder.engine.settle(self.held.secure(key))

    def suspend(self) -> None:
        """For the recipient: nothing more is taken; what is there can still be received. There is no way back.

        Raises: QueueRefused; StorageError.
        """
        self.folder.engine.settle(self.held.suspend())

    def delete(self) -> None:
        """For the recipient: the queue and its messages are gone, on disk too where each queue has a folder.

        Raises: QueueRefused; StorageError.
        """
        queue, position = self.held.delete()
        self.folder.engine.settle(position)
        self.held.was_deleted(queue)
        self.folder.engine.remove_folder(queue, position)
