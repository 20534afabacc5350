"""One connection to a RESP server: a command out, its reply in, refusals as errors.

    with RespClient("127.0.0.1", 6380) as server:
        id = server.ask("XADD", "orders", "*", "item", "tea")

Connects at the first command, and anew after an error of the connection; no command is sent twice.
Threads: one at a time.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from lamina.errors import (
    BadOption,
    BadTopic,
    Disconnected,
    GroupExists,
    LaminaError,
    NoGroup,
    StorageError,
    WireError,
)

if TYPE_CHECKING:
    import hiredis

Word: TypeAlias = bytes | str | int
Reply: TypeAlias = Any
"""Bytes, a number, None, or a list of replies."""

_CHUNK: Final = 1 << 16


def refusal(text: str) -> LaminaError:
    """The error that an error reply stands for."""
    code, _, rest = text.partition(" ")
    if code in ("NOAUTH", "WRONGPASS", "NOPERM") or "AUTH <password>" in text:
        return WireError(f"the server says: {rest or text}", hint="give --password, or LAMINA_PASSWORD", refusal=code)
    if code == "NOGROUP":
        return NoGroup(rest)
    if code == "BUSYGROUP":
        return GroupExists(rest)
    if code == "MISCONF":
        return StorageError(f"the server says: {rest}", hint="its disk refused to write; see what the server reports")
    if text.startswith("ERR unknown command"):
        return WireError(f"the server says: {rest}", hint="is it a server of topics, and a recent one?")
    return BadTopic(f"the server says: {rest if code == 'ERR' else text}")


class _NoReply(Exception):
    """What came is no RESP."""


class RespClient:
    """One connection to one server."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 6380, *, password: str | None = None, timeout: float = 30
    ) -> None:
        """``timeout``: seconds for connecting, and for a reply beyond the time a command waits by itself."""
        self._host, self._port, self._password, self._timeout = host, port, password, timeout
        self._socket: socket.socket | None = None
        self._reader: hiredis.Reader | None = None

    def __str__(self) -> str:
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    def __enter__(self) -> RespClient:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. The next command would connect anew."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = self._reader = None

    def ask(self, *words: Word, wait: float = 0) -> Reply:
        """The reply to a command, which may wait so many seconds by itself. Raises: the refusal; Disconnected."""
        (reply,) = self.ask_all([words], wait=wait)
        if isinstance(reply, LaminaError):
            raise reply
        return reply

    def ask_all(self, commands: Sequence[Sequence[Word]], *, wait: float = 0) -> list[Reply]:
        """Send many commands at once. Refusals are among the replies. Raises: Disconnected, WireError."""
        if not commands:
            return []
        self._connect()
        return self._exchange(commands, wait)

    def _exchange(self, commands: Sequence[Sequence[Word]], wait: float) -> list[Reply]:
        assert self._socket is not None
        try:
            self._socket.settimeout(wait + self._timeout)
            self._socket.sendall(b"".join(map(_encode, commands)))
            return [self._reply() for _ in commands]
        except OSError as error:
            self.close()
            reason = "no answer in time" if isinstance(error, TimeoutError) else f"the connection broke: {error}"
            hint = "whether the command was done is not known"
            raise Disconnected(f"{self}: {reason}", hint=hint, server=str(self)) from error
        except _NoReply as error:
            self.close()
            hint = "check the address: is it a RESP server that listens there?"
            raise WireError(f"{self}: no reply of a RESP server: {error}"[:200], hint=hint) from error
        except BaseException:  # interrupted in the middle: what is left would be taken for the next reply
            self.close()
            raise

    def _reply(self) -> Reply:
        assert self._socket is not None and self._reader is not None
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(_CHUNK)
            if not data:
                raise ConnectionError("the server hung up")
            self._reader.feed(data)
        return reply

    def _connect(self) -> None:
        if self._socket is not None:
            return
        reader = _new_reader()
        try:
            self._socket = socket.create_connection((self._host, self._port), self._timeout)
        except (OSError, UnicodeError) as error:
            reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", error)
            hint = 'check the address, or start a server with "lamina serve --data DIR"'
            raise Disconnected(f"{self}: cannot connect: {reason}", hint=hint, server=str(self)) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = reader
        if self._password:
            (reply,) = self._exchange([("AUTH", self._password)], 0)
            if isinstance(reply, LaminaError):
                self.close()
                raise reply


def _new_reader() -> hiredis.Reader:
    try:
        import hiredis
    except ImportError:
        raise BadOption(
            "to speak to a server of topics one more package is needed", hint='pip install "lamina[server]"'
        ) from None

    return hiredis.Reader(protocolError=_NoReply, replyError=refusal, notEnoughData=False)


def _encode(words: Sequence[Word]) -> bytes:
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        if isinstance(word, str):
            word = word.encode("utf-8", "surrogateescape")
        elif isinstance(word, int):
            word = b"%d" % word
        parts.append(b"$%d\r\n%b\r\n" % (len(word), word))
    return b"".join(parts)
