"""A thread that fills the history from its log, then notes the figures of the server every 10 seconds."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Final

from lamina.clock import Clock, SystemClock
from lamina.server.history.history import EVERY_S, History

logger = logging.getLogger("lamina.server")

_LONGEST_S: Final = 10.0
_LEAST_S: Final = 2.0  # from one sample to the next


class Sampler:
    """Between ``start`` and ``stop``. What goes wrong is told once; the server is not disturbed."""

    def __init__(
        self,
        history: History,
        figures: Callable[[], Mapping[str, float]],
        counters: Callable[[], Mapping[str, float]] | None = None,
        *,
        clock: Clock | None = None,
    ) -> None:
        """``figures``: those of now. ``counters``: those of /metrics, which are to go on after a restart."""
        self._history, self._figures, self._counters = history, figures, counters
        self._clock = clock or SystemClock()
        self._stopped = threading.Event()
        self._is_told = False
        self._threads = [
            threading.Thread(target=self._load, name="lamina-history-load", daemon=True),
            threading.Thread(target=self._run, name="lamina-history", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Note the last figures and end. The engines are still open."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_LONGEST_S)
        self.take()

    def take(self) -> None:
        """Note the figures of now."""
        try:
            self._history.sample(self._figures())
            if self._counters is not None:
                self._history.note(self._counters())
        except Exception as error:
            self._tell(error)

    def _load(self) -> None:
        try:
            self._history.load(self._stopped.is_set)
        except Exception as error:
            self._tell(error)

    def _run(self) -> None:
        self.take()
        while not self._stopped.wait(self._seconds_to_next()):
            self.take()

    def _seconds_to_next(self) -> float:
        """Until the middle of a step of the history: then a thread that comes late still comes in the right one."""
        past = self._clock.now_ns() / 1e9 % EVERY_S
        wait = (EVERY_S / 2 - past) % EVERY_S
        return wait if wait >= _LEAST_S else wait + EVERY_S

    def _tell(self, error: Exception) -> None:
        if not self._is_told:
            logger.warning("the history of this server is not kept as it should be: %r", error)
        self._is_told = True
