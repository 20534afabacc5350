"""Logging in with a token, and out. A browser then has a session; the token itself is not kept in it."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lamina.server.http import asking
from lamina.server.http.access import COOKIE, Visit
from lamina.server.http.console.acting import local
from lamina.server.http.console.page import html, with_session
from lamina.server.http.serving import Serving


def routes(serving: Serving) -> list[Route]:
    """``/login`` and ``/logout``."""
    access = serving.access

    async def show(request: Request) -> Response:
        back = local(request.query_params.get("back", "/"))
        if request.scope["visit"] is not None:
            return RedirectResponse(back, 303)
        return await asyncio.to_thread(html, "login.html", {"visit": None, "back": back, "is_wrong": False})

    async def enter(request: Request) -> Response:
        access.check_origin(request.scope)
        fields = await asking.form(request)
        back, token = local(str(fields.get("back", "/"))), str(fields.get("token", ""))
        address = request.client.host if request.client is not None else ""
        user = await access.log_in(token.strip().encode(), address) if access.gate.is_needed else None
        if user is None:
            shown = {"visit": None, "back": back, "is_wrong": True}
            return await asyncio.to_thread(html, "login.html", shown, 401)
        visit = Visit(user, access.begin(user))
        return with_session(RedirectResponse(back, 303), visit, request)

    async def leave(request: Request) -> Response:
        visit: Visit = request.scope["visit"]
        access.check_origin(request.scope)
        access.check_form(visit, (await asking.form(request)).get("form_token"))
        if visit.session is not None:
            access.end(visit.session)
        response = RedirectResponse("/login", 303)
        response.delete_cookie(COOKIE, httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return response

    return [
        Route("/login", show, methods=["GET"]),
        Route("/login", enter, methods=["POST"]),
        Route("/logout", leave, methods=["POST"]),
    ]
