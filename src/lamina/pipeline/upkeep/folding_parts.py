"""Queues on their way between tasks: groups of records, each with its place in the history, framed as in a log.

A block is one record with pairs of numbers, place and count of each group, and then the records of all groups. The
first record of a group has the place: of its file, and of its byte there, so that places rise through the history.
"""

from __future__ import annotations

from array import array
from collections.abc import Generator, Iterator
from typing import Final, TypeAlias

from lamina.errors import Corruption, from_os
from lamina.log import kernel
from lamina.log.files import Files, write_all
from lamina.log.frame import REASONS, Stop
from lamina.log.scan import FileScan

Parts: TypeAlias = Generator[tuple[int, list[bytes]], None, None]

BLOCK: Final = 1 << 20  # bytes of records, about


class Groups:
    """Gathers groups, to be written as blocks."""

    def __init__(self) -> None:
        self._pairs = array("q")
        self._payloads: list[bytes] = []
        self.size = 0
        """Bytes since the last block."""

    def begin(self, place: int) -> None:
        """A new group."""
        self._pairs.extend((place, 0))

    def add(self, payload: bytes) -> None:
        """A record of the group that was begun last."""
        self._pairs[-1] += 1
        self._payloads.append(payload)
        self.size += len(payload)

    def extend(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.add(payload)

    @property
    def is_begun(self) -> bool:
        return bool(self._pairs)

    def take_block(self) -> bytes:
        """All that was gathered; the last group goes on in the next block only if it is begun again."""
        block = kernel.encode_many(1, [self._pairs.tobytes(), *self._payloads]) if self._pairs else b""
        self._pairs, self._payloads, self.size = array("q"), [], 0
        return block


def read_groups(files: Files, path: str, start: int, end: int | None = None) -> Parts:
    """Place and records of each group, in the order in which they were written. Raises: Corruption, DiskError."""
    try:
        file = files.open(path)
    except OSError as error:
        raise from_os(error, "open the file", path) from error
    try:
        pairs, at, left, group = array("q"), 0, 0, list[bytes]()
        scan = FileScan(file, start, end)
        for batch in scan:
            for number in range(len(batch.times)):
                payload = batch.payload(number)
                if at == len(pairs):  # the head of the next block
                    pairs, at = array("q", payload), 0
                    left = pairs[1]
                    continue
                group.append(payload)
                left -= 1
                if not left:
                    yield pairs[at], group
                    group, at = [], at + 2
                    left = pairs[at + 1] if at < len(pairs) else 0
        if scan.why is not Stop.END or left:
            raise Corruption(path, scan.stop, REASONS[scan.why or Stop.TRUNCATED], hint="run the job again")
    finally:
        file.close()


def write_part(files: Files, path: str, chunks: Iterator[bytes]) -> None:
    """A file that does not outlive the job, so it is not synced. Raises: DiskFull, DiskError."""
    try:
        file = files.create(path)
        try:
            for chunk in chunks:
                write_all(file, [chunk])
        finally:
            file.close()
    except OSError as error:
        raise from_os(error, "write the file", path) from error
