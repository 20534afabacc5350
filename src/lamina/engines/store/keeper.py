"""The thread that keeps a store going: it ends epochs when it is time, and does what is due when one is over."""

from __future__ import annotations

import logging
import threading

from lamina.engines.store.engine import StoreEngine
from lamina.errors import BadEntry, LaminaError, LogFailed

logger = logging.getLogger("lamina.store")


class Keeper:
    """Of one store. Start it when the store is open, stop it before the store is closed."""

    def __init__(self, engine: StoreEngine) -> None:
        self._engine = engine
        self._length_s = engine.options.epoch_ms / 1000
        self._condition = threading.Condition()
        self._is_asked = False
        self._is_stopped = False
        engine.nudge = self.nudge
        self._thread = threading.Thread(target=self._run, name="lamina-store", daemon=True)
        self._thread.start()

    def check_not_inside(self) -> None:
        """Raises: BadEntry in the store's own thread, where callbacks are called: it would wait for itself."""
        if threading.current_thread() is self._thread:
            raise BadEntry("a callback cannot wait for the store", hint="hand it to another thread")

    def nudge(self) -> None:
        """Something may be due. Returns at once."""
        if self._is_asked:  # it looks when it has put that back
            return
        with self._condition:
            self._is_asked = True
            self._condition.notify()

    def stop(self) -> None:
        with self._condition:
            self._is_stopped = True
            self._condition.notify()
        try:
            self._thread.join()
        finally:
            self._engine.nudge = self._engine.settle
            self._engine.is_ticking = False

    def _run(self) -> None:
        wait: float | None = 0.0
        while True:
            with self._condition:
                if not self._is_asked and not self._is_stopped:
                    self._condition.wait(wait)
                if self._is_stopped:
                    return
                self._is_asked = False
            try:
                wait = self._work()
            except LaminaError as error:  # told to those who wait; the next round tries again
                logger.warning("%s", error)
                wait = 1.0
            except Exception as error:
                logger.exception("the store's thread met a mistake of ours")
                self._engine.fail(LogFailed(f"the store's thread failed: {error!r}", hint="reopen it"))
                wait = 1.0

    def _work(self) -> float | None:
        """Do what is due. Returns the seconds until something is due by the clock."""
        engine = self._engine
        wait = None
        engine.is_ticking = False  # from here on a session that ends is told of, or is seen below
        if self._length_s and engine.failure is None and not engine.is_closed and engine.needs_switch():
            wait = engine.switched_at + self._length_s - engine.clock.monotonic()
            if wait <= 0 or engine.is_urgent():
                engine.switch_epoch()
                wait = 0.0
        engine.settle()
        engine.is_ticking = wait is not None
        return wait
