"""The topics at a glance: what happened to those that are open, and how far the groups of all are behind.

No file is read for it, but for a few groups that are behind what is in memory: so many a look, and what was found is
remembered until they go on. Of topics that nobody has used since the start it is told what somebody else has found
(server/looking.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final, NamedTuple

from lamina.engines.topics import group_lag, ids
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.past import OTHERS, Counted
from lamina.engines.topics.state import State
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.server.measures.topic_glimpse import GroupGlimpse
    from lamina.server.measures.unopened import Unopened

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
    """All of them."""

    counted: Counted
    topics: list[TopicSeen]
    """Those that were used."""
    groups: list[GroupSeen]
    unknown: int | None
    """Topics whose groups are not among these, if there are any; None: nobody looks at those that are not used."""


class TopicsLook:
    """Looks at the same topics again and again. One thread at a time."""

    def __init__(self) -> None:
        self._next: dict[tuple[bytes, bytes], tuple[EntryId, EntryId]] = {}
        self._lookups = 0

    def look(self, topics: Topics, unopened: Unopened[tuple[GroupGlimpse, ...]] | None = None) -> TopicsSeen:
        """``unopened`` says what is known of topics that nobody has used since the start: none is opened for it."""
        self._lookups = _LOOKUPS
        with topics.lock:  # so that a topic is among those or among these
            past = dict(topics.counts.by_name)
            opened = dict(topics.opened())
            closed = {} if unopened is None else unopened.seen()
            unknown = None if unopened is None else unopened.unknown
        seen: list[TopicSeen] = []
        groups: list[GroupSeen] = []
        now = topics.clock.now_ns()
        before, self._next = self._next, {}
        for name, topic in opened.items():
            counted = Counted.of(topic)
            if name in past:
                counted = counted.plus(past.pop(name))
            seen.append(TopicSeen(name, counted, topic.state.length))
            opened_groups = topic.opened_groups
            if opened_groups is not None and opened_groups.state.groups:
                groups.extend(self._groups(name, topic, list(opened_groups.state.groups.values()), now, before))
        seen.extend(TopicSeen(name, counted, 0) for name, counted in past.items())
        for name, found in closed.items():
            groups.extend(_of_closed(name, found, now))
        numbers = map(sum, zip(*(one.counted for one in seen), strict=True))
        return TopicsSeen(Counted(*numbers), seen, groups, unknown)

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
        def look_up() -> int | None:
            if not self._lookups:
                return None
            self._lookups -= 1
            try:
                return group_lag.lag(topic, group)
            except LaminaError:  # whoever reads the topic is told
                return None

        return bounded_lag(topic.state, group, look_up)

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
        return _since(ids.ms_of(start if first is None else first), now)


def bounded_lag(state: State, group: Group, look_up: Callable[[], int | None]) -> int:
    """Entries that the group has yet to read; as many as there are where that is not known.

    ``look_up`` may have to read a file: it is called only where nothing else says it. None: that does not, either.
    """
    if group.last_id >= state.last_id or not state.length:
        return 0
    if group.read is not None and state.max_deleted == ids.FIRST:
        return min(max(int(state.added) - group.read, 0), int(state.length))
    found = look_up()
    return int(state.length) if found is None else min(found, int(state.length))


def _of_closed(name: bytes, found: Iterable[GroupGlimpse], now: int) -> Iterator[GroupSeen]:
    for one in found:
        yield GroupSeen(name, one.name, one.lag, _since(one.first_ms, now) if one.lag else 0.0, one.pending)


def _since(ms: int, now: int) -> float:
    """Seconds since a time that an id says; 0: it is none."""
    return max(now / 1e6 - ms, 0.0) / 1e3 if ms >= _LEAST_MS else 0.0


def show_topic(name: bytes) -> str:
    """As a label."""
    return "(closed)" if name == OTHERS else name.decode("utf-8", "backslashreplace")
