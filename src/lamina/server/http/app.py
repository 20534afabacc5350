"""What the HTTP door shows: health for everybody, and all else for those who may see it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lamina.errors import LaminaError
from lamina.server.http import health
from lamina.server.life import Life

Admit = Callable[[str], bool]
"""Given the token of ``Authorization: Bearer TOKEN`` (empty: there is none), may this request be served?"""

OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})
"""Who watches over processes has no token."""

_HEADERS = [
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
]


def build(life: Life, routes: Sequence[BaseRoute] = (), admit: Admit | None = None) -> Starlette:
    """The application. ``routes`` are more of them, such as an API; ``admit`` None: everybody may see them."""
    return Starlette(
        routes=[*health.routes(life), *routes],
        middleware=[Middleware(_Guard, admit=admit)],
        exception_handlers={HTTPException: _refused, LaminaError: _told, Exception: _broken},
    )


class _Guard:
    """Lets in who may come in, and adds the headers of every answer."""

    def __init__(self, app: ASGIApp, admit: Admit | None) -> None:
        self._app, self._admit = app, admit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        app = self._app
        # Before a route is looked for: who may not come in does not learn what is there.
        if self._admit is not None and scope["path"] not in OPEN_TO_ALL and not self._admit(_token(scope)):
            app = JSONResponse(
                _error("unauthorized", "this needs a token", "send Authorization: Bearer TOKEN"),
                401,
                {"www-authenticate": "Bearer"},
            )

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in _HEADERS if pair[0] not in given)]
            await send(message)

        await app(scope, receive, with_headers)


def _token(scope: Scope) -> str:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, token = value.decode("latin-1").partition(" ")
            return token.strip() if kind.lower() == "bearer" else ""
    return ""


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "wrong_method"}.get(error.status_code, "refused")
    return JSONResponse(_error(code, error.detail), error.status_code, dict(error.headers or {}))


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, LaminaError)
    return JSONResponse({"error": error.as_dict()}, 503 if error.retryable else 400)


async def _broken(request: Request, error: Exception) -> Response:
    """A mistake of ours: what it was is in the log of the server, not in the answer."""
    return JSONResponse(_error("error", "the server made a mistake; its log says which"), 500)


def _error(code: str, message: str, hint: str = "") -> dict[str, object]:
    return {"error": {"code": code, "message": message, "hint": hint}}
