"""Answers of the workq door, byte for byte as workq 0.2.0 gives them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from lamina.engines.jobs.job import AT_READY, AT_SCHEDULED, COMPLETED, Job, Queue
from lamina.errors import DiskFull, JobNotFound, LaminaError, StorageError
from lamina.server.workq.quick import leased, show_id

__all__ = ("leased", "show_id")

OK = b"+OK\r\n"
NONE = b"+OK 0\r\n"
TIMEOUT = b"-TIMEOUT\r\n"
NOT_FOUND = b"-NOT-FOUND\r\n"
NO_AUTH = b"-CLIENT-ERROR Authentication required\r\n"
BAD_AUTH = b"-CLIENT-ERROR Authentication failed\r\n"
TOO_MANY_LOGINS = b"-SERVER-ERROR Too many failed logins from this address, try again in a few seconds\r\n"
NOT_ALLOWED = b"-CLIENT-ERROR Permission denied\r\n"
TOO_LATE = b"-CLIENT-ERROR Authentication took too long\r\n"
TOO_MUCH = b"-CLIENT-ERROR Authentication required, too much was sent before it\r\n"
TOO_MANY_STRANGERS = b"-SERVER-ERROR Too many connections that are not authenticated\r\n"
BROKEN = b"-SERVER-ERROR internal error: the command failed, see the log of the server\r\n"
TOO_MANY = b"-SERVER-ERROR Too many connections\r\n"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def client_error(text: str) -> bytes:
    return b"-CLIENT-ERROR %s\r\n" % text.encode()


def error(problem: LaminaError) -> bytes:
    if isinstance(problem, JobNotFound):
        return NOT_FOUND
    if isinstance(problem, DiskFull):
        return b"-SERVER-ERROR Disk full, nothing was changed, try again\r\n"
    if isinstance(problem, StorageError):
        return b"-SERVER-ERROR Read-only mode triggered by cmdlog circuit breaker\r\n"
    return client_error(problem.message)


def result(job: Job) -> bytes:
    found = job.result or b""
    head = f"+OK 1\r\n{show_id(job.id)} {int(job.state == COMPLETED)} {len(found)}\r\n"
    return head.encode() + found + b"\r\n"


def server(clients: int, evicted: int, started_ns: int) -> bytes:
    return b"+OK 1\r\nserver 3\r\nactive-clients %d\r\nevicted-jobs %d\r\nstarted %b\r\n" % (
        clients,
        evicted,
        show_time(started_ns),
    )


def queues(found: Sequence[Queue]) -> bytes:
    parts = [b"+OK %d\r\n" % len(found)]
    for queue in found:
        sizes = queue.lists[AT_READY].size, queue.lists[AT_SCHEDULED].size
        parts.append(b"%b 2\r\nready-len %d\r\nscheduled-len %d\r\n" % (queue.name.encode(), *sizes))
    return b"".join(parts)


def jobs(found: Sequence[Job]) -> bytes:
    return b"".join([b"+OK %d\r\n" % len(found), *map(_job, found)])


def _job(job: Job) -> bytes:
    facts = (
        b"%b %d\r\nname %b\r\nttr %d\r\nttl %d\r\npayload-size %d\r\npayload %b\r\nmax-attempts %d\r\nattempts %d\r\n"
        b"max-fails %d\r\nfails %d\r\npriority %d\r\nstate %d\r\ncreated %b\r\n"
    ) % (
        show_id(job.id).encode(),
        12 if job.time is None else 13,
        job.queue.name.encode(),
        job.ttr,
        job.ttl,
        len(job.payload),
        job.payload,
        job.max_attempts,
        job.attempts,
        job.max_fails,
        job.fails,
        job.priority,
        job.state,
        show_time(job.created),
    )
    return facts if job.time is None else facts + b"time %b\r\n" % show_time(job.time)


def show_time(ns: int) -> bytes:
    """Cut to seconds; years 1 to 9999."""
    moment = _EPOCH + timedelta(seconds=ns // 1_000_000_000)
    return f"{moment.year:04d}-{moment:%m-%dT%H:%M:%SZ}".encode()
