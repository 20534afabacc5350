"""A live tail: messages of a topic as server-sent events, as they come.

Four looks a second, each with so many messages at most (topics_tail.py of the operations): a topic of any rate costs
the same. A browser that does not read is not read for either, and gets the newest when it reads again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from lamina.errors import LaminaError
from lamina.server.http import asking
from lamina.server.http.access import Visit
from lamina.server.http.console.live import event
from lamina.server.http.names import read_name
from lamina.server.http.operations import Asks, Name
from lamina.server.http.ops.topics_common import Moment, engine_of, first_at
from lamina.server.http.ops.topics_tail import Cursor, Follower
from lamina.server.http.serving import Serving

_EVERY_S: Final = 0.25
_SILENT_S: Final = 5.0  # a sign of life, so that one who went away is noticed
_TROUBLE_S: Final = 2.0  # until it is tried again


class TailAsks(Asks, frozen=True, kw_only=True):
    """What is followed."""

    name: Name
    since: Moment = ""
    """Begin with what came from this time or id on; empty: with the newest few."""
    after: Annotated[str, msgspec.Meta(max_length=64)] = ""
    """Go on here: the id of the last event."""


def tail(serving: Serving) -> Callable[[Request], Awaitable[Response]]:
    """The stream. Raises, when it is asked for: NotAllowed, NotReady; BadOption; Refused if too many look already."""

    async def answer(request: Request) -> Response:
        visit: Visit = request.scope["visit"]
        asked = asking.read(TailAsks, asking.query(request))
        place = serving.place(visit)
        name = read_name(asked.name)
        place.check("topics", "read", name)
        topics = engine_of(place)
        after = request.headers.get("last-event-id") or asked.after
        since = first_at(asked.since, topics.clock.now_ns()) if asked.since else None
        follower = Follower(topics, name, since, Cursor.parse(after) if after else None)
        return serving.live.stream(_events(serving, request, name, follower))

    return answer


async def _events(serving: Serving, request: Request, name: bytes, follower: Follower) -> AsyncIterator[str]:
    yield "retry: 2000\n\n"
    topics, said_at = serving.inside.topics, time.monotonic()
    while True:
        if (gone := _why_gone(serving, request, name)) is not None:
            yield event("gone", gone)
            return
        if serving.inside.topics is not topics:
            yield event("problem", "the server is stopping")
            return
        try:
            rows = await asyncio.to_thread(_rows, follower)
        except LaminaError as error:
            yield event("problem", str(error))
            await asyncio.sleep(_TROUBLE_S)
            continue
        now = time.monotonic()
        if rows is not None:
            said_at = now
            yield rows
        elif now - said_at > _SILENT_S:
            said_at = now
            yield ": still here\n\n"
        await asyncio.sleep(_EVERY_S)


def _rows(follower: Follower) -> str | None:
    """The event that tells what is new; None: nothing is."""
    batch = follower.look()
    return None if batch is None else f"id: {batch.cursor}\n{event('rows', msgspec.json.encode(batch).decode())}"


def _why_gone(serving: Serving, request: Request, name: bytes) -> str | None:
    """Who may not see it any more is sent away: logged out, taken off, or with other rights. None: may stay."""
    visit = serving.access.visit(request.scope)
    if visit is None:
        return "log in again"
    return None if visit.user.may("topics", "read", name) else "you may not read this topic any more"
