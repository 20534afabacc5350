"""The topics that are open at a glance: what happened to them, and how far their groups are behind.

No file is read for it, but for a few groups that are behind what is in memory: so many a look, and what was found is
remembered until they go on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from lamina.engines.topics import group_lag, ids
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.past import OTHERS, Counted
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import LaminaError

_LOOKUPS: Final = 20  # of files, a look
_LEAST_MS: Final = 946_684_800_000  # the year 2000: an id that is smaller was not made by a clock


class GroupSeen(NamedTuple):
    """One group."""

    topic: bytes
    group: bytes
    lag: int
    lag_s: float
    pending: int
    """Entries that were delivered and not acknowledged."""


class TopicSeen(NamedTuple):
    """One topic, since the server was started."""

    name: bytes
    counted: Counted
    length: int


class TopicsSeen(NamedTuple):
    """All of them that were used."""

    counted: Counted
    topics: list[TopicSeen]
    groups: list[GroupSeen]


class TopicsLook:
    """Looks at the same topics again and again. One thread at a time."""

    def __init__(self) -> None:
        self._next: dict[tuple[bytes, bytes], tuple[EntryId, EntryId]] = {}
        self._lookups = 0

    def look(self, topics: Topics) -> TopicsSeen:
        """Topics that nobody has used since the start are not opened for it."""
        self._lookups = _LOOKUPS
        with topics.lock:
            past = dict(topics.counts.by_name)
            opened = list(topics.opened())
        seen: list[TopicSeen] = []
        groups: list[GroupSeen] = []
        now = topics.clock.now_ns()
        before, self._next = self._next, {}
        for name, topic in opened:
            counted = Counted.of(topic)
            if name in past:
                counted = counted.plus(past.pop(name))
            seen.append(TopicSeen(name, counted, topic.state.length))
            opened_groups = topic.opened_groups
            if opened_groups is not None and opened_groups.state.groups:
                groups.extend(self._groups(name, topic, list(opened_groups.state.groups.values()), now, before))
        seen.extend(TopicSeen(name, counted, 0) for name, counted in past.items())
        numbers = map(sum, zip(*(one.counted for one in seen), strict=True))
        return TopicsSeen(Counted(*numbers), seen, groups)

    def _groups(
        self,
        name: bytes,
        topic: Topic,
        groups: list[Group],
        now: int,
        before: dict[tuple[bytes, bytes], tuple[EntryId, EntryId]],
    ) -> Iterator[GroupSeen]:
        for group in groups:
            lag = self._lag(topic, group)
            seconds = 0.0
            if lag:
                key = name, group.name
                seconds = self._seconds(topic, group, now, key, before.get(key))
            yield GroupSeen(name, group.name, lag, seconds, len(group.pending))

    def _lag(self, topic: Topic, group: Group) -> int:
        state = topic.state
        if group.last_id >= state.last_id or not state.length:
            return 0
        if group.read is not None and state.max_deleted == ids.FIRST:
            return min(max(int(state.added) - group.read, 0), int(state.length))
        found: int | None = None
        if self._lookups:
            self._lookups -= 1
            try:
                found = group_lag.lag(topic, group)
            except LaminaError:  # whoever reads the topic is told
                found = None
        return int(state.length) if found is None else min(found, int(state.length))

    def _seconds(
        self,
        topic: Topic,
        group: Group,
        now: int,
        key: tuple[bytes, bytes],
        known: tuple[EntryId, EntryId] | None,
    ) -> float:
        """Since the first entry was added that the group has not read; 0: that is not known."""
        start = EntryId(group.last_id + 1)
        with topic.lock:
            if start >= topic.tail.first_id:
                positions = topic.tail.between(start, ids.LAST, 1)[1]
                return max(now - positions[0], 0) / 1e9 if positions else 0.0
        first: EntryId | None = None
        if known is not None and known[0] == group.last_id:
            first = known[1]
        elif self._lookups:
            self._lookups -= 1
            try:
                first = topic.next_id_from(start)
            except LaminaError:  # as above
                first = None
        if first is not None:
            self._next[key] = group.last_id, first
        ms = (start if first is None else first) >> 64
        return max(now / 1e6 - ms, 0.0) / 1e3 if ms >= _LEAST_MS else 0.0


def show_topic(name: bytes) -> str:
    """As a label."""
    return "(closed)" if name == OTHERS else name.decode("utf-8", "backslashreplace")
