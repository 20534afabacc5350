"""What a record of the store holds. All numbers are big endian.

    begin    01  epoch(u64)                                                 a session starts
    end      02  epoch(u64)  entries(u32)                                   and is whole
    put      03  storage(u64)  major(u64)  minor(u64)  size(u32)  key  value
    remove   04  storage(u64)  major(u64)  minor(u64)  size(u32)  key
    clear    05  storage(u64)  major(u64)  minor(u64)                       every older entry of the storage is gone
    add      06  storage(u64)  major(u64)  minor(u64)                       the storage is there
    drop     07  storage(u64)  major(u64)  minor(u64)                       as clear, and the storage is not there

    reached  92 01 "epoch"  epoch(u64)  time(u64)  {first(u64)  last(u64)}*     how far the epoch file had come

``size`` is that of the key. (major, minor) is the write version: of two entries of one key the larger one counts,
wherever they stand. Versions and storages are big endian so that their bytes compare as they do.

In memory and in sorted files an entry of a key is an *item*: the time of its record (8 bytes), then put or remove as
above. Items are found by their *place*, storage(u64) and key: ordered by storage, then by the bytes of the key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

BEGIN: Final = 1
END: Final = 2
PUT: Final = 3
REMOVE: Final = 4
CLEAR: Final = 5
ADD: Final = 6
DROP: Final = 7
HEAD: Final = 8
INDEX: Final = 9
TAIL: Final = 10
"""The last three are in sorted files only (sorted_file.py)."""

MOST: Final = (1 << 64) - 1
"""The largest storage, epoch, major or minor."""

NUMBER: Final = struct.Struct(">Q")
_BEGIN: Final = struct.Struct(">BQ")
_END: Final = struct.Struct(">BQI")
_STORAGE: Final = struct.Struct(">BQQQ")
_ENTRY: Final = struct.Struct(">BQQQI")
_VERSION: Final = struct.Struct(">QQ")
_PLACE: Final = struct.Struct(">Q")
_RANGE: Final = struct.Struct(">QQ")

ENTRY_SIZE: Final = _ENTRY.size
TIME_SIZE: Final = 8
VERSION_AT: Final = TIME_SIZE + 9
VERSION_END: Final = VERSION_AT + 16
KEY_AT: Final = TIME_SIZE + ENTRY_SIZE
"""Offsets in an item."""

REACHED: Final = b"\x92\x01epoch"
"""How a record begins that says how far the epoch file had come. Its first byte is that of the kernel's marks, which
everything that reads entries passes over."""

OLDEST: Final = bytes(16)
"""The version (0, 0)."""


class BadRecord(ValueError):
    """The payload is none of the store's: what is wrong with it."""


class Version(NamedTuple):
    """A write version."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def begin(epoch: int) -> bytes:
    return _BEGIN.pack(BEGIN, epoch)


def end(epoch: int, entries: int) -> bytes:
    return _END.pack(END, epoch, entries)


def put(storage: int, key: bytes, value: bytes, major: int, minor: int) -> bytes:
    return _ENTRY.pack(PUT, storage, major, minor, len(key)) + key + value


def remove(storage: int, key: bytes, major: int, minor: int) -> bytes:
    return _ENTRY.pack(REMOVE, storage, major, minor, len(key)) + key


def about_storage(kind: int, storage: int, major: int, minor: int) -> bytes:
    """``kind``: CLEAR, ADD or DROP."""
    return _STORAGE.pack(kind, storage, major, minor)


class Reached(NamedTuple):
    """How far the epoch file had surely come, by what a file of a channel says.

    What it says was synced in the epoch file before it was written to the channel. So an epoch file that does not reach
    as far has lost something.
    """

    epoch: int = 0
    """Everything up to this epoch was durable."""
    time_ns: int = 0
    """Of the record of the epoch file that said so, or of a later one."""
    voids: tuple[tuple[int, int], ...] = ()
    """First and last of each range of epochs that never came to be. All records of a file together have all of them
    that are not in the parts."""

    def joined(self, other: Reached) -> Reached:
        """What both say."""
        if not other.time_ns:
            return self
        voids = self.voids if self.voids == other.voids else tuple(sorted({*self.voids, *other.voids}))
        return Reached(max(self.epoch, other.epoch), max(self.time_ns, other.time_ns), voids)


NOTHING_REACHED: Final = Reached()


class Entry(NamedTuple):
    """A record taken apart; what its kind does not have is 0 or empty."""

    kind: int
    storage: int = 0
    version: Version = Version(0, 0)
    key: bytes = b""
    value: bytes = b""
    epoch: int = 0
    entries: int = 0


def reached(epoch: int, time_ns: int, voids: Sequence[tuple[int, int]] = ()) -> bytes:
    return REACHED + _RANGE.pack(epoch, time_ns) + b"".join(_RANGE.pack(*each) for each in voids)


def read_reached(payload: bytes) -> Reached | None:
    """None: it is another record."""
    if not payload.startswith(REACHED) or (len(payload) - len(REACHED)) % _RANGE.size or len(payload) == len(REACHED):
        return None
    (epoch, time_ns), *voids = _RANGE.iter_unpack(payload[len(REACHED) :])
    return Reached(epoch, time_ns, tuple((first, last) for first, last in voids))


def decode(payload: bytes) -> Entry:
    """Raises: BadRecord."""
    kind = payload[0] if payload else 0
    try:
        if kind == BEGIN:
            return Entry(kind, epoch=_BEGIN.unpack(payload)[1])
        if kind == END:
            _, epoch, entries = _END.unpack(payload)
            return Entry(kind, epoch=epoch, entries=entries)
        if kind in (CLEAR, ADD, DROP):
            _, storage, major, minor = _STORAGE.unpack(payload)
            return Entry(kind, storage, Version(major, minor))
        if kind in (PUT, REMOVE):
            _, storage, major, minor, size = _ENTRY.unpack_from(payload)
            key = payload[ENTRY_SIZE : ENTRY_SIZE + size]
            rest = payload[ENTRY_SIZE + size :]
            if len(key) < size or (kind == REMOVE and rest):
                raise BadRecord(f"a key of {size} bytes does not fit into an entry of {len(payload)}")
            return Entry(kind, storage, Version(major, minor), key, rest)
    except struct.error as error:
        raise BadRecord(f"an entry of kind {kind} cannot have {len(payload)} bytes") from error
    raise BadRecord(f"there is no entry of kind {kind}" if payload else "the record is empty")


# -- items -----------------------------------------------------------------------------------------------------------


def item(time_ns: int, payload: bytes) -> bytes:
    return NUMBER.pack(time_ns) + payload


def place(storage: int, key: bytes) -> bytes:
    return _PLACE.pack(storage) + key


def place_of(item: bytes) -> bytes:
    size = int.from_bytes(item[VERSION_END:KEY_AT], "big")
    return item[TIME_SIZE + 1 : TIME_SIZE + 9] + item[KEY_AT : KEY_AT + size]


def version_of(item: bytes) -> bytes:
    """Compare them as bytes; ``show_version`` takes it apart."""
    return item[VERSION_AT:VERSION_END]


def is_put(item: bytes) -> bool:
    return item[TIME_SIZE] == PUT


def value_of(item: bytes) -> bytes:
    return item[KEY_AT + int.from_bytes(item[VERSION_END:KEY_AT], "big") :]


def time_of(item: bytes) -> int:
    return int.from_bytes(item[:TIME_SIZE], "big")


def storage_of(place: bytes) -> int:
    return int.from_bytes(place[:8], "big")


def version(packed: bytes) -> Version:
    return Version(*_VERSION.unpack(packed))


def pack_version(version: tuple[int, int]) -> bytes:
    return _VERSION.pack(*version)
