"""Reading one file of the store, log or dump: its records in batches, and what is wrong with it.

Every log that was the active one when power or process went may end torn, and stays so: the next start begins a new
file. So a bad place in any of them has to be told from damage (log/attest.py, ``torn_or_not``); the watermark at the
head of the next file vouches for it, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from lamina.errors import from_os
from lamina.log import foreign
from lamina.log.attest import is_attested, torn_or_not
from lamina.log.files import File, Files, join
from lamina.log.formats import QUEUE_STORE
from lamina.log.frame import REASONS, Head, Stop
from lamina.log.index import newest_data
from lamina.log.scan import HEADER_SIZE, Batch, FileScan, read_record, read_whole
from lamina.log.segment import check_header, header_is_torn, open_for_reading, read_header

TORN_TAIL: Final = "torn_tail"
BAD_RECORD: Final = "bad_record"
LOST_RECORDS: Final = "lost_records"
GAP: Final = "gap"

LOST_AT_END: Final = "records that were safe are missing at its end"
"""As the log after it says, which was begun when this one was whole and synced."""

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
        self._files, self._folder, self.tell = files, folder, tell

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
        has_records = has_records or (is_torn and is_attested(file, 0, self.bytes, self.last, QUEUE_STORE))
        if has_records or not is_torn:  # a header is synced before a record follows it
            self.tell(BAD_RECORD, 1, 0, "the header is damaged")
        elif header:
            self.tell(TORN_TAIL, None, 0, "the header is cut short")
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
            is_torn, found = torn_or_not(file, scan.stop, end, self.last, QUEUE_STORE)
            if is_torn:
                self.tell(TORN_TAIL, None, scan.stop, reason)
                return
            self.records += 1
            self.tell(BAD_RECORD, self.records, scan.stop, reason)
            start = end if found is None else found

    def _payloads(self, batch: Batch) -> list[bytes]:
        data, lengths = batch.data, batch.lengths
        payloads = [bytes(data[at : at + size]) for at, size in zip(batch.offsets, lengths, strict=True)]
        if lengths.count(_MARK_SIZES[0]) or lengths.count(_MARK_SIZES[1]):
            if batch.base == HEADER_SIZE:
                self._check_head(payloads[0])
            for payload in payloads:
                if QUEUE_STORE.read_gap(payload) is not None:
                    self.tell(GAP, None, batch.base, "records were lost here, and set aside by a repair")
            payloads = [payload for payload in payloads if not QUEUE_STORE.is_mark(payload)]
        self.last = max(self.last, newest_data(batch, QUEUE_STORE))
        return payloads

    def _check_head(self, payload: bytes) -> None:
        """The first record says how far the log had come: nothing of that may be missing."""
        reached = QUEUE_STORE.read_watermark(payload)
        if reached is not None and reached > self.last:
            self.tell(LOST_RECORDS, None, HEADER_SIZE, "records that were safe are missing from the files before it")


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
