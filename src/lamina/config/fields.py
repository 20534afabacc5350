"""Settings that are fields of ``LogOptions``, ``QueueOptions`` and ``StoreOptions``: read from there, not typed again.

Name, default and kind come from the field, its meaning from the text below it, its limits from making one of the
options with it.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
from typing import Any, Final

from lamina.config import kinds
from lamina.config.kinds import Kind
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption
from lamina.log.options import LogOptions

Options = type[LogOptions] | type[QueueOptions] | type[StoreOptions]

_MEANINGS: Final[dict[str, dict[str, str]]] = {}  # by class, then by field


def names(options: Options) -> list[str]:
    return [field.name for field in dataclasses.fields(options)]


def default(options: Options, name: str) -> object:
    """As it would be written."""
    value: object = getattr(options(), name)
    return value if value is None or isinstance(value, int | float | str) else str(value)


def _meanings(options: Options) -> dict[str, str]:
    if options.__name__ in _MEANINGS:
        return _MEANINGS[options.__name__]
    found: dict[str, str] = {}
    (made,) = ast.parse(inspect.getsource(options)).body
    assert isinstance(made, ast.ClassDef)
    for field, below in zip(made.body, made.body[1:], strict=False):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            found[field.target.id] = " ".join(str(below.value.value).split())  # type: ignore[attr-defined]
    _MEANINGS[options.__name__] = found
    return found


def meaning(options: Options, name: str) -> str:
    """What is written below the field, in one line."""
    return _meanings(options)[name].replace("``", "")


def kind(options: Options, name: str) -> Kind:
    """Of the values it takes; their limits are those of the options."""
    plain = _plain_kind(options, name)

    def read(value: object, is_text: bool) -> object:
        found = plain.read(value, is_text)
        try:
            options(**{name: found})  # type: ignore[arg-type]
        except BadOption as problem:
            if problem.facts.get("option") == name:
                raise BadOption("cannot be", hint=problem.hint) from None
            raise
        return found

    return dataclasses.replace(plain, read=read)


def _plain_kind(options: Options, name: str) -> Kind:
    of = next(field.type for field in dataclasses.fields(options) if field.name == name)
    if of == "Sync":
        return kinds.SYNC
    if of == "str":
        return kinds.text()
    if name.endswith("_bytes") or name in ("max_body", "max_payload"):
        return kinds.size()
    if name.endswith("_s"):
        return kinds.seconds(is_whole=of == "int", may_be_never="None" in str(of))
    return kinds.count() if of == "int" else kinds.NUMBER


def make(options: Options, values: dict[str, object]) -> Any:
    """The options, all together. Raises: BadOption where two do not fit together."""
    return options(**values)  # type: ignore[arg-type]
