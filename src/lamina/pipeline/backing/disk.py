"""A generation as a disk: whoever reads a data folder reads it the same way, and nothing can be written to it.

Every byte of a file is looked at when it is opened for the first time: what is read from a backup was not changed.
Elsewhere than in the folder of the backup it is the disk that the backup is on: what does not fit into memory while the
store is read goes to files there.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection
from typing import cast

from lamina.log.files import File, Files
from lamina.pipeline.backing.contents import check_whole
from lamina.pipeline.backing.manifest import BackedFile, Generation
from lamina.pipeline.backing.place import Backup


class GenerationDisk:
    """For those who open and list files, and who make and remove some elsewhere. Threads: one at a time."""

    def __init__(self, backup: Backup, generation: Generation, checked: Collection[str] = ()) -> None:
        """``checked``: digests of contents whose every byte was looked at just now."""
        self._backup, self.root = backup, backup.folder
        self._files: dict[str, BackedFile] = {}
        self._folders: dict[str, set[str]] = {self.root: set()}
        self._checked = {*checked}
        for file in generation.files:
            folder = self.root
            *above, name = file.path.split("/")
            for part in above:
                self._folders[folder].add(part)
                folder = f"{folder}/{part}"
                self._folders.setdefault(folder, set())
            self._folders[folder].add(name)
            self._files[f"{folder}/{name}"] = file

    @property
    def files(self) -> Files:
        return cast("Files", self)

    def list(self, folder: str) -> list[str]:
        names = self._folders.get(folder.rstrip("/"))
        if names is not None:
            return sorted(names)
        number = errno.ENOTDIR if folder in self._files else errno.ENOENT
        raise OSError(number, os.strerror(number), folder)

    def open(self, path: str, *, write: bool = False) -> File:
        """Raises: Corruption, if it is not what was backed up."""
        if self._is_elsewhere(path):
            return self._backup.files.open(path, write=write)
        if write:
            raise OSError(errno.EROFS, "a backup is only read", path)
        file = self._files.get(path)
        if file is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        check_whole(self._backup.contents, file, self._checked)
        return self._backup.contents.open(file)

    def create(self, path: str) -> File:
        self._check_elsewhere(path)
        return self._backup.files.create(path)

    def remove(self, path: str) -> None:
        self._check_elsewhere(path)
        self._backup.files.remove(path)

    def _is_elsewhere(self, path: str) -> bool:
        return not path.startswith(f"{self.root}/")

    def _check_elsewhere(self, path: str) -> None:
        if not self._is_elsewhere(path):
            raise OSError(errno.EROFS, "a backup is only read", path)

    def lock_holder(self, path: str) -> str | None:
        return None
