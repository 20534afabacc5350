"""The mark of a data folder: which version of the folder's layout is in it.

    lamina.json     {"format": 2}     with "users": true once there are users: then users.json has to be there

    1   as all were before there was a mark: a folder without one has it
    2   what workq does not know is in its command log under ids that workq takes (docs/formats/jobs.md), and files of
        topics are written anew without what was deleted (docs/formats/topics.md); logs have a manifest, which one that
        does not know of it would leave behind (docs/formats/manifest.md)

A program that does not know the layout must not touch the folder, so it is looked at before anything else is opened
there. A folder of a former layout gets the mark of this one before anything is written into it that the former cannot
read: at the start of a server, and when its jobs or topics are opened.
"""

from __future__ import annotations

import json
from typing import Any, Final

from lamina.errors import DiskFull, WrongFormat, from_os
from lamina.log import foreign
from lamina.log.files import Files, join
from lamina.log.rewrite import write_new

NAME: Final = "lamina.json"
FORMAT: Final = 2
_MOST_BYTES: Final = 4096
_NEW: Final = ".new"
USERS: Final = "users"
"""In the mark: users were added."""


def check(files: Files, folder: str) -> int:
    """The layout that the mark says, 0 if there is none. Changes nothing.

    Raises: WrongFormat if a later version made it, or nobody can tell; if there is none, and the folder is that of
        another program; DiskError.
    """
    found = facts(files, folder)
    return 0 if found is None else int(found["format"])


def facts(files: Files, folder: str) -> dict[str, Any] | None:
    """All that the mark says, None if there is none. Raises: as ``check``."""
    path = join(folder, NAME)
    try:
        file = files.open(path)
    except FileNotFoundError:
        _refuse_foreign(files, folder)
        return None
    except NotADirectoryError:
        return None  # whoever opens the folder says it better
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
        found: dict[str, Any] = json.loads(bytes(data))
        version = found["format"]
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WrongFormat(
            path, "this is not the mark of a data folder", hint=f'expected {{"format": {FORMAT}}}; nothing was changed'
        ) from None
    if version > FORMAT:
        raise WrongFormat(
            path,
            f"a data folder of version {version}, this program knows version {FORMAT}",
            hint="a later lamina wrote it: upgrade; nothing was changed",
        )
    return found


def _refuse_foreign(files: Files, folder: str) -> None:
    try:
        names = files.list(folder)
    except FileNotFoundError:
        return  # it will be made
    except OSError as error:
        raise from_os(error, "look for the mark of the data folder in", folder) from error
    foreign.refuse(folder, names)


def make(files: Files, folder: str) -> None:
    """Have the folder marked with this layout, made if need be. Durability: synced. Raises: as ``check``.

    A full disk is no reason to stay closed: then the next start does it, and until then it is the fence in the log of
    jobs (engines/jobs/codec.py) that keeps a program out which does not know this layout.
    """
    found = facts(files, folder) or {}
    if found.get("format") != FORMAT:
        _write(files, folder, {**found, "format": FORMAT})


def note_users(files: Files, folder: str) -> None:
    """Have the mark say that there are users. A folder without a mark gets none. Durability, errors: as ``make``."""
    found = facts(files, folder)
    if found is not None and found.get(USERS) is not True:
        _write(files, folder, {**found, USERS: True})


def _write(files: Files, folder: str, said: dict[str, Any]) -> None:
    path = join(folder, NAME)
    try:
        files.make_folder(folder)
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    try:
        if NAME + _NEW in files.list(folder):
            files.remove(path + _NEW)  # of one that was killed
        write_new(files, path + _NEW, [json.dumps(said).encode() + b"\n"])
        files.rename(path + _NEW, path)
        files.sync_folder(folder)
    except DiskFull:
        return
    except OSError as error:
        raise from_os(error, "mark the data folder", path) from error
