"""Who may take over which pending entries: decided here, written and done by groups.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from lamina.engines.topics.group_codec import Claimed, once_more
from lamina.engines.topics.group_state import Group
from lamina.engines.topics.ids import FIRST, EntryId, different
from lamina.engines.topics.sorted_map import SortedMap

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
    shown: list[tuple[EntryId, bytes | None]] = field(default_factory=list)
    """Of those, with their records unless only ids were asked for."""
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
    group: Group,
    ids: Sequence[EntryId],
    options: ClaimOptions,
    now: int,
    records: SortedMap[EntryId, bytes],
    is_there: Callable[[EntryId], bool],
) -> Plan:
    """``records``: of the entries that ``to_be_read`` gave before, of those that were there. What was none of them
    then is left alone.
    """
    plan = Plan()
    time = options.time if options.time is not None and 0 <= options.time <= now else now
    taken: SortedMap[EntryId, Claimed] = SortedMap()
    is_asked_twice = len(different(ids)) < len(ids)
    for id in ids:
        again = taken.get(id) if is_asked_twice else None
        known = again or group.pending.get(id)
        if not is_there(id):
            if known is not None and not (is_asked_twice and id in plan.gone):
                plan.gone.append(id)
            continue
        record = records.get(id)
        if record is None and not (options.just_ids and known is not None):
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
        claimed = Claimed(id, time, count)
        plan.claimed.append(claimed)
        plan.shown.append((id, None if options.just_ids else record))
        if is_asked_twice:
            taken.pop(id)
            taken.add(id, claimed)
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
    pending = group.pending.items(start)
    for id, one in islice(pending, tries):
        looked += 1
        if not min_idle or now - one.time >= min_idle or not is_there(id):
            found.append(id)
        if len(found) == most:
            break
    return found, next(pending, (FIRST, None))[0], looked
