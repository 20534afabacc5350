"""Where a door is, and how to get to it: an address or a Unix socket, with TLS or without, and who one is."""

from __future__ import annotations

import asyncio
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from lamina.errors import Disconnected, LogClosed

_UNIX: Final = "unix:"
_HINT: Final = 'check the address, or start a server with "lamina serve"'


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A door of a server, and what it takes to be let in."""

    host: str = "127.0.0.1"
    port: int = 6380
    path: str | None = None
    """Of a Unix socket; then host and port mean nothing."""
    user: str | None = None
    token: str | None = field(default=None, repr=False)
    """Of the user; without a user the password of the server."""
    tls: ssl.SSLContext | None = field(default=None, repr=False)
    timeout: float = 30
    """Seconds for connecting, and for an answer beyond the time a command waits by itself."""
    retry_s: float = 10
    """How long a command that may be repeated is tried again when the connection breaks; 0: not at all."""

    def __str__(self) -> str:
        if self.path is not None:
            return f"{_UNIX}{self.path}"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def at(self, where: str | int) -> Endpoint:
        """Another door of the same server: its port, or ``unix:PATH``. Raises: ValueError."""
        if isinstance(where, str) and where.startswith(_UNIX) and where != _UNIX:
            return replace(self, path=where.removeprefix(_UNIX))
        if not 0 < int(where) < 1 << 16:
            raise ValueError(f"{where} is no port")
        return replace(self, port=int(where), path=None)

    def connect(self) -> socket.socket:
        """A connection with nothing said yet. Raises: Disconnected, with ``sent=False``: nothing was asked."""
        try:
            if self.path is not None:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    made.settimeout(self.timeout)
                    made.connect(self.path)
                except BaseException:
                    made.close()
                    raise
            else:
                made = socket.create_connection((self.host, self.port), self.timeout)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:
            raise self.unreachable(error) from error
        _keep_alive(made)
        if self.tls is None:
            return made
        try:
            return self.tls.wrap_socket(made, server_hostname=self.host)
        except (OSError, ValueError) as error:
            made.close()
            raise self.unreachable(error) from error

    async def open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The same for coroutines. Raises: Disconnected."""
        name = None if self.tls is None else self.host
        try:
            async with asyncio.timeout(self.timeout):
                if self.path is not None:
                    return await asyncio.open_unix_connection(self.path, ssl=self.tls, server_hostname=name)
                made = await asyncio.open_connection(self.host, self.port, ssl=self.tls, server_hostname=name)
                _keep_alive(made[1].get_extra_info("socket"))
                return made
        except (OSError, UnicodeError, ValueError) as error:
            raise self.unreachable(error) from error

    def unreachable(self, error: Exception) -> Disconnected:
        """What to raise when nobody could be asked."""
        if isinstance(error, ssl.SSLError | ssl.CertificateError):
            hint = "is it a door with TLS, and is its certificate one you trust?"
            reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or str(error)
            return Disconnected(f"{self}: no safe connection: {reason}", hint=hint, server=str(self), sent=False)
        reason = "no answer in time" if isinstance(error, TimeoutError) else getattr(error, "strerror", None) or error
        return Disconnected(f"{self}: cannot connect: {reason}", hint=_HINT, server=str(self), sent=False)

    def broken(self, error: Exception) -> Disconnected:
        """What to raise when the connection broke behind a command."""
        reason = "no answer in time" if isinstance(error, TimeoutError) else f"the connection broke: {error}"
        hint = f"whether the command was done is not known{self._or_tls}"
        return Disconnected(f"{self}: {reason}", hint=hint, server=str(self), sent=True)

    @property
    def _or_tls(self) -> str:
        """A door with TLS hangs up on whoever speaks without, and cannot say why."""
        return "" if self.tls is not None or self.path is not None else "; if it always is so: laminas:// is with TLS"

    def at_the_door(self, problem: Disconnected) -> Disconnected:
        """What to raise when the connection broke while we logged in: of what was to be asked nothing was sent."""
        return Disconnected(
            problem.message, hint=f"nothing was asked: try again{self._or_tls}", **{**problem.facts, "sent": False}
        )

    def closed(self) -> LogClosed:
        """What to raise when we hung up for good."""
        return LogClosed(f"{self}: the connection was closed", hint="connect again")


def _keep_alive(connection: Any) -> None:
    """Have the system find out, while an answer is waited for, that the other machine is gone."""
    options = {socket.TCP_KEEPIDLE: 30, socket.TCP_KEEPINTVL: 10, socket.TCP_KEEPCNT: 3}
    with suppress(OSError):  # a Unix socket has no such thing, and no need of it
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in options.items():
            connection.setsockopt(socket.IPPROTO_TCP, option, seconds)


def has_unasked(reader: asyncio.StreamReader) -> bool:
    """Something is there to be read, or the end, or an error, while nothing was asked: the server sent us away."""
    looking = reader.read(1)
    try:
        looking.send(None)
    except (StopIteration, OSError):
        return True
    finally:
        looking.close()
    return False  # it would have waited
