"""One file of a data folder, as it is to be copied: which file it is, and up to where it counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from lamina.errors import Corruption, StorageError
from lamina.log import index as indexes
from lamina.log import lock
from lamina.log.attest import next_record
from lamina.log.files import File, Files, join, read_at
from lamina.log.frame import REASONS, Stop
from lamina.log.index import State
from lamina.log.naming import FAMILIES, INDEX_SUFFIX
from lamina.log.scan import read_record
from lamina.log.segment import open_for_reading
from lamina.pipeline.snapshot import PinnedFile

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


_LOCKS: Final = tuple(family.lock_name for family in FAMILIES.values())


def left_of(disk: Files, pinned: PinnedFile) -> int:
    """Bytes of a growing file behind its last whole record, which are not backed up: torn by a crash, or just coming.

    Raises: Corruption if whole records stand behind them, though somebody has the log open: a crash may leave that, a
        writer never does.
    """
    folder = pinned.place.folder
    try:
        file = open_for_reading(disk, folder, pinned.name)
    except FileNotFoundError:
        return 0  # whoever copies it says so
    try:
        size = file.size()
        found = read_record(file, pinned.end, size)
        if file.identity != pinned.identity or not isinstance(found, Stop) or found is Stop.END:
            return 0  # another one by now, or it has grown
        is_held = any(disk.lock_holder(join(folder, name)) is not None for name in _LOCKS)
        if is_held or lock.holder_above(disk, folder) is not None:
            if next_record(file, pinned.end, size, pinned.last_ns or 0) is not None:
                raise Corruption(pinned.name, pinned.end, f"{REASONS[found]}, and whole records stand behind it")
            return 0
        return size - pinned.end
    finally:
        file.close()
