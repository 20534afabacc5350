"""Pages of queues: the deepest ones, and what waits in one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from lamina.server.http.console.page import Page
from lamina.server.http.operations import Place
from lamina.server.http.ops import queues, queues_looking

_USUAL_PORT: Final = 6380


def port_of(place: Place) -> int:
    """Where clients of queues and of the store connect to, for the commands that an empty page shows."""
    config = place.inside.config
    at = None if config is None else config().address("resp")
    return (at.port if at is not None else 0) or _USUAL_PORT


async def _list(place: Place, asked: queues_looking.ListAsks) -> Mapping[str, object]:
    return {"found": await queues.LIST.do(place, asked), "port": port_of(place)}


async def _one(place: Place, asked: queues_looking.BrowseAsks) -> Mapping[str, object]:
    facts = await queues.SHOW.do(place, queues_looking.OneAsks(handle=asked.handle))
    return {"queue": facts, "found": await queues.BROWSE.do(place, asked)}


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/queues",
        section="queues",
        template="queues/list.html",
        asks=queues_looking.ListAsks,
        shows=_list,
        right=queues_looking.RIGHT,
    ),
    Page(
        path="/queues/one",
        section="queues",
        template="queues/one.html",
        asks=queues_looking.BrowseAsks,
        shows=_one,
        right=queues_looking.RIGHT,
    ),
)
