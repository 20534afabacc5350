"""What is known of topics and queues that nobody has used since the start: found out one by one, and forgotten in time.

Such a thing stands still. Whatever could change it opens it first, and its engine tells that (``told``): from then on
the engine knows better, and what was found here counts no more, also what is just being found.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class Unopened(Generic[T]):
    """By name. One at a time looks (``next``, then ``saw`` or ``put_aside``).

    Threads: every method is safe from any thread, whatever locks it holds.
    """

    def __init__(self, most: int, weigh: Callable[[T], int] = lambda found: 1) -> None:
        """``most``: what is remembered may weigh so much together; what is more stays unknown."""
        self._most = most
        self._weigh = weigh
        self._lock = threading.Lock()  # taken last: nothing is called while it is held
        self._waiting: dict[bytes, None] = {}
        self._aside: dict[bytes, None] = {}
        self._at: bytes | None = None
        self._seen: dict[bytes, T] = {}
        self._weight = 0

    @property
    def unknown(self) -> int:
        """How many are yet to be looked at, or could not be."""
        with self._lock:
            return len(self._waiting) + len(self._aside) + (self._at is not None)

    @property
    def aside(self) -> int:
        """How many of them could not be."""
        return len(self._aside)

    def seen(self) -> dict[bytes, T]:
        """What was found; such of which there is nothing to tell are not in it."""
        with self._lock:
            return dict(self._seen)

    # -- the engine tells ----------------------------------------------------------------------------------------------

    def told(self, name: bytes, is_left: bool) -> None:
        """Something happened to what has this name. ``is_left``: there is one now, and it is not open."""
        with self._lock:
            self._forget(name)
            if is_left:
                self._waiting[name] = None

    def expect(self, names: Iterable[bytes]) -> None:
        """These are there and not open. Such as are known already, or were put aside, stay so."""
        with self._lock:
            for name in names:
                if name not in self._seen and name not in self._aside and name != self._at:
                    self._waiting[name] = None

    def _forget(self, name: bytes) -> None:
        self._waiting.pop(name, None)
        self._aside.pop(name, None)
        if self._at == name:
            self._at = None
        found = self._seen.pop(name, None)
        if found is not None:
            self._weight -= self._weigh(found)

    # -- who looks -----------------------------------------------------------------------------------------------------

    def next(self) -> bytes | None:
        """One to look at; None: there is none, for now."""
        with self._lock:
            if not self._waiting:
                self._waiting = {}  # what held thousands stays large
                return None
            self._at = self._waiting.popitem()[0]
            return self._at

    def saw(self, name: bytes, found: T | None) -> bool:
        """What was found; None: there is nothing to tell of it. False: it is not remembered."""
        with self._lock:
            if self._at != name:  # it was opened, or went, meanwhile
                return False
            self._at = None
            if found is not None:
                weight = self._weigh(found)
                if self._weight + weight > self._most:
                    self._aside[name] = None
                    return False
                self._weight += weight
                self._seen[name] = found
            return True

    def put_aside(self, name: bytes) -> bool:
        """It cannot be looked at. False: it was opened, or went, meanwhile."""
        with self._lock:
            if self._at != name:
                return False
            self._at = None
            self._aside[name] = None
            return True

    def give_back(self, name: bytes) -> None:
        """Looking was given up: it is yet to be looked at."""
        with self._lock:
            if self._at == name:
                self._at = None
                self._waiting[name] = None

    def retry(self) -> None:
        """Those that were put aside are to be looked at once more."""
        with self._lock:
            self._waiting |= self._aside
            self._aside = {}
