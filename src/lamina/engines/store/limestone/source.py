"""The folder that is read: its names, its lock, and its files, which are opened for reading only."""

from __future__ import annotations

from typing import Final

from lamina.errors import Corruption, LogLocked, from_os
from lamina.log.files import File, Files, join, read_at
from lamina.log.segment import open_for_reading

MANIFEST: Final = "limestone-manifest.json"
BACK: Final = ".back"

HINT: Final = "the folder was not changed; restore it from a backup, or correct it with the tools of limestone"


def damaged(file: str, offset: int, reason: str) -> Corruption:
    return Corruption(file, offset, reason, hint=HINT)


class Source:
    """One folder of limestone.

    Raises: DiskError naming the path, for all that it does.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.folder = folder
        try:
            self.names = frozenset(files.list(folder))
        except OSError as error:
            raise from_os(error, "list the folder", folder) from error

    def check_unlocked(self) -> None:
        """Nobody may write while it is read. Raises: LogLocked.

        Only asked, not taken: to take the lock would change the manifest. So ask before and after reading.
        """
        if self._files.lock_holder(join(self.folder, MANIFEST)) is not None:
            raise LogLocked(
                f"{self.folder}: another process is using the log folder",
                hint="stop it first: what it writes now would be missing",
                folder=self.folder,
            )

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def is_folder(self, name: str) -> bool:
        try:
            self._files.list(join(self.folder, name))
        except OSError:
            return False
        return True

    def open(self, name: str) -> File:
        try:
            return open_for_reading(self._files, self.folder, name)
        except FileNotFoundError as error:
            raise from_os(error, "open the file", join(self.folder, name)) from error

    def read_whole(self, name: str, most: int) -> bytes:
        """All of a small file. Raises: Corruption if it has more than ``most`` bytes."""
        file = self.open(name)
        try:
            size = file.size()
            if size > most:
                raise damaged(name, 0, f"{size} bytes are too many for such a file")
            return read_at(file, 0, size)
        finally:
            file.close()
