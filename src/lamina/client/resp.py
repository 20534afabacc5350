"""One connection to a RESP server: a command out, its reply in, refusals as errors.

    with RespClient("127.0.0.1", 6380) as server:
        id = server.ask("XADD", "orders", "*", "item", "tea")

Connects at the first command, and anew after an error of the connection; no command is sent twice.
Threads: one at a time.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lamina.client.endpoint import Endpoint
from lamina.client.refusals import NoReply, new_reader, understood, welcome
from lamina.client.talking import Reply, Word, encode
from lamina.errors import Disconnected, LaminaError, WireError

if TYPE_CHECKING:
    import hiredis

CHUNK: Final = 1 << 16


class RespClient:
    """One connection to one server."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 6380,
        *,
        password: str | None = None,
        timeout: float = 30,
        endpoint: Endpoint | None = None,
    ) -> None:
        """``timeout``: seconds for connecting, and for a reply beyond the time a command waits by itself.
        ``endpoint`` says all of it, and more, instead.
        """
        self.endpoint = endpoint or Endpoint(host, port, token=password, timeout=timeout)
        self._socket: socket.socket | None = None
        self._reader: hiredis.Reader | None = None
        self._is_shut = False

    def __str__(self) -> str:
        return str(self.endpoint)

    def __enter__(self) -> RespClient:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    def close(self) -> None:
        """Hang up. The next command would connect anew."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.close()
        self._socket = self._reader = None

    def shut(self) -> None:
        """Hang up for good, from another thread than the one that asks: that one gets Disconnected."""
        self._is_shut = True
        made = self._socket
        if made is not None:
            with contextlib.suppress(OSError):
                made.shutdown(socket.SHUT_RDWR)

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
        self.connect()
        return self._exchange(commands, wait)

    def say(self, *commands: Sequence[Word]) -> None:
        """Send commands; what comes back is heard. Raises: Disconnected."""
        try:
            made = self._made()
            made.settimeout(self.endpoint.timeout)
            made.sendall(encode(commands))
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise self.endpoint.broken(error) from error
            raise

    def hear(self, seconds: float) -> Reply | None:
        """What comes next, asked for or not, as it came; None if nothing did in so many seconds.

        Raises: Disconnected, WireError.
        """
        try:
            self._made().settimeout(max(seconds, 0.0001))  # 0 would mean something else
            return self._reply()
        except TimeoutError:
            return None
        except BaseException as error:
            self._is_broken(error)
            raise

    def connect(self) -> None:
        """Log in, if it is not connected. Raises: Disconnected; the refusal."""
        self._check_open()
        if self._socket is not None and not self._was_hung_up():
            return
        self.close()
        reader = new_reader()
        self._socket = self.endpoint.connect()
        self._reader = reader
        self._check_open()  # it may have been shut meanwhile
        if self.endpoint.token:
            who = () if self.endpoint.user is None else (self.endpoint.user,)
            try:
                (reply,) = self._exchange([("AUTH", *who, self.endpoint.token)], 0)
            except Disconnected as problem:
                raise self.endpoint.at_the_door(problem) from problem
            if isinstance(reply, LaminaError):
                self.close()
                raise reply

    def _check_open(self) -> None:
        if self._is_shut:
            self.close()
            raise self.endpoint.closed()

    def _exchange(self, commands: Sequence[Sequence[Word]], wait: float) -> list[Reply]:
        assert self._socket is not None
        try:
            self._socket.settimeout(wait + self.endpoint.timeout)
            self._socket.sendall(encode(commands))
            return [welcome(understood(self._reply(), command)) for command in commands]
        except BaseException as error:
            self._is_broken(error)
            raise

    def _is_broken(self, error: BaseException) -> None:
        """Hang up, also when it was interrupted in the middle: what is left would be taken for the next reply.

        Raises: Disconnected, WireError for what these stand for.
        """
        self.close()
        if isinstance(error, OSError):
            raise self.endpoint.broken(error) from error
        if isinstance(error, NoReply):
            hint = "check the address: is it a RESP server that listens there?"
            raise WireError(f"{self}: no reply of a RESP server: {error}"[:200], hint=hint) from error

    def _made(self) -> socket.socket:
        if self._socket is None:
            raise ConnectionError("it was closed")
        return self._socket

    def _was_hung_up(self) -> bool:
        """The server went away while nothing was asked: to be seen before something is that cannot be asked twice."""
        assert self._socket is not None
        look = select.poll()
        look.register(self._socket, select.POLLIN)
        return bool(look.poll(0))

    def _reply(self) -> Reply:
        assert self._socket is not None and self._reader is not None
        while (reply := self._reader.gets()) is False:
            data = self._socket.recv(CHUNK)
            if not data:
                raise ConnectionError("the server hung up")
            self._reader.feed(data)
        return reply
