"""Sorted files: entries in the order of their places, written once and never changed.

A file of the PWAL format whose records are

    head     08  generation(u64)  part(u32)
    items    one record each, with the item's own time and payload, places rising (codec.py)
    index    09  count(u32)  then  offset(u64)  size(u32)  place  for each block: where it begins, its first place.
             One entry more, at the end, has the offset of the index itself and the last place of the file
    tail     0a  entries(u64)  index(u64)  blocks(u32)  version(16 bytes)      offset of the index, the largest version

Index and tail are all that is read when a file is opened; then one block of about 32 KiB for each search. An index that
has much to say takes several records. Records that are not items have the time 0.
"""

from __future__ import annotations

import builtins
import struct
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from lamina.engines.store import columns, hints
from lamina.engines.store.catalog import Part
from lamina.engines.store.codec import ENTRY_SIZE, HEAD, INDEX, OLDEST, TAIL, BadRecord, item
from lamina.engines.store.columns import Columns
from lamina.errors import Corruption, from_os
from lamina.log import kernel
from lamina.log.files import File, Files, join, read_at, write_all
from lamina.log.formats import PWAL
from lamina.log.frame import MIN_RECORD, REASONS, Scan, Stop
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_whole
from lamina.log.segment import check_header, open_for_reading
from lamina.units import MIB

_HEAD: Final = struct.Struct(">BQI")
_INDEX: Final = struct.Struct(">BI")
_POINT: Final = struct.Struct(">QI")
_TAIL: Final = struct.Struct(">BQQI16s")
_HEAD_END: Final = HEADER_SIZE + MIN_RECORD + _HEAD.size
_TAIL_RECORD: Final = MIN_RECORD + _TAIL.size

EMPTY: Final = _HEAD_END
"""Bytes of a file before its first item."""
BLOCK: Final = 32 << 10
_CHUNK: Final = MIB  # bytes that are written at once
_INDEX_RECORD: Final = 64 << 10  # bytes of one record of the index, about
_LEAST_PLACE: Final = 8
_HELD: Final = 2  # blocks that a file keeps in memory


class SortedWriter:
    """Makes one sorted file. Threads: one at a time."""

    def __init__(
        self, files: Files, path: str, *, generation: int = 0, part: int = 0, sync_every: int = 4 * MIB
    ) -> None:
        """``sync_every``: so many bytes are synced at once, so that others who write to the disk never wait for long.

        Raises: DiskFull, DiskError; then nothing is left of it.
        """
        self.path = path
        self.entries = 0
        self._files, self._sync_every = files, sync_every
        self._first = self._last = b""
        self._highest = OLDEST
        self._places: list[bytes] = []  # of the index
        self._offsets = array("Q")
        self._buffer = bytearray(2 * _CHUNK)
        self._filled = 0
        self._written = self._unsynced = self._crc = 0
        try:
            self._file = files.create(path)
        except OSError as error:
            raise from_os(error, "create the file", path) from error
        self._put(PWAL.header + kernel.encode_many(0, [_HEAD.pack(HEAD, generation, part)]))

    @property
    def bytes(self) -> int:
        """Bytes so far, without index and tail."""
        return self._written + self._filled

    def add(self, place: builtins.bytes, item: builtins.bytes) -> None:
        """Raises: ValueError if the place is not behind the one before; DiskFull, DiskError."""
        self.add_many([place], [item])

    def add_many(self, places: list[builtins.bytes], items: list[builtins.bytes], until: int = 1 << 62) -> int:
        """Add items in order, till the file has ``until`` bytes. Returns how many were taken. Raises: as ``add``."""
        if len(places) != len(items) or not columns.rises(places, self._last):
            raise ValueError("places have to rise")
        done = 0
        while done < len(items) and self.bytes < until:
            stop = min(_CHUNK, until - self._written)
            start, (done, end, points, highest) = (
                done,
                columns.write(self._buffer, self._filled, items, done, stop, self.since, BLOCK),
            )
            for number, offset in points:
                self._places.append(places[number])
                self._offsets.append(self._written + offset)
            self._highest = max(self._highest, highest)
            self.entries += done - start
            self._filled = end
            if end >= _CHUNK:
                self._flush()
        if done:
            self._first = self._first or places[0]
            self._last = places[done - 1]
        return done

    @property
    def since(self) -> int:
        """Bytes of the block that is open, -1 if none is."""
        return self.bytes - self._offsets[-1] if self._offsets else -1

    def add_records(
        self,
        data: builtins.bytes | bytearray | memoryview,
        entries: int,
        ends: tuple[builtins.bytes, builtins.bytes],
        points: Sequence[tuple[int, builtins.bytes]],
        highest: builtins.bytes,
    ) -> None:
        """Add items that are records already. Who calls it has looked at them: ``ends`` are the first place and the
        last; ``points`` where blocks begin in ``data``, and their places, as ``since`` and ``BLOCK`` demand;
        ``highest`` the largest version.

        Raises: ValueError if the places are not behind those before; DiskFull, DiskError.
        """
        if not self._last < ends[0] <= ends[1]:
            raise ValueError("places have to rise")
        for offset, place in points:
            self._places.append(place)
            self._offsets.append(self.bytes + offset)
        self._first, self._last = self._first or ends[0], ends[1]
        self._highest = max(self._highest, highest)
        self.entries += entries
        for start in range(0, len(data), _CHUNK):
            self._put(data[start : start + _CHUNK])

    def finish(self, *, sync: bool = True) -> Part:
        """Write index and tail. Returns what a catalog says of the file. ``sync``: not for one that is soon gone.

        Durability: the file is synced; its name may need a sync of the folder.
        Raises: DiskFull, DiskError; ``abandon`` it then.
        """
        index_at = self.bytes
        blocks = len(self._places)
        points = [*zip(self._offsets, self._places, strict=True), (index_at, self._last)]
        while points:
            count = size = 0
            while count < len(points) and (not count or size + len(points[count][1]) < _INDEX_RECORD):
                size += _POINT.size + len(points[count][1])
                count += 1
            entries = [_POINT.pack(offset, len(place)) + place for offset, place in points[:count]]
            self._put(kernel.encode_many(0, [_INDEX.pack(INDEX, count) + b"".join(entries)]))
            del points[:count]
        tail = _TAIL.pack(TAIL, self.entries, index_at, blocks, self._highest)
        self._put(kernel.encode_many(0, [tail]))
        self._flush()
        if sync:
            self._sync()
        self._file.close()
        name = self.path.rpartition("/")[2]
        return Part(name, self._written, self._crc, self.entries, self._first, self._last, self._highest)

    def abandon(self) -> None:
        """Leave nothing of it, whatever was done before."""
        self._file.close()
        with suppress(OSError):
            self._files.remove(self.path)

    def _sync(self) -> None:
        try:
            self._file.sync()
        except OSError as error:
            raise from_os(error, "sync the file", self.path) from error

    def _put(self, data: builtins.bytes | bytearray | memoryview) -> None:
        self._buffer[self._filled : self._filled + len(data)] = data
        self._filled += len(data)
        if self._filled >= _CHUNK:
            self._flush()

    def _flush(self) -> None:
        chunk = bytes(memoryview(self._buffer)[: self._filled])
        try:
            write_all(self._file, [chunk])
            self._unsynced += len(chunk)
            if self._unsynced >= self._sync_every:
                self._file.sync()
                self._unsynced = 0
        except OSError as error:
            raise from_os(error, "write the file", self.path) from error
        self._crc = kernel.crc32c(chunk, self._crc)
        self._written += len(chunk)
        self._filled = 0
        if len(self._buffer) > 4 * _CHUNK:  # a large value was in it
            self._buffer = bytearray(2 * _CHUNK)


class SortedFile:
    """Reads a sorted file. It stays readable after it was removed, until ``close``.

    Threads: ``find`` and ``walk`` are safe from any thread.
    """

    def __init__(self, file: File, name: str) -> None:
        self._file, self.name = file, name
        self.bytes = file.size()
        self.entries = 0
        self.highest = OLDEST
        self.first = self.last = b""
        self._places: list[builtins.bytes] = []
        self._offsets = array("Q")  # one more than places: where the last block ends
        self._held: tuple[tuple[int, builtins.bytes, Scan], ...] = ()
        # Replaced by a compaction it may still be read by somebody: closed when nobody has it any more.
        self._close = weakref.finalize(self, file.close)
        self._close.atexit = False

    @classmethod
    def open(cls, files: Files, folder: str, name: str, expected: Part | None = None) -> SortedFile:
        """Reads index and tail. ``expected``: what the catalog says of it.

        Raises: Corruption, WrongFormat with file and byte; DiskError.
        """
        try:
            file = open_for_reading(files, folder, name)
        except FileNotFoundError as error:
            if expected is not None:
                raise Corruption(
                    name, 0, "the catalog names this file, and it is not there", hint=hints.MISSING
                ) from None
            raise from_os(error, "open the file", join(folder, name)) from error
        try:
            opened = cls(file, name)
        except BaseException:
            file.close()
            raise
        try:
            opened._load(expected)
        except BaseException:
            opened.close()
            raise
        return opened

    def close(self) -> None:
        self._held = ()
        self._close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def may_have(self, place: builtins.bytes) -> bool:
        """Without reading: an entry of that place may be in it."""
        return self.entries > 0 and self.first <= place <= self.last

    def find(self, place: builtins.bytes) -> builtins.bytes | None:
        """The item of that place, a remove too. Raises: Corruption, DiskError."""
        if not self.may_have(place):
            return None
        data, found = self._block(bisect_right(self._places, place) - 1)
        low, high = 0, len(found.times)
        while low < high:
            middle = (low + high) // 2
            here = _place_at(data, found.offsets[middle])
            if here == place:
                start = found.offsets[middle]
                return item(found.times[middle], data[start : start + found.lengths[middle]])
            low, high = (middle + 1, high) if here < place else (low, middle)
        return None

    def sample(self, count: int) -> list[builtins.bytes]:
        """Places that cut the file into pieces of about one size, so many at most, in order."""
        step = max(len(self._places) // count, 1)
        return self._places[::step][:count]

    def walk(
        self, start: builtins.bytes = b"", end: builtins.bytes | None = None
    ) -> Iterator[tuple[builtins.bytes, builtins.bytes]]:
        """(place, item) in order, from ``start`` up to but without ``end``. Raises: Corruption, DiskError."""
        for places, items in self.batches(start, end):
            yield from zip(places, items, strict=True)

    def batches(
        self,
        start: builtins.bytes = b"",
        end: builtins.bytes | None = None,
        seen_as: Callable[[Batch], Batch] = lambda batch: batch,
    ) -> Iterator[Columns]:
        """The same, many at a time. ``seen_as``: the entries as somebody wants to see them, at the same places."""
        if not self.entries or start > self.last or (end is not None and end <= self.first):
            return
        first = max(bisect_right(self._places, start) - 1, 0)
        behind = len(self._places) if end is None else bisect_left(self._places, end)
        before = b""
        scan = FileScan(self._file, self._offsets[first], self._offsets[behind])
        for batch in scan:
            shown = seen_as(batch)
            places, items = self._columns(batch.base, shown.data, shown.times, shown.offsets, shown.lengths)
            if not columns.rises(places, before):
                self._bad(batch.base, "the entries are not in order")
            before = places[-1]
            low = bisect_left(places, start) if places[0] < start else 0
            high = len(places) if end is None or before < end else bisect_left(places, end)
            if low or high < len(places):
                places, items = places[low:high], items[low:high]
            if places:
                yield places, items
        if scan.stop != self._offsets[behind]:
            self._bad(scan.stop, REASONS[scan.why or Stop.TRUNCATED])

    def _block(self, number: int) -> tuple[builtins.bytes, Scan]:
        """One block, every record of it checked."""
        held = self._held
        for at, data, found in held:
            if at == number:
                return data, found
        start, end = self._offsets[number], self._offsets[number + 1]
        data = read_at(self._file, start, end - start)
        found = kernel.scan(data, 0, len(data))
        if found.stop != end - start:
            self._bad(start + found.stop, REASONS[found.why or Stop.TRUNCATED])
        for offset, length in zip(found.offsets, found.lengths, strict=True):
            if length < ENTRY_SIZE:
                self._bad(start + offset, "the record is no entry")
        self._held = ((number, data, found), *held[: _HELD - 1])
        return data, found

    def _columns(
        self,
        base: int,
        data: memoryview,
        times: Sequence[int],
        offsets: Sequence[int],
        lengths: Sequence[int],
    ) -> Columns:
        try:
            return columns.read(data, times, offsets, lengths)
        except BadRecord as error:
            self._bad(base, str(error))

    def _bad(self, offset: int, reason: str) -> NoReturn:
        raise Corruption(self.name, offset, reason, hint=hints.DAMAGED)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _load(self, expected: Part | None) -> None:
        if expected is not None and self.bytes != expected.bytes:
            reason = f"the file has {self.bytes} bytes, the catalog says {expected.bytes}"
            self._bad(min(self.bytes, expected.bytes), reason)
        check_header(self._file, self.name, PWAL, hint=hints.DAMAGED)
        self._record(HEADER_SIZE, HEAD, _HEAD.size, "the first record is not that of a sorted file")
        tail_at = self.bytes - _TAIL_RECORD
        if tail_at < _HEAD_END:
            self._bad(self.bytes, "the file is too short for a sorted file")
        tail = self._record(tail_at, TAIL, _TAIL.size, "the last record is not that of a sorted file")
        _, self.entries, index_at, blocks, self.highest = _TAIL.unpack(tail)
        # Nothing is believed that does not fit into the file.
        most = (index_at - _HEAD_END) // (MIN_RECORD + ENTRY_SIZE)
        if not _HEAD_END <= index_at < tail_at or not blocks <= self.entries <= most:
            self._bad(tail_at, f"{self.entries} entries in {blocks} blocks before byte {index_at} cannot be")
        if (blocks + 1) * _POINT.size > tail_at - index_at or (blocks == 0) != (self.entries == 0):
            self._bad(tail_at, f"an index of {blocks} blocks does not fit between byte {index_at} and {tail_at}")
        self._load_index(index_at, tail_at, blocks)
        if expected is not None and expected != Part(
            self.name, self.bytes, expected.crc, self.entries, self.first, self.last, self.highest
        ):
            self._bad(tail_at, "the file is not the one that the catalog names")

    def _record(self, at: int, kind: int, size: int, reason: str) -> builtins.bytes:
        found = read_whole(self._file, at, self.bytes)
        if isinstance(found, Stop):
            self._bad(at, REASONS.get(found, reason))
        if len(found[1]) != size or found[1][0] != kind:
            self._bad(at, reason)
        return found[1]

    def _load_index(self, index_at: int, tail_at: int, blocks: int) -> None:
        scan = FileScan(self._file, index_at, tail_at)
        for batch in scan:
            for number in range(len(batch.times)):
                self._take_points(batch.payload(number), batch.record_offset(number))
        if scan.stop != tail_at:
            self._bad(scan.stop, REASONS[scan.why or Stop.TRUNCATED])
        offsets, places = self._offsets, self._places
        if len(places) != blocks + 1:
            self._bad(index_at, f"the index has {len(places) - 1} blocks, the end of the file says {blocks}")
        self.last = places.pop()
        self.first = places[0] if places else b""
        is_right = (
            offsets[0] == (_HEAD_END if blocks else index_at)
            and offsets[-1] == index_at
            and all(map(int.__lt__, offsets, offsets[1:]))
            and columns.rises(places, b"")
            and (self.last >= places[-1] if places else not self.last)
        )
        if not is_right:
            self._bad(index_at, "the index is not in order")

    def _take_points(self, payload: builtins.bytes, at: int) -> None:
        if len(payload) < _INDEX.size or payload[0] != INDEX:
            self._bad(at, "the record is not of an index")
        cursor = _INDEX.size
        for _ in range(_INDEX.unpack_from(payload)[1]):
            if len(payload) - cursor < _POINT.size:
                self._bad(at, "the index is cut short")
            offset, size = _POINT.unpack_from(payload, cursor)
            cursor += _POINT.size
            if len(payload) - cursor < size:
                self._bad(at, "the index is cut short")
            self._offsets.append(offset)
            self._places.append(payload[cursor : cursor + size])
            cursor += size
        if cursor != len(payload):
            self._bad(at, "the index is longer than it says")


def _place_at(data: builtins.bytes, offset: int) -> builtins.bytes:
    """The place of the entry whose payload begins there."""
    key_at = offset + ENTRY_SIZE
    size = int.from_bytes(data[key_at - 4 : key_at], "big")
    return data[offset + 1 : offset + 9] + data[key_at : key_at + size]
