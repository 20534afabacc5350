"""The disk, as the kernel sees it: one small interface, three implementations.

    RealFiles     the operating system                        (real.py)
    MemoryFiles   a disk in memory, with POSIX semantics      (memory.py)
    FaultyFiles   any of them, failing when told to           (faulty.py)

Nothing else in ``log/`` or the engines calls the operating system's file functions. Implementations raise ``OSError``
as the operating system does; the kernel translates with ``errors.from_os`` where it knows what was being done.

Paths are plain strings, joined with ``/``.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeVar

from lamina.errors import from_os

T = TypeVar("T")


class File(Protocol):
    """One open file. It stays readable after it was renamed or removed."""

    @property
    def path(self) -> str:
        """The name it was opened by."""

    @property
    def identity(self) -> tuple[int, int]:
        """Tells this file from another one under the same name (device and inode)."""

    def size(self) -> int: ...

    def read_into(self, buffer: memoryview, offset: int) -> int:
        """Fill ``buffer`` from ``offset``; fewer bytes only at the end of the file."""

    def append(self, parts: Sequence[bytes | memoryview]) -> int:
        """Write at the end, in order. Returns the bytes taken, which may be fewer than offered."""

    def truncate(self, size: int) -> None: ...

    def allocate(self, size: int) -> None:
        """Make an empty file so large, of zeros, with all its room taken from the disk."""

    def sync(self) -> None:
        """Return when the content is on the disk. The name may need ``sync_folder``."""

    def close(self) -> None:
        """Let it go; twice does nothing. What the system has to say then is logged, not raised: the handle is gone, and
        whoever needs the content to be safe has synced it.
        """


class FolderLock(Protocol):
    """A lock held until it is released or the process ends, whichever comes first."""

    def release(self) -> None:
        """Let it go, as ``File.close``."""


class Watch(Protocol):
    """Tells when something in a folder changes."""

    def wait(self, seconds: float) -> bool:
        """Return True as soon as a change is seen, False when the time has passed."""

    def close(self) -> None:
        """Let it go, as ``File.close``."""


class Room(NamedTuple):
    """Of a disk, in bytes."""

    size: int
    free: int
    """What this process may still take."""


class Files(Protocol):
    """A disk."""

    on_full: Callable[[], bool] | None
    """Called when the disk refused something for want of room: whether there is more now, so that it is tried once
    more (log/reserve.py). None: it is refused.
    """

    def open(self, path: str, *, write: bool = False) -> File:
        """Open an existing file."""

    def create(self, path: str) -> File:
        """Make a new empty file, open for appending. Raises FileExistsError if the name is taken."""

    def list(self, folder: str) -> list[str]:
        """Names in a folder, in no particular order."""

    def rename(self, old: str, new: str) -> None:
        """Give ``old`` the name ``new``, replacing what had it, in one step."""

    def link(self, old: str, new: str) -> None:
        """Give the file ``old`` a second name: one content, kept until the last name is removed.

        Raises FileExistsError if the name is taken; OSError too where the two names are on different disks, or where
        the disk has no such thing.
        """

    def remove(self, path: str) -> None: ...

    def make_folder(self, folder: str) -> None:
        """Make a folder (and those above it) if it is not there, so that it survives a power cut."""

    def make_folder_unsynced(self, folder: str) -> Sequence[str]:
        """The same without waiting for the disk. Returns the folders that got a new name: sync those, in this order."""

    def remove_empty_folder(self, folder: str) -> bool:
        """Remove a folder if nothing is in it. Returns whether that was so; a folder that is not there was not."""

    def rename_folder(self, old: str, new: str) -> None:
        """Give a folder another name, beside or elsewhere, in one step, so that it survives a power cut.

        Raises FileExistsError if the name is taken. Files in it that are open stay so.
        """

    def remove_folder(self, folder: str) -> None:
        """Remove a folder and all that is in it. A power cut may leave some of it."""

    def sync_folder(self, folder: str) -> None:
        """Return when names made, renamed and removed in the folder are on the disk."""

    def is_link(self, path: str) -> bool:
        """Whether that is a symbolic link. False where nothing is, too."""

    def lock(self, path: str) -> FolderLock | str:
        """Take the lock that ``path`` stands for, or say who holds it."""

    def lock_holder(self, path: str) -> str | None:
        """Who holds that lock now, None if nobody does. Changes nothing."""

    def watch(self, folder: str) -> Watch: ...

    def room(self, folder: str) -> Room:
        """Of the disk that the folder is on. It is quick: no disk is waited for."""


def is_full(error: OSError) -> bool:
    """The disk has no room, or this user may not take more of it."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def with_room(files: Files, act: Callable[[], T]) -> T:
    """Do what needs room on the disk; once more if there was none, and somebody gave some. For implementations."""
    try:
        return act()
    except OSError as error:
        if not is_full(error) or files.on_full is None or not files.on_full():
            raise
    return act()


def read_into(file: File, buffer: memoryview, offset: int) -> int:
    """Fill ``buffer`` from ``offset``. Raises: DiskError naming the file."""
    try:
        return file.read_into(buffer, offset)
    except OSError as error:
        raise from_os(error, "read the file", file.path) from error


def file_size(file: File) -> int:
    """How many bytes it has. Raises: DiskError naming the file."""
    try:
        return file.size()
    except OSError as error:
        raise from_os(error, "look at the file", file.path) from error


def read_at(file: File, offset: int, size: int) -> bytes:
    """Up to ``size`` bytes from ``offset``. Raises: DiskError naming the file."""
    buffer = bytearray(size)
    return bytes(buffer[: read_into(file, memoryview(buffer), offset)])


def write_all(file: File, parts: Sequence[bytes]) -> None:
    """Append all of it, going on after short writes."""
    rest = b"".join(parts)
    while rest:
        taken = file.append([rest])
        if taken <= 0:
            raise OSError(5, "the disk took no bytes")
        rest = rest[taken:]


def join(folder: str, name: str) -> str:
    return f"{folder.rstrip('/')}/{name}" if folder else name
