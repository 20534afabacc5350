"""Entries that stand for records elsewhere: where the record is and how long, instead of the value.

Such an entry is a put (codec.py) with the same storage, version and key, whose value is

    spot(u64)  size(u32)        the number of the file times 2^40 plus the byte at which the record begins; its length

with the highest bit of the size set if it stands for a remove. So tables, sorted files and merging treat it as any
other entry, and no value is moved before it is known to stay. Then the records are copied as they are, in the order of
the files, to where they belong.

``_copying.pyx`` is the compiled twin; tests hold the two equal.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Sequence
from typing import Final

from lamina.engines.store.codec import (
    ENTRY_SIZE,
    KEY_AT,
    NUMBER,
    PUT,
    REMOVE,
    TIME_SIZE,
    VERSION_AT,
    VERSION_END,
    BadRecord,
    decode,
)
from lamina.log.frame import CRC, TIME, UTC_ZONE
from lamina.log.scan import Batch
from lamina.pipeline.compaction.spots import FILE_BITS, Look, file_of

_SPOT: Final = struct.Struct(">QI")
_REMOVED: Final = 1 << 31
_ZONE: Final = struct.pack(">h", UTC_ZONE)


def as_spots(batch: Batch, file: int) -> Batch:
    """The records of a batch, with puts and removes that are whole as entries that stand for them."""
    made = bytearray()
    offsets, lengths = array("q"), array("q")
    for number, (offset, length) in enumerate(zip(batch.offsets, batch.lengths, strict=True)):
        payload = bytes(batch.data[offset : offset + length])
        if _is_entry(payload):
            at = batch.record_offset(number)
            size = batch.base + offset - at + length + CRC.size
            key_end = ENTRY_SIZE + int.from_bytes(payload[ENTRY_SIZE - 4 : ENTRY_SIZE], "big")
            spot = _SPOT.pack(file << FILE_BITS | at, size | (_REMOVED if payload[0] == REMOVE else 0))
            payload = bytes([PUT]) + payload[1:key_end] + spot
        offsets.append(len(made))
        lengths.append(len(payload))
        made += payload
    return Batch(batch.base, memoryview(made), batch.times, offsets, lengths, batch.end, batch.newest)


def _is_entry(payload: bytes) -> bool:
    try:
        return payload[:1] in (b"\x03", b"\x04") and decode(payload).kind in (PUT, REMOVE)
    except BadRecord:
        return False


def survivors(items: Sequence[bytes], boundary: int) -> tuple[array[int], array[int]]:
    """Spots and sizes of such entries, but for removes whose major version is at most ``boundary``."""
    spots, sizes = array("Q"), array("I")
    limit = NUMBER.pack(boundary)
    for item in items:
        value_at = KEY_AT + int.from_bytes(item[VERSION_END:KEY_AT], "big")
        if len(item) != value_at + _SPOT.size:
            raise ValueError("this stands for no record")
        spot, size = _SPOT.unpack_from(item, value_at)
        if size & _REMOVED and item[VERSION_AT : VERSION_AT + 8] <= limit:
            continue
        spots.append(spot)
        sizes.append(size & ~_REMOVED)
    return spots, sizes


def in_file_order(spots: array[int]) -> array[int]:
    """Their numbers, in the order of files and bytes."""
    return array("I", sorted(range(len(spots)), key=spots.__getitem__))


def reach(spots: array[int], sizes: array[int], order: array[int], start: int, most: int, gap: int) -> tuple[int, int]:
    """How far one read goes, from the record with number ``start`` in file order on: the number behind the last record,
    and the bytes in all. One at least; ``most`` bytes else, and no stretch above ``gap`` that nobody wants."""
    begin = spots[order[start]]
    end = begin + sizes[order[start]]
    number = start + 1
    while number < len(order):
        spot, size = spots[order[number]], sizes[order[number]]
        if spot - end > gap or spot + size - begin > most or file_of(spot) != file_of(begin):
            break
        end = max(end, spot + size)
        number += 1
    return number, end - begin


def place(
    window: bytes | bytearray | memoryview,
    spots: array[int],
    sizes: array[int],
    order: array[int],
    start: int,
    end: int,
    starts: array[int],
    out: bytearray,
) -> None:
    """Copy records ``start`` to ``end`` in file order out of what ``reach`` told to read, each to its own start."""
    begin = spots[order[start]]
    for number in order[start:end]:
        at, size = spots[number] - begin, sizes[number]
        if at + size > len(window) or starts[number] + size > len(out):
            raise ValueError("outside of the buffer")
        out[starts[number] : starts[number] + size] = window[at : at + size]


def look(
    data: bytes | bytearray | memoryview, offsets: Sequence[int], lengths: Sequence[int], since: int, spacing: int
) -> Look:
    """Look at the records of a scan of ``data``, which are entries of a store in order, with nothing between them.

    A block has ``spacing`` bytes at least; ``since`` bytes of one are there already (-1: none is open).
    Raises: ValueError if they are not so.
    """
    points: list[tuple[int, bytes]] = []
    foreign: list[int] = []
    first = last = highest = b""
    begun, record_at = -since, 0
    for number, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        payload = bytes(data[offset : offset + length])
        if not _is_entry(payload):
            raise ValueError("this is no entry")
        size = int.from_bytes(payload[ENTRY_SIZE - 4 : ENTRY_SIZE], "big")
        here = payload[1:9] + payload[ENTRY_SIZE : ENTRY_SIZE + size]
        if here <= last:
            raise ValueError("places have to rise")
        if (since < 0 and not points) or record_at - begun >= spacing:
            points.append((record_at, here))
            begun = record_at
        if data[record_at + TIME.size - len(_ZONE) : record_at + TIME.size] != _ZONE:
            foreign.append(number)
        highest = max(highest, payload[9:25])
        first, last = first or here, here
        record_at = offset + length + CRC.size
    return Look(first, last, points, highest, foreign)


assert VERSION_END - VERSION_AT == 16 and TIME_SIZE == 8
