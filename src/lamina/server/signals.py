"""Signals: the first SIGTERM or SIGINT asks for an orderly stop, a second one gets a stop at once; SIGHUP reloads.

At once is safe: the files are always such that a killed server loses nothing it answered. While engines restore there
is no loop that could be told: then the first one is an exception in the thread that restores.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Final

logger = logging.getLogger("lamina.server")

_STOPPING: Final = (signal.SIGTERM, signal.SIGINT)
_ALL: Final = (*_STOPPING, signal.SIGHUP)


class StopAsked(BaseException):
    """A signal came while there was no loop. It is no error, and nothing may take it for one."""


class Signals:
    """Of one server."""

    def __init__(self) -> None:
        self.name = ""
        """Of the signal that asked for the stop; empty: none did."""
        self.wants_reload = False
        """SIGHUP came before anybody could follow it."""

    @contextmanager
    def taken(self) -> Iterator[None]:
        """From here on they come here. In another thread than the main one there are none."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._came_early) for number in _ALL}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _came_early(self, number: int, frame: FrameType | None) -> None:
        self._note(number, frame)
        if number in _STOPPING:  # not SIGHUP: one that comes behind them must not break off what is being closed
            raise StopAsked(self.name)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.wants_reload = True
        else:
            self._asks_to_stop(number)

    def loop_begins(self) -> None:
        """From here to ``on_loop`` they are only noted: an exception could come up inside the loop itself."""
        if threading.current_thread() is threading.main_thread():
            for number in _ALL:
                signal.signal(number, self._note)

    def _asks_to_stop(self, number: int) -> None:
        if self.name:
            self.stop_at_once(number)
        self.name = signal.Signals(number).name

    def on_loop(self, stop: Callable[[], None], reload: Callable[[], None]) -> None:
        """While the loop runs it is told. One that came before is followed now.

        Not by the loop's own handlers: one that closes leaves its signals to the system for a moment, which kills.
        """
        loop = asyncio.get_running_loop()

        def came(number: int, frame: FrameType | None) -> None:
            if number in _STOPPING:
                self._asks_to_stop(number)
            with suppress(RuntimeError):  # it is closed: whatever was asked for comes too late
                loop.call_soon_threadsafe(stop if number in _STOPPING else reload)

        if threading.current_thread() is not threading.main_thread():
            return
        for number in _ALL:
            signal.signal(number, came)
        if self.name:
            stop()

    def closing(self) -> None:
        """The loop is gone, engines are being closed: a second signal ends that, and a reload comes too late."""
        if threading.current_thread() is threading.main_thread():
            for number in _STOPPING:
                signal.signal(number, lambda number, frame: self.stop_at_once(number))
            signal.signal(signal.SIGHUP, signal.SIG_IGN)

    @staticmethod
    def stop_at_once(number: int) -> None:
        """Nothing is closed; the next start recovers as after a kill."""
        logger.warning("%s again: stopped at once, the next start recovers", signal.Signals(number).name)
        os._exit(128 + number)
