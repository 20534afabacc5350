"""What a subscription gets next, without waiting for it: subscription.py and aio.py do the waiting.

First what is pending for this consumer, since before it was restarted; then, if it is to claim, what others have had
for too long; then what the group has not had yet. What is got ready is pending for this consumer at once, whether or
not it is taken.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lamina.engines.topics import group_views, ids
from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.groups import Groups, Shown
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import show_name
from lamina.engines.topics.reading import gap_behind, make_gap
from lamina.engines.topics.topic import Topic
from lamina.errors import Gap, NoGroup

if TYPE_CHECKING:
    from lamina.engines.topics.topics import Topics

Ready = tuple[EntryId, list[bytes], int]
"""Id, fields, and how often it was delivered."""


class Feed:
    """Of one consumer. Threads: every method is safe from any thread."""

    def __init__(
        self, topics: Topics, topic: bytes, group: bytes, consumer: bytes, *, batch: int, claim_idle_ms: int | None
    ) -> None:
        self._topics = topics
        self.key = (topic, group, consumer)
        self._topic, self._group, self._consumer = topic, group, consumer
        self._batch = batch
        self._claim_idle_ms = claim_idle_ms
        self._claim_at = 0.0
        self._lock = threading.Lock()
        self._ready: deque[tuple[EntryId, list[bytes]]] = deque()
        self._unsettled: tuple[Topic, int, int] | None = None
        self._own: EntryId | None = ids.FIRST  # what is pending for us is given behind this id; None: all was
        self._own_before: EntryId | None = ids.FIRST
        self._gap: Gap | None = None
        self._accept: Callable[[], None] | None = None  # what is done when the caller goes on after a gap
        self._waits_at: Topic | None = None

    def source(self) -> Topic:
        """The topic. Raises: NoGroup if it was deleted, and its groups with it."""
        topic = self._topics.get(self._topic)
        if topic is None:
            raise NoGroup(f"the topic {show_name(self._topic)!r} was deleted, and its groups with it")
        return topic

    # -- taking ------------------------------------------------------------------------------------------------------

    def unsettled(self) -> tuple[Topic, int, int] | None:
        """What has to be as safe as promised before a message is taken: positions in the topic and in its groups."""
        return self._unsettled

    def is_settled(self) -> None:
        self._unsettled = None

    def was_refused(self) -> None:
        """The disk did not take what we were given: it is given again."""
        with self._lock:
            self._ready.clear()
            self._unsettled = None
            self._own = self._own_before

    def take(self) -> Ready | None:
        """The next message that is ready; None: fetch more. Raises: Gap, once for each."""
        with self._lock:
            if self._gap is not None:
                gap, self._gap = self._gap, None
                raise gap
            while self._ready:
                id, flat = self._ready.popleft()
                deliveries = self._deliveries(id)
                if deliveries:
                    return id, flat, deliveries
            return None

    def _deliveries(self, id: EntryId) -> int:
        """0: it is not ours any more, as it was acknowledged, or another consumer has claimed it."""
        topic = self.source()
        with topic.lock:
            group = topic.groups.state.groups.get(self._group)
            pending = None if group is None else group.pending.get(id)
            return 0 if pending is None or pending.consumer.name != self._consumer else pending.deliveries

    def ack(self, acked: Sequence[EntryId]) -> tuple[Groups, int, int]:
        """How many of them were pending, and the position to wait for, of these groups. Raises: NoGroup."""
        groups = self.source().groups
        return groups, *groups.ack(self._group, acked)

    # -- getting ready -------------------------------------------------------------------------------------------------

    def fetch(self, tell: Callable[[], None]) -> bool:
        """Get messages ready. Where there are none, ``tell`` is called when there may be: False. Raises: NoGroup.

        Blocks while it reads files.
        """
        with self._lock:
            if self._ready or self._gap is not None:
                return True
            if self._accept is not None:
                self._accept()
                self._accept = None
            topic = self.source()
            self._own_before = self._own
            while self._own is not None and not self._is_served():
                self._fetch_own(topic, self._own)
            if not self._is_served() and self._claim_idle_ms is not None:
                self._fetch_idle(topic, self._claim_idle_ms)
            if not self._is_served():
                self._fetch_new(topic, tell)
            return self._is_served()

    def _is_served(self) -> bool:
        return bool(self._ready) or self._gap is not None

    def leave(self, tell: Callable[[], None]) -> None:
        """``tell`` need not be called any more."""
        topic, self._waits_at = self._waits_at, None
        if topic is not None:
            with topic.lock:
                topic.waiters.pop(tell, None)

    def claims_in(self) -> float | None:
        """Seconds until it is looked again for what others have had for too long; None: it is not."""
        if self._claim_idle_ms is None:
            return None
        return max(self._claim_at - self._topics.clock.monotonic(), 0.0)

    def _fetch_own(self, topic: Topic, after: EntryId) -> None:
        shown = topic.groups.history(self._group, self._consumer, after, self._batch)
        self._own = shown.records[-1][0] if shown.records else None
        self._keep(topic, shown)

    def _fetch_idle(self, topic: Topic, idle_ms: int) -> None:
        """Claim what others were given at least so long ago; twice in that time it is looked for."""
        now = self._topics.clock.monotonic()
        if now < self._claim_at:
            return
        self._claim_at = now + idle_ms / 2000
        start = ids.FIRST
        while not self._is_served():
            with topic.lock:
                found = group_views.pending(topic.groups, self._group, start, count=self._batch, min_idle=idle_ms)
                others = [entry.id for entry in found if entry.consumer != self._consumer]
                if others:
                    options = ClaimOptions(min_idle=idle_ms)
                    shown = topic.groups.claim(self._group, self._consumer, others, options)
                    self._claim_at = now  # there may be more
                    self._keep(topic, shown)
            if len(found) < self._batch:
                return
            start = EntryId(found[-1].id + 1)

    def _fetch_new(self, topic: Topic, tell: Callable[[], None]) -> None:
        with topic.lock:
            self._gap = gap_behind(topic, topic.groups.get(self._group).last_id)
            if self._gap is not None:
                self._accept = self._skip_removed
                return
            shown = topic.groups.deliver(self._group, self._consumer, self._batch)
            if not shown.records:
                topic.waiters[tell] = None
                self._waits_at = topic
            self._keep(topic, shown)

    def _skip_removed(self) -> None:
        topic = self.source()
        with topic.lock:
            removed = topic.state.trimmed_to
            if topic.groups.get(self._group).last_id < removed:
                topic.groups.set_id(self._group, removed)

    def _keep(self, topic: Topic, shown: Shown) -> None:
        """Take what was shown. What is pending and was removed is told; what was deleted is not."""
        entries = shown.entries
        self._ready.extend((id, flat) for id, flat in entries if flat is not None)
        self._unsettled = (topic, shown.topic_position, shown.position)
        gone = [*shown.gone, *(id for id, flat in entries if flat is None)]
        if not gone:
            return
        removed = [id for id in gone if id <= topic.state.trimmed_to]

        def forget() -> None:
            self.ack(gone)

        if removed:
            self._gap = make_gap(topic, EntryId(min(removed) - 1), max(removed))
            self._accept = forget
        else:
            forget()
