"""Dead letters: failed jobs, grouped by what went wrong.

Errors of the same kind differ in ids, numbers and addresses. So a group is the first line of the last error with those
taken out: ``timeout after 31s for order 8812`` and ``timeout after 30s for order 17`` are ``timeout after #s for
order #``.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Final

import msgspec

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_FAILED, Job
from lamina.server.http.operations import After, Asks, Gives, Limit, Name, Operation, Place
from lamina.server.http.ops.jobs_search import MOST_JOBS, Milliseconds
from lamina.server.http.ops.jobs_shown import JobRow, queue_name, row_of
from lamina.server.http.ops.jobs_walking import find_queue, is_there, place_of, walk

NO_ERROR: Final = "(no error was given, or the time to run was over)"
_MOST_LETTERS: Final = 200  # of the name of a group
OTHERS: Final = "(other errors)"
"""Of more kinds than are told apart; not a group by itself."""
_MOST_GROUPS: Final = 500
_FIRST_LINE: Final = 400  # bytes of an error that are looked at
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
_HEX: Final = re.compile(r"\b(?:0[xX][0-9a-fA-F]+|[0-9a-fA-F]{8,})\b")
_NUMBER: Final = re.compile(r"\d[\d.,]*\d|\d")


def group_of(job: Job) -> str:
    """The kind of its last error."""
    return group_name(bytes((job.result or b"")[:_FIRST_LINE]))


@lru_cache(maxsize=8192)
def group_name(error: bytes) -> str:
    """Its first line, without what differs each time."""
    line = error.strip().partition(b"\n")[0].decode("utf-8", "replace").strip()
    if not line.isprintable():
        line = "".join(letter if letter.isprintable() else " " for letter in line)
    if line.count("-") >= 4:  # one after the other, and only where they can be: there are many jobs
        line = _UUID.sub("#", line)
    plain = _NUMBER.sub("#", _HEX.sub(_without_hex, line))
    return plain.strip()[:_MOST_LETTERS].strip() or NO_ERROR


def _without_hex(found: re.Match[str]) -> str:
    """Words such as ``defaced`` stay."""
    return "#" if any(letter.isdigit() for letter in found[0]) else found[0]


class DeadAsks(Asks, frozen=True, kw_only=True):
    """Dead letters of which queue."""

    queue: Name
    error: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    """Only this group."""
    after: After = ""
    limit: Limit = 100
    """Groups at most."""
    examples: Annotated[int, msgspec.Meta(ge=0, le=50)] = 3
    """Jobs that are shown of each."""
    most_ms: Milliseconds = 150
    """How long to look."""


class DeadGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Failed jobs with the same kind of error."""

    error: str
    count: int
    oldest_ns: int
    """When the first of them failed."""
    newest_ns: int
    examples: list[JobRow]


class Dead(Gives, frozen=True, kw_only=True):
    """Dead letters of a queue by error, the most frequent first."""

    queue: str
    groups: list[DeadGroup]
    total: int
    """Failed jobs of the queue."""
    looked_at: int
    groups_left: int = 0
    """Groups beyond the limit, all smaller than those shown."""
    is_cut: bool = False
    """The time was up before all were looked at."""
    next: str = ""
    """Ask with this as ``after`` for the groups of those that were not looked at."""


@dataclass(slots=True)
class _Group:
    count: int = 0
    oldest: int = 0
    newest: int = 0
    jobs: list[Job] = field(default_factory=list)

    def note(self, job: Job, most: int) -> None:
        at = job.changed
        self.count += 1
        if at > self.newest:
            self.newest = at
        if at < self.oldest or not self.oldest:
            self.oldest = at
        if len(self.jobs) < most:
            self.jobs.append(job)


async def _dead(place: Place, asked: DeadAsks) -> Dead:
    name = queue_name(asked.queue)
    place.check("jobs", "read", name)
    engine = place.is_there(place.inside.jobs)
    return await place.in_thread(_look, engine, name, asked)


def _look(engine: JobEngine, name: str, asked: DeadAsks) -> Dead:
    engine.tick()
    with engine.lock:
        total = len(find_queue(engine, name).lists[AT_FAILED])
    groups: dict[str, _Group] = {}
    looked, more = 0, ""
    end = time.monotonic() + asked.most_ms / 1000
    for jobs in walk(engine, name, AT_FAILED, asked.after):
        looked += len(jobs)
        for job in jobs:
            error = group_of(job)
            if asked.error and error != asked.error:
                continue
            group = groups.get(error)
            if group is None:
                group = groups.setdefault(error if len(groups) < _MOST_GROUPS else OTHERS, _Group())
            group.note(job, asked.examples)
        if looked >= MOST_JOBS or time.monotonic() > end:
            more = place_of(jobs[-1])
            break
    ordered = sorted(groups.items(), key=lambda item: (-item[1].count, item[0]))
    return Dead(
        queue=asked.queue,
        groups=[_shown(engine, error, group) for error, group in ordered[: asked.limit]],
        total=total,
        looked_at=looked,
        groups_left=max(len(ordered) - asked.limit, 0),
        is_cut=bool(more) and looked < total,
        next=more if looked < total else "",
    )


def _shown(engine: JobEngine, error: str, group: _Group) -> DeadGroup:
    with engine.lock:
        examples = [row_of(job) for job in group.jobs if is_there(engine, job, AT_FAILED)]
    return DeadGroup(error=error, count=group.count, oldest_ns=group.oldest, newest_ns=group.newest, examples=examples)


DEAD: Final = Operation(
    name="jobs.dead",
    method="GET",
    path="/jobs/queues/{queue}/dead",
    summary="Dead letters of a queue, grouped by error",
    right=("jobs", "read"),
    asks=DeadAsks,
    gives=Dead,
    do=_dead,
    errors=("bad_name", "job_not_found"),
)
OPERATIONS: Final = (DEAD,)
