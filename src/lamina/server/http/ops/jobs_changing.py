"""Changing one job or one queue: add, delete, release, redrive, pause and resume.

Each is answered when it is as durable as the policy of the log promises. Waiting workers are woken by the engine.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from typing import Annotated, Final, Literal

import msgspec

from lamina.engines.jobs.api import check_name, job_fields
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_FAILED, AT_LEASED, PLACES, Job
from lamina.engines.jobs.views import show_id
from lamina.errors import BadJob, BadOption, NotLeased
from lamina.server.http.names import shown
from lamina.server.http.operations import Changes, Done, Name, Operation, Payload, Place, Plan
from lamina.server.http.ops.jobs_looking import Id
from lamina.server.http.ops.jobs_shown import id_of, may_have, no_job, queue_name, row_of, shown_name, text_line
from lamina.server.http.ops.jobs_walking import find_queue
from lamina.units import show_bytes, show_duration

Seconds = Annotated[float, msgspec.Meta(ge=0, le=30 * 86_400)]
Count = Annotated[int, msgspec.Meta(ge=0, le=255)]
OF_THE_DISK: Final = ("disk_full", "disk_error", "log_failed", "log_closed")
OF_ONE: Final = ("bad_job", "job_not_found", *OF_THE_DISK)
"""Errors of what is done to one job, and to the jobs of a queue."""
OF_QUEUE: Final = ("bad_name", "job_not_found", *OF_THE_DISK)


class Typed(Changes, frozen=True, kw_only=True):
    """With a payload that somebody typed."""

    encoding: Literal["text", "base64"] = "text"
    """What the payload is given in."""
    newlines: Literal["as_is", "lf"] = "as_is"
    """``lf``: the two characters that a browser's form makes of the end of a line are one again."""


def payload_of(asked: Typed, payload: str) -> bytes:
    """The bytes that are meant. Raises: BadOption."""
    if asked.encoding == "base64":
        try:
            return base64.b64decode("".join(payload.split()), validate=True)
        except (binascii.Error, ValueError):
            raise BadOption("payload: it is no base 64", hint="or send it as text, with encoding=text") from None
    return (payload.replace("\r\n", "\n") if asked.newlines == "lf" else payload).encode("utf-8", "surrogatepass")


def with_job(place: Place, id: str, level: str, call: Callable[[JobEngine, Job], int]) -> Callable[[], int]:
    """To be called by a thread: ``call`` under the lock, with the job, then wait for the log. Gives the position.

    Raises: JobNotFound, NotAllowed, what ``call`` does.
    """
    wanted = id_of(id)
    engine = place.is_there(place.inside.jobs)

    def run() -> int:
        engine.tick()
        with engine.lock:
            job = engine.state.jobs.get(wanted)
            if job is None:
                raise no_job(id)
            may_have(place, job, level)
            position = call(engine, job)
        engine.settle(position)
        return position

    return run


async def looked_at(place: Place, id: str, level: str) -> tuple[Job, list[str]]:
    """A job, for the plan of a change, and what it is. Raises: JobNotFound, NotAllowed."""
    found: list[tuple[Job, list[str]]] = []

    def look(engine: JobEngine, job: Job) -> int:
        row = row_of(job)
        lines = [f"{row.state}, {_times(job.attempts, 'attempt')}, priority {job.priority}"]
        lines += [f"holds {show_bytes(len(job.payload))}: {text_line(row.payload)}"]
        if row.error is not None and row.error.size:
            lines.append(f"last error: {text_line(row.error)}")
        found.append((job, lines))
        return 0

    await place.in_thread(with_job(place, id, level, look))
    return found[0]


def _times(count: int, what: str) -> str:
    return f"{count} {what}" + ("" if count == 1 else "s")


# -- add ---------------------------------------------------------------------------------------------------------------


class AddAsks(Typed, frozen=True, kw_only=True):
    """A new job."""

    queue: Name
    payload: Payload = ""
    priority: Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)] = 0
    """Higher ones first."""
    ttr_s: Seconds = 60.0
    """How long a worker has for it: up to a day."""
    ttl_s: Seconds = 86_400.0
    """How long it lives."""
    delay_s: Seconds = 0.0
    """How long until it can be had."""
    max_attempts: Count = 0
    """0: no limit."""
    max_fails: Count = 0
    """0: the first fail is final."""
    backoff_s: Seconds = 0.0
    """Wait before the first retry, doubled each time: up to a day."""
    unique: Annotated[str, msgspec.Meta(max_length=255)] = ""
    """A key: refused while another job of the queue that is not done has it."""


_Fields = tuple[bytes, str, int, int, bytes, int, int, int, int | None, str, int]


def _fields(engine: JobEngine, asked: AddAsks) -> _Fields:
    return job_fields(
        queue_name(asked.queue),
        payload_of(asked, asked.payload),
        engine.world_ns(),
        ttr=asked.ttr_s,
        ttl=asked.ttl_s,
        priority=asked.priority,
        max_attempts=asked.max_attempts,
        max_fails=asked.max_fails,
        delay=asked.delay_s,
        unique=asked.unique,
        backoff=asked.backoff_s,
    )


async def _add(place: Place, asked: AddAsks) -> Done:
    place.check("jobs", "write", queue_name(asked.queue))
    engine = place.is_there(place.inside.jobs)

    def run() -> bytes:
        fields = _fields(engine, asked)
        engine.settle(engine.add(*fields))
        return fields[0]

    id = show_id(await place.in_thread(run))
    return Done(did=f"added the job {id} to {asked.queue}", count=1, id=id)


async def _plan_add(place: Place, asked: AddAsks) -> Plan:
    place.check("jobs", "write", queue_name(asked.queue))
    engine = place.is_there(place.inside.jobs)
    fields = _fields(engine, asked)
    data = shown(fields[4], 200)
    when = f"to be had in {show_duration(asked.delay_s)}" if asked.delay_s else "to be had at once"
    lines = [f"holds {show_bytes(data.size)}: {text_line(data)}", f"{when}; gone after {show_duration(asked.ttl_s)}"]
    if fields[1] not in engine.state.queues:
        lines.append("there is no such queue yet: it is made")
    return Plan(will=f"add a job to {asked.queue}", details=lines, count=1)


# -- one job -----------------------------------------------------------------------------------------------------------


class IdAsks(Changes, frozen=True, kw_only=True):
    """Which job."""

    id: Id


class ReleaseAsks(IdAsks, frozen=True, kw_only=True):
    """Which job, and when it can be had again."""

    delay_s: Seconds = 0.0


async def _delete(place: Place, asked: IdAsks) -> Done:
    await place.in_thread(with_job(place, asked.id, "write", lambda engine, job: engine.delete(job.id)))
    return Done(did=f"deleted the job {asked.id}", count=1, id=asked.id)


async def _plan_delete(place: Place, asked: IdAsks) -> Plan:
    job, lines = await looked_at(place, asked.id, "write")
    is_out = job.at == AT_LEASED
    return Plan(
        will=f"delete the job {asked.id} of {shown_name(job.queue.name)}",
        details=lines,
        warning="It cannot be brought back."
        + (" A worker has it, and will not be able to complete it." if is_out else ""),
        count=1,
    )


async def _release(place: Place, asked: ReleaseAsks) -> Done:
    delay_ms = round(asked.delay_s * 1000)
    await place.in_thread(with_job(place, asked.id, "write", lambda engine, job: engine.release(job.id, delay_ms)))
    return Done(did=f"gave the job {asked.id} back to its queue", count=1, id=asked.id)


async def _plan_release(place: Place, asked: ReleaseAsks) -> Plan:
    job, lines = await looked_at(place, asked.id, "write")
    if job.at != AT_LEASED:
        raise NotLeased("no worker has this job", hint=f"it is {PLACES[job.at]}")
    when = f"in {show_duration(asked.delay_s)}" if asked.delay_s else "at once"
    return Plan(
        will=f"take the job {asked.id} from its worker: it can be had again {when}, and the attempt does not count",
        details=lines,
        warning="The worker is not told: the work may be done twice.",
        count=1,
    )


async def _redrive(place: Place, asked: IdAsks) -> Done:
    await place.in_thread(with_job(place, asked.id, "admin", lambda engine, job: engine.redrive(job.id)))
    return Done(did=f"put the job {asked.id} back into its queue", count=1, id=asked.id)


async def _plan_redrive(place: Place, asked: IdAsks) -> Plan:
    job, lines = await looked_at(place, asked.id, "admin")
    must_be_failed(job)
    will = f"put the failed job {asked.id} back into {shown_name(job.queue.name)}, as if it was new"
    return Plan(will=will, details=lines, count=1)


def must_be_failed(job: Job) -> None:
    """Raises: BadJob."""
    if job.at != AT_FAILED:
        raise BadJob("only a failed job can be driven again", hint=f"this one is {PLACES[job.at]}")


# -- one queue ---------------------------------------------------------------------------------------------------------


class PauseAsks(Changes, frozen=True, kw_only=True):
    """Which queue."""

    queue: Name


def _pausing(pauses: bool) -> Callable[[Place, PauseAsks], Callable[[], None]]:
    def prepared(place: Place, asked: PauseAsks) -> Callable[[], None]:
        name = check_name(queue_name(asked.queue))
        place.check("jobs", "admin", name)
        engine = place.is_there(place.inside.jobs)

        def run() -> None:
            if not pauses:
                with engine.lock:
                    find_queue(engine, name)
            engine.settle(engine.pause(name, pauses=pauses))

        return run

    return prepared


async def _pause(place: Place, asked: PauseAsks) -> Done:
    await place.in_thread(_pausing(True)(place, asked))
    return Done(did=f"paused {asked.queue}: its jobs wait until it is resumed")


async def _resume(place: Place, asked: PauseAsks) -> Done:
    await place.in_thread(_pausing(False)(place, asked))
    return Done(did=f"resumed {asked.queue}")


async def _plan_pause(place: Place, asked: PauseAsks) -> Plan:
    name = check_name(queue_name(asked.queue))
    place.check("jobs", "admin", name)
    engine = place.is_there(place.inside.jobs)
    queue = engine.state.queues.get(name)
    if queue is None:
        lines = ["there is no such queue yet: it is made, paused"]
    else:
        lines = [f"{len(queue.ready)} jobs are ready, {len(queue.lists[AT_LEASED])} are with workers, who go on"]
        if queue.is_paused:
            lines.append("it is paused already")
    return Plan(will=f"hand out no job of {asked.queue} until it is resumed; jobs can still be added", details=lines)


async def _plan_resume(place: Place, asked: PauseAsks) -> Plan:
    name = check_name(queue_name(asked.queue))
    place.check("jobs", "admin", name)
    engine = place.is_there(place.inside.jobs)
    queue = find_queue(engine, name)
    waiting = engine.workers.count(name)
    lines = [f"{len(queue.ready)} jobs are ready, {_times(waiting, 'worker')} waiting"]
    return Plan(will=f"hand out the jobs of {asked.queue} again", details=lines, count=len(queue.ready))


ADD: Final = Operation(
    name="jobs.add",
    method="POST",
    path="/jobs/queues/{queue}/add",
    summary="Add a job",
    right=("jobs", "write"),
    asks=AddAsks,
    gives=Done,
    do=_add,
    plan=_plan_add,
    target=lambda asked: asked.queue,
    errors=("bad_job", "bad_name", "duplicate_job", *OF_THE_DISK),
    hidden=("payload",),
)
DELETE: Final = Operation(
    name="jobs.delete",
    method="POST",
    path="/jobs/one/{id}/delete",
    summary="Delete a job",
    right=("jobs", "write"),
    asks=IdAsks,
    gives=Done,
    do=_delete,
    plan=_plan_delete,
    target=lambda asked: asked.id,
    errors=OF_ONE,
)
RELEASE: Final = Operation(
    name="jobs.release",
    method="POST",
    path="/jobs/one/{id}/release",
    summary="Give a leased job back to its queue",
    right=("jobs", "write"),
    asks=ReleaseAsks,
    gives=Done,
    do=_release,
    plan=_plan_release,
    target=lambda asked: asked.id,
    errors=(*OF_ONE, "not_leased"),
)
REDRIVE: Final = Operation(
    name="jobs.redrive",
    method="POST",
    path="/jobs/one/{id}/redrive",
    summary="Put a failed job back into its queue",
    right=("jobs", "admin"),
    asks=IdAsks,
    gives=Done,
    do=_redrive,
    plan=_plan_redrive,
    target=lambda asked: asked.id,
    errors=(*OF_ONE, "duplicate_job"),
)
PAUSE: Final = Operation(
    name="jobs.pause",
    method="POST",
    path="/jobs/queues/{queue}/pause",
    summary="Pause a queue of jobs",
    right=("jobs", "admin"),
    asks=PauseAsks,
    gives=Done,
    do=_pause,
    plan=_plan_pause,
    target=lambda asked: asked.queue,
    errors=("bad_job", "bad_name", *OF_THE_DISK),
)
RESUME: Final = Operation(
    name="jobs.resume",
    method="POST",
    path="/jobs/queues/{queue}/resume",
    summary="Resume a queue of jobs",
    right=("jobs", "admin"),
    asks=PauseAsks,
    gives=Done,
    do=_resume,
    plan=_plan_resume,
    target=lambda asked: asked.queue,
    errors=("bad_job", *OF_QUEUE),
)
OPERATIONS: Final = (ADD, DELETE, RELEASE, REDRIVE, PAUSE, RESUME)
