"""What recovery and repair kept aside: tails that a crash tore, and damage that was taken out of a log.

They stand beside the file they are of, as ``<name>.torn-<time>`` and ``<name>.broken-<time>``, until somebody removes
them. A data folder may have very many folders: so many are looked into, and it is told that there are more.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Final

import msgspec

_MARKS: Final = {".torn-": "a torn tail", ".broken-": "damage"}
_MOST_FOLDERS: Final = 2000
_MOST_FILES: Final = 200
_DEPTH: Final = 4  # data/topics/orders/groups
_FRESH_S: Final = 30.0
_PASSED_OVER: Final = ("pipeline",)

_lock: Final = threading.Lock()
_known: dict[str, tuple[float, Aside]] = {}


class KeptAside(msgspec.Struct, frozen=True, kw_only=True):
    """One file."""

    path: str
    """From the data folder on."""
    what: str
    """``a torn tail`` or ``damage``."""
    bytes: int
    time_ns: int
    """When it was put aside."""


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """All that were found."""

    files: list[KeptAside]
    """The newest first."""
    is_cut: bool = False
    """There are more folders, or files, than were looked at."""


def kept_aside(data: str) -> Aside:
    """Of a data folder; what was found less than half a minute ago is taken for true. Threads: any."""
    with _lock:
        at, found = _known.get(data, (-_FRESH_S, None))
        if found is None or time.monotonic() - at >= _FRESH_S:
            found = look(data)
            _known.clear()
            _known[data] = time.monotonic(), found
        return found


def look(data: str) -> Aside:
    """The same, anew. What cannot be listed is passed over."""
    found: list[KeptAside] = []
    folders, at, is_cut = [(data, 0)], 0, False
    while at < len(folders):
        folder, depth = folders[at]
        at += 1
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if depth < _DEPTH and entry.name not in _PASSED_OVER and len(folders) < _MOST_FOLDERS:
                            folders.append((entry.path, depth + 1))
                        else:
                            is_cut = is_cut or len(folders) >= _MOST_FOLDERS
                    elif what := next((what for mark, what in _MARKS.items() if mark in entry.name), ""):
                        facts = entry.stat(follow_symlinks=False)
                        path = os.path.relpath(entry.path, data)
                        one = KeptAside(path=path, what=what, bytes=facts.st_size, time_ns=facts.st_mtime_ns)
                        found.append(one)
        except OSError:
            continue
        if len(found) >= _MOST_FILES:
            is_cut = True
            break
    found.sort(key=lambda one: one.time_ns, reverse=True)
    return Aside(files=found[:_MOST_FILES], is_cut=is_cut)
