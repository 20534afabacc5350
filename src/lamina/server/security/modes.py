"""Who else on this machine may read a data folder: nobody, unless its owner has opened it."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_MOST_LOOKED_AT: Final = 2000
_MOST_TOLD: Final = 5


def open_to_others(folder: str) -> list[str]:
    """What in a data folder others than its owner may read or change, a line each with what to do; empty: nothing.

    A folder that only its owner may enter keeps all that is in it. Of one that others may enter, some are told, of the
    first few thousand that are found: a folder of millions of files must not hold up the start.
    """
    try:
        if not os.lstat(folder).st_mode & _OTHERS:
            return []
    except OSError:
        return []
    found = [_line(path, mode) for path, mode in _open(folder)]
    if len(found) > _MOST_TOLD:
        more = len(found) - _MOST_TOLD
        found[_MOST_TOLD:] = [f"and {more} more in {folder}: chmod -R go-rwx {folder}"]
    return found


def _open(folder: str) -> Iterator[tuple[str, int]]:
    yield folder, os.lstat(folder).st_mode
    looked_at = 0
    for parent, folders, names in os.walk(folder):
        for name in (*sorted(folders), *sorted(names)):
            looked_at += 1
            if looked_at > _MOST_LOOKED_AT:
                return
            path = os.path.join(parent, name)
            try:
                mode = os.lstat(path).st_mode
            except OSError:
                continue
            if mode & _OTHERS and not stat.S_ISLNK(mode):
                yield path, mode


def _line(path: str, mode: int) -> str:
    return f"{path} is open to others (mode {stat.S_IMODE(mode):04o}): chmod go-rwx {path}"
