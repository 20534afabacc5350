"""The mark of a data folder: which version of the folder's layout is in it.

    lamina.json     {"format": 1}

A folder without one has layout 1: that is how all were before there was a mark. A program that does not know the
layout must not touch the folder, so it is looked at before anything else is opened there.
"""

from __future__ import annotations

import json
from typing import Final

from lamina.errors import DiskFull, WrongFormat, from_os
from lamina.log import foreign
from lamina.log.files import Files, join
from lamina.log.rewrite import write_new

NAME: Final = "lamina.json"
FORMAT: Final = 1
_MOST_BYTES: Final = 4096
_NEW: Final = ".new"


def check(files: Files, folder: str) -> bool:
    """Whether there is a mark. Changes nothing.

    Raises: WrongFormat if a later version made it, or nobody can tell; if there is none, and the folder is that of
        another program; DiskError.
    """
    path = join(folder, NAME)
    try:
        file = files.open(path)
    except FileNotFoundError:
        _refuse_foreign(files, folder)
        return False
    except NotADirectoryError:
        return False  # whoever opens the folder says it better
    except OSError as error:
        raise from_os(error, "read the mark of the data folder", path) from error
    try:
        data = bytearray(min(file.size(), _MOST_BYTES))
        del data[file.read_into(memoryview(data), 0) :]
    except OSError as error:
        raise from_os(error, "read the mark of the data folder", path) from error
    finally:
        file.close()
    try:
        found = json.loads(bytes(data))
        version = found["format"]
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WrongFormat(
            path, "this is not the mark of a data folder", hint='it should be {"format": 1}; nothing was changed'
        ) from None
    if version > FORMAT:
        raise WrongFormat(
            path,
            f"a data folder of version {version}, this program knows version {FORMAT}",
            hint="a later lamina wrote it: upgrade; nothing was changed",
        )
    return True


def _refuse_foreign(files: Files, folder: str) -> None:
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return  # it will be made
    except OSError as error:
        raise from_os(error, "look for the mark of the data folder in", folder) from error
    foreign.refuse(folder, names)


def make(files: Files, folder: str) -> None:
    """Mark a folder that has no mark. Durability: synced. Raises: DiskError.

    A full disk is no reason to stay closed: then the next start does it.
    """
    path = join(folder, NAME)
    try:
        if NAME + _NEW in files.list(folder):
            files.remove(path + _NEW)  # of one that was killed
        write_new(files, path + _NEW, [json.dumps({"format": FORMAT}).encode() + b"\n"])
        files.rename(path + _NEW, path)
        files.sync_folder(folder)
    except DiskFull:
        return
    except OSError as error:
        raise from_os(error, "mark the data folder", path) from error
