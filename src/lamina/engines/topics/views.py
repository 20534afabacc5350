"""What can be asked about a topic and its groups, as callers see it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lamina.engines.topics import group_views as engine_views
from lamina.engines.topics import ids
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import END, START, Moment, show_name, starting_at, to_name
from lamina.engines.topics.reading import PAGE
from lamina.errors import NoGroup

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic."""

    name: str
    length: int
    """Messages that are there."""
    added: int
    """Messages that were ever published."""
    first_id: str | None
    last_id: str | None
    """The newest there ever was; it may be gone."""
    groups: int


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """One consumer of a group."""

    name: str
    pending: int
    idle_ms: int
    """Since it last took something or tried to."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One group of a topic."""

    name: str
    pending: int
    """Messages that were delivered and are not acknowledged."""
    last_id: str
    """Of the newest message delivered."""
    lag: int | None
    """Messages that are yet to be delivered; None: that cannot be known."""
    oldest_pending: str | None
    consumers: tuple[ConsumerView, ...]


@dataclass(frozen=True, slots=True)
class Reset:
    """What moving a group means."""

    topic: str
    group: str
    from_id: str
    """The newest message that was delivered."""
    to_id: str
    """The group goes on behind this id."""
    again: int
    """Messages that are delivered once more."""
    skipped: int
    """Messages that are not delivered any more."""
    pending: int
    """Messages that were delivered and are not acknowledged; they stay pending."""
    last_before: EntryId


def show_id(id: EntryId) -> str:
    return ids.show(id).decode()


def topic_view(name: str, topic: Topic | None) -> TopicView:
    if topic is None:
        return TopicView(name, 0, 0, None, None, 0)
    with topic.lock:
        state, first = topic.state, topic.first_id()
        return TopicView(
            name,
            state.length,
            state.added,
            None if first is None else show_id(first),
            show_id(state.last_id) if state.last_id else None,
            len(topic.groups.state.groups),
        )


def group_views(topic: Topic) -> list[GroupView]:
    groups = topic.groups
    with topic.lock:
        now = groups.now_ms()
        found = []
        for stats in engine_views.stats(groups):
            oldest = engine_views.summary(groups, stats.name).first
            consumers = (
                ConsumerView(show_name(one.name), one.pending, max(now - one.seen, 0))
                for one in engine_views.consumers(groups, stats.name)
            )
            found.append(
                GroupView(
                    show_name(stats.name),
                    stats.pending,
                    show_id(stats.last_id),
                    stats.lag,
                    None if oldest is None else show_id(oldest),
                    tuple(consumers),
                )
            )
        return found


def last_before(topic: Topic, moment: Moment) -> EntryId:
    """The id behind which a group goes on to begin at ``moment``. Raises: BadTopic."""
    if moment == START:
        return topic.state.trimmed_to
    if moment == END:
        return topic.state.last_id
    return EntryId(max(starting_at(moment, topic.clock.now_ns()) - 1, ids.FIRST))


def plan_reset(name: str, topic: Topic | None, group: str, moment: Moment) -> Reset:
    """Raises: NoGroup, BadTopic."""
    if topic is None:
        raise NoGroup(f"there is no topic {name!r}")
    with topic.lock:
        known = topic.groups.get(to_name(group))
        at, pending = known.last_id, len(known.pending)
        to = last_before(topic, moment)
    again, skipped = (count(topic, to, at), 0) if to < at else (0, count(topic, at, to))
    return Reset(name, group, show_id(at), show_id(to), again, skipped, pending, to)


def count(topic: Topic, after: EntryId, until: EntryId) -> int:
    """Messages behind one id and up to another. Counting them is not reading them: ``Topic.looked_at``."""
    total = 0
    while after < until:
        records, _ = topic.looked_at(EntryId(after + 1), until, PAGE)
        total += len(records)
        last = entry_id(records[-1]) if len(records) == PAGE else None
        if last is None:
            break
        after = last
    return total
