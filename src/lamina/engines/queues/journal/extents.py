"""Which messages a file holds, also where it went bad in the middle."""

from __future__ import annotations

from typing import NamedTuple

from lamina.engines.queues.journal import records
from lamina.engines.queues.message import Message
from lamina.log import attest
from lamina.log.files import File
from lamina.log.scan import HEADER_SIZE, FileScan


class Extent(NamedTuple):
    """One record. Bytes count behind the header of the file."""

    start: int
    end: int
    message: Message | None
    """None: these bytes cannot be read. They are taken for one record, and may have been more."""
    time_ns: int = 0
    """When it was written; 0 for what cannot be read."""


def extents(file: File, start: int = 0, end: int | None = None, most: int | None = None) -> list[Extent]:
    """All records from ``start`` on, in order, up to ``end`` (default: what the file has); ``most``: about so many.

    What cannot be read counts if whole records follow; else it is the torn end of the file, and does not.
    Raises: DiskError.
    """
    found: list[Extent] = []
    stop = file.size() if end is None else min(end + HEADER_SIZE, file.size())
    at, last_ns = start + HEADER_SIZE, 0
    while at < stop:
        scan = FileScan(file, at, stop)
        for batch in scan:
            for number in range(len(batch.times)):
                payload_end = batch.base + batch.offsets[number] + batch.lengths[number]
                message = records.decode(batch.payload(number))
                start_at, end_at = batch.record_offset(number) - HEADER_SIZE, payload_end + 4 - HEADER_SIZE
                found.append(Extent(start_at, end_at, message, batch.times[number]))
            last_ns = batch.newest
            if most is not None and len(found) >= most:
                return found
        at = scan.stop
        if at >= stop:
            break
        following = attest.next_record(file, at, stop, last_ns)
        if following is None:
            break
        found.append(Extent(at - HEADER_SIZE, following - HEADER_SIZE, None))
        at = following
    return found
