"""Pages: a path, who may see it, what it shows, and the template that says how."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode

import jinja2
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import Scope

from lamina._version import VERSION
from lamina.server.http import asking
from lamina.server.http.access import COOKIE, Visit
from lamina.server.http.operations import ANY, Asks, Place, may_some
from lamina.server.http.serving import Serving
from lamina.server.life import Life
from lamina.server.security.users import User
from lamina.units import show_bytes, show_duration

_HERE: Final = Path(__file__).parent
_rendering: Final = threading.Lock()

Shows = Callable[[Place, Any], Awaitable[Mapping[str, object]]]
"""Given the place and what is asked, the values for the template."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """One page."""

    path: str
    """Such as ``/jobs/{queue}``; its parts are fields of ``asks``."""
    section: str
    """Which entry of the menu it belongs to."""
    template: str
    """It extends ``base.html``, and what changes by itself is in its block ``live``."""
    asks: type[Asks]
    shows: Shows
    right: tuple[str, str]
    """Engine and level that it needs, for some name at least."""


class Menu:
    """What is on the left. A page of a part that the user may not see is not offered."""

    ENTRIES: Final[tuple[tuple[str, str, str, str], ...]] = (
        ("overview", "/", "Overview", "admin"),
        ("log", "/log", "Log", ANY),
        ("jobs", "/jobs", "Jobs", "jobs"),
        ("topics", "/topics", "Topics", "topics"),
        ("queues", "/queues", "Queues", "queues"),
        ("store", "/store", "Store", "store"),
        ("pipeline", "/pipeline", "Pipeline", "admin"),
        ("recovery", "/recovery", "Recovery", "admin"),
        ("settings", "/settings", "Settings", "admin"),
        ("audit", "/audit", "Audit", "admin"),
    )

    @classmethod
    def of(cls, visit: Visit | None) -> list[tuple[str, str, str]]:
        """Section, path and title of each."""
        if visit is None:
            return []
        # Messages are somebody's: who looks at queues has to look after them.
        return [
            one[:3] for one in cls.ENTRIES if may_some(visit.user, one[3], "admin" if one[3] == "queues" else "read")
        ]


def routes(serving: Serving, pages: Iterable[Page]) -> list[Route]:
    """Of each page."""
    return [Route(page.path, _endpoint(serving, page), methods=["GET"]) for page in pages]


def _endpoint(serving: Serving, page: Page) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        visit: Visit = request.scope["visit"]
        if page.path == "/" and not may_some(visit.user, *page.right) and (entries := Menu.of(visit)):
            return RedirectResponse(entries[0][1], 303)  # whoever has just logged in sees something they may see
        if visit.session is None and not visit.by_token:  # a token is sent each time, and no form is believed with it
            visit = Visit(visit.user, serving.access.begin(visit.user), visit.by_token, visit.address)
        shown = await values_of(serving, page, visit, asking.query(request))
        shown["at"] = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        shown["told"] = _told(request)
        made = await serving.place(visit).in_thread(html, page.template, shown)
        return with_session(made, visit, request)

    return answer


async def values_of(serving: Serving, page: Page, visit: Visit, given: Mapping[str, object]) -> dict[str, object]:
    """Everything its template needs. Raises: NotAllowed; what it shows does."""
    place = serving.place(visit)
    place.check_some(*page.right)
    asked = asking.read(page.asks, given)
    shown: dict[str, object] = dict(await page.shows(place, asked))
    return {"page": page, "visit": visit, "place": place, "asked": asked, "life": serving.inside.life} | shown


def _told(request: Request) -> str:
    """What was done, by the action that led here (acting.py)."""
    return request.cookies.get("lamina_told", "")


def with_session(response: Response, visit: Visit | None, request: Request) -> Response:
    """Have the browser come back as the same."""
    is_https = request.url.scheme == "https"
    if visit is not None and visit.session is not None and request.cookies.get(COOKIE) != visit.session.id:
        response.set_cookie(COOKIE, visit.session.id, httponly=True, samesite="strict", secure=is_https)
    if "lamina_told" in request.cookies:
        response.delete_cookie("lamina_told", httponly=True, samesite="strict", secure=is_https)
    return response


def render(template: str, values: Mapping[str, object], block: str = "") -> str:
    """A template, or one block of it. It takes long: not on a loop.

    Threads: any, one at a time. More at once would not be done sooner, and take the processor from the loops.
    """
    with _rendering:
        made = environment().get_template(template)
        values = {"menu": Menu.of(values.get("visit")), **values}  # type: ignore[arg-type]
        if block:
            context = made.new_context(values)
            whole = made.root_render_func(context)
            next(whole, None)  # what a template imports at its head is there for its blocks only once it was begun
            return "".join(made.blocks[block](context))
        return made.render(values)


def html(template: str, values: Mapping[str, object], status: int = 200) -> Response:
    """A page to answer with. As ``render``: not on a loop."""
    return HTMLResponse(render(template, values), status)


def error_page(scope: Scope, status: int, error: Mapping[str, object]) -> Response:
    """A page that says what went wrong. As ``render``: not on a loop."""
    return html("error.html", {"status": status, "error": error, "visit": scope.get("visit")}, status)


def state_of(life: Life, user: User) -> str:
    """How the server is, which every page says beside what it is about. As ``render``: not on a loop."""
    with _rendering:
        made = environment().get_template("state.html").module
        return f"{made.phase(life)}{made.problems(life, user)}"  # type: ignore[attr-defined]


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Where templates come from, and what they can use. Every value is escaped."""
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        bytes=lambda value: "–" if value is None else show_bytes(value),
        duration=lambda value: "–" if value is None else show_duration(value),
        time=show_moment,
        count=lambda value: "–" if value is None else f"{value:,}".replace(",", "\u202f"),
        part=lambda value: quote(value, safe=""),
        told=unquote,
    )
    made.globals.update(VERSION=VERSION, link=link)
    return made


def link(path: str, **query: object) -> str:
    """A path with a query; values that are None or empty are left out."""
    kept = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(kept)}" if kept else path


def show_moment(time_ns: int | None) -> str:
    """``2026-11-15 06:17:00.123 UTC``."""
    if time_ns is None:
        return "–"
    moment = datetime.fromtimestamp(time_ns // 10**9, UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}.{time_ns // 10**6 % 1000:03d} UTC"
