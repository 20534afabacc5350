"""Who may take over which pending entries: decided here, written and done by groups.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from lamina.engines.topics.group_codec import Claimed, once_more
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import FIRST, EntryId

TRIES: Final = 10
"""Pending entries that autoclaim looks at for each that it may take."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ClaimOptions:
    """What XCLAIM may be told."""

    min_idle: int = 0
    """Milliseconds for which nobody was given the entry."""
    time: int | None = None
    """When it counts as delivered; None, or a time that cannot be: now."""
    count: int | None = None
    """How often it was delivered; None: once more than before."""
    force: bool = False
    """Take also what is pending for nobody."""
    just_ids: bool = False
    """Show no fields, and do not count it as a delivery."""
    last_id: EntryId | None = None
    """The group has come at least so far."""


@dataclass(slots=True)
class Plan:
    """What a claim comes to."""

    claimed: list[Claimed] = field(default_factory=list)
    """In the order asked for; an id that was asked for twice is here twice."""
    gone: list[EntryId] = field(default_factory=list)
    """Pending, but not in the topic any more: they stop being pending."""


def to_be_read(group: Group, ids: Sequence[EntryId], options: ClaimOptions, now: int) -> Iterator[EntryId]:
    """Of which entries the topic has to be asked: the records of those that may be claimed are shown, and it has to be
    found out whether it has those at all that are pending for nobody.
    """
    for id in ids:
        known = group.pending.get(id)
        if known is None:
            if options.force:
                yield id
        elif not options.just_ids and (not options.min_idle or now - known.time >= options.min_idle):
            yield id


def plan_claim(
    group: Group, ids: Sequence[EntryId], options: ClaimOptions, now: int, is_there: Callable[[EntryId], bool]
) -> Plan:
    plan = Plan()
    time = options.time if options.time is not None and 0 <= options.time <= now else now
    taken: dict[EntryId, Claimed] = {}
    gone: set[EntryId] = set()
    for id in ids:
        known = taken.get(id) or group.pending.get(id)
        if id in gone or not is_there(id):
            if known is not None and id not in gone:
                gone.add(id)
                plan.gone.append(id)
            continue
        if known is None and not options.force:
            continue
        if known is not None and options.min_idle and now - known.time < options.min_idle:
            continue
        count = 1 if known is None else known.deliveries
        if options.count is not None:
            count = options.count
        elif not options.just_ids:
            count = once_more(count)  # also for one that is pending only now: Redis counts it twice
        taken[id] = Claimed(id, time, count)
        plan.claimed.append(taken[id])
    return plan


def find_idle(
    group: Group,
    start: EntryId,
    min_idle: int,
    most: int,
    tries: int,
    now: int,
    is_there: Callable[[EntryId], bool],
) -> tuple[list[EntryId], EntryId, int]:
    """The pending entries from ``start`` on that were given to nobody for so long, or are not in the topic any more; at
    most so many, of the first ``tries``. Where it goes on then, FIRST: nowhere; and how many were looked at.
    """
    found: list[EntryId] = []
    looked = 0
    ids = group.ids.since(start)
    for id in islice(ids, tries):
        looked += 1
        if not min_idle or now - group.pending[id].time >= min_idle or not is_there(id):
            found.append(id)
        if len(found) == most:
            break
    return found, next(ids, FIRST), looked
