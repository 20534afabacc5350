"""Entries in the files of a topic, found by id.

Ids and positions both only grow, so the sparse index of a file (position to offset) leads to an id as well: by
bisection over its points, reading one record at each that is asked. What a point was found to hold is remembered.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from lamina.engines.topics import codec
from lamina.engines.topics.ids import EntryId
from lamina.errors import Corruption
from lamina.log.files import read_at
from lamina.log.frame import REASONS, Head, Stop
from lamina.log.index import Index
from lamina.log.naming import FileName
from lamina.log.reader import Reader, Segment
from lamina.log.scan import FileScan, read_record

_MOST_KNOWN: Final = 100_000  # points


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

    def entries(self, start: EntryId, end: EntryId) -> Iterator[Found]:
        """Every entry in the files with an id from ``start`` to ``end``, in order, deleted ones too.

        Raises: Corruption, DiskError.
        """
        place = self._locate(self._reader.segments(), start)
        for _, batch in self._reader.batches(after=None if place is None else place.position - 1):
            for number in range(len(batch.times)):
                payload = batch.payload(number)
                id = entry_id(payload)
                if id is not None and id >= start:
                    if id > end:
                        return
                    yield Found(id, batch.times[number], payload)

    def backwards(self, start: EntryId, end: EntryId) -> Iterator[Found]:
        """The same, newest first."""
        names = self._reader.segments()
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
                    found = _read_piece(segment, *piece)
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
        best: _Place | None = None
        while low < high:
            middle = (low + high) // 2
            found = self._locate_in(names, middle, id)
            if found is None:
                high = middle
            else:
                best, low = found, middle + 1
        return best

    def _locate_in(self, names: list[FileName], number: int, id: EntryId) -> _Place | None:
        """The last point of a file whose entry is not past ``id``."""
        segment = self._reader.open(names[number], is_newest=number == len(names) - 1)
        if segment is None:
            return None
        try:
            index = self._reader.index_of(segment)
            low, high = 0, len(index.times)
            while low < high:
                middle = (low + high) // 2
                found = self._entry_at(segment, index, middle)
                if found is None or found > id:
                    high = middle
                else:
                    low = middle + 1
            return _Place(number, low - 1, index.times[low - 1]) if low else None
        finally:
            segment.file.close()

    def _entry_at(self, segment: Segment, index: Index, point: int) -> EntryId | None:
        """Id of the first entry at or behind a point; None if the file has none there."""
        position = index.times[point]
        known = self._known.get(position)
        if known is not None:
            self._known.move_to_end(position)
            return known
        offset = index.offsets[point]
        while isinstance(head := read_record(segment.file, offset, segment.end), Head):
            id = entry_id(read_at(segment.file, head.payload_at, head.size))
            if id is not None:
                self._known[position] = id
                if len(self._known) > _MOST_KNOWN:
                    self._known.popitem(last=False)
                return id
            offset = head.end
        return None


class _Place(NamedTuple):
    file: int
    point: int
    position: int


def _read_piece(segment: Segment, start: int, end: int) -> list[Found]:
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


def entry_id(payload: bytes) -> EntryId | None:
    """Of the record of an entry; None for every other record. Raises: BadRecord."""
    head = payload[0] if payload else 0
    kind_at = 1 if head & 0xF0 == 0x90 else 3 if head == 0xDC else 5
    if payload[kind_at : kind_at + 1] != b"\x01":
        return None
    items = codec.Items(payload)
    items.number()
    return items.id()
