"""The jobs of a server: ``lamina.connect(url).jobs``. Names, arguments, results and errors are those of ``Jobs``.

    with jobs.lease("mail", wait=5) as job:     # None after five seconds without a job
        if job:
            job.result = send(job.payload)      # leaving the block completes the job, an exception fails it

Every call returns when the server says that it is as safe as its sync policy promises. What happens when a connection
breaks is in ``jobs_talk``; when nobody knows whether something was done, it is ``Disconnected``.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from lamina.client.endpoint import Endpoint
from lamina.client.jobs_talk import JobsTalk
from lamina.client.keeping import LeaseKeeper
from lamina.client.leased import RemoteLeased
from lamina.client.workq_lines import WorkqLines
from lamina.engines.jobs.api import Seconds, error_text
from lamina.engines.jobs.views import JobResult, JobView, QueueView
from lamina.errors import Disconnected, LaminaError, WireError

if TYPE_CHECKING:
    from lamina.client.jobs_aio import AsyncRemoteJobs


class RemoteJobs:
    """All jobs of a server. Connects at the first command."""

    def __init__(self, endpoint: Endpoint) -> None:
        """Use ``lamina.connect(url).jobs``."""
        self._talk, self._prompt_talk = JobsTalk(endpoint), JobsTalk(replace(endpoint, retry_s=0))
        self._lines = WorkqLines(endpoint)
        self._keeper = LeaseKeeper(self.touch)
        self._lock = threading.Lock()
        self._aio: AsyncRemoteJobs | None = None
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._lines.endpoint}>"

    def close(self) -> None:
        """Hang up. Who waits gets LogClosed; jobs in work are given back by the server when their time has passed."""
        self._is_closed = True
        self._keeper.stop()
        self._lines.close()
        if self._aio is not None:
            self._aio.close()

    @property
    def aio(self) -> AsyncRemoteJobs:
        """The same for coroutines, of any loop."""
        if self._aio is None:
            from lamina.client.jobs_aio import AsyncRemoteJobs

            with self._lock:
                self._aio = self._aio or AsyncRemoteJobs(self._lines.endpoint)
            if self._is_closed:
                self._aio.close()
        return self._aio

    def lasting(self, retry_s: float) -> RemoteJobs:
        """The same jobs, over connections of their own, tried again for so long."""
        return RemoteJobs(replace(self._lines.endpoint, retry_s=retry_s))

    # -- giving work -----------------------------------------------------------------------------------------------

    def add(self, name: str, payload: bytes, **options: object) -> str:
        """As ``Jobs.add``. Raises: DuplicateJob, BadJob, StorageError; Disconnected, naming what is unacknowledged."""
        return self._lines.do(self._talk.add(name, payload, options))

    def add_many(self, name: str, payloads: Iterable[bytes], **options: object) -> list[str]:
        """As ``Jobs.add_many``, many on the way at a time. If the server refuses one, later ones may be added."""
        return self._lines.do(self._talk.add_many(name, payloads, options))

    def schedule(self, name: str, payload: bytes, at: datetime, **options: object) -> str:
        """``add`` for a later time."""
        return self.add(name, payload, at=at, **options)

    def run(
        self, name: str, payload: bytes, *, timeout: Seconds, ttr: Seconds = 60, priority: int = 0
    ) -> JobResult | None:
        """As ``Jobs.run``. Raises: Disconnected if the connection breaks: the server then forgets the job."""
        return self._lines.do(self._talk.run(name, payload, timeout, ttr, priority))

    # -- doing work ------------------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, *names: str, wait: Seconds = 0) -> Iterator[RemoteLeased | None]:
        """As ``Jobs.lease``: the lease extends itself while the block runs."""
        found = self.lease_many(*names, most=1, wait=wait)
        if not found:
            yield None
            return
        job = found[0]
        self._keeper.keep(job)
        is_done = False
        try:
            yield job
            is_done = True
            if not job.is_over:
                job.complete(job.result)
        except BaseException as error:
            # Work that is done and could not be told is not failed: the server gives it out again.
            if not job.is_over and not (is_done and isinstance(error, Disconnected)):
                try:
                    job.fail(error_text(error))
                except LaminaError as problem:  # what went wrong first is what matters
                    error.add_note(f"and the job could not be failed: {problem}")
            raise
        finally:
            self._keeper.let_go(job)

    def lease_many(self, *names: str, most: int, wait: Seconds = 0) -> list[RemoteLeased]:
        """Up to ``most`` jobs at once, each to be completed or failed by the caller within its time to run."""
        return [RemoteLeased(self, job) for job in self._lines.do(self._talk.lease(names, most, wait))]

    def lease_once(self, *names: str, most: int, wait: Seconds = 0) -> list[RemoteLeased]:
        """``lease_many``, but a connection that breaks is told at once, for who has other things to do meanwhile."""
        return [RemoteLeased(self, job) for job in self._lines.do(self._prompt_talk.lease(names, most, wait))]

    def complete(self, id: str, result: bytes = b"") -> None:
        """Raises: JobNotFound, DuplicateResult."""
        self._lines.do(self._talk.complete(id, result))

    def fail(self, id: str, error: bytes = b"") -> None:
        """Another attempt if ``max_fails`` allows it, else the job is failed. Raises: JobNotFound, DuplicateResult."""
        self._fail(id, error, None)

    def _fail(self, id: str, error: bytes, attempt: int | None) -> None:
        """Knowing which attempt it is, a fail that got lost can be told from one that did not."""
        self._lines.do(self._talk.fail(id, error, attempt))

    def bury(self, id: str, error: bytes = b"") -> None:
        """Failed for good, whatever ``max_fails`` says."""
        self._lines.do(self._talk.bury(id, error))

    def touch(self, id: str, ttr: Seconds) -> None:
        """The lease lasts so long from now. Raises: JobNotFound, NotLeased."""
        self._lines.do(self._talk.touch(id, ttr))

    def release(self, id: str, delay: Seconds = 0) -> None:
        """Give a leased job back; the attempt does not count. Raises: JobNotFound, NotLeased."""
        self._lines.do(self._talk.release(id, delay))

    # -- looking after it --------------------------------------------------------------------------------------------

    def result(self, id: str, wait: Seconds = 0) -> JobResult | None:
        """How the job ended; None if it has not in time. Raises: JobNotFound."""
        return self._lines.do(self._talk.result(id, wait))

    def delete(self, id: str) -> None:
        self._lines.do(self._talk.delete(id))

    def redrive(self, id: str) -> None:
        """A failed job starts again as if new. Raises: JobNotFound, BadJob."""
        self._lines.do(self._talk.redrive(id))

    def redrive_queue(self, name: str, limit: int = 1000) -> int:
        """The same for the failed jobs of a queue. Returns how many."""
        return self._lines.do(self._talk.redrive_queue(name, limit))

    def pause(self, name: str) -> None:
        """Hand out no job of this queue until ``resume``."""
        self._lines.do(self._talk.pause(name))

    def resume(self, name: str) -> None:
        self._lines.do(self._talk.resume(name))

    def show(self, id: str) -> JobView:
        """Raises: JobNotFound."""
        return self._lines.do(self._talk.show(id))

    def list(self, name: str, state: str = "ready", *, offset: int = 0, limit: int = 100) -> list[JobView]:
        """As ``Jobs.list``, page by page: what comes or goes meanwhile may be missed or seen twice."""
        return self._lines.do(self._talk.listed(name, state, offset, limit))

    def queues(self) -> Sequence[QueueView]:
        return self._lines.do(self._talk.queues())

    def clean(self) -> dict[str, int]:
        """Not over a connection. Raises: WireError."""
        raise no_cleaning()


def no_cleaning() -> WireError:
    hint = 'it cleans by itself; by hand: stop it, then "lamina jobs clean --data DIR"'
    return WireError("a server cannot be told to clean its jobs", hint=hint)
