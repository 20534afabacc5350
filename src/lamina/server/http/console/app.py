"""All routes of the console and the API, of one server."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from lamina.server.http import api, metrics_route
from lamina.server.http.access import Access
from lamina.server.http.app import Site
from lamina.server.http.console import acting, entering
from lamina.server.http.console.live import Live
from lamina.server.http.console.page import routes as page_routes
from lamina.server.http.console.pages import all_pages, more_routes
from lamina.server.http.ops import all_operations
from lamina.server.http.serving import Serving
from lamina.server.inside import Inside

_STATIC = Path(__file__).parent / "static"


def site(inside: Inside, *, is_loopback: bool) -> Site:
    """All there is, and who may see it. ``is_loopback``: other machines do not reach it."""
    serving = Serving(inside, Access(inside.gate, is_loopback=is_loopback))
    return Site(routes(serving), serving.access)


def routes(serving: Serving) -> list[BaseRoute]:
    """In the order in which they are looked at."""
    operations, pages = all_operations(), all_pages()
    live = Live(serving)
    serving.live = live
    return [
        *metrics_route.routes(serving),
        *api.routes(serving, operations.values()),
        *entering.routes(serving),
        acting.route(serving, operations),
        Mount("/static", StaticFiles(directory=_STATIC)),
        Route("/favicon.ico", _no_icon),
        *more_routes(serving),
        *live.routes(pages),
        *page_routes(serving, pages),
    ]


async def _no_icon(request: Request) -> Response:
    return Response(status_code=204)
