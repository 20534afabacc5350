"""A subscription to the topic of a server: messages, each to one consumer of its group, until it acknowledges."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from lamina.client.lines import hold
from lamina.client.resp import RespClient
from lamina.client.talking import Talk
from lamina.client.topic_feed import RemoteFeed
from lamina.client.topic_talks import ack
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Message
from lamina.engines.topics.subscription import Delivered
from lamina.errors import Disconnected, Gap, LaminaError, NoGroup

if TYPE_CHECKING:
    from lamina.client.remote_topics import RemoteTopics

ACK_EVERY_S: Final = 0.02
"""Acknowledgements that nobody waits for are sent together, so often."""
PAUSE_S: Final = 0.1
MOST_ACKS: Final = 1000


class RemoteSubscription(Iterator[Delivered]):
    """Open it with ``topic.subscribe``. Threads: one iterates; ``ack`` and ``close`` are safe from any.

    When the connection breaks it connects anew: for as long as it waits for a message, and for at least the ``retry_s``
    of the connection. Then it first takes what the server had given to it and did not come. What is in your hands does
    not come again, unless the subscription is closed, or another consumer claims it.
    """

    def __init__(self, topics: RemoteTopics, feed: RemoteFeed, *, wait: float | None, autoack: bool) -> None:
        """Use ``topic.subscribe``."""
        self._topics, self._lines = topics, topics.lines
        self._feed = feed
        self._name, self._group, _ = feed.key
        self._wait = wait
        self._acks = LazyAcks() if autoack else None
        self._lock = threading.Lock()
        self._waits_on: RespClient | None = None
        self._closing = threading.Event()

    def __next__(self) -> Delivered:
        """The next message; waits for it.

        Raises: Gap if messages were removed that the group had yet to read or to acknowledge, once: the next call goes
            on behind them. NoGroup if the group was deleted; LogClosed if the connection was closed; StorageError;
            Disconnected if the server cannot be reached for so long: the next call tries again.
        """
        now = time.monotonic()
        patience = Deadline(self._wait, self._lines.endpoint.retry_s, now)
        is_due = self._acks is not None and self._acks.is_due(now)
        while not self._closing.is_set():
            try:
                if is_due:
                    self._send_acks()
                    is_due = False
                if self._feed.is_old:
                    self._hold(self._feed.check())
                ready = self._feed.take()
                if ready is not None:
                    if self._acks is not None:
                        self._acks.hand_out(ready[0])
                    return Delivered(self, *ready)
                self._send_acks()
                left = patience.left(time.monotonic())
                if not self._hold(self._feed.fetch(left)) and left <= 0:
                    raise StopIteration
            except (StopIteration, Gap, NoGroup):
                raise
            except Disconnected as problem:
                self._feed.broke()
                if self._closing.is_set():
                    break
                patience.check(problem, time.monotonic())
                self._closing.wait(PAUSE_S)
            except BaseException:
                self._feed.broke()
                if self._closing.is_set():
                    break
                raise
        raise StopIteration

    def _hold(self, talk: Talk[bool] | Talk[None]) -> bool:
        with self._lines.line() as line:
            with self._lock:
                self._waits_on = line
            try:
                return not self._closing.is_set() and bool(hold(talk, line))
            finally:
                with self._lock:
                    self._waits_on = None
                if self._closing.is_set():  # it may be shut: nobody else shall get it
                    line.close()

    def _send_acks(self) -> None:
        """If this is lost the messages come again, as they do after any crash."""
        due = [] if self._acks is None else self._acks.due(time.monotonic())
        if self._acks is not None and due:
            self._lines.do(ack(self._name, self._group, due))
            self._feed.acked(due)
            self._acks.sent(due)

    def ack(self, messages: Iterable[Message]) -> int:
        """These are done with. Returns how many were not so before. Asked again when the connection breaks: then those
        that were done the first time do not count. Raises: NoGroup, StorageError, Disconnected.
        """
        acked = [message.entry_id for message in messages]
        count = self._lines.do(ack(self._name, self._group, acked))
        self._feed.acked(acked)
        return count

    def close(self) -> None:
        """Stop; who waits for a message is told. What was not acknowledged stays pending for this consumer."""
        if self._closing.is_set():
            return
        self._closing.set()
        with self._lock:
            is_waiting = self._waits_on is not None
            if self._waits_on is not None:
                self._waits_on.shut()
        if not is_waiting:
            with suppress(LaminaError):  # they come again
                self._send_acks()
        self._topics.unsubscribe(self._feed.key, self)

    def __enter__(self) -> RemoteSubscription:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


class LazyAcks:
    """Messages that are acknowledged when the next one is asked for: those are sent together."""

    def __init__(self) -> None:
        self._in_hand: EntryId | None = None
        self._due: list[EntryId] = []
        self._sent_at = 0.0

    def hand_out(self, id: EntryId) -> None:
        self._in_hand = id

    def is_due(self, now: float) -> bool:
        """The next one is asked for: is it time to send?"""
        if self._in_hand is not None:
            self._due.append(self._in_hand)
            self._in_hand = None
        return bool(self._due) and (now >= self._sent_at + ACK_EVERY_S or len(self._due) >= MOST_ACKS)

    def due(self, now: float) -> list[EntryId]:
        self._sent_at = now
        return list(self._due)

    def sent(self, acked: list[EntryId]) -> None:
        self._due = self._due[len(acked) :]


class Deadline:
    """How long a message is waited for, and a server that is gone."""

    def __init__(self, wait: float | None, retry_s: float, now: float) -> None:
        self._end = None if wait is None else now + wait
        self._gives_up = None if wait is None else now + max(wait, retry_s)

    def left(self, now: float) -> float:
        return float("inf") if self._end is None else max(self._end - now, 0.0)

    def check(self, problem: Disconnected, now: float) -> None:
        """Raises: the problem, if it has lasted for too long."""
        if self._gives_up is not None and now >= self._gives_up:
            raise problem
