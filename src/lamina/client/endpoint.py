"""Where a door is, and how to get to it: an address or a Unix socket, with TLS or without, and who one is."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass, field, replace
from typing import Final

from lamina.errors import Disconnected

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
        """Another door of the same server: its port, or ``unix:PATH``."""
        if isinstance(where, str) and where.startswith(_UNIX):
            return replace(self, path=where.removeprefix(_UNIX))
        return replace(self, port=int(where), path=None)

    def connect(self) -> socket.socket:
        """A connection with nothing said yet. Raises: Disconnected, with ``sent=False``: nothing was asked."""
        try:
            if self.path is not None:
                made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                made.settimeout(self.timeout)
                made.connect(self.path)
            else:
                made = socket.create_connection((self.host, self.port), self.timeout)
                made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except (OSError, UnicodeError) as error:
            raise self.unreachable(error) from error
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
                return await asyncio.open_connection(self.host, self.port, ssl=self.tls, server_hostname=name)
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
        hint = "whether the command was done is not known"
        return Disconnected(f"{self}: {reason}", hint=hint, server=str(self), sent=True)
