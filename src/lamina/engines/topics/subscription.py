"""A subscription inside your process: messages of a topic, each to one consumer of its group, until it acknowledges.

with topic.subscribe("mailers") as messages:
    for message in messages:                    # waits for more; goes on where the group left off
        send(message["to"])
        message.ack()                           # else it comes again, after a restart
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from lamina.engines.topics.feed import Feed
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Message
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.engines.topics.api import TopicFolder


class Subscription(Iterator["Delivered"]):
    """Open it with ``topic.subscribe``. Threads: one iterates; ``ack`` and ``close`` are safe from any."""

    def __init__(self, folder: TopicFolder, feed: Feed, *, wait: float | None, autoack: bool) -> None:
        """Use ``topic.subscribe``."""
        self._folder = folder
        self._feed = feed
        self._wait = wait
        self._autoack = autoack
        self._in_hand: EntryId | None = None
        self._told = threading.Event()
        self._is_closed = False

    def __next__(self) -> Delivered:
        """The next message; waits for it.

        Raises: Gap if messages were removed that the group had yet to read or to acknowledge, once: the next call goes
            on behind them. NoGroup if the group was deleted; LogClosed if the data folder was closed; StorageError.
        """
        self._folder.check_open()
        self._ack_in_hand()
        clock = self._folder.clock
        end = None if self._wait is None else clock.monotonic() + self._wait
        while True:
            self._told.clear()
            if self._is_closed:
                raise StopIteration
            self._settle()
            ready = self._feed.take()
            if ready is not None:
                self._in_hand = ready[0] if self._autoack else None
                return Delivered(self, *ready)
            try:
                if self._feed.fetch(self._told.set):
                    continue
                self._push()
                left = None if end is None else end - clock.monotonic()
                if left is not None and left <= 0:
                    raise StopIteration
                self._sleep(left)
            finally:
                self._feed.leave(self._told.set)

    def _sleep(self, left: float | None) -> None:
        claims_in = self._feed.claims_in()
        with self._folder.woken_at_close(self._told.set):
            self._told.wait(min((each for each in (left, claims_in) if each is not None), default=None))

    def _settle(self) -> None:
        waits = self._feed.unsettled()
        if waits is None:
            return
        topic, topic_position, position = waits
        try:
            topic.settle(topic_position)
            topic.groups.settle(position)
        except LaminaError:
            self._feed.was_refused()
            raise
        self._feed.is_settled()

    def _ack_in_hand(self) -> None:
        """Without waiting for the disk: if this is lost the message comes again, as it does after any crash."""
        if self._in_hand is not None:
            self._feed.ack([self._in_hand])
            self._in_hand = None

    def _push(self) -> None:
        """Before we sleep, acknowledgements go to the log."""
        self._feed.source().groups.push()

    def ack(self, messages: Iterable[Message]) -> int:
        """These are done with. Returns how many were not so before. Raises: NoGroup, StorageError."""
        groups, count, position = self._feed.ack(_ids_of(messages))
        groups.settle(position)
        return count

    def close(self) -> None:
        """Stop; who waits for a message is told. What was not acknowledged stays pending for this consumer."""
        if not self._is_closed:
            self._is_closed = True
            self._told.set()
            self._folder.unsubscribe(self)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class Acknowledges(Protocol):
    """Whoever delivered a message: a subscription here, or to the topic of a server."""

    def ack(self, messages: Iterable[Message]) -> int: ...


class Delivered(Message):
    """A message in the hands of a consumer."""

    __slots__ = ("_subscription", "deliveries")

    def __init__(self, subscription: Acknowledges, id: EntryId, flat: Sequence[bytes], deliveries: int) -> None:
        super().__init__(id, flat)
        self._subscription = subscription
        self.deliveries = deliveries
        """How often it was given to somebody, this time included."""

    def ack(self) -> None:
        """It is done with. Returns when that is as safe as the policy promises. Raises: NoGroup, StorageError."""
        self._subscription.ack([self])


def _ids_of(messages: Iterable[Message]) -> list[EntryId]:
    return [message.entry_id for message in messages]
