"""How many entries a group has read, and how many it has yet to read: known, worked out, or not to be known.

As Redis 7.0 does it: a count goes up by one with each entry as long as no entry behind it was ever deleted; where that
does not hold, the place of an id among all entries ever added is known at the ends of the topic only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Protocol

from lamina.engines.topics.codec import MOST_COUNTED
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import FIRST, EntryId
from lamina.engines.topics.state import State


class Entries(Protocol):
    """What has to be known of a topic."""

    state: State

    def first_id(self) -> EntryId | None: ...


def lag(topic: Entries, group: Group) -> int | None:
    """Entries that the group has yet to read; None: that cannot be known."""
    if not topic.state.added:
        return 0
    read = group.read
    first = _first_of(topic)
    if read is None or _has_gaps(topic.state, group.last_id, first):
        read = _place_of(topic.state, group.last_id, first)
    return None if read is None else topic.state.added - read


def read_after(topic: Entries, read: int | None, ids: Iterable[EntryId]) -> int | None:
    """How many a group has read once it has got these entries, too."""
    first = _first_of(topic)
    for id in ids:
        if read is not None and not _has_gaps(topic.state, id, first):
            read = min(read + 1, MOST_COUNTED)
        elif topic.state.added:
            read = _place_of(topic.state, id, first)
    return read


def _has_gaps(state: State, start: EntryId, first_id: Callable[[], EntryId]) -> bool:
    """An entry at ``start`` or behind it was deleted, and there are some before that one."""
    newest = state.max_deleted
    return bool(state.length) and newest != FIRST and start <= newest and first_id() <= newest


def _first_of(topic: Entries) -> Callable[[], EntryId]:
    """Looked up when it is asked for, and once: it may be in a file."""
    return cache(lambda: topic.first_id() or FIRST)


def _place_of(state: State, id: EntryId, first_id: Callable[[], EntryId]) -> int | None:
    """How many entries were ever added up to this id; None: that cannot be known."""
    if not state.added:
        return 0
    if not state.length and id <= state.last_id:
        return state.added
    if id >= state.last_id:
        return state.added if id == state.last_id else None
    first = first_id()
    if (state.max_deleted == FIRST or state.max_deleted < first) and id <= first:
        return state.added - state.length + (id == first)
    return None
