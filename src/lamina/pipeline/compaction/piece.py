"""The first step of a compaction, in a task: the sessions of a piece of the inputs become sorted runs.

A piece owns the sessions that begin in it and reads on behind its border until the last of them has ended. Where the
first one begins cannot be known without reading everything before: a piece takes the first whole record that looks like
a beginning. That may be bytes of a value, written by somebody who wants to mislead. So what a piece found counts only
if the piece before it ended exactly there (following.py); until then no error in it does either.

A run is a sorted file of entries that stand for their records (copying.py).
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

from lamina.engines.store import hints
from lamina.engines.store.codec import BEGIN
from lamina.engines.store.codec import begin as begin_record
from lamina.engines.store.fold import Fold
from lamina.engines.store.merging import Run, merged, run_of
from lamina.engines.store.reading import FileRead, fold_batch
from lamina.engines.store.sorted_file import SortedFile, SortedWriter
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table
from lamina.errors import LaminaError, from_os
from lamina.log.files import File, join, read_at
from lamina.log.formats import PWAL
from lamina.log.frame import TIME, Head, Stop
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_record
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header
from lamina.pipeline.compaction.copying import as_spots
from lamina.pipeline.compaction.plan import Group, Shared, Stretch
from lamina.pipeline.running import to_plain
from lamina.pipeline.staging import part_name

_BEGIN_SIZE: Final = len(begin_record(1))
_BEGIN_HEAD: Final = TIME.size + 1  # before so short a payload
# A record of that size and kind, in a year that fits into a record (log/frame.py).
_BEGINNING: Final = re.compile(rb"\x01\0\0\0[\x0c-\x10].{10}" + bytes([_BEGIN_SIZE, BEGIN]), re.DOTALL)
_BEGINNING_SIZE: Final = 17
_CHUNK: Final = 1 << 20
_SAMPLES: Final = 64  # places of a run that ranges are chosen by
_NO_SYNC: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class RunFile:
    """A run in the folder of the job."""

    name: str
    entries: int
    sample: tuple[bytes, ...]
    """Places that cut it into pieces of about one size."""


@dataclass(frozen=True, slots=True)
class Piece:
    """What was found in a stretch."""

    start: int | None = None
    """Where its first session begins; None: none does."""
    end: int | None = None
    """Where the first session of the next piece begins; None: there is none before the end of what can be read."""
    found: FileRead | None = None
    """If that end was reached; of the time only what was read here."""
    last_ns: int = 0
    taken: int = 0
    """Entries of sessions that count."""
    first_epoch: int = 0
    newest_epoch: int = 0
    open_epoch: int = 0
    """Of a session that has not ended."""
    open_counts: bool = False
    problem: dict[str, Any] | None = None
    """An error (running.to_plain), if the piece begins where it should."""


@dataclass(frozen=True, slots=True)
class Gather:
    """A task of the first step."""

    number: int
    shared: Shared
    stretches: Group


@dataclass(frozen=True, slots=True)
class Gathered:
    """And its result."""

    pieces: tuple[Piece, ...] = ()
    runs: tuple[RunFile, ...] = ()
    """Oldest first."""
    storages: Storages = field(default_factory=Storages)


def gather(work: Gather) -> Gathered:
    """Raises: DiskFull, DiskError for what is written; errors of what is read are in the pieces."""
    sorter = _Sorter(work)
    pieces: list[Piece] = []
    for stretch in work.stretches:
        pieces.append(_read(work.shared, stretch, sorter))
        if pieces[-1].problem is not None:
            break
    sorter.spill()
    return Gathered(tuple(pieces), tuple(sorter.runs), sorter.storages)


class _Sorter:
    """Takes entries and makes runs of them."""

    def __init__(self, work: Gather) -> None:
        self._work = work
        self.table = Table()
        self.runs: list[RunFile] = []
        self.storages = Storages()

    def step(self) -> None:
        if self.table.bytes >= self._work.shared.memory_bytes:
            self.spill()

    def spill(self) -> None:
        self.storages.add(self.table.storages)
        if len(self.table):
            self.runs.append(write_run(self._work.shared, self._work.number, run_of(self.table)))
        self.table = Table()


def write_run(shared: Shared, number: int, run: Run) -> RunFile:
    """A file with what a run holds. Raises: DiskFull, DiskError."""
    name = part_name(number)
    writer = SortedWriter(shared.files, join(shared.staging, name), sync_every=_NO_SYNC)
    try:
        for places, items in run:
            writer.add_many(places, items)
        made = writer.finish(sync=False)  # nothing in there outlives the job
        file = SortedFile.open(shared.files, shared.staging, name)
        try:
            return RunFile(name, made.entries, tuple(file.sample(_SAMPLES)))
        finally:
            file.close()
    except BaseException:
        writer.abandon()
        raise


# -- reading ---------------------------------------------------------------------------------------------------------


def _read(shared: Shared, stretch: Stretch, sorter: _Sorter) -> Piece:
    """What is wrong with the file is in the piece."""
    start = stretch.start
    try:
        try:
            file = open_for_reading(shared.files, shared.folder, stretch.name)
        except FileNotFoundError as error:
            raise from_os(error, "open the file", join(shared.folder, stretch.name)) from error
        try:
            if start == HEADER_SIZE:
                header = read_header(file)
                if header_is_torn(header, PWAL):
                    return Piece(start, found=FileRead(stretch.size, 0, 0, Stop.TRUNCATED))
                check_header(file, stretch.name, PWAL, header, hint=hints.DAMAGED)
            elif start is None:
                start = _look_for_beginning(file, stretch)
                if start is None:
                    return Piece()
            return _fold(file, shared, replace(stretch, start=start), sorter)
        finally:
            file.close()
    except LaminaError as error:
        return Piece(start, problem=to_plain(error))


def _look_for_beginning(file: File, stretch: Stretch) -> int | None:
    at = stretch.begin
    while at < stretch.border:
        chunk = read_at(file, at, min(_CHUNK + _BEGINNING_SIZE, stretch.size - at))
        for match in _BEGINNING.finditer(chunk):
            found = at + match.start()
            if match.start() >= _CHUNK or found >= stretch.border:
                break
            if isinstance(read_record(file, found, stretch.size), Head):
                return found
        at += _CHUNK
    return None


def _fold(file: File, shared: Shared, stretch: Stretch, sorter: _Sorter) -> Piece:
    fold = Fold(shared.after, shared.until, shared.voids)
    assert stretch.start is not None
    scan = FileScan(file, stretch.start, stretch.size)
    seen_as: Callable[[Batch], Batch] = partial(as_spots, file=stretch.source)
    last_ns, end = 0, None
    try:
        for batch in scan:
            border = _beginning_behind(batch, stretch.border)
            before = batch if border is None else _cut(batch, 0, border)
            fold_batch(stretch.name, before, fold, sorter.table, seen_as(before))
            last_ns = max(last_ns, before.newest)
            if border is not None:
                if not fold.epoch:
                    end = batch.record_offset(border)
                    break
                # A session begins inside of another: the error is met.
                behind = _cut(batch, border, len(batch.times))
                fold_batch(stretch.name, behind, fold, sorter.table, seen_as(behind))
            sorter.step()
    except LaminaError as error:
        return Piece(
            stretch.start,
            last_ns=last_ns,
            first_epoch=fold.first_epoch,
            newest_epoch=fold.newest_epoch,
            problem=to_plain(error),
        )
    why = scan.why if scan.stop < stretch.size else Stop.END
    return Piece(
        stretch.start,
        end,
        FileRead(stretch.size, last_ns, scan.stop, why) if end is None else None,
        last_ns,
        fold.taken,
        fold.first_epoch,
        fold.newest_epoch,
        fold.epoch,
        bool(fold.epoch and fold.counts),
    )


def _beginning_behind(batch: Batch, border: int) -> int | None:
    """The number of the first record at the border or behind it with which a session begins."""
    if batch.end <= border:
        return None
    first = bisect_left(batch.offsets, border + _BEGIN_HEAD - batch.base)
    for number in range(first, len(batch.offsets)):
        if batch.lengths[number] == _BEGIN_SIZE and batch.data[batch.offsets[number]] == BEGIN:
            return number
    return None


def _cut(batch: Batch, start: int, end: int) -> Batch:
    """Some of its records."""
    times: array[int] = batch.times[start:end]
    return batch._replace(
        times=times,
        offsets=batch.offsets[start:end],
        lengths=batch.lengths[start:end],
        newest=max(times, default=0),
    )


# -- fewer runs ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Combine:
    """A task: several runs, oldest first, become one."""

    number: int
    shared: Shared
    runs: tuple[RunFile, ...]


def combine(work: Combine) -> RunFile:
    """Raises: Corruption, DiskFull, DiskError."""
    files: list[SortedFile] = []
    try:
        for run in work.runs:
            files.append(SortedFile.open(work.shared.files, work.shared.staging, run.name))
        return write_run(work.shared, work.number, merged([file.batches() for file in files]))
    finally:
        for file in files:
            file.close()
