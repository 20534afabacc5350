"""Who keeps entries of a topic from going: groups that have not acknowledged them yet.

A group nobody of which is seen for long does so only as long as the retention says. It is never taken to be away for
longer than the entries it neglects are there; and a group that never had a consumer, of which no time is known, not
for longer than this process has seen it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

from lamina.engines.topics import ids
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import EntryId

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic


class Holder(NamedTuple):
    """A group, as retention sees it."""

    name: bytes
    needed: EntryId
    """It may yet ask for this entry and all behind it."""
    seen_ms: int
    """When somebody of it was last seen."""

    def needs(self, last: EntryId | None) -> bool:
        """Something up to ``last``."""
        return last is not None and self.needed <= last

    def holds(self, last: EntryId | None, newest_ns: int, hold_s: float | None, now_ns: int) -> bool:
        """It keeps a file whose last entry and newest record are these."""
        if not self.needs(last) or hold_s is None:
            return self.needs(last)
        away_since = max(self.seen_ms * 1_000_000, newest_ns)
        return now_ns - away_since <= hold_s * 10**9


class Sightings:
    """When somebody of each group of one topic was last seen, as far as it can be known."""

    def __init__(self) -> None:
        self._seen: WeakKeyDictionary[Group, int] = WeakKeyDictionary()

    def holders(self, topic: Topic, now_ns: int) -> list[Holder]:
        """All groups of the topic, by name. Raises: what opening their log does."""
        groups = topic.groups
        with topic.lock:
            return [
                Holder(name, group.oldest_needed(), self._see(group, now_ns // 1_000_000))
                for name, group in sorted(groups.state.groups.items())
            ]

    def _see(self, group: Group, now_ms: int) -> int:
        seen = max((consumer.seen for consumer in group.consumers.values()), default=None)
        known = self._seen.get(group)
        if seen is None:
            # The last entry it got was there then. An id that a client made up may be of any time.
            seen = min(ids.ms_of(group.last_id), now_ms) if known is not None else now_ms
        self._seen[group] = max(seen, known or 0)
        return self._seen[group]
