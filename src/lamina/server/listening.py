"""Addresses taken before anything else is done, and doors that open on them when the engines are ready.

A port that is in use is found before a file is touched. Nobody can connect before ``opened``: who calls a server that
is still restoring is refused at once and does not wait without knowing for what.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol, cast

from lamina.addresses import Address
from lamina.errors import BadOption, DiskError
from lamina.log.teardown import Teardown
from lamina.server.client import Client
from lamina.server.output import Output
from lamina.server.security.tls import HANDSHAKE_S
from lamina.server.socket_file import SocketFile

_BACKLOG: Final = 100  # more makes asyncio's accept loop spin when file handles run out
_CLOSED_WITHIN_S: Final = 1.0


class Door(Protocol):
    """Makes a protocol for each connection."""

    max_connections: int
    output: Output

    def __call__(self) -> Client: ...

    async def close(self) -> None: ...


async def hang_up_on_all(connections: Collection[Client], settled: Awaitable[None], teardown: Teardown) -> None:
    """Steps of closing a door: clients run nothing more, what they are owed goes out (``settled``), then they go."""
    for connection in list(connections):
        teardown.step(connection.stop)
    try:
        await settled
    except BaseException as error:
        teardown.add(error)
    for connection in list(connections):
        teardown.step(connection.hang_up)


class Listener:
    """An address of this process. Close it, however far it came."""

    def __init__(self, at: Address) -> None:
        """Take the address. Raises: BadOption if there is none such; DiskError if another has it."""
        self.at = at
        self._file = SocketFile(at.path) if at.path else None
        self._sockets = _bound(at) if self._file is None else [self._file.socket]
        self._sockets[0].setblocking(False)
        self._servers: list[asyncio.Server] = []

    @property
    def shown(self) -> str:
        """The address with its real port, for people."""
        if self.at.path:
            return str(self.at)
        return str(Address(self.at.host or "*", self._sockets[0].getsockname()[1]))

    async def open(self, door: Door, tls: ssl.SSLContext | None) -> None:
        """Let clients in. A socket of the file system has no TLS: it does not leave the machine.

        Raises: DiskError if another was faster.
        """
        loop = asyncio.get_running_loop()
        factory = cast(Callable[[], asyncio.Protocol], door)
        try:
            for each in self._sockets:
                if self.at.path:
                    server = await loop.create_unix_server(factory, sock=each, backlog=_BACKLOG)
                elif tls is None:
                    server = await loop.create_server(factory, sock=each, backlog=_BACKLOG)
                else:
                    server = await loop.create_server(
                        factory, sock=each, backlog=_BACKLOG, ssl=tls, ssl_handshake_timeout=HANDSHAKE_S
                    )
                self._servers.append(server)
        except OSError as error:
            raise _cannot_listen(self.at, error) from error

    def stop(self) -> None:
        """Nobody new comes in from now on."""
        for server in self._servers:
            server.close()

    async def wait_closed(self) -> None:
        for server in self._servers:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), _CLOSED_WITHIN_S)

    def close(self) -> None:
        """Let go of the address."""
        with Teardown(str(self.at)) as teardown:
            for each in self._sockets:
                teardown.step(each.close)
            if self._file is not None:
                teardown.step(self._file.close)


def _bound(at: Address) -> list[socket.socket]:
    """A socket for each address that the host has, all with the same port."""
    try:
        found = socket.getaddrinfo(at.host or None, at.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise BadOption(f"{at}: there is no such host", hint="give HOST:PORT, such as 127.0.0.1:9922") from error
    taken: list[socket.socket] = []
    port = at.port
    for family, kind, protocol, _, where in dict.fromkeys(found):
        try:
            each = socket.socket(family, kind, protocol)
        except OSError:
            continue  # the machine has no such addresses, IPv6 say
        taken.append(each)
        try:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                each.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            each.bind((where[0], port, *where[2:]))
        except OSError as error:
            for one in taken:
                one.close()
            raise _cannot_listen(at, error) from error
        port = each.getsockname()[1]
        each.setblocking(False)
    if not taken:
        raise BadOption(f"{at}: this machine cannot listen there", hint="give HOST:PORT, such as 127.0.0.1:9922")
    return taken


def _cannot_listen(at: Address, error: OSError) -> DiskError:
    # asyncio wraps the error and adds words of its own; what counts is the number.
    reason = os.strerror(error.errno) if error.errno else str(error)
    return DiskError(f"{at}: cannot listen: {reason}", hint="is another server running there?")
