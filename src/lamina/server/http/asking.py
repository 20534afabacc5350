"""A request as what an operation asks for, under limits; and errors as answers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.requests import Request

from lamina.errors import (
    BadOption,
    DuplicateJob,
    Gap,
    GroupExists,
    InputError,
    JobNotFound,
    LaminaError,
    NoGroup,
    NotAllowed,
    NotThere,
    QueueRefused,
    TooOld,
)

MOST_BODY: Final = 2 << 20
"""Bytes of the body of a request."""
MOST_FIELDS: Final = 100
"""Of a form."""

A = TypeVar("A", bound=msgspec.Struct)


class Refused(Exception):
    """A request that no operation was found for, or that may not come."""

    def __init__(self, status: int, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint = status, code, message, hint

    def as_dict(self) -> dict[str, object]:
        return {"code": self.code, "message": self.message, "hint": self.hint}


def read(kind: type[A], given: Mapping[str, object]) -> A:
    """Values, texts among them, as ``kind``. Raises: BadOption, which says which one cannot be."""
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise BadOption(_plain(str(error)), hint="GET /api/v1/openapi.json says what can be asked") from None


def _plain(message: str) -> str:
    what, _, where = message.partition(" - at `$")
    return f"{where.rstrip('`').lstrip('.') or 'the request'}: {what[:1].lower()}{what[1:]}"


def query(request: Request) -> dict[str, object]:
    """The query and the parts of the path. Raises: BadOption for one that is there twice."""
    return _joined(request.query_params.multi_items(), request)


async def form(request: Request) -> dict[str, object]:
    """A form that a browser sent. Raises: Refused; BadOption."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise Refused(415, "wrong_type", "this takes a form", "send application/x-www-form-urlencoded")
    try:
        pairs = await asyncio.to_thread(_pairs, await body(request))
    except ValueError:
        raise BadOption("the form cannot be read") from None
    return _joined(pairs, request)


def _pairs(data: bytes) -> list[tuple[str, str]]:
    return parse_qsl(data.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS)


async def json_body(request: Request) -> dict[str, object]:
    """A JSON object and the parts of the path; no body at all is an empty one. Raises: Refused; BadOption."""
    data = await body(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and (data or kind):
        raise Refused(415, "wrong_type", "this takes JSON", "send Content-Type: application/json")
    if not data:
        return dict(request.path_params)
    try:
        found = await asyncio.to_thread(msgspec.json.decode, data)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise BadOption(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadOption("the body is no JSON object", hint='send something like {"dry_run": true}')
    return {**found, **request.path_params}


async def body(request: Request) -> bytes:
    """Raises: Refused if it is too large."""
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > MOST_BODY:
            raise Refused(413, "too_large", f"a body of more than {MOST_BODY} bytes", "send less")
    return bytes(data)


def _joined(pairs: Iterable[tuple[str, str]], request: Request) -> dict[str, object]:
    given: dict[str, object] = {}
    for name, value in pairs:
        if name in given:
            raise BadOption(f"{name[:80]}: it is there twice", hint="give it once")
        given[name] = value
    return {**given, **request.path_params}


_STATUS: Final[tuple[tuple[type[LaminaError], int], ...]] = (
    (NotAllowed, 403),
    (NotThere, 404),
    (JobNotFound, 404),
    (NoGroup, 404),
    (QueueRefused, 404),
    (DuplicateJob, 409),
    (GroupExists, 409),
    (Gap, 410),
    (TooOld, 410),
    (InputError, 400),
)


def status_of(error: LaminaError) -> int:
    """Which status tells the same."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            return status
    if error.retryable:
        return 503
    return 409 if error.code.startswith(("job", "queue", "not_leased", "duplicate", "store")) else 500
