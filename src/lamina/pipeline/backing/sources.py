"""One file of a data folder, as it is to be copied: which file it is, and up to where it counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lamina.errors import StorageError
from lamina.log import index as indexes
from lamina.log.files import File, Files, join, read_at
from lamina.log.index import State
from lamina.log.naming import INDEX_SUFFIX
from lamina.log.segment import open_for_reading

_AT_ONCE: Final = 1 << 20


class Changed(StorageError):
    """Files were taken away, renamed or rewritten meanwhile: look again."""

    code = StorageError.code

    def __init__(self, path: str) -> None:
        super().__init__(f"{path} changed while it was looked at", hint="try again")


@dataclass(frozen=True, slots=True)
class Source:
    """A file, or bytes that are to become one."""

    path: str
    """From the data folder on."""
    folder: str = ""
    name: str = ""
    identity: tuple[int, int] = (0, 0)
    end: int = 0
    data: bytes | None = None

    @property
    def size(self) -> int:
        return self.end if self.data is None else len(self.data)

    def open(self, disk: Files) -> File:
        """The very file that was looked at. Raises: Changed; DiskError."""
        try:
            file = open_for_reading(disk, self.folder, self.name)
        except FileNotFoundError:
            raise Changed(self.path) from None
        if file.identity != self.identity or file.size() < self.end:
            file.close()
            raise Changed(self.path)
        return file

    def chunks(self, disk: Files, start: int = 0) -> Iterator[bytes]:
        """Its bytes. Raises: Changed; DiskError."""
        if self.data is not None:
            yield self.data[start:]
            return
        file = self.open(disk)
        try:
            yield from chunks_of(file, start, self.end, self.path)
        finally:
            file.close()


def chunks_of(file: File, start: int, end: int, path: str) -> Iterator[bytes]:
    """Raises: Changed if it has become shorter; DiskError."""
    while start < end:
        chunk = read_at(file, start, min(_AT_ONCE, end - start))
        if not chunk:
            raise Changed(path)
        yield chunk
        start += len(chunk)


def of_file(path: str, folder: str, file: File, end: int | None = None) -> Source:
    """``file`` is open under the last part of ``path``."""
    return Source(path, folder, path.rpartition("/")[2], file.identity, file.size() if end is None else end)


def index_of(disk: Files, path: str, folder: str, file: File) -> Source | None:
    """The index that a file was sealed with, if nothing was taken out of it since: it tells just that, too."""
    name = path.rpartition("/")[2]
    found = indexes.load(disk, folder, name, file)
    if found is None or found.state is not State.SEALED:
        return None
    try:
        kept = disk.open(join(folder, name + INDEX_SUFFIX))
    except OSError:
        return None  # a hint: it is made anew
    try:
        return of_file(path + INDEX_SUFFIX, folder, kept)
    finally:
        kept.close()
