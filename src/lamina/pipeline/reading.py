"""The records of a piece, a window at a time, whatever has become of its file since it was pinned.

still there         read from the byte where the piece begins to the byte where it ends
renamed             (a channel of the store was rotated) found by what it is
rewritten           (cleaning dropped records) the new file is read, and what is of the piece's time counts
gone                cleaning removed it: of jobs, topics and plain logs, nothing is left to read. Of queues and the
                    store what it held is in another file now, so the read has to be begun anew: an error
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lamina.errors import Corruption, StorageError
from lamina.log.attest import next_record
from lamina.log.files import File, Files
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import parse, sort_out
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.segment import check_header, open_for_reading
from lamina.pipeline import columns
from lamina.pipeline.pieces import Piece, Times
from lamina.pipeline.snapshot import MERGED as MERGED
from lamina.pipeline.snapshot import is_same
from lamina.units import MIB

WINDOW: Final = 2 * MIB


Damage = Callable[[str, int, str], None]
"""Told of a bad place: file, byte and reason. If it returns, reading goes on behind it."""


class Records(NamedTuple):
    """Whole records of one window, without marks of the kernel. The bytes are valid until the next are asked for."""

    base: int
    data: memoryview
    times: array[int]
    offsets: array[int]
    lengths: array[int]

    def payload(self, number: int) -> bytes:
        at = self.offsets[number]
        return bytes(self.data[at : at + self.lengths[number]])

    def part(self, first: int, last: int) -> Records:
        """Those from one number to another."""
        some = slice(first, last)
        return Records(self.base, self.data, self.times[some], self.offsets[some], self.lengths[some])

    def position(self, number: int) -> int:
        """Where the record starts in its file."""
        one = self.part(number, number + 1)
        found = array("q", columns.positions(one.base, one.offsets, one.lengths))
        return found[0]


def refuse(file: str, offset: int, reason: str) -> None:
    """What to do about damage unless something else was asked for."""
    raise Corruption(file, offset, reason)


def read_piece(disk: Files, piece: Piece, times: Times, damage: Damage = refuse) -> Iterator[Records]:
    """Raises: Corruption (unless ``damage`` returns), DiskError; StorageError if it has to be begun anew."""
    opened = _open(disk, piece)
    if opened is None:
        return
    file, is_same = opened
    pinned = piece.file
    start, stop = (piece.start, piece.stop) if is_same else (HEADER_SIZE, file.size())
    if not is_same:
        last = None if pinned.last_ns is None else pinned.last_ns + 1
        times = times.within(Times(piece.since_ns, piece.until_ns if piece.until_ns is not None else last))
    try:
        for records in _scan(file, piece, start, stop, damage):
            clipped = _clip(records, times) if pinned.is_ordered else records
            if len(clipped.times):
                yield clipped
    finally:
        file.close()


def _open(disk: Files, piece: Piece) -> tuple[File, bool] | None:
    """The file, and whether it is the very one that was pinned; None if there is nothing left to read."""
    pinned = piece.file
    folder = pinned.place.folder
    try:
        file = open_for_reading(disk, folder, pinned.name)
    except FileNotFoundError:
        file = None
    if file is not None and is_same(file, pinned):
        return file, True
    if file is not None and pinned.place.kind not in MERGED:
        check_header(file, pinned.name)
        return file, False
    if file is not None:
        file.close()
    return _find(disk, piece)


def _find(disk: Files, piece: Piece) -> tuple[File, bool] | None:
    pinned = piece.file
    name = parse(pinned.name)
    if pinned.place.kind not in MERGED:
        return None
    for other in sort_out(disk.list(pinned.place.folder)).segments:
        if name is not None and other.stream == name.stream:
            try:
                file = open_for_reading(disk, pinned.place.folder, other.name)
            except FileNotFoundError:
                continue
            if is_same(file, pinned):
                return file, True
            file.close()
    raise StorageError(
        f"{pinned.name} of {pinned.place.path} was merged into another file while it was read",
        hint="read again: what it held is there",
        file=pinned.name,
    )


def _scan(file: File, piece: Piece, start: int, stop: int, damage: Damage) -> Iterator[Records]:
    pinned = piece.file
    watermark, gap = pinned.format.reserved
    last_ns = 0
    while start < stop:
        scan = FileScan(file, start, stop, window=WINDOW)
        for batch in scan:
            last_ns = batch.newest
            kept = columns.without_marks(batch.data, batch.times, batch.offsets, batch.lengths, watermark, gap)
            yield Records(batch.base, batch.data, *kept)
        if scan.why is Stop.END and scan.stop >= stop:
            return
        damage(pinned.name, scan.stop, REASONS[scan.why or Stop.TRUNCATED])
        found = next_record(file, scan.stop, stop, last_ns)
        start = stop if found is None else found


def _clip(records: Records, times: Times) -> Records:
    """What is of that time. Times rise within a file."""
    first = 0 if times.since is None else bisect_left(records.times, times.since)
    last = len(records.times) if times.until is None else bisect_left(records.times, times.until)
    return records if first == 0 and last == len(records.times) else records.part(first, last)
