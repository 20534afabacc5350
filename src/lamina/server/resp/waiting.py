"""Clients that wait for a key to change, served in the order in which they began to wait.

A change makes all who wait for the key due, and they are served behind the turn of the loop, as many as there is credit
for: it comes with time and pays for about a tenth of it. What is more is served at once, too, unless others have many
commands run: a turn in which no other command was run serves one, the next two, then four. So whoever waits is served
at once where there is time, and a publisher at full speed beside hundreds of readers keeps most of it, also on a
machine on which they all share a few processors: who waited longer gets more at once, and nothing is lost.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

_EACH_S: Final = 5_000.0
"""Credit that comes in a second. One pays for an answer of up to so many bytes, which takes about 20 us with all that
belongs to it."""
_PORTION: Final = 1 << 14
_MOST: Final = 128.0  # credit that gathers
_IN_VAIN: Final = 0.2  # what an attempt takes that has no answer
_MOST_SPARE: Final = 64.0  # answers in a turn that nobody else wants, at most
_WINDOW_S: Final = 0.02  # lately
_MANY: Final = 10  # commands of others in such a time
_SOON_S: Final = 0.001  # until there is some credit again
_MOST_IN_WORKERS: Final = 2  # who wait for what is in files, at the same time; one while others are busy
_BY_WORKER: Final = 5.0  # what it takes to have a worker try it
IN_WORKER: Final = -1
"""A worker tries it."""


class Waiter(Protocol):
    """A command that waits."""

    @property
    def keys(self) -> tuple[bytes, ...]: ...

    def try_again(self) -> int:
        """A key changed. One who has got an answer takes itself off, and tells how many bytes it has; IN_WORKER if it
        is not known yet: ``came_back`` is told then.
        """


class Waiting:
    """All who wait, by key. On the loop's thread only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, commands: Callable[[], int], now: Callable[[], float]) -> None:
        """``commands``: how many were run, but for those that ask for what is new. ``now``: seconds, in steps far below
        a thousandth.
        """
        self._loop = loop
        self._commands = commands
        self._now = now
        self._numbers: dict[Waiter, int] = {}  # of all who wait, in the order in which they began to
        self._idle: dict[bytes, dict[Waiter, None]] = {}  # those who are not due, by key
        self._due: deque[tuple[int, Waiter]] = deque()  # also of some who wait no more
        self._changed: dict[bytes, None] = {}
        self._in_workers: set[Waiter] = set()
        self._begun = 0  # how often one began to wait
        self._others = 0  # commands, as of the last round
        self._credit, self._credited_at = _MOST, now()
        self._spare = 0.0
        self._is_busy = False  # others have many commands run
        self._window_began, self._window_others = self._credited_at, 0
        self._round: asyncio.Handle | None = None

    def add(self, waiter: Waiter) -> None:
        self._begun += 1
        self._numbers[waiter] = self._begun
        self._rest(waiter)

    def remove(self, waiter: Waiter) -> None:
        if self._numbers.pop(waiter, None) is not None:
            self._wake(waiter)

    def changed(self, key: bytes) -> None:
        """Let those who wait for ``key`` try again, soon."""
        if key in self._idle:
            self._changed[key] = None
            self._come_soon()

    def expect(self, waiter: Waiter) -> None:
        """Let one who waits try, soon: it has not looked yet."""
        self._wake(waiter)
        self._due.append((self._numbers[waiter], waiter))
        self._come_soon()

    def expect_all(self, beginning: bytes) -> None:
        """The same for all who wait for keys that begin so."""
        for key in [key for key in self._idle if key.startswith(beginning)]:
            self.changed(key)

    def came_back(self, waiter: Waiter, size: int) -> None:
        """A worker has tried it: it has an answer of so many bytes, or none."""
        if waiter in self._in_workers:
            self._in_workers.remove(waiter)
            self._credit -= size / _PORTION
            if self._due:
                self._come_soon()

    def has_due(self) -> bool:
        """Some are yet to be served: who asks for what is new comes behind them."""
        return bool(self._due)

    def _rest(self, waiter: Waiter) -> None:
        for key in waiter.keys:
            self._idle.setdefault(key, {})[waiter] = None

    def _wake(self, waiter: Waiter) -> None:
        for key in waiter.keys:
            others = self._idle.get(key)
            if others is not None:
                others.pop(waiter, None)
                if not others:
                    del self._idle[key]

    def _come_soon(self) -> None:
        if self._round is None:
            self._round = self._loop.call_soon(self._come)

    def _come(self) -> None:
        changed, self._changed = self._changed, {}
        for key in changed:
            for waiter in sorted(self._idle.get(key, ()), key=self._numbers.__getitem__):
                self._wake(waiter)
                self._due.append((self._numbers[waiter], waiter))
        credit = self._credit_now()
        others = self._commands()
        is_wanted, self._others = self._are_many(others) or others != self._others, others
        self._spare = 0.0 if is_wanted else min(max(2 * self._spare, 1.0), _MOST_SPARE)
        self._round = None
        try:
            spent = self._serve(max(credit, self._spare))
            self._credit -= spent if is_wanted else min(spent, max(credit, 0.0))
        finally:
            if self._due and self._has_workers():  # else one of them comes back soon
                if self._is_busy:
                    self._round = self._loop.call_later(_SOON_S, self._come)
                else:
                    self._come_soon()

    def _has_workers(self) -> bool:
        return len(self._in_workers) < (1 if self._is_busy else _MOST_IN_WORKERS)

    def _are_many(self, others: int) -> bool:
        """Commands that others have had run lately."""
        seconds, count = self._credited_at - self._window_began, others - self._window_others
        if seconds >= _WINDOW_S:
            self._is_busy = count * _WINDOW_S >= _MANY * seconds
            self._window_began, self._window_others = self._credited_at, others
        elif count >= _MANY:
            self._is_busy = True
        return self._is_busy

    def _credit_now(self) -> float:
        now = self._now()
        self._credit = min(self._credit + (now - self._credited_at) * _EACH_S, _MOST)
        self._credited_at = now
        return self._credit

    def _serve(self, left: float) -> float:
        """Returns what it took."""
        spent = 0.0
        while self._due and spent < left and self._has_workers():
            number, waiter = self._due.popleft()
            if self._numbers.get(waiter) != number:  # it waits no more
                continue
            self._rest(waiter)
            size = waiter.try_again()
            if size == IN_WORKER:
                self._in_workers.add(waiter)
                spent += _BY_WORKER
            else:
                spent += 1 + size / _PORTION if size else _IN_VAIN
        return spent
