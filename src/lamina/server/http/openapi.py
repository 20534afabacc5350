"""The OpenAPI document, made from the operations: their names, what they ask for and give, and which errors."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from lamina import errors
from lamina._version import VERSION
from lamina.server.http.asking import status_of
from lamina.server.http.operations import ANY, USUAL, AnyOperation, Plan

_REFERENCE: Final = "#/components/schemas/{name}"
_OF_HTTP: Final = {
    "unauthorized": 401,
    "forged": 403,
    "not_found": 404,
    "wrong_method": 405,
    "too_large": 413,
    "wrong_type": 415,
    "wrong_host": 421,
    "too_many_logins": 429,
    "error": 500,
}
"""Errors that are not of lamina, and their status."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """What went wrong. Some have more fields, which docs/reference/errors.md names."""

    code: str
    """Stable: the same word as in Python, in logs and on other doors."""
    message: str
    hint: str = ""


class Refusal(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is an error."""

    error: Problem


def document(operations: Iterable[AnyOperation]) -> dict[str, Any]:
    """The whole of it."""
    operations = tuple(operations)
    kinds = [Refusal, Plan, *(kind for each in operations for kind in (each.asks, each.gives))]
    schemas, components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
    of_kind = dict(zip(kinds, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for each in operations:
        path = re.sub(r":\w+}", "}", each.path)  # {name:path} is how a route says that it may have slashes
        paths.setdefault(path, {})[each.method.lower()] = _described(each, of_kind, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lamina",
            "version": VERSION,
            "description": "Everything the console shows and does. What changes something takes dry_run.",
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _described(operation: AnyOperation, of_kind: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    in_path = set(re.findall(r"{(\w+)(?::\w+)?}", operation.path))
    schema = components[of_kind[operation.asks]["$ref"].rpartition("/")[2]]  # two may have one name
    needed = set(schema.get("required", ()))
    parameters = [
        {
            "name": name,
            "in": "path" if name in in_path else "query",
            "required": name in in_path or name in needed,
            "schema": field,
        }
        for name, field in schema.get("properties", {}).items()
        if name in in_path or not operation.changes
    ]
    engine, level = operation.right
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs the right {engine}:{level}."
        if engine != ANY
        else f"Needs {level} of the part it is about.",
        "tags": [operation.name.partition(".")[0]],
        "parameters": parameters,
        "responses": {"200": _answer("done", _given(operation, of_kind)), **_refusals(operation, of_kind)},
    }
    if operation.changes:
        own = {name: field for name, field in schema.get("properties", {}).items() if name not in in_path}
        asked: dict[str, Any] = {"type": "object", "properties": own, "additionalProperties": False}
        if needed - in_path:
            asked["required"] = sorted(needed - in_path)
        is_needed = bool(needed - in_path)
        shown["requestBody"] = {"required": is_needed, "content": {"application/json": {"schema": asked}}}
    return shown


def _given(operation: AnyOperation, of_kind: dict[Any, Any]) -> dict[str, Any]:
    given: dict[str, Any] = of_kind[operation.gives]
    return {"anyOf": [given, of_kind[Plan]]} if operation.changes else given


def _refusals(operation: AnyOperation, of_kind: dict[Any, Any]) -> dict[str, Any]:
    by_status: dict[int, list[str]] = {}
    of_http = ("forged", "too_large", "wrong_type") if operation.changes else ()
    for code in dict.fromkeys((*USUAL, "wrong_host", "too_many_logins", *of_http, *operation.errors)):
        by_status.setdefault(_status(code), []).append(code)
    return {str(status): _answer(", ".join(codes), of_kind[Refusal]) for status, codes in sorted(by_status.items())}


def _status(code: str) -> int:
    if code in _OF_HTTP:
        return _OF_HTTP[code]
    kind = _KINDS[code]
    return status_of(kind.__new__(kind))  # no constructor is asked: some want a place, or a size


def _answer(description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


_KINDS: Final[dict[str, Any]] = {
    kind.code: kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LaminaError)
}
