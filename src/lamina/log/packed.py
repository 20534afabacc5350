"""Payloads one behind the other in one buffer, each behind its size: many small ones without an object for each.

A log takes them like any other sequence of payloads; the compiled kernel frames them straight from the buffer.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, overload

SIZE: Final = struct.Struct(">I")


class Packed(Sequence[bytes]):
    """Threads: one at a time."""

    __slots__ = ("data", "length")

    def __init__(self) -> None:
        self.data = bytearray()
        self.length = 0

    def append(self, payload: bytes) -> None:
        self.data += SIZE.pack(len(payload)) + payload
        self.length += 1

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[bytes]:
        at, data = 0, bytes(self.data)
        while at < len(data):
            (size,) = SIZE.unpack_from(data, at)
            at += SIZE.size + size
            yield data[at - size : at]

    @overload
    def __getitem__(self, index: int) -> bytes: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[bytes]: ...
    def __getitem__(self, index: int | slice) -> bytes | Sequence[bytes]:
        return list(self)[index]
