"""A client of the workq protocol.

    with WorkqClient("127.0.0.1", 9922) as jobs:
        id = jobs.add("mail", b"to: you", ttr=30)
        job = jobs.lease("mail", wait=5)            # None after five seconds without a job
        if job:
            jobs.complete(job.id, b"sent")

Methods take what those of ``lamina.open(folder).jobs`` take (seconds, ids as text) and raise the same errors, and also
``Disconnected``: the server is not there, or went away, and whether it did what was asked is not known. The next
command then connects anew.
Threads: one at a time; a command that waits holds up the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from lamina.client.wire import Wire
from lamina.engines.jobs.api import DAY_S, Seconds, check_count, check_name, check_payload, job_fields, to_ms
from lamina.engines.jobs.views import JobResult, parse_id, show_id
from lamina.errors import BadJob
from lamina.units import show_time

T = TypeVar("T")


class LeasedJob(NamedTuple):
    """A job in the hands of a worker."""

    id: str
    name: str
    ttr_s: float
    payload: bytes


class Block(NamedTuple):
    """One object of an ``inspect``: its name or id, and its facts as the server wrote them."""

    title: str
    facts: dict[str, bytes]


class WorkqClient:
    """One connection to one server."""

    def __init__(self, host: str = "127.0.0.1", port: int = 9922, timeout: float = 30) -> None:
        """``timeout``: seconds for connecting, and for an answer beyond the time a command waits by itself."""
        self._wire = Wire(host, port, timeout)

    def close(self) -> None:
        """Hang up. The next command would connect anew."""
        self._wire.close()

    def __enter__(self) -> WorkqClient:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # -- giving and doing work -------------------------------------------------------------------------------------

    def add(self, name: str, payload: bytes = b"", **options: object) -> str:
        """A job for the queue ``name``; options as ``Jobs.add``. Returns its id. Raises: DuplicateJob, BadJob."""
        fields = job_fields(name, payload, time.time_ns(), **options)  # type: ignore[arg-type]
        id, _, ttr, ttl, _, priority, max_attempts, max_fails, at, unique, backoff = fields
        flags = {"priority": priority, "max-attempts": max_attempts, "max-fails": max_fails}
        given = [f"-{key}={value}" for key, value in {**flags, "unique": unique, "backoff": backoff}.items() if value]
        words = ["add" if at is None else "schedule", show_id(id), name, ttr, ttl]
        self._tell(*words, *([] if at is None else [show_time(at)]), *given, payload=payload)
        return show_id(id)

    def lease(self, *names: str, wait: Seconds = 0) -> LeasedJob | None:
        """The next job of any of the queues, to be ended within its time to run. None if none came in time."""
        return next(iter(self.lease_many(*names, most=1, wait=wait)), None)

    def lease_many(self, *names: str, most: int, wait: Seconds = 0) -> list[LeasedJob]:
        """Up to ``most`` jobs at once."""
        if not names or not 1 <= most <= 1000:
            raise BadJob("a lease takes at least one queue and 1 to 1000 jobs")
        words = [*map(check_name, names), *([f"-max={most}"] if most > 1 else [])]
        return self._ask("lease", *words, wait=wait, read=self._read_leased) or []

    def complete(self, id: str, result: bytes = b"") -> None:
        """Raises: JobNotFound, DuplicateResult."""
        self._tell("complete", _id(id), payload=result)

    def fail(self, id: str, error: bytes = b"") -> None:
        """Another attempt if ``max_fails`` allows it, else the job is failed. Raises: JobNotFound, DuplicateResult."""
        self._tell("fail", _id(id), payload=error)

    def bury(self, id: str, error: bytes = b"") -> None:
        """Failed for good, whatever ``max_fails`` says. Raises: JobNotFound, DuplicateResult."""
        self._tell("bury", _id(id), payload=error)

    def touch(self, id: str, ttr: Seconds) -> None:
        """The lease lasts so long from now. Raises: JobNotFound, NotLeased."""
        self._tell("touch", _id(id), to_ms("ttr", ttr, 1, DAY_S))

    def release(self, id: str, delay: Seconds = 0) -> None:
        """Give a leased job back; the attempt does not count. Raises: JobNotFound, NotLeased."""
        self._tell("release", _id(id), to_ms("delay", delay))

    # -- looking after it ------------------------------------------------------------------------------------------

    def result(self, id: str, wait: Seconds = 0) -> JobResult | None:
        """How the job ended; None if it has not in time. Raises: JobNotFound."""
        return self._ask("result", _id(id), wait=wait, read=self._read_result)

    def delete(self, id: str) -> None:
        """Raises: JobNotFound."""
        self._tell("delete", _id(id))

    def redrive(self, id: str) -> None:
        """A failed job starts again as if new. Raises: JobNotFound, BadJob."""
        self._tell("redrive", _id(id))

    def redrive_queue(self, name: str, limit: int = 1000) -> int:
        """The same for up to 1000 failed jobs of a queue. Returns how many. Raises: JobNotFound, BadJob."""
        return self._ask("redrive", check_name(name), check_count("limit", limit, 1), read=int) or 0

    def pause(self, name: str) -> None:
        """Hand out no job of this queue until ``resume``."""
        self._tell("pause", check_name(name))

    def resume(self, name: str) -> None:
        self._tell("resume", check_name(name))

    def inspect(self, what: str, *words: str | int) -> list[Block]:
        """The protocol's ``inspect``, such as ``inspect("queues", 0, 100)``. Raises: JobNotFound, BadJob."""
        checked = [check_name(str(word), "word of an inspect") for word in (what, *words)]
        return self._ask("inspect", *checked, read=self._read_blocks) or []

    # -- lines -----------------------------------------------------------------------------------------------------

    # Every word that is sent was checked by the caller: a blank or a line end in it would be another command.

    def _tell(self, *words: str | int, payload: bytes | None = None) -> None:
        size = [] if payload is None else [len(check_payload(payload))]
        self._wire.ask(" ".join(map(str, [*words, *size])), payload, 0, bool)

    def _ask(self, *words: str | int, wait: Seconds | None = None, read: Callable[[int], T]) -> T | None:
        """None if nothing came in time."""
        wait_ms = 0 if wait is None else to_ms("wait", wait, 0, DAY_S)
        last = [] if wait is None else [wait_ms]
        return self._wire.ask(" ".join(map(str, [*words, *last])), None, wait_ms / 1000, read)

    def _read_leased(self, count: int) -> list[LeasedJob]:
        jobs = []
        for _ in range(count):
            id, name, ttr, size = self._wire.line().split(" ")
            jobs.append(LeasedJob(id, name, int(ttr) / 1000, self._wire.body(int(size))))
        return jobs

    def _read_result(self, count: int) -> JobResult:
        id, is_success, size = self._wire.line().split(" ")
        return JobResult(id, is_success == "1", self._wire.body(int(size)))

    def _read_blocks(self, count: int) -> list[Block]:
        return [self._read_block() for _ in range(count)]

    def _read_block(self) -> Block:
        title, count = self._wire.line().split(" ")
        facts: dict[str, bytes] = {}
        for _ in range(int(count)):
            if "payload-size" in facts and "payload" not in facts:  # any bytes, line ends too
                facts["payload"] = self._wire.body(len("payload ") + int(facts["payload-size"]))[len("payload ") :]
                continue
            key, _, value = self._wire.line().partition(" ")
            facts[key] = value.encode()
        return Block(title, facts)


def _id(text: str) -> str:
    """The id in its usual spelling. Raises: BadJob."""
    return show_id(parse_id(text))
