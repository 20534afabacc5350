"""Reading the file of a channel: the entries of those of its sessions that count go into a table."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lamina.engines.store import codec, hints
from lamina.engines.store.codec import NOTHING_REACHED, REACHED, Reached
from lamina.engines.store.fold import Fold, why_not
from lamina.engines.store.table import Table
from lamina.errors import Corruption
from lamina.log.attest import is_attested
from lamina.log.files import File, Files
from lamina.log.formats import PWAL
from lamina.log.frame import MAX_PAYLOAD, REASONS, Stop
from lamina.log.scan import HEADER_SIZE, Batch, FileScan
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

_REACHED: Final = re.compile(re.escape(REACHED))


@dataclass(frozen=True, slots=True)
class FileRead:
    """What a file held."""

    bytes: int
    last_ns: int
    """Time of its newest whole record."""
    whole: int
    """Bytes up to the end of the last whole record."""
    why: Stop
    """Why reading ended there."""
    vouches_ns: int = 0
    """The first record says that the file before it, of the same channel, reached this time; 0: it does not say."""
    reached: Reached = NOTHING_REACHED
    """How far the epoch file had come, by what this file says."""

    @property
    def is_torn(self) -> bool:
        return self.why is not Stop.END


def fold_file(
    files: Files,
    folder: str,
    name: str,
    fold: Fold,
    table: Table,
    *,
    may_be_torn: bool,
    step: Callable[[int], Table | None] = lambda at: None,
) -> FileRead:
    """Take what counts of a file into ``table``. ``step`` is told how many bytes are done, and may give another table.

    ``may_be_torn``: its end may be what a crash left; that is then in what is returned.
    Raises: Corruption with file, byte and epoch; WrongFormat; DiskError; FileNotFoundError.
    """
    file = open_for_reading(files, folder, name)
    try:
        size = file.size()
        header = read_header(file)
        if may_be_torn and header_is_torn(header, PWAL):
            return FileRead(size, 0, 0, Stop.TRUNCATED)
        check_header(file, name, PWAL, header, hint=hints.DAMAGED)
        scan = FileScan(file, end=size)
        last_ns = 0
        vouches_ns = 0
        reached = NOTHING_REACHED
        for batch in scan:
            for each in reached_in(batch):
                reached = reached.joined(each)
            if batch.base == HEADER_SIZE:
                vouches_ns = PWAL.read_watermark(batch.payload(0)) or 0
            fold_batch(name, batch, fold, table)
            last_ns = max(last_ns, batch.newest)
            following = step(batch.end)
            table = table if following is None else following  # an empty one is false, and still the next
        found = FileRead(size, last_ns, scan.stop, scan.why if scan.stop < size else Stop.END, vouches_ns, reached)
        check_end(file, name, found, fold, may_be_torn=may_be_torn)
        return found
    finally:
        file.close()


def reached_in(batch: Batch) -> Iterator[Reached]:
    """What the records of a batch say about the epoch file. They are few: no record is looked at for them."""
    for match in _REACHED.finditer(batch.data):
        number = bisect_left(batch.offsets, match.start())
        if number < len(batch.offsets) and batch.offsets[number] == match.start():
            found = codec.read_reached(batch.payload(number))
            if found is not None:
                yield found


def fold_batch(name: str, batch: Batch, fold: Fold, table: Table, seen_as: Batch | None = None) -> None:
    """Take what counts of a batch. ``seen_as``: the same records as somebody wants to have them in the table.

    Raises: Corruption with file, byte and epoch.
    """
    shown = batch if seen_as is None else seen_as
    taken = table.fold(shown.data, shown.times, shown.offsets, shown.lengths, fold)
    if taken < len(batch.times):
        reason = f"not a record of a store: {why_not(batch.payload(taken), fold)}"
        raise Corruption(name, batch.record_offset(taken), reason, hint=hints.DAMAGED)


def check_end(file: File, name: str, found: FileRead, fold: Fold, *, may_be_torn: bool) -> None:
    """Whether a file may end as it does. Raises: Corruption, DiskError."""
    stop, size = found.whole, found.bytes
    if fold.epoch and fold.counts:
        why = "the file ends" if stop == size else REASONS[found.why]
        reason = f"{why}, inside a session of epoch {fold.epoch}, which is durable"
        raise Corruption(name, stop, reason, hint=hints.DAMAGED)
    if stop == size:
        return
    if not may_be_torn or is_attested(file, stop, size, found.last_ns, PWAL, MAX_PAYLOAD):
        epoch = f", behind epoch {fold.newest_epoch}" if fold.newest_epoch else ""
        reason = f"{REASONS[found.why]}, though it was once synced{epoch}"
        raise Corruption(name, stop, reason, hint=hints.DAMAGED)
