"""Ids in order, when most come at the end and any may go.

What is pending for a group, or for one of its consumers, is asked for by id and in the order of ids. A million of
them cost a list of pointers: an id that goes stays in the list until half of it is gone, and who walks along asks for
each whether it is still there. One that comes out of order (a claim, a snapshot that is read) is put at the end, and
the list is sorted when somebody next walks along. So adding and taking away cost next to nothing. Trees and lists of
lists were not worth their weight: ids come in order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import groupby
from typing import Final

from lamina.engines.topics.ids import FIRST, EntryId

_SPARE: Final = 64  # gone ids that are not worth tidying up


class IdList:
    """Invariant: from ``_start`` on the list has every id that is there, and is sorted unless ``_is_mixed``."""

    def __init__(self, is_there: Callable[[EntryId], bool]) -> None:
        self._is_there = is_there
        self._ids: list[EntryId] = []
        self._start = 0
        """All before it are gone."""
        self._is_mixed = False
        self._count = 0

    def __len__(self) -> int:
        """Ids that are there."""
        return self._count

    def add(self, id: EntryId) -> None:
        """``id`` is there from now on, and was not before."""
        ids = self._ids
        self._count += 1
        if ids and id <= ids[-1]:
            self._is_mixed = True
        ids.append(id)

    def discard(self) -> None:
        """One that was there is so no more."""
        self._count -= 1
        if len(self._ids) > 2 * self._count + _SPARE:
            self._tidy()

    def _tidy(self) -> None:
        """Keep those that are there, each once."""
        ids = self._ids[self._start :]
        if self._is_mixed:
            ids.sort()
            ids = [id for id, _ in groupby(ids)]
        self._ids = [id for id in ids if self._is_there(id)]
        self._start, self._is_mixed = 0, False

    def first(self) -> EntryId | None:
        if self._is_mixed:
            self._tidy()
        ids = self._ids
        while self._start < len(ids):
            if self._is_there(ids[self._start]):
                return ids[self._start]
            self._start += 1
        return None

    def last(self) -> EntryId | None:
        if self._is_mixed:
            self._tidy()
        ids = self._ids
        while len(ids) > self._start:
            if self._is_there(ids[-1]):
                return ids[-1]
            ids.pop()
        return None

    def since(self, start: EntryId = FIRST) -> Iterator[EntryId]:
        """Those from ``start`` on, in order. Nothing may be added or taken away meanwhile."""
        self.first()
        for place in range(bisect_left(self._ids, start, self._start), len(self._ids)):
            if self._is_there(self._ids[place]):
                yield self._ids[place]
