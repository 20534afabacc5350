"""The views ``group_state``, ``group_consumers`` and ``group_pending``: groups of topics as they are.

The logs of a topic and of its groups are pinned one behind the other, so a group may already have read what the topic
was not yet seen to have: then nothing is left for it to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from lamina.engines.topics import group_lag
from lamina.engines.topics.group_snapshot import load
from lamina.engines.topics.group_state import Group, State
from lamina.log.files import Files
from lamina.log.naming import TIMED
from lamina.log.reader import Reader
from lamina.pipeline import places, reach
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.schema import Column
from lamina.pipeline.snapshot import Snapshot
from lamina.pipeline.views.groups import CONSUMER, GROUP, show_id, show_name, signed
from lamina.pipeline.views.groups import seen as to_micros
from lamina.pipeline.views.states.base import Log, Row, StateView
from lamina.pipeline.views.states.topics import Folded
from lamina.pipeline.views.topic import ID_MS, ID_SEQUENCE, TOPIC

LAST_ID: Final = Column("last_id", "string", "of the newest entry that the group was given")
READ: Final = Column("read", "bigint", "entries that the group has read; null: nobody knows")
LAG: Final = Column("lag", "bigint", "entries that the group has yet to read; null: that cannot be known")
CONSUMERS: Final = Column("consumers", "bigint", "how many consumers it has")
PENDING: Final = Column("pending", "bigint", "entries that were delivered and are not acknowledged")
OLDEST_PENDING: Final = Column("oldest_pending", "string", "id of the first of those")
SEEN: Final = Column("seen", "timestamp", "when it last took something or tried to, in milliseconds")
ID: Final = Column("id", "string", "of the entry")
SINCE: Final = Column("since", "timestamp", "when it was last delivered, in milliseconds")
DELIVERIES: Final = Column("deliveries", "bigint", "how often it was delivered")


class _GroupsView(StateView):
    def check_reach(self, disk: Files, log: Log, as_of_ns: int) -> None:
        reach.check_groups(disk, log.place, log.files, as_of_ns)


class GroupStateView(_GroupsView):
    """One row per group."""

    name = "group_state"
    kinds = (places.GROUPS, places.TOPIC)
    columns = (TOPIC, GROUP, LAST_ID, READ, LAG, CONSUMERS, PENDING, OLDEST_PENDING)

    def tasks(self, snapshot: Snapshot, options: ReadOptions) -> list[Any]:
        topics = {log.place.name: log for log in _TopicLogs().tasks(snapshot, options)}
        logs = super().tasks(snapshot, options)
        return [_Both(log.place, log.files, log.as_of_ns, log.pinned_ns, topics.get(log.place.name)) for log in logs]

    def check_reach(self, disk: Files, log: Log, as_of_ns: int) -> None:
        super().check_reach(disk, log, as_of_ns)
        if isinstance(log, _Both) and log.topic is not None:
            reach.check_reach(disk, log.topic.place, log.topic.files, as_of_ns)

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        groups = fold(disk, log).groups
        beside = log.topic if isinstance(log, _Both) else None
        topic = Folded(disk, beside) if groups and beside is not None else None
        for name in sorted(groups):
            group = groups[name]
            oldest = group.pending.first()
            yield (
                log.place.name,
                show_name(name),
                show_id(group.last_id),
                group.read,
                None if topic is None else _lag(topic, group),
                len(group.consumers),
                len(group.pending),
                None if oldest is None else show_id(oldest),
            )


class GroupConsumersView(_GroupsView):
    """One row per consumer."""

    name = "group_consumers"
    kinds = (places.GROUPS,)
    columns = (TOPIC, GROUP, CONSUMER, SEEN, PENDING)

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        groups = fold(disk, log).groups
        for name in sorted(groups):
            consumers = groups[name].consumers
            for consumer in sorted(consumers):
                one = consumers[consumer]
                yield (
                    log.place.name,
                    show_name(name),
                    show_name(consumer),
                    to_micros(one.seen),
                    len(one.pending),
                )


class GroupPendingView(_GroupsView):
    """One row per entry that is pending."""

    name = "group_pending"
    kinds = (places.GROUPS,)
    columns = (TOPIC, GROUP, CONSUMER, ID, ID_MS, ID_SEQUENCE, SINCE, DELIVERIES)

    def rows(self, disk: Files, log: Log) -> Iterator[Row]:
        groups = fold(disk, log).groups
        for name in sorted(groups):
            group = groups[name]
            for id, one in group.pending.items():
                yield (
                    log.place.name,
                    show_name(name),
                    show_name(one.consumer.name),
                    show_id(id),
                    signed(id >> 64),
                    signed(id & ((1 << 64) - 1)),
                    to_micros(one.time),
                    one.deliveries,
                )


@dataclass(frozen=True, slots=True)
class _Both(Log):
    """The log of groups, and that of their topic if it was found."""

    topic: Log | None


class _TopicLogs(StateView):
    kinds = (places.TOPIC,)


def fold(disk: Files, log: Log) -> State:
    """The groups as they were. Raises: Corruption, WrongFormat, DiskError."""
    with Frozen(disk, log.place, log.files, log.as_of_ns) as pinned:
        return load(Reader(pinned.folder, family=TIMED, files=pinned.files).batches()).state


def _lag(topic: Folded, group: Group) -> int | None:
    if group.last_id > topic.state.last_id and not group.is_ahead:
        return 0
    return group_lag.lag(topic, group)
