"""Reading the records of one file, a window at a time, with memory that does not grow with the file."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

from lamina.log import frame, kernel
from lamina.log.files import File, file_size, read_at, read_into
from lamina.log.formats import HEADER
from lamina.log.frame import Stop

HEADER_SIZE: Final = HEADER.size
_SMALL: Final = 1024
WINDOW: Final = 256 << 10  # stays in the processor's cache between read and scan


class Batch(NamedTuple):
    """Whole records of one window, as columns. The bytes are valid until the next batch is asked for."""

    base: int
    """Where the window starts in the file; ``offsets`` count from there."""
    data: memoryview
    times: array[int]
    offsets: array[int]
    lengths: array[int]
    end: int
    """Where the last record ends in the file."""
    newest: int
    """The latest of the times."""

    def payload(self, index: int) -> bytes:
        start = self.offsets[index]
        return bytes(self.data[start : start + self.lengths[index]])

    def record_offset(self, index: int) -> int:
        """Where the record (not its payload) starts in the file."""
        head = frame.TIME.size + _uvarint_size(self.lengths[index])
        return self.base + self.offsets[index] - head


def _uvarint_size(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


class FileScan:
    """Iterates over the batches of a file. When it is done, ``stop`` and ``why`` say where and why it ended.

    Who sets ``stop`` to where a later record begins has the next batch begin there.

    Only bytes before ``end`` (default: the size of the file now) are looked at, so a file that grows meanwhile
    gives a whole prefix.
    """

    def __init__(
        self,
        file: File,
        start: int = HEADER_SIZE,
        end: int | None = None,
        max_payload: int = frame.MAX_PAYLOAD,
        window: int = WINDOW,
    ) -> None:
        self._file = file
        self._end = file_size(file) if end is None else end
        self._max_payload = max_payload
        self._buffer = bytearray(min(window, max(self._end - start, 0)))
        self.stop = start
        self.why = Stop.END

    def __iter__(self) -> Iterator[Batch]:
        while self.stop < self._end:
            view = memoryview(self._buffer)[: self._end - self.stop]
            filled = read_into(self._file, view, self.stop)
            found = kernel.scan(view, 0, filled, self._max_payload)
            base, self.stop, self.why = self.stop, self.stop + found.stop, found.why
            if len(found.times):
                yield Batch(base, view, found.times, found.offsets, found.lengths, self.stop, found.newest)
            if found.why is Stop.TRUNCATED and filled == len(view) and base + filled < self._end:
                if found.stop == 0 and not self._widen(view):
                    return
            elif found.why is not Stop.END or filled < len(view):
                return

    def _widen(self, view: memoryview) -> bool:
        """Make room for a record larger than the window, unless it would pass the end."""
        head = frame.decode_head(view, 0, len(view), self._max_payload)
        needed = head.end if isinstance(head, frame.Head) else len(view) + WINDOW
        if self.stop + needed > self._end and isinstance(head, frame.Head):
            return False
        self._buffer = bytearray(needed)
        return True


def read_record(file: File, at: int, end: int, max_payload: int = frame.MAX_PAYLOAD) -> frame.Head | Stop:
    """Head of the record at ``at`` (offsets in the file) if it is whole and right, else why not."""
    found = read_whole(file, at, end, max_payload)
    return found if isinstance(found, Stop) else found[0]


def read_whole(file: File, at: int, end: int, max_payload: int = frame.MAX_PAYLOAD) -> tuple[frame.Head, bytes] | Stop:
    """The same with its payload."""
    if at >= end:
        return Stop.END if at == end else Stop.TRUNCATED
    data = read_at(file, at, min(_SMALL, end - at))  # most are whole then, and were read at once
    head = frame.decode_head(data, 0, len(data), max_payload)
    if isinstance(head, Stop):
        return head
    if at + head.end > end:
        return Stop.TRUNCATED
    if head.end > len(data):
        data = read_at(file, at, head.end)  # shorter than that if the file was cut back meanwhile
    found = kernel.scan(data, 0, min(head.end, len(data)), max_payload)
    if not len(found.times):
        return found.why
    payload = data[head.payload_at : head.payload_at + head.size]
    return frame.Head(head.time_ns, at + head.payload_at, head.size), payload
