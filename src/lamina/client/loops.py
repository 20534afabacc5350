"""Connections of loops that are over: ``asyncio.run`` makes a loop and closes it, and nobody says so to who kept some.

A connection holds its loop, so neither of them would ever go: a program that calls ``asyncio.run`` for each thing it
does would have a socket more each time. So whenever a loop is new, those of loops that are closed are dropped.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from typing import Protocol, TypeVar


class Abandonable(Protocol):
    """A connection."""

    def abandon(self) -> None:
        """Its loop is closed, so nothing can be done in order."""


L = TypeVar("L", bound=Abandonable)


def abandon_closed(
    idle: dict[asyncio.AbstractEventLoop, list[L]], busy: dict[asyncio.AbstractEventLoop, set[L]]
) -> None:
    """Drop the connections of closed loops, and hang up."""
    for loop in [*idle]:
        if loop.is_closed():
            for line in (*idle.pop(loop, ()), *busy.pop(loop, ())):
                line.abandon()


def hang_up(writer: asyncio.StreamWriter) -> None:
    """Without its loop. The handle of the file goes with the object."""
    with suppress(OSError, AttributeError):
        writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)
