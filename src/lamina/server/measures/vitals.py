"""The few numbers that say how a server is: what history keeps and the overview plots."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import TYPE_CHECKING, Final

from lamina.engines.jobs.job import AT_FAILED, AT_LEASED, AT_READY, AT_SCHEDULED
from lamina.server.measures.look import ENGINES, Look

if TYPE_CHECKING:
    from lamina.server.inside import Inside

COUNTERS: Final = frozenset(
    (
        *("jobs.added", "jobs.leased", "jobs.completed", "jobs.failed", "topics.added", "topics.delivered"),
        *("queues.sent", "queues.acknowledged", "store.written"),
        *(f"{engine}.{name}" for engine in ENGINES for name in ("appends", "bytes", "syncs", "sync_s")),
    )
)
"""Those that only grow while the server runs, and begin anew with it; all others are as they are now."""


def gather(inside: Inside, look: Look) -> dict[str, float]:
    """Those of the engines that are open."""
    found = dict(_engines(inside, look))
    for engine in ENGINES:
        found |= {f"{engine}.{name}": value for name, value in _log(look, engine)}
    disk = look.disk()
    if disk is not None:
        found["disk.free"] = float(disk[0])
    found["connections"] = float(sum(look.connections().values()))
    return found


def _engines(inside: Inside, look: Look) -> Iterator[tuple[str, float]]:
    jobs, topics, queues, store = inside.jobs, look.topics(), inside.queues, inside.find_store()
    seen = look.jobs()
    if jobs is not None and seen is not None:
        counts = list(jobs.counts.values())
        yield "jobs.added", float(sum(one.added for one in counts))
        yield "jobs.leased", float(sum(one.leased for one in counts))
        yield "jobs.completed", float(sum(one.completed for one in counts))
        yield "jobs.failed", float(sum(one.failed + one.timed_out for one in counts))
        yield "jobs.ready", float(seen.sizes[AT_READY])
        yield "jobs.scheduled", float(seen.sizes[AT_SCHEDULED])
        yield "jobs.working", float(seen.sizes[AT_LEASED])
        yield "jobs.dead", float(seen.sizes[AT_FAILED])
        yield "jobs.oldest_s", seen.oldest_s
    if topics is not None:
        yield "topics.added", float(topics.counted.added)
        yield "topics.delivered", float(topics.counted.read)
        yield "topics.lag", float(sum(group.lag for group in topics.groups))
        yield "topics.lag_s", max((group.lag_s for group in topics.groups), default=0.0)
    waiting = look.queues()
    if queues is not None and waiting is not None:
        yield "queues.sent", float(queues.engine.sent)
        yield "queues.acknowledged", float(queues.engine.acknowledged)
        yield "queues.messages", float(waiting.messages)
        yield "queues.oldest_s", waiting.oldest_s
    if store is not None:
        yield "store.written", float(store.engine.written_entries)
        yield "store.epoch", float(store.engine.last_epoch)


def _log(look: Look, engine: str) -> Iterator[tuple[str, float]]:
    measured, now = look.measured(engine), monotonic()
    if not measured:
        return
    yield "appends", float(sum(one.records for one in measured))
    yield "bytes", float(sum(one.bytes for one in measured))
    yield "syncs", float(sum(one.syncs.count for one in measured))
    yield "sync_s", sum(one.syncs.total for one in measured)
    yield "sync_p99_s", max(one.slow_sync_s(now) for one in measured)
    yield "unsynced_s", max(one.unsynced_s(now) for one in measured)
    room = look.room(engine)
    if room is not None:
        yield "disk_bytes", float(room.bytes)
