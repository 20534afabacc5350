"""The files of a log as they are at one moment, and what shows that records were taken out of them.

All files are opened before any is read, and then it is looked whether they are still the same: files of different
moments together, some cleaned and some not, would look like a history that never was. Once open, a file stays what it
is.

A record without its beginning is a violation, unless cleaning took the beginning. Cleaning leaves a trace:

    a file is gone          numbers of files have a hole, or do not begin with the first; names that are times cannot
                            have one, but the oldest file says at its head that records came before it
    a file was rewritten    sealed files have an index, kept when they were sealed; a rewrite removes it, and nobody
                            makes another. (So it is with files of workq, which has none.)

The trace has to be in an older file than the record: within a file, cleaning takes a beginning only with its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from lamina.errors import StorageError, from_os
from lamina.log import index as indexes
from lamina.log.files import File, Files
from lamina.log.naming import FileName, sort_out
from lamina.log.segment import open_for_reading

_TRIES: Final = 64


@dataclass(slots=True)
class HeldFile:
    """One file, open."""

    name: FileName
    file: File
    size: int
    is_newest: bool
    """Of its stream: it may be growing, and a crash may have torn its end."""
    is_sealed_whole: bool
    """It has the index that it was sealed with, or that grows with it: nothing was taken out of it since."""


class Held:
    """Use it with ``with``."""

    def __init__(self, disk: Files, folder: str) -> None:
        """Raises: DiskError; StorageError if the files change too quickly."""
        self.disk, self.folder = disk, folder
        self.names: list[str] = []
        """All names in the folder."""
        self.streams: dict[str, list[HeldFile]] = {}
        """Files of each stream, oldest first."""
        for _ in range(_TRIES):
            if self._open_all():
                return
            self.close()
        raise StorageError(f"{folder} is cleaned too quickly to be looked at", hint="try again")

    def close(self) -> None:
        for files in self.streams.values():
            for held in files:
                held.file.close()
        self.streams = {}

    def __enter__(self) -> Held:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _open_all(self) -> bool:
        """False: something changed meanwhile."""
        self.names = self._list()
        for stream, names in sort_out(self.names).streams().items():
            held = self.streams[stream] = []
            for name in names:
                try:
                    file = open_for_reading(self.disk, self.folder, name.name)
                except FileNotFoundError:
                    return False
                is_newest = name is names[-1] and not name.is_closed
                index = indexes.load(self.disk, self.folder, name.name, file, may_end_early=is_newest)
                held.append(HeldFile(name, file, file.size(), is_newest, is_sealed_whole=index is not None))
        return all(self._is_same(held) for files in self.streams.values() for held in files)

    def _is_same(self, held: HeldFile) -> bool:
        try:
            again = open_for_reading(self.disk, self.folder, held.name.name)
        except FileNotFoundError:
            return False
        try:
            return again.identity == held.file.identity
        finally:
            again.close()

    def _list(self) -> list[str]:
        try:
            return self.disk.list(self.folder)
        except OSError as error:
            raise from_os(error, "list the folder", self.folder) from error
