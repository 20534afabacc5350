"""What is measured of each engine: jobs, topics, queues and the store."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from lamina.engines.jobs.job import PLACES, Counts
from lamina.log.measured import WAIT_BOUNDS
from lamina.server.measures import names as n
from lamina.server.measures.families import MOST_NAMES, OTHER, Metric
from lamina.server.measures.gathering import Gathering
from lamina.server.measures.look import Look
from lamina.server.measures.totals import Busiest, Totals

if TYPE_CHECKING:
    from lamina.server.inside import Inside
    from lamina.server.measures.topics_seen import GroupSeen

_OF_QUEUES: Final = (
    *(n.JOBS_ADDED, n.JOBS_LEASED, n.JOBS_REDELIVERED, n.JOBS_COMPLETED),
    *(n.JOBS_FAILED, n.JOBS_TIMED_OUT, n.JOBS_DEAD, n.JOBS_WAITED),
)
_OF_TOPICS: Final = (n.TOPIC_ADDED, n.TOPIC_READ, n.TOPIC_DELIVERED, n.TOPIC_REDELIVERED)
_NOTHING: Final = (0.0,) * len(_OF_QUEUES)


class OfEngines:
    """Of one server, again and again. One thread at a time."""

    def __init__(self, inside: Inside, look: Look, totals: Totals) -> None:
        self._inside, self._look = inside, look
        self._queues = Busiest(totals, _OF_QUEUES)
        self._topics = Busiest(totals, _OF_TOPICS)

    def gather(self, into: Gathering) -> None:
        """Of those that are open."""
        self._jobs(into)
        self._gather_topics(into)
        self._gather_queues(into)
        store = self._inside.find_store()
        if store is not None:
            into.counter(n.STORE_ENTRIES, store.engine.written_entries)
            into.counter(n.STORE_SESSIONS, store.engine.written_sessions)
            into.gauge(n.STORE_EPOCH, store.engine.last_epoch)

    def _jobs(self, into: Gathering) -> None:
        engine, seen = self._inside.jobs, self._look.jobs()
        if engine is None or seen is None:
            return
        counts = dict(engine.counts)
        rows = {one.name: _NOTHING for one in seen.queues} | {name: _numbers(one) for name, one in counts.items()}
        self._queues.follow(rows)
        _put_totals(into, _OF_QUEUES, self._queues)
        own = set(self._queues.names)
        oldest: dict[str, float] = {}
        for one in seen.queues:
            name = one.name if one.name in own else OTHER
            for place, size in zip(PLACES, one.sizes, strict=True):
                into.gauge(n.JOBS, size, name, place)
            oldest[name] = max(oldest.get(name, 0.0), one.oldest_s)
        for name, seconds in oldest.items():
            into.gauge(n.JOBS_OLDEST, seconds, name)
        waited = sum(one.waited for one in counts.values()) / 1e9
        into.histogram(n.JOBS_WAIT, WAIT_BOUNDS, list(engine.waits), waited)
        into.counter(n.JOBS_EXPIRED, engine.evicted)
        into.gauge(n.JOBS_WORKERS, len(engine.workers))

    def _gather_topics(self, into: Gathering) -> None:
        topics, seen = self._inside.topics, self._look.topics()
        if topics is None or seen is None:
            return
        from lamina.server.measures.topics_seen import show_topic

        rows = {show_topic(one.name): one.counted[: len(_OF_TOPICS)] for one in seen.topics}
        self._topics.follow(rows)
        _put_totals(into, _OF_TOPICS, self._topics)
        own = set(self._topics.names)
        others = [one.length for one in seen.topics if show_topic(one.name) not in own]
        for one in seen.topics:
            if (name := show_topic(one.name)) in own:
                into.gauge(n.TOPIC_ENTRIES, one.length, name)
        if others:
            into.gauge(n.TOPIC_ENTRIES, sum(others), OTHER)
        into.gauge(n.TOPICS, topics.count())
        into.gauge(n.TOPICS_OPEN, sum(1 for _ in topics.opened()))
        into.gauge(n.TOPICS_HANDLES, topics.handles)
        if topics.most_handles is not None:
            into.gauge(n.TOPICS_HANDLES_LIMIT, topics.most_handles)
        into.counter(n.TOPICS_CLOSED, topics.closed_idle)
        if seen.unknown is not None:
            into.gauge(n.TOPICS_UNKNOWN, seen.unknown)
        self._groups(into, seen.groups)

    def _groups(self, into: Gathering, groups: Sequence[GroupSeen]) -> None:
        """Those that are furthest behind: that is what is looked for here."""
        ranked = heapq.nsmallest(MOST_NAMES, ((-one.lag, -one.lag_s, one.topic, one.group, one) for one in groups))
        shown = {(one.topic, one.group) for *_, one in ranked}
        for *_, one in ranked:
            labels = one.topic.decode("utf-8", "backslashreplace"), one.group.decode("utf-8", "backslashreplace")
            into.gauge(n.GROUP_LAG, one.lag, *labels)
            into.gauge(n.GROUP_PENDING, one.pending, *labels)
            into.gauge(n.GROUP_LAG_SECONDS, one.lag_s, *labels)
        others = [one for one in groups if (one.topic, one.group) not in shown]
        if others:
            into.gauge(n.GROUP_LAG, sum(one.lag for one in others), OTHER, OTHER)
            into.gauge(n.GROUP_PENDING, sum(one.pending for one in others), OTHER, OTHER)
            into.gauge(n.GROUP_LAG_SECONDS, max(one.lag_s for one in others), OTHER, OTHER)

    def _gather_queues(self, into: Gathering) -> None:
        deliveries, seen = self._inside.queues, self._look.queues()
        if deliveries is None or seen is None:
            return
        engine = deliveries.engine
        into.gauge(n.QUEUES, seen.queues)
        if seen.unknown is not None:
            into.gauge(n.QUEUES_UNKNOWN, seen.unknown)
        into.gauge(n.QUEUES_MESSAGES, seen.messages)
        into.gauge(n.QUEUES_OLDEST, seen.oldest_s)
        into.gauge(n.QUEUES_SUBSCRIBERS, seen.subscribers)
        into.counter(n.QUEUES_SENT, engine.sent)
        into.counter(n.QUEUES_SENT_BYTES, engine.sent_bytes)
        into.counter(n.QUEUES_DELIVERED, deliveries.delivered)
        into.counter(n.QUEUES_REDELIVERED, deliveries.redelivered)
        into.counter(n.QUEUES_ACKNOWLEDGED, engine.acknowledged)
        into.counter(n.QUEUES_EXPIRED, max(engine.expired - engine.restored.expired, 0))
        if engine.keeper is not engine:
            into.counter(n.QUEUES_DAMAGE, engine.keeper.stats.damaged)
            into.counter(n.QUEUES_LOST, engine.keeper.stats.lost)
        into.histogram(n.QUEUES_WAIT, WAIT_BOUNDS, list(engine.waits), engine.waited)


def _put_totals(into: Gathering, metrics: Sequence[Metric], busiest: Busiest) -> None:
    for at, metric in enumerate(metrics):
        for name, value in busiest.values(at).items():
            into.total(metric, value, name)


def _numbers(one: Counts) -> tuple[float, ...]:
    return (
        float(one.added),
        float(one.leased),
        float(one.again),
        float(one.completed),
        float(one.failed),
        float(one.timed_out),
        float(one.dead),
        one.waited / 1e9,
    )
