"""The room that an engine takes on disk: its files by what they are, and what of them others have yet to read.

Thousands of folders are not gone through at once: a look lasts some milliseconds, goes on where the last one ended, and
shows what was found when it last came to the end. Only the first time it shows what it has so far.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic, perf_counter
from typing import Final

from lamina.errors import LaminaError
from lamina.log import consumers
from lamina.log.files.real import RealFiles
from lamina.log.naming import CONSUMERS, FAMILIES, FileName, parse
from lamina.log.reader import Reader
from lamina.log.unread import unread

ACTIVE: Final = "active"
SEALED: Final = "sealed"
DUMP: Final = "dump"
COMPACTED: Final = "compacted"
SET_ASIDE: Final = "set_aside"
STATES: Final = (ACTIVE, SEALED, DUMP, COMPACTED, SET_ASIDE)
"""Written to now; never written to again; a dump of queues; a sorted part of the store; torn or broken, kept aside."""

_LOOK_S: Final = 0.004
_AGAIN_S: Final = 5.0  # at the earliest, and when that is little of the time that it took
_SHARE: Final = 0.02


@dataclass(slots=True)
class Room:
    """What was found."""

    bytes: int = 0
    """Of all files."""
    files: Counter[str] = field(default_factory=Counter)
    """Segments, by state."""
    file_bytes: Counter[str] = field(default_factory=Counter)
    pinned_bytes: int = 0
    """Of sealed segments that a consumer has yet to read."""


class RoomLook:
    """Of one folder and all below it. Threads: safe from any thread."""

    def __init__(self, folder: str, now_ns: Callable[[], int]) -> None:
        self._folder, self._now_ns = folder, now_ns
        self._lock = threading.Lock()
        self._found: Room | None = None
        self._going, self._walk = Room(), iter(())  # type: tuple[Room, Iterator[None]]
        self._spent = 0.0
        self._again_at = 0.0
        self._begin()

    def _begin(self) -> None:
        self._going, self._spent = Room(), 0.0
        self._walk = self._folders(self._folder, self._going)

    def get(self) -> Room:
        """As it is, or was a while ago."""
        with self._lock:
            if monotonic() >= self._again_at:
                self._go_on()
            return self._found or self._going

    def _go_on(self) -> None:
        began = perf_counter()
        for _ in self._walk:
            if perf_counter() - began > _LOOK_S:
                self._spent += perf_counter() - began
                return
        self._spent += perf_counter() - began
        self._found = self._going
        self._again_at = monotonic() + max(self._spent / _SHARE, _AGAIN_S)
        self._begin()

    def _folders(self, folder: str, room: Room) -> Iterator[None]:
        """One by one, those below it behind it."""
        below: list[str] = [folder]
        while below:
            folder = below.pop()
            sizes: dict[str, int] = {}
            has_consumers = False
            with suppress(OSError), os.scandir(folder) as found:
                for each in found:
                    with suppress(OSError):
                        if each.is_dir(follow_symlinks=False):
                            below.append(each.path)
                            has_consumers = has_consumers or each.name == CONSUMERS
                        else:
                            sizes[each.name] = each.stat(follow_symlinks=False).st_size
            names = _sort(sizes, room)
            if has_consumers:
                room.pinned_bytes += sum(sizes[name] for name in self._pinned(folder, names))
            yield

    def _pinned(self, folder: str, names: list[FileName]) -> list[str]:
        files, pinned = RealFiles(), list[str]()
        for family in {name.family for name in names if name.stream == name.family}:
            log = sorted(name for name in names if name.stream == family)
            with suppress(LaminaError, OSError):  # cleaning tells of it
                holding = consumers.holding(files, folder, self._now_ns())
                reader = Reader(folder, family=FAMILIES[family], files=files)
                pinned += [name.name for name in unread(reader, log[:-1], holding)]
        return pinned


def _sort(sizes: dict[str, int], room: Room) -> list[FileName]:
    names = [parsed for name in sizes if (parsed := parse(name)) is not None]
    newest: dict[str, FileName] = {}
    for name in names:
        if name.stream not in newest or newest[name.stream] < name:
            newest[name.stream] = name
    room.bytes += sum(sizes.values())
    for name in names:
        state = ACTIVE if newest[name.stream] is name and not name.is_closed else SEALED
        if name.is_part:
            state = COMPACTED
        elif name.name.endswith(".dump"):
            state = DUMP
        room.files[state] += 1
        room.file_bytes[state] += sizes[name.name]
    for other, size in sizes.items():
        if ".torn-" in other or ".broken-" in other:
            room.files[SET_ASIDE] += 1
            room.file_bytes[SET_ASIDE] += size
    return names
