"""Changes of a topic: a message published, the oldest removed, the whole topic deleted.

Durability: what they say is as safe as the sync policy promises when it is said.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import Publishable, parse_id, to_flat
from lamina.engines.topics.topic import Topic
from lamina.errors import BadOption, BadTopic, InputError, LogClosed, LogLocked, StorageError
from lamina.log.folders import folder_name
from lamina.server.http.names import read_name
from lamina.server.http.operations import Changes, Done, Name, Operation, Payload, Place, Plan
from lamina.server.http.ops.topics_common import (
    OF_CHANGING,
    Moment,
    counted,
    engine_of,
    find,
    first_at,
    id_text,
    no_topic,
    shown_name,
    tell_waiting,
)
from lamina.server.http.ops.topics_list import size_of
from lamina.server.http.ops.topics_reading import count
from lamina.units import show_bytes

_MOST_FIELDS: Final = 1000
_AT_ONCE: Final = 500  # messages that are trimmed while others wait
_FEW: Final = 1000  # messages that may be looked at while others wait


# -- publish -----------------------------------------------------------------------------------------------------------


class TopicPublishAsks(Changes, frozen=True, kw_only=True):
    """What to publish: ``fields``, or ``body``."""

    name: Name
    fields: Annotated[dict[str, Payload], msgspec.Meta(max_length=_MOST_FIELDS)] | None = None
    """Values by name."""
    body: Payload = ""
    """Text; what it is says ``kind``."""
    kind: Literal["text", "json"] = "text"
    """``text``: the body is the value of one field. ``json``: it is an object, whose members are the fields."""
    field: Name = "value"
    """The name of that one field."""
    id: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Larger than that of every message before it; empty: the time."""


def _flat_of(place: Place, asked: TopicPublishAsks) -> list[bytes]:
    """Raises: BadOption, BadTopic, RecordTooLarge."""
    message: Publishable
    if asked.fields is not None:
        if asked.body:
            raise BadOption("give fields or body, not both")
        message = {read_name(name): value for name, value in asked.fields.items()}
    elif asked.kind == "json":
        message = _members(asked.body)
    else:
        message = {read_name(asked.field): asked.body}
    return to_flat(message, engine_of(place).options.max_payload)


def _members(body: str) -> dict[str, str]:
    """Of a JSON object: texts as they are, all else as JSON."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadOption(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict) or len(found) > _MOST_FIELDS:
        raise BadOption(f"the body is no JSON object of up to {_MOST_FIELDS} fields", hint='such as {"item": "tea"}')
    return {
        name: value if isinstance(value, str) else msgspec.json.encode(value).decode() for name, value in found.items()
    }


async def _plan_publish(place: Place, asked: TopicPublishAsks) -> Plan:
    return await place.in_thread(_publish_plan, place, asked)


def _publish_plan(place: Place, asked: TopicPublishAsks) -> Plan:
    name = read_name(asked.name)
    place.check("topics", "write", name)
    folder_name(name)
    flat = _flat_of(place, asked)
    topic = engine_of(place).get(name)
    _check_id(asked, topic)
    details = [f"{shown_name(field)[:200]}: {show_bytes(len(value))}" for field, value in _pairs(flat)[:20]]
    if topic is None:
        details.insert(0, f"{shown_name(name)} does not exist yet: it is made by this message")
    size = show_bytes(sum(map(len, flat)))
    what = f"a message of {counted(len(flat) // 2, 'field')}, {size}"
    return Plan(will=f"publish {what}, to {shown_name(name)}", details=details, count=1)


def _pairs(flat: list[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip(flat[::2], flat[1::2], strict=True))


def _check_id(asked: TopicPublishAsks, topic: Topic | None) -> EntryId | None:
    """The id that was asked for. Raises: BadTopic unless it is behind all others."""
    if not asked.id:
        return None
    wanted, last = parse_id(asked.id), ids.FIRST if topic is None else topic.state.last_id
    if wanted <= last:
        raise BadTopic(f"{asked.id} is not behind the last id, {id_text(last)}", hint="leave it out")
    return wanted


async def _publish(place: Place, asked: TopicPublishAsks) -> Done:
    id = await place.in_thread(_published, place, asked)
    await tell_waiting(place, read_name(asked.name))
    return Done(did=f"published {id} to {asked.name}", count=1, id=id)


def _published(place: Place, asked: TopicPublishAsks) -> str:
    name = read_name(asked.name)
    place.check("topics", "write", name)
    flat = _flat_of(place, asked)
    topics = engine_of(place)
    topic = topics.get_or_make(name)
    try:
        with topic.lock:
            id, position = topic.add(flat, _check_id(asked, topic))
    except InputError:
        topics.delete_unused(name)
        raise
    topic.settle(position)
    return id_text(id)


# -- trim --------------------------------------------------------------------------------------------------------------


class TopicTrimAsks(Changes, frozen=True, kw_only=True):
    """What to remove: give ``keep`` or ``before``."""

    name: Name
    keep: Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """Only the newest so many stay."""
    before: Moment = ""
    """What was published before this time, or comes before this id, goes."""


def _border(asked: TopicTrimAsks, topic: Topic) -> EntryId | None:
    """The first id that stays; None: it goes by number. Raises: BadOption, BadTopic."""
    if (asked.keep is None) == (not asked.before):
        raise BadOption("say what to remove", hint="give keep (the newest so many stay) or before (a time or an id)")
    return first_at(asked.before, topic.clock.now_ns()) if asked.before else None


async def _plan_trim(place: Place, asked: TopicTrimAsks) -> Plan:
    return await place.in_thread(_trim_plan, place, asked)


def _trim_plan(place: Place, asked: TopicTrimAsks) -> Plan:
    name, topic = find(place, asked.name, "write")
    border = _border(asked, topic)
    length, is_exact = topic.state.length, True
    if border is None:
        going = max(length - (asked.keep or 0), 0)
    else:
        going, is_exact = count(topic, ids.FIRST, EntryId(max(border - 1, 0)))
    shown = counted(going) if is_exact else f"more than {counted(going)}"
    details = [f"{counted(max(length - going, 0))} stay"] if is_exact else []
    if border is not None:
        details.append(f"the first that may stay has the id {id_text(border)} or a later one")
    return Plan(
        will=f"remove the oldest {shown} of {shown_name(name)}",
        details=[*details, "groups that have not read them do not get them any more"],
        warning="They cannot be brought back.",
        count=going if is_exact else None,
    )


async def _trim(place: Place, asked: TopicTrimAsks) -> Done:
    went = await place.in_thread(_trimmed, place, asked)
    return Done(did=f"removed {counted(went)} of {asked.name}", count=went)


def _trimmed(place: Place, asked: TopicTrimAsks) -> int:
    """In steps: others wait for no more than one."""
    _, topic = find(place, asked.name, "write")
    border, keep = _border(asked, topic), asked.keep or 0
    most = _AT_ONCE if border is not None or keep > _FEW else None
    total = newest = 0
    try:
        while True:
            went, position = topic.trim_length(keep, most) if border is None else topic.trim_to(border, most)
            total, newest = total + went, max(newest, position)
            if most is None or went < most:
                return total
    finally:
        topic.settle(newest)


# -- delete ------------------------------------------------------------------------------------------------------------


class TopicDeleteAsks(Changes, frozen=True, kw_only=True):
    """Which topic."""

    name: Name


async def _plan_delete(place: Place, asked: TopicDeleteAsks) -> Plan:
    return await place.in_thread(_delete_plan, place, asked)


def _delete_plan(place: Place, asked: TopicDeleteAsks) -> Plan:
    name = read_name(asked.name)
    place.check("topics", "admin", name)
    topics = engine_of(place)
    warning = "It cannot be brought back."
    try:
        topic = topics.get(name)
        groups = {} if topic is None else topic.groups.state.groups
    except (LogLocked, LogClosed):
        raise
    except StorageError as error:  # one that cannot be opened can be deleted all the same
        details = [f"it cannot be read: {error.message}"]
        return Plan(will=f"delete the damaged topic {shown_name(name)}", details=details, warning=warning)
    if topic is None:
        raise no_topic(asked.name)
    size, _ = size_of(topics, name)
    with topic.lock:
        length = topic.state.length
        waiting = sum(len(group.pending) for group in groups.values())
        details = [f"{counted(length)}, {show_bytes(size)}"]
        details += [f"{counted(len(groups), 'group')}, {counted(waiting)} of them pending"] if groups else []
    will = f"delete the topic {shown_name(name)} with everything in it"
    return Plan(will=will, details=details, warning=warning, count=length)


async def _delete(place: Place, asked: TopicDeleteAsks) -> Done:
    name = read_name(asked.name)
    place.check("topics", "admin", name)
    if not await place.in_thread(engine_of(place).delete, name):
        raise no_topic(asked.name)
    await tell_waiting(place, name, is_gone=True)
    return Done(did=f"deleted the topic {asked.name}")


PUBLISH: Final = Operation(
    name="topics.publish",
    method="POST",
    path="/topics/publish",
    summary="Publish a message to a topic",
    right=("topics", "write"),
    asks=TopicPublishAsks,
    gives=Done,
    do=_publish,
    plan=_plan_publish,
    target=lambda asked: asked.name,
    errors=("bad_name", "bad_topic", *OF_CHANGING),
    hidden=("body", "fields"),
)
TRIM: Final = Operation(
    name="topics.trim",
    method="POST",
    path="/topics/trim",
    summary="Remove the oldest messages of a topic",
    right=("topics", "write"),
    asks=TopicTrimAsks,
    gives=Done,
    do=_trim,
    plan=_plan_trim,
    target=lambda asked: asked.name,
    errors=("bad_name", "bad_topic", *OF_CHANGING),
)
DELETE: Final = Operation(
    name="topics.delete",
    method="POST",
    path="/topics/delete",
    summary="Delete a topic with its groups",
    right=("topics", "admin"),
    asks=TopicDeleteAsks,
    gives=Done,
    do=_delete,
    plan=_plan_delete,
    target=lambda asked: asked.name,
    errors=("bad_name", "log_locked", "log_closed", "disk_full", "disk_error", "log_failed"),
)
