"""What the HTTP door shows: health for everybody, and all else for those who may see it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamina.errors import LaminaError
from lamina.server.http import health
from lamina.server.http.access import Access, Visit
from lamina.server.http.asking import Refused, status_of
from lamina.server.life import Life
from lamina.server.security.users import EVERYBODY

logger = logging.getLogger("lamina.server")

OPEN_TO_ALL = frozenset({"/healthz", "/readyz", "/login"})
"""Who watches over processes has no token; who is to log in has none yet."""
_STATIC = "/static/"  # open, too: what a page looks like is no secret

_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        (
            b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
            b"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        ),
    ),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
]


class Site(NamedTuple):
    """What there is beside health."""

    routes: Sequence[BaseRoute] = ()
    access: Access | None = None
    """Who may see it; None: everybody."""


def build(life: Life, site: Site) -> Starlette:
    """The application."""
    return Starlette(
        routes=[*health.routes(life), *site.routes],
        middleware=[Middleware(_Guard, access=site.access)],
        exception_handlers={
            HTTPException: _refused,
            Refused: _turned_away,
            LaminaError: _told,
            Exception: _broken,
        },
    )


class _Guard:
    """Finds out who visits, lets in who may come in, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, access: Access | None) -> None:
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        app = self._app
        if self._access is not None and self._access.is_https:
            scope["scheme"] = "https"  # where TLS ends in front of the door: cookies are for TLS only
        # Before a route is looked for: who may not come in does not learn what is there.
        try:
            visit = await self._access.arrive(scope) if self._access is not None else Visit(EVERYBODY)
        except Refused as refused:
            app, visit = await answer(scope, refused.status, refused.as_dict()), None
        else:
            if visit is None and not _is_open(scope["path"]):
                app = _log_in_first(scope)
        scope["visit"] = visit

        is_begun = False

        async def with_headers(message: Message) -> None:
            nonlocal is_begun
            is_begun = True
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in given)]
                if self._access is not None and message["status"] >= 400:
                    self._access.refusals.answered(message["status"])
            await send(message)

        try:
            await app(scope, receive, with_headers)
        except ClientDisconnect:
            return  # there is nobody to tell
        except Exception:
            if is_begun:
                raise
            # Here, and not behind all else: the answer has the same headers as any other, and it is told once.
            logger.exception("the HTTP door: %s %r failed", scope["method"], scope["path"][:200])
            told = await _mistake(scope)
            await told(scope, receive, with_headers)


def _is_open(path: str) -> bool:
    return path in OPEN_TO_ALL or path.startswith(_STATIC)


def _log_in_first(scope: Scope) -> ASGIApp:
    """A person is led to the page where one logs in, a program is told what it needs."""
    if scope["method"] == "GET" and wants_page(scope):
        back = quote(scope["path"] + ("?" + scope["query_string"].decode("latin-1") if scope["query_string"] else ""))
        return RedirectResponse(f"/login?back={back}", 303)
    hint = "send Authorization: Bearer TOKEN"
    return JSONResponse(_error("unauthorized", "this needs a token", hint), 401, {"www-authenticate": "Bearer"})


def wants_page(scope: Scope) -> bool:
    """Whether a browser asks, for a page of the console."""
    if scope["path"].startswith(("/api/", "/metrics", "/healthz", "/readyz", "/live/")):
        return False
    return any(name == b"accept" and b"text/html" in value for name, value in scope["headers"])


async def answer(
    scope: Scope, status: int, error: Mapping[str, object], headers: Mapping[str, str] | None = None
) -> Response:
    """An error, as a page or as JSON."""
    if wants_page(scope):
        return await asyncio.to_thread(_page, scope, status, error)
    return JSONResponse({"error": dict(error)}, status, dict(headers or {}))


def _page(scope: Scope, status: int, error: Mapping[str, object]) -> Response:
    from lamina.server.http.console.page import error_page

    return error_page(scope, status, error)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
    return await answer(request.scope, error.status_code, _error(code, error.detail)["error"], error.headers)


async def _turned_away(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return await answer(request.scope, error.status, error.as_dict())


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, LaminaError)
    status = status_of(error)
    return await answer(request.scope, status, error.as_dict(), {"retry-after": "1"} if status == 503 else None)


async def _broken(request: Request, error: Exception) -> Response:
    return await _mistake(request.scope)


async def _mistake(scope: Scope) -> Response:
    """Of ours: what it was is in the log of the server, not in the answer."""
    return await answer(scope, 500, _error("error", "the server made a mistake; its log says which")["error"])


def _error(code: str, message: str, hint: str = "") -> dict[str, dict[str, object]]:
    return {"error": {"code": code, "message": message, "hint": hint}}
