"""A sparse index of one file: where to start reading for a time, without reading the file from its start.

The writer notes a point every 64 KiB as it goes. Now and then behind a sync, and when a segment is sealed or the log is
closed, the points are kept beside it in ``<name>.index``. The index is a hint: it is written without ceremony, checked
when it is used (against the size of the file and the record at the point) and rebuilt by a scan when it does not fit or
is not there. Losing or deleting one costs time, never a record.

Rejected: finding record starts by bisection and resynchronising on anything that looks like a record. A payload may
itself hold whole records (a shipped log file), and would then be served as if it were ours.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left
from enum import IntEnum
from typing import Final

from lamina.errors import StorageError
from lamina.log import frame, kernel
from lamina.log.files import File, Files, join, read_at, write_all
from lamina.log.formats import HEADER, Format
from lamina.log.frame import SPACING
from lamina.log.naming import INDEX_SUFFIX
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_record

_MAGIC: Final = HEADER.pack(b"lmix", 1)
_FACTS: Final = struct.Struct(">QQqqqBQ")  # bytes, records, first, last, last data time, state, points


class State(IntEnum):
    """What was so when the index was kept, and is if the file still has that size."""

    GROWING = 0  # everything up to there was synced; the file has grown since, or may have
    CLEAN = 1  # the log was closed in order, everything in the file synced
    SEALED = 2  # the file was full or rotated, everything in it synced


class Index:
    """Points of one file, and what is known of it as a whole.

    Invariant: no record before the point (time, offset) is later than ``time``.
    """

    __slots__ = ("bytes", "first", "last", "last_data", "offsets", "records", "state", "times")

    def __init__(self) -> None:
        self.times = array("q")
        self.offsets = array("q")
        self.bytes = HEADER_SIZE
        self.records = 0
        self.first = 0
        self.last = 0
        self.last_data = 0
        """Time of the newest record that is not a mark of the kernel."""
        self.state = State.GROWING

    def copy(self) -> Index:
        twin = Index()
        for name in self.__slots__:
            setattr(twin, name, getattr(self, name))
        twin.times, twin.offsets = self.times[:], self.offsets[:]
        return twin

    def note(self, time_ns: int, offset: int) -> None:
        """A record begins at ``offset``: make it a point if the last one is far enough away."""
        if not self.times:
            self.first = time_ns
        elif offset - self.offsets[-1] < SPACING:
            return
        self.times.append(max(time_ns, self.last))
        self.offsets.append(offset)

    def grow(self, end: int, records: int, last_ns: int) -> None:
        """The file now ends at ``end``, with so many records more, the latest of them at ``last_ns``."""
        self.last = max(self.last, last_ns)
        self.records += records
        self.bytes = end

    def seek(self, time_ns: int) -> int:
        """An offset from which reading meets the first record at or after ``time_ns``."""
        point = bisect_left(self.times, time_ns) - 1
        return self.offsets[point] if point >= 0 else HEADER_SIZE

    def ranges(self) -> list[tuple[int, int]]:
        """The file in pieces that start and end at records: what reading backwards goes through."""
        starts = list(self.offsets)
        return list(zip(starts, [*starts[1:], self.bytes], strict=True)) if starts else []

    def encode(self) -> bytes:
        facts = _FACTS.pack(
            self.bytes, self.records, self.first, self.last, self.last_data, self.state, len(self.times)
        )
        points = _big_endian(self.times + self.offsets)
        return _MAGIC + kernel.encode_many(self.last, [facts + points.tobytes()])


def _big_endian(numbers: array[int]) -> array[int]:
    """To the byte order of the disk, or back from it."""
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers


def extend(
    index: Index,
    file: File,
    format: Format,
    end: int | None = None,
    max_payload: int = frame.MAX_PAYLOAD,
) -> FileScan:
    """Index the file from where the index ends up to the first record that is not whole."""
    scan = FileScan(file, index.bytes, end, max_payload)
    for batch in scan:
        index.note(batch.times[0], batch.base)  # a point per window: finer ones are not worth the time
        index.grow(batch.end, len(batch.times), batch.newest)
        index.last_data = max(index.last_data, newest_data(batch, format))
    return scan


def newest_data(batch: Batch, format: Format) -> int:
    """Time of the newest record of a batch that shows how far the log reached (Format.reaches), 0 if none does."""
    for at in range(len(batch.times) - 1, -1, -1):
        if format.reaches(batch.times[at], batch.payload(at)):
            return batch.times[at]
    return 0


def save(files: Files, folder: str, name: str, index: Index, *, sync: bool = False) -> None:
    """Keep the index beside its file. A hint is not worth an error: failing leaves none."""
    path = join(folder, name + INDEX_SUFFIX)
    try:
        discard(files, folder, name)
        file = files.create(path)
        try:
            write_all(file, [index.encode()])
            if sync:
                file.sync()
        finally:
            file.close()
    except OSError:
        discard(files, folder, name)


def discard(files: Files, folder: str, name: str) -> bool:
    """Whether there was one."""
    try:
        files.remove(join(folder, name + INDEX_SUFFIX))
    except OSError:
        return False
    return True


def promised(files: Files, folder: str, name: str) -> int:
    """How many bytes of the file were on the disk when its index was kept, 0 if there is none that is whole."""
    index = kept(files, folder, name)
    return 0 if index is None else index.bytes


def move(files: Files, folder: str, name: str, new: str) -> None:
    """The file ``name`` is called ``new`` now: so is its index, if it has one."""
    try:
        files.rename(join(folder, name + INDEX_SUFFIX), join(folder, new + INDEX_SUFFIX))
    except OSError:
        discard(files, folder, name)


def load(files: Files, folder: str, name: str, file: File, *, may_end_early: bool = False) -> Index | None:
    """The kept index of ``file`` if there is one and it fits, else None.

    With ``may_end_early`` also one of a growing file that has grown since; ``extend`` brings it up to date.
    """
    index = kept(files, folder, name)
    if index is None:
        return None
    size = file.size()
    ends_early = may_end_early and index.state is State.GROWING and index.bytes < size
    return index if (index.bytes == size or ends_early) and has_points_in(index, file) else None


def kept(files: Files, folder: str, name: str) -> Index | None:
    """As it was when it was kept, whatever became of the file; None: there is none that is whole."""
    try:
        file = files.open(join(folder, name + INDEX_SUFFIX))
    except OSError:
        return None
    try:
        data = read_at(file, 0, file.size())
    except (OSError, StorageError):
        return None
    finally:
        file.close()
    return _decode(data)


def _decode(data: bytes) -> Index | None:
    if data[: len(_MAGIC)] != _MAGIC:
        return None
    found = kernel.scan(data, len(_MAGIC), len(data))
    if len(found.times) != 1 or found.why is not frame.Stop.END or found.lengths[0] < _FACTS.size:
        return None
    at = found.offsets[0]
    index = Index()
    (index.bytes, index.records, index.first, index.last, index.last_data, state, count) = _FACTS.unpack_from(data, at)
    points = array("q")
    if found.lengths[0] != _FACTS.size + 16 * count or state not in list(State):
        return None
    index.state = State(state)
    points.frombytes(data[at + _FACTS.size : at + found.lengths[0]])
    points = _big_endian(points)
    index.times, index.offsets = points[:count], points[count:]
    if any(not HEADER_SIZE <= offset < index.bytes for offset in index.offsets):
        return None
    return index


def has_points_in(index: Index, file: File) -> bool:
    """At the first and the last point the file has the records that the index says."""
    ends = {0, len(index.times) - 1} if index.times else set()
    for point in ends:
        head = read_record(file, index.offsets[point], index.bytes)
        if isinstance(head, frame.Stop) or head.time_ns != index.times[point]:
            return False
    return True
