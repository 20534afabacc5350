"""The newest entries of a topic, in memory: what readers at the live end get, and what is not in the files yet."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Final

from lamina.engines.topics.entries import Picked
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.ranges import IdRanges

MOST_BYTES: Final = 256 << 10  # what was just written is still in the processor's cache then


class Tail:
    """Entries from ``first_id`` on, all of them. Bounded by bytes, except for what readers of files cannot see yet."""

    def __init__(self, last_id: EntryId, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._ids: list[EntryId] = []
        self._positions: list[int] = []
        self._payloads: list[bytes] = []
        self.bytes = 0
        self.first_id = EntryId(last_id + 1)
        """Every entry with this id or a later one is here."""

    def add(self, id: EntryId, position: int, payload: bytes) -> None:
        """Once there are twice as many bytes as it should hold, ``forget``."""
        self._ids.append(id)
        self._positions.append(position)
        self._payloads.append(payload)
        self.bytes += len(payload)

    def forget(self, readable: int) -> None:
        """Let the oldest go that are in the files, which have all up to the position ``readable``.

        Many at once: taking them off the front one by one would move all others each time.
        """
        going = left = 0
        while going < len(self._payloads) and self.bytes - left > self.most_bytes:
            if self._positions[going] > readable:
                break
            left += len(self._payloads[going])
            going += 1
        if going:
            self.first_id = EntryId(self._ids[going - 1] + 1)
            del self._ids[:going], self._positions[:going], self._payloads[:going]
            self.bytes -= left

    def between(
        self, start: EntryId, end: EntryId, most: int | None = None
    ) -> tuple[list[EntryId], list[int], list[bytes]]:
        """Ids, positions and records of the entries from ``start`` to ``end``, of the first ones if they are more."""
        low, high = bisect_left(self._ids, start), bisect_right(self._ids, end)
        if most is not None:
            high = min(high, low + most)
        return self._ids[low:high], self._positions[low:high], self._payloads[low:high]

    def pick(
        self,
        start: EntryId,
        end: EntryId,
        most: int,
        gone: IdRanges | None = None,
        *,
        newest_first: bool = False,
    ) -> tuple[list[bytes], int]:
        """Records of the entries from ``start`` to ``end``, of the first ones if they are more, and the position of the
        newest. ``gone``: where none is alive, if some are not.
        """
        low, high = bisect_left(self._ids, start), bisect_right(self._ids, end)
        if gone is None:
            if newest_first:
                low = max(low, high - most)
                found = self._payloads[low:high]
                found.reverse()
            else:
                high = min(high, low + most)
                found = self._payloads[low:high]
            return found, self._positions[high - 1] if found else 0
        found = []
        position = 0
        ids = self._ids
        while low < high and len(found) < most:
            if newest_first:
                high = bisect_right(ids, gone.last_outside(ids[high - 1]), low, high)
                begin = bisect_right(ids, gone.last_inside(ids[high - 1]), low, high) if low < high else high
                begin = max(begin, high - most + len(found))
                found += self._payloads[begin:high][::-1]
                position, high = max(position, self._positions[high - 1] if begin < high else 0), begin
            else:
                low = bisect_left(ids, gone.next_outside(ids[low]), low, high)
                until = bisect_left(ids, gone.next_inside(ids[low]), low, high) if low < high else low
                until = min(until, low + most - len(found))
                found += self._payloads[low:until]
                position, low = self._positions[until - 1] if low < until else position, until
        return found, position

    def by_id(self, wanted: Sequence[EntryId]) -> tuple[list[Picked], int]:
        """Those of the entries that are here, and the position of the newest."""
        found: list[Picked] = []
        position = 0
        for id in wanted:
            place = bisect_left(self._ids, id)
            if place < len(self._ids) and self._ids[place] == id:
                before = self._ids[place - 1] if place else EntryId(self.first_id - 1)
                found.append((id, self._payloads[place], before))
                position = max(position, self._positions[place])
        return found, position
