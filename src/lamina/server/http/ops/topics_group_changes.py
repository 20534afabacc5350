"""Changes of groups: made, deleted, moved to another place.

Durability: what they say is as safe as the sync policy promises when it is said.
"""

from __future__ import annotations

from typing import Final

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import GroupExists
from lamina.log.folders import folder_name
from lamina.server.http.names import read_name
from lamina.server.http.operations import Changes, Done, Name, Operation, Place, Plan
from lamina.server.http.ops.topics_common import (
    OF_CHANGING,
    Moment,
    check_moment,
    counted,
    engine_of,
    find,
    id_text,
    no_topic,
    position_before,
    tell_waiting,
)
from lamina.server.http.ops.topics_groups import known_group
from lamina.server.http.ops.topics_reading import count


class TopicGroupChanges(Changes, frozen=True, kw_only=True):
    """Which group."""

    name: Name
    """Of the topic."""
    group: Name


def shown_group(asked: TopicGroupChanges) -> str:
    """For people, and for the audit log."""
    return f"{asked.group} of {asked.name}"


def settle_groups(topic: Topic, position: int) -> None:
    """What was changed of groups rests on the topic, too."""
    topic.settle(topic.newest_position())
    topic.groups.settle(position)


# -- made --------------------------------------------------------------------------------------------------------------


class TopicGroupCreateAsks(TopicGroupChanges, frozen=True, kw_only=True):
    """Where it begins."""

    at: Moment = "end"
    """With the first message at or behind this time or id; ``start``: the oldest there is; ``end``: what comes now."""
    make_topic: bool = False
    """Make the topic if there is none."""


async def _plan_create(place: Place, asked: TopicGroupCreateAsks) -> Plan:
    return await place.in_thread(_create_plan, place, asked)


def _create_plan(place: Place, asked: TopicGroupCreateAsks) -> Plan:
    name, group = read_name(asked.name), read_name(asked.group)
    place.check("topics", "write", name)
    folder_name(name)
    topics = engine_of(place)
    check_moment(asked.at, topics.clock.now_ns())
    topic = topics.get(name)
    will = f"make the group {shown_group(asked)}"
    if topic is None:
        if not asked.make_topic:
            raise no_topic(asked.name)
        return Plan(will=will, details=[f"{asked.name} does not exist yet: it is made, too"], count=0)
    with topic.lock:
        if topic.groups.has(group):
            raise _exists(asked)
        after = position_before(topic, asked.at)
    waiting, is_exact = count(topic, after, ids.LAST)
    gets = f"it gets {counted(waiting) if is_exact else 'more than ' + counted(waiting)} that are there, and what comes"
    return Plan(will=will, details=[gets], count=waiting if is_exact else None)


def _exists(asked: TopicGroupChanges) -> GroupExists:
    return GroupExists(f"there is a group {shown_group(asked)} already", hint="give another name, or reset that one")


async def _create(place: Place, asked: TopicGroupCreateAsks) -> Done:
    await place.in_thread(_created, place, asked)
    return Done(did=f"made the group {shown_group(asked)}")


def _created(place: Place, asked: TopicGroupCreateAsks) -> None:
    name, group = read_name(asked.name), read_name(asked.group)
    place.check("topics", "write", name)
    topics = engine_of(place)
    check_moment(asked.at, topics.clock.now_ns())
    topic = topics.get_or_make(name) if asked.make_topic else topics.get(name)
    if topic is None:
        raise no_topic(asked.name)
    with topic.lock:
        if topic.groups.has(group):
            raise _exists(asked)
        if not topic.state.exists:
            topic.set_id(ids.FIRST)
        after = None if asked.at == "end" else position_before(topic, asked.at)
        position = topic.groups.create(group, after)
    settle_groups(topic, position)


# -- deleted -----------------------------------------------------------------------------------------------------------


async def _plan_delete(place: Place, asked: TopicGroupChanges) -> Plan:
    return await place.in_thread(_delete_plan, place, asked)


def _delete_plan(place: Place, asked: TopicGroupChanges) -> Plan:
    _, topic = find(place, asked.name, "write")
    with topic.lock:
        group = known_group(topic, read_name(asked.group))
        pending, consumers = len(group.pending), len(group.consumers)
    details = [f"{counted(consumers, 'consumer')}, {counted(pending)} pending: that is forgotten"]
    details.append("the messages stay in the topic")
    warning = "Where the group was in the topic cannot be brought back."
    return Plan(will=f"delete the group {shown_group(asked)}", details=details, warning=warning, count=pending)


async def _delete(place: Place, asked: TopicGroupChanges) -> Done:
    pending = await place.in_thread(_deleted, place, asked)
    await tell_waiting(place, read_name(asked.name))
    return Done(did=f"deleted the group {shown_group(asked)}", count=pending)


def _deleted(place: Place, asked: TopicGroupChanges) -> int:
    _, topic = find(place, asked.name, "write")
    name = read_name(asked.group)
    with topic.lock:
        pending = len(known_group(topic, name).pending)
        _, position = topic.groups.destroy(name)
    settle_groups(topic, position)
    return pending


# -- moved -------------------------------------------------------------------------------------------------------------


class TopicGroupResetAsks(TopicGroupChanges, frozen=True, kw_only=True):
    """Where it goes on."""

    to: Moment
    """With the first message at or behind this time or id; ``start``: the oldest there is; ``end``: what comes now."""


class TopicGroupReset(Done, frozen=True, kw_only=True):
    """How a group was moved."""

    from_id: str
    """It was behind this id."""
    to_id: str
    """It goes on behind this one."""
    again: int | None
    """Messages that are delivered once more; none: too many to count."""
    skipped: int | None
    """Messages that are not delivered any more."""
    pending: int
    """Messages that were delivered and are not acknowledged; they stay pending."""


def _target(topic: Topic, to: str) -> EntryId:
    """Behind what retention took: the group does not get that in any case. The caller holds the lock."""
    return max(position_before(topic, to), topic.state.let_go_to)


def _difference(topic: Topic, at: EntryId, to: EntryId) -> tuple[int | None, int | None]:
    """How many come again, and how many are skipped."""
    found, is_exact = count(topic, min(at, to), max(at, to))
    counted = found if is_exact else None
    return (counted, 0) if to < at else (0, counted)


async def _plan_reset(place: Place, asked: TopicGroupResetAsks) -> Plan:
    return await place.in_thread(_reset_plan, place, asked)


def _reset_plan(place: Place, asked: TopicGroupResetAsks) -> Plan:
    _, topic = find(place, asked.name, "write")
    with topic.lock:
        group = known_group(topic, read_name(asked.group))
        at, pending = group.last_id, len(group.pending)
        to = _target(topic, asked.to)
        newest = topic.state.last_id
    again, skipped = _difference(topic, at, to)
    details = [_moved(again, skipped), f"it is {_place(at)} now, and goes on {_place(to)}"]
    if pending:
        details.append(f"{counted(pending)} pending stay with their consumers until they are acknowledged")
    if to > newest:
        details.append("the topic has not come so far yet: what is published until then is skipped, too")
    warning = "What is skipped is not delivered unless it is reset again." if to > at else ""
    will = f"move the group {shown_group(asked)}: {_moved(again, skipped)}"
    return Plan(will=will, details=details[1:], warning=warning, count=again if to < at else skipped)


def _place(id: EntryId) -> str:
    return f"behind {id_text(id)}" if id else "at the very beginning"


def _moved(again: int | None, skipped: int | None) -> str:
    if again is None or skipped is None:
        return f"too many messages to count are {'delivered again' if again is None else 'skipped'}"
    if not again and not skipped:
        return "no message is delivered again, and none is skipped"
    what = again or skipped
    return f"{counted(what)} {'is' if what == 1 else 'are'} {'delivered again' if again else 'skipped'}"


async def _reset(place: Place, asked: TopicGroupResetAsks) -> TopicGroupReset:
    done = await place.in_thread(_was_reset, place, asked)
    await tell_waiting(place, read_name(asked.name))  # who waits for more may have some now
    return done


def _was_reset(place: Place, asked: TopicGroupResetAsks) -> TopicGroupReset:
    _, topic = find(place, asked.name, "write")
    name = read_name(asked.group)
    with topic.lock:
        group = known_group(topic, name)
        at, pending = group.last_id, len(group.pending)
        to = _target(topic, asked.to)
        position = topic.groups.set_id(name, to)
    settle_groups(topic, position)
    again, skipped = _difference(topic, at, to)
    return TopicGroupReset(
        did=f"moved the group {shown_group(asked)}: {_moved(again, skipped)}",
        count=again if to < at else skipped,
        from_id=id_text(at),
        to_id=id_text(to),
        again=again,
        skipped=skipped,
        pending=pending,
    )


CREATE_GROUP: Final = Operation(
    name="topics.create_group",
    method="POST",
    path="/topics/groups/create",
    summary="Make a group of a topic",
    right=("topics", "write"),
    asks=TopicGroupCreateAsks,
    gives=Done,
    do=_create,
    plan=_plan_create,
    target=shown_group,
    errors=("bad_name", "bad_topic", "group_exists", *OF_CHANGING),
)
DELETE_GROUP: Final = Operation(
    name="topics.delete_group",
    method="POST",
    path="/topics/groups/delete",
    summary="Delete a group of a topic",
    right=("topics", "write"),
    asks=TopicGroupChanges,
    gives=Done,
    do=_delete,
    plan=_plan_delete,
    target=shown_group,
    errors=("bad_name", "no_group", *OF_CHANGING),
)
RESET_GROUP: Final = Operation(
    name="topics.reset_group",
    method="POST",
    path="/topics/groups/reset",
    summary="Let a group of a topic go on at another place",
    right=("topics", "write"),
    asks=TopicGroupResetAsks,
    gives=TopicGroupReset,
    do=_reset,
    plan=_plan_reset,
    target=shown_group,
    errors=("bad_name", "bad_topic", "no_group", *OF_CHANGING),
)
