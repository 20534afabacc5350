"""Pages of topics: all of them, one with its groups, its messages, one message, a live tail, and one group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.routing import BaseRoute, Route

from lamina.server.http.console.page import Page
from lamina.server.http.console.pages.topics_tail import TailAsks, tail
from lamina.server.http.operations import Limit, Place
from lamina.server.http.ops import topics_entries, topics_groups, topics_list, topics_one
from lamina.server.http.ops.topics_common import engine_of
from lamina.server.http.ops.topics_groups import TopicPendingAsks
from lamina.server.http.serving import Serving

_READ: Final = ("topics", "read")
_ROWS: Final = 50  # of a page, unless one asks for more


class EntriesAsks(topics_entries.TopicEntriesAsks, frozen=True, kw_only=True):
    """As the operation, with fewer on a page."""

    limit: Limit = _ROWS


class PendingAsks(TopicPendingAsks, frozen=True, kw_only=True):
    """As the operation, with fewer on a page."""

    limit: Limit = _ROWS


async def _list(place: Place, asked: topics_list.TopicListAsks) -> Mapping[str, object]:
    return {"found": await topics_list.LIST.do(place, asked)}


async def _one(place: Place, asked: topics_groups.TopicGroupsAsks) -> Mapping[str, object]:
    one = topics_one.TopicAsks(name=asked.name)
    return {
        "topic": await topics_one.ONE.do(place, one),
        "why": await topics_one.why_or_none(place, one),
        "groups": await topics_groups.GROUPS.do(place, asked),
        **_rights(place, asked.name),
    }


async def _entries(place: Place, asked: EntriesAsks) -> Mapping[str, object]:
    return {"found": await topics_entries.ENTRIES.do(place, asked), "still": True}


async def _entry(place: Place, asked: topics_entries.TopicEntryAsks) -> Mapping[str, object]:
    return {"found": await topics_entries.ENTRY.do(place, asked), "still": True}


async def _tail(place: Place, asked: TailAsks) -> Mapping[str, object]:
    from lamina.server.http.names import read_name

    place.check("topics", "read", read_name(asked.name))
    engine_of(place)
    return {"still": True, **_rights(place, asked.name)}


async def _group(place: Place, asked: PendingAsks) -> Mapping[str, object]:
    group = topics_groups.TopicGroupAsks(name=asked.name, group=asked.group)
    return {
        "one": await topics_groups.GROUP.do(place, group),
        "pending": await topics_groups.PENDING.do(place, asked),
        **_rights(place, asked.name),
    }


def _rights(place: Place, shown: str) -> Mapping[str, object]:
    """Buttons that would be refused are not offered."""
    from lamina.server.http.names import read_name

    name = read_name(shown)
    return {"may_write": place.may("topics", "write", name), "may_admin": place.may("topics", "admin", name)}


def routes(serving: Serving) -> list[BaseRoute]:
    """What is no page: the stream of a live tail."""
    return [Route("/live/tail", tail(serving), methods=["GET"])]


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/topics",
        section="topics",
        template="topics/list.html",
        asks=topics_list.TopicListAsks,
        shows=_list,
        right=_READ,
    ),
    Page(
        path="/topics/one",
        section="topics",
        template="topics/one.html",
        asks=topics_groups.TopicGroupsAsks,
        shows=_one,
        right=_READ,
    ),
    Page(
        path="/topics/entries",
        section="topics",
        template="topics/entries.html",
        asks=EntriesAsks,
        shows=_entries,
        right=_READ,
    ),
    Page(
        path="/topics/entry",
        section="topics",
        template="topics/entry.html",
        asks=topics_entries.TopicEntryAsks,
        shows=_entry,
        right=_READ,
    ),
    Page(path="/topics/tail", section="topics", template="topics/tail.html", asks=TailAsks, shows=_tail, right=_READ),
    Page(
        path="/topics/group",
        section="topics",
        template="topics/group.html",
        asks=PendingAsks,
        shows=_group,
        right=_READ,
    ),
)
