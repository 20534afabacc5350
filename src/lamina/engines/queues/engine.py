"""Queues on a log: who may do what, quota, expiry; commands are logged and applied in the order of the log.

The records of queues are in one log and its dumps (seed 000). Messages are there too, or in a folder for each queue
(seed 001): ``messages`` is the store that has them, ``keeper`` whoever says when a change of them is safe.

A command returns the position of its change. It must not be answered before ``keeper`` (for messages) or the engine
itself (for queues) says that this position has the level its policy promises (``settle`` or ``settled``).

Threads: every method is safe from any thread. Lock order: the engine's, then the store's.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

from lamina.clock import Clock
from lamina.engines import logged
from lamina.engines.queues import codec, ids, keys
from lamina.engines.queues.memory import MemoryMessages
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.engines.queues.options import DAY_S, QueueOptions
from lamina.engines.queues.state import State
from lamina.errors import BadOption, MessageTooLarge, NoMessage, QueueRefused, QuotaMet
from lamina.log.files import Files
from lamina.log.measured import WAIT_BOUNDS
from lamina.log.positions import Position
from lamina.log.sync import Level
from lamina.log.teardown import Teardown
from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.engines.queues.journal.store import JournalStore
    from lamina.engines.queues.restoring import Restored

_SECOND = 1_000_000_000
_MOST_FLAGS = 64
_NEW_QUEUE = 200  # bytes, about
_AT_ONCE = 256  # ids that are drawn from the system together


class QueueEngine(logged.Logged):
    """All queues of one folder. Open it with ``opening.open_engine``."""

    def __init__(
        self,
        folder: str,
        log: Log,
        clock: Clock,
        files: Files,
        options: QueueOptions,
        restored: Restored,
        random: Callable[[int], bytes] = token_bytes,
    ) -> None:
        """Use ``opening.open_engine``."""
        super().__init__(log, clock)
        self.folder = folder
        self.files = files
        self.options = options
        self.restored = restored
        self.state: State = restored.state
        self.quota = options.quota
        self.expired = restored.expired
        """Messages that expired since the start, and in it."""
        self.sent = self.sent_bytes = self.acknowledged = 0
        """Messages, and bytes of their bodies, since the start."""
        self.waits = [0] * (len(WAIT_BOUNDS) + 1)
        """Of those that were acknowledged: how long they had been there (measured.WAIT_BOUNDS)."""
        self.waited = 0
        """The same, in seconds, of all together."""
        self.messages: Any = MemoryMessages(self)
        """The store that has the messages."""
        self.keeper: Any = self
        """Says when a change of messages is safe."""
        self.rebuild_state: Callable[[], State] = lambda: restored.state
        """Builds the state from what the log has."""
        self.removal = threading.Lock()
        """Held while a file is removed: building the state must not meet one that is just going. Taken last."""
        self.told_rebuilt: Callable[[], None] = lambda: None
        self.to_remove: dict[bytes, tuple[Queue, int]] = {}
        """Deleted queues whose folders may still be there."""
        self.random = random
        self._drawn: list[bytes] = []

    def use_journal(self, store: JournalStore) -> None:
        """Messages are in folders, not in the log."""
        self.messages = self.keeper = store

    def rebuild(self) -> None:
        with self.removal:
            self.state = self.rebuild_state()
        for rid in [rid for rid in self.to_remove if rid in self.state.queues]:
            del self.to_remove[rid]  # it was not deleted, after all

    def was_rebuilt(self) -> None:
        self.told_rebuilt()

    def now(self) -> int:
        """Whole seconds since 1970."""
        return self.clock.now_ns() // _SECOND

    def new_id(self) -> bytes:
        """24 bytes that nobody can guess."""
        if not self._drawn:
            many = self.random(ids.ID_BYTES * _AT_ONCE)
            self._drawn = [many[at : at + ids.ID_BYTES] for at in range(0, len(many), ids.ID_BYTES)]
        return self._drawn.pop()

    def position_of(self, queue: Queue) -> int:
        """What somebody rests on who is shown the queue as it is now; 0: on nothing that is not safe."""
        position: int = self.messages.position_of(queue)
        return position

    def _current(self, queue: Queue) -> Queue:
        """The queue, where the state may have been built anew since it was found. Raises: QueueRefused."""
        found = self.state.queues.get(queue.rid)
        if found is None:
            raise QueueRefused
        return found

    # -- who may ---------------------------------------------------------------------------------------------------

    def holds(self, id: bytes | None, key: bytes) -> bool:
        """Whether ``key`` goes with a recipient's or a sender's id. The same work whether there is such a queue."""
        queue = self.state.queues.get(id) if id is not None else None
        sender = self.state.senders.get(id) if id is not None else None
        kept = queue.rkey if queue is not None else sender.skey if sender is not None else None
        return keys.is_key(key, kept)

    def recipient(self, rid: bytes | None, held: dict[bytes, None] | None) -> Queue:
        """The queue, for who is its recipient: ``held`` are the ids whose keys were shown; None: no key is asked for.

        Raises: QueueRefused, the same for every reason.
        """
        queue = self.state.queues.get(rid) if rid is not None else None
        if queue is None or (queue.rkey is not None and held is not None and rid not in held):
            raise QueueRefused
        return queue

    def sender(self, sid: bytes | None, held: dict[bytes, None] | None) -> Queue:
        """The queue, for who may send to it now. Raises: QueueRefused, the same for every reason."""
        queue = self.state.senders.get(sid) if sid is not None else None
        if queue is None or queue.is_off or (queue.skey is not None and held is not None and sid not in held):
            raise QueueRefused
        return queue

    # -- queues ----------------------------------------------------------------------------------------------------

    def create(self, key: bytes | None = None, sender_key: bytes | None = None, ttl: int = NO_TTL) -> tuple[Queue, int]:
        """A new queue. Raises: BadOption for a key that is too long or empty; StorageError."""
        with self.lock:
            logged.check_room(self.reserve, _NEW_QUEUE)
            rid, sid = self.new_id(), self.new_id()
            day = self.now() // DAY_S * DAY_S
            queue = Queue(rid, self._hashed(key), sid, self._hashed(sender_key), False, day, ttl)
            queue.size = 0  # nothing was ever sent to it: there is nothing to look at
            position = self._append(codec.create(queue))
            self.state.put(queue)
            return queue, position

    def secure(self, queue: Queue, sender_key: bytes) -> int:
        """Set the key that senders have to show; the same again changes nothing. Raises: QueueRefused for another."""
        with self.lock:
            queue = self._current(queue)
            if queue.skey is not None:
                if not keys.is_key(sender_key, queue.skey):
                    raise QueueRefused
                return self.newest_position()
            hashed = self._hashed(sender_key)
            assert hashed is not None
            position: int = self._append(codec.secure(queue.rid, hashed))
            queue.skey = hashed
            return position

    def suspend(self, queue: Queue) -> int:
        """Accept nothing more; what is there can still be received. There is no way back."""
        with self.lock:
            queue = self._current(queue)
            if queue.is_off:
                return self.newest_position()
            position: int = self._append(codec.suspend(queue.rid))
            queue.is_off = True
            return position

    def delete(self, queue: Queue) -> int:
        """The queue and its messages are gone. In the store ``journal``, ``remove_folder`` has to follow."""
        with self.lock:
            queue = self._current(queue)
            position: int = self._append(codec.delete(queue.rid))
            self.state.remove(queue)
            if self.keeper is not self:
                self.to_remove[queue.rid] = queue, position
            return position

    def remove_folder(self, queue: Queue, position: int) -> None:
        """What a deleted queue had on disk goes, once its deletion is there to stay: never the other way round.

        Blocks on the disk. Raises: StorageError; then ``remove_folders`` tries it again.
        """
        if self.keeper is self:
            return
        self.push()
        assert isinstance(self.log, Log)
        self.log.wait(Position(position), Level.SYNCED)
        self.keeper.delete(queue)
        self.to_remove.pop(queue.rid, None)

    def remove_folders(self) -> None:
        """The same for all that were deleted so far: before a dump lets their deletions go. Raises: StorageError."""
        for queue, position in list(self.to_remove.values()):
            if self.state.queues.get(queue.rid) is None:  # its deletion was not refused after all
                self.remove_folder(queue, position)

    def _hashed(self, key: bytes | None) -> bytes | None:
        if key is None:
            return None
        if not 1 <= len(key) <= keys.LONGEST:
            raise BadOption(f"a key of {len(key)} bytes cannot be", hint=f"give 1 to {keys.LONGEST}", option="key")
        return keys.hashed(key, self.random(keys.SALT_BYTES))

    # -- messages --------------------------------------------------------------------------------------------------

    def send(self, queue: Queue, body: bytes, flags: bytes = b"", ttl: int = NO_TTL) -> tuple[bytes, int]:
        """Put a message at the end. Returns its id, and the position of the change.

        Raises: MessageTooLarge; QuotaMet, with the position of the marker (0 if there was one before); StorageError.
        """
        if len(body) > self.options.max_body:
            raise MessageTooLarge(len(body), self.options.max_body)
        if len(flags) > _MOST_FLAGS:
            raise MessageTooLarge(len(flags), _MOST_FLAGS, "flags")
        with self.lock:
            queue = self._current(queue)
            messages = self.messages
            size = messages.size(queue)
            if size >= self.quota or (size and messages.is_closed(queue)):
                self._refuse_for_quota(queue)
            logged.check_room(self.reserve, len(body))
            id = self.new_id()
            position = messages.put(queue, Message(id, self.clock.now_ns() // _SECOND, flags, body, ttl))
            self.sent += 1
            self.sent_bytes += len(body)
            return id, position

    def _refuse_for_quota(self, queue: Queue) -> None:
        """Raises: QuotaMet, unless enough has expired."""
        if not self.messages.is_closed(queue):
            self.expire(queue)
            if self.messages.size(queue) < self.quota:
                return
            marker = Message(self.new_id(), self.now(), b"", None)
            raise QuotaMet(self.quota, self.messages.put(queue, marker))
        raise QuotaMet(self.quota, self.position_of(queue))

    def head(self, queue: Queue) -> Message | None:
        """The message that is next, once what has expired before it is gone."""
        with self.lock:
            return self.head_now(self._current(queue))

    def head_now(self, queue: Queue) -> Message | None:
        """The same for who holds the lock."""
        message: Message | None = self.messages.head(queue)
        if message is not None and message.has_expired(self.clock.now_ns() // _SECOND, self._ttl(queue)):
            self.expire(queue)
            message = self.messages.head(queue)
        return message

    def acknowledge(self, queue: Queue, id: bytes) -> int:
        """Drop the head if it is the message ``id``. Returns the position. Raises: NoMessage; StorageError."""
        with self.lock:
            queue = self._current(queue)
            message = self.messages.head(queue)
            if message is None or message.id != id:
                raise NoMessage
            position: int = self.messages.drop_head(queue)
            waited = max(self.clock.now_ns() // _SECOND - message.ts, 0)
            self.acknowledged += 1
            self.waited += waited
            self.waits[bisect_left(WAIT_BOUNDS, waited)] += 1
            return position

    def expire(self, queue: Queue) -> int:
        """Let what has expired at the head of a queue go. Returns how many went."""
        with self.lock:
            count: int = self.messages.drop_expired(queue, self.now(), self._ttl(queue))[0]
            self.expired += count
            return count

    def _ttl(self, queue: Queue) -> int:
        return self.options.ttl_s if queue.ttl == NO_TTL else queue.ttl

    def close(self) -> None:
        """Write and sync everything. Raises: what kept records out of a log; all are closed all the same."""
        with Teardown(self.folder) as teardown:
            if self.keeper is not self:
                teardown.step(self.keeper.close)
            self.close_log(teardown)
