"""A disk in memory, with the semantics the kernel relies on: names point to contents, open files keep theirs."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lamina.log.files import Room, with_room

_LARGE: Final = 1 << 40


class Content:
    """What an inode is on a real disk."""

    def __init__(self, number: int, data: bytes = b"") -> None:
        self.number = number
        self.data = bytearray(data)


class MemoryFile:
    def __init__(self, files: MemoryFiles, path: str, content: Content, *, write: bool) -> None:
        self.path = path
        self.content = content
        self._files = files
        self._write = write
        self._open = True
        files.handles.add(self)

    @property
    def identity(self) -> tuple[int, int]:
        return (0, self.content.number)

    def size(self) -> int:
        return len(self.content.data)

    def read_into(self, buffer: memoryview, offset: int) -> int:
        chunk = self.content.data[offset : offset + len(buffer)]
        buffer[: len(chunk)] = chunk
        return len(chunk)

    def append(self, parts: Sequence[bytes | memoryview]) -> int:
        self._check()
        data = b"".join(parts)
        if self._files.size is not None:
            with_room(self._files, lambda: self._check_room(len(data)))
        self._files.do_append(self.content, data)
        return len(data)

    def _check_room(self, size: int) -> None:
        if size > self._files.room("").free:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), self.path)

    def truncate(self, size: int) -> None:
        self._check()
        self._files.do_truncate(self.content, size)

    def allocate(self, size: int) -> None:
        self.append([bytes(size)])

    def sync(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._files.do_sync(self.content)

    def close(self) -> None:
        self._open = False
        self._files.handles.discard(self)

    def _check(self) -> None:
        if not (self._open and self._write):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)


class MemoryLock:
    def __init__(self, held: set[str], path: str) -> None:
        self._held, self._path = held, path
        self._is_held = True

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._held.discard(self._path)


class MemoryWatch:
    def __init__(self, changed: threading.Condition, files: MemoryFiles) -> None:
        self._changed, self._files = changed, files
        self._seen = files.changes

    def wait(self, seconds: float) -> bool:
        with self._changed:
            told = self._changed.wait_for(lambda: self._files.changes != self._seen, seconds)
            self._seen = self._files.changes
        return told

    def close(self) -> None:
        pass


class MemoryFiles:
    """A disk in memory. ``do_...`` are the steps that change it, for subclasses to watch (PowerLoss)."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.names: dict[str, Content] = {}
        self.folders: set[str] = {""}
        self.size: int | None = None
        """Bytes of the disk; what does not fit any more is refused as a full disk does. None: it is large."""
        self.on_full: Callable[[], bool] | None = None
        self.changes = 0
        self.handles: set[MemoryFile] = set()
        """Files that are open."""
        self.locks: set[str] = set()
        """Paths of the locks that are held."""
        self._changed = threading.Condition()
        self._next_number = 0
        for path, data in (contents or {}).items():
            self._add_parents(path)
            self.names[path] = self.new_content(data)

    # -- the interface -------------------------------------------------------------------------------------------

    def open(self, path: str, *, write: bool = False) -> MemoryFile:
        return MemoryFile(self, path, self._find(path), write=write)

    def create(self, path: str) -> MemoryFile:
        if path in self.names or path in self.folders:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
        self._check_folder(os.path.dirname(path))
        content = self.new_content()
        self.do_link(path, content)
        return MemoryFile(self, path, content, write=True)

    def list(self, folder: str) -> list[str]:
        self._check_folder(folder)
        return [
            os.path.basename(path) for path in [*self.names, *self.folders] if path and os.path.dirname(path) == folder
        ]

    def rename(self, old: str, new: str) -> None:
        self._find(old)
        self._check_folder(os.path.dirname(new))
        self.do_rename(old, new)

    def link(self, old: str, new: str) -> None:
        content = self._find(old)
        self._check_folder(os.path.dirname(new))
        if new in self.names or new in self.folders:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self.do_link(new, content)

    def remove(self, path: str) -> None:
        self._find(path)
        self.do_remove(path)

    def make_folder(self, folder: str) -> None:
        for parent in _parents(folder + "/"):
            if parent in self.names:
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        self._add_parents(folder + "/")

    def make_folder_unsynced(self, folder: str) -> Sequence[str]:
        new = [parent for parent in _parents(folder + "/") if parent not in self.folders]
        self.make_folder(folder)
        return [os.path.dirname(path) for path in reversed(new)]

    def remove_empty_folder(self, folder: str) -> bool:
        if folder in self.names:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
        if folder not in self.folders or self.list(folder):
            return False
        self.folders.discard(folder)
        return True

    def rename_folder(self, old: str, new: str) -> None:
        self._check_folder(old)
        self._check_folder(os.path.dirname(new))
        if new in self.folders or new in self.names:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        self.do_rename_all({path: new + path[len(old) :] for path in self.names if path.startswith(old + "/")})
        self.folders = {new + path[len(old) :] if f"{path}/".startswith(old + "/") else path for path in self.folders}
        self.sync_folder(os.path.dirname(new))

    def remove_folder(self, folder: str) -> None:
        self._check_folder(folder)
        for path in [path for path in self.names if path.startswith(folder + "/")]:
            self.do_remove(path)
        self.folders = {path for path in self.folders if not f"{path}/".startswith(folder + "/")}

    def sync_folder(self, folder: str) -> None:
        self._check_folder(folder)
        self.do_sync_folder(folder)

    def is_link(self, path: str) -> bool:
        return False

    def lock(self, path: str) -> MemoryLock | str:
        if path in self.locks:
            return "this process"
        self.locks.add(path)
        return MemoryLock(self.locks, path)

    def lock_holder(self, path: str) -> str | None:
        return "this process" if path in self.locks else None

    def watch(self, folder: str) -> MemoryWatch:
        self._check_folder(folder)
        return MemoryWatch(self._changed, self)

    # -- for tests -----------------------------------------------------------------------------------------------

    def contents(self) -> dict[str, bytes]:
        """Every file and its bytes."""
        return {path: bytes(content.data) for path, content in self.names.items()}

    def write(self, path: str, data: bytes) -> None:
        """Put ``data`` there, whatever was there before."""
        self._add_parents(path)
        self.names[path] = self.new_content(data)

    def drop_locks(self) -> None:
        """The process that held them, and had files open, was killed."""
        self.locks.clear()
        self.handles.clear()

    def new_content(self, data: bytes = b"") -> Content:
        self._next_number += 1
        return Content(self._next_number, data)

    def room(self, folder: str) -> Room:
        size = _LARGE if self.size is None else self.size
        used = sum(len(content.data) for content in {id(one): one for one in self.names.values()}.values())
        return Room(size, max(size - used, 0))

    # -- the steps that change the disk --------------------------------------------------------------------------

    def do_append(self, content: Content, data: bytes) -> None:
        content.data += data
        self._tell()

    def do_truncate(self, content: Content, size: int) -> None:
        del content.data[size:]
        content.data.extend(bytes(size - len(content.data)))
        self._tell()

    def do_sync(self, content: Content) -> None:
        pass

    def do_link(self, path: str, content: Content) -> None:
        self.names[path] = content
        self._tell()

    def do_rename(self, old: str, new: str) -> None:
        self.names[new] = self.names.pop(old)
        self._tell()

    def do_rename_all(self, names: dict[str, str]) -> None:
        """In one step."""
        self.names = {names.get(path, path): content for path, content in self.names.items()}
        self._tell()

    def do_remove(self, path: str) -> None:
        del self.names[path]
        self._tell()

    def do_sync_folder(self, folder: str) -> None:
        pass

    def _tell(self) -> None:
        with self._changed:
            self.changes += 1
            self._changed.notify_all()

    def _find(self, path: str) -> Content:
        if path not in self.names:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self.names[path]

    def _check_folder(self, folder: str) -> None:
        if folder not in self.folders:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), folder)

    def _add_parents(self, path: str) -> None:
        for parent in _parents(path):
            self.folders.add(parent)


def _parents(path: str) -> Iterator[str]:
    while path not in ("", "/"):
        path = os.path.dirname(path)
        yield path
