"""Room on the disk that is kept for the day it is full, for what has to go on then: ends of work, and cleaning up.

It is a file of no use but its size. When the disk is full it is given away, new work is refused, and what goes on
writes into the room. When there is room again the file is made anew.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import threading

from lamina.clock import Clock
from lamina.log.files import Files
from lamina.units import MIB

SIZE = 16 * MIB
logger = logging.getLogger("lamina.log")

_EVERY_S = 0.5  # how often it is tried to get the room back


class Reserve:
    """Of one folder. Threads: safe from any thread."""

    def __init__(self, files: Files, path: str, clock: Clock, size: int = SIZE) -> None:
        self._files = files
        self._path = path
        self._clock = clock
        self._size = size
        self._lock = threading.RLock()
        self._again_at = 0.0
        self.is_held = False
        self._is_given_up = False  # the disk cannot keep room: it has to do without
        self.hold()

    def hold(self) -> bool:
        """Take the room if it is there. Tries twice a second at most."""
        with self._lock:
            if self.is_held or self._clock.monotonic() < self._again_at:
                return self.is_held
            self._again_at = self._clock.monotonic() + _EVERY_S
            try:
                self.is_held = self._is_there() or self._make()
            except OSError as error:
                self._remove()
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    logger.warning("no room is kept for a full disk: %s", error)
                    self.is_held = self._is_given_up = True
            return self.is_held

    def give(self) -> None:
        """The disk is full: let others have the room."""
        with self._lock:
            if not self.is_held or self._is_given_up:
                return
            self._remove()
            self.is_held = False
            self._again_at = self._clock.monotonic() + _EVERY_S

    def _is_there(self) -> bool:
        try:
            file = self._files.open(self._path)
        except FileNotFoundError:
            return False
        try:
            is_whole = file.size() == self._size
        finally:
            file.close()
        if not is_whole:
            self._files.remove(self._path)
        return is_whole

    def _make(self) -> bool:
        file = self._files.create(self._path)
        try:
            file.allocate(self._size)
            file.sync()
        finally:
            file.close()
        return True

    def _remove(self) -> None:
        with contextlib.suppress(OSError):
            self._files.remove(self._path)
