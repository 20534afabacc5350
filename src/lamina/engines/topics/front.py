"""The oldest entries of a topic, read ahead: trimming them one by one must not look into the files each time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import Final

from lamina.engines.topics.ids import FIRST, EntryId
from lamina.engines.topics.state import State

_AHEAD: Final = 1000

Read = Callable[[EntryId, int], list[EntryId]]
"""Ids of the first entries that are there at or behind an id, at most so many."""


class Front:
    """Ids of the oldest entries of ``state``, which changes meanwhile."""

    def __init__(self, state: State, read: Read) -> None:
        self._state = state
        self._read = read
        self._ids: deque[EntryId] = deque()  # the oldest that are there, and perhaps some that are not any more
        self._edge: tuple[EntryId, int, EntryId] | None = None  # what was trimmed, the count, and the id there

    def first(self, behind: EntryId = FIRST) -> EntryId | None:
        """The oldest; None if there is none. ``behind``: all up to this one were taken."""
        ids, state = self._ids, self._state
        while ids and not state.has(ids[0]):
            ids.popleft()
        if not ids:
            ids.extend(self._read(EntryId(max(state.trimmed_to, behind) + 1), _AHEAD))
        return ids[0] if ids else None

    def edge(self, count: int) -> EntryId | None:
        """The id of the so-maniest of the oldest; None: there are fewer.

        It is looked for once and stays until it goes: what is deleted in front of it meanwhile is not made up for.
        """
        state = self._state
        if self._edge is None or self._edge[:2] != (state.trimmed_to, count) or not state.has(self._edge[2]):
            if state.length < count:
                return None
            found: list[EntryId] = []
            while len(found) < count:
                more = self._read(EntryId((found[-1] if found else state.trimmed_to) + 1), count - len(found))
                if not more:
                    return None
                found += more
            self._edge = state.trimmed_to, count, found[-1]
        return self._edge[2]

    def take(self, most: int | None, before: EntryId | None = None, by: int = 1) -> tuple[EntryId, int]:
        """Take the oldest, at most so many, and only such before an id. Returns the last of them, and how many: a
        multiple of ``by`` unless nothing is left.

        They are to be trimmed now; if that fails, ``forget``.
        """
        count, last = 0, FIRST
        more: list[EntryId] = []  # since the last multiple
        while most is None or count + len(more) < most:
            id = self.first(more[-1] if more else last)
            if id is None:
                return (more[-1] if more else last), count + len(more)
            if before is not None and id >= before:
                break
            self._ids.popleft()
            more.append(id)
            if len(more) == by:
                count, last = count + by, id
                more.clear()
        self._ids.extendleft(reversed(more))
        return last, count

    def knows(self, most: int | None, before: EntryId | None) -> bool:
        """``take`` needs to read nothing."""
        if before is not None and self._ids and self._ids[-1] >= before:
            return True
        return most is not None and sum(1 for _ in islice(filter(self._state.has, self._ids), most)) == most

    def forget(self) -> None:
        self._ids.clear()
