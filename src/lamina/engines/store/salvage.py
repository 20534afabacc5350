"""What can still be read of a damaged file: whole sessions of a channel, whole records of an epoch file.

A session counts as a whole or not at all. So damage within one takes all of it, from its beginning to where the next
one begins; and so it is for a session without an end, or with another number of entries than its end says.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from lamina.engines.store import codec, epoch_file
from lamina.engines.store.codec import BEGIN, BadRecord, Reached
from lamina.engines.store.epoch_file import Epochs
from lamina.engines.store.fold import Fold
from lamina.log.attest import next_record
from lamina.log.files import File
from lamina.log.formats import EPOCH, PWAL, Format
from lamina.log.frame import MAX_PAYLOAD, REASONS, Stop
from lamina.log.scan import HEADER_SIZE, FileScan


class Whole(NamedTuple):
    """Bytes that are good: a session, or a record."""

    start: int
    end: int
    epoch: int
    entries: int
    last_ns: int


class Bad(NamedTuple):
    """Bytes that are not."""

    start: int
    end: int
    reason: str
    epoch: int
    """Of the session that they belong to; 0: not known."""
    is_unfinished: bool = False
    """Nothing is wrong, but the file ends inside of a session."""


class _Record(NamedTuple):
    start: int
    end: int
    time_ns: int
    payload: bytes


def sessions(file: File, end: int, *, has_header: bool = True) -> Iterator[Whole | Bad]:
    """The file of a channel, up to byte ``end``, from its start. Raises: DiskError."""
    return _joined(_sessions(file, end, has_header=has_header))


def epoch_records(file: File, end: int, *, has_header: bool = True) -> Iterator[Whole | Bad]:
    """The same for an epoch file."""
    return _joined(_epoch_records(file, end, has_header=has_header))


def reached(file: File, end: int) -> Reached:
    """How far the epoch file had come, by what can still be read of the file of a channel. Raises: DiskError."""
    found = Reached()
    for each in _records(file, end, PWAL, has_header=True):
        if isinstance(each, _Record) and (more := codec.read_reached(each.payload)) is not None:
            found = found.joined(more)
    return found


def _sessions(file: File, end: int, *, has_header: bool) -> Iterator[Whole | Bad]:
    fold, newest = _between_sessions(0), 0
    start = 0  # of the open session; 0: none is open
    for found in _records(file, end, PWAL, has_header=has_header):
        if isinstance(found, Bad):
            yield Bad(start or found.start, found.end, found.reason, fold.epoch)
            fold, start = _between_sessions(newest), 0
            continue
        if start and found.payload[:1] == bytes([BEGIN]):
            yield Bad(start, found.start, f"the session of epoch {fold.epoch} has no end", fold.epoch)
            fold, start = _between_sessions(newest), 0
        try:
            epoch, entries = fold.epoch, fold.entries
            fold.take(found.payload)
        except BadRecord as error:
            yield Bad(start or found.start, found.end, f"not a record of a store: {error}", epoch)
            fold, start = _between_sessions(newest), 0
            continue
        if fold.epoch and not epoch:
            start = found.start
        elif epoch and not fold.epoch:
            yield Whole(start, found.end, epoch, entries, found.time_ns)
            start, newest = 0, epoch
    if start:
        yield Bad(start, end, f"the file ends inside of a session of epoch {fold.epoch}", fold.epoch, True)


def _between_sessions(newest_epoch: int) -> Fold:
    """``newest_epoch``: that of whole sessions; what a bad one says of itself is not believed."""
    fold = Fold(0, 0)
    fold.newest_epoch = newest_epoch
    return fold


def _epoch_records(file: File, end: int, *, has_header: bool) -> Iterator[Whole | Bad]:
    epochs = Epochs()
    for found in _records(file, end, EPOCH, has_header=has_header):
        if isinstance(found, Bad):
            yield found
            continue
        try:
            epoch_file.take(epochs, found.time_ns, found.payload)
        except (ValueError, struct.error) as error:
            yield Bad(found.start, found.end, str(error), 0)
        else:
            yield Whole(found.start, found.end, epochs.durable, 1, found.time_ns)


def _records(file: File, end: int, format: Format, *, has_header: bool) -> Iterator[_Record | Bad]:
    """Records that are whole, but the kernel's marks, and what is between them."""
    at, last_ns = HEADER_SIZE, 0
    if not has_header:
        yield Bad(0, min(HEADER_SIZE, end), "the header is not that of such a file", 0)
    while at < end:
        scan = FileScan(file, at, end, MAX_PAYLOAD)
        for batch in scan:
            for number, time_ns in enumerate(batch.times):
                payload = batch.payload(number)
                if not format.is_mark(payload):
                    start = batch.record_offset(number)
                    stop = batch.base + batch.offsets[number] + batch.lengths[number] + 4
                    yield _Record(start, stop, time_ns, payload)
            last_ns = max(last_ns, batch.newest)
        if scan.why is Stop.END and scan.stop >= end:
            return
        found = next_record(file, scan.stop, end, last_ns, MAX_PAYLOAD)
        at = end if found is None else found
        yield Bad(scan.stop, at, REASONS[scan.why or Stop.TRUNCATED], 0)


def _joined(found: Iterator[Whole | Bad]) -> Iterator[Whole | Bad]:
    """Bad ranges with nothing whole between them are one: what follows the first is bad for its sake."""
    bad: Bad | None = None
    for each in found:
        if isinstance(each, Bad) and not each.is_unfinished:
            if bad is None:
                bad = each
            else:
                bad = bad._replace(end=each.end, epoch=bad.epoch if each.epoch in (0, bad.epoch) else 0)
            continue
        if bad is not None:
            yield bad
            bad = None
        yield each
    if bad is not None:
        yield bad
