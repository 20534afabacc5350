"""The lock of an engine: threads wait for it, a loop hardly does.

_lock.pyx is the compiled twin, made by hand: nearly always nobody else has the lock, and then it costs no more than a
few numbers.
"""

from __future__ import annotations

import threading

from lamina.engines import loops


class Lock:
    """A thread may take it more than once. On a loop it is waited for no longer than it takes to have a thread wait for
    it instead; then that is ``loops.must_wait``.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take it, whoever runs this. False: somebody else has it, still after so many seconds."""
        return self._lock.acquire(blocking, timeout)

    def release(self) -> None:
        """Raises: RuntimeError if this thread does not have it."""
        self._lock.release()

    def is_mine(self) -> bool:
        """This thread has it."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]

    def __enter__(self) -> None:
        if not self._lock.acquire(False):
            loops.wait_for(self._acquire_within)

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        self._lock.release()

    def _acquire_within(self, seconds: float) -> bool:
        return self._lock.acquire(True, seconds)
