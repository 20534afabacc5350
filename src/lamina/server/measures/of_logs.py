"""What is measured of logs and disks, engine by engine; and what of their bytes is alive, as far as that can be told.

Live and dead bytes are estimates. Which records are needed is known by the engines, not by files: counting them would
mean reading all. So the size of a record is taken from a sample of what is in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Final

from lamina.errors import LaminaError
from lamina.log.measured import DISK_BOUNDS, Work
from lamina.server.measures import names as n
from lamina.server.measures.gathering import Gathering
from lamina.server.measures.look import ENGINES, Look
from lamina.server.measures.room import STATES, Room

if TYPE_CHECKING:
    from lamina.server.inside import Inside

_SAMPLE: Final = 200
_JOB_RECORDS: Final = (
    130  # bytes of a job's records in a log beside its payload: add, start, complete, and their frames
)
_MESSAGE_RECORD: Final = 80  # of a message beside its body
_QUEUE_RECORD: Final = 150
_STORE_AGAIN_S: Final = 60.0  # its sample reads from files


class OfLogs:
    """Of one server, again and again. One thread at a time."""

    def __init__(self, inside: Inside, look: Look) -> None:
        self._inside, self._look = inside, look
        self._dead_ratio, self._ratio_until = 0.0, 0.0

    def gather(self, into: Gathering) -> None:
        """Of engines that are open."""
        for engine in ENGINES:
            self._writing(into, engine)
            room = self._look.room(engine)
            if room is not None:
                self._room(into, engine, room)
        for engine, refused in self._refused():
            into.counter(n.LOG_REFUSED, refused, engine)
        for engine, work, done in self._works():
            into.counter(n.CLEANED, done.runs, engine, work)
            into.counter(n.FREED, done.freed_bytes, engine, work)
        for engine, has_failed in self._look.failures().items():
            into.gauge(n.LOG_FAILED, has_failed, engine)
        limit = self._inside.past.limit
        if limit is not None:
            into.gauge(n.HISTORY_LIMIT, limit)
        disk = self._look.disk()
        if disk is not None:
            into.gauge(n.DISK_FREE, disk[0])
            into.gauge(n.DISK_SIZE, disk[1])
        reserve = self._look.reserve()
        if reserve is not None:
            into.gauge(n.LOW_WATER, reserve.low_water)
            into.gauge(n.RESERVE, reserve.size if reserve.is_held else 0)
            into.gauge(n.SHORT, reserve.is_short)

    def _writing(self, into: Gathering, engine: str) -> None:
        measured, now = self._look.measured(engine), monotonic()
        if not measured:
            return
        into.counter(n.APPENDS, sum(one.records for one in measured), engine)
        into.counter(n.APPENDED_BYTES, sum(one.bytes for one in measured), engine)
        into.gauge(n.UNSYNCED, max(one.unsynced_s(now) for one in measured), engine)
        for metric, spreads in (
            (n.WRITE_SECONDS, [one.writes for one in measured]),
            (n.SYNC_SECONDS, [one.syncs for one in measured]),
        ):
            counts = [sum(column) for column in zip(*(one.counts for one in spreads), strict=True)]
            into.histogram(metric, DISK_BOUNDS, counts, sum(one.total for one in spreads), engine)

    def _room(self, into: Gathering, engine: str, room: Room) -> None:
        into.gauge(n.USED, room.bytes, engine)
        into.gauge(n.PINNED, room.pinned_bytes, engine)
        into.gauge(n.HISTORY, self._look.history_bytes(engine), engine)
        for state in STATES:
            if room.files[state] or state in STATES[:2]:
                into.gauge(n.SEGMENTS, room.files[state], engine, state)
                into.gauge(n.SEGMENT_BYTES, room.file_bytes[state], engine, state)
        total = room.file_bytes.total()
        live = self._live(engine, total)
        if live is not None:
            into.gauge(n.LIVE, min(live, total), engine)
            into.gauge(n.DEAD, max(total - live, 0), engine)

    # -- what is alive -------------------------------------------------------------------------------------------------

    def _live(self, engine: str, total: int) -> float | None:
        """None: it cannot be told."""
        if engine == "jobs":
            return self._live_jobs()
        if engine == "topics":
            return self._live_topics()
        if engine == "queues":
            return self._live_queues()
        return self._live_store(total)

    def _live_jobs(self) -> float | None:
        engine = self._inside.jobs
        if engine is None:
            return None
        with engine.lock:
            jobs = len(engine.state.jobs)
            sizes = [len(job.payload) + len(job.result or b"") for job in islice(engine.state.jobs.values(), _SAMPLE)]
        return jobs * (sum(sizes) / len(sizes) + _JOB_RECORDS) if sizes else 0.0

    def _live_topics(self) -> float | None:
        topics, seen = self._inside.topics, self._look.topics()
        if topics is None or seen is None or topics.count() > sum(1 for _ in topics.opened()):
            return None  # of those that are not open nothing is known
        if not topics.measured.records:
            return None
        return sum(one.length for one in seen.topics) * topics.measured.bytes / topics.measured.records

    def _live_queues(self) -> float | None:
        seen, deliveries = self._look.queues(), self._inside.queues
        if seen is None or deliveries is None or deliveries.engine.keeper is not deliveries.engine:
            return None
        queues = list(deliveries.engine.state.queues.values())
        step = max(len(queues) // _SAMPLE, 1)
        sizes = [len(one.body or b"") for queue in islice(queues, 0, None, step) for one in queue.messages[:5]]
        body = sum(sizes) / len(sizes) if sizes else 0.0
        return seen.messages * (body + _MESSAGE_RECORD) + seen.queues * _QUEUE_RECORD

    def _live_store(self, total: int) -> float | None:
        store = self._inside.find_store()
        if store is None:
            return None
        try:
            counted = store.compactions.counted_bytes()
            if monotonic() >= self._ratio_until:
                self._dead_ratio = store.compactions.dead_ratio()
                self._ratio_until = monotonic() + _STORE_AGAIN_S
        except LaminaError:  # a file has just gone
            return None
        return min(counted, total) * (1 - self._dead_ratio)

    # -- what gives room back ------------------------------------------------------------------------------------------

    def _refused(self) -> Iterator[tuple[str, int]]:
        inside = self._inside
        if inside.jobs is not None:
            yield "jobs", inside.jobs.rebuilds
        if inside.topics is not None:
            yield "topics", sum(topic.rebuilds for _, topic in inside.topics.opened())
        if inside.queues is not None:
            engine = inside.queues.engine
            yield "queues", engine.rebuilds + (engine.keeper.rebuilds if engine.keeper is not engine else 0)
        store = inside.find_store()
        if store is not None:
            yield "store", store.engine.refusals

    def _works(self) -> Iterator[tuple[str, str, Work]]:
        inside = self._inside
        if inside.jobs_upkeep is not None:
            yield "jobs", "clean", inside.jobs_upkeep.cleaned
        if inside.topics_upkeep is not None:
            yield "topics", "retention", inside.topics_upkeep.shed_work
            seen = self._look.topics()
            if seen is not None:
                groups = Work()
                groups.runs, groups.freed_bytes = seen.counted.compactions, seen.counted.compacted_bytes
                yield "topics", "groups", groups
        if inside.queues_upkeep is not None and inside.queues is not None:
            yield "queues", "dump", inside.queues_upkeep.dumper.dumped
            keeper = inside.queues.engine.keeper
            if keeper is not inside.queues.engine:
                journals = Work()
                journals.runs, journals.freed_bytes = keeper.stats.cleanings, keeper.stats.cleaned_bytes
                yield "queues", "journals", journals
        store = inside.find_store()
        if store is not None:
            yield "store", "compaction", store.compactions.compacted
            yield "store", "clean", store.compactions.cleaned
