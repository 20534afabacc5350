"""Before a fold is divided: are the files whole, how far do they reach, and where can they be cut?

One pass of the compiled scanner over every byte, which is a small part of the whole work: where records begin cannot be
told from anywhere inside of a file, for a message may hold anything, records too. A dump is cut where queues begin, a
log between any two records. What is not as a dump and a crash at worst leave it is not divided at all: the engine's own
fold then says what is wrong, or passes over it if it is to.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lamina.engines.queues import codec, store_files
from lamina.engines.queues.dump_check import FOLLOWED, lacks_log, time_of_end
from lamina.engines.queues.store_files import Plan
from lamina.engines.queues.store_reading import BAD_RECORD, LOST_RECORDS, StoreReading, reached_before
from lamina.log.files import File, Files
from lamina.log.formats import QUEUE_STORE
from lamina.log.frame import MIN_RECORD, Stop
from lamina.log.index import newest_data
from lamina.log.scan import HEADER_SIZE, WINDOW, Batch, FileScan
from lamina.log.segment import open_for_reading, read_header


class Odd(Exception):
    """Something that only the engine's own fold can judge."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Some records of a file."""

    name: str
    start: int
    end: int
    place: int
    """Of the beginning of the file, in all files together."""
    is_base: bool


@dataclass(slots=True)
class Surveyed:
    """What there is to fold."""

    pieces: list[Piece] = field(default_factory=list)
    """In the order of the history."""
    last: int = 0
    """Time of the newest record."""
    most: int = 0
    """Records that the dump before has, or more."""
    bytes: int = 0
    is_followed: bool = False
    """The log after all of it was begun (queues/dump_check.py)."""


def survey(
    files: Files, folder: str, plan: Plan, piece: int, progress: Callable[[int], None] = lambda done: None
) -> Surveyed:
    """Look at all files of a plan; ``piece``: bytes of a piece, about. Raises: Odd; LaminaError, OSError."""
    found = Surveyed()
    if lacks_log(files, folder, plan) is not None:
        raise Odd
    if plan.base is not None:
        _Survey(files, folder, found, piece, progress).base(store_files.dump_name(plan.base))
    for number in plan.logs:
        _Survey(files, folder, found, piece, progress).log(store_files.log_name(number).name)
    if plan.logs and reached_before(files, folder, store_files.log_name(plan.logs[-1] + 1).name) > found.last:
        raise Odd  # what was safe is missing at the end
    return found


class _Survey:
    """Of one file."""

    def __init__(self, files: Files, folder: str, found: Surveyed, piece: int, progress: Callable[[int], None]) -> None:
        self._files, self._folder, self._found = files, folder, found
        self._piece, self._progress = piece, progress
        self._cuts = [HEADER_SIZE]

    def base(self, name: str) -> None:
        found, file = self._found, open_for_reading(self._files, self._folder, name)
        try:
            size, last = file.size(), time_of_end(file)
            if last is None or read_header(file) != QUEUE_STORE.header:
                raise Odd
            found.most, found.last = size // MIN_RECORD, last
            scan = FileScan(file, window=min(WINDOW, self._piece))
            for batch in scan:
                self._cut_at_queue(batch)
                self._progress(found.bytes + batch.end)
            if scan.why is not Stop.END or scan.stop != size:
                raise Odd
            self._take(name, size, is_base=True)
        finally:
            file.close()

    def log(self, name: str) -> None:
        found, file = self._found, open_for_reading(self._files, self._folder, name)
        try:
            size, before = file.size(), found.last
            if read_header(file) != QUEUE_STORE.header:
                if self._has_records(name, before):
                    raise Odd
                return
            end = self._scan_log(file)
            if end != size:
                self._has_records(name, before)
            self._take(name, end, is_base=False)
        finally:
            file.close()

    def _scan_log(self, file: File) -> int:
        """Returns where whole records end."""
        found = self._found
        scan = FileScan(file, window=min(WINDOW, self._piece))
        for batch in scan:
            if batch.base == HEADER_SIZE:
                reached = QUEUE_STORE.read_watermark(batch.payload(0))
                if reached is not None and reached > found.last:
                    raise Odd  # records of the files before it are missing
            if batch.base >= self._cuts[-1] + self._piece:
                self._cuts.append(batch.base)
            found.last = max(found.last, newest_data(batch, QUEUE_STORE))
            self._progress(found.bytes + batch.end)
        return scan.stop

    def _has_records(self, name: str, last: int) -> bool:
        """Read it as the engine does: a crash may have left it so. Raises: Odd if none can have."""

        def tell(kind: str, record: int | None, offset: int, reason: str) -> None:
            if kind in (BAD_RECORD, LOST_RECORDS):
                raise Odd

        count = 0
        for payloads in StoreReading(self._files, self._folder, name, last, tell):  # to its end, for what it tells
            count += len(payloads)
        return count > 0

    def _cut_at_queue(self, batch: Batch) -> None:
        wanted = self._cuts[-1] + self._piece
        if batch.end <= wanted:
            return
        for at in range(len(batch.times)):
            offset = batch.record_offset(at)
            if offset >= wanted and is_create(batch.payload(at)):
                self._cuts.append(offset)
                wanted = offset + self._piece

    def _take(self, name: str, end: int, *, is_base: bool) -> None:
        found = self._found
        for start, until in zip(self._cuts, [*self._cuts[1:], end], strict=True):
            if until > start:
                found.pieces.append(Piece(name, start, until, found.bytes, is_base))
        found.bytes += end


def is_create(payload: bytes) -> bool:
    """It begins a queue. Raises: Odd if it is no record."""
    try:
        return payload != FOLLOWED and codec.decode(payload)[0] == codec.CREATE
    except codec.BadRecord:
        raise Odd from None
