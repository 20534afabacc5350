"""One writer per folder, across processes. Readers need no lock.

A folder whose many subfolders are logs has one lock for all of them, ``.lock``: whoever holds it writes in every folder
below, and takes no lock there. Whoever wants one log alone, an offline tool say, takes the lock of its own folder, and
then looks whether that of all is held. The holder of all looks whether a log's own lock is held before it opens that
log. Each side first has its own lock and then looks at the other's, so never do both go on.
"""

from __future__ import annotations

import errno
from typing import Final

from lamina.errors import LogLocked, from_os
from lamina.log.files import Files, FolderLock, join
from lamina.log.teardown import Teardown

OF_ALL: Final = ".lock"
"""The lock of a folder that stands for all folders below it."""
_DEPTH: Final = 2  # a log of groups is in the folder of its topic


def take(files: Files, folder: str, name: str) -> FolderLock:
    """Become the writer of ``folder`` by the lock ``name``.

    Raises: LogLocked at once, naming the holder; DiskError, also where the folder is a symbolic link: whoever planted
        one in a data folder must not have us write elsewhere.
    """
    path = join(folder, name)
    _refuse_link(files, folder)
    try:
        lock = files.lock(path)
    except OSError as error:
        raise from_os(error, "lock the folder", path) from error
    if isinstance(lock, str):
        raise _locked(folder, lock)
    with Teardown(folder) as teardown:
        teardown.later(lock.release)
        above = holder_above(files, folder)
        if above is not None:
            raise _locked(folder, above)
        teardown.cancel()
    return lock


class _Covered:
    def release(self) -> None:
        pass


COVERED: Final[FolderLock] = _Covered()
"""The lock of all stands for it."""


def covered(files: Files, folder: str, name: str) -> FolderLock:
    """The same for who holds the lock of a folder above, which takes no handle. Raises: as ``take``."""
    _refuse_link(files, folder)
    holder = files.lock_holder(join(folder, name))
    if holder is not None:
        raise _locked(folder, holder)
    return COVERED


def holder_above(files: Files, folder: str) -> str | None:
    """Who holds the lock of a folder above that stands for this one, too; None: nobody does."""
    for _ in range(_DEPTH):
        folder = folder.rstrip("/").rpartition("/")[0]
        if not folder:
            return None
        holder = files.lock_holder(join(folder, OF_ALL))
        if holder is not None:
            return holder
    return None


def _refuse_link(files: Files, folder: str) -> None:
    if files.is_link(folder):
        raise from_os(OSError(errno.ELOOP, "it is a symbolic link"), "open the folder", folder)


def _locked(folder: str, holder: str) -> LogLocked:
    hint = "stop it first, or read without a lock"
    return LogLocked(f"{folder}: {holder} is writing here", hint=hint, folder=folder, holder=holder)
