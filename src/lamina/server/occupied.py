"""Folders that another process writes to, or another program made, found before any engine is opened: then nothing at
all has been changed.

Each engine takes the lock of its own folder when it opens. With one folder taken and the others free, those before it
would be restored and closed again for nothing, and leave files behind.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lamina.errors import LogLocked, from_os
from lamina.log import foreign
from lamina.log.files import Files, join
from lamina.log.naming import FAMILIES

_LOCKS: Final = (*sorted({family.lock_name for family in FAMILIES.values()}), ".lock")


def check_free(files: Files, folders: Iterable[str]) -> None:
    """Changes nothing. Raises: LogLocked for the first that a process has, WrongFormat for the first that is another
    program's; both may also come later, from an engine; DiskError."""
    for folder in folders:
        foreign.refuse(folder, _names(files, folder))
        for name in _LOCKS:
            holder = files.lock_holder(join(folder, name))
            if holder:
                raise LogLocked(
                    f"{folder}: {holder} is writing here",
                    hint="stop it first, or read without a lock",
                    folder=folder,
                    holder=holder,
                )


def _names(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []  # who makes it says it better
    except OSError as error:
        raise from_os(error, "look into the folder", folder) from error
