"""Purging: jobs that are over, completed or failed, go before their time to live is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import PLACES, Job
from lamina.server.http.operations import Changes, Done, Name, Operation, Place, Plan
from lamina.server.http.ops import jobs_bulk
from lamina.server.http.ops.jobs_bulk import Many
from lamina.server.http.ops.jobs_changing import OF_QUEUE
from lamina.server.http.ops.jobs_shown import queue_name
from lamina.units import show_duration

_LONGEST_S: Final = 100 * 366 * 86_400


class PurgeAsks(Changes, frozen=True, kw_only=True):
    """Which jobs."""

    queue: Name
    state: Literal["completed", "failed"]
    older_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]
    """Those that ended at least so long ago."""
    limit: Many = 10_000


def _is_meant(engine: JobEngine, asked: PurgeAsks) -> Callable[[Job], bool]:
    before = engine.clock.now_ns() - round(asked.older_s * 1e9)
    return lambda job: job.changed <= before


async def _purge(place: Place, asked: PurgeAsks) -> Done:
    name = queue_name(asked.queue)
    place.check("jobs", "admin", name)
    engine = place.is_there(place.inside.jobs)
    at = PLACES.index(asked.state)
    bulk = await place.in_thread(
        jobs_bulk.change, engine, name, at, _is_meant(engine, asked), engine.delete, asked.limit
    )
    return Done(did=bulk.told(f"{asked.state} jobs of {asked.queue}", "deleted"), count=bulk.done)


async def _plan_purge(place: Place, asked: PurgeAsks) -> Plan:
    name = queue_name(asked.queue)
    place.check("jobs", "admin", name)
    engine = place.is_there(place.inside.jobs)
    at = PLACES.index(asked.state)
    bulk, lines = await place.in_thread(jobs_bulk.count, engine, name, at, _is_meant(engine, asked), asked.limit)
    total = f"{'at least ' if bulk.is_cut else ''}{bulk.left}"
    most = asked.limit if bulk.is_cut else min(bulk.left, asked.limit)
    if most > len(lines):
        lines.append("…")
    return Plan(
        will=f"delete {most} of {total} {asked.state} jobs of {asked.queue} that ended "
        f"{show_duration(asked.older_s)} ago or earlier",
        details=lines,
        warning="They cannot be brought back." if most else "",
        count=most,
    )


PURGE: Final = Operation(
    name="jobs.purge",
    method="POST",
    path="/jobs/queues/{queue}/purge",
    summary="Delete completed or failed jobs that are older",
    right=("jobs", "admin"),
    asks=PurgeAsks,
    gives=Done,
    do=_purge,
    plan=_plan_purge,
    target=lambda asked: asked.queue,
    errors=OF_QUEUE,
)
OPERATIONS: Final = (PURGE,)
