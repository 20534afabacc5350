"""Putting dead letters back: all of a queue, all with one error, or one with another payload."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final
from uuid import uuid4

import msgspec

from lamina.engines.jobs.api import check_payload
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_FAILED, Job
from lamina.engines.jobs.views import show_id
from lamina.errors import BadJob, LaminaError
from lamina.server.http.names import shown
from lamina.server.http.operations import Changes, Done, Name, Operation, Payload, Place, Plan
from lamina.server.http.ops import jobs_bulk
from lamina.server.http.ops.jobs_bulk import Many
from lamina.server.http.ops.jobs_changing import (
    OF_ONE,
    OF_QUEUE,
    Typed,
    looked_at,
    must_be_failed,
    payload_of,
    with_job,
)
from lamina.server.http.ops.jobs_dead import group_of
from lamina.server.http.ops.jobs_looking import Id
from lamina.server.http.ops.jobs_shown import queue_name, shown_name, text_line
from lamina.units import show_bytes

# -- many --------------------------------------------------------------------------------------------------------------


class RedriveQueueAsks(Changes, frozen=True, kw_only=True):
    """Of which queue, and how many."""

    queue: Name
    limit: Many = 1000


class RedriveGroupAsks(RedriveQueueAsks, frozen=True, kw_only=True):
    """With which error."""

    error: Annotated[str, msgspec.Meta(min_length=1, max_length=1000)]
    """As ``jobs.dead`` names the group."""


def _is_meant(asked: RedriveQueueAsks) -> Callable[[Job], bool]:
    if isinstance(asked, RedriveGroupAsks):
        error = asked.error
        return lambda job: group_of(job) == error
    return lambda job: True


async def _redrive_many(place: Place, asked: RedriveQueueAsks) -> Done:
    name = queue_name(asked.queue)
    place.check("jobs", "admin", name)
    engine = place.is_there(place.inside.jobs)
    bulk = await place.in_thread(
        jobs_bulk.change, engine, name, AT_FAILED, _is_meant(asked), engine.redrive, asked.limit
    )
    return Done(did=bulk.told(f"failed jobs of {asked.queue} back", "put"), count=bulk.done)


async def _plan_redrive_many(place: Place, asked: RedriveQueueAsks) -> Plan:
    name = queue_name(asked.queue)
    place.check("jobs", "admin", name)
    engine = place.is_there(place.inside.jobs)
    bulk, lines = await place.in_thread(jobs_bulk.count, engine, name, AT_FAILED, _is_meant(asked), asked.limit)
    examples = len(lines)
    queue = engine.state.queues.get(name)
    if queue is not None and queue.is_paused:
        lines.append("the queue is paused: they wait until it is resumed")
    total = f"{'at least ' if bulk.is_cut else ''}{bulk.left}"
    most = min(bulk.left, asked.limit) if not bulk.is_cut else asked.limit
    which = f' with "{asked.error}"' if isinstance(asked, RedriveGroupAsks) else ""
    if most > examples:
        lines.append("…")
    return Plan(will=f"put {most} of {total} failed jobs of {asked.queue}{which} back", details=lines, count=most)


# -- one, edited -------------------------------------------------------------------------------------------------------


class RedriveEditedAsks(Typed, frozen=True, kw_only=True):
    """Which job, and what it is to hold."""

    id: Id
    payload: Payload


def delete_old(engine: JobEngine, id: bytes) -> int:
    """The second step of an edit."""
    return engine.delete(id)


class _Edit:
    """Adds the edited job, then deletes the failed one, in this order in the log: a crash in between leaves both.

    The engine is locked meanwhile, so that nobody drives or deletes the old one between the two.
    """

    def __init__(self, payload: bytes) -> None:
        self.payload = check_payload(payload)
        self.id = uuid4().bytes
        self.problem: LaminaError | None = None

    def __call__(self, engine: JobEngine, job: Job) -> int:
        must_be_failed(job)
        if job.is_foreground:
            raise BadJob("a job in the foreground cannot be edited", hint="its client has it in its hands")
        position = engine.add(
            self.id,
            job.queue.name,
            job.ttr,
            job.ttl,
            self.payload,
            job.priority,
            job.max_attempts,
            job.max_fails,
            None,
            job.unique,
            job.backoff,
        )
        try:
            return delete_old(engine, job.id)
        except LaminaError as error:
            self.problem = error
            return position


async def _redrive_edited(place: Place, asked: RedriveEditedAsks) -> Done:
    edit = _Edit(payload_of(asked, asked.payload))
    await place.in_thread(with_job(place, asked.id, "admin", edit))
    id = show_id(edit.id)
    if edit.problem is not None:
        did = f"added the edited job {id}; the failed one is still there: {edit.problem}. Delete it when that is over"
        return Done(did=did, count=1, id=id)
    return Done(did=f"added the edited job {id}, and deleted the failed one", count=1, id=id)


async def _plan_redrive_edited(place: Place, asked: RedriveEditedAsks) -> Plan:
    payload = check_payload(payload_of(asked, asked.payload))
    job, lines = await looked_at(place, asked.id, "admin")
    must_be_failed(job)
    if payload == job.payload:
        lines.append("the payload is the same as before")
    else:
        lines.append(f"will hold {show_bytes(len(payload))}: {text_line(shown(payload, 200))}")
    return Plan(
        will=f"add a job with the edited payload and the same options to {shown_name(job.queue.name)}, "
        f"and then delete the failed job {asked.id}",
        details=lines,
        warning="The new job has another id, and the story of the old one ends.",
        count=1,
    )


REDRIVE_QUEUE: Final = Operation(
    name="jobs.redrive_queue",
    method="POST",
    path="/jobs/queues/{queue}/redrive",
    summary="Put the failed jobs of a queue back",
    right=("jobs", "admin"),
    asks=RedriveQueueAsks,
    gives=Done,
    do=_redrive_many,
    plan=_plan_redrive_many,
    target=lambda asked: asked.queue,
    errors=OF_QUEUE,
)
REDRIVE_GROUP: Final = Operation(
    name="jobs.redrive_group",
    method="POST",
    path="/jobs/queues/{queue}/redrive_group",
    summary="Put the failed jobs with one error back",
    right=("jobs", "admin"),
    asks=RedriveGroupAsks,
    gives=Done,
    do=_redrive_many,
    plan=_plan_redrive_many,
    target=lambda asked: asked.queue,
    errors=OF_QUEUE,
    hidden=("error",),
)
REDRIVE_EDITED: Final = Operation(
    name="jobs.redrive_edited",
    method="POST",
    path="/jobs/one/{id}/redrive_edited",
    summary="Put a failed job back with another payload",
    right=("jobs", "admin"),
    asks=RedriveEditedAsks,
    gives=Done,
    do=_redrive_edited,
    plan=_plan_redrive_edited,
    target=lambda asked: asked.id,
    errors=(*OF_ONE, "duplicate_job"),
    hidden=("payload",),
)
OPERATIONS: Final = (REDRIVE_QUEUE, REDRIVE_GROUP, REDRIVE_EDITED)
