"""Entries as limestone writes them: one after the other, each known by its first byte.

    01  put             key size(u32)  value size(u32)  storage  key  major  minor  value
    02  begin           epoch                                            a snippet starts
    03  end             epoch  crc type(u8)                              and is whole (since format 6)
    04  durable         epoch                                            in epoch files only
    05  remove          key size(u32)  storage  key  major  minor
    06  void begin      epoch                                            a snippet that does not count
    07  clear storage   storage  major  minor                            every older entry of the storage is gone
    08  add storage     storage  major  minor
    09  remove storage  storage  major  minor                            as clear
    0a  put with blobs  as put, then number(u32) and ids of blobs

Numbers are u64 unless said, little endian. 00 is not used, so that zeros are no entries.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

from lamina.log.files import File, read_at

PUT: Final = 0x01
BEGIN: Final = 0x02
END: Final = 0x03
DURABLE: Final = 0x04
REMOVE: Final = 0x05
VOID_BEGIN: Final = 0x06
CLEAR_STORAGE: Final = 0x07
ADD_STORAGE: Final = 0x08
REMOVE_STORAGE: Final = 0x09
PUT_WITH_BLOBS: Final = 0x0A

_MARK: Final = struct.Struct("<BQ")
_END: Final = struct.Struct("<BQB")
_ABOUT_STORAGE: Final = struct.Struct("<BQQQ")
_PUT: Final = struct.Struct("<BIIQ")
_REMOVE: Final = struct.Struct("<BIQ")
_VERSION: Final = struct.Struct("<QQ")
_COUNT: Final = struct.Struct("<I")

_HEAD_SIZES: Final = {
    PUT: _PUT.size,
    BEGIN: _MARK.size,
    END: _END.size,
    DURABLE: _MARK.size,
    REMOVE: _REMOVE.size,
    VOID_BEGIN: _MARK.size,
    CLEAR_STORAGE: _ABOUT_STORAGE.size,
    ADD_STORAGE: _ABOUT_STORAGE.size,
    REMOVE_STORAGE: _ABOUT_STORAGE.size,
    PUT_WITH_BLOBS: _PUT.size,
}

NAMES: Final = {
    PUT: "a put",
    BEGIN: "a begin mark",
    END: "an end mark",
    DURABLE: "a durable mark",
    REMOVE: "a remove",
    VOID_BEGIN: "a void begin mark",
    CLEAR_STORAGE: "a clear storage",
    ADD_STORAGE: "an add storage",
    REMOVE_STORAGE: "a remove storage",
    PUT_WITH_BLOBS: "a put with blobs",
}

Version = tuple[int, int]
"""Major and minor: of two entries of one key the one with the larger version counts."""

OLDEST: Final = (0, 0)
"""The version of every entry of a compacted file: the real one is not kept."""


class Entry(NamedTuple):
    """An entry taken apart; what its kind does not have is 0 or empty."""

    kind: int
    offset: int
    epoch: int = 0
    storage: int = 0
    version: Version = OLDEST
    key: bytes = b""
    value: bytes = b""
    blobs: int = 0
    """How many blobs it refers to."""


class UnknownKind(ValueError):
    """No entry starts with this byte."""


def decode(data: bytes, at: int, offset: int) -> Entry | int:
    """The entry that starts at ``data[at]``, or how many bytes of it are needed to go on: more than there are.

    ``offset``: where that is in the file. Raises: UnknownKind.
    """
    kind = data[at]
    needed = _HEAD_SIZES.get(kind)
    if needed is None:
        raise UnknownKind
    have = len(data) - at
    if have < needed:
        return needed
    if kind in (PUT, PUT_WITH_BLOBS):
        return _decode_put(data, at, offset, kind, have)
    if kind == REMOVE:
        key_size: int
        _, key_size, storage = _REMOVE.unpack_from(data, at)
        needed += key_size + _VERSION.size
        if have < needed:
            return needed
        behind_key = at + _REMOVE.size + key_size
        major, minor = _VERSION.unpack_from(data, behind_key)
        return Entry(kind, offset, 0, storage, (major, minor), data[at + _REMOVE.size : behind_key])
    if kind in (CLEAR_STORAGE, ADD_STORAGE, REMOVE_STORAGE):
        _, storage, major, minor = _ABOUT_STORAGE.unpack_from(data, at)
        return Entry(kind, offset, 0, storage, (major, minor))
    return Entry(kind, offset, _MARK.unpack_from(data, at)[1])


def _decode_put(data: bytes, at: int, offset: int, kind: int, have: int) -> Entry | int:
    key_size: int
    value_size: int
    _, key_size, value_size, storage = _PUT.unpack_from(data, at)
    needed = _PUT.size + key_size + _VERSION.size + value_size
    blobs: int = 0
    if kind == PUT_WITH_BLOBS:
        needed += _COUNT.size
        if have >= needed:
            (blobs,) = _COUNT.unpack_from(data, at + needed - _COUNT.size)
            needed += 8 * blobs
    if have < needed:
        return needed
    behind_key = at + _PUT.size + key_size
    major, minor = _VERSION.unpack_from(data, behind_key)
    key = data[at + _PUT.size : behind_key]
    value_at = behind_key + _VERSION.size
    value = data[value_at : value_at + value_size]
    return Entry(kind, offset, 0, storage, (major, minor), key, value, blobs)


class Why(Enum):
    """Why reading stopped."""

    END = "end"
    SHORT = "short"
    UNKNOWN = "unknown"


class EntryReader:
    """The entries of a file from ``start``, in order; once through.

    Never holds more than ``chunk`` bytes, or one entry that is larger. An entry that would reach over the end of the
    file is not read at all, whatever its lengths say.
    """

    def __init__(self, file: File, *, start: int = 0, chunk: int = 1 << 20) -> None:
        self._file = file
        self._start = start
        self._chunk = chunk
        self.size = file.size()
        self.why = Why.END
        self.stop = start
        """Where reading stopped."""
        self.kind = 0
        """The first byte there, if it did not stop at the end."""

    def __iter__(self) -> Iterator[Entry]:
        data, base, offset, needed = b"", self._start, self._start, 1
        while offset + needed <= self.size:
            if offset - base + needed > len(data):
                data, base = read_at(self._file, offset, min(max(self._chunk, needed), self.size - offset)), offset
                if len(data) < needed:  # the file became shorter
                    self.size = offset + len(data)
                    continue
            at = offset - base
            try:
                found = decode(data, at, offset)
            except UnknownKind:
                self.why, self.stop, self.kind = Why.UNKNOWN, offset, data[at]
                return
            if isinstance(found, int):
                needed, self.kind = found, data[at]
                continue
            yield found
            offset += size_of(found)
            needed = 1
        self.stop = offset
        if offset < self.size:
            self.why = Why.SHORT
        else:
            self.kind = 0


def size_of(entry: Entry) -> int:
    """How many bytes it takes in a file."""
    kind = entry.kind
    size = _HEAD_SIZES[kind]
    if kind == PUT:
        size += _VERSION.size + len(entry.key) + len(entry.value)
    elif kind == PUT_WITH_BLOBS:
        size += _VERSION.size + len(entry.key) + len(entry.value) + _COUNT.size + 8 * entry.blobs
    elif kind == REMOVE:
        size += _VERSION.size + len(entry.key)
    return size
