"""The recent past: files that nothing alive needs stay for a while, so that what was can be read and restored.

Cleaning, compaction and dumps of every engine ask before they remove or rewrite a file. One ``History`` serves a whole
data folder, so the room it may take is one, too. What a limit of the user's (retention, a quota) lets go is not asked
about: a limit says how much there may be at most.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

_NS: Final = 10**9

DEFAULT_S: Final = 3600.0
SHARE: Final = 10
"""Percent of the disk that history takes at most."""


class Dead(NamedTuple):
    """A file that could go, or be rewritten."""

    name: str
    newest_ns: int
    """Time of its newest record: the past before that can be read without the file only where others have it."""
    bytes: int
    """What would be freed."""


class History:
    """How long dead files stay, and how much room they may take together. Threads: every method is safe from any."""

    def __init__(self, keep_s: float = DEFAULT_S, most_bytes: Callable[[], int] | None = None) -> None:
        """``keep_s``: 0 keeps nothing. ``most_bytes``: the room for all; without it there is no bound."""
        self.keep_s = keep_s
        self._most_bytes = most_bytes
        self._held: dict[str, int] = {}
        self._lock = threading.Lock()

    @property
    def bytes(self) -> int:
        """What is held for the past alone, as far as those who asked know."""
        with self._lock:
            return sum(self._held.values())

    def held(self, owner: str, dead: Iterable[Dead], now_ns: int) -> set[str]:
        """Names of those of the files that stay: the newest, back to where the time or the room ends.

        ``dead`` are all that ``owner`` (a folder) could let go now: the next call replaces what it holds.
        """
        since = now_ns - int(self.keep_s * _NS)
        young = sorted((one for one in dead if one.newest_ns >= since), key=lambda one: one.newest_ns, reverse=True)
        with self._lock:
            self._held.pop(owner, None)
            room = None if self._most_bytes is None else self._most_bytes() - sum(self._held.values())
            names, total = set(), 0
            for one in young if self.keep_s else ():
                if room is not None and total + one.bytes > room:
                    break  # the past has no holes: what is older goes, too
                names.add(one.name)
                total += one.bytes
            if total:
                self._held[owner] = total
        return names

    def forget(self, owner: str) -> None:
        """Its files are gone, or nobody looks after them any more."""
        with self._lock:
            self._held.pop(owner, None)
