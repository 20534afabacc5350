"""Folders that something new is made in: empty before, and whole or not there behind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from lamina.errors import BadOption, from_os
from lamina.log.files import Files, join

MANIFEST: Final = "backup_manifest"
"""The file that makes a folder a backup of a store."""


def check_is_empty(files: Files, folder: str) -> None:
    """Or not there. Raises: BadOption, DiskError."""
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    if names:
        raise BadOption(f"{folder} is not empty: {sorted(names)[0]} is in it", hint="name a new folder")


def remove_unfinished(files: Files, folder: str, is_ours: Callable[[str], bool]) -> None:
    """Remove what one that was cut short left in ``folder``. Raises: BadOption if it is not from one; DiskError."""
    try:
        there = files.list(folder)
        if foreign := sorted(name for name in there if not is_ours(name)):
            raise BadOption(f"{folder} is in the way: {foreign[0]} is in it", hint="move it elsewhere")
        for name in there:
            files.remove(join(folder, name))
    except FileNotFoundError:
        return
    except OSError as error:
        raise from_os(error, "remove what was left unfinished in", folder) from error
