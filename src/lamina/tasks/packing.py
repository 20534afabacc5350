"""The call of a function as JSON, and back: checked against the annotations on both ends. No pickle.

    {"task": "send_mail", "arguments": {"to": "you", "copies": 2}}

Arguments are kept by name. One that was not given is not in it: the default is that of the function that runs. What a
worker would refuse is refused before it is sent, as the same decoder reads it on both ends.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from types import GenericAlias
from typing import Any, Final, Union

import msgspec
import msgspec.inspect

from lamina.errors import BadJob, BadOption

_STARRED: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_UNREADABLE: Final = (msgspec.MsgspecError, ValueError, RecursionError)
"""Of bytes that are no JSON: text that is no UTF-8 is a ValueError, what is nested too deep a RecursionError."""
_UNWRITABLE: Final = (TypeError, ValueError, msgspec.MsgspecError, RecursionError)
"""Of values that JSON cannot hold, such as a list that is in itself."""


class Call(msgspec.Struct, forbid_unknown_fields=True):
    """The payload of a job that is a task."""

    task: str
    arguments: msgspec.Raw


def read_call(payload: bytes) -> Call:
    """Raises: BadJob."""
    try:
        return _CALLS.decode(payload)
    except _UNREADABLE as error:
        raise BadJob(f"the payload is no call of a task: {error}", hint="who put it there?") from None


_CALLS: Final = msgspec.json.Decoder(Call)
_ENCODER: Final = msgspec.json.Encoder()


class Form:
    """How one function is called, and what it returns. Its annotations are looked at when they are first needed."""

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.name = name
        self._function = function
        self._signature = inspect.signature(function)

    def pack(self, positional: Sequence[Any], named: Mapping[str, Any]) -> bytes:
        """The payload. Raises: BadJob for arguments that the function does not take."""
        try:
            given = self._signature.bind(*positional, **named).arguments
        except TypeError as error:
            raise BadJob(f"{self.name}: {error}") from None
        try:
            arguments = _encode(given)
        except _UNWRITABLE as error:
            raise BadJob(f"{self.name}: an argument cannot be sent: {error}", hint="what JSON can hold can") from None
        self.unpack(arguments)
        return _ENCODER.encode(Call(self.name, msgspec.Raw(arguments)))

    def unpack(self, arguments: bytes | msgspec.Raw) -> inspect.BoundArguments:
        """Raises: BadJob for arguments that do not fit the annotations."""
        decoder = self._arguments  # BadOption
        try:
            found = decoder.decode(arguments)
        except Exception as error:  # a class that is made of it may raise anything
            raise BadJob(f"{self.name}: {error}", hint="an argument is not what the function says it takes") from None
        given: dict[str, Any] = {}
        for parameter in self._signature.parameters.values():
            value = getattr(found, parameter.name)
            if value is not msgspec.UNSET:
                given[parameter.name] = tuple(value) if parameter.kind is inspect.Parameter.VAR_POSITIONAL else value
        return inspect.BoundArguments(self._signature, given)

    def pack_result(self, value: object) -> bytes:
        """Raises: BadJob for a result that JSON cannot hold, or that is not what the function says it returns."""
        try:
            result = _encode(value)
        except _UNWRITABLE as error:
            raise BadJob(f"{self.name}: the result cannot be kept: {error}", hint="what JSON can hold can") from None
        self.unpack_result(result)
        return result

    def unpack_result(self, result: bytes) -> Any:
        """Raises: BadJob."""
        decoder = self._result  # BadOption
        try:
            return decoder.decode(result)
        except Exception as error:  # as of arguments
            raise BadJob(f"{self.name}: the result is not what the function says: {error}") from None

    def check(self) -> None:
        """Raises: BadOption for annotations that cannot be."""
        _ = self._arguments, self._result

    @cached_property
    def _hints(self) -> dict[str, Any]:
        try:
            return typing.get_type_hints(self._function, include_extras=True)
        except Exception as error:  # whatever is in an annotation is run
            hint = "it has to be importable when the task is first used, not only for type checkers"
            raise BadOption(f"{self.name}: an annotation cannot be read: {error}", hint=hint) from None

    @cached_property
    def _arguments(self) -> msgspec.json.Decoder[Any]:
        fields: list[Any] = []
        for name, parameter in self._signature.parameters.items():
            hint = self._hints.get(name, Any)
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                hint = GenericAlias(list, (hint,))
            elif parameter.kind is inspect.Parameter.VAR_KEYWORD:
                hint = GenericAlias(dict, (str, hint))
            if parameter.kind in _STARRED or parameter.default is not inspect.Parameter.empty:
                fields.append((name, Union[hint, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007
            else:
                fields.append((name, hint))
        return self._decoder(lambda: msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True))

    @cached_property
    def _result(self) -> msgspec.json.Decoder[Any]:
        return self._decoder(lambda: self._hints.get("return", Any))

    def _decoder(self, kind: Callable[[], Any]) -> msgspec.json.Decoder[Any]:
        try:
            made = kind()
            if (foreign := _foreign(msgspec.inspect.type_info(made), set())) is not None:
                raise TypeError(f"{foreign!r} cannot be sent")
            return msgspec.json.Decoder(made)
        except (TypeError, ValueError) as error:
            hint = "plain types, dataclasses, TypedDict and msgspec.Struct can be sent"
            raise BadOption(f"{self.name}: it cannot be a task: {error}", hint=hint) from None


def _encode(value: object) -> bytes:
    """Raises: one of ``_UNWRITABLE``."""
    raw = _ENCODER.encode(value)
    if b"null" in raw and _has_no_number(msgspec.to_builtins(value)):
        raise ValueError("nan and inf cannot be in JSON")  # they would be null
    return raw


def _has_no_number(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_no_number(each) for each in value.values())
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_no_number, value))


def _foreign(kind: Any, seen: set[int]) -> Any:
    """A class in it that JSON knows nothing of, or None."""
    if isinstance(kind, msgspec.inspect.CustomType):
        return kind.cls
    if id(kind) in seen or not isinstance(kind, msgspec.Struct | tuple):
        return None
    seen.add(id(kind))
    parts = kind if isinstance(kind, tuple) else [getattr(kind, name) for name in kind.__struct_fields__]
    return next((found for part in parts if (found := _foreign(part, seen)) is not None), None)
