"""Pending messages of a group: acknowledged in place of a consumer, or given to another one.

Durability: what they say is as safe as the sync policy promises when it is said.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec

from lamina.engines.topics.group_claims import ClaimOptions
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import parse_id
from lamina.errors import BadOption
from lamina.server.http.names import read_name
from lamina.server.http.operations import Done, Name, Operation, Place, Plan
from lamina.server.http.ops.topics_common import OF_CHANGING, counted, find
from lamina.server.http.ops.topics_group_changes import TopicGroupChanges, settle_groups, shown_group
from lamina.server.http.ops.topics_groups import known_group

_MOST_IDS: Final = 1000
_BETWEEN: Final = re.compile(r"[\s,]+")


class TopicAcknowledgeAsks(TopicGroupChanges, frozen=True, kw_only=True):
    """Which pending messages."""

    ids: Annotated[str, msgspec.Meta(min_length=1, max_length=65536)]
    """Their ids, with blanks or commas between them; up to 1000."""


def _ids(text: str) -> list[EntryId]:
    """Raises: BadOption, BadTopic."""
    words = [word for word in _BETWEEN.split(text) if word]
    if not 0 < len(words) <= _MOST_IDS:
        raise BadOption(f"1 to {_MOST_IDS} ids are needed, not {len(words)}", hint="such as 1700000000123-0")
    return list(dict.fromkeys(parse_id(word) for word in words))


async def _plan_acknowledge(place: Place, asked: TopicAcknowledgeAsks) -> Plan:
    there, others = await place.in_thread(_of_these, place, asked)
    details = [f"{counted(others)} of these {'is' if others == 1 else 'are'} not pending: left alone"] if others else []
    warning = "A consumer that is still at work on one is not told." if there else ""
    will = f"acknowledge {counted(there)} for the group {shown_group(asked)}"
    return Plan(will=will, details=details, warning=warning, count=there)


def _of_these(place: Place, asked: TopicAcknowledgeAsks) -> tuple[int, int]:
    """How many are pending, and how many are not."""
    _, topic = find(place, asked.name, "write")
    wanted = _ids(asked.ids)
    with topic.lock:
        pending = known_group(topic, read_name(asked.group)).pending
        there = sum(id in pending for id in wanted)
    return there, len(wanted) - there


async def _acknowledge(place: Place, asked: TopicAcknowledgeAsks) -> Done:
    done = await place.in_thread(_acknowledged, place, asked)
    return Done(did=f"acknowledged {counted(done)} for the group {shown_group(asked)}", count=done)


def _acknowledged(place: Place, asked: TopicAcknowledgeAsks) -> int:
    _, topic = find(place, asked.name, "write")
    name = read_name(asked.group)
    with topic.lock:
        known_group(topic, name)
        done, position = topic.groups.ack(name, _ids(asked.ids))
    settle_groups(topic, position)
    return done


class TopicClaimAsks(TopicAcknowledgeAsks, frozen=True, kw_only=True):
    """Which pending messages, and for whom."""

    consumer: Name
    """Who gets them; one of that name is made if need be."""
    idle_s: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.0
    """Only what was last delivered so many seconds ago or longer."""


async def _plan_claim(place: Place, asked: TopicClaimAsks) -> Plan:
    there, others = await place.in_thread(_claimable, place, asked)
    details = ["it gets them when it reads what is pending for it; whoever had them is not told"]
    if others:
        details.append(f"{counted(others)} of these {'is' if others == 1 else 'are'} not pending so long: left alone")
    will = f"give {counted(there)} of the group {shown_group(asked)} to the consumer {asked.consumer}"
    return Plan(will=will, details=details, count=there)


def _claimable(place: Place, asked: TopicClaimAsks) -> tuple[int, int]:
    _, topic = find(place, asked.name, "write")
    wanted = _ids(asked.ids)
    with topic.lock:
        group, now = known_group(topic, read_name(asked.group)), topic.groups.now_ms()
        known = [group.pending.get(id) for id in wanted if topic.state.has(id)]
        there = sum(one is not None and now - one.time >= asked.idle_s * 1000 for one in known)
    return there, len(wanted) - there


async def _claim(place: Place, asked: TopicClaimAsks) -> Done:
    done = await place.in_thread(_claimed, place, asked)
    return Done(did=f"gave {counted(done)} of the group {shown_group(asked)} to {asked.consumer}", count=done)


def _claimed(place: Place, asked: TopicClaimAsks) -> int:
    _, topic = find(place, asked.name, "write")
    name, wanted = read_name(asked.group), _ids(asked.ids)
    with topic.lock:
        known_group(topic, name)
        # Ids only: it is no delivery. That one comes when the consumer reads what is pending for it.
        options = ClaimOptions(min_idle=int(asked.idle_s * 1000), just_ids=True)
        shown = topic.groups.claim(name, read_name(asked.consumer), wanted, options)
    settle_groups(topic, shown.position)
    return len(shown.records)


ACKNOWLEDGE: Final = Operation(
    name="topics.acknowledge",
    method="POST",
    path="/topics/acknowledge",
    summary="Acknowledge messages that are pending for a group",
    right=("topics", "write"),
    asks=TopicAcknowledgeAsks,
    gives=Done,
    do=_acknowledge,
    plan=_plan_acknowledge,
    target=shown_group,
    errors=("bad_name", "bad_topic", "no_group", *OF_CHANGING),
)
CLAIM: Final = Operation(
    name="topics.claim",
    method="POST",
    path="/topics/claim",
    summary="Give pending messages of a group to another consumer",
    right=("topics", "write"),
    asks=TopicClaimAsks,
    gives=Done,
    do=_claim,
    plan=_plan_claim,
    target=shown_group,
    errors=("bad_name", "bad_topic", "no_group", *OF_CHANGING),
)
