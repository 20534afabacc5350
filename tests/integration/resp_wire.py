"""A client that speaks RESP in plain bytes: any command, right or wrong, and every kind of reply kept apart.

A bulk string is ``bytes``, an integer ``int``, an array ``list``; a missing bulk string and the null of RESP3 are
``None``. What plain values cannot tell apart has a class of its own: a client may see the difference.
"""

from __future__ import annotations

import socket
from contextlib import suppress
from typing import Any

HOST = "127.0.0.1"
PATIENCE_S = 30.0
Word = bytes | str | int


class Simple(bytes):
    """``+OK``."""

    def __repr__(self) -> str:
        return f"+{self.decode(errors='backslashreplace')}"


class Error(bytes):
    """``-ERR no``: its text without the dash."""

    def __repr__(self) -> str:
        return f"-{self.decode(errors='backslashreplace')}"


class Verbatim(bytes):
    """``=``: with the three letters that say what it is."""


class Map(list[tuple[Any, Any]]):
    """``%``: its pairs in order. A key may come twice."""


class Set(list[Any]):
    """``~``: in the order of the wire."""


class Push(list[Any]):
    """``>``."""


class _NullArray:
    """``*-1``."""

    def __repr__(self) -> str:
        return "(null array)"

    def __bool__(self) -> bool:
        return False


NULL_ARRAY = _NullArray()
OK = Simple(b"OK")
QUEUED = Simple(b"QUEUED")


def same(one: object, other: object) -> bool:
    """Equal in value and in kind: ``+1``, ``:1`` and ``$1`` are three things."""
    if type(one) is not type(other):
        return False
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def packed(words: tuple[Word, ...] | list[Word]) -> bytes:
    """The bytes of a command."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


class Wire:
    """One connection. Every wait has an end."""

    def __init__(self, port: int, *, timeout: float = PATIENCE_S) -> None:
        self.socket = socket.create_connection((HOST, port), timeout=timeout)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send_raw(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send(self, *words: Word) -> None:
        """A command, without waiting for its reply."""
        self.send_raw(packed(words))

    def ask(self, *words: Word) -> Any:
        """The reply to a command; an error is a value."""
        self.send(*words)
        return self.read()

    def ask_all(self, commands: list[tuple[Word, ...]]) -> list[Any]:
        """The replies to commands that are sent at once."""
        self.send_raw(b"".join(map(packed, commands)))
        return [self.read() for _ in commands]

    def rest(self) -> bytes:
        """All up to the end of the connection, however it ends."""
        found = b""
        with suppress(ConnectionError):
            while more := self._file.read1():
                found += more
        return found

    # -- replies -----------------------------------------------------------------------------------------------------

    def read(self) -> Any:
        """The next reply. Raises: ConnectionError when the server hung up."""
        line = self._line()
        kind, rest = line[:1], line[1:]
        match kind:
            case b"$":
                return None if rest == b"-1" else self._bulk(int(rest))
            case b":":
                return int(rest)
            case b"*":
                return NULL_ARRAY if rest == b"-1" else [self.read() for _ in range(int(rest))]
            case b"+":
                return Simple(rest)
            case b"-":
                return Error(rest)
            case b"%":
                return Map((self.read(), self.read()) for _ in range(int(rest)))
            case b"_":
                return None
            case b"~":
                return Set(self.read() for _ in range(int(rest)))
            case b">":
                return Push(self.read() for _ in range(int(rest)))
            case b"#":
                return {b"t": True, b"f": False}[rest]
            case b",":
                return float(rest)
            case b"(":
                return int(rest)
            case b"=":
                return Verbatim(self._bulk(int(rest)))
            case b"!":
                return Error(self._bulk(int(rest)))
            case b"|":  # an attribute of the reply behind it
                for _ in range(2 * int(rest)):
                    self.read()
                return self.read()
        raise AssertionError(f"no reply begins so: {line!r}")

    def _line(self) -> bytes:
        line = self._file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError(f"the server hung up after {line!r}")
        return line[:-2]

    def _bulk(self, size: int) -> bytes:
        data = self._file.read(size + 2)
        if len(data) != size + 2:
            raise ConnectionError("the server hung up within a reply")
        assert data.endswith(b"\r\n"), data[-20:]
        return data[:-2]
