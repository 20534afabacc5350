"""A client of the workq protocol, as any workq server speaks it.

    with WorkqClient("127.0.0.1", 9922) as jobs:
        id = jobs.add("mail", b"to: you", ttr=30)
        job = jobs.lease("mail", wait=5)            # None after five seconds without a job
        if job:
            jobs.complete(job.id, b"sent")

Methods take what those of ``lamina.open(folder).jobs`` take (seconds, ids as text) and raise the same errors, and also
``Disconnected``: the server is not there, or went away, and whether it did what was asked is not known. Nothing is sent
twice; the next command connects anew. ``RemoteJobs`` does more: it repeats what it may, and has views and leases that
extend themselves.
Threads: one at a time; a command that waits holds up the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from lamina.client import jobs_reading as read
from lamina.client.endpoint import Endpoint
from lamina.client.jobs_asking import canonical, fine, words
from lamina.client.jobs_giving import add_command
from lamina.client.jobs_reading import Block, LeasedJob
from lamina.client.wire import Command, Reading, just_count, nothing
from lamina.client.workq_line import WorkqLine
from lamina.engines.jobs.api import DAY_S, Seconds, check_count, check_lease, check_name, check_payload, to_ms
from lamina.engines.jobs.views import JobResult

T = TypeVar("T")

__all__ = ["Block", "LeasedJob", "WorkqClient"]


class WorkqClient:
    """One connection to one server."""

    def __init__(
        self, host: str = "127.0.0.1", port: int = 9922, timeout: float = 30, *, endpoint: Endpoint | None = None
    ) -> None:
        """``timeout``: seconds for connecting, and for an answer beyond the time a command waits by itself.

        ``endpoint``: instead of all these, for TLS, a Unix socket, or a server that wants to know who it is.
        """
        self._line = WorkqLine(endpoint or Endpoint(host, port, timeout=timeout))

    @property
    def endpoint(self) -> Endpoint:
        """Where the server is."""
        return self._line.endpoint

    def close(self) -> None:
        """Hang up. The next command would connect anew."""
        self._line.close()

    def __enter__(self) -> WorkqClient:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # -- giving and doing work -------------------------------------------------------------------------------------

    def add(self, name: str, payload: bytes = b"", **options: Any) -> str:
        """A job for the queue ``name``; options as ``Jobs.add``. Returns its id. Raises: DuplicateJob, BadJob."""
        id, command = add_command(name, payload, options)
        self._do(command)
        return id

    def lease(self, *names: str, wait: Seconds = 0) -> LeasedJob | None:
        """The next job of any of the queues, to be ended within its time to run. None if none came in time."""
        return next(iter(self.lease_many(*names, most=1, wait=wait)), None)

    def lease_many(self, *names: str, most: int, wait: Seconds = 0) -> list[LeasedJob]:
        """Up to ``most`` jobs at once."""
        parts = [*check_lease(names, most), *([f"-max={most}"] if most > 1 else [])]
        return self._ask("lease", *parts, wait=wait, reader=read.leased) or []

    def complete(self, id: str, result: bytes = b"") -> None:
        """Raises: JobNotFound, DuplicateResult."""
        self._tell("complete", canonical(id), payload=result)

    def fail(self, id: str, error: bytes = b"") -> None:
        """Another attempt if ``max_fails`` allows it, else the job is failed. Raises: JobNotFound, DuplicateResult."""
        self._tell("fail", canonical(id), payload=error)

    def bury(self, id: str, error: bytes = b"") -> None:
        """Failed for good, whatever ``max_fails`` says. Raises: JobNotFound, DuplicateResult."""
        self._tell("bury", canonical(id), payload=error)

    def touch(self, id: str, ttr: Seconds) -> None:
        """The lease lasts so long from now. Raises: JobNotFound, NotLeased."""
        self._tell("touch", canonical(id), to_ms("ttr", ttr, 1, DAY_S))

    def release(self, id: str, delay: Seconds = 0) -> None:
        """Give a leased job back; the attempt does not count. Raises: JobNotFound, NotLeased."""
        self._tell("release", canonical(id), to_ms("delay", delay))

    # -- looking after it ------------------------------------------------------------------------------------------

    def result(self, id: str, wait: Seconds = 0) -> JobResult | None:
        """How the job ended; None if it has not in time. Raises: JobNotFound."""
        return self._ask("result", canonical(id), wait=wait, reader=read.result)

    def delete(self, id: str) -> None:
        """Raises: JobNotFound."""
        self._tell("delete", canonical(id))

    def redrive(self, id: str) -> None:
        """A failed job starts again as if new. Raises: JobNotFound, BadJob."""
        self._tell("redrive", canonical(id))

    def redrive_queue(self, name: str, limit: int = 1000) -> int:
        """The same for up to 1000 failed jobs of a queue. Returns how many. Raises: JobNotFound, BadJob."""
        return self._ask("redrive", check_name(name), check_count("limit", limit, 1), reader=just_count) or 0

    def pause(self, name: str) -> None:
        """Hand out no job of this queue until ``resume``."""
        self._tell("pause", check_name(name))

    def resume(self, name: str) -> None:
        self._tell("resume", check_name(name))

    def inspect(self, what: str, *details: str | int) -> list[Block]:
        """The protocol's ``inspect``, such as ``inspect("queues", 0, 100)``. Raises: JobNotFound, BadJob."""
        checked = [check_name(str(word), "word of an inspect") for word in (what, *details)]
        return self._ask("inspect", *checked, reader=read.blocks) or []

    # -- lines -----------------------------------------------------------------------------------------------------

    def _tell(self, *parts: str | int, payload: bytes | None = None) -> None:
        size = [] if payload is None else [len(check_payload(payload))]
        self._do(Command(words(*parts, *size), payload, 0, nothing))

    def _ask(self, *parts: str | int, wait: Seconds | None = None, reader: Callable[[int], Reading[T]]) -> T | None:
        """None if nothing came in time."""
        wait_ms = 0 if wait is None else to_ms("wait", wait, 0, DAY_S)
        found: T | None = self._do(
            Command(words(*parts, *([] if wait is None else [wait_ms])), None, wait_ms / 1000, reader)
        )
        return found

    def _do(self, command: Command) -> Any:
        (value,) = self._line.ask([command])
        return fine(value)
