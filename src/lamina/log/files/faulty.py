"""A disk that fails when told to: the n-th write, sync or rename, with any error, also half done."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lamina.log.files import File, Files, FolderLock, Room, Watch, with_room

OPERATIONS = (
    "open",
    "create",
    "read",
    "append",
    "truncate",
    "sync",
    "list",
    "rename",
    "link",
    "remove",
    "sync_folder",
)


@dataclass
class Fault:
    """Fail calls of ``operation``: the ``nth`` that matches (from 1) and ``times`` in a row from there.

    An append may take ``taken`` bytes before it fails. With ``error`` 0 nothing is raised: that is a short write.
    """

    operation: str
    nth: int = 1
    error: int = errno.EIO
    times: int = 1
    taken: int = 0
    only: str = ""
    """Only paths that contain this."""
    seen: int = field(default=0, init=False)
    struck: int = field(default=0, init=False)

    def strikes(self, operation: str, path: str) -> bool:
        if operation != self.operation or self.only not in path:
            return False
        self.seen += 1
        if self.nth <= self.seen < self.nth + self.times:
            self.struck += 1
            return True
        return False


class FaultyFile:
    def __init__(self, files: FaultyFiles, inner: File) -> None:
        self._files, self._inner = files, inner

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def identity(self) -> tuple[int, int]:
        return self._inner.identity

    def size(self) -> int:
        return self._inner.size()

    def read_into(self, buffer: memoryview, offset: int) -> int:
        self._files.pass_or_fail("read", self.path)
        return self._inner.read_into(buffer, offset)

    def append(self, parts: Sequence[bytes | memoryview]) -> int:
        fault = self._files.fault_for("append", self.path)
        if fault is None or (fault.error and not fault.taken):
            strikes = [fault]
            return with_room(self._files, lambda: self._append(parts, strikes))
        taken = b"".join(parts)[: fault.taken]
        if taken:
            self._inner.append([taken])
        if fault.error:
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        return len(taken)

    def _append(self, parts: Sequence[bytes | memoryview], strikes: list[Fault | None]) -> int:
        fault = strikes.pop() if strikes else self._files.fault_for("append", self.path)
        if fault is not None:
            raise OSError(fault.error, os.strerror(fault.error), self.path)
        return self._inner.append(parts)

    def truncate(self, size: int) -> None:
        self._files.pass_or_fail("truncate", self.path)
        self._inner.truncate(size)

    def allocate(self, size: int) -> None:
        self._files.pass_or_fail("append", self.path)
        self._inner.allocate(size)

    def sync(self) -> None:
        self._files.pass_or_fail("sync", self.path)
        self._inner.sync()

    def close(self) -> None:
        self._inner.close()


class FaultyFiles:
    """Wraps a disk; ``fail(...)`` plants faults, ``calls`` is the history of (operation, path)."""

    def __init__(self, inner: Files) -> None:
        self.inner = inner
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda operation, path: None
        """Called before each operation, for tests that want to look at that moment."""
        self.on_full: Callable[[], bool] | None = None

    def fail(self, operation: str, **facts: int | str) -> Fault:
        """Plant a ``Fault``; the words are its fields."""
        if operation not in OPERATIONS:
            raise ValueError(f"{operation!r} is none of {', '.join(OPERATIONS)}")
        fault = Fault(operation, **facts)  # type: ignore[arg-type]
        self.faults.append(fault)
        return fault

    def heal(self) -> None:
        """Everything works again."""
        self.faults.clear()

    def fault_for(self, operation: str, path: str) -> Fault | None:
        self.before(operation, path)
        self.calls.append((operation, path))
        struck = [fault for fault in self.faults if fault.strikes(operation, path)]
        return struck[0] if struck else None

    def pass_or_fail(self, operation: str, path: str) -> None:
        if fault := self.fault_for(operation, path):
            raise OSError(fault.error, os.strerror(fault.error), path)

    def open(self, path: str, *, write: bool = False) -> FaultyFile:
        self.pass_or_fail("open", path)
        return FaultyFile(self, self.inner.open(path, write=write))

    def create(self, path: str) -> FaultyFile:
        return with_room(self, lambda: self._create(path))

    def _create(self, path: str) -> FaultyFile:
        self.pass_or_fail("create", path)
        return FaultyFile(self, self.inner.create(path))

    def list(self, folder: str) -> list[str]:
        self.pass_or_fail("list", folder)
        return self.inner.list(folder)

    def rename(self, old: str, new: str) -> None:
        self.pass_or_fail("rename", old)
        self.inner.rename(old, new)

    def link(self, old: str, new: str) -> None:
        self.pass_or_fail("link", old)
        self.inner.link(old, new)

    def remove(self, path: str) -> None:
        self.pass_or_fail("remove", path)
        self.inner.remove(path)

    def make_folder(self, folder: str) -> None:
        self.inner.make_folder(folder)

    def make_folder_unsynced(self, folder: str) -> Sequence[str]:
        return self.inner.make_folder_unsynced(folder)

    def remove_empty_folder(self, folder: str) -> bool:
        return self.inner.remove_empty_folder(folder)

    def rename_folder(self, old: str, new: str) -> None:
        self.pass_or_fail("rename_folder", old)
        self.inner.rename_folder(old, new)

    def remove_folder(self, folder: str) -> None:
        self.pass_or_fail("remove_folder", folder)
        self.inner.remove_folder(folder)

    def sync_folder(self, folder: str) -> None:
        self.pass_or_fail("sync_folder", folder)
        self.inner.sync_folder(folder)

    def is_link(self, path: str) -> bool:
        return self.inner.is_link(path)

    def lock(self, path: str) -> FolderLock | str:
        return self.inner.lock(path)

    def lock_holder(self, path: str) -> str | None:
        return self.inner.lock_holder(path)

    def watch(self, folder: str) -> Watch:
        return self.inner.watch(folder)

    def room(self, folder: str) -> Room:
        self.pass_or_fail("room", folder)
        return self.inner.room(folder)
