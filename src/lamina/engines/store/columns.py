"""Entries in order, as two lists of the same length: places, rising, and their items (codec.py).

What sorted files and merging do with every single entry is here: reading them out of records, making records of them,
making one run of two, leaving out what is gone. The twin ``_columns.pyx`` does the same faster; tests hold the two
equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress
from operator import lt

from lamina.engines.store import codec
from lamina.engines.store.codec import ENTRY_SIZE, KEY_AT, PUT, REMOVE, TIME_SIZE, VERSION_AT, VERSION_END, BadRecord
from lamina.log import kernel

Columns = tuple[list[bytes], list[bytes]]
"""Places, and the item of each."""


def rises(places: Sequence[bytes], after: bytes) -> bool:
    """Each is larger than the one before it, and the first than ``after``."""
    return not places or (after < places[0] and all(map(lt, places, places[1:])))


def read(data: memoryview, times: Sequence[int], offsets: Sequence[int], lengths: Sequence[int]) -> Columns:
    """The items of a scan (log/scan.py). Raises: BadRecord for a record that is no put or remove."""
    places: list[bytes] = []
    items: list[bytes] = []
    for time_ns, offset, length in zip(times, offsets, lengths, strict=True):
        payload = bytes(data[offset : offset + length])
        size = int.from_bytes(payload[ENTRY_SIZE - 4 : ENTRY_SIZE], "big")
        left = length - ENTRY_SIZE - size
        if length < ENTRY_SIZE or left < 0 or payload[0] not in (PUT, REMOVE) or (left and payload[0] == REMOVE):
            raise BadRecord(f"entry {len(items)} is neither put nor remove")
        places.append(payload[1:9] + payload[ENTRY_SIZE : ENTRY_SIZE + size])
        items.append(codec.item(time_ns, payload))
    return places, items


def write(
    buffer: bytearray, at: int, items: Sequence[bytes], start: int, until: int, since: int, spacing: int
) -> tuple[int, int, list[tuple[int, int]], bytes]:
    """Put records of items, from number ``start`` on, into ``buffer`` from ``at`` on, till one ends at ``until`` or
    behind; the buffer grows as needed.

    A block is at least ``spacing`` bytes long; ``since`` bytes of one are there already (-1: none is open). Returns the
    number of the first item that was not put, where the records end, (number, offset) of those that begin a block, and
    the largest version (empty if there is none).
    """
    if not 0 <= at <= len(buffer):
        raise ValueError("write outside of the buffer")
    points: list[tuple[int, int]] = []
    highest = b""
    begun = at - since
    is_open = since >= 0
    number = start
    while number < len(items) and at < until:
        item = items[number]
        if not is_open or at - begun >= spacing:
            points.append((number, at))
            begun, is_open = at, True
        at, _ = kernel.encode_into(buffer, at, codec.time_of(item), (item[TIME_SIZE:],))
        highest = max(highest, item[VERSION_AT:VERSION_END])
        number += 1
    return number, at, points, highest


def merge(older: Columns, newer: Columns) -> Columns:
    """Both in one: of two items of one place the one with the larger version, of equal ones that of ``newer``."""
    if not older[0] or not newer[0]:
        return newer if newer[0] else older
    if older[0][-1] < newer[0][0]:
        return older[0] + newer[0], older[1] + newer[1]
    found = dict(zip(*older, strict=True))
    for place, item in zip(*newer, strict=True):
        before = found.get(place)
        if before is None or item[VERSION_AT:VERSION_END] >= before[VERSION_AT:VERSION_END]:
            found[place] = item
    places = sorted(found)  # two runs that rise: next to nothing to do
    return places, list(map(found.__getitem__, places))


def cull(columns: Columns, cleared: Mapping[bytes, bytes], boundary: bytes) -> Columns:
    """Without items that are older than the version up to which their storage was cleared, and without removes whose
    major version is at most ``boundary`` (8 bytes; empty: all of them stay). Storages in 8 bytes, as in places."""
    stays = [
        (item[TIME_SIZE] == PUT or item[VERSION_AT : VERSION_AT + 8] > boundary)
        and item[VERSION_AT:VERSION_END] >= cleared.get(item[TIME_SIZE + 1 : TIME_SIZE + 9], b"")
        for item in columns[1]
    ]
    if all(stays):
        return columns
    return list(compress(columns[0], stays)), list(compress(columns[1], stays))


assert KEY_AT == TIME_SIZE + ENTRY_SIZE == VERSION_END + 4
