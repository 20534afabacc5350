"""The tasks of a fold: records are sorted into buckets by their queue, then each bucket is folded by itself.

Queues know nothing of each other, so what becomes of one depends on its own records alone, in their order. A task of
the first kind reads a piece of a file and writes one part, bucket by bucket. One of the second kind reads its bucket
of all parts, the dump before first, does what the engine does (engines/queues/folding.py), and writes the queues that
are left with their places: that in the dump before, or that of the record which created them.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from lamina.engines.queues import codec
from lamina.engines.queues.folding import BaseQueue, Edits, Survivors
from lamina.engines.queues.restoring import ABOUT_MESSAGES
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.formats import QUEUE_STORE
from lamina.log.frame import Stop
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading
from lamina.pipeline.staging import part_name
from lamina.pipeline.upkeep.folding_parts import BLOCK, Groups, read_groups, write_part
from lamina.pipeline.upkeep.folding_survey import Odd, Piece

_MARK_SIZES = QUEUE_STORE.mark_sizes


@dataclass(frozen=True, slots=True)
class Sorting:
    """Sort the records of a piece."""

    number: int
    folder: str
    piece: Piece
    buckets: int
    keeps_messages: bool
    staging: str


@dataclass(frozen=True, slots=True)
class Sorted:
    """What was found in a piece, and where it went."""

    path: str = ""
    ends: tuple[int, ...] = ()
    """Where the part of each bucket ends in the file."""
    records: int = 0
    """Of a log: how many there were."""
    queues: int = 0
    """Of a dump."""
    messages: int = 0
    end: tuple[int, int] | None = None
    """Of a dump: how many of both there should be, if this piece has its last record."""
    is_odd: bool = False
    """The engine's own fold has to judge it."""


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a file."""

    path: str
    start: int
    end: int
    is_base: bool


@dataclass(frozen=True, slots=True)
class Folding:
    """Fold one bucket."""

    number: int
    sections: tuple[Section, ...]
    """In the order of the history."""
    now: int
    ttl: int
    keeps_messages: bool
    staging: str


@dataclass(frozen=True, slots=True)
class Folded:
    path: str
    expired: int


# -- sorting ---------------------------------------------------------------------------------------------------------


def sort(task: Sorting) -> Sorted:
    """Run a task of the first kind. Raises: DiskFull, DiskError."""
    files = RealFiles()
    sorter = _Sorter(task)
    try:
        for payload, place in _records(files, task):
            values: list[Any] = codec.decode(payload)
            sorter.take_base(payload, values, place) if task.piece.is_base else sorter.take(payload, values, place)
    except (Odd, codec.BadRecord, FileNotFoundError):
        return Sorted(is_odd=True)
    return sorter.write(files)


def _records(files: Files, task: Sorting) -> Iterator[tuple[bytes, int]]:
    """Records of a piece without the kernel's marks, and where each begins in the history."""
    piece = task.piece
    file = open_for_reading(files, task.folder, piece.name)
    try:
        scan = FileScan(file, piece.start, piece.end)
        for batch in scan:
            for at, length in enumerate(batch.lengths):
                payload = batch.payload(at)
                if length not in _MARK_SIZES or not QUEUE_STORE.is_mark(payload):
                    yield payload, piece.place + batch.record_offset(at)
        if scan.why is not Stop.END or scan.stop != piece.end:
            raise Odd  # it was whole a moment ago
    finally:
        file.close()


class _Sorter:
    def __init__(self, task: Sorting) -> None:
        self._task = task
        self._buckets = [Groups() for _ in range(task.buckets)]
        self._rid: object = None
        self._bucket = self._buckets[0]
        self._records = self._queues = self._messages = 0
        self._end: tuple[int, int] | None = None

    def take(self, payload: bytes, values: list[Any], place: int) -> None:
        """A record of a log."""
        kind = values[0]
        if kind in ABOUT_MESSAGES and not self._task.keeps_messages:
            return
        self._records += 1
        if kind == codec.END:
            return
        bucket = self._buckets[zlib.crc32(values[1]) % len(self._buckets)]
        if kind == codec.CREATE or not bucket.is_begun:
            bucket.begin(place)
        bucket.add(payload)

    def take_base(self, payload: bytes, values: list[Any], place: int) -> None:
        """A record of a dump. Raises: Odd where it does not belong."""
        kind = values[0]
        if self._end is not None:
            raise Odd
        if kind == codec.CREATE:
            self._queues += 1
            self._rid = values[1]
            self._bucket = self._buckets[zlib.crc32(values[1]) % len(self._buckets)]
            self._bucket.begin(place)
        elif kind == codec.END:
            self._end = (values[1], values[2])
            return
        elif (kind != codec.MSG and kind != codec.QUOTA) or values[1] != self._rid:
            raise Odd
        else:
            self._messages += 1
        self._bucket.add(payload)

    def write(self, files: Files) -> Sorted:
        path = join(self._task.staging, part_name(self._task.number))
        ends: list[int] = []

        def blocks() -> Iterator[bytes]:
            for bucket in self._buckets:
                block = bucket.take_block()
                ends.append((ends[-1] if ends else 0) + len(block))
                yield block

        write_part(files, path, blocks())
        return Sorted(path, tuple(ends), self._records, self._queues, self._messages, self._end)


# -- folding ---------------------------------------------------------------------------------------------------------


def fold(task: Folding) -> Folded:
    """Run a task of the second kind. Raises: Corruption, DiskFull, DiskError."""
    files = RealFiles()
    edits, created = Edits(), dict[bytes, int]()
    for section in task.sections:
        if section.is_base:
            continue
        for place, payloads in read_groups(files, section.path, section.start, section.end):
            for payload in payloads:
                values: list[Any] = codec.decode(payload)
                if values[0] == codec.CREATE:
                    created[values[1]] = place
                edits.take(payload, values)
    survivors = Survivors(task.now, task.ttl, keeps_messages=task.keeps_messages)

    def blocks() -> Iterator[bytes]:
        groups = Groups()
        for place, payloads in survivors.of_base(_base(files, task), edits):
            groups.begin(place)
            groups.extend(payloads)
            if groups.size >= BLOCK:
                yield groups.take_block()
        for rid, payloads in survivors.fresh(edits):
            groups.begin(created[rid])
            groups.extend(payloads)
            if groups.size >= BLOCK:
                yield groups.take_block()
        yield groups.take_block()

    path = join(task.staging, part_name(task.number))
    write_part(files, path, blocks())
    return Folded(path, survivors.expired)


def _base(files: Files, task: Folding) -> Iterator[BaseQueue]:
    for section in task.sections:
        if section.is_base:
            for place, payloads in read_groups(files, section.path, section.start, section.end):
                yield BaseQueue(place, payloads, [codec.decode(payload) for payload in payloads])
