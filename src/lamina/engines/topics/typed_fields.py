"""Objects as fields of a message, and back: one field for each attribute, by the type that the class says it has.

    text, datetime, date, time, timedelta, UUID, Decimal, enums and literals of text     as text, without quotes
    int, float, enums of numbers                                                         as digits, nan, inf
    bytes                                                                                as they are
    None, where the attribute is one of these or None                                    no field at all
    bool, and everything else                                                            as JSON

So any Redis client and Spark read them. What is written reads back as what it was, or is refused: never something else.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, Generic, NotRequired, Required, TypeVar
from uuid import UUID

import msgspec
from msgspec import inspect

from lamina.errors import BadBody

T = TypeVar("T")

_NULL: Final = b"null"
_NO_FIELD: Final = {b"": b""}
"""A message has at least one field: this one says that the body has none."""
_TEXTS: Final[dict[type, type]] = {
    inspect.StrType: str,
    inspect.DateTimeType: datetime,
    inspect.DateType: date,
    inspect.TimeType: time,
    inspect.TimeDeltaType: timedelta,
    inspect.UUIDType: UUID,
    inspect.DecimalType: Decimal,
}
_MISSING: Final = object()


class _Wrong(Exception):
    """A value that cannot be; the text says why."""


_PROBLEMS: Final = (_Wrong, TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError)


class Body(Generic[T]):
    """How objects of one class are written and read."""

    def __init__(self, kind: type[T]) -> None:
        """Raises: TypeError if it is no msgspec.Struct, dataclass or TypedDict, or has an attribute of an odd type."""
        self.kind = kind
        self.name = getattr(kind, "__name__", str(kind))
        self._class: type = typing.get_origin(kind) or kind
        self._fields = list(_fields_of(kind, self._class))
        self._is_dict = typing.is_typeddict(self._class)
        config = getattr(kind, "__struct_config__", None)
        self._known = {field.key for field in self._fields} | {b""} if config and config.forbid_unknown_fields else None

    def write(self, body: T, topic: str) -> dict[bytes, bytes]:
        """Fields of a message. Raises: TypeError for an object of another class; BadBody."""
        if type(body) is not (dict if self._is_dict else self._class):
            raise TypeError(f"the topic {topic!r} takes {self.name}, not {type(body).__name__}")
        values: Mapping[str, Any] = body if self._is_dict else _Attributes(body)  # type: ignore[assignment]
        if self._is_dict and (unknown := values.keys() - {field.name for field in self._fields}):
            raise BadBody(topic, None, min(unknown), f"{self.name} has no such key")
        written: dict[bytes, bytes] = {}
        for field in self._fields:
            value = values.get(field.name, _MISSING)
            if value is msgspec.UNSET or (value is _MISSING and not field.is_required):
                continue
            try:
                if value is _MISSING:
                    raise _Wrong("it is missing")
                raw = field.write(value)
            except _PROBLEMS as problem:
                raise BadBody(topic, None, field.name, str(problem)) from problem
            if raw is not None:
                written[field.key] = raw
        return written or dict(_NO_FIELD)

    def read(self, fields: Mapping[bytes, bytes], topic: str, id: str) -> T:
        """Raises: BadBody, which names the field."""
        values: dict[str, Any] = {}
        name = ""
        try:
            if self._known is not None and (unknown := fields.keys() - self._known):
                name = min(unknown).decode(errors="replace")
                raise _Wrong(f"{self.name} has no such field")
            for field in self._fields:
                name, raw = field.name, fields.get(field.key)
                value = field.missing() if raw is None else field.read(raw)
                if value is not _MISSING:
                    values[name] = value
            name = ""
            return self._made(values)
        except Exception as problem:  # what the class itself raises for such values, too
            raise BadBody(topic, id, name, str(problem) or type(problem).__name__) from problem

    def _made(self, values: dict[str, Any]) -> T:
        if self._is_dict:
            return values  # type: ignore[return-value]
        given = {field.name: values[field.name] for field in self._fields if field.is_given and field.name in values}
        made = self.kind(**given)
        for field in self._fields:
            if not field.is_given and field.name in values:
                object.__setattr__(made, field.name, values[field.name])
        return made


class _Attributes(Mapping[str, Any]):
    def __init__(self, body: object) -> None:
        self._body = body

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self._body, name)
        except AttributeError:
            raise KeyError(name) from None

    def __iter__(self) -> Any:
        raise NotImplementedError

    def __len__(self) -> int:
        raise NotImplementedError


@dataclasses.dataclass(slots=True)
class _Field:
    """One attribute."""

    name: str
    key: bytes
    write: Callable[[Any], bytes | None]
    """None: no field."""
    read: Callable[[bytes], Any]
    missing: Callable[[], Any]
    """What it is when there is no such field."""
    is_required: bool = True
    is_given: bool = True
    """It is an argument of the class."""


def _fields_of(kind: type, origin: type) -> Iterable[_Field]:
    if isinstance(origin, type) and issubclass(origin, msgspec.Struct):
        for one in msgspec.structs.fields(kind):
            yield _field(one.name, one.encode_name, one.type, one.default, one.default_factory, msgspec.NODEFAULT)
    elif typing.is_typeddict(origin):
        for name, type_ in typing.get_type_hints(origin, include_extras=True).items():
            is_required = name in origin.__required_keys__  # type: ignore[attr-defined]
            if (said := typing.get_origin(type_)) in (Required, NotRequired):
                (type_,) = typing.get_args(type_)
                is_required = said is Required
            default = _MISSING if is_required else msgspec.UNSET
            made = _field(name, name, type_, default, _MISSING, _MISSING)
            if not is_required:
                made.missing = lambda: _MISSING
                made.is_required = False
            yield made
    elif dataclasses.is_dataclass(origin):
        hints = typing.get_type_hints(origin, include_extras=True)
        for each in dataclasses.fields(origin):
            made = _field(
                each.name, each.name, hints[each.name], each.default, each.default_factory, dataclasses.MISSING
            )
            made.is_given = each.init
            if not each.init:
                made.missing = lambda: _MISSING
            yield made
    else:
        raise TypeError(f"{kind!r} cannot be the kind of messages: a msgspec.Struct, a dataclass or a TypedDict can")


def _field(name: str, key: str, type_: Any, default: Any, factory: Any, nothing: Any) -> _Field:
    """``nothing``: what stands for no default."""
    info = inspect.type_info(type_)
    parts = info.types if isinstance(info, inspect.UnionType) else (info,)
    plain = [part for part in parts if not isinstance(part, inspect.NoneType)]
    may_be_none = len(plain) < len(parts)
    has_default = default is not nothing or factory is not nothing
    none_is_nothing = may_be_none and (default is None or not has_default)
    if any(isinstance(part, inspect.CustomType) for part in plain):
        raise TypeError(f"{name!r} cannot be in a message: it is of the type {type_!r}")

    write, read = _json(type_)
    if len(plain) == 1 and (pair := _plain(plain[0], type_)) is not None:
        is_text = not isinstance(plain[0], inspect.IntType | inspect.FloatType)
        if not may_be_none:
            write, read = pair
        elif none_is_nothing:
            write, read = _or_nothing(pair[0]), (pair[1] if is_text else _or_null(pair[1]))
        elif not is_text:
            write, read = _or_nothing(pair[0], _NULL), _or_null(pair[1])

    def missing() -> Any:
        if default is not nothing:
            return default
        if factory is not nothing:
            return factory()
        if may_be_none:
            return None
        raise _Wrong("it is missing")

    return _Field(name, key.encode(), write, read, missing)


_Pair = tuple[Callable[[Any], bytes | None], Callable[[bytes], Any]]


def _or_nothing(write: Callable[[Any], bytes | None], nothing: bytes | None = None) -> Callable[[Any], bytes | None]:
    return lambda value: nothing if value is None else write(value)


def _or_null(read: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    return lambda raw: None if raw == _NULL else read(raw)


# -- values ------------------------------------------------------------------------------------------------------------


def _plain(info: inspect.Type, type_: Any) -> _Pair | None:
    """How a value is written without JSON; None: with it."""
    if isinstance(info, inspect.BytesType):
        return _write_bytes, lambda raw: msgspec.convert(raw, type_)
    if isinstance(info, inspect.IntType):
        return _write_int, lambda raw: msgspec.convert(_text(raw), type_, strict=False)
    if isinstance(info, inspect.FloatType):
        return _write_float, lambda raw: msgspec.convert(_text(raw), type_, strict=False)
    wanted = _TEXTS.get(type(info))
    if wanted is not None:
        return _text_writer(wanted), _text_reader(type_)
    if isinstance(info, inspect.LiteralType) and all(type(value) is str for value in info.values):
        return _text_writer(str), _text_reader(type_)
    if isinstance(info, inspect.EnumType) and all(type(one.value) is str for one in info.cls):
        return _enum_writer(info.cls), _text_reader(type_)
    if isinstance(info, inspect.EnumType) and all(type(one.value) is int for one in info.cls):
        return _enum_writer(info.cls), lambda raw: msgspec.convert(_text(raw), type_, strict=False)
    return None


def _text(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise _Wrong("it is no UTF-8") from None


def _write_bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise _Wrong(f"bytes are needed, not {type(value).__name__}")
    return bytes(value)


def _write_int(value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int):
        raise _Wrong(f"an int is needed, not {type(value).__name__}")
    return int.__repr__(value).encode()


def _write_float(value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Wrong(f"a float is needed, not {type(value).__name__}")
    return repr(float(value)).encode()


def _text_writer(wanted: type) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        is_wrong = not isinstance(value, wanted) or (wanted is date and isinstance(value, datetime))
        text = None if is_wrong else msgspec.to_builtins(value)
        if not isinstance(text, str):
            raise _Wrong(f"a {wanted.__name__} is needed, not {type(value).__name__}")
        if isinstance(value, datetime | time) and (value.utcoffset() or timedelta()) % timedelta(minutes=1):
            raise _Wrong("a zone that is not whole minutes off cannot be written")
        try:
            return text.encode()
        except UnicodeEncodeError:
            raise _Wrong("it is no text that UTF-8 can hold") from None

    return write


def _text_reader(type_: Any) -> Callable[[bytes], Any]:
    def read(raw: bytes) -> Any:
        text = _text(raw)
        try:
            return msgspec.convert(text, type_)
        except msgspec.ValidationError:
            return msgspec.convert(text, type_, strict=False)

    return read


def _enum_writer(wanted: type[Enum]) -> Callable[[Any], bytes]:
    def write(value: Any) -> bytes:
        if not isinstance(value, wanted):
            raise _Wrong(f"one of {wanted.__name__} is needed, not {type(value).__name__}")
        return str(value.value).encode()

    return write


def _json(type_: Any) -> _Pair:
    encoder = msgspec.json.Encoder()
    strict, lax = msgspec.json.Decoder(type_), msgspec.json.Decoder(type_, strict=False)

    def write(value: Any) -> bytes:
        raw = encoder.encode(value)
        if _NULL in raw and _has_no_number(msgspec.to_builtins(value)):
            raise _Wrong("nan and inf cannot be in JSON, and so only directly in a field of type float")
        strict.decode(raw)  # what no reader could read is not published
        return raw

    def read(raw: bytes) -> Any:
        try:
            return strict.decode(raw)
        except msgspec.DecodeError:
            return lax.decode(raw)

    return write, read


def _has_no_number(value: Any) -> bool:
    """There is a nan or inf in it, which JSON would have as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(_has_no_number(each) for each in value.values())
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_no_number, value))
