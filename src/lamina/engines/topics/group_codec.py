"""What is in a record of the groups of a topic: a msgpack array, its kind first.

    [1, group, last-ms, last-seq, read, ahead]                     a group was made
    [2, group, last-ms, last-seq, read, ahead]                     its last id was set
    [3, group]                                                     it was destroyed
    [4, group, consumer, time]                                     a consumer was seen, and made if it was not there
    [5, group, consumer]                                           a consumer went, with what was pending for it
    [6, group, consumer, time, last-ms, last-seq, read, ms, seq ...]        entries were delivered, these are pending
    [7, group, ms, seq ...]                                        these are not pending any more
    [8, group, consumer, time, last-ms, last-seq, ahead, (ms, seq, time, deliveries) ...]
                                                                   these are pending for this consumer from now on
    [9, ms, seq]                                                   the topic lost what came behind this id: groups, too

    [10]                                                           a snapshot begins: the groups as they are, anew
    [11, group, last-ms, last-seq, read, ahead]                    a group
    [12, consumer, time]                                           a consumer of the group before
    [13, (ms, seq, time, deliveries) ...]                          what is pending for the consumer before
    [14, groups, pending]                                          the snapshot is whole: so many were in it

``time`` is in milliseconds. ``read`` is how many entries the group has read and one more; 0: nobody knows. ``ahead``
is 1 when a client asked for a last id that the topic has not come to yet. Kind 0 is the kernel's (log/formats.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from lamina.engines.topics import entries as entry_codec
from lamina.engines.topics.codec import MOST_COUNTED, BadRecord, Items, array_head, bytes_head, number
from lamina.engines.topics.ids import EntryId

CREATED, ID_SET, DESTROYED, SEEN, CONSUMER_DELETED, DELIVERED, ACKED, CLAIMED, CUT = range(1, 10)
BEGIN, GROUP, CONSUMER, PENDING, END = range(10, 15)

_SEQUENCE: Final = (1 << 64) - 1


class Claimed(NamedTuple):
    """An entry that is pending: since when, and how often it was delivered."""

    id: EntryId
    time: int
    deliveries: int


def once_more(count: int) -> int:
    """One more, up to where it ends."""
    return min(count + 1, MOST_COUNTED)


# -- writing ---------------------------------------------------------------------------------------------------------


def encode_group(kind: int, group: bytes, last: EntryId, read: int | None, *, is_ahead: bool) -> bytes:
    """Of a kind that says all of a group: CREATED, ID_SET or GROUP."""
    return _record(6, kind, _bytes(group), _id(last), _read(read), number(is_ahead))


def encode_destroyed(group: bytes) -> bytes:
    return _record(2, DESTROYED, _bytes(group))


def encode_seen(group: bytes, consumer: bytes, time: int) -> bytes:
    return _record(4, SEEN, _bytes(group), _bytes(consumer), number(time))


def encode_consumer_deleted(group: bytes, consumer: bytes) -> bytes:
    return _record(3, CONSUMER_DELETED, _bytes(group), _bytes(consumer))


def encode_delivered(
    group: bytes, consumer: bytes, time: int, last: EntryId, read: int | None, ids: Sequence[EntryId]
) -> bytes:
    head = _bytes(group), _bytes(consumer), number(time), _id(last), _read(read)
    return _record(7 + 2 * len(ids), DELIVERED, *head, entry_codec.encode_ids(ids))


def encode_acked(group: bytes, ids: Sequence[EntryId]) -> bytes:
    return _record(2 + 2 * len(ids), ACKED, _bytes(group), entry_codec.encode_ids(ids))


def encode_claimed(
    group: bytes,
    consumer: bytes,
    time: int,
    last: EntryId,
    entries: Sequence[tuple[EntryId, int, int]],
    *,
    is_ahead: bool,
) -> bytes:
    head = _bytes(group), _bytes(consumer), number(time), _id(last), number(is_ahead)
    return _record(7 + 4 * len(entries), CLAIMED, *head, entry_codec.encode_claimed(entries))


def encode_cut(last: EntryId) -> bytes:
    return _record(3, CUT, _id(last))


def encode_begin() -> bytes:
    return _record(1, BEGIN)


def encode_consumer(consumer: bytes, time: int) -> bytes:
    return _record(3, CONSUMER, _bytes(consumer), number(time))


def encode_pending(entries: Sequence[Claimed]) -> bytes:
    return _record(1 + 4 * len(entries), PENDING, entry_codec.encode_claimed(entries))


def encode_end(groups: int, pending: int) -> bytes:
    return _record(3, END, number(groups), number(pending))


def _record(items: int, kind: int, *parts: bytes) -> bytes:
    return b"".join((array_head(items), number(kind), *parts))


def _bytes(data: bytes) -> bytes:
    return bytes_head(len(data)) + data


def _id(id: EntryId) -> bytes:
    return number(id >> 64) + number(id & _SEQUENCE)


def _read(read: int | None) -> bytes:
    return number(0 if read is None else read + 1)


# -- reading ---------------------------------------------------------------------------------------------------------


def take_read(items: Items) -> int | None:
    read = items.number()
    return min(read - 1, MOST_COUNTED) if read else None


def take_flag(items: Items) -> bool:
    flag = items.number()
    if flag > 1:
        raise BadRecord("neither yes nor no")
    return bool(flag)


def take_ids(items: Items) -> list[EntryId]:
    """All that is left of the record."""
    if items.left % 2:
        raise BadRecord("half an id")
    ids = [items.id() for _ in range(items.left // 2)]
    items.end()
    return ids


def take_claimed(items: Items) -> list[Claimed]:
    """All that is left of the record."""
    if items.left % 4:
        raise BadRecord("a part of an entry")
    entries = [
        Claimed(items.id(), min(items.number(), MOST_COUNTED), min(items.number(), MOST_COUNTED))
        for _ in range(items.left // 4)
    ]
    items.end()
    return entries
