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

    def first(self, behind: EntryId = FIRST) -> EntryId | None:
        """The oldest; None if there is none. ``behind``: all up to this one were taken."""
        ids, state = self._ids, self._state
        while ids and not state.has(ids[0]):
            ids.popleft()
        if not ids:
            ids.extend(self._read(EntryId(max(state.trimmed_to, behind) + 1), _AHEAD))
        return ids[0] if ids else None

    def take(self, most: int | None, before: EntryId | None = None) -> tuple[EntryId, int]:
        """Take the oldest, at most so many, and only such before an id. Returns the last of them, and how many.

        They are to be trimmed now; if that fails, ``forget``.
        """
        count, last = 0, FIRST
        while most is None or count < most:
            id = self.first(last)
            if id is None or (before is not None and id >= before):
                break
            self._ids.popleft()
            count, last = count + 1, id
        return last, count

    def knows(self, most: int | None, before: EntryId | None) -> bool:
        """``take`` needs to read nothing."""
        if before is not None and self._ids and self._ids[-1] >= before:
            return True
        return most is not None and sum(1 for _ in islice(filter(self._state.has, self._ids), most)) == most

    def forget(self) -> None:
        self._ids.clear()
