"""The JSON API: each operation as a route below /api/v1, and a document that describes them all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from lamina.server.http import asking, openapi
from lamina.server.http.access import Access, Visit
from lamina.server.http.operations import AnyOperation, Place
from lamina.server.http.serving import Serving

BASE: Final = "/api/v1"


def routes(serving: Serving, operations: Iterable[AnyOperation]) -> list[Route]:
    """Of all of them, and of the document."""
    operations = tuple(operations)
    document = msgspec.json.encode(openapi.document(operations))

    async def describe(request: Request) -> Response:
        return Response(document, media_type="application/json")

    made = [Route(f"{BASE}/openapi.json", describe, methods=["GET"])]
    for operation in operations:
        made.append(Route(BASE + operation.path, _endpoint(serving, operation), methods=[operation.method]))
    return made


def _endpoint(serving: Serving, operation: AnyOperation):  # type: ignore[no-untyped-def]
    async def answer(request: Request) -> Response:
        visit: Visit = request.scope["visit"]
        if operation.changes:
            if not visit.by_token:
                serving.access.check_origin(request.scope)
            given = await asking.json_body(request)
        else:
            given = asking.query(request)
        place = serving.place(visit)
        place.check_some(*operation.right)
        found = await operation.carry_out(place, asking.read(operation.asks, given))
        return Response(await place.in_thread(msgspec.json.encode, found), media_type="application/json")

    return answer


__all__ = ["BASE", "Access", "Place", "routes"]
