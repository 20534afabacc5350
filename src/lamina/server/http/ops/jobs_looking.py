"""Looking at jobs: their queues, the jobs of one queue by state, and one job."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Final

import msgspec

from lamina.engines.jobs.job import PLACES
from lamina.engines.jobs.views import QueueView
from lamina.server.http.operations import After, Asks, Gives, Limit, Name, Operation, Place
from lamina.server.http.ops.jobs_shown import (
    PREVIEW,
    WHOLE,
    JobOne,
    JobRow,
    JobState,
    QueueRow,
    id_of,
    may_have,
    no_job,
    one_of,
    queue_name,
    row_of,
    shown_name,
)
from lamina.server.http.ops.jobs_walking import find_queue, is_there, place_of, readable, some_after

_MOST_NAMES: Final = 20_000  # looked at for one page of queues
_MOST_PREVIEWS: Final = 1 << 20  # bytes of payloads on one page of jobs

Preview = Annotated[int, msgspec.Meta(ge=0, le=WHOLE)]
MostBytes = Annotated[int, msgspec.Meta(ge=0, le=1 << 20)]
Id = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]


# -- queues ------------------------------------------------------------------------------------------------------------


class QueuesAsks(Asks, frozen=True, kw_only=True):
    """Which queues of jobs."""

    search: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """Only those with this in their name."""
    after: After = ""
    limit: Limit = 50


class Queues(Gives, frozen=True, kw_only=True):
    """Queues of jobs, by name."""

    queues: list[QueueRow]
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is no more."""
    total: int | None = None
    """Queues that there are; told to who may read them all."""
    jobs: int | None = None
    """Jobs that there are; the same."""


async def _queues(place: Place, asked: QueuesAsks) -> Queues:
    place.check_some("jobs", "read")
    engine = place.is_there(place.inside.jobs)
    after = queue_name(asked.after) if asked.after else ""

    def look() -> Queues:
        engine.tick()
        names = readable(place, engine)
        start = bisect_right(names, after) if after else 0
        wanted, more = list[str](), ""
        may_all = place.user.may_all("jobs", "read")
        for at in range(start, len(names)):
            name = names[at]
            if len(wanted) == asked.limit or at - start >= _MOST_NAMES:
                more = shown_name(names[at - 1])
                break
            if asked.search in name:
                wanted.append(name)
        found = []
        now = engine.clock.now_ns()
        for name in wanted:
            with engine.lock:  # for each by itself: a thousand ready jobs are looked at for the oldest
                queue = engine.state.queues.get(name)
                if queue is not None:
                    found.append(QueueRow.of(QueueView.of(queue, engine.workers.count(name), now)))
        if not may_all:
            return Queues(queues=found, next=more)
        return Queues(queues=found, next=more, total=len(names), jobs=len(engine.state.jobs))

    return await place.in_thread(look)


class QueueAsks(Asks, frozen=True, kw_only=True):
    """Which queue of jobs."""

    queue: Name


async def _queue(place: Place, asked: QueueAsks) -> QueueRow:
    name = queue_name(asked.queue)
    place.check("jobs", "read", name)
    engine = place.is_there(place.inside.jobs)

    def look() -> QueueRow:
        engine.tick()
        with engine.lock:
            queue = find_queue(engine, name)
            return QueueRow.of(QueueView.of(queue, engine.workers.count(name), engine.clock.now_ns()))

    return await place.in_thread(look)


# -- jobs of a queue ---------------------------------------------------------------------------------------------------


class ListAsks(Asks, frozen=True, kw_only=True):
    """Which jobs of a queue."""

    queue: Name
    state: JobState = "ready"
    after: After = ""
    limit: Limit = 50
    preview: Preview = PREVIEW
    """Bytes of payloads and errors that are shown."""


class JobsPage(Gives, frozen=True, kw_only=True):
    """Jobs of a queue in one state, in the order in which they are handed out."""

    jobs: list[JobRow]
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is no more."""
    total: int
    """Jobs of the queue in this state."""


async def _list(place: Place, asked: ListAsks) -> JobsPage:
    name = queue_name(asked.queue)
    place.check("jobs", "read", name)
    engine = place.is_there(place.inside.jobs)
    preview = min(asked.preview, _MOST_PREVIEWS // asked.limit)
    at = PLACES.index(asked.state)

    def look() -> JobsPage:
        engine.tick()
        with engine.lock:
            jobs = find_queue(engine, name).lists[at]
            found = some_after(jobs, asked.after, asked.limit + 1)
            total = len(jobs)
            more = place_of(found[asked.limit - 1]) if len(found) > asked.limit else ""
        rows = []
        for start in range(0, min(len(found), asked.limit), 50):
            some = found[start : min(start + 50, asked.limit)]
            with engine.lock:
                rows += [row_of(job, preview) for job in some if is_there(engine, job, at)]
        return JobsPage(jobs=rows, next=more, total=total)

    return await place.in_thread(look)


# -- one job -----------------------------------------------------------------------------------------------------------


class OneAsks(Asks, frozen=True, kw_only=True):
    """Which job."""

    id: Id
    most: MostBytes = WHOLE
    """Bytes of its payload and result that are shown."""


async def _one(place: Place, asked: OneAsks) -> JobOne:
    place.check_some("jobs", "read")
    id = id_of(asked.id)
    engine = place.is_there(place.inside.jobs)

    def look() -> JobOne:
        engine.tick()
        with engine.lock:
            job = engine.state.jobs.get(id)
            if job is None:
                raise no_job(asked.id)
            may_have(place, job, "read")
            return one_of(job, asked.most)

    return await place.in_thread(look)


QUEUES: Final = Operation(
    name="jobs.queues",
    method="GET",
    path="/jobs/queues",
    summary="Queues of jobs, with how many jobs are in which state",
    right=("jobs", "read"),
    asks=QueuesAsks,
    gives=Queues,
    do=_queues,
    errors=("bad_name",),
)
QUEUE: Final = Operation(
    name="jobs.queue",
    method="GET",
    path="/jobs/queues/{queue}",
    summary="One queue of jobs",
    right=("jobs", "read"),
    asks=QueueAsks,
    gives=QueueRow,
    do=_queue,
    errors=("bad_name", "job_not_found"),
)
LIST: Final = Operation(
    name="jobs.list",
    method="GET",
    path="/jobs/queues/{queue}/jobs",
    summary="Jobs of a queue in one state",
    right=("jobs", "read"),
    asks=ListAsks,
    gives=JobsPage,
    do=_list,
    errors=("bad_name", "job_not_found"),
)
ONE: Final = Operation(
    name="jobs.one",
    method="GET",
    path="/jobs/one/{id}",
    summary="All of one job",
    right=("jobs", "read"),
    asks=OneAsks,
    gives=JobOne,
    do=_one,
    errors=("bad_job", "job_not_found"),
)
OPERATIONS: Final = (QUEUES, QUEUE, LIST, ONE)
