"""Files of the operating system.  The only module of the kernel that calls it for them."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import select
import shutil
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from lamina.log.files import Room, is_full, with_room

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700
# Links are not followed: a link planted in a data folder must not make us write elsewhere.
# Not blocking: a pipe with the name of a log file must not hang us.
_SAFE: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_LOCK_TRIES: Final = 5
_OURSELVES: Final = "process {}"
_MOST_PARTS: Final = 1024  # IOV_MAX on Linux
_MOST_READ: Final = 1 << 30  # one read(2) takes at most 2 GiB

logger = logging.getLogger("lamina.log")

_sync_data = getattr(os, "fdatasync", os.fsync)  # macOS has no fdatasync


class RealFile:
    def __init__(self, files: RealFiles, path: str, flags: int) -> None:
        self.path = path
        self._files = files
        self._handle = os.open(path, flags | _SAFE, FILE_MODE)
        try:
            facts = os.fstat(self._handle)
            self.identity = (facts.st_dev, facts.st_ino)
            if not stat.S_ISREG(facts.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", path)
        except BaseException:
            self.close()
            raise

    def size(self) -> int:
        return os.fstat(self._handle).st_size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        done = 0
        while done < len(buffer):
            count = os.preadv(self._handle, [buffer[done : done + _MOST_READ]], offset + done)
            if count == 0:
                break
            done += count
        return done

    def append(self, parts: Sequence[bytes | memoryview]) -> int:
        try:
            return self._append(parts)
        except OSError as error:
            if not is_full(error) or self._files.on_full is None or not self._files.on_full():
                raise
        return self._append(parts)

    def _append(self, parts: Sequence[bytes | memoryview]) -> int:
        if len(parts) == 1:
            return os.write(self._handle, parts[0])
        return os.writev(self._handle, parts[:_MOST_PARTS])

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def allocate(self, size: int) -> None:
        with contextlib.suppress(AttributeError):
            try:
                os.posix_fallocate(self._handle, 0, size)
                return
            except OSError as error:
                if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                    raise
        while (left := size - self.size()) > 0:  # macOS, and file systems that cannot
            os.write(self._handle, bytes(min(left, 1 << 20)))

    def sync(self) -> None:
        if self._handle < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        _sync_data(self._handle)

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            _close(handle, self.path)


def _close(handle: int, path: str) -> None:
    """Linux lets the handle go whatever it says, so it must not be closed again."""
    try:
        os.close(handle)
    except OSError as error:
        logger.warning("%s: closing the file: %s", path, error.strerror)


class RealLock:
    """An flock: the operating system drops it with the process, so a killed holder blocks nobody."""

    def __init__(self, handle: int, path: str) -> None:
        self._handle, self._path = handle, path

    def release(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
            _close(handle, self._path)


def _try_lock(handle: int) -> bool:
    """Tries for a moment: whoever asks for the holder (``lock_holder``) has the lock for an instant."""
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            time.sleep(0.005)
        else:
            return True
    return False


class PollWatch:
    """Waits its time out and lets the caller look: for systems without change events."""

    def wait(self, seconds: float) -> bool:
        time.sleep(seconds)
        return False

    def close(self) -> None:
        pass


class InotifyWatch:
    """Linux tells us when a file of the folder was written, made, renamed or removed."""

    _MODIFY, _MOVED, _CREATE, _DELETE = 0x2, 0x40 | 0x80, 0x100, 0x200

    def __init__(self, folder: str) -> None:
        import ctypes

        libc = ctypes.CDLL(None, use_errno=True)
        self._handle = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        wanted = self._MODIFY | self._MOVED | self._CREATE | self._DELETE
        if self._handle < 0 or libc.inotify_add_watch(self._handle, os.fsencode(folder), wanted) < 0:
            number = ctypes.get_errno()
            self.close()
            raise OSError(number, os.strerror(number), folder)

    def wait(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._handle, select.POLLIN)
        is_told = bool(poll.poll(max(seconds, 0) * 1000))
        if is_told:
            os.read(self._handle, 65536)  # what changed does not matter: the reader looks for itself
        return is_told

    def close(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            _close(handle, "the watch of a folder")


class _Spare:
    """A handle that is kept for the day there are none left: what was written has to be made safe all the same."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._handle = -1

    def keep(self) -> None:
        """Have it, from now on."""
        if self._handle < 0 and self._lock.acquire(blocking=False):
            try:
                self._open()
            finally:
                self._lock.release()

    def _open(self) -> None:
        with contextlib.suppress(OSError):  # the next who needs it has to do without
            self._handle = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """There is one more meanwhile, unless others take it."""
        with self._lock:
            handle, self._handle = self._handle, -1
            if handle >= 0:
                os.close(handle)
            try:
                yield
            finally:
                self._open()


_spare: Final = _Spare()


def _sync_folder(folder: str) -> None:
    handle = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class RealFiles:
    """The disk of the machine."""

    def __init__(self) -> None:
        self.on_full: Callable[[], bool] | None = None

    def open(self, path: str, *, write: bool = False) -> RealFile:
        return RealFile(self, path, os.O_RDWR | os.O_APPEND if write else os.O_RDONLY)

    def create(self, path: str) -> RealFile:
        return with_room(self, lambda: RealFile(self, path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL))

    def list(self, folder: str) -> list[str]:
        return os.listdir(folder)

    def rename(self, old: str, new: str) -> None:
        with_room(self, lambda: os.rename(old, new))

    def link(self, old: str, new: str) -> None:
        with_room(self, lambda: os.link(old, new, follow_symlinks=False))

    def remove(self, path: str) -> None:
        os.unlink(path)

    def make_folder(self, folder: str) -> None:
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(os.path.abspath(folder))
        self.make_folder(parent)
        try:
            with_room(self, lambda: os.mkdir(folder, FOLDER_MODE))
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
        self.sync_folder(parent)

    def make_folder_unsynced(self, folder: str) -> Sequence[str]:
        parent = os.path.dirname(os.path.abspath(folder))
        try:
            with_room(self, lambda: os.mkdir(folder, FOLDER_MODE))
        except FileExistsError:
            if not os.path.isdir(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder) from None
            return []
        except FileNotFoundError:
            return [*self.make_folder_unsynced(parent), *self.make_folder_unsynced(folder)]
        return [parent]

    def remove_empty_folder(self, folder: str) -> bool:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return False
        except OSError as error:
            if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        return True

    def rename_folder(self, old: str, new: str) -> None:
        if os.path.lexists(new):  # rename would replace an empty folder
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), new)
        with_room(self, lambda: os.rename(old, new))
        for parent in {os.path.dirname(os.path.abspath(path)) for path in (new, old)}:
            self.sync_folder(parent)

    def remove_folder(self, folder: str) -> None:
        shutil.rmtree(folder)

    def sync_folder(self, folder: str) -> None:
        try:
            _sync_folder(folder)
        except OSError as error:
            if error.errno not in (errno.EMFILE, errno.ENFILE):
                raise
            with _spare.lent():
                _sync_folder(folder)
        else:
            _spare.keep()

    def is_link(self, path: str) -> bool:
        return os.path.islink(path)

    def lock(self, path: str) -> RealLock | str:
        handle = with_room(self, lambda: os.open(path, os.O_RDWR | os.O_CREAT | _SAFE, FILE_MODE))
        try:
            if not _try_lock(handle):
                holder = os.pread(handle, 200, 0).decode("utf-8", "replace").strip()
                _close(handle, path)
                return "this process" if holder == _OURSELVES.format(os.getpid()) else holder or "another process"
            # The holder's name is a courtesy: without room for it the lock is held all the same.
            with contextlib.suppress(OSError):
                os.ftruncate(handle, 0)
                os.pwrite(handle, f"{_OURSELVES.format(os.getpid())}\n".encode(), 0)
            return RealLock(handle, path)
        except BaseException:
            _close(handle, path)
            raise

    def lock_holder(self, path: str) -> str | None:
        try:
            handle = os.open(path, os.O_RDONLY | _SAFE)
        except OSError:
            return None
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.pread(handle, 200, 0).decode("utf-8", "replace").strip() or "another process"
        finally:
            os.close(handle)
        return None

    def watch(self, folder: str) -> InotifyWatch | PollWatch:
        try:
            return InotifyWatch(folder)
        except FileNotFoundError:
            raise
        except (OSError, AttributeError):  # no inotify, or all its watches are taken
            return PollWatch()

    def room(self, folder: str) -> Room:
        found = os.statvfs(folder or ".")
        return Room(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
