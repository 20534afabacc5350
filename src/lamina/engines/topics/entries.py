"""The record of an entry, which is what nearly all records of a topic are: made, read, and picked out of a batch.

_entries.pyx is the compiled twin, made by hand; tests hold the two equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from lamina.engines.topics.codec import ENTRY, BadRecord, Items, array_head, bytes_head, number
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.ranges import IdRanges

_SEQUENCE: Final = (1 << 64) - 1

Picked: TypeAlias = tuple[EntryId, bytes, EntryId | None]
"""An id, its record, and the id of the entry in front of it, dead or alive, where that was met."""


def encode(id: EntryId, fields: Sequence[bytes]) -> bytes:
    """``fields`` are name, value, name, value."""
    parts = [array_head(3 + len(fields)), b"\x01", number(id >> 64), number(id & _SEQUENCE)]
    for field in fields:
        parts.append(bytes_head(len(field)))
        parts.append(field)
    return b"".join(parts)


def decode(payload: bytes) -> tuple[EntryId, list[bytes]]:
    """Id and fields. Raises: BadRecord."""
    items = Items(payload)
    if items.number() != ENTRY:
        raise BadRecord("no entry")
    id = items.id()
    fields = [items.bytes() for _ in range(items.left)]
    items.end()
    return id, fields


def entry_id(payload: bytes) -> EntryId | None:
    """None for a record of another kind. Raises: BadRecord."""
    head = payload[0] if payload else 0
    kind_at = 1 if head & 0xF0 == 0x90 else 3 if head == 0xDC else 5
    if payload[kind_at : kind_at + 1] != b"\x01":
        return None
    items = Items(payload)
    items.number()
    return items.id()


def encode_ids(ids: Sequence[EntryId]) -> bytes:
    """Milliseconds and sequence number of each, as numbers of a record."""
    return b"".join([number(id >> 64) + number(id & _SEQUENCE) for id in ids])


def encode_claimed(entries: Sequence[tuple[EntryId, int, int]]) -> bytes:
    """The same of ids, each with two numbers."""
    return b"".join(
        [number(id >> 64) + number(id & _SEQUENCE) + number(one) + number(other) for id, one, other in entries]
    )


def show(id: EntryId) -> bytes:
    """As clients write it: ``1700000000123-7``."""
    return b"%d-%d" % (id >> 64, id & _SEQUENCE)


def run_from(
    data: memoryview, offsets: Sequence[int], lengths: Sequence[int], first: int
) -> tuple[int, EntryId | None]:
    """How many records of a batch, from the number ``first`` on, are entries one behind the other; and the last id.

    Raises: BadRecord.
    """
    last: EntryId | None = None
    for at in range(first, len(offsets)):
        id = entry_id(bytes(data[offsets[at] : offsets[at] + lengths[at]]))
        if id is None:
            return at - first, last
        last = id
    return len(offsets) - first, last


def entry_ids(data: memoryview, offsets: Sequence[int], lengths: Sequence[int]) -> list[EntryId]:
    """Ids of the entries of a batch, in order. Raises: BadRecord."""
    ids = (entry_id(bytes(data[offset : offset + length])) for offset, length in zip(offsets, lengths, strict=True))
    return [id for id in ids if id is not None]


def pick(
    data: memoryview,
    offsets: Sequence[int],
    lengths: Sequence[int],
    start: EntryId,
    end: EntryId,
    most: int,
    gone: IdRanges | None,
) -> tuple[list[bytes], int, int, bool]:
    """The entries of a batch with ids from ``start`` to ``end``, at most so many, and none that is ``gone``.

    Returns their payloads, the number of the last one, how many records were looked at, and whether one past ``end``
    was met: the last of those. Raises: BadRecord.
    """
    found: list[bytes] = []
    last = -1
    for at, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        if len(found) == most:
            return found, last, at, False
        payload = bytes(data[offset : offset + length])
        id = entry_id(payload)
        if id is None or id < start:
            continue
        if id > end:
            return found, last, at + 1, True
        if gone is None or id not in gone:
            found.append(payload)
            last = at
    return found, last, len(offsets), False


def pick_wanted(
    data: memoryview,
    offsets: Sequence[int],
    lengths: Sequence[int],
    wanted: Sequence[EntryId],
    first: int,
    previous: EntryId | None = None,
) -> tuple[list[Picked], int, int]:
    """The entries of a batch with ids that are ``wanted``: a list in order, looked at from its number ``first`` on.
    ``previous`` is the id of the entry in front of the batch, if known.

    Returns them; the number of the first id that is larger than all of the batch; and the number of the last record
    that was picked, -1 if none was. Raises: BadRecord.
    """
    found: list[Picked] = []
    last = -1
    for at, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        if first == len(wanted):
            break
        payload = bytes(data[offset : offset + length])
        id = entry_id(payload)
        if id is None:
            continue
        while first < len(wanted) and wanted[first] <= id:
            if wanted[first] == id:
                found.append((id, payload, previous))
                last = at
            first += 1
        previous = id
    return found, first, last
