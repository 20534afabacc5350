"""The recent past: files that nothing alive needs stay for a while, so that what was can be read and restored.

Cleaning, compaction and dumps of every engine ask before they remove or rewrite a file. One ``History`` serves a whole
data folder, so the room it may take is one, too. What a limit of the user's (retention, a quota) lets go is not asked
about: a limit says how much there may be at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from lamina.errors import BadOption
from lamina.log.files import Files, Room

_NS: Final = 10**9
_APART: Final = 4  # bases that stay have logs of so many times their own size between them

DEFAULT_S: Final[float] = 3600
SHARE: Final[float] = 10
"""Percent of the disk that history takes at most."""


class Dead(NamedTuple):
    """A file that could go, or be rewritten."""

    name: str
    newest_ns: int
    """Time of its newest record: the past before that can be read without the file only where others have it."""
    bytes: int
    """What would be freed."""


class Base(NamedTuple):
    """Where a read of the past begins: a former state as a whole, such as a dump. The logs since come on top of it."""

    since_ns: int
    """With the logs since it shows every moment from then on."""
    files: Mapping[str, int]
    """What it takes that nothing alive needs: names and bytes."""
    later_bytes: int
    """Of logs after it, up to the next base, that nothing alive needs."""


class History:
    """How long dead files stay, and how much room they may take together. Threads: every method is safe from any."""

    def __init__(self, keep_s: float = DEFAULT_S, most_bytes: Callable[[], int] | None = None) -> None:
        """``keep_s``: 0 keeps nothing. ``most_bytes``: the room for all; without it there is no bound."""
        self.keep_s = keep_s
        self._most_bytes = most_bytes
        self._free: Callable[[], int] | None = None  # bytes of the disk
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    @classmethod
    def on_disk(
        cls,
        files: Files,
        folder: str,
        keep_s: float = DEFAULT_S,
        percent: float = SHARE,
        is_short: Callable[[], bool] = lambda: False,
    ) -> History:
        """Within so many percent of the disk that the folder is on, and half of what nothing else takes of it: history
        gives way as a disk fills up. Within nothing while room ``is_short``.

        Raises: BadOption.
        """
        for name, value, most in (("history_s", keep_s, 1 << 31), ("history_percent", percent, 100)):
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= most:
                raise BadOption(f"{name} = {value!r} cannot be", hint=f"give 0 to {most}", option=name)
        seen = Room(0, 0)

        def room() -> Room:
            nonlocal seen
            with suppress(OSError):  # the folder is yet to be made, or cannot be looked at: there is what there was
                seen = files.room(folder)
            return seen

        history = cls(keep_s, lambda: 0 if is_short() else int(room().size * percent / 100))
        history._free = lambda: room().free
        return history

    @property
    def bytes(self) -> int:
        """What is held for the past alone, as far as those who asked know."""
        with self._lock:
            return sum(self._held.values())

    @property
    def limit(self) -> int | None:
        """Bytes that all may hold together now; None: there is no bound."""
        return self._limit()

    def _limit(self, owner: str = "", could_hold: int = 0) -> int | None:
        """``could_hold``: what ``owner`` has there now that it may hold, whatever it held until now."""
        if self._most_bytes is None:
            return None
        most = self._most_bytes()
        if self._free is None:
            return most
        with self._lock:
            held = sum(self._held.values()) + max(could_hold - self._held.get(owner, 0), 0)
        return min(most, (self._free() + held) // 2)

    def bytes_of(self, folder: str) -> int:
        """What is held by who has that folder, or one below it."""
        below = folder + "/"
        with self._lock:
            return sum(held for owner, held in self._held.items() if owner == folder or owner.startswith(below))

    def is_over(self, owner: str) -> bool:
        """It holds more than it may by now: the disk is short of room, or others want their share. Clean up."""
        limit = self.limit
        with self._lock:
            held = self._held.get(owner, 0)
            return held > 0 and limit is not None and held > self._room(owner, limit)

    def held(self, owner: str, dead: Iterable[Dead], now_ns: int) -> set[str]:
        """Names of those of the files that stay: the newest, back to where the time or the room ends.

        ``dead`` are all that ``owner`` (a folder) could let go now: the next call replaces what it holds.
        """
        since = now_ns - int(self.keep_s * _NS)
        dead = list(dead)
        young = sorted((one for one in dead if one.newest_ns >= since), key=lambda one: one.newest_ns, reverse=True)
        limit = self._limit(owner, sum(one.bytes for one in dead))
        with self._lock:
            names, total = set(), 0
            for one in young if self.keep_s else ():
                if limit is not None and total + one.bytes > self._room(owner, limit):
                    break  # the past has no holes: what is older goes, too
                names.add(one.name)
                total += one.bytes
            self._note(owner, total)
        return names

    def bases(self, owner: str, bases: Sequence[Base], present_ns: int, now_ns: int) -> list[int]:
        """Numbers of those of the bases that stay, in order; the logs since the first of them stay, too. None: neither.

        ``bases`` are all former ones, oldest first, and ``present_ns`` is what the present one shows every moment
        since. The first that stays is the newest that shows all of the time that is kept, or as much as there is
        room for. Of the others those stay that cost little beside the logs before them, so that the past need not go
        as a whole, and one for each time that is kept, so that it comes to an end. As with ``held``, the next call
        replaces what ``owner`` holds.
        """
        since = now_ns - int(self.keep_s * _NS)
        there = {name: size for base in bases for name, size in base.files.items()}
        limit = self._limit(owner, sum(there.values()) + sum(base.later_bytes for base in bases))
        with self._lock:
            kept, total = list[int](), 0
            if self.keep_s and present_ns > since:
                first = max((number for number, base in enumerate(bases) if base.since_ns <= since), default=0)
                room = None if limit is None else self._room(owner, limit)
                for number in range(first, len(bases)):
                    kept, total = _thinned(bases, number, int(self.keep_s * _NS))
                    if room is None or total <= room:
                        break
                    kept, total = [], 0
            self._note(owner, total)
        return kept

    def _room(self, owner: str, limit: int) -> int:
        """What others leave, and at least its share: who came first does not take it all. Holds the lock."""
        others = [held for name, held in self._held.items() if name != owner]
        return max(limit - sum(others), limit // (len(others) + 1))

    def _note(self, owner: str, total: int) -> None:
        if total:
            self._held[owner] = total
        else:
            self._held.pop(owner, None)

    def forget(self, owner: str) -> None:
        """Its files are gone, or nobody looks after them any more."""
        with self._lock:
            self._held.pop(owner, None)


def _thinned(bases: Sequence[Base], first: int, apart_ns: int) -> tuple[list[int], int]:
    """Numbers of bases from ``first`` on that are far enough apart, and what they and all logs since take."""
    kept, files, logs = [first], dict(bases[first].files), 0
    for number in range(first + 1, len(bases)):
        logs += bases[number - 1].later_bytes
        more = {name: size for name, size in bases[number].files.items() if name not in files}
        is_later = bases[number].since_ns - bases[kept[-1]].since_ns >= apart_ns
        if is_later or logs >= _APART * sum(more.values()):
            kept.append(number)
            files |= more
            logs = 0
    return kept, sum(files.values()) + sum(base.later_bytes for base in bases[first:])
