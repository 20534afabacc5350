"""Entries in the files of a topic, found by id.

Ids and positions both only grow, so the sparse index of a file (position to offset) leads to an id as well: by
bisection over its points, reading one record at each that is asked. What a point was found to hold is remembered.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto
from typing import Final, NamedTuple

from lamina.engines import loops
from lamina.engines.topics.entries import Picked, entry_id, pick, pick_wanted
from lamina.engines.topics.ids import EntryId, ms_of
from lamina.engines.topics.ranges import IdRanges
from lamina.errors import BadTopic, Corruption
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index
from lamina.log.naming import FileName, follows
from lamina.log.reader import Reader, Segment, attested_at_head
from lamina.log.scan import HEADER_SIZE, WINDOW, Batch, FileScan, read_whole
from lamina.units import MIB

MOST_BYTES: Final = 256 * MIB
"""Of entries that are read at once: what is read has to be in memory."""
ENOUGH: Final = 4 * MIB
"""Of files that are read while others wait for the topic: then it is their turn."""
MOST_NEW: Final = 8 * MIB
"""Of entries that are given at once to who reads on: the rest comes when it asks again."""
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
        self._hidden: frozenset[FileName] = frozenset()
        self._is_changing = False

    def records(
        self, start: EntryId, end: EntryId, most: int, gone: IdRanges | None = None, enough: int = sys.maxsize
    ) -> tuple[list[bytes], int, EntryId | None]:
        """The entries in the files with ids from ``start`` to ``end``, as records, at most so many; and the position of
        the last one. ``gone``: where none is alive. Such ranges are jumped over, and what was read in vain is added.

        It ends once ``enough`` bytes were read, or ENOUGH: the third is the id behind which it goes on then, else None.
        Raises: Corruption, DiskError; BadRecord.
        """
        loops.must_wait()
        found: list[bytes] = []
        position = size = 0
        enough = min(enough, ENOUGH)
        window = _WINDOW if most <= _FEW else WINDOW
        names = self._names()
        is_done = False
        while not is_done:
            start = start if gone is None else gone.next_outside(start)
            if start > end:
                break
            is_done = True  # unless something is jumped over
            for segment, batch in self._reader.batches(begin=self._begin(start, names), names=names, window=window):
                left = most - len(found)
                some, last, looked, is_over = pick(batch.data, batch.offsets, batch.lengths, start, end, left, gone)
                if some:
                    found += some
                    position = batch.times[last]
                if len(found) == most:
                    self._remember(entry_id(found[-1]), segment, batch, looked)
                    break
                if is_over:
                    break
                size += batch.end - batch.base
                reached = _last_id(batch) if size >= enough or gone is not None else None
                if reached is None or reached < start:
                    continue
                if gone is not None:
                    if not some:
                        gone.add(EntryId(start - 1), reached, 0)
                    start = EntryId(reached + 1)
                if size >= enough:
                    self._remember(reached, segment, batch, len(batch.times))
                    return found, position, reached
                if gone is not None and gone.next_outside(start) - start > reached - (_first_id(batch) or reached):
                    is_done = False
                    break
        return found, position, None

    def begin_change(self) -> None:
        """A file is about to be written anew: no offset in it is remembered until ``end_change``."""
        self._behind.clear()
        self._is_changing = True

    def end_change(self, without: Iterable[FileName] = ()) -> None:
        """``without``: files in which nothing is looked for from now on, so that they can go."""
        self._known.clear()
        self._firsts.clear()
        self._listed = None
        self._hidden = frozenset(without)
        self._is_changing = False

    def _names(self) -> list[FileName]:
        """Of all files; perhaps of some that are gone, in which nobody looks for anything any more."""
        live = self._reader.live
        newest = None if live is None else live.readable
        if newest is None or self._listed is None or self._listed[0] != newest[0]:
            names = [name for name in self._reader.segments() if name not in self._hidden]
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

    def _remember(self, id: EntryId | None, segment: Segment, batch: Batch, looked: int) -> None:
        if id is not None and not self._is_changing:
            offset = batch.record_offset(looked) if looked < len(batch.times) else batch.end
            self._behind[EntryId(id + 1)] = segment.name, offset
            if len(self._behind) > _MOST_READERS:
                self._behind.popitem(last=False)

    def newest(
        self, start: EntryId, end: EntryId, most: int, gone: IdRanges | None = None, enough: int = sys.maxsize
    ) -> tuple[list[bytes], int, EntryId | None]:
        """The entries in the files with ids from ``start`` to ``end``, newest first, as records, at most so many; and
        the position of the first of them. ``gone`` as in ``records``.

        ``enough`` as in ``records``: the third is the id in front of which it goes on then, else None.
        Raises: Corruption, DiskError; BadRecord.
        """
        loops.must_wait()
        found: list[bytes] = []
        position = size = 0
        enough = min(enough, ENOUGH)
        is_done = False
        while not is_done:
            end = end if gone is None else gone.last_outside(end)
            if end < start:
                break
            is_done = True  # unless something is jumped over
            for segment, begin, until in self._pieces_back(end):
                some, newest, ids = _pick_back(segment, begin, until, start, end, gone)
                found += some[: most - len(found)]
                position = max(position, newest)
                if len(found) == most or (ids is not None and ids.first <= start):
                    break
                if ids is None:
                    continue
                if not size:  # nobody knows whether there was ever an entry between its last one and ``end``
                    end = min(end, ids.last)
                size += until - begin
                if ids.first > end:
                    continue
                if gone is not None and not some:
                    gone.add(EntryId(ids.first - 1), end, 0)
                if size >= enough:
                    return found, position, ids.first
                end = min(end, EntryId(ids.first - 1))
                if gone is not None and end - gone.last_outside(end) > ids.last - ids.first:
                    is_done = False
                    break
        return found, position, None

    def newest_part(self, last: EntryId) -> list[Found]:
        """All entries of the part of a file that has ``last``, the last id of all; none if the entry is not there."""
        for segment, begin, until in self._pieces_back(last):
            found = read_piece(segment, begin, until)
            return found if found and found[-1].id == last else []
        return []

    def _pieces_back(self, end: EntryId) -> Iterator[tuple[Segment, int, int]]:
        """The parts of files between the points of their indexes, from the one that has ``end`` in it backwards."""
        names = self._names()
        place = self._locate(names, end)
        if place is None:
            return
        points: int | None = place.point + 1
        later: Segment | None = None
        for number in range(place.file, -1, -1):
            segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
            if segment is None:
                continue
            try:
                index = self._index_of(segment)
                if later is not None and later.attested is not None and follows(segment.name, later.name):
                    self._reader.check_reaches(segment.name, segment.end, index.last_data, later.attested)
                for piece in reversed(index.ranges()[:points]):
                    yield segment, *piece
                segment.attested = attested_at_head(segment, self._reader.max_payload)
            finally:
                segment.file.close()
            later, points = segment, None

    def by_id(self, wanted: Sequence[EntryId]) -> tuple[list[Picked], int, int]:
        """The entries in the files with these ids, which are different ones in order, and the position of the last one.
        Parts of files in which none of them can be are jumped over by the index.

        It ends once ENOUGH was read: the third is how many of the ids were looked for.
        Raises: Corruption, DiskError; BadRecord.
        """
        loops.must_wait()
        names = self._names()
        found: list[Picked] = []
        position = size = done = 0
        while done < len(wanted) and size < ENOUGH:
            number = self._file_of(names, wanted[done])
            later = self._first_behind(names, -1 if number is None else number)
            limit = len(wanted) if later is None else bisect_left(wanted, later, done)
            segment = None
            if number is not None:
                segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
            if number is None or segment is None:
                done = limit
                continue
            try:
                index = self._reader.index_of(segment)
                begin = index.offsets[max(self._point_of(segment, index, wanted[done]), 0)]
                is_dense = (limit - done) * _WINDOW > segment.end - begin
                scan = FileScan(segment.file, begin, segment.end, window=WINDOW if is_dense else _WINDOW)
                previous: EntryId | None = None
                for batch in scan:
                    some, done, last = pick_wanted(batch.data, batch.offsets, batch.lengths, wanted, done, previous)
                    if some:
                        found += some
                        position = batch.times[last]
                    size += batch.end - batch.base
                    if done >= limit or size >= ENOUGH:
                        break
                    leap = self._leap(segment, index, batch, wanted[done])
                    if leap is not None and scan.why <= Stop.TRUNCATED:
                        scan.stop, previous = leap, None
                    else:
                        previous = _last_id(batch)
                else:
                    self._reader.check_stop(segment, scan)
                    self._check_end(names, number, segment, index)
                    done = limit
            finally:
                segment.file.close()
        return found, position, done

    def _leap(self, segment: Segment, index: Index, batch: Batch, id: EntryId) -> int | None:
        """Where in the file to go on behind a batch to an entry that is far away; None: right behind it."""
        first, last = _first_id(batch), _last_id(batch)
        if first is None or last is None or id - last <= last - first:
            return None
        low = bisect_left(index.offsets, batch.end)
        point = self._point_of(segment, index, id, low)
        return index.offsets[point] if point >= low else None

    def _check_end(self, names: list[FileName], number: int, segment: Segment, index: Index) -> None:
        """Raises: Corruption if the file has lost its end."""
        for name in names[number + 1 : number + 2]:
            following = self._reader.open(name, is_newest=number + 2 == len(names))
            if following is not None:
                try:
                    self._reader.check_whole(segment.name, segment.end, index.last_data, following)
                finally:
                    following.file.close()

    def _index_of(self, segment: Segment) -> Index:
        """Of all of a file, for who does not read it to its end. Raises: Corruption."""
        index = self._reader.index_of(segment)
        if index.bytes < segment.end:
            rest = FileScan(segment.file, index.bytes, segment.end)
            for _ in rest:
                pass
            self._reader.check_stop(segment, rest, index.last_data)
        return index

    # -- where an id is ----------------------------------------------------------------------------------------------

    def _locate(self, names: list[FileName], id: EntryId) -> _Place | None:
        """The last point at which reading forward meets ``id``, if there is such an entry; None: at the very start.

        A point behind which its file has no entry counts as one past the id: reading then begins earlier, that is all.
        """
        number = self._file_of(names, id)
        return None if number is None else self._locate_in(names, number, id)

    def _file_of(self, names: list[FileName], id: EntryId) -> int | None:
        """The last file whose first entry is not past ``id``."""
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
        return best

    def _first_behind(self, names: list[FileName], number: int) -> EntryId | None:
        """The id of the first entry behind a file."""
        firsts = (self._first_of(names, later) for later in range(number + 1, len(names)))
        return next((first for first in firsts if not isinstance(first, _Nowhere)), None)

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
            point = self._point_of(segment, index, id)
            return _Place(number, point, index.offsets[point]) if point >= 0 else _Place(number, 0, HEADER_SIZE)
        finally:
            segment.file.close()

    def _point_of(self, segment: Segment, index: Index, id: EntryId, low: int = 0) -> int:
        """The last point of a file whose entry is not past ``id``; one before ``low`` if none from there on is."""
        high, step = len(index.times), 1
        # Ids and positions are both times, nearly always: begin where the id would be then, and look around there.
        middle = max(bisect_right(index.times, ms_of(id) * 1_000_000) - 1, low)
        while low < high:
            if not low <= middle < high:
                middle = (low + high) // 2
            found = self._entry_at(segment, index, middle)
            if found is None or found > id:
                high, middle = middle, middle - step
            else:
                low, middle = middle + 1, middle + step
            step *= 2
        return low - 1

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


class _Ids(NamedTuple):
    first: EntryId
    last: EntryId


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


def _first_id(batch: Batch) -> EntryId | None:
    """Of the first entry; None if there is none."""
    ids = (entry_id(batch.payload(number)) for number in range(len(batch.times)))
    return next((id for id in ids if id is not None), None)


def _last_id(batch: Batch) -> EntryId | None:
    """Of the last entry; None if there is none."""
    ids = (entry_id(batch.payload(number)) for number in range(len(batch.times) - 1, -1, -1))
    return next((id for id in ids if id is not None), None)


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
    _check_read(segment, scan, end)
    return found


def _pick_back(
    segment: Segment, begin: int, until: int, start: EntryId, end: EntryId, gone: IdRanges | None
) -> tuple[list[bytes], int, _Ids | None]:
    """The entries of a part of a file with ids from ``start`` to ``end``, newest first; the position of the newest; and
    the first and the last id there is in that part.
    """
    scan = FileScan(segment.file, begin, until)
    found: list[bytes] = []
    position = 0
    first = last_id = None
    for batch in scan:
        some, last, _, _ = pick(batch.data, batch.offsets, batch.lengths, start, end, sys.maxsize, gone)
        if some:
            found += some
            position = batch.times[last]
        first = _first_id(batch) if first is None else first
        last_id = _last_id(batch) or last_id
    _check_read(segment, scan, until)
    found.reverse()
    return found, position, None if first is None or last_id is None else _Ids(first, last_id)


def _check_read(segment: Segment, scan: FileScan, until: int) -> None:
    """Raises: Corruption if a part of a file could not be read to its end."""
    if scan.stop < until:
        raise Corruption(segment.name.name, scan.stop, REASONS[scan.why or Stop.TRUNCATED])
