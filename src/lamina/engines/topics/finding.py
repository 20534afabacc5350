"""Entries in the files of a topic, found by id.

Ids and positions both only grow, so the sparse index of a file (position to offset) leads to an id as well: by
bisection over its points, reading one record at each that is asked. What a point was found to hold is remembered.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum, auto
from typing import Final, NamedTuple

from lamina.engines import loops
from lamina.engines.topics.entries import entry_id, pick
from lamina.engines.topics.ids import EntryId, ms_of
from lamina.errors import BadTopic, Corruption
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index
from lamina.log.naming import FileName
from lamina.log.reader import Reader, Segment
from lamina.log.scan import HEADER_SIZE, WINDOW, Batch, FileScan, read_whole
from lamina.units import MIB

MOST_BYTES: Final = 256 * MIB
"""Of entries that are read at once: what is read has to be in memory."""
_MOST_KNOWN: Final = 100_000  # points
_MOST_READERS: Final = 1000  # of whom it is remembered where they go on
_FEW: Final = 1000  # entries for which a small part of a file will do
_WINDOW: Final = 64 * 1024


class Found(NamedTuple):
    """An entry as it is in the log."""

    id: EntryId
    position: int
    payload: bytes


class Finder:
    """Reads one topic. Threads: one at a time."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader
        self._known: OrderedDict[int, EntryId] = OrderedDict()
        self._firsts: dict[str, EntryId] = {}  # of each file the id of its first entry
        self._listed: tuple[FileName, list[FileName]] | None = None  # all files when this one was the newest
        self._behind: OrderedDict[EntryId, tuple[FileName, int]] = OrderedDict()
        """Where those go on who read up to an id: most come back for what is behind it."""

    def records(
        self, start: EntryId, end: EntryId, most: int, has: Callable[[EntryId], bool] | None = None
    ) -> tuple[list[bytes], int]:
        """The entries in the files with ids from ``start`` to ``end``, as records, at most so many; and the position of
        the last one. ``has`` tells which of them are there, if some are not.

        Raises: Corruption, DiskError; BadRecord.
        """
        loops.must_wait()
        found: list[bytes] = []
        position = size = 0
        window = _WINDOW if most <= _FEW else WINDOW
        names = self._names()
        for segment, batch in self._reader.batches(begin=self._begin(start, names), names=names, window=window):
            left = most - len(found)
            some, last, looked, is_over = pick(batch.data, batch.offsets, batch.lengths, start, end, left, has)
            if some:
                found += some
                size += sum(map(len, some))
                position = batch.times[last]
                check_size(size)
            if len(found) == most:
                self._remember(found[-1], segment, batch, looked)
                break
            if is_over:
                break
        return found, position

    def _names(self) -> list[FileName]:
        """Of all files; perhaps of some that are gone, in which nobody looks for anything any more."""
        live = self._reader.live
        newest = None if live is None else live.readable
        if newest is None or self._listed is None or self._listed[0] != newest[0]:
            names = self._reader.segments()
            if newest is None:
                return names
            self._listed = newest[0], names
        return self._listed[1]

    def _begin(self, start: EntryId, names: list[FileName]) -> tuple[FileName, int] | None:
        """The file and the offset at which reading forward meets ``start``; None: at the very start."""
        known = self._behind.pop(start, None)
        if known is not None:
            return known
        place = self._locate(names, start)
        return None if place is None else (names[place.file], place.offset)

    def _remember(self, last: bytes, segment: Segment, batch: Batch, looked: int) -> None:
        id = entry_id(last)
        if id is not None:
            offset = batch.record_offset(looked) if looked < len(batch.times) else batch.end
            self._behind[EntryId(id + 1)] = segment.name, offset
            if len(self._behind) > _MOST_READERS:
                self._behind.popitem(last=False)

    def entries(self, start: EntryId, end: EntryId) -> Iterator[Found]:
        """Every entry in the files with an id from ``start`` to ``end``, in order, deleted ones too.

        Raises: Corruption, DiskError.
        """
        loops.must_wait()
        names = self._names()
        for _, batch in self._reader.batches(begin=self._begin(start, names), names=names, window=_WINDOW):
            for number in range(len(batch.times)):
                payload = batch.payload(number)
                id = entry_id(payload)
                if id is not None and id >= start:
                    if id > end:
                        return
                    yield Found(id, batch.times[number], payload)

    def backwards(self, start: EntryId, end: EntryId) -> Iterator[Found]:
        """The same, newest first."""
        loops.must_wait()
        names = self._names()
        place = self._locate(names, end)
        if place is None:
            return
        points: int | None = place.point + 1
        for number in range(place.file, -1, -1):
            segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
            if segment is None:
                continue
            try:
                for piece in reversed(self._reader.index_of(segment).ranges()[:points]):
                    found = read_piece(segment, *piece)
                    yield from (entry for entry in reversed(found) if start <= entry.id <= end)
                    if found and found[0].id < start:
                        return
            finally:
                segment.file.close()
            points = None

    # -- where an id is ----------------------------------------------------------------------------------------------

    def _locate(self, names: list[FileName], id: EntryId) -> _Place | None:
        """The last point at which reading forward meets ``id``, if there is such an entry; None: at the very start.

        A point behind which its file has no entry counts as one past the id: reading then begins earlier, that is all.
        """
        low, high = 0, len(names)
        best: int | None = None
        while low < high:
            middle = at = (low + high) // 2
            first = self._first_of(names, at)
            while first is _NO_ENTRY and at + 1 < high:
                at += 1
                first = self._first_of(names, at)
            if first is _GONE or (not isinstance(first, _Nowhere) and first <= id):
                best, low = (best if first is _GONE else at), at + 1
            else:
                high = middle
        return None if best is None else self._locate_in(names, best, id)

    def _first_of(self, names: list[FileName], number: int) -> EntryId | _Nowhere:
        """The id of the first entry of a file."""
        name, is_newest = names[number], number == len(names) - 1
        known = self._firsts.get(name.name)
        if known is not None:
            return known
        segment = self._reader.open(name, is_newest=is_newest)
        if segment is None:
            return _NO_ENTRY if is_newest else _GONE
        try:
            found = self._entry_behind(segment, HEADER_SIZE)
        finally:
            segment.file.close()
        if found is None:
            return _NO_ENTRY
        if len(self._firsts) >= _MOST_KNOWN:
            self._firsts.clear()
        self._firsts[name.name] = found
        return found

    def _locate_in(self, names: list[FileName], number: int, id: EntryId) -> _Place | None:
        """The last point of a file whose entry is not past ``id``; None if the file was just removed."""
        segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
        if segment is None:
            return None
        try:
            index = self._reader.index_of(segment)
            low, high, step = 0, len(index.times), 1
            # Ids and positions are both times, nearly always: begin where the id would be then, and look around there.
            middle = max(bisect_right(index.times, ms_of(id) * 1_000_000) - 1, 0)
            while low < high:
                if not low <= middle < high:
                    middle = (low + high) // 2
                found = self._entry_at(segment, index, middle)
                if found is None or found > id:
                    high, middle = middle, middle - step
                else:
                    low, middle = middle + 1, middle + step
                step *= 2
            return _Place(number, low - 1, index.offsets[low - 1]) if low else _Place(number, 0, HEADER_SIZE)
        finally:
            segment.file.close()

    def _entry_at(self, segment: Segment, index: Index, point: int) -> EntryId | None:
        """Id of the first entry at or behind a point; None if the file has none there."""
        position = index.times[point]
        known = self._known.get(position)
        if known is not None:
            self._known.move_to_end(position)
            return known
        found = self._entry_behind(segment, index.offsets[point])
        if found is not None:
            self._known[position] = found
            if len(self._known) > _MOST_KNOWN:
                self._known.popitem(last=False)
        return found

    def _entry_behind(self, segment: Segment, offset: int) -> EntryId | None:
        """Id of the first entry at or behind an offset; None if the file has none there."""
        while not isinstance(found := read_whole(segment.file, offset, segment.end), Stop):
            head, payload = found
            id = entry_id(payload)
            if id is not None:
                return id
            offset = head.end
        return None


class _Place(NamedTuple):
    file: int
    point: int
    offset: int


class _Nowhere(Enum):
    NO_ENTRY = auto()
    GONE = auto()
    """It was just removed, and all before it were: nobody looks for what was there."""


_NO_ENTRY, _GONE = _Nowhere


def check_size(size: int) -> None:
    """Raises: BadTopic if so many bytes are more than anybody gets at once."""
    if size > MOST_BYTES:
        raise BadTopic(f"more than {MOST_BYTES // MIB} MiB of entries were asked for at once: use COUNT")


def read_piece(segment: Segment, start: int, end: int) -> list[Found]:
    """The entries of a part of a file."""
    scan = FileScan(segment.file, start, end)
    found = []
    for batch in scan:
        for number in range(len(batch.times)):
            payload = batch.payload(number)
            id = entry_id(payload)
            if id is not None:
                found.append(Found(id, batch.times[number], payload))
    if scan.stop < end:
        raise Corruption(segment.name.name, scan.stop, REASONS[scan.why or Stop.TRUNCATED])
    return found
