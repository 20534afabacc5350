"""Time, passed in wherever it is needed so that tests own it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Where time comes from. Wall time stamps records; monotonic time measures waits."""

    def now_ns(self) -> int:
        """Wall time, nanoseconds since 1970. May jump, also backwards."""

    def monotonic(self) -> float:
        """Seconds that only grow."""

    def elapsed_ns(self) -> int:
        """The same in whole nanoseconds."""


class SystemClock:
    """The machine's clocks."""

    now_ns = staticmethod(time.time_ns)
    monotonic = staticmethod(time.monotonic)
    elapsed_ns = staticmethod(time.monotonic_ns)


class SteadyClock:
    """Wall time that does not jump: taken once, and carried on by the monotonic clock.

    What counts lifetimes and leases lives by it: an operator or NTP who sets the clock ends none of them early.
    """

    def __init__(self, clock: Clock) -> None:
        self.monotonic = clock.monotonic
        self._elapsed_ns = clock.elapsed_ns
        self._start_ns = clock.now_ns() - clock.elapsed_ns()

    def now_ns(self) -> int:
        return self._start_ns + self._elapsed_ns()

    def elapsed_ns(self) -> int:
        return self._elapsed_ns()

    def not_before(self, ns: int) -> int:
        """Set it forward to ``ns`` if it is behind. Returns by how much it was."""
        behind = max(ns - self.now_ns(), 0)
        self._start_ns += behind
        return behind


class ManualClock:
    """A clock that moves only when told to."""

    def __init__(self, now_ns: int = 1_700_000_000_000_000_000) -> None:
        self.wall_ns = now_ns
        self.elapsed = 0.0

    def now_ns(self) -> int:
        return self.wall_ns

    def monotonic(self) -> float:
        return self.elapsed

    def elapsed_ns(self) -> int:
        return round(self.elapsed * 1e9)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.elapsed += seconds
        self.wall_ns += round(seconds * 1e9)

    def jump(self, seconds: float) -> None:
        """Set the wall clock forward or back, as an operator or NTP would; no time passes."""
        self.wall_ns += round(seconds * 1e9)
