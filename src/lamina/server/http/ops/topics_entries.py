"""Messages of a topic between two moments, page by page, each cut to a preview; and one message whole."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from lamina.engines.topics import ids
from lamina.engines.topics.entries import decode
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import parse_id
from lamina.engines.topics.reading import gap_behind
from lamina.engines.topics.topic import Topic
from lamina.errors import NotThere
from lamina.server.http.names import Shown, shown
from lamina.server.http.operations import After, Asks, Gives, Limit, Name, Operation, Place
from lamina.server.http.ops.topics_common import (
    OF_OPENING,
    Moment,
    find,
    first_at,
    id_text,
    last_at,
    shown_name,
    time_of,
)
from lamina.server.http.ops.topics_reading import pieces
from lamina.units import KIB, MIB

_MOST_FIELDS: Final = 20  # of a message in a list
_MOST_NAME: Final = 256  # bytes of the name of a field
_PAGE_BYTES: Final = 8 * MIB  # that are read for a page
_SHOWN_BYTES: Final = MIB  # of a page, about
_WHOLE_FIELDS: Final = 2000
_WHOLE_BYTES: Final = 4 * MIB


class TopicField(msgspec.Struct, frozen=True, kw_only=True):
    """One field of a message. Several may have the same name."""

    name: str
    """As names are shown; of a long one the beginning."""
    value: Shown


class TopicEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One message."""

    id: str
    time_ns: int | None
    """The time in its id; none: its publisher chose one that is no time."""
    size: int
    """Bytes of its record."""
    fields: list[TopicField]
    more_fields: int = 0
    """Fields that are not shown."""


class TopicEntriesAsks(Asks, frozen=True, kw_only=True):
    """Which messages."""

    name: Name
    since: Moment = ""
    """From this time or id on; empty: from the oldest."""
    until: Moment = ""
    """Up to this time or id; empty: up to the newest."""
    order: Literal["", "oldest", "newest"] = ""
    """Which come first; empty: the oldest if ``since`` is given, else the newest."""
    after: After = ""
    """``next`` of the page before."""
    limit: Limit = 100
    preview: Annotated[int, msgspec.Meta(ge=1, le=65536)] = 256
    """Bytes of each value that are shown."""


class TopicEntryPage(Gives, frozen=True, kw_only=True):
    """Messages of a window."""

    entries: list[TopicEntry]
    order: str
    """``oldest`` or ``newest`` first."""
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""
    gap: str = ""
    """Messages of the window were removed: says which. Empty: none were."""
    since_id: str | None = None
    """The first id that was meant."""
    until_id: str | None = None
    """The last one."""


async def _entries(place: Place, asked: TopicEntriesAsks) -> TopicEntryPage:
    return await place.in_thread(_page, place, asked)


def _page(place: Place, asked: TopicEntriesAsks) -> TopicEntryPage:
    _, topic = find(place, asked.name)
    now = topic.clock.now_ns()
    start = first_at(asked.since, now) if asked.since else ids.FIRST
    end = last_at(asked.until, now) if asked.until else ids.LAST
    newest_first = asked.order == "newest" or (not asked.order and not asked.since)
    low, high = start, end
    if asked.after:
        seen = parse_id(asked.after)
        low, high = (low, min(high, EntryId(seen - 1))) if newest_first else (max(low, EntryId(seen + 1)), high)
    found, is_more = _read(topic, low, high, newest_first, asked)
    return TopicEntryPage(
        entries=found,
        order="newest" if newest_first else "oldest",
        next=found[-1].id if found and is_more else "",
        gap=_gap(topic, low, high) if asked.since or asked.after else "",
        since_id=id_text(start) if asked.since else None,
        until_id=id_text(end) if asked.until else None,
    )


def _read(
    topic: Topic, low: EntryId, high: EntryId, newest_first: bool, asked: TopicEntriesAsks
) -> tuple[list[TopicEntry], bool]:
    """Entries of the page, and whether there are more."""
    found: list[TopicEntry] = []
    position = read = told = 0
    for records, at in pieces(topic, low, high, newest_first=newest_first, most=asked.limit + 1):
        position = max(position, at)
        for record in records:
            if len(found) == asked.limit or (found and (read > _PAGE_BYTES or told > _SHOWN_BYTES)):
                topic.settle(position)
                return found, True
            entry = preview_of(record, asked.preview)
            found.append(entry)
            read += len(record)
            told += sum(min(field.value.size, asked.preview) + 100 for field in entry.fields)
    topic.settle(position)
    return found, False


def preview_of(record: bytes, most: int, most_fields: int = _MOST_FIELDS) -> TopicEntry:
    """An entry with each value cut."""
    id, flat = decode(record)
    pairs = list(zip(flat[: 2 * most_fields : 2], flat[1 : 2 * most_fields : 2], strict=True))
    return TopicEntry(
        id=id_text(id),
        time_ns=time_of(id),
        size=len(record),
        fields=[TopicField(name=_field_name(name), value=shown(value, most)) for name, value in pairs],
        more_fields=len(flat) // 2 - len(pairs),
    )


def _field_name(name: bytes) -> str:
    return shown_name(name) if len(name) <= _MOST_NAME else f"{shown_name(name[:_MOST_NAME])}…"


def _gap(topic: Topic, low: EntryId, high: EntryId) -> str:
    """What is gone of a window, in a sentence."""
    gap = gap_behind(topic, EntryId(max(low - 1, 0)))
    if gap is None or low > high:
        return ""
    return f"messages of this window are gone: {gap.message}"


# -- one whole ---------------------------------------------------------------------------------------------------------


class TopicEntryAsks(Asks, frozen=True, kw_only=True):
    """Which message."""

    name: Name
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    most: Annotated[int, msgspec.Meta(ge=1, le=_WHOLE_BYTES)] = 256 * KIB
    """Bytes of each value that are shown."""


class TopicEntryFound(Gives, frozen=True, kw_only=True):
    """One message, and its neighbours."""

    name: str
    entry: TopicEntry
    before: str = ""
    """The id of the message before it; empty: it is the oldest."""
    behind: str = ""
    """The id of the one behind it; empty: it is the newest."""


async def _entry(place: Place, asked: TopicEntryAsks) -> TopicEntryFound:
    return await place.in_thread(_whole, place, asked)


def _whole(place: Place, asked: TopicEntryAsks) -> TopicEntryFound:
    name, topic = find(place, asked.name)
    id = parse_id(asked.id)
    records, position = topic.looked_at(id, id, 1)
    if not records:
        gone = id <= topic.state.trimmed_to
        hint = "it was trimmed, or let go by retention" if gone else "it was deleted, or there never was one"
        raise NotThere(f"there is no message {id_text(id)} in {asked.name[:200]}", hint=hint)
    topic.settle(position)
    id_, flat = decode(records[0])
    fields, left = [], _WHOLE_BYTES
    for field, value in zip(flat[: 2 * _WHOLE_FIELDS : 2], flat[1 : 2 * _WHOLE_FIELDS : 2], strict=True):
        fields.append(TopicField(name=_field_name(field), value=shown(value, max(min(asked.most, left), 1))))
        left -= min(len(value), asked.most)
    entry = TopicEntry(
        id=id_text(id_),
        time_ns=time_of(id_),
        size=len(records[0]),
        fields=fields,
        more_fields=len(flat) // 2 - len(fields),
    )
    before = _id_of(topic, ids.FIRST, EntryId(id - 1), newest_first=True) if id else ""
    behind = _id_of(topic, EntryId(id + 1), ids.LAST) if id < ids.LAST else ""
    return TopicEntryFound(name=shown_name(name), entry=entry, before=before, behind=behind)


def _id_of(topic: Topic, start: EntryId, end: EntryId, *, newest_first: bool = False) -> str:
    records, _ = topic.looked_at(start, end, 1, newest_first=newest_first)
    return id_text(decode(records[0])[0]) if records else ""


ENTRIES: Final = Operation(
    name="topics.entries",
    method="GET",
    path="/topics/entries",
    summary="Messages of a topic between two times or ids",
    right=("topics", "read"),
    asks=TopicEntriesAsks,
    gives=TopicEntryPage,
    do=_entries,
    errors=("bad_name", "bad_topic", *OF_OPENING),
)
ENTRY: Final = Operation(
    name="topics.entry",
    method="GET",
    path="/topics/entry",
    summary="One message of a topic",
    right=("topics", "read"),
    asks=TopicEntryAsks,
    gives=TopicEntryFound,
    do=_entry,
    errors=("bad_name", "bad_topic", *OF_OPENING),
)
