"""One topic: how much it holds, from when to when, and why it is as large as it is."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from typing import Final

import msgspec

from lamina.engines.topics.topic import Topic
from lamina.engines.topics.why import WhyReport
from lamina.errors import NotReady, StorageError
from lamina.server.http.operations import Asks, Gives, Name, Operation, Place
from lamina.server.http.ops.topics_common import OF_OPENING, engine_of, find, id_text, shown_name, time_of
from lamina.server.http.ops.topics_list import size_of

_WAIT_S: Final = 0.2  # for files that are just being let go


class TopicAsks(Asks, frozen=True, kw_only=True):
    """Which topic."""

    name: Name


class TopicFacts(Gives, frozen=True, kw_only=True):
    """One topic."""

    name: str
    length: int
    """Messages that are there."""
    added: int
    """Messages that were ever published."""
    deleted: int
    """Messages that were deleted one by one, among those that are there: so many at least."""
    first_id: str | None = None
    first_ns: int | None = None
    """The time in that id; none: its publisher chose one that is no time."""
    last_id: str | None = None
    """The newest there ever was; it may be gone."""
    last_ns: int | None = None
    trimmed_to: str | None = None
    """Every message up to this one is gone; none: none ever went."""
    bytes: int
    files: int
    groups: int
    retention: str
    """What lets old files go; ``keep``: nothing does."""


async def _one(place: Place, asked: TopicAsks) -> TopicFacts:
    return await place.in_thread(_facts, place, asked.name)


def _facts(place: Place, shown: str) -> TopicFacts:
    name, topic = find(place, shown)
    size, files = size_of(engine_of(place), name)
    groups = topic.groups
    upkeep = place.inside.topics_upkeep
    with topic.lock:
        state, first = topic.state, topic.first_id()
        return TopicFacts(
            name=shown_name(name),
            length=state.length,
            added=state.added,
            deleted=state.deleted.ids,
            first_id=None if first is None else id_text(first),
            first_ns=time_of(first),
            last_id=id_text(state.last_id) if state.last_id else None,
            last_ns=time_of(state.last_id or None),
            trimmed_to=id_text(state.trimmed_to) if state.trimmed_to else None,
            bytes=size,
            files=files,
            groups=len(groups.state.groups),
            retention="keep" if upkeep is None else str(upkeep.retentions.of(name)),
        )


# -- why ---------------------------------------------------------------------------------------------------------------


class TopicLimit(msgspec.Struct, frozen=True, kw_only=True):
    """What one limit alone would let go, if no group held anything."""

    limit: str
    files: int
    bytes: int


class TopicHolder(msgspec.Struct, frozen=True, kw_only=True):
    """A group that needs messages of the oldest file."""

    group: str
    holds: bool
    """False: nobody of it was seen for so long that it does not count."""
    pending: int
    unread: int | None
    oldest_needed: str
    consumers: int
    idle_s: int
    advice: str


class TopicLogConsumer(msgspec.Struct, frozen=True, kw_only=True):
    """One that reads the log from outside, and has yet to read records of the oldest file."""

    consumer: str
    position: str | None
    expires: str | None
    advice: str


class TopicWhy(Gives, frozen=True, kw_only=True):
    """Why a topic is as large as it is."""

    answer: str
    """All of it in one sentence."""
    retention: str
    bytes: int
    files: int
    oldest_written: str | None
    """When the oldest file was begun."""
    limits: list[TopicLimit]
    goes_files: int
    """What goes at the next look."""
    goes_bytes: int
    holders: list[TopicHolder]
    log_consumers: list[TopicLogConsumer]
    dead_files: int
    """Files that are written anew at the next look, without what is dead in them."""
    dead_bytes: int
    """What that gives back, about."""
    past_files: int
    """Files that stay, or stay as they are, for the recent past."""
    past_bytes: int


async def _why(place: Place, asked: TopicAsks) -> TopicWhy:
    return await place.in_thread(_told, place, asked.name)


def _told(place: Place, shown: str) -> TopicWhy:
    name, topic = find(place, shown)
    report = _report(place, name, topic)
    return msgspec.convert(asdict(report), TopicWhy)


def _report(place: Place, name: bytes, topic: Topic) -> WhyReport:
    upkeep = place.is_there(place.inside.topics_upkeep)
    if not topic.at_work.acquire(timeout=_WAIT_S):
        raise NotReady("files of this topic are just being looked after", hint="ask again in a moment")
    try:
        return upkeep.why(name, topic)
    finally:
        topic.at_work.release()


async def why_or_none(place: Place, asked: TopicAsks) -> TopicWhy | None:
    """None: that cannot be told just now, for its files are being looked after or a file just went."""
    with suppress(NotReady, StorageError):
        return await _why(place, asked)
    return None


ONE: Final = Operation(
    name="topics.one",
    method="GET",
    path="/topics/one",
    summary="One topic: how much it holds, from when to when",
    right=("topics", "read"),
    asks=TopicAsks,
    gives=TopicFacts,
    do=_one,
    errors=("bad_name", *OF_OPENING),
)
WHY: Final = Operation(
    name="topics.why",
    method="GET",
    path="/topics/why",
    summary="Why a topic is as large as it is: what its limits would let go, and who holds it",
    right=("topics", "read"),
    asks=TopicAsks,
    gives=TopicWhy,
    do=_why,
    errors=("bad_name", *OF_OPENING),
)
