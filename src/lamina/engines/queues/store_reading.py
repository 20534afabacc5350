"""Reading one file of the store, log or dump: its records in batches, and what is wrong with it.

Every log that was the active one when power or process went may end torn, and stays so: the next start begins a new
file. So a bad place in any of them has to be told from damage. It is damage if a watermark vouches for what is missing
(log/attest.py), at the head of the next file too. It is also damage if whole records stand behind it, with one
exception: where the disk had not yet written a sector of a batch, later ones may have arrived before the power went.
Such a sector is all zeros. The batch was promised to nobody, so what is behind is no loss, and would be out of order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lamina.errors import from_os
from lamina.log import foreign
from lamina.log.attest import is_attested, next_record
from lamina.log.files import File, Files, join, read_at
from lamina.log.formats import QUEUE_STORE
from lamina.log.frame import MAX_UVARINT, REASONS, TIME, Head, Stop, decode_head
from lamina.log.index import newest_data
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_record, read_whole
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

TORN_TAIL: Final = "torn_tail"
BAD_RECORD: Final = "bad_record"
LOST_RECORDS: Final = "lost_records"
GAP: Final = "gap"

_SECTOR: Final = 512
_MARK_SIZES: Final = QUEUE_STORE.mark_sizes

Tell = Callable[[str, int | None, int, str], None]
"""Told what is wrong: its kind, the record (from 1), the byte and the reason. If it returns, reading goes on behind."""


class StoreReading:
    """The records of one file, a batch at a time, without the marks of the kernel.

    ``last`` is the time of the newest record of the files before; it moves on with this one.
    """

    def __init__(self, files: Files, folder: str, name: str, last: int, tell: Tell) -> None:
        self.name = name
        self.last = last
        self.bytes = 0
        """Size of the file."""
        self.done = 0
        """Bytes of it that were read."""
        self.records = 0
        """How many came before the batch at hand."""
        self._files, self._folder, self._tell = files, folder, tell

    def __iter__(self) -> Iterator[list[bytes]]:
        """Raises: WrongFormat; DiskError; whatever ``tell`` does."""
        try:
            file = open_for_reading(self._files, self._folder, self.name)
        except OSError as error:
            raise from_os(error, "open the file", join(self._folder, self.name)) from error
        try:
            self.bytes = file.size()
            if self._has_records(file):
                yield from self._batches(file)
        finally:
            file.close()

    def sync(self) -> None:
        """What was read stays, also through the next power cut. Raises: DiskError, DiskFull."""
        path = join(self._folder, self.name)
        try:
            file = self._files.open(path)
            try:
                file.sync()
            finally:
                file.close()
        except OSError as error:
            raise from_os(error, "sync the file", path) from error

    def _has_records(self, file: File) -> bool:
        header = read_header(file)
        foreign.refuse_smp_text(self.name, header)
        is_torn = header_is_torn(header, QUEUE_STORE)
        if not is_torn and len(header) == HEADER_SIZE:
            check_header(file, self.name, QUEUE_STORE, header)
            return True
        has_records = isinstance(read_record(file, HEADER_SIZE, self.bytes), Head)
        if has_records or not is_torn:  # a header is synced before a record follows it
            self._tell(BAD_RECORD, 1, 0, "the header is damaged")
        elif header:
            self._tell(TORN_TAIL, None, 0, "the header is cut short")
        return has_records

    def _batches(self, file: File) -> Iterator[list[bytes]]:
        start, end = HEADER_SIZE, self.bytes
        while start < end:
            scan = FileScan(file, start, end)
            for batch in scan:
                payloads = self._payloads(batch)
                self.done = batch.end
                yield payloads
                self.records += len(payloads)
            if scan.why is Stop.END and scan.stop >= end:
                return
            reason = REASONS[scan.why or Stop.TRUNCATED]
            is_torn, behind = self._judge(file, scan.stop, end)
            if is_torn:
                self._tell(TORN_TAIL, None, scan.stop, reason)
                return
            self.records += 1
            self._tell(BAD_RECORD, self.records, scan.stop, reason)
            start = end if behind is None else behind

    def _payloads(self, batch: Batch) -> list[bytes]:
        data, lengths = batch.data, batch.lengths
        payloads = [bytes(data[at : at + size]) for at, size in zip(batch.offsets, lengths, strict=True)]
        if lengths.count(_MARK_SIZES[0]) or lengths.count(_MARK_SIZES[1]):
            if batch.base == HEADER_SIZE:
                self._check_head(payloads[0])
            for payload in payloads:
                if QUEUE_STORE.read_gap(payload) is not None:
                    self._tell(GAP, None, batch.base, "records were lost here, and set aside by a repair")
            payloads = [payload for payload in payloads if not QUEUE_STORE.is_mark(payload)]
        self.last = max(self.last, newest_data(batch, QUEUE_STORE))
        return payloads

    def _check_head(self, payload: bytes) -> None:
        """The first record says how far the log had come: nothing of that may be missing."""
        reached = QUEUE_STORE.read_watermark(payload)
        if reached is not None and reached > self.last:
            self._tell(LOST_RECORDS, None, HEADER_SIZE, "records that were safe are missing from the files before it")

    def _judge(self, file: File, bad_at: int, end: int) -> tuple[bool, int | None]:
        """Whether it is a torn tail; if not, where records go on (None: nowhere)."""
        if is_attested(file, bad_at, end, self.last, QUEUE_STORE):
            return False, next_record(file, bad_at, end, self.last)
        head = _head_at(file, bad_at, end)
        if head is Stop.TRUNCATED or (isinstance(head, Head) and bad_at + head.end > end):
            return True, None  # inside of it may stand anything that a client sent
        behind = next_record(file, bad_at, end, self.last)
        return behind is None or _has_unwritten_sector(file, bad_at, behind), behind


def reached_before(files: Files, folder: str, name: str) -> int:
    """How far the log had come when this file was begun, by the record at its head: the time of the newest record of
    the files before it. 0: there is no such file, or it does not say. Raises: DiskError.
    """
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError:
        return 0
    except OSError as error:
        raise from_os(error, "open the file", join(folder, name)) from error
    try:
        first = read_whole(file, HEADER_SIZE, file.size())
    except OSError as error:
        raise from_os(error, "read the file", join(folder, name)) from error
    finally:
        file.close()
    return 0 if isinstance(first, Stop) else QUEUE_STORE.read_watermark(first[1]) or 0


def _head_at(file: File, at: int, end: int) -> Head | Stop:
    data = read_at(file, at, min(TIME.size + MAX_UVARINT, end - at))
    return decode_head(data, 0, len(data))


def _has_unwritten_sector(file: File, start: int, end: int) -> bool:
    """From ``start`` to the end of its sector, or some whole sector before ``end``, is all zeros."""
    while start < end:
        until = start - start % _SECTOR + _SECTOR
        if until > end:
            return False
        if not any(read_at(file, start, until - start)):
            return True
        start = until
    return False
