"""Dividing a snapshot among tasks: pieces of files that begin and end at records, packed into partitions.

Files outside of the time that was asked for are left out, and of the others what is before and behind it. Large files
are cut where their sparse index knows the start of a record; without an index a file stays whole. Small ones share a
partition.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lamina.log import index as indexes
from lamina.log.files import Files
from lamina.log.scan import HEADER_SIZE
from lamina.log.segment import open_for_reading
from lamina.pipeline import places
from lamina.pipeline.snapshot import PinnedFile, is_same
from lamina.units import MIB

_LEAST: Final = MIB
"""Smaller pieces cost more to begin than to read."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Records of one file: from the byte ``start`` to the byte ``stop``."""

    file: PinnedFile
    start: int
    stop: int
    since_ns: int | None = None
    """Time of the first record; None: the piece begins with the file."""
    until_ns: int | None = None
    """Time of the first record behind it; None: the piece ends with the file."""

    @property
    def bytes(self) -> int:
        return self.stop - self.start


@dataclass(frozen=True, slots=True)
class Times:
    """A range of time: from ``since`` on, before ``until``."""

    since: int | None = None
    until: int | None = None

    def within(self, other: Times) -> Times:
        since = max((each for each in (self.since, other.since) if each is not None), default=None)
        until = min((each for each in (self.until, other.until) if each is not None), default=None)
        return Times(since, until)

    @property
    def is_empty(self) -> bool:
        return self.since is not None and self.until is not None and self.until <= self.since


def choose_files(files: Sequence[PinnedFile], times: Times) -> list[PinnedFile]:
    """Those that can hold a record of that time. A file ends where the next one of its log begins."""
    chosen = []
    for number, file in enumerate(files):
        if file.end <= HEADER_SIZE or times.is_empty:
            continue
        if file.is_ordered and file.first_ns is not None:  # without a first record it is damaged: who reads it tells
            following = files[number + 1] if number + 1 < len(files) else None
            ends_ns = file.last_ns
            if ends_ns is None and following is not None and _is_next(file, following):
                ends_ns = following.first_ns
            if times.since is not None and ends_ns is not None and ends_ns < times.since:
                continue
            if times.until is not None and file.first_ns >= times.until:
                continue
        chosen.append(file)
    return chosen


def _is_next(file: PinnedFile, following: PinnedFile) -> bool:
    """Of the same log; of the store, of the same channel."""
    same = file.place == following.place and following.is_ordered
    return same and (file.place.kind != places.STORE or file.name[:9] == following.name[:9])


def cut(disk: Files, files: Iterable[PinnedFile], times: Times, target: int) -> list[Piece]:
    """The files in pieces of about ``target`` bytes, without what is outside of the time."""
    pieces = []
    for file in files:
        whole = Piece(replace(file, points=()), HEADER_SIZE, file.end)  # tasks travel, what they are cut by does not
        is_cut = file.is_ordered and (file.end > target * 2 or times != Times())
        pieces += _cut(whole, _points(disk, file), times, target) if is_cut else [whole]
    return [piece for piece in pieces if piece.bytes > 0]


def _cut(whole: Piece, points: Sequence[tuple[int, int]], times: Times, target: int) -> list[Piece]:
    if not points:
        return [whole]
    # Points know no times before 1970.
    first = 0 if times.since is None or times.since <= 0 else max(bisect_left(points, (times.since, 0)) - 1, 0)
    last = len(points) if times.until is None or times.until <= 0 else bisect_left(points, (times.until, 0))
    pieces = []
    start, since = (whole.start, None) if first == 0 else (points[first][1], points[first][0])
    for time_ns, offset in points[first + 1 : last]:
        if offset - start >= target and whole.stop - offset >= target // 2:
            pieces.append(Piece(whole.file, start, offset, since, time_ns))
            start, since = offset, time_ns
    stop, until = (whole.stop, None) if last == len(points) else (points[last][1], points[last][0])
    return [*pieces, Piece(whole.file, start, stop, since, until)]


def _points(disk: Files, file: PinnedFile) -> Sequence[tuple[int, int]]:
    """Where records begin (time, offset), as far as the index knows; nothing if there is none."""
    if file.points:
        return file.points
    try:
        opened = open_for_reading(disk, file.place.folder, file.name)
    except FileNotFoundError:
        return ()
    try:
        if not is_same(opened, file):
            return ()
        index = indexes.load(disk, file.place.folder, file.name, opened)
        return () if index is None else tuple(zip(index.times, index.offsets, strict=True))
    finally:
        opened.close()


def target_bytes(total: int, least_partitions: int, most_bytes: int) -> int:
    """How large a partition should be."""
    return max(min(total // max(least_partitions, 1), most_bytes), _LEAST)


def pack(pieces: Iterable[Piece], target: int) -> list[tuple[Piece, ...]]:
    """Neighbours in one partition while they fit."""
    partitions: list[tuple[Piece, ...]] = []
    gathered: list[Piece] = []
    size = 0
    for piece in pieces:
        if gathered and size + piece.bytes > target:
            partitions.append(tuple(gathered))
            gathered, size = [], 0
        gathered.append(piece)
        size += piece.bytes
    return [*partitions, tuple(gathered)] if gathered else partitions
