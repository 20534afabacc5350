"""Something that costs to find out, found out again only when that costs little of the time that passed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from time import monotonic, perf_counter
from typing import Final, Generic, TypeVar

T = TypeVar("T")

SHARE: Final = 0.02
"""Of the time: what takes 10 ms is looked at twice a second at most."""


class Kept(Generic[T]):
    """What ``find`` gave, and still counts. Threads: safe from any thread; one looks, the others wait for it."""

    def __init__(self, find: Callable[[], T]) -> None:
        self._find = find
        self._lock = threading.Lock()
        self._found: T | None = None
        self._ended = self._cost = 0.0

    def get(self, share: float = SHARE) -> T:
        """``share``: infinite to look now. Raises: what ``find`` does."""
        with self._lock:
            if self._found is None or monotonic() >= self._ended + self._cost / share:
                began = perf_counter()
                self._found = self._find()
                self._ended, self._cost = monotonic(), perf_counter() - began
            return self._found
