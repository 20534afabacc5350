"""One connection to the workq door of a server: commands out, their answers in."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Sequence
from io import BufferedReader
from typing import Any, TypeVar

from lamina.client.endpoint import Endpoint
from lamina.client.wire import (
    LINE,
    LONGEST_LINE,
    Command,
    Reading,
    has_to_log_in,
    login,
    login_refused,
    no_answer,
    reading,
    welcome,
    whole,
)
from lamina.errors import Disconnected, LaminaError

T = TypeVar("T")


class WorkqLine:
    """One connection. Connects at the first command, and anew after an error; no command is sent twice.

    Threads: one at a time.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._socket: socket.socket | None = None
        self._file: BufferedReader | None = None
        self._is_shut = False

    def close(self) -> None:
        for each in (self._file, self._socket):
            with contextlib.suppress(OSError):
                if each is not None:
                    each.close()
        self._socket = self._file = None

    def shut(self) -> None:
        """From another thread: whoever waits for an answer gets Disconnected."""
        self._is_shut = True
        with contextlib.suppress(OSError, AttributeError):
            self._socket.shutdown(socket.SHUT_RDWR)  # type: ignore[union-attr]

    @property
    def is_connected(self) -> bool:
        return self._socket is not None

    def drop_if_stale(self) -> None:
        """While nothing was asked nothing may come: something to read is the end, of a server that went away."""
        if self._socket is not None:
            poll = select.poll()  # unlike select, of any number of files
            poll.register(self._socket, select.POLLIN)
            if poll.poll(0):
                self.close()

    def ask(self, commands: Sequence[Command]) -> list[Any]:
        """The answers: values, None for what did not come in time, refusals as errors that are not raised.

        Raises: Disconnected, with ``sent=False`` if nothing was sent; WireError.
        """
        if self._socket is None:
            self._connect()
        answers = self._exchange(commands)
        if any(map(has_to_log_in, answers)):  # it was sent away: the next command logs in anew
            self.close()
        return answers

    def _connect(self) -> None:
        endpoint = self.endpoint
        who = None if endpoint.token is None else login(endpoint.user, endpoint.token)
        self._socket = endpoint.connect()
        self._file = self._socket.makefile("rb")
        if self._is_shut:  # meanwhile
            self.close()
            raise self.endpoint.closed()
        if who is not None:
            try:
                (answer,) = self._exchange([who])
            except Disconnected as problem:
                raise endpoint.at_the_door(problem) from problem
            if isinstance(answer, LaminaError):
                self.close()
                raise login_refused(answer)

    def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        assert self._socket is not None
        try:
            self._socket.settimeout(sum(command.wait_s for command in commands) + self.endpoint.timeout)
            self._send(b"".join([command.encode() for command in commands]))
            return [welcome(self._read(reading(command))) for command in commands]
        except OSError as error:
            self.close()
            raise self.endpoint.broken(error) from error
        except ValueError as error:
            self.close()
            raise no_answer(self.endpoint, error) from error
        except BaseException:  # interrupted in the middle: what is left would be taken for the next answer
            self.close()
            raise

    def _send(self, data: bytes) -> None:
        assert self._socket is not None
        # A server that has too many connections says so before it hangs up; that is read instead.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._socket.sendall(data)

    def _read(self, answer: Reading[T]) -> T:
        assert self._file is not None
        try:
            size = next(answer)
            while True:
                if size == LINE:
                    data = self._file.readline(LONGEST_LINE)
                else:
                    data = self._file.read(size + 2)
                    if len(data) < size + 2:
                        raise ConnectionError("the server hung up")
                size = answer.send(whole(data))
        except StopIteration as end:
            value: T = end.value
            return value
