"""Files that are held open, so that they are the same when they are read as when they were chosen.

Beside a writer a name is not enough: an active file is rotated, and another one has its name. Once open, a file stays
what it is, whatever becomes of its name. So who chooses files from a list pins them, and lists again: if the list is
still the same, what is pinned is what was listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from lamina.log.files import File, Files, join
from lamina.log.segment import open_for_reading


class Pinned:
    """A disk on which some files were opened before. Threads: one at a time."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self.list, self.create, self.remove = files.list, files.create, files.remove
        self._held: dict[str, File] = {}

    def pin(self, folder: str, names: Iterable[str]) -> None:
        """Open these now. Raises: FileNotFoundError, DiskError; ``close`` it then, too."""
        for name in names:
            path = join(folder, name)
            if path not in self._held:
                self._held[path] = open_for_reading(self._files, folder, name)

    def open(self, path: str, *, write: bool = False) -> File:
        held = self._held.get(path)
        if held is None or write:
            return self._files.open(path, write=write)
        return cast("File", _Borrowed(held))

    def as_files(self) -> Files:
        """For those who open, list, make and remove files, and no more."""
        return cast("Files", self)

    def close(self) -> None:
        for file in self._held.values():
            file.close()
        self._held.clear()


class _Borrowed:
    """A pinned file, which whoever borrows it does not close."""

    def __init__(self, file: File) -> None:
        self.path, self.identity = file.path, file.identity
        self.size, self.read_into = file.size, file.read_into

    def close(self) -> None:
        pass
