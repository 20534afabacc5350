"""Jobs and queues of jobs as they are shown: plain values, taken at one moment, payloads cut."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from lamina.engines.jobs import codec
from lamina.engines.jobs.job import AT_COMPLETED, AT_SCHEDULED, NEVER, PLACES, Job
from lamina.engines.jobs.views import QueueView, parse_id, show_id
from lamina.errors import JobNotFound
from lamina.server.http.names import Shown, read_name, show_name, shown
from lamina.server.http.operations import Gives, Place

JobState = Literal["ready", "scheduled", "leased", "completed", "failed"]
PREVIEW: Final = 200
"""Bytes of a payload in a row."""
WHOLE: Final = 64 << 10
"""Bytes of a payload on a page of its own, unless more is asked for."""


def queue_name(text: str) -> str:
    """The name of a queue as the engine knows it, which keeps a byte a letter. Raises: BadName."""
    return read_name(text).decode("latin-1")


def shown_name(name: str) -> str:
    """As names.py shows names."""
    return show_name(name.encode("latin-1"))


class QueueRow(Gives, frozen=True, kw_only=True):
    """A queue of jobs."""

    name: str
    ready: int
    scheduled: int
    leased: int
    completed: int
    failed: int
    is_paused: bool
    waiting_workers: int
    """Workers that wait for a job of this queue."""
    oldest_ready_s: float | None
    """How long the oldest of the first 1000 ready jobs has been ready."""

    @classmethod
    def of(cls, view: QueueView) -> QueueRow:
        return cls(**{**view.as_dict(), "name": shown_name(view.name)})  # type: ignore[arg-type]


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job in a list. Times are nanoseconds since 1970."""

    id: str
    queue: str
    state: JobState
    priority: int
    attempts: int
    max_attempts: int
    """0: no limit."""
    fails: int
    created_ns: int
    changed_ns: int
    """Time of the newest record about it."""
    ready_ns: int | None
    """Of a scheduled one: when it can be had."""
    lease_until_ns: int | None
    """Of a leased one: when its time to run is over."""
    expires_ns: int | None
    unique: str
    payload: Shown
    """Its first bytes."""
    error: Shown | None
    """First bytes of what the last attempt that failed said."""


class JobOne(Gives, frozen=True, kw_only=True):
    """All of one job. Times are nanoseconds since 1970."""

    id: str
    queue: str
    state: JobState
    priority: int
    attempts: int
    max_attempts: int
    """0: no limit."""
    fails: int
    max_fails: int
    """0: the first one is final."""
    given_back: int
    """Attempts that were released."""
    ttr_ms: int
    """How long a worker has for it."""
    ttl_ms: int
    """How long it lives."""
    backoff_ms: int
    """Wait before the first retry, doubled each time."""
    created_ns: int
    changed_ns: int
    """Time of the newest record about it."""
    scheduled_ns: int | None
    """The time it was added for."""
    ready_ns: int | None
    """Of a scheduled one: when it can be had."""
    lease_until_ns: int | None
    expires_ns: int | None
    unique: str
    is_foreground: bool
    """It belongs to a client that waits for it: nothing about it is in the log."""
    payload: Shown
    result: Shown | None
    """Of a completed one."""
    error: Shown | None
    """What the last attempt that failed said."""


def row_of(job: Job, preview: int = PREVIEW) -> JobRow:
    """Under the engine's lock."""
    has_error = job.result is not None and job.at != AT_COMPLETED
    return JobRow(
        id=show_id(job.id),
        queue=shown_name(job.queue.name),
        state=PLACES[job.at],  # type: ignore[arg-type]
        priority=job.priority,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        fails=job.fails,
        created_ns=job.created,
        changed_ns=job.changed,
        ready_ns=job.ready_at if job.at == AT_SCHEDULED else None,
        lease_until_ns=job.lease_until or None,
        expires_ns=None if job.expires == NEVER else job.expires,
        unique=job.unique,
        payload=shown(job.payload, preview),
        error=shown(job.result or b"", preview) if has_error else None,
    )


def one_of(job: Job, most: int) -> JobOne:
    """Under the engine's lock."""
    row = row_of(job, most)
    return JobOne(
        id=row.id,
        queue=row.queue,
        state=row.state,
        priority=row.priority,
        attempts=row.attempts,
        max_attempts=row.max_attempts,
        fails=row.fails,
        max_fails=job.max_fails,
        given_back=job.given_back,
        ttr_ms=job.ttr,
        ttl_ms=job.ttl,
        backoff_ms=job.backoff,
        created_ns=row.created_ns,
        changed_ns=row.changed_ns,
        scheduled_ns=None if job.time is None else codec.clamped(job.time),
        ready_ns=row.ready_ns,
        lease_until_ns=row.lease_until_ns,
        expires_ns=row.expires_ns,
        unique=row.unique,
        is_foreground=job.is_foreground,
        payload=row.payload,
        result=shown(job.result, most) if job.result is not None and job.at == AT_COMPLETED else None,
        error=row.error,
    )


def no_job(id: str) -> JobNotFound:
    """What is said of one that is not there, and of one that this user may not know of."""
    return JobNotFound(
        f"no job has the id {id[:40]}", hint="it was deleted or has expired; or it is not for you to see"
    )


def may_have(place: Place, job: Job, level: str) -> None:
    """Raises: NotAllowed; JobNotFound for who may not even know of it."""
    name = job.queue.name
    if not place.may("jobs", "read", name):
        raise no_job(show_id(job.id))
    place.check("jobs", level, name)


def id_of(text: str) -> bytes:
    """Raises: BadJob."""
    return parse_id(text.strip())


def text_line(data: Shown | None, most: int = 80) -> str:
    """The first of it, on one line, for a list of what an action is about."""
    if data is None:
        return ""
    text = data.text if data.text is not None else f"base 64 {data.base64}"
    line = " ".join(text.split())
    return line if len(line) <= most else line[:most] + " …"
