"""Live pages: while somebody looks, the part of a page that changes is rendered anew and sent, if it did change.

Who looks at the same page with the same rights shares one rendering. A browser that went away is noticed when the next
one is sent to it, and one that does not read is not waited for: it gets the newest when it reads again.

So many are live at a time, of all users and of each one: who opens tab after tab keeps nobody else out. A page that is
not live is one that stands still, and works as ever.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lamina.errors import LaminaError
from lamina.server.http import asking
from lamina.server.http.access import Visit
from lamina.server.http.asking import Refused
from lamina.server.http.console.page import Page, render, state_of, values_of
from lamina.server.http.serving import Serving
from lamina.server.security.users import EVERYBODY, User

EVERY_S: Final = 2.0
MOST_LOOKING: Final = 32
"""Live pages at the same time; the next one is told to come back later, and is a page that stands still."""
MOST_OF_ONE: Final = 12
"""The same of one user. Where nobody has to log in, or all have one password, it cannot be told who is who."""
_SILENT_S: Final = 15.0  # a sign of life, so that one who went away is noticed
_STEP_S: Final = 0.25  # how soon it is noticed that the server stops
_KEPT: Final = 64  # renderings that are shared


class Live:
    """Of one door."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._looking: Counter[str] = Counter()  # by the name of the user
        self._rendered: dict[tuple[object, ...], tuple[float, asyncio.Task[tuple[str, str]]]] = {}

    def routes(self, pages: Iterable[Page]) -> list[Route]:
        """``/live`` in front of the path of each."""
        return [Route("/live" + page.path, self._endpoint(page), methods=["GET"]) for page in pages]

    def _endpoint(self, page: Page):  # type: ignore[no-untyped-def]
        async def answer(request: Request) -> Response:
            given = asking.query(request)
            visit: Visit = request.scope["visit"]
            self._serving.place(visit).check_some(*page.right)
            return self.stream(self._events(page, request.scope, given))

        return answer

    def stream(self, events: AsyncIterator[str]) -> Response:
        """``events`` for one browser. Refused, when it is about to begin, if there are too many already."""
        return _Following(events, self._looks)

    @contextmanager
    def _looks(self, user: User) -> Iterator[None]:
        """While this user looks at one more. Raises: Refused."""
        name = user.name
        if self._looking.total() >= MOST_LOOKING:
            raise Refused(503, "too_many", f"{MOST_LOOKING} pages are live already", "close some, or try again later")
        if self._looking[name] >= MOST_OF_ONE and name != EVERYBODY.name:
            hint = "close some of your tabs, or load this one again to see what is new"
            raise Refused(503, "too_many", f"{MOST_OF_ONE} pages of {name} are live already", hint)
        self._looking[name] += 1
        try:
            yield
        finally:
            self._looking[name] -= 1
            if not self._looking[name]:
                del self._looking[name]

    async def _events(self, page: Page, scope: Scope, given: Mapping[str, object]) -> AsyncIterator[str]:
        last, state, said_at = "", "", time.monotonic()
        yield "retry: 3000\n\n"
        while await self._another():
            visit = self._serving.access.visit(scope)  # as of now: logged out, taken off, or with other rights
            if visit is None:
                yield event("gone", "log in again")
                return
            try:
                shown, found = await self._shared(page, visit, given)
            except LaminaError as error:
                yield event("problem", str(error))
                continue
            if shown != last:
                last, said_at = shown, time.monotonic()
                yield event("live", shown)
            if found != state:
                state = found
                yield event("state", state)
            elif time.monotonic() - said_at > _SILENT_S:
                said_at = time.monotonic()
                yield ": still here\n\n"

    async def _another(self) -> bool:
        """Wait until it is time again. False when the server stops: who looks must not hold that up."""
        end = time.monotonic() + EVERY_S
        while time.monotonic() < end:
            if self._serving.inside.life.phase in ("stopping", "failed"):
                return False
            await asyncio.sleep(_STEP_S)
        return True

    async def _shared(self, page: Page, visit: Visit, given: Mapping[str, object]) -> tuple[str, str]:
        """What changes on a page, and how the server is."""
        key = (page.path, visit.user, tuple(sorted(given.items(), key=str)))
        now = time.monotonic()
        at, task = self._rendered.get(key, (-EVERY_S, None))
        if task is None or now - at >= EVERY_S * 0.9:
            if len(self._rendered) >= _KEPT:
                self._rendered.clear()
            # Forms of a live part would have the token of another session: so there are none in it.
            task = asyncio.create_task(self._render(page, Visit(visit.user, None, True, visit.address), given))
            self._rendered[key] = now, task
        return await asyncio.shield(task)

    async def _render(self, page: Page, visit: Visit, given: Mapping[str, object]) -> tuple[str, str]:
        values, life = await values_of(self._serving, page, visit, given), self._serving.inside.life
        return await self._serving.place(visit).in_thread(
            lambda: (render(page.template, values, "live"), state_of(life, visit.user))
        )


class _Following(StreamingResponse):
    """Events for one browser, inside ``looks``: until it is gone, also if that is before the first one."""

    def __init__(self, events: AsyncIterator[str], looks: Callable[[User], AbstractContextManager[None]]) -> None:
        super().__init__(events, media_type="text/event-stream")
        self._looks = looks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        visit: Visit = scope["visit"]
        with self._looks(visit.user):
            await super().__call__(scope, receive, send)


def event(name: str, data: str) -> str:
    """As a browser's EventSource reads it."""
    # Only these end a line there: the others are a part of what is said.
    lines = "".join(f"data: {line}\n" for line in data.replace("\r\n", "\n").replace("\r", "\n").split("\n"))
    return f"event: {name}\n{lines}\n"
