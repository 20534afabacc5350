"""Groups of a topic: how far behind each is, who reads for it, and what was given out and not acknowledged."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Annotated, Final

import msgspec

from lamina.engines.topics import group_lag, group_views, ids
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.groups import Groups
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import parse_id
from lamina.engines.topics.topic import Topic
from lamina.errors import NoGroup
from lamina.server.http.names import read_name
from lamina.server.http.operations import After, Asks, Gives, Limit, Name, Operation, Place
from lamina.server.http.ops.topics_common import OF_OPENING, find, id_text, shown_name, time_of
from lamina.server.http.ops.topics_reading import count

_COUNTING_S: Final = 0.05  # for groups of which the lag is not known


class TopicGroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """One group."""

    name: str
    lag: int | None
    """Messages that it has yet to get; none: that is not known, and they are too many to be counted for a look."""
    lag_s: float | None
    """The age of the oldest of them; 0: it has got all; none: its id is no time."""
    pending: int
    """Messages that were delivered and are not acknowledged."""
    consumers: int
    last_id: str
    """Of the newest message delivered; it goes on behind this one."""
    last_ns: int | None
    oldest_pending: str | None
    """The first message that is not acknowledged."""
    oldest_pending_s: float | None
    """Since it was last delivered."""
    seen_s: float | None
    """Since somebody of it was seen; none: nobody ever was."""
    lost_to: str | None = None
    """Retention took messages that it had not read: up to this one."""


class TopicGroupsAsks(Asks, frozen=True, kw_only=True):
    """Groups of which topic."""

    name: Name
    after: After = ""
    limit: Limit = 100


class TopicGroupList(Gives, frozen=True, kw_only=True):
    """Groups by name."""

    groups: list[TopicGroupRow]
    total: int
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""


async def _groups(place: Place, asked: TopicGroupsAsks) -> TopicGroupList:
    return await place.in_thread(_group_list, place, asked)


def _group_list(place: Place, asked: TopicGroupsAsks) -> TopicGroupList:
    _, topic = find(place, asked.name)
    with topic.lock:
        names = sorted(topic.groups.state.groups)
    start = bisect_right(names, read_name(asked.after)) if asked.after else 0
    page = names[start : start + asked.limit]
    end = time.monotonic() + _COUNTING_S
    found = [_counted(topic, row, end) for name in page if (row := _row(topic, name)) is not None]
    more = start + asked.limit < len(names)
    return TopicGroupList(groups=found, total=len(names), next=shown_name(page[-1]) if more else "")


def _row(topic: Topic, name: bytes) -> TopicGroupRow | None:
    """None: it went meanwhile."""
    with topic.lock:
        group = topic.groups.state.groups.get(name)
        return None if group is None else _facts(topic, topic.groups, group)


def _facts(topic: Topic, groups: Groups, group: Group) -> TopicGroupRow:
    now = groups.now_ms()
    oldest = next(group.pending.items(), None)
    seen = max((one.seen for one in group.consumers.values()), default=None)
    lost = groups.overtaken(group.name)
    return TopicGroupRow(
        name=shown_name(group.name),
        lag=group_lag.lag(topic, group),
        lag_s=_lag_s(topic, group, now),
        pending=len(group.pending),
        consumers=len(group.consumers),
        last_id=id_text(group.last_id),
        last_ns=time_of(group.last_id) if group.last_id else None,
        oldest_pending=None if oldest is None else id_text(oldest[0]),
        oldest_pending_s=None if oldest is None else _since(oldest[1].time, now),
        seen_s=None if seen is None else _since(seen, now),
        lost_to=None if lost is None else id_text(lost),
    )


def _counted(topic: Topic, row: TopicGroupRow, end: float) -> TopicGroupRow:
    """With the lag counted where the group does not know it, unless that takes longer than to the moment ``end``."""
    if row.lag is not None:
        return row
    found, is_exact = count(topic, parse_id(row.last_id), ids.LAST, most_s=end - time.monotonic())
    return msgspec.structs.replace(row, lag=found) if is_exact else row


def _lag_s(topic: Topic, group: Group, now_ms: int) -> float | None:
    if group.last_id >= topic.state.last_id:
        return 0.0
    waiting, _ = topic.looked_at(EntryId(group.last_id + 1), count=1)
    first = entry_id(waiting[0]) if waiting else None
    if first is None:
        return 0.0
    return None if time_of(first) is None else _since(ids.ms_of(first), now_ms)


def _since(time_ms: int, now_ms: int) -> float:
    return max(now_ms - time_ms, 0) / 1000


# -- one group ---------------------------------------------------------------------------------------------------------


class TopicGroupAsks(Asks, frozen=True, kw_only=True):
    """Which group."""

    name: Name
    group: Name
    after: After = ""
    """Consumers behind this one."""
    limit: Limit = 100


class TopicConsumerRow(msgspec.Struct, frozen=True, kw_only=True):
    """One who reads for a group."""

    name: str
    pending: int
    seen_s: float
    """Since it last took something or tried to."""


class TopicGroupFound(Gives, frozen=True, kw_only=True):
    """One group, and its consumers by name."""

    topic: str
    group: TopicGroupRow
    consumers: list[TopicConsumerRow]
    next: str = ""
    """Ask with this as ``after`` for more consumers; empty: there are none."""


async def _group(place: Place, asked: TopicGroupAsks) -> TopicGroupFound:
    return await place.in_thread(_one_group, place, asked)


def _one_group(place: Place, asked: TopicGroupAsks) -> TopicGroupFound:
    name, topic = find(place, asked.name)
    wanted, after = read_name(asked.group), read_name(asked.after) if asked.after else None
    with topic.lock:
        group = known_group(topic, wanted)
        now = topic.groups.now_ms()
        names = sorted(group.consumers)
        start = 0 if after is None else bisect_right(names, after)
        page = [group.consumers[one] for one in names[start : start + asked.limit]]
        row = _facts(topic, topic.groups, group)
        found = TopicGroupFound(
            topic=shown_name(name),
            group=row,
            consumers=[
                TopicConsumerRow(name=shown_name(one.name), pending=len(one.pending), seen_s=_since(one.seen, now))
                for one in page
            ],
            next=shown_name(page[-1].name) if start + asked.limit < len(names) else "",
        )
    return msgspec.structs.replace(found, group=_counted(topic, row, time.monotonic() + _COUNTING_S))


def known_group(topic: Topic, name: bytes) -> Group:
    """The caller holds the lock. Raises: NoGroup."""
    group = topic.groups.state.groups.get(name)
    if group is None:
        raise NoGroup(f"there is no group {shown_name(name)[:200]} here", hint="GET /api/v1/topics/groups lists them")
    return group


# -- what is pending ---------------------------------------------------------------------------------------------------


class TopicPendingAsks(Asks, frozen=True, kw_only=True):
    """Pending for whom."""

    name: Name
    group: Name
    consumer: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    """Only what this one was given; empty: all."""
    after: After = ""
    limit: Limit = 100


class TopicPendingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A message that was delivered and is not acknowledged."""

    id: str
    time_ns: int | None
    """The time in its id."""
    consumer: str
    idle_s: float
    """Since it was last delivered."""
    deliveries: int
    is_there: bool
    """False: it was removed from the topic meanwhile."""


class TopicPendingPage(Gives, frozen=True, kw_only=True):
    """Pending messages, the oldest first."""

    pending: list[TopicPendingRow]
    total: int
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""


async def _pending(place: Place, asked: TopicPendingAsks) -> TopicPendingPage:
    return await place.in_thread(_pending_page, place, asked)


def _pending_page(place: Place, asked: TopicPendingAsks) -> TopicPendingPage:
    _, topic = find(place, asked.name)
    name = read_name(asked.group)
    consumer = read_name(asked.consumer) if asked.consumer else None
    after = parse_id(asked.after) if asked.after else None
    start = ids.FIRST if after is None else EntryId(after + 1)
    with topic.lock:
        group, now = known_group(topic, name), topic.groups.now_ms()
        known = group.consumers.get(consumer) if consumer is not None else None
        total = len(group.pending) if consumer is None else 0 if known is None else len(known.pending)
        found = group_views.pending(topic.groups, name, start, count=asked.limit + 1, consumer=consumer)
        rows = [
            TopicPendingRow(
                id=id_text(one.id),
                time_ns=time_of(one.id),
                consumer=shown_name(one.consumer),
                idle_s=_since(one.time, now),
                deliveries=one.deliveries,
                is_there=topic.state.has(one.id),
            )
            for one in found[: asked.limit]
        ]
    return TopicPendingPage(pending=rows, total=total, next=rows[-1].id if len(found) > asked.limit else "")


GROUPS: Final = Operation(
    name="topics.groups",
    method="GET",
    path="/topics/groups",
    summary="Groups of a topic, and how far behind they are",
    right=("topics", "read"),
    asks=TopicGroupsAsks,
    gives=TopicGroupList,
    do=_groups,
    errors=("bad_name", *OF_OPENING),
)
GROUP: Final = Operation(
    name="topics.group",
    method="GET",
    path="/topics/group",
    summary="One group of a topic, and its consumers",
    right=("topics", "read"),
    asks=TopicGroupAsks,
    gives=TopicGroupFound,
    do=_group,
    errors=("bad_name", "no_group", *OF_OPENING),
)
PENDING: Final = Operation(
    name="topics.pending",
    method="GET",
    path="/topics/pending",
    summary="Messages that were delivered to a group and are not acknowledged",
    right=("topics", "read"),
    asks=TopicPendingAsks,
    gives=TopicPendingPage,
    do=_pending,
    errors=("bad_name", "bad_topic", "no_group", *OF_OPENING),
)
