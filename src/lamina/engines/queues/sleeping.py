"""Who sleeps in this process until something comes into a queue."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lamina.log.teardown import Teardown

Wake = Callable[[], object]


class Sleepers:
    """By the recipient's id of the queue. Threads: every method is safe from any thread, whatever locks it holds."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # taken last: nothing is called while it is held
        self._by_queue: dict[bytes, set[Wake]] = {}

    @contextmanager
    def waking(self, rid: bytes, wake: Wake) -> Iterator[None]:
        """Around looking and sleeping, in this order: then nothing comes unnoticed in between."""
        with self._lock:
            self._by_queue.setdefault(rid, set()).add(wake)
        try:
            yield
        finally:
            with self._lock:
                left = self._by_queue[rid]
                left.discard(wake)
                if not left:
                    del self._by_queue[rid]

    def wake(self, rid: bytes) -> None:
        """Something is new about the queue."""
        if rid not in self._by_queue:  # whoever comes now has yet to look
            return
        with self._lock:
            found = list(self._by_queue.get(rid, ()))
        for wake in found:
            wake()

    def wake_all(self) -> None:
        with self._lock:
            found = [wake for wakes in self._by_queue.values() for wake in wakes]
        with Teardown("the queues") as teardown:  # each of them, whatever befalls another
            for wake in found:
                teardown.try_to(wake, "who waits is not woken")

    def __len__(self) -> int:
        """Queues for which somebody sleeps."""
        return len(self._by_queue)
