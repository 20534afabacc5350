"""Connections to the RESP door of one server, held ready for whoever talks.

Each talk has a connection for itself while it lasts; one that broke is closed, and the next talk makes a new one.
Threads: safe from any thread; as many connections as talks at the same time, of which a few are kept.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

from lamina.client.endpoint import Endpoint
from lamina.client.forking import tell_after_fork
from lamina.client.resp import RespClient
from lamina.client.talking import Ask, Patience, Reply, Talk
from lamina.errors import Disconnected

T = TypeVar("T")

_MOST_IDLE: Final = 8


class Lines:
    """See the module."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._idle: list[RespClient] = []
        self._busy: set[RespClient] = set()
        self._is_closed = False
        tell_after_fork(self)

    def forked(self) -> None:
        """See forking.py."""
        self._lock = threading.Lock()
        for line in (*self._idle, *self._busy):
            line.close()
        self._idle, self._busy = [], set()

    def do(self, talk: Talk[T]) -> T:
        """What the talk returns. Raises: what it does; Disconnected, WireError; LogClosed."""
        with self.line() as line:
            return hold(talk, line)

    @contextmanager
    def line(self) -> Iterator[RespClient]:
        """One connection for as long as the block lasts, such as for a subscription. Raises: LogClosed."""
        with self._lock:
            if self._is_closed:
                raise self.endpoint.closed()
            line = self._idle.pop() if self._idle else RespClient(endpoint=self.endpoint)
            self._busy.add(line)
        try:
            yield line
        except BaseException:
            line.close()
            raise
        finally:
            self._put_back(line)

    def _put_back(self, line: RespClient) -> None:
        with self._lock:
            self._busy.discard(line)
            if line.is_connected and not self._is_closed and len(self._idle) < _MOST_IDLE:
                self._idle.append(line)
                return
        line.close()

    def close(self) -> None:
        """Hang up on all lines, also those in use: who waits there gets Disconnected."""
        with self._lock:
            self._is_closed = True
            for line in self._idle:
                line.close()
            self._idle.clear()
            for line in self._busy:
                line.shut()


def hold(talk: Talk[T], line: RespClient) -> T:
    """Hold a talk over one connection. Raises: what the talk does; Disconnected, WireError."""
    try:
        asked = next(talk)
        while True:
            try:
                replies = _ask(line, asked)
            except BaseException as problem:
                asked = talk.throw(problem)
            else:
                asked = talk.send(replies)
    except StopIteration as end:
        result: T = end.value
        return result


def _ask(line: RespClient, asked: Ask) -> list[Reply]:
    patience = Patience(line.endpoint, time.monotonic)
    while True:
        try:
            return line.ask_all(asked.commands, wait=asked.wait)
        except Disconnected as problem:
            time.sleep(patience.pause_before_next(asked, problem))
