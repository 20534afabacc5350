"""How far the groups of a topic are behind, read from its files without opening it: nothing is healed, made or locked.

What a crash left torn at the end counts as not there, as it will when the topic is opened. Somebody may open, delete or
rename it meanwhile: then what comes out is worth nothing, or an error, and whoever asked has to know (unopened.py).
"""

from __future__ import annotations

from typing import NamedTuple

from lamina.engines.topics import checkpoint, group_lag, ids
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.finding import Finder
from lamina.engines.topics.group_snapshot import load
from lamina.engines.topics.group_state import Group, State
from lamina.engines.topics.ids import EntryId, ms_of
from lamina.engines.topics.topic import GROUPS
from lamina.log.files import Files, join
from lamina.log.naming import TIMED
from lamina.log.reader import Reader
from lamina.server.measures.topics_seen import bounded_lag


class GroupGlimpse(NamedTuple):
    """One group."""

    name: bytes
    lag: int
    first_ms: int
    """By its id, when the first entry was added that the group has not read; 0: it has read all."""
    pending: int


def glimpse(files: Files, folder: str, max_payload: int) -> tuple[GroupGlimpse, ...]:
    """Of all groups of the topic in ``folder``. Raises: LaminaError, OSError."""
    known = _groups(files, join(folder, GROUPS), max_payload)
    if not known.groups:
        return ()
    topic = _Closed(files, folder, max_payload)
    known.cut(topic.state.last_id)  # what the topic has lost they lose when it is opened
    return tuple(_of_one(topic, group) for group in known.groups.values())


def _groups(files: Files, folder: str, max_payload: int) -> State:
    try:
        files.list(folder)
    except FileNotFoundError:  # most topics have none
        return State()
    return load(Reader(folder, family=TIMED, files=files, max_payload=max_payload).batches()).state


def _of_one(topic: _Closed, group: Group) -> GroupGlimpse:
    lag = bounded_lag(topic.state, group, lambda: group_lag.lag(topic, group))
    first_ms = ms_of(topic.next_id_from(EntryId(group.last_id + 1))) if lag else 0
    return GroupGlimpse(group.name, lag, first_ms, len(group.pending))


class _Closed:
    """A topic as its files have it."""

    def __init__(self, files: Files, folder: str, max_payload: int) -> None:
        reader = Reader(folder, family=TIMED, files=files, max_payload=max_payload)
        self.state = checkpoint.load(files, folder, reader).state
        self._finder = Finder(reader)
        self._next: dict[EntryId, EntryId] = {}  # groups tend to stand at the same place

    def first_id(self) -> EntryId | None:
        return self.next_id_from(ids.FIRST) if self.state.length else None

    def next_id_from(self, start: EntryId) -> EntryId:
        """Of the first entry that is there at ``start`` or behind it; ``start`` if there is none."""
        start = max(start, EntryId(self.state.trimmed_to + 1))
        if start not in self._next:
            reached: EntryId | None = EntryId(start - 1)
            found: list[bytes] = []
            while not found and reached is not None:
                found, _, reached = self._finder.records(
                    EntryId(reached + 1), self.state.last_id, 1, self.state.deleted
                )
            self._next[start] = (entry_id(found[0]) if found else None) or start
        return self._next[start]
