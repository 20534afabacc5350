"""What a button does: first a page says what is going to happen, and only what is confirmed there is done.

POST /act/jobs.redrive          the fields of the operation, and where to go back to: the page that says it
POST /act/jobs.redrive?sure=1   the same fields: it is done, and told on the page one came from
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from lamina.errors import InputError, NotThere
from lamina.server.http import asking
from lamina.server.http.access import Visit
from lamina.server.http.asking import status_of
from lamina.server.http.console.page import html, with_session
from lamina.server.http.operations import AnyOperation
from lamina.server.http.serving import Serving

_OWN: Final = ("form_token", "back")
_MOST_TOLD: Final = 500


def route(serving: Serving, operations: Mapping[str, AnyOperation]) -> Route:
    """For all that change something."""

    async def act(request: Request) -> Response:
        visit: Visit = request.scope["visit"]
        serving.access.check_origin(request.scope)
        fields = await asking.form(request)
        serving.access.check_form(visit, fields.pop("form_token", None))
        back = local(str(fields.pop("back", "/")))
        operation = operations.get(str(fields.pop("operation")))
        if operation is None or not operation.changes:
            raise NotThere("there is no such action", hint="go back to the page and try again")
        place = serving.place(visit)
        place.check_some(*operation.right)
        is_sure = "sure" in request.query_params
        given = {name: value for name, value in fields.items() if value != ""}
        try:
            asked = asking.read(operation.asks, {**given, "dry_run": not is_sure})
            found = await operation.carry_out(place, asked)
        except InputError as error:  # what was typed is not lost
            status = status_of(error)
            shown = {"status": status, "error": _for_people(error), "tried": fields, "operation": operation}
            page = await place.in_thread(html, "error.html", {**shown, "back": back, "visit": visit}, status)
            return with_session(page, visit, request)
        if is_sure:
            response: Response = RedirectResponse(back, 303)
            is_https = request.url.scheme == "https"
            told = _one_line(getattr(found, "did", "done"))
            response.set_cookie("lamina_told", told, 60, httponly=True, samesite="strict", secure=is_https)
            return response
        shown = {"plan": found, "operation": operation, "fields": fields, "back": back, "visit": visit, "at": back}
        return with_session(await place.in_thread(html, "confirm.html", shown), visit, request)

    return Route("/act/{operation}", act, methods=["POST"])


def _for_people(error: InputError) -> dict[str, object]:
    """Without what helps programs only."""
    told = error.as_dict()
    return {**told, "hint": ""} if "openapi" in str(told.get("hint", "")) else told


def local(back: str) -> str:
    """A path of this server, whatever was asked for."""
    is_ours = back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable()
    return back if is_ours else "/"


def _one_line(text: str) -> str:
    """What a cookie can hold."""
    from urllib.parse import quote

    return quote(" ".join(text.split())[:_MOST_TOLD], safe="")
