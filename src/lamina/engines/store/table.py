"""The newest entry of each key, in memory: what sessions leave, whatever order they are met in.

``_table.pyx`` is the compiled twin; tests hold the two equal.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from lamina.engines.store import codec
from lamina.engines.store.codec import (
    ADD,
    BEGIN,
    CLEAR,
    DROP,
    END,
    OLDEST,
    PUT,
    REMOVE,
    VERSION_AT,
    VERSION_END,
    BadRecord,
    Entry,
)
from lamina.engines.store.fold import Fold as Fold
from lamina.engines.store.storages import Storages as Storages
from lamina.log.packed import Packed

AROUND: Final = 240
"""Bytes of memory that an entry takes beside its own: two objects and a slot of the dictionary."""

_AT_ONCE: Final = 256  # entries that a walk looks up together


class Table:
    """Threads: one at a time."""

    def __init__(self) -> None:
        self.items: dict[bytes, bytes] = {}
        """By place (codec.py)."""
        self.storages = Storages()
        self.highest = OLDEST
        """The largest version of all entries that were taken."""
        self.bytes = 0
        """Memory that the entries take, about."""
        self._sorted: list[bytes] = []
        self._new: list[bytes] = []  # keys that are not among the sorted ones yet

    def __len__(self) -> int:
        return len(self.items)

    # -- taking entries ----------------------------------------------------------------------------------------------

    def fold(
        self,
        data: memoryview,
        times: Sequence[int],
        offsets: Sequence[int],
        lengths: Sequence[int],
        fold: Fold,
        start: int = 0,
    ) -> int:
        """Take the records of a scan (log/scan.py) from number ``start`` on that belong to sessions that count.

        Returns how many were looked at: all, or fewer because one is no record of the store: ``fold.records`` is its
        number in the file and the error that of ``why_not``. Marks of the kernel (kind 0x92, 0x93) are passed over.
        """
        for at in range(start, len(times)):
            payload = bytes(data[offsets[at] : offsets[at] + lengths[at]])
            try:
                entry = fold.take(payload)
            except BadRecord:
                return at
            if entry is not None:
                self._take(times[at], payload, entry)
            fold.records += 1
        return len(times)

    def take(self, sessions: Iterable[tuple[int, Packed]]) -> None:
        """Take the entries of whole sessions: of each the time of its first record, and all its payloads.

        Raises: BadRecord.
        """
        for first_ns, packed in sessions:
            for number, payload in enumerate(packed):
                entry = codec.decode(payload)
                if entry.kind not in (BEGIN, END):
                    self._take(first_ns + number, payload, entry)

    def _take(self, time_ns: int, payload: bytes, entry: Entry) -> None:
        version = payload[9:25]
        if entry.kind in (CLEAR, ADD, DROP):
            self.storages.take(entry.kind, entry.storage, version)
        else:
            assert entry.kind in (PUT, REMOVE)
            self.put_item(codec.place(entry.storage, entry.key), codec.item(time_ns, payload))
        if version > self.highest:
            self.highest = version

    def put_item(self, place: bytes, item: bytes) -> None:
        """Take an entry, unless a newer one is there."""
        before = self.items.get(place)
        if before is None:
            self._new.append(place)
            self.bytes += len(place) + len(item) + AROUND
        elif item[VERSION_AT:VERSION_END] < before[VERSION_AT:VERSION_END]:
            return
        else:
            self.bytes += len(item) - len(before)
        self.items[place] = item

    def with_newer(self, newer: Table) -> Table:
        """A table with the entries of both; of equal versions that of ``newer`` counts. Neither of them changes."""
        both = Table()
        both.storages = newer.storages
        both.items, both.bytes, both.highest = dict(self.items), self.bytes, max(self.highest, newer.highest)
        both._sorted, both._new = self._sorted, list(self._new)
        for place, item in newer.items.items():
            both.put_item(place, item)
        return both

    # -- looking -----------------------------------------------------------------------------------------------------

    def find(self, place: bytes) -> bytes | None:
        """The item of that place, a remove too."""
        return self.items.get(place)

    def _in_order(self) -> list[bytes]:
        """All of them, in order. The list is never changed: a later call may give another."""
        if self._new:
            self._sorted = sorted([*self._sorted, *self._new])
            self._new = []
        return self._sorted

    def between(self, start: bytes = b"", end: bytes | None = None) -> tuple[int, int]:
        """Numbers, in order, of the first entry at ``start`` or behind, and of the first at ``end`` or behind."""
        places = self._in_order()
        first = bisect_left(places, start)
        return first, len(places) if end is None else max(first, bisect_left(places, end))

    def columns(self, start: int, end: int) -> tuple[list[bytes], list[bytes]]:
        """Places and items of the entries with these numbers, in order."""
        places = self._in_order()[start:end]
        return places, [self.items[place] for place in places]

    def sample(self, count: int) -> list[bytes]:
        """Places that cut it into pieces of about one size, so many at most, in order."""
        length = len(self)
        numbers = range(0, length, max(length // count, 1))[:count]
        return [self.columns(number, number + 1)[0][0] for number in numbers]

    def walk(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """(place, item) in order, from ``start`` up to but without ``end``. Nothing may be taken meanwhile."""
        number, last = self.between(start, end)
        for at in range(number, last, _AT_ONCE):
            yield from zip(*self.columns(at, min(at + _AT_ONCE, last)), strict=True)
