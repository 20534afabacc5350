"""Requests to rotate: they queue, at most one is served by a switch of the epoch, and each waits for its answer."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from lamina.errors import LaminaError, Stopped


@dataclass(frozen=True, slots=True)
class Rotated:
    """The answer to a request."""

    epoch: int
    """The boundary: no entry of a later epoch is in the rotated files, and every one up to it is."""
    files: tuple[str, ...]
    """All rotated files that there are, oldest first; nothing will ever be written to them."""
    new: tuple[str, ...]
    """Those that this request made."""


class RotationRequest:
    """One request. Threads: safe from any thread."""

    def __init__(self, at_boundary: Callable[[], None] | None = None) -> None:
        self.boundary = 0
        """0 while it is in the queue."""
        self.waiting: set[int] = set()
        """Channels whose files are to be renamed yet."""
        self.known: frozenset[str] = frozenset()
        """Files that were rotated before, and those of requests that were answered meanwhile."""
        self.at_boundary = at_boundary
        """Called when everything up to the boundary was taken, and nothing behind it."""
        self._is_answered = threading.Event()
        self._answer: Rotated | None = None
        self._error: LaminaError | None = None
        self._then: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def answer(self, rotated: Rotated) -> None:
        self._answer = rotated
        self._tell()

    def fail(self, error: LaminaError) -> None:
        self._error = error
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            self._is_answered.set()
            told, self._then = self._then, []
        for each in told:
            each()

    def then(self, told: Callable[[], None]) -> None:
        """Call ``told`` when there is an answer, or at once."""
        with self._lock:
            if not self._is_answered.is_set():
                self._then.append(told)
                return
        told()

    @property
    def is_answered(self) -> bool:
        return self._is_answered.is_set()

    def wait(self, timeout: float | None = None) -> Rotated:
        """The answer. Raises: what kept it from being done; TimeoutError."""
        if not self._is_answered.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            raise TimeoutError(f"the files are not rotated after {timeout} s")
        return self.result()

    def result(self) -> Rotated:
        if self._error is not None:
            raise self._error.with_traceback(None)
        assert self._answer is not None
        return self._answer


class Rotations:
    """The queue, and those that were begun. Threads: the store's lock."""

    def __init__(self) -> None:
        self.queue: deque[RotationRequest] = deque()
        self.begun: list[RotationRequest] = []
        """In order of their boundaries, which rise."""

    def ask(self, request: RotationRequest) -> None:
        self.queue.append(request)

    def begin_next(self, boundary: int, channels: set[int]) -> RotationRequest | None:
        """An epoch is about to be switched: serve one request, if there is one."""
        if not self.queue:
            return None
        request = self.queue.popleft()
        request.boundary, request.waiting = boundary, set(channels)
        self.begun.append(request)
        return request

    def oldest(self) -> RotationRequest | None:
        return self.begun[0] if self.begun else None

    def stop(self) -> list[RotationRequest]:
        """Give all of them up. Returns those that have to be told."""
        given_up = [*self.begun, *self.queue]
        self.begun.clear()
        self.queue.clear()
        return given_up


def stopped() -> Stopped:
    return Stopped("the store was closed before the files were rotated", hint="open it and ask again")
