"""How large each log of a server is, looked at from outside: thousands of folders, so in a thread of its own.

A page shows what was found last, with its age. A folder in which no name has changed since is not listed again: only
its newest file is looked at. The next look begins when somebody asks, and not before fifty times as long has passed as
the last one took: so it costs the server 2 % of one core at most.
"""

from __future__ import annotations

import os
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from lamina.log.naming import CHECKPOINT, CONSUMERS, FileName, parse
from lamina.server.http.ops import logs_names as names
from lamina.server.http.ops.logs_names import Ref
from lamina.server.inside import Inside

_LEAST_S: Final = 1.5
_TIMES: Final = 50
_PAUSE_S: Final = 0.001
_AT_ONCE: Final = 25  # folders between two pauses
_MOST_PIECES: Final = 80
_MOST_FOLDERS: Final = 20_000  # of queues with a journal that are looked at


@dataclass(slots=True)
class Size:
    """Of one log."""

    ref: Ref
    bytes: int = 0
    other_bytes: int = 0
    files: int = 0
    pieces: list[int] = field(default_factory=list)
    active_bytes: int = 0
    checkpoint_bytes: int = 0
    newest_ns: int | None = None
    is_cut: bool = False
    """There is more than was looked at."""
    has_groups: bool = False
    folder_ns: int = 0
    newest_path: str = ""


class Sizes:
    """Of one server. Threads: any; one at a time looks."""

    def __init__(self, inside: Inside) -> None:
        self._inside = inside
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._known: dict[str, Size] = {}
        self._done = threading.Event()
        self._next_at = 0.0
        self.looked_ns: int | None = None
        self.is_complete = False

    def ask(self, wait_s: float = 0.15) -> list[Size]:
        """What was found so far; looks anew if that is due, and waits a moment for the very first time."""
        with self._lock:
            if self._thread is None and time.monotonic() >= self._next_at:
                self._done.clear()
                self._thread = threading.Thread(target=self._run, name="lamina-http-sizes", daemon=True)
                self._thread.start()
            is_first = self.looked_ns is None
        self._done.wait(wait_s if is_first else wait_s / 3)
        return list(self._known.values())

    def forget(self) -> None:
        """Something was done: the next who asks wants to see it."""
        self._next_at = 0.0

    def _run(self) -> None:
        began = time.monotonic()
        try:
            self._look()
            self.is_complete = True
        finally:
            took = time.monotonic() - began
            self.looked_ns = time.time_ns()
            with self._lock:
                self._thread = None
                self._next_at = began + took + max(_LEAST_S, _TIMES * took)
            self._done.set()

    def _look(self) -> None:
        inside, seen = self._inside, set[str]()

        def take(ref: Ref) -> Size | None:
            size = self._known[ref.name] = _size_of(ref, self._known.get(ref.name))
            seen.add(ref.name)
            if len(seen) % _AT_ONCE == 0:
                time.sleep(_PAUSE_S)
            return size

        for ref in names.whole(inside):
            take(ref)
        for ref in names.plain(inside):
            take(ref)
        topics = inside.topics
        for name in topics.known() if topics is not None else ():
            size = take(names.topic_ref(inside, name))
            if size is not None and size.has_groups:
                take(names.topic_ref(inside, name, names.GROUPS))
        self._known = {name: size for name, size in self._known.items() if name in seen}


def _size_of(ref: Ref, before: Size | None) -> Size:
    try:
        if ref.kind == names.JOURNALS:
            return _walk(ref)
        folder_ns = os.stat(ref.folder).st_mtime_ns
        if before is not None and before.folder_ns == folder_ns and before.newest_path and before.ref == ref:
            return _only_newest(before)
        return _list(ref, folder_ns)
    except OSError:
        return Size(ref)


def _only_newest(size: Size) -> Size:
    found = os.stat(size.newest_path)
    grown = found.st_size - size.active_bytes
    size.bytes += grown
    size.active_bytes = found.st_size
    size.newest_ns = found.st_mtime_ns
    if size.pieces:
        size.pieces[-1] += grown
    return size


def _list(ref: Ref, folder_ns: int) -> Size:
    size = Size(ref, folder_ns=folder_ns)
    is_one = ref.kind not in (names.QUEUES, names.STORE)
    found: list[tuple[tuple[int, ...], str, int, int]] = []
    growing: list[tuple[FileName, int]] = []
    with os.scandir(ref.folder) as entries:
        for entry in entries:
            name = parse(entry.name)
            if name is None and entry.is_dir(follow_symlinks=False):
                size.has_groups |= entry.name == "groups"
                size.other_bytes += _below(entry.path) if entry.name in (CONSUMERS, "ctrl") else 0
                continue
            stat = entry.stat(follow_symlinks=False)
            if name is None and entry.name == CHECKPOINT:
                size.checkpoint_bytes = stat.st_size
            if name is not None and not name.is_closed and not name.is_part and not entry.name.endswith(".dump"):
                growing.append((name, stat.st_size))
            if name is not None or entry.name == CHECKPOINT:
                found.append((name.order if name is not None else (0,), entry.path, stat.st_size, stat.st_mtime_ns))
            else:
                size.other_bytes += stat.st_size
    found.sort()
    size.files, size.bytes = len(found), sum(one[2] for one in found)
    size.newest_ns = max((one[3] for one in found), default=None)
    size.pieces = together([one[2] for one in found])
    if found and is_one:
        size.newest_path, size.active_bytes = found[-1][1], found[-1][2]
    elif ref.kind == names.QUEUES:
        size.active_bytes = max(growing)[1] if growing else 0
    else:
        size.active_bytes = sum(each for _, each in growing)
    return size


def _below(folder: str) -> int:
    with os.scandir(folder) as entries:
        return sum(entry.stat(follow_symlinks=False).st_size for entry in entries if entry.is_file())


def _walk(ref: Ref) -> Size:
    """Folders of queues, a bounded number of them."""
    size = Size(ref)
    for folders, (path, _, files) in enumerate(os.walk(ref.folder), 1):
        for name in files:
            with suppress(OSError):  # it is gone since
                size.bytes += os.stat(os.path.join(path, name), follow_symlinks=False).st_size
                size.files += 1
        if folders % _AT_ONCE == 0:
            time.sleep(_PAUSE_S)
        if folders >= _MOST_FOLDERS:
            size.is_cut = True
            break
    size.pieces = [size.bytes] if size.bytes else []
    return size


def together(sizes: list[int], most: int = _MOST_PIECES) -> list[int]:
    """The same in no more than ``most`` pieces: neighbours are added up."""
    if len(sizes) <= most:
        return sizes
    each = -(-len(sizes) // most)
    return [sum(sizes[at : at + each]) for at in range(0, len(sizes), each)]
