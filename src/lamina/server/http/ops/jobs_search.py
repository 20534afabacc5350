"""Searching jobs: by id, or by text in what they hold. There is no index of payloads: jobs are looked at one by one,
for so long at most, and the answer says how far it came and how to go on.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Annotated, Final
from uuid import UUID

import msgspec

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import PLACES, Job
from lamina.server.http.operations import After, Asks, Gives, Limit, Name, Operation, Place
from lamina.server.http.ops.jobs_shown import JobRow, JobState, queue_name, row_of
from lamina.server.http.ops.jobs_walking import Through, find_queue, is_there, place_of, readable, walk

MOST_JOBS: Final = 500_000
"""Jobs that one search looks at."""
_SMALLEST_ID: Final = 4  # hexadecimal digits that are taken for the beginning of an id

Milliseconds = Annotated[int, msgspec.Meta(ge=1, le=5000)]


class SearchAsks(Asks, frozen=True, kw_only=True):
    """What to search for, and where."""

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    """An id, its beginning, or a part of the payload, the unique key, the result or the error."""
    queue: Name | None = None
    """Of this queue only."""
    state: JobState | None = None
    """In this state only."""
    after: After = ""
    limit: Limit = 50
    most_ms: Milliseconds = 150
    """How long to look."""


class Found(Gives, frozen=True, kw_only=True):
    """Jobs that were found, queue by queue."""

    jobs: list[JobRow]
    looked_at: int
    """Jobs that were looked at."""
    is_cut: bool = False
    """The search stopped before it had looked at all: there may be more."""
    next: str = ""
    """Ask with this as ``after`` to go on; empty: all were looked at."""


async def _search(place: Place, asked: SearchAsks) -> Found:
    place.check_some("jobs", "read")
    queue = None if asked.queue is None else queue_name(asked.queue)
    if queue is not None:
        place.check("jobs", "read", queue)
    after = Through.parse(asked.after) if asked.after else None
    engine = place.is_there(place.inside.jobs)

    def look() -> Found:
        engine.tick()
        if queue is not None:
            with engine.lock:
                find_queue(engine, queue)
        if after is None and (exact := _by_id(place, engine, asked.text)) is not None:
            return Found(jobs=[exact], looked_at=1)
        names = [queue] if queue is not None else readable(place, engine)
        lists = range(len(PLACES)) if asked.state is None else [PLACES.index(asked.state)]
        return _look_through(engine, _from(names, lists, after), asked)

    return await place.in_thread(look)


def _by_id(place: Place, engine: JobEngine, text: str) -> JobRow | None:
    with suppress(ValueError), engine.lock:
        job = engine.state.jobs.get(UUID(text.strip()).bytes)
        if job is not None and place.may("jobs", "read", job.queue.name):
            return row_of(job)
    return None


def _from(names: list[str], lists: range | list[int], after: Through | None) -> Iterator[Through]:
    """Where to look, in order."""
    first = 0 if after is None else bisect_left(names, after.queue)
    for at in range(first, len(names)):
        is_begun = after is not None and names[at] == after.queue
        for number in lists:
            if is_begun and after is not None and number == after.at:
                yield after
            elif not is_begun or after is None or number > after.at:
                yield Through(names[at], number)


def _look_through(engine: JobEngine, places: Iterator[Through], asked: SearchAsks) -> Found:
    matches = matcher(asked.text)
    end = time.monotonic() + asked.most_ms / 1000
    found: list[JobRow] = []
    looked = checked = 0
    for where in places:
        checked += 1
        if checked % 256 == 0 and time.monotonic() > end:  # many queues that are empty
            return Found(jobs=found, looked_at=looked, is_cut=True, next=str(where))
        queue = engine.state.queues.get(where.queue)
        if queue is None or not queue.lists[where.at].size:
            continue
        for jobs in walk(engine, where.queue, where.at, where.place):
            for job in jobs:
                looked += 1
                if not matches(job):
                    continue
                with engine.lock:
                    if is_there(engine, job, where.at):
                        found.append(row_of(job))
                if len(found) == asked.limit:
                    return Found(jobs=found, looked_at=looked, next=str(where._replace(place=place_of(job))))
            if looked >= MOST_JOBS or time.monotonic() > end:
                next = str(where._replace(place=place_of(jobs[-1])))
                return Found(jobs=found, looked_at=looked, is_cut=True, next=next)
    return Found(jobs=found, looked_at=looked)


def matcher(text: str) -> Callable[[Job], bool]:
    """Whether a job has this text somewhere."""
    wanted = text.encode("utf-8", "surrogatepass")
    digits = text.strip().replace("-", "").lower()
    whole = digits[: len(digits) // 2 * 2]
    begin = b""
    if len(digits) >= _SMALLEST_ID and not set(digits) - set("0123456789abcdef"):
        begin = bytes.fromhex(whole)

    def matches(job: Job) -> bool:
        result = job.result
        return (
            wanted in job.payload
            or (result is not None and wanted in result)
            or (job.unique != "" and text in job.unique)
            or (begin != b"" and job.id.startswith(begin) and job.id.hex().startswith(digits))
        )

    return matches


SEARCH: Final = Operation(
    name="jobs.search",
    method="GET",
    path="/jobs/search",
    summary="Search jobs by id, or by text in payload, unique key, result or error",
    right=("jobs", "read"),
    asks=SearchAsks,
    gives=Found,
    do=_search,
    errors=("bad_name", "job_not_found"),
)
OPERATIONS: Final = (SEARCH,)
