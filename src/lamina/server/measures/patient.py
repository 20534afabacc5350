"""A disk that is only read, with a rest before each read: for who looks at much and is in no hurry.

Resting here, and not between one thing and the next, it does not matter how large one of them is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from lamina.log.files import File, Files


def patient(files: Files, rest: Callable[[], None]) -> Files:
    """``files`` to be looked at. ``rest`` returns when it may go on; what it raises comes out of the read."""
    return cast("Files", _Patient(files, rest))


class _Patient:
    def __init__(self, files: Files, rest: Callable[[], None]) -> None:
        self._files = files
        self._rest = rest

    def list(self, folder: str) -> list[str]:
        self._rest()
        return self._files.list(folder)

    def open(self, path: str, *, write: bool = False) -> File:
        assert not write
        return cast("File", _PatientFile(self._files.open(path), self._rest))


class _PatientFile:
    def __init__(self, file: File, rest: Callable[[], None]) -> None:
        self.path, self.identity = file.path, file.identity
        self.size, self.close = file.size, file.close
        self._read_into = file.read_into
        self._rest = rest

    def read_into(self, buffer: memoryview, offset: int) -> int:
        self._rest()
        return self._read_into(buffer, offset)
