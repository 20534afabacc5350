"""Whose turn it is: clients that send much wait for one another, so that one who asks for little is answered at once.

A client with little to do is served as it comes. The time that is spent on clients is counted; once a turn of the loop
has taken its share, those with more than a little wait in a line, and each further turn takes from the head of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Final, Protocol

logger = logging.getLogger("lamina.server")

SHARE_S: Final = 0.0005
"""How long clients are worked for before the loop looks who else has come, and how long one of them is at a time."""


class Working(Protocol):
    """A client of a door."""

    is_in_line: bool

    def work(self) -> None: ...

    def hang_up(self) -> None: ...


class Turns:
    """The line of one door. All on its loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._line: deque[Working] = deque()
        self._is_scheduled = False
        self.spent = 0.0
        """Seconds since the loop last looked who else has come, about."""

    def wait(self, client: Working) -> None:
        """``client`` has something to do, and gets its turn."""
        if not client.is_in_line:
            client.is_in_line = True
            self._line.append(client)
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)

    def come(self, client: Working) -> None:
        """``client`` has something to do: now, if there is time."""
        if self.spent < SHARE_S and not client.is_in_line:
            client.work()
        else:
            self.wait(client)

    def _go_on(self) -> None:
        self._is_scheduled = False
        self.spent = 0.0
        line, until = self._line, perf_counter() + SHARE_S
        for _ in range(len(line)):
            client = line.popleft()
            client.is_in_line = False
            try:
                client.work()
            except Exception:  # a mistake of ours, or no memory: those behind it in the line must have their turn
                logger.exception("a client is sent away")
                client.hang_up()
            if perf_counter() >= until:
                break
        if line and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._go_on)
