"""The last step of a compaction, in a task: a new part is written from records wherever they are.

They are read in the order of the files, many at once, and put where they belong in memory; so much of the part at a
time as fits. Each is checked once more as it goes out, and is then as it was, checksum included.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from lamina.engines.store import hints
from lamina.engines.store.catalog import Part
from lamina.engines.store.sorted_file import BLOCK, SortedWriter
from lamina.errors import Corruption, from_os
from lamina.log import frame, kernel
from lamina.log.files import File, Files, join, read_into
from lamina.log.frame import REASONS, Stop
from lamina.log.segment import open_for_reading
from lamina.pipeline.compaction.copying import in_file_order, look, place, reach
from lamina.pipeline.compaction.cutting import NewPart, Slice, open_staged, read_column
from lamina.pipeline.compaction.plan import Shared
from lamina.pipeline.compaction.spots import file_of, position_of
from lamina.pipeline.staging import part_name
from lamina.units import MIB

_READ: Final = MIB  # at once
_GAP: Final = 16 << 10  # bytes that nobody wants are read along if they are not more: cheaper than another read
_AROUND: Final = 32  # bytes in memory for each record beside its own
_LEAST: Final = MIB


@dataclass(frozen=True, slots=True)
class Write:
    """A task of the last step."""

    shared: Shared
    part: NewPart
    sources: tuple[str, ...]
    """Names of all files that are copied from: inputs, then old parts."""


def write(work: Write) -> Part:
    """The part, under a staged name.

    Durability: the file is synced; its name is not.
    Raises: Corruption if a record is not what it was; DiskFull, DiskError.
    """
    shared = work.shared
    name = part_name(work.part.number)
    sources = _Sources(work)
    writer = SortedWriter(shared.files, join(shared.staging, name), generation=shared.generation, part=work.part.number)
    try:
        for spots, sizes in _portions(shared, work.part.slices):
            _add(writer, sources, spots, sizes)
        return writer.finish()
    except BaseException:
        writer.abandon()
        raise
    finally:
        sources.close()


def _portions(shared: Shared, slices: list[Slice]) -> Iterator[tuple[array[int], array[int]]]:
    """Spots and sizes of as many records as fit into memory."""
    most = max(shared.memory_bytes // 2, _LEAST)
    for one in slices:
        spots_file = open_staged(shared.files, shared.staging, one.spots)
        sizes_file = open_staged(shared.files, shared.staging, one.sizes)
        try:
            start = one.start
            while start < one.end:
                end = min(start + most // _AROUND, one.end)
                sizes = read_column(sizes_file, "I", start, end)
                ends = list(accumulate(size + _AROUND for size in sizes))
                count = max(bisect_right(ends, most), 1)
                yield read_column(spots_file, "Q", start, start + count), sizes[:count]
                start += count
        finally:
            spots_file.close()
            sizes_file.close()


class _Sources:
    """The files that are copied from, opened when they are needed."""

    def __init__(self, work: Write) -> None:
        self._files: Files = work.shared.files
        self._folder, self._names = work.shared.folder, work.sources
        self._open: dict[int, File] = {}

    def name(self, spot: int) -> str:
        return self._names[file_of(spot)]

    def read(self, spot: int, into: memoryview) -> None:
        """Raises: Corruption if the file is shorter; DiskError."""
        number = file_of(spot)
        file = self._open.get(number)
        if file is None:
            try:
                file = open_for_reading(self._files, self._folder, self._names[number])
            except FileNotFoundError as error:
                raise from_os(error, "open the file", join(self._folder, self._names[number])) from error
            self._open[number] = file
        filled = read_into(file, into, position_of(spot))
        if filled < len(into):
            at = position_of(spot) + filled
            raise Corruption(self._names[number], at, "the file is shorter than it was", hint=hints.DAMAGED)

    def close(self) -> None:
        for file in self._open.values():
            file.close()


def _add(writer: SortedWriter, sources: _Sources, spots: array[int], sizes: array[int]) -> None:
    data = _collect(sources, spots, sizes)
    found = kernel.scan(data, 0, len(data))
    if found.stop != len(data) or len(found.times) != len(sizes):
        spot = spots[min(len(found.times), len(spots) - 1)]
        reason = f"{REASONS.get(found.why, REASONS[Stop.BAD_SIZE])}, though it was right before"
        raise Corruption(sources.name(spot), position_of(spot), reason, hint=hints.DAMAGED)
    seen = look(data, found.offsets, found.lengths, writer.since, BLOCK)
    for number in seen.foreign:  # as it is written everywhere
        payload = bytes(data[found.offsets[number] : found.offsets[number] + found.lengths[number]])
        record = frame.encode(found.times[number], payload)
        end = found.offsets[number] + len(payload) + frame.CRC.size
        data[end - len(record) : end] = record
    writer.add_records(data, len(sizes), (seen.first, seen.last), seen.points, seen.highest)


def _collect(sources: _Sources, spots: array[int], sizes: array[int]) -> bytearray:
    """The records one behind the other."""
    starts = array("Q", accumulate(sizes, initial=0))
    data = bytearray(starts.pop())
    order = in_file_order(spots)
    window = bytearray(_READ)
    done = 0
    while done < len(order):
        end, length = reach(spots, sizes, order, done, _READ, _GAP)
        if length > len(window):
            window = bytearray(length)  # one large record
        with memoryview(window)[:length] as view:
            sources.read(spots[order[done]], view)
            place(view, spots, sizes, order, done, end, starts, data)
        done = end
    return data
