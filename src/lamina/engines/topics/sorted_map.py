"""A sorted map of any size in which every change costs the same: the pending entries of a group, the names of topics.

It is cut into blocks of some hundred keys, with the values in blocks beside them. A key is looked up by halves among
the last keys of the blocks, then within one of them, and only that block moves. Most ids come at the end, and most go
at the front: neither is looked for.

Rejected: a dict beside a sorted list. Whoever chooses ids can choose such as have the same hash, and ids of the same
milliseconds often do; then each of them is compared with all others.
Rejected: one list in which what went is left until half of it is gone. It is quicker on average, but one command in a
million pays for all the others, and everybody waits for it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, Generic, TypeVar

from lamina.engines.topics.ids import EntryId

Key = TypeVar("Key", EntryId, tuple[int, bytes])
Value = TypeVar("Value")
Item = TypeVar("Item")

_BLOCK: Final = 512  # keys
_newest = itemgetter(-1)


class SortedMap(Generic[Key, Value]):
    """Not locked."""

    def __init__(self, items: Iterable[tuple[Key, Value]] = ()) -> None:
        ordered = sorted(items, key=itemgetter(0))
        self._count = len(ordered)
        pieces = [ordered[at : at + _BLOCK] for at in range(0, len(ordered), _BLOCK)] or [[]]
        # Invariant: no block is empty, unless it is the only one.
        self._keys: list[list[Key]] = [[key for key, _ in piece] for piece in pieces]
        self._values: list[list[Value]] = [[value for _, value in piece] for piece in pieces]

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: Key) -> bool:
        keys = self._keys[self._block_of(key)]
        place = bisect_left(keys, key)
        return place < len(keys) and keys[place] == key

    def get(self, key: Key) -> Value | None:
        at = self._block_of(key)
        keys = self._keys[at]
        place = bisect_left(keys, key)
        return self._values[at][place] if place < len(keys) and keys[place] == key else None

    def add(self, key: Key, value: Value) -> None:
        """``key`` is not in it."""
        keys, values = self._keys[-1], self._values[-1]
        self._count += 1
        if not keys or key > keys[-1]:
            if len(keys) < _BLOCK:
                keys.append(key)
                values.append(value)
            else:
                self._keys.append([key])
                self._values.append([value])
            return
        at = self._block_of(key)
        keys, values = self._keys[at], self._values[at]
        place = bisect_left(keys, key)
        keys.insert(place, key)
        values.insert(place, value)
        if len(keys) > 2 * _BLOCK:
            self._keys.insert(at + 1, keys[_BLOCK:])
            self._values.insert(at + 1, values[_BLOCK:])
            del keys[_BLOCK:], values[_BLOCK:]

    def pop(self, key: Key) -> Value | None:
        """Take it out. None: it was not in it."""
        at = self._block_of(key)
        keys, values = self._keys[at], self._values[at]
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            return None
        del keys[place]
        self._count -= 1
        if not keys and len(self._keys) > 1:
            del self._keys[at]
            return self._values.pop(at)[0]
        return values.pop(place)

    def first(self) -> Key | None:
        return self._keys[0][0] if self._count else None

    def last(self) -> Key | None:
        return self._keys[-1][-1] if self._count else None

    def keys(self, start: Key | None = None) -> Iterator[Key]:
        """Those from ``start`` on, in order. Nothing may be added or taken out meanwhile."""
        return _since(self._keys, *self._place_of(start))

    def values(self, start: Key | None = None) -> Iterator[Value]:
        """Of those, as ``keys``."""
        return _since(self._values, *self._place_of(start))

    def items(self, start: Key | None = None) -> Iterator[tuple[Key, Value]]:
        return zip(self.keys(start), self.values(start), strict=True)

    def _place_of(self, start: Key | None) -> tuple[int, int]:
        """Block, and place in it, of the first key at ``start`` or behind it."""
        if start is None:
            return 0, 0
        at = self._block_of(start)
        return at, bisect_left(self._keys[at], start)

    def _block_of(self, key: Key) -> int:
        """The first that ends with ``key`` or behind it; else the last one."""
        blocks = self._keys
        if not self._count or key <= blocks[0][-1]:
            return 0
        if key > blocks[-1][0]:
            return len(blocks) - 1
        return bisect_left(blocks, key, 1, len(blocks) - 1, key=_newest)

    def shrink(self) -> bool:
        """Give back the room of a block, for a map that nobody uses any more. False: it is empty."""
        self._keys.pop()
        self._values.pop()
        if not self._keys:
            self._keys, self._values, self._count = [[]], [[]], 0
            return False
        return True


def _since(blocks: list[list[Item]], at: int, place: int) -> Iterator[Item]:
    yield from islice(blocks[at], place, None)
    for number in range(at + 1, len(blocks)):
        yield from blocks[number]
