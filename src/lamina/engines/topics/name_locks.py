"""A lock for each name: who works on one keeps nobody from the others."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from lamina.engines.lock import Lock


class _Lock:
    """Of one name, while somebody has it or waits for it."""

    __slots__ = ("lock", "users")

    def __init__(self) -> None:
        self.lock = Lock()
        self.users = 0


class NameLocks:
    """Of any number of names: a lock is there only while it is used."""

    def __init__(self) -> None:
        self._locks: dict[bytes, _Lock] = {}
        self._guard = threading.Lock()  # held for moments

    @contextmanager
    def of(self, *names: bytes) -> Iterator[None]:
        """Have these names for oneself. A thread may have one more than once; it asks at once for all that it needs."""
        with self._guard:
            wanted = [(name, self._locks.setdefault(name, _Lock())) for name in sorted({*names})]
            for _, one in wanted:
                one.users += 1
        try:
            with ExitStack() as stack:
                for _, one in wanted:
                    stack.enter_context(one.lock)
                yield
        finally:
            with self._guard:
                for name, one in wanted:
                    one.users -= 1
                    if not one.users:
                        del self._locks[name]

    def used(self) -> set[bytes]:
        """Names that somebody has just now, or waits for."""
        with self._guard:
            return {*self._locks}
