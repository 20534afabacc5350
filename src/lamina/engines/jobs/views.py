"""What callers see of jobs and queues: plain values, taken at one moment."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from uuid import UUID

from lamina.engines.jobs.codec import clamped
from lamina.engines.jobs.job import AT_READY, COMPLETED, NEVER, PLACES, Job, Queue
from lamina.errors import BadJob


@dataclass(frozen=True, slots=True)
class JobView:
    """A job as it was when asked for. Times are nanoseconds since 1970, None where there is none."""

    id: str
    name: str
    state: str
    """ready, scheduled, leased, completed or failed."""
    payload: bytes
    priority: int
    attempts: int
    max_attempts: int
    fails: int
    max_fails: int
    ttr_ms: int
    ttl_ms: int
    created_ns: int
    scheduled_ns: int | None
    """Behind 2262, where numbers of 64 bits end, the last there is."""
    lease_until_ns: int | None
    expires_ns: int | None
    unique: str
    last_error: bytes | None
    """What the last failed attempt said."""
    result: bytes | None

    @classmethod
    def of(cls, job: Job) -> JobView:
        is_error = job.state != COMPLETED
        return cls(
            id=show_id(job.id),
            name=job.queue.name,
            state=PLACES[job.at],
            payload=job.payload,
            priority=job.priority,
            attempts=job.attempts,
            max_attempts=job.max_attempts,
            fails=job.fails,
            max_fails=job.max_fails,
            ttr_ms=job.ttr,
            ttl_ms=job.ttl,
            created_ns=job.created,
            scheduled_ns=None if job.time is None else clamped(job.time),
            lease_until_ns=job.lease_until or None,
            expires_ns=None if job.expires == NEVER else job.expires,
            unique=job.unique,
            last_error=job.result if is_error else None,
            result=None if is_error else job.result,
        )

    def as_dict(self) -> dict[str, object]:
        """Plain values; payload and results as text where they are, else in hexadecimal."""
        return {key: _plain(value) for key, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class QueueView:
    """A queue as it was when asked for."""

    name: str
    ready: int
    scheduled: int
    leased: int
    completed: int
    failed: int
    is_paused: bool
    waiting_workers: int
    oldest_ready_s: float | None
    """How long the first ready job has been waiting."""

    @classmethod
    def of(cls, queue: Queue, waiting: int, now_ns: int) -> QueueView:
        counts = {place: len(jobs) for place, jobs in zip(PLACES, queue.lists, strict=True)}
        ready = queue.lists[AT_READY]
        oldest = min((max(job.created, job.ready_at) for job in ready.some(0, _LOOKED_AT)), default=None)
        age = None if oldest is None else max(now_ns - oldest, 0) / 1e9
        return cls(queue.name, **counts, is_paused=queue.is_paused, waiting_workers=waiting, oldest_ready_s=age)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


_LOOKED_AT = 1000  # of a queue with priorities the oldest may be further back; looking at all would stop the rest


@dataclass(frozen=True, slots=True)
class JobResult:
    """How a job ended."""

    id: str
    is_success: bool
    result: bytes


def _plain(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return value.decode()
    except UnicodeDecodeError:
        return "0x" + value.hex()


def show_id(id: bytes) -> str:
    return str(UUID(bytes=id))


def parse_id(text: str) -> bytes:
    """Raises: BadJob."""
    try:
        found = UUID(text)
    except ValueError:
        found = None
    if found is None or found.version != 4:
        raise BadJob(f"{text[:60]!r} is no job id", hint="a version 4 UUID, such as uuid.uuid4() makes")
    return found.bytes
