"""One writer per folder, across processes. Readers need no lock."""

from __future__ import annotations

import errno

from lamina.errors import LogLocked, from_os
from lamina.log.files import Files, FolderLock, join


def take(files: Files, folder: str, name: str) -> FolderLock:
    """Become the writer of ``folder`` by the lock ``name``.

    Raises: LogLocked at once, naming the holder; DiskError, also where the folder is a symbolic link: whoever planted
        one in a data folder must not have us write elsewhere.
    """
    path = join(folder, name)
    if files.is_link(folder):
        raise from_os(OSError(errno.ELOOP, "it is a symbolic link"), "open the folder", folder)
    try:
        lock = files.lock(path)
    except OSError as error:
        raise from_os(error, "lock the folder", path) from error
    if isinstance(lock, str):
        raise LogLocked(
            f"{folder}: {lock} is writing here",
            hint="stop it first, or read without a lock",
            folder=folder,
            holder=lock,
        )
    return lock
