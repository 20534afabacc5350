"""Clients that have not said who they are: few from one address, not for long, and few bytes. All doors share this."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final

MOST_BYTES: Final = 4096
"""That a client may send before it has logged in."""
MOST_FROM_ADDRESS: Final = 64
"""Connections of one address that have not logged in, on one door."""
LONGEST_S: Final = 5.0
"""From when it came to when it has logged in."""


class Strangers:
    """Of one door."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._from: Counter[str] = Counter()

    def watch(self, address: str, too_late: Callable[[], None]) -> Stranger | None:
        """One came from ``address``; None: too many from there are there already. ``too_late`` is called in time."""
        if self._from[address] >= MOST_FROM_ADDRESS:
            return None
        self._from[address] += 1
        return Stranger(self, address, self._loop.call_later(LONGEST_S, too_late))

    def _forget(self, address: str) -> None:
        self._from[address] -= 1
        if not self._from[address]:
            del self._from[address]


class Stranger:
    """One of them. ``end`` it when it has logged in, or has gone."""

    def __init__(self, strangers: Strangers, address: str, timer: asyncio.TimerHandle) -> None:
        self._strangers: Strangers | None = strangers
        self._address = address
        self._timer = timer
        self._bytes = 0

    def sent(self, size: int) -> bool:
        """Count ``size`` bytes. Whether that is too much."""
        self._bytes += size
        return self._bytes > MOST_BYTES

    def end(self) -> None:
        strangers, self._strangers = self._strangers, None
        if strangers is not None:
            self._timer.cancel()
            strangers._forget(self._address)
