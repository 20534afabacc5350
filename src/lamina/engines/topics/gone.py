"""Folders of topics that were deleted: out of the way in one step, and removed when there is time for it.

topics/.gone-1700000000123456789     a name that no topic can have; the number is when it was deleted
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from itertools import count
from typing import Final

from lamina.clock import Clock
from lamina.errors import from_os
from lamina.log.files import Files, join

_PREFIX: Final = ".gone-"


class GoneFolders:
    """Threads: every method is safe from any thread."""

    def __init__(self, files: Files, folder: str, clock: Clock, listed: Iterable[str]) -> None:
        """``listed``: what is in the folder of all topics."""
        self._files, self._folder, self._clock = files, folder, clock
        self._names = [name for name in listed if name.startswith(_PREFIX)]
        self._lock = threading.Lock()  # held for moments

    def take(self, folder: str) -> None:
        """Put a folder out of the way, if it is there.

        Durability: when it returns, it is gone for good. Raises: DiskError; then it may be there still.
        """
        for number in count(self._clock.now_ns()):
            name = f"{_PREFIX}{number}"
            try:
                self._files.rename_folder(folder, join(self._folder, name))
            except FileExistsError:
                continue
            except FileNotFoundError:
                return
            except OSError as error:
                self._add(name)  # it may be there, and not be synced
                raise from_os(error, "delete the folder", folder) from error
            self._add(name)
            return

    def _add(self, name: str) -> None:
        with self._lock:
            self._names.append(name)

    def sweep(self) -> None:
        """Give back the room. Raises: DiskError; then the rest is for another time."""
        while self._names:
            with self._lock:
                name = next(reversed(self._names), None)
            if name is None:
                return
            folder = join(self._folder, name)
            try:
                with suppress(FileNotFoundError):
                    self._files.remove_folder(folder)
            except OSError as error:
                raise from_os(error, "remove the folder", folder) from error
            with self._lock, suppress(ValueError):  # somebody else was quicker
                self._names.remove(name)
