"""A sorted list of any size in which every change costs the same: the pending entries of a group, the names of topics.

It is cut into blocks of some hundred items. What is added or taken away is looked for by halves among the last items of
the blocks, then within one of them, and only that block moves. Most ids come at the end, and most go at the front:
neither is looked for. Rejected: one list in which what went is left until half of it is gone. It is quicker on average,
but one command in a million pays for all the others, and everybody waits for it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter
from typing import Final, Generic, TypeVar

from lamina.engines.topics.ids import EntryId

Item = TypeVar("Item", EntryId, tuple[int, bytes])

_BLOCK: Final = 512  # items
_DEAR: Final = 32  # to look for one takes as long as to pass over so many
_newest = itemgetter(-1)


class SortedList(Generic[Item]):
    """Each item is in it once. Not locked."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        ordered = sorted(items)
        self._count = len(ordered)
        # Invariant: no block is empty, unless it is the only one.
        self._blocks: list[list[Item]] = [ordered[at : at + _BLOCK] for at in range(0, len(ordered), _BLOCK)] or [[]]

    def __len__(self) -> int:
        return self._count

    def add(self, item: Item) -> None:
        """``item`` is not in it."""
        blocks = self._blocks
        block = blocks[-1]
        self._count += 1
        if not block or item > block[-1]:
            if len(block) < _BLOCK:
                block.append(item)
            else:
                blocks.append([item])
            return
        at = bisect_left(blocks, item, key=_newest)
        block = blocks[at]
        insort(block, item)
        if len(block) > 2 * _BLOCK:
            blocks.insert(at + 1, block[_BLOCK:])
            del block[_BLOCK:]

    def remove(self, item: Item) -> None:
        """``item`` is in it."""
        blocks, at = self._blocks, 0
        block = blocks[0]
        if item > block[-1]:
            at = bisect_left(blocks, item, 1, key=_newest)
            block = blocks[at]
        place = bisect_left(block, item)
        # Invariant: it is there, so the one found is it.
        assert block[place] == item
        del block[place]
        self._count -= 1
        if not block and len(blocks) > 1:
            del blocks[at]

    def remove_all(self, items: Iterable[Item]) -> None:
        """Many at once; all of them are in it."""
        gone = set(items)
        if len(gone) * _DEAR < self._count:
            for item in gone:
                self.remove(item)
        else:
            kept = ([item for item in block if item not in gone] for block in self._blocks)
            self._blocks = [block for block in kept if block] or [[]]
            self._count -= len(gone)

    def first(self) -> Item | None:
        return self._blocks[0][0] if self._count else None

    def last(self) -> Item | None:
        return self._blocks[-1][-1] if self._count else None

    def since(self, start: Item | None = None) -> Iterator[Item]:
        """Those from ``start`` on, in order. Nothing may be added or taken away meanwhile."""
        blocks, at, place = self._blocks, 0, 0
        if start is not None and self._count:
            at = bisect_left(blocks, start, key=_newest)
            if at == len(blocks):
                return
            place = bisect_left(blocks[at], start)
        yield from islice(blocks[at], place, None)
        for number in range(at + 1, len(blocks)):
            yield from blocks[number]

    def shrink(self) -> bool:
        """Give back the room of a block, for a list that nobody uses any more. False: it is empty."""
        self._blocks.pop()
        if not self._blocks:
            self._blocks, self._count = [[]], 0
            return False
        return True
