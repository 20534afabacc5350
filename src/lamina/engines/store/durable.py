"""Who waits for an epoch to be durable: threads, coroutines and callbacks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lamina.errors import LaminaError, StorageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

logger = logging.getLogger("lamina.store")
_KEPT = 1000  # refusals that are remembered for those who ask late

Told = Callable[[LaminaError | None], None]


class Waiters:
    """Threads: safe from any thread. Callbacks are called one at a time, with epochs that rise."""

    def __init__(self, informed: int, voids: Sequence[tuple[int, int]] = ()) -> None:
        """``voids``: epochs that never came to be; the store adds to it."""
        self._voids = voids
        self._lock = threading.Lock()
        self._informed = informed
        self._waiting: list[tuple[int, Told]] = []
        self._callbacks: list[Callable[[int], None]] = []
        self._refused: list[tuple[int, int, LaminaError]] = []
        self._failure: LaminaError | None = None

    def wants(self, epoch: int) -> bool:
        """Somebody waits for this very epoch; who waits for a later one has to wait for it to begin."""
        return any(each == epoch for each, _ in self._waiting)

    def add(self, epoch: int, told: Told) -> None:
        """Call ``told`` once: with None when the epoch is durable, with the error if it never will be."""
        with self._lock:
            error = next((error for first, last, error in self._refused if first <= epoch <= last), None)
            if error is None and any(first <= epoch <= last for first, last in self._voids):
                error = StorageError(f"epoch {epoch} is void: it was never durable", hint="write it again")
            if error is None and epoch > self._informed:
                error = self._failure
                if error is None:
                    self._waiting.append((epoch, told))
                    return
        told(error)

    def remove(self, told: Told) -> None:
        with self._lock:
            self._waiting = [each for each in self._waiting if each[1] is not told]

    def add_callback(self, callback: Callable[[int], None]) -> None:
        """Call ``callback(epoch)`` whenever everything up to an epoch is durable, as soon as it is."""
        with self._lock:
            self._callbacks.append(callback)

    def remove_callback(self, callback: Callable[[int], None]) -> None:
        with self._lock:
            self._callbacks = [each for each in self._callbacks if each != callback]

    def tell(self, epoch: int) -> None:
        """Everything up to ``epoch`` is durable."""
        with self._lock:
            if epoch <= self._informed:
                return
            self._informed = epoch
            told = [each for number, each in self._waiting if number <= epoch]
            self._waiting = [each for each in self._waiting if each[0] > epoch]
            callbacks = list(self._callbacks)
        for callback in callbacks:
            try:
                callback(epoch)
            except Exception:  # theirs; the store goes on
                logger.exception("a callback for durable epochs failed")
        _tell_all(told, None)

    def refuse(self, first: int, last: int, error: LaminaError) -> None:
        """These epochs never will be."""
        with self._lock:
            self._refused = [*self._refused[-_KEPT:], (first, last, error)]
            told = [each for number, each in self._waiting if first <= number <= last]
            self._waiting = [each for each in self._waiting if not first <= each[0] <= last]
        _tell_all(told, error)

    def fail(self, error: LaminaError) -> None:
        """Nothing more will become durable."""
        with self._lock:
            self._failure = self._failure or error
            told, self._waiting = [each for _, each in self._waiting], []
        _tell_all(told, error)

    def wait(self, epoch: int, nudge: Callable[[], None], timeout: float | None = None) -> None:
        """Return when it is durable. Raises: what kept it from being so; TimeoutError."""
        is_told = threading.Event()
        outcome: list[LaminaError | None] = []

        def told(error: LaminaError | None) -> None:
            outcome.append(error)
            is_told.set()

        self.add(epoch, told)
        if not is_told.is_set():
            nudge()
        if not is_told.wait(None if timeout is None else min(timeout, threading.TIMEOUT_MAX)):
            self.remove(told)
            raise TimeoutError(f"epoch {epoch} is not durable after {timeout} s")
        if outcome[0] is not None:
            raise outcome[0].with_traceback(None)

    async def reached(self, epoch: int, nudge: Callable[[], None], loop: AbstractEventLoop) -> None:
        """``wait`` for coroutines."""
        future = loop.create_future()

        def settle(error: LaminaError | None) -> None:
            if not future.done():
                if error is None:
                    future.set_result(None)
                else:
                    future.set_exception(error.with_traceback(None))

        def told(error: LaminaError | None) -> None:
            loop.call_soon_threadsafe(settle, error)

        self.add(epoch, told)
        nudge()
        try:
            await future
        finally:
            self.remove(told)


def _tell_all(told: Sequence[Told], error: LaminaError | None) -> None:
    """One that fails, because its loop is closed, keeps nobody else from being told."""
    for each in told:
        try:
            each(error)
        except Exception:
            logger.exception("who waits for an epoch could not be told")
