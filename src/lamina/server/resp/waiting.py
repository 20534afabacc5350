"""Clients that wait for a key to change, served in rounds, in the order in which they began to wait.

A round comes behind the turn of the loop in which a key changed. When many wait, serving them takes a while: a round
is cut off when it has taken long enough, and goes on in the next turn. While much is published, the next one comes only
when others have had many times as long. Who waited longer gets more at once, so nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

_OTHERS: Final = 40  # times as long as a round took belong to others, before the next one
_SHORT_S: Final = 0.000_5  # a round that needs no pause
_LONGEST_S: Final = 0.000_5  # and the longest there is, but for the sending
_ENOUGH: Final = 64 * 1024  # bytes of answers in one round
_MUCH: Final = 3  # rounds one behind the other, between which keys changed again: much is published
_QUIET_S: Final = 0.02  # without a change: it is no more


class Waiter(Protocol):
    """A command that waits."""

    @property
    def keys(self) -> tuple[bytes, ...]: ...

    def try_again(self) -> int:
        """A key changed. One who has got an answer takes itself off, and tells how many bytes it has."""


class Waiting:
    """All who wait, by key. On the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, now: Callable[[], float]) -> None:
        self._loop = loop
        self._now = now
        self._by_key: dict[bytes, dict[Waiter, None]] = {}
        self._due: dict[bytes, None] = {}
        self._changed_at = 0.0
        self._has_changed = False  # something, since the last round
        self._streak = 0  # rounds of which that was so, up to the last one
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
            self._changed_at, self._has_changed = self._now(), True
            self.expect(key)

    def expect(self, key: bytes) -> None:
        """The same for a key that did not change just now: somebody who waits for it has not looked yet."""
        self._due[key] = None
        if self._round is None:
            self._round = self._loop.call_soon(self._come)

    def expect_all(self, beginning: bytes) -> None:
        """The same for all keys that begin so."""
        for key in [key for key in self._by_key if key.startswith(beginning)]:
            self.expect(key)

    def is_resting(self) -> bool:
        """A round took long, and much is published: who asks for what is new should wait for the next one."""
        now = self._now()
        return now < self._not_before and self._streak >= _MUCH and now - self._changed_at < _QUIET_S

    def _come(self) -> None:
        now = self._now()
        if self.is_resting():
            self._round = self._loop.call_later(min(_QUIET_S / 4, self._not_before - now), self._come)
            return
        self._streak = self._streak + 1 if self._has_changed else 0
        self._has_changed = False
        due, self._due = self._due, {}
        size = 0
        try:
            for key in due:
                for waiter in list(self._by_key.get(key, ())):
                    if size >= _ENOUGH or self._now() - now > _LONGEST_S:
                        self._due[key] = None
                        break
                    if waiter in self._by_key.get(key, ()):  # one who was served before may have had it taken off
                        size += waiter.try_again()
        finally:
            self._round = self._loop.call_soon(self._served, now)  # behind the sending of what was answered

    def _served(self, begun: float) -> None:
        self._round = None
        now = self._now()
        if now - begun > _SHORT_S:
            self._not_before = now + _OTHERS * (now - begun)
        for key in self._due:
            self.expect(key)
            break
