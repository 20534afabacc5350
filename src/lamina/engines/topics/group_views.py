"""What can be asked about groups without changing anything. Names are in order, as Redis shows them."""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from lamina.engines import loops
from lamina.engines.topics import group_lag
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.groups import Groups
from lamina.engines.topics.ids import FIRST, LAST, EntryId

_PAGE: Final = 10_000  # pending entries that are looked at before others may go on


class PendingSummary(NamedTuple):
    """Of one group."""

    total: int
    first: EntryId | None
    last: EntryId | None
    consumers: list[tuple[bytes, int]]
    """Those for whom something is pending, and how much."""


class PendingEntry(NamedTuple):
    """An entry that was delivered and not acknowledged."""

    id: EntryId
    consumer: bytes
    time: int
    deliveries: int


class ConsumerStats(NamedTuple):
    name: bytes
    pending: int
    seen: int
    """When it last took something or tried to, in ms."""


class GroupStats(NamedTuple):
    name: bytes
    consumers: int
    pending: int
    last_id: EntryId
    read: int | None
    lag: int | None


def summary(groups: Groups, name: bytes) -> PendingSummary:
    """Raises: NoGroup."""
    with groups.lock:
        group = groups.get(name)
        counts = ((one, len(group.consumers[one].pending)) for one in sorted(group.consumers))
        return PendingSummary(
            len(group.pending), group.pending.first(), group.pending.last(), [pair for pair in counts if pair[1]]
        )


def pending(
    groups: Groups,
    name: bytes,
    start: EntryId = FIRST,
    end: EntryId = LAST,
    count: int | None = None,
    *,
    consumer: bytes | None = None,
    min_idle: int = 0,
) -> list[PendingEntry]:
    """What is pending, of all consumers or of one, and has been so for ``min_idle`` ms. Raises: NoGroup."""
    found: list[PendingEntry] = []
    while True:
        with groups.lock:
            group, now = groups.get(name), groups.now_ms()
            entries = group.pending
            if consumer is not None:
                if consumer not in group.consumers:
                    return found
                entries = group.consumers[consumer].pending
            looked = 0
            for id, one in islice(entries.items(start), _PAGE):
                if id > end or len(found) == count:
                    return found
                if not min_idle or now - one.time >= min_idle:
                    found.append(PendingEntry(id, one.consumer.name, one.time, one.deliveries))
                looked, start = looked + 1, EntryId(id + 1)
        if looked < _PAGE:
            return found
        loops.make_way()


def consumers(groups: Groups, name: bytes) -> list[ConsumerStats]:
    """Raises: NoGroup."""
    with groups.lock:
        known = groups.get(name).consumers
        return [ConsumerStats(one, len(known[one].pending), known[one].seen) for one in sorted(known)]


def stats(groups: Groups) -> list[GroupStats]:
    """Of every group."""
    with groups.lock:
        known = groups.state.groups
        return [_stats_of(groups, known[name]) for name in sorted(known)]


def _stats_of(groups: Groups, group: Group) -> GroupStats:
    lag = group_lag.lag(groups.topic, group)
    return GroupStats(group.name, len(group.consumers), len(group.pending), group.last_id, group.read, lag)
