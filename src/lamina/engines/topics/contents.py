"""The entries that are in a topic: from its files what is not in memory any more, the rest from its tail.

Who asks holds the lock of the topic. What would take long ends early, and says where it goes on.
"""

from __future__ import annotations

import sys
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from lamina.engines import loops
from lamina.engines.topics import ids
from lamina.engines.topics.entries import Picked, entry_id
from lamina.engines.topics.finding import Finder
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.ranges import IdRanges
from lamina.engines.topics.sorted_map import SortedMap
from lamina.engines.topics.tail import Tail
from lamina.log.reader import Reader
from lamina.units import MIB

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic

Range = tuple[EntryId, EntryId]
"""The first id and the last."""

MOST_CACHED: Final = 32 * MIB
_AROUND: Final = 200  # bytes of memory for a record that is cached, beside the record
_AT_ONCE: Final = 1000  # cached records that are given on a loop


class _Budget:
    """Of all topics of the process. Locked by itself."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.sizes: OrderedDict[_Cache, int] = OrderedDict()
        """Of each, the one that has not been added to for longest first."""
        self.total = 0

    def forget(self, cache: _Cache) -> None:
        """Holds the lock."""
        self.total -= self.sizes.pop(cache, 0)
        cache.records = SortedMap()


class _Cache:
    """Records of one topic that were read from files by id: what is pending is asked for again and again.

    All topics share MOST_CACHED bytes; the topic that has read nothing for longest gives all of its up.
    """

    _budget = _Budget()

    def __init__(self) -> None:
        self.records: SortedMap[EntryId, Picked] = SortedMap()
        self._position = 0

    def take(self, wanted: Sequence[EntryId]) -> tuple[list[Picked], list[EntryId], int]:
        """Those that are there, the ids of the others, and the position that showing them has to wait for."""
        records, position = self.records, self._position
        if not records:
            return [], list(wanted), 0
        found = [(id, records.get(id)) for id in wanted]
        there = [picked for _, picked in found if picked is not None]
        return there, [id for id, picked in found if picked is None], position if there else 0

    def keep(self, found: Sequence[Picked], position: int) -> None:
        """None of them is there yet."""
        size = sum([len(record) + _AROUND for _, record, _ in found])
        if size > MOST_CACHED:
            return
        budget = self._budget
        with budget.lock:
            while budget.total + size > MOST_CACHED:
                budget.forget(next(iter(budget.sizes)))
            budget.sizes[self] = budget.sizes.pop(self, 0) + size
            budget.total += size
            for picked in found:
                self.records.add(picked[0], picked)
            self._position = max(self._position, position)

    def clear(self) -> None:
        with self._budget.lock:
            self._budget.forget(self)


class Contents:
    """Of one topic. All methods raise Corruption, DiskError and BadRecord."""

    def __init__(self, topic: Topic, reader: Reader) -> None:
        self._topic = topic
        self.finder = Finder(reader)
        """Who writes files anew tells it."""
        self._cache = _Cache()

    def forget(self) -> None:
        """The topic is closed, or built anew: an id may be that of another entry then."""
        self._cache.clear()

    def piece(
        self, start: EntryId, end: EntryId, most: int, *, newest_first: bool, enough: int = sys.maxsize
    ) -> tuple[list[bytes], int, Range | None]:
        """Records of the first entries with ids from ``start`` to ``end``, the position of the newest of them, and what
        is left of the range when it ended with ``enough`` bytes read; None: that was all, or as many as were asked for.
        """
        state = self._topic.state
        start, last = max(start, EntryId(state.trimmed_to + 1)), min(end, state.last_id)
        if not state.length or not most:
            return [], 0, None
        gone = state.deleted or None
        found, position, rest = self.piece_but(gone, start, last, most, newest_first=newest_first, enough=enough)
        if rest is not None and not newest_first:
            rest = rest[0], end  # what comes meanwhile comes behind it
        return found, position, rest

    def piece_but(
        self,
        gone: IdRanges | None,
        start: EntryId,
        last: EntryId,
        most: int,
        *,
        newest_first: bool,
        enough: int = sys.maxsize,
    ) -> tuple[list[bytes], int, Range | None]:
        """The same of all that ever were there and are not ``gone``."""
        tail = self._topic.tail
        found: list[bytes] = []
        position = 0
        if gone is not None:
            start, last = gone.next_outside(start), gone.last_outside(last)
        if start > last:
            return found, position, None
        border = tail.first_id
        file_end = min(last, EntryId(border - 1))
        if newest_first:
            if last >= border:
                found, position = tail.pick(max(start, border), last, most, gone, newest_first=True)
            if start <= file_end and len(found) < most:
                older, at, reached = self.finder.newest(start, file_end, most - len(found), gone, enough)
                found += older
                position = max(position, at)
                if reached is not None:
                    return found, position, (start, EntryId(reached - 1))
            return found, position, None
        if start <= file_end:
            found, position, reached = self.finder.records(start, file_end, most, gone, enough)
            if reached is not None:
                return found, position, (EntryId(reached + 1), last)
        if last >= border and len(found) < most:
            newer, at = tail.pick(max(start, border), last, most - len(found), gone)
            found += newer
            position = max(position, at)
        return found, position, None

    def fill(self, tail: Tail, most: int) -> None:
        """Put the newest entries of the files into an empty tail, as many as fit in so many bytes."""
        newest = self.finder.newest_part(self._topic.state.last_id)
        first, size = len(newest), 0
        while first and size + len(newest[first - 1].payload) <= most:
            first -= 1
            size += len(newest[first].payload)
        if first < len(newest):
            tail.first_id = newest[first].id
        for entry in newest[first:]:
            tail.add(entry.id, entry.position, entry.payload)

    def by_id(self, wanted: Sequence[EntryId]) -> tuple[list[Picked], int, int]:
        """Those of the entries that are there, and the position of the newest. ``wanted`` are different ids in order.
        The third is how many of them were looked for when it ended early, else all.
        """
        state, tail = self._topic.state, self._topic.tail
        there = [id for id in wanted if state.has(id)]
        split = bisect_left(there, tail.first_id)
        found: list[Picked] = []
        position = 0
        if split:
            found, position, done = self._in_files(there[:split])
            if done < split:
                return found, position, bisect_left(wanted, there[done])
        kept, newest = tail.by_id(there[split:])
        return found + kept, max(position, newest), len(wanted)

    def _in_files(self, wanted: Sequence[EntryId]) -> tuple[list[Picked], int, int]:
        """As ``Finder.by_id``."""
        cached, missing, position = self._cache.take(wanted)
        if not missing:
            if len(wanted) > _AT_ONCE:
                loops.must_wait()
            return cached, position, len(wanted)
        found, newest, done = self.finder.by_id(missing)
        self._cache.keep(found, newest)
        if done < len(missing):
            done = bisect_left(wanted, missing[done])
            cached = [picked for picked in cached if picked[0] < wanted[done]]
        else:
            done = len(wanted)
        return sorted(cached + found, key=itemgetter(0)) if cached else found, max(position, newest), done

    def ids_from(self, start: EntryId, most: int) -> list[EntryId]:
        """Ids of the first entries at ``start`` or behind it: some, at most so many; none if there are none."""
        while True:
            found, _, rest = self.piece(start, ids.LAST, most, newest_first=False)
            if found or rest is None:
                return [id for record in found if (id := entry_id(record)) is not None]
            start = rest[0]

    def newest_but(self, kept: int) -> EntryId:
        """The id of the newest entry in front of so many newer ones. There are more than that."""
        end: EntryId = ids.LAST
        while True:
            found, _, rest = self.piece(ids.FIRST, end, kept + 1, newest_first=True)
            if len(found) > kept:
                id = entry_id(found[kept])
                assert id is not None  # topics give entries only
                return id
            assert rest is not None  # the length says so
            kept, end = kept - len(found), rest[1]
