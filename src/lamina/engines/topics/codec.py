"""What is in a record of a topic: a msgpack array, its kind first.

    [1, ms, sequence, name, value, name, value ...]      an entry
    [2, ms, sequence, ms, sequence ...]                  these entries were deleted
    [3, ms, sequence, count]                             all up to this id were trimmed, so many of them were alive
    [3, ms, sequence, count, 1]                          the same by retention: who had yet to read them is told
    [3, ms, sequence, 0, time]                           nothing new: what was dead at that time (ns since 1970) may
                                                         be gone from older files (compaction.py)
    [4, ms, sequence, added, deleted-ms, deleted-seq]    last id, entries ever added and largest deleted id were set

Numbers are unsigned and as short as they can be, names and values are bytes. Kind 0 is the kernel's (log/formats.py).

What is counted can be set to ``MOST_SET`` at most. Where a log has more, from a version that took it, it counts up to
``MOST_COUNTED`` and stays there.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

from lamina.engines.topics.ids import EntryId
from lamina.errors import BadTopic

MOST_SET: Final = 1 << 62
"""What a number that is counted on can be set to: however long that goes on, it does not come to the next one."""
MOST_COUNTED: Final = (1 << 63) - 1
"""Where signed numbers of 64 bits end, on the wire and in files."""
ENTRY, DELETED, TRIMMED, SET = range(1, 5)

_U8: Final = struct.Struct(">BB")
_U16: Final = struct.Struct(">BH")
_U32: Final = struct.Struct(">BI")
_U64: Final = struct.Struct(">BQ")
_SEQUENCE: Final = (1 << 64) - 1


class BadRecord(ValueError):
    """A payload that is no record of a topic."""


def check_counted(number: int, what: str, least: int = 0) -> int:
    """``number`` if it can be counted on from there. Raises: BadTopic."""
    if type(number) is not int or not least <= number <= MOST_SET:
        raise BadTopic(f"invalid {what} '{number}': expected {least} to {MOST_SET}")
    return number


# -- writing ---------------------------------------------------------------------------------------------------------


def encode_deleted(ids: Sequence[EntryId]) -> bytes:
    parts = [array_head(1 + 2 * len(ids)), b"\x02"]
    for id in ids:
        parts += (number(id >> 64), number(id & _SEQUENCE))
    return b"".join(parts)


def encode_trimmed(id: EntryId, count: int, *, is_let_go: bool = False) -> bytes:
    """``is_let_go``: by retention, not by a client."""
    numbers = (id >> 64, id & _SEQUENCE, count, *([1] if is_let_go else []))
    return b"".join((array_head(1 + len(numbers)), b"\x03", *map(number, numbers)))


def encode_compacted(trimmed_to: EntryId, time_ns: int) -> bytes:
    """Older files may be without what was dead at that time. To who does not know it, it is a trim of nothing."""
    numbers = (trimmed_to >> 64, trimmed_to & _SEQUENCE, 0, time_ns)
    return b"".join((array_head(5), b"\x03", *map(number, numbers)))


def encode_set(last: EntryId, added: int, max_deleted: EntryId) -> bytes:
    numbers = (last >> 64, last & _SEQUENCE, added, max_deleted >> 64, max_deleted & _SEQUENCE)
    return b"".join((array_head(6), b"\x04", *map(number, numbers)))


def number(value: int) -> bytes:
    if value < 0x80:
        return value.to_bytes(1, "big")
    if value <= 0xFF:
        return _U8.pack(0xCC, value)
    if value <= 0xFFFF:
        return _U16.pack(0xCD, value)
    if value <= 0xFFFF_FFFF:
        return _U32.pack(0xCE, value)
    return _U64.pack(0xCF, value)


def bytes_head(size: int) -> bytes:
    if size <= 0xFF:
        return _U8.pack(0xC4, size)
    if size <= 0xFFFF:
        return _U16.pack(0xC5, size)
    return _U32.pack(0xC6, size)


def array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    if count <= 0xFFFF:
        return _U16.pack(0xDC, count)
    return _U32.pack(0xDD, count)


# -- reading ---------------------------------------------------------------------------------------------------------

_NUMBER_SIZES: Final = {0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_BYTES_SIZES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4}


LET_GO: Final = 1


def trim_note(payload: bytes) -> int:
    """What a trim says beside id and count: LET_GO, or the time that ``encode_compacted`` wrote; 0 for other records.

    Raises: BadRecord.
    """
    if payload[:2] != b"\x95\x03":
        return 0
    items = Items(payload)
    items.number()
    items.id()
    items.number()
    return items.number()


class Items:
    """Takes the items off a record one by one. Raises: BadRecord when one is missing or of another kind."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 1
        head = payload[0] if payload else 0
        if head & 0xF0 == 0x90:
            self.left = head & 0x0F
        elif head in (0xDC, 0xDD):
            self.left = self._sized(2 if head == 0xDC else 4)
        else:
            raise BadRecord("no array")

    def number(self) -> int:
        head = self._head()
        if head < 0x80:
            return head
        size = _NUMBER_SIZES.get(head)
        if size is None:
            raise BadRecord("no number where one has to be")
        return self._sized(size)

    def id(self) -> EntryId:
        ms = self.number()
        return EntryId(ms << 64 | self.number())

    def bytes(self) -> bytes:
        size = _BYTES_SIZES.get(self._head())
        if size is None:
            raise BadRecord("no bytes where some have to be")
        length = self._sized(size)
        end = self.at + length
        if end > len(self.payload):
            raise BadRecord("cut short")
        data = self.payload[self.at : end]
        self.at = end
        return data

    def end(self) -> None:
        if self.left or self.at != len(self.payload):
            raise BadRecord("more than there has to be")

    def _head(self) -> int:
        if not self.left or self.at >= len(self.payload):
            raise BadRecord("cut short")
        self.left -= 1
        head = self.payload[self.at]
        self.at += 1
        return head

    def _sized(self, size: int) -> int:
        end = self.at + size
        if end > len(self.payload):
            raise BadRecord("cut short")
        number = int.from_bytes(self.payload[self.at : end], "big")
        self.at = end
        return number
