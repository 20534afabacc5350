"""Entries of a topic in small pieces: how much is asked for decides neither memory nor how long others wait.

A piece is read under the lock of the topic, so it is small in bytes, whatever the size of its entries.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.units import KIB

_PIECE_BYTES: Final = 256 * KIB
_PIECE: Final = 2000  # entries of a piece, at most
_FIRST: Final = 4  # of which nothing is known yet


def pieces(
    topic: Topic, start: EntryId, end: EntryId, *, newest_first: bool = False, most: int | None = None
) -> Iterator[tuple[list[bytes], int]]:
    """Records of the entries there are from ``start`` to ``end``, and the position that showing them has to wait for.

    At most ``most`` in all. What is published meanwhile is not among them. Raises: Corruption, DiskError.
    """
    end = min(end, topic.state.last_id)
    count, left = _FIRST, most
    while start <= end and left != 0:
        wanted = count if left is None else min(count, left)
        records, position = topic.looked_at(start, end, wanted, newest_first=newest_first)
        if not records:
            return
        last = entry_id(records[-1])
        assert last is not None  # topics give entries only
        yield records, position
        if len(records) < wanted:
            return
        if newest_first:
            end = EntryId(last - 1)
        else:
            start = EntryId(last + 1)
        left = None if left is None else left - len(records)
        count = _fitting(records, _PIECE_BYTES, _PIECE)


def newest(topic: Topic, start: EntryId, end: EntryId, most: int, most_bytes: int) -> tuple[list[bytes], int]:
    """Records of the newest entries from ``start`` to ``end``, in order, and the position. Fewer than ``most`` if they
    are large: together they have about ``most_bytes``, or it is one.
    """
    if (found := _newest_in_memory(topic, start, end, most, most_bytes)) is not None:
        return found
    one, position = topic.looked_at(start, end, 1, newest_first=True)
    if not one or most == 1:
        return one, position
    last = entry_id(one[0])
    assert last is not None
    many = _fitting(one, most_bytes, most) - 1
    more, other = (
        topic.looked_at(start, EntryId(last - 1), many, newest_first=True) if many and last > start else ([], 0)
    )
    return [*reversed(more), *one], max(position, other)


def _newest_in_memory(
    topic: Topic, start: EntryId, end: EntryId, most: int, most_bytes: int
) -> tuple[list[bytes], int] | None:
    """The same from memory, where the newest are; None: some are not. However many came, few are looked at."""
    with topic.lock:
        state, tail = topic.state, topic.tail
        kept, positions, payloads = tail.between(max(start, EntryId(state.trimmed_to + 1)), end)
        found: list[bytes] = []
        position = size = 0
        for at in range(len(kept) - 1, -1, -1):
            if len(found) == most or (found and size + len(payloads[at]) > most_bytes):
                break
            if state.has(kept[at]):
                found.append(payloads[at])
                position = max(position, positions[at])
                size += len(payloads[at])
        else:
            if start < tail.first_id:
                return None
        return found[::-1], max(position, topic.removed_at)


def _fitting(records: list[bytes], most_bytes: int, most: int) -> int:
    """How many of such a size have so many bytes."""
    return max(1, min(most_bytes * len(records) // (sum(map(len, records)) or 1), most))


def count(topic: Topic, after: EntryId, until: EntryId, *, most_s: float = 10.0) -> tuple[int, bool]:
    """Entries there are behind one id and up to another; False: there are more, counting them takes too long.

    Where the range ends at an end of the topic, what is outside of it is counted at the same time: whichever is
    smaller is found out first. Raises: Corruption, DiskError.
    """
    with topic.lock:
        state = topic.state
        first, last, length = state.trimmed_to, state.last_id, state.length
        seen = state, topic.removed_at
    after, until = max(after, first), min(until, last)
    if after >= until:
        return 0, True
    if after == first and until == last:
        return length, True
    inside = _counts(topic, after, until)
    outside = None
    if after == first:
        outside = _counts(topic, until, last)
    elif until == last:
        outside = _counts(topic, first, after)
    found = left_out = 0
    end = time.monotonic() + most_s
    while time.monotonic() < end:
        more = next(inside, None)
        if more is None:
            return found, True
        found += more
        if outside is not None:
            more = next(outside, None)
            if more is not None:
                left_out += more
                continue
            outside = None
            with topic.lock:
                is_same = topic.state.trimmed_to == first and (topic.state, topic.removed_at) == seen
            if is_same:  # else what was outside is not what it was when the length was looked at
                return length - left_out, True
    return found, False


def _counts(topic: Topic, after: EntryId, until: EntryId) -> Iterator[int]:
    return (len(records) for records, _ in pieces(topic, EntryId(after + 1), until))
