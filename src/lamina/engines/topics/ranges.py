"""A set of entry ids kept as ranges in which nothing is alive: what was deleted from a topic one by one.

A range goes from an entry that was alive when it began (not included) to a deleted one (included). So the deletions of
neighbours touch and become one range, in whatever order they come: a queue that deletes what is done keeps one,
however long it runs. Whoever deletes, or reads, tells what it knows of the neighbours; without that, a deletion is a
range of its own until it is known.

Ranges are packed into bytes and kept in blocks of some hundred: each costs little room, and every change the same.
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lamina.engines.topics.ids import LAST, EntryId

_BLOCK: Final = 512  # ranges
_TAIL: Final = struct.Struct(">16sQ")
ID_SIZE: Final = 16
PACKED: Final = ID_SIZE + _TAIL.size
_PAST_ALL: Final = b"\xff" * (PACKED + 1)


class Range(NamedTuple):
    """No entry past ``after`` and up to ``last`` is alive."""

    after: EntryId
    last: EntryId
    ids: int
    """How many were deleted there, at least: of a range that was cut it is not known."""


class IdRanges:
    """Sorted, apart from each other. Not locked."""

    def __init__(self, packed: Iterable[bytes] = ()) -> None:
        """``packed``: ranges in order, as ``packed`` gives them."""
        ranges = list(packed)
        # Each begins with its last id, so bytes sort as ids do.
        # Invariant: no block is empty, unless it is the only one.
        self._blocks: list[list[bytes]] = [ranges[at : at + _BLOCK] for at in range(0, len(ranges), _BLOCK)] or [[]]
        self.ids = sum(_unpack(each).ids for each in ranges)
        """Deleted ids in all ranges, at least."""
        # What was last looked up: all of these ids are in a range, or none is. Most are asked for in order.
        self._low, self._high, self._is_in = 1, 0, False

    def __bool__(self) -> bool:
        return bool(self._blocks[0])

    def __len__(self) -> int:
        """How many ranges."""
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[Range]:
        return map(_unpack, self.packed())

    def packed(self) -> Iterator[bytes]:
        """All ranges in order, ``PACKED`` bytes each."""
        for block in self._blocks:
            yield from block

    def copy(self) -> IdRanges:
        other = IdRanges()
        other._blocks, other.ids = [block[:] for block in self._blocks], self.ids
        return other

    def __contains__(self, id: EntryId) -> bool:
        """``id`` is in a range."""
        if not self._low <= id <= self._high:
            self._look_up(id)
        return self._is_in

    def next_outside(self, id: EntryId) -> EntryId:
        """``id``, or the first behind the range that it is in."""
        return EntryId(self._high + 1) if id in self else id

    def next_inside(self, id: EntryId) -> EntryId:
        """``id``, or the first behind it that is in a range; one past all ids if none is."""
        return id if id in self else EntryId(min(self._high, LAST) + 1)

    def last_inside(self, id: EntryId) -> EntryId:
        """``id``, or the last in front of it that is in a range; 0 if none is."""
        return id if id in self else EntryId(max(self._low, 1) - 1)

    def last_outside(self, id: EntryId) -> EntryId:
        """``id``, or the last in front of the range that it is in."""
        return EntryId(self._low - 1) if id in self else id

    def last(self) -> EntryId | None:
        """The last id of all."""
        block = self._blocks[-1]
        return _unpack(block[-1]).last if block else None

    def between(self, after: EntryId, last: EntryId) -> int:
        """Ids past ``after`` and up to ``last`` that were deleted, at least: parts of ranges are not counted."""
        return sum(each.ids for each in self._within(after, last))

    def part(self, after: EntryId, last: EntryId) -> IdRanges:
        """The ranges that have ids past ``after`` and up to ``last``."""
        blocks, (at, place) = self._blocks, self._find(EntryId(after + 1))
        found: list[bytes] = []
        for number in range(at, len(blocks)):
            for packed in blocks[number][place:]:
                if _unpack(packed).after >= last:
                    return IdRanges(found)
                found.append(packed)
            place = 0
        return IdRanges(found)

    # -- changes -----------------------------------------------------------------------------------------------------

    def add(self, after: EntryId, last: EntryId, ids: int = 1) -> None:
        """Nothing past ``after`` and up to ``last`` is alive; so many of those were deleted just now."""
        self._low, self._high = 1, 0
        self.ids += ids
        blocks, (at, place) = self._blocks, self._find(after)
        block, stop = blocks[at], place
        while True:  # take in all that it touches
            if stop == len(block):
                if at + 1 == len(blocks) or _unpack(blocks[at + 1][0]).after > last:
                    break
                block += blocks.pop(at + 1)
            known = _unpack(block[stop])
            if known.after > last:
                break
            after, last, ids = min(after, known.after), max(last, known.last), ids + known.ids
            stop += 1
        block[place:stop] = [_pack(after, last, ids)]
        if len(block) > 2 * _BLOCK:
            blocks[at : at + 1] = [block[begin : begin + _BLOCK] for begin in range(0, len(block), _BLOCK)]

    def add_all(self, deleted: Iterable[tuple[EntryId, EntryId]]) -> None:
        """Many that were deleted just now, in order: of each the id before which nothing is known, and its own."""
        after = last = None
        count = 0
        for before, id in deleted:
            if last is None or after is None or before > last:
                if last is not None and after is not None:
                    self.add(after, last, count)
                after, count = before, 0
            last, count = id, count + 1
        if last is not None and after is not None:
            self.add(after, last, count)

    def learn(self, ids: Iterable[EntryId], before: EntryId) -> EntryId:
        """Ids of entries that follow each other, the first of them after ``before``: those in ranges that are
        neighbours become one range. Returns the last of the ids.
        """
        after = last = None
        for id in ids:
            if id in self:
                after, last = (before if after is None else after), id
            elif after is not None and last is not None:
                self.add(after, last, 0)
                after = None
            before = id
        if after is not None and last is not None:
            self.add(after, last, 0)
        return before

    def forget_to(self, id: EntryId) -> None:
        """Nothing up to ``id`` matters any more."""
        self._low, self._high = 1, 0
        blocks, (at, place) = self._blocks, self._find(EntryId(id + 1))
        self.ids -= sum(_unpack(each).ids for block in blocks[:at] for each in block)
        del blocks[:at]
        block = blocks[0]
        self.ids -= sum(_unpack(each).ids for each in block[:place])
        del block[:place]
        if block and (cut := _unpack(block[0])).after < id:
            self.ids -= cut.ids
            block[0] = _pack(id, cut.last, 0)
        if not block and len(blocks) > 1:
            del blocks[0]

    def discard(self, packed: Iterable[bytes]) -> None:
        """Nobody asks for ids of these ranges any more: forget those that are still as they were. Not the last of all:
        it says which ids were in use.
        """
        self._low, self._high = 1, 0
        blocks = self._blocks
        for one in packed:
            found = _unpack(one)
            at, place = self._find(found.last)
            block = blocks[at]
            if place < len(block) and block[place] == one and one != blocks[-1][-1]:
                self.ids -= found.ids
                del block[place]
                if not block:
                    del blocks[at]

    # -- looking things up -------------------------------------------------------------------------------------------

    def _find(self, id: EntryId) -> tuple[int, int]:
        """Block and place of the first range that ends at ``id`` or later; the very end if there is none."""
        key, blocks = id.to_bytes(ID_SIZE, "big") if id <= LAST else _PAST_ALL, self._blocks
        low, high = 0, len(blocks) - 1
        while low < high:
            middle = (low + high) // 2
            if blocks[middle][-1] < key:
                low = middle + 1
            else:
                high = middle
        return low, bisect_left(blocks[low], key)

    def _look_up(self, id: EntryId) -> None:
        at, place = self._find(id)
        block = self._blocks[at]
        before = block[place - 1] if place else self._blocks[at - 1][-1] if at else None
        self._low = 0 if before is None else _unpack(before).last + 1
        self._high, self._is_in = LAST + 1, False
        if place < len(block):
            found = _unpack(block[place])
            if found.after < id:
                self._low, self._high, self._is_in = found.after + 1, found.last, True
            else:
                self._high = found.after

    def _within(self, after: EntryId, last: EntryId) -> Iterator[Range]:
        """The ranges that are whole past ``after`` and up to ``last``."""
        blocks, (at, place) = self._blocks, self._find(EntryId(after + 1))
        for number in range(at, len(blocks)):
            for packed in blocks[number][place:]:
                found = _unpack(packed)
                if found.last > last:
                    return
                if found.after >= after:
                    yield found
            place = 0


def _pack(after: EntryId, last: EntryId, ids: int) -> bytes:
    return last.to_bytes(ID_SIZE, "big") + _TAIL.pack(after.to_bytes(ID_SIZE, "big"), ids)


def _unpack(packed: bytes) -> Range:
    after, ids = _TAIL.unpack_from(packed, ID_SIZE)
    return Range(EntryId(int.from_bytes(after, "big")), EntryId(int.from_bytes(packed[:ID_SIZE], "big")), ids)
