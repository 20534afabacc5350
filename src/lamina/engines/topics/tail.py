"""The newest entries of a topic, in memory: what readers at the live end get, and what is not in the files yet."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from lamina.engines.topics.ids import EntryId

MOST_BYTES: Final = 1 << 20


class Kept(NamedTuple):
    """A record of an entry."""

    position: int
    payload: bytes


class Tail:
    """Entries from ``first_id`` on, all of them. Bounded by bytes, except for what readers of files cannot see yet."""

    def __init__(self, last_id: EntryId, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._ids: list[EntryId] = []
        self._kept: list[Kept] = []
        self._bytes = 0
        self.first_id = EntryId(last_id + 1)
        """Every entry with this id or a later one is here."""

    def add(self, id: EntryId, position: int, payload: bytes, readable: int) -> None:
        """``readable``: up to this position the files have it all."""
        self._ids.append(id)
        self._kept.append(Kept(position, payload))
        self._bytes += len(payload)
        if self._bytes > 2 * self._most_bytes:
            self._forget(readable)

    def _forget(self, readable: int) -> None:
        """Let the oldest go, many at once: taking them off the front one by one would move all others each time."""
        going = left = 0
        while going < len(self._kept) and self._bytes - left > self._most_bytes:
            if self._kept[going].position > readable:
                break
            left += len(self._kept[going].payload)
            going += 1
        if going:
            self.first_id = EntryId(self._ids[going - 1] + 1)
            del self._ids[:going], self._kept[:going]
            self._bytes -= left

    def between(self, start: EntryId, end: EntryId) -> tuple[list[EntryId], list[Kept]]:
        low, high = bisect_left(self._ids, start), bisect_right(self._ids, end)
        return self._ids[low:high], self._kept[low:high]
