"""What writing logs costs: how much was written and synced, how long that took, and what is not synced yet.

One ``Measured`` may be shared by many logs: those of all topics, those of all channels. It costs one look at the clock
before and behind each write and each sync, however many records they carry.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

DISK_BOUNDS: Final = (*(round(step * 10.0**power, 6) for power in range(-5, 1) for step in (1, 2, 5)), 10.0)
"""Seconds, three to a power of ten. A write into the memory of the system takes some 10 µs, a sync of a good disk
1 ms or less, of a bad one 100 ms; what takes 10 s is a disk that hangs."""
WAIT_BOUNDS: Final = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0, 604800.0),
)
"""Seconds that something may wait in a queue: from a worker that is there already to a week."""
_NEWEST: Final = 512  # syncs of which each is known: at a thousand a second half a second, at one a second nine minutes
_RECENT_S: Final = 60.0
_WEIGHT: Final = 0.1  # of the newest write, or sync, in what one takes lately


class Spread:
    """How durations are spread: how many there were up to each bound, and their sum. Not locked."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """Of each bound those up to it and above the one before; the last are above all."""
        self.total = 0.0

    def note(self, seconds: float) -> None:
        """Negative ones, of a clock that went back, count as none."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        if seconds > 0:
            self.total += seconds

    @property
    def count(self) -> int:
        return sum(self.counts)

    def cumulative(self) -> list[int]:
        """How many were up to each bound; behind them, all."""
        return list(accumulate(self.counts))


class Work:
    """How often something was done that gives room back, and how much it gave. Not locked."""

    __slots__ = ("freed_bytes", "runs")

    def __init__(self) -> None:
        self.runs = self.freed_bytes = 0

    def note(self, freed: int) -> None:
        """What gave nothing back counts as done all the same."""
        self.runs += 1
        self.freed_bytes += max(freed, 0)


class Measured:
    """Of one log, or of several together. Threads: every method is safe from any thread."""

    def __init__(self) -> None:
        self.records = 0
        self.bytes = 0
        self.writes = Spread(DISK_BOUNDS)
        self.syncs = Spread(DISK_BOUNDS)
        self.write_s = self.sync_s = 0.0
        """What one took lately, about: reading it needs no lock."""
        self._newest: deque[tuple[float, float]] = deque(maxlen=_NEWEST)  # syncs: when, by the caller's clock; how long
        self._unsynced: dict[object, float] = {}  # since when, the oldest first
        self._lock = threading.Lock()

    def wrote(self, log: object, records: int, size: int, seconds: float, now: float) -> None:
        """``log`` has this much more, which is not synced yet. ``now`` is monotonic."""
        with self._lock:
            self.records += records
            self.bytes += size
            self.writes.note(seconds)
            self.write_s += _WEIGHT * (seconds - self.write_s)
            self._unsynced.setdefault(log, now)

    def synced(self, log: object, seconds: float, now: float) -> None:
        """All of ``log`` is synced."""
        with self._lock:
            self.syncs.note(seconds)
            self.sync_s += _WEIGHT * (seconds - self.sync_s)
            self._newest.append((now, seconds))
            self._unsynced.pop(log, None)

    def forget(self, log: object) -> None:
        """It is closed."""
        with self._lock:
            self._unsynced.pop(log, None)

    def move_to(self, other: Measured, log: object) -> None:
        """``log`` is measured by ``other`` from now on. What it did so far goes along, if it was measured alone."""
        with self._lock, other._lock:
            other.records += self.records
            other.bytes += self.bytes
            for mine, its in ((self.writes, other.writes), (self.syncs, other.syncs)):
                its.counts[:] = [one + another for one, another in zip(its.counts, mine.counts, strict=True)]
                its.total += mine.total
            other._newest.extend(self._newest)
            since = self._unsynced.pop(log, None)
            if since is not None:
                other._unsynced.setdefault(log, since)

    def unsynced_s(self, now: float) -> float:
        """For how long the oldest bytes that are not synced have been so; 0: all is synced."""
        with self._lock:
            since = next(iter(self._unsynced.values()), None)
        return 0.0 if since is None else max(now - since, 0.0)

    def slow_sync_s(self, now: float) -> float:
        """Of the syncs of the last minute, of the newest 512 at most, 99 of 100 took less; 0: there was none."""
        with self._lock:
            recent = sorted(seconds for when, seconds in self._newest if when > now - _RECENT_S)
        return recent[min(int(len(recent) * 0.99), len(recent) - 1)] if recent else 0.0
