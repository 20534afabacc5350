"""Write versions for those who do not choose their own: each is larger than every one before it."""

from __future__ import annotations

import threading

from lamina.engines.store.codec import MOST


class Versions:
    """Threads: safe from any thread."""

    def __init__(self, highest: tuple[int, int]) -> None:
        """``highest``: of all that are in the store."""
        self._lock = threading.Lock()
        self._major = self._next = 0
        self.note(*highest)

    def take(self, epoch: int, count: int) -> tuple[int, int]:
        """The first of ``count`` versions that follow each other. The major one is the epoch, unless somebody chose a
        larger one before."""
        with self._lock:
            if epoch > self._major or self._next + count > MOST:
                self._major, self._next = max(epoch, self._major + 1), 0
            first = self._next
            self._next += count
            return self._major, first

    def note(self, major: int, minor: int) -> None:
        """Somebody chose this one."""
        with self._lock:
            if (major, minor) >= (self._major, self._next):
                self._major, self._next = major, minor + 1
