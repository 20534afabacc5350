"""One writer per folder, across processes. Readers need no lock."""

from __future__ import annotations

from lamina.errors import LogLocked, from_os
from lamina.log.files import Files, FolderLock, join
from lamina.log.naming import Family


def take(files: Files, folder: str, family: Family) -> FolderLock:
    """Become the writer of ``folder``. Raises: LogLocked at once, naming the holder; DiskError."""
    path = join(folder, family.lock_name)
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
