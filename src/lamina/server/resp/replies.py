"""Reply values to bytes, for both versions of the protocol.

| value | version 2 | version 3 |
|---|---|---|
| ``bytes`` | ``$3 abc`` | ``$3 abc`` |
| ``int`` | ``:7`` | ``:7`` |
| ``None`` | ``$-1`` | ``_`` |
| ``NULL_ARRAY`` | ``*-1`` | ``_`` |
| ``list``, ``tuple`` | ``*n`` | ``*n`` |
| ``True``, ``False`` | ``:1``, ``:0`` | ``#t``, ``#f`` |
| ``float`` | ``$3 1.5`` | ``,1.5`` |
| ``Simple``, ``Error`` | ``+OK``, ``-ERR text`` | ``+OK``, ``-ERR text`` |
| ``Map`` of n pairs | ``*2n`` | ``%n`` |
| ``Set`` | ``*n`` | ``~n`` |
| ``Push`` | ``*n`` | ``>n`` |
| ``Verbatim`` | ``$4 text`` | ``=8 txt:text`` |

What most answers are is the same in both versions and has a function of its own: ``simple``, ``error``, ``integer``,
``bulk``. ``array`` puts answers together that are bytes already, as EXEC does. Everything else goes through ``encode``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

OK: Final = b"+OK\r\n"
PONG: Final = b"+PONG\r\n"
QUEUED: Final = b"+QUEUED\r\n"
EMPTY_ARRAY: Final = b"*0\r\n"


class NullArray:
    """The type of ``NULL_ARRAY``: no array, as against an empty one. Version 3 has one null for everything."""

    __slots__ = ()


NULL_ARRAY: Final = NullArray()


class Simple:
    """A short text of the server's own, such as OK."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Error:
    """A refusal: its code in capitals, a blank and the text."""

    __slots__ = ("text",)

    def __init__(self, text: bytes) -> None:
        self.text = text


class Map:
    """Pairs in their order. Not a dict: Redis answers with the same key twice where it was asked for twice.

    Version 2 gets them flat. XREAD and XREADGROUP are no such case: there it gets an array of pairs, ``by_key``.
    """

    __slots__ = ("pairs",)

    def __init__(self, pairs: Sequence[tuple[Value, Value]]) -> None:
        self.pairs = pairs


class Set:
    """Items of which none is there twice; who makes it sees to that."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Value]) -> None:
        self.items = items


class Push:
    """What nobody asked for just now: a message. Its first item says of which kind."""

    __slots__ = ("items",)

    def __init__(self, items: Sequence[Value]) -> None:
        self.items = items


class Verbatim:
    """A text to be shown to people as it is; ``kind`` has three letters, txt or mkd."""

    __slots__ = ("kind", "text")

    def __init__(self, text: bytes, kind: bytes = b"txt") -> None:
        assert len(kind) == 3  # readers cut there
        self.text = text
        self.kind = kind


Value: TypeAlias = (
    "bytes | int | float | bool | Sequence[Value] | NullArray | Simple | Error | Map | Set | Push | Verbatim | None"
)


# -- the same in both versions -------------------------------------------------------------------------------------


def simple(text: bytes) -> bytes:
    return b"+%b\r\n" % _one_line(text)


def error(text: bytes) -> bytes:
    """``text`` begins with its code. A line end in it would start another answer: it becomes blank."""
    return b"-%b\r\n" % _one_line(text)


def integer(number: int) -> bytes:
    return b":%d\r\n" % number


def bulk(data: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(data), data)


def array(answers: Sequence[bytes]) -> bytes:
    """One answer made of others, which are bytes already."""
    return b"*%d\r\n%b" % (len(answers), b"".join(answers))


# -- by version ----------------------------------------------------------------------------------------------------


def by_key(answers: Sequence[bytes], version: int) -> bytes:
    """What XREAD answers: keys, each with what belongs to it behind it, which are bytes already."""
    if version >= 3:
        return b"%%%d\r\n%b" % (len(answers), b"".join(answers))
    return b"*%d\r\n%b" % (len(answers), b"".join([b"*2\r\n" + pair for pair in answers]))


def null(version: int) -> bytes:
    return b"_\r\n" if version >= 3 else b"$-1\r\n"


def null_array(version: int) -> bytes:
    return b"_\r\n" if version >= 3 else b"*-1\r\n"


def encode(value: Value, version: int) -> bytes:
    """The bytes of ``value`` and of all that is in it.

    Raises: TypeError for what is no value, text among it: only bytes say in which encoding they are.
    """
    if type(value) is bytes:
        return b"$%d\r\n%b\r\n" % (len(value), value)
    parts: list[bytes] = []
    _put(value, version >= 3, parts)
    return b"".join(parts)


def _put(value: Value, is_3: bool, parts: list[bytes]) -> None:
    """Append the bytes of ``value``; the most frequent kinds come first."""
    if isinstance(value, bytes):
        parts.append(b"$%d\r\n%b\r\n" % (len(value), value))
    elif isinstance(value, list | tuple):
        parts.append(b"*%d\r\n" % len(value))
        _put_all(value, is_3, parts)
    elif isinstance(value, bool):  # before int, which it is, too
        parts.append((b"#t\r\n" if value else b"#f\r\n") if is_3 else b":%d\r\n" % value)
    elif isinstance(value, int):
        parts.append(b":%d\r\n" % value)
    elif value is None:
        parts.append(b"_\r\n" if is_3 else b"$-1\r\n")
    elif isinstance(value, Map):
        parts.append(b"%%%d\r\n" % len(value.pairs) if is_3 else b"*%d\r\n" % (2 * len(value.pairs)))
        for pair in value.pairs:
            _put_all(pair, is_3, parts)
    elif isinstance(value, Set):
        parts.append((b"~%d\r\n" if is_3 else b"*%d\r\n") % len(value.items))
        _put_all(value.items, is_3, parts)
    elif isinstance(value, Push):
        parts.append((b">%d\r\n" if is_3 else b"*%d\r\n") % len(value.items))
        _put_all(value.items, is_3, parts)
    else:
        parts.append(_single(value, is_3))


def _put_all(values: Sequence[Value], is_3: bool, parts: list[bytes]) -> None:
    for value in values:
        if type(value) is bytes:  # nearly all of what is in arrays: a call less for each
            parts.append(b"$%d\r\n%b\r\n" % (len(value), value))
        else:
            _put(value, is_3, parts)


def _single(value: Value, is_3: bool) -> bytes:
    """The seldom ones that hold no others."""
    if isinstance(value, Simple):
        return simple(value.text)
    if isinstance(value, Error):
        return error(value.text)
    if isinstance(value, float):
        text = b"%.17g" % value  # as many digits as every double needs to come back the same
        return b",%b\r\n" % text if is_3 else bulk(text)
    if isinstance(value, NullArray):
        return b"_\r\n" if is_3 else b"*-1\r\n"
    if isinstance(value, Verbatim):
        return b"=%d\r\n%b:%b\r\n" % (len(value.text) + 4, value.kind, value.text) if is_3 else bulk(value.text)
    raise TypeError(f"{type(value).__name__} is no reply value; text has to be bytes")


def _one_line(text: bytes) -> bytes:
    if b"\n" in text or b"\r" in text:
        return text.replace(b"\r", b" ").replace(b"\n", b" ")
    return text
