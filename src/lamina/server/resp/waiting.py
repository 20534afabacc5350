"""Clients that wait for a key to change, served in the order in which they began to wait.

They are served behind the turn of the loop in which a key changed. When many wait, that takes a while: then the next
round comes only after several times as long, and the publishers are served meanwhile. Who waited longer gets more at
once, so nothing is lost by it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

_PAUSE: Final = 5  # times what a round took, before the next one
_SHORT_S: Final = 0.000_5  # a round that needs no pause


class Waiter(Protocol):
    """A command that waits."""

    @property
    def keys(self) -> tuple[bytes, ...]: ...

    def try_again(self) -> None:
        """A key changed. One who has got an answer takes itself off."""


class Waiting:
    """All who wait, by key. On the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._by_key: dict[bytes, dict[Waiter, None]] = {}
        self._changed: dict[bytes, None] = {}
        self._not_before = 0.0
        self._round: asyncio.Handle | None = None

    def add(self, waiter: Waiter) -> None:
        for key in waiter.keys:
            self._by_key.setdefault(key, {})[waiter] = None

    def remove(self, waiter: Waiter) -> None:
        for key in waiter.keys:
            others = self._by_key.get(key)
            if others is not None:
                others.pop(waiter, None)
                if not others:
                    del self._by_key[key]

    def changed(self, key: bytes) -> None:
        """Let those who wait for ``key`` try again, soon."""
        if key in self._by_key:
            self._changed[key] = None
            if self._round is None:
                pause = self._not_before - self._now()
                loop = self._loop
                self._round = loop.call_later(pause, self._serve) if pause > 0 else loop.call_soon(self._serve)

    def is_resting(self) -> bool:
        """A round took long: who asks for what is new should wait for the next one."""
        return self._now() < self._not_before

    def _serve(self) -> None:
        self._round = None
        changed, self._changed = self._changed, {}
        begun = self._now()
        for key in changed:
            for waiter in list(self._by_key.get(key, ())):
                waiter.try_again()
        now = self._now()
        if now - begun > _SHORT_S:
            self._not_before = now + _PAUSE * (now - begun)
