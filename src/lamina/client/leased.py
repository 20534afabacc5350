"""A job of a server in the hands of a worker: what ``Leased`` and ``AsyncLeased`` are inside a process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lamina.client.jobs_reading import NumberedJob
from lamina.engines.jobs.api import Seconds

if TYPE_CHECKING:
    from lamina.client.jobs import RemoteJobs
    from lamina.client.jobs_aio import AsyncRemoteJobs


class InHand:
    """What is known of it."""

    def __init__(self, job: NumberedJob) -> None:
        self.id: Final = job.id
        self.name: Final = job.name
        self.payload: Final = job.payload
        self.attempt: Final = job.attempt
        self.ttr_s: Final = job.ttr_s
        self.result = b""
        self.is_over = False
        """Completed, failed, buried or released: not in our hands any more."""

    def __repr__(self) -> str:
        return f"<Leased {self.id} of {self.name}, attempt {self.attempt}>"


class RemoteLeased(InHand):
    """For threads."""

    def __init__(self, jobs: RemoteJobs, job: NumberedJob) -> None:
        super().__init__(job)
        self._jobs = jobs

    def complete(self, result: bytes = b"") -> None:
        self._jobs.complete(self.id, result)
        self.is_over = True

    def fail(self, error: bytes = b"") -> None:
        self._jobs._fail(self.id, error, self.attempt)
        self.is_over = True

    def bury(self, error: bytes = b"") -> None:
        self._jobs.bury(self.id, error)
        self.is_over = True

    def release(self, delay: Seconds = 0) -> None:
        self._jobs.release(self.id, delay)
        self.is_over = True

    def extend(self) -> None:
        """The whole time to run again, from now. Raises: NotLeased if it has passed."""
        self._jobs.touch(self.id, self.ttr_s)


class AsyncRemoteLeased(InHand):
    """For coroutines."""

    def __init__(self, jobs: AsyncRemoteJobs, job: NumberedJob) -> None:
        super().__init__(job)
        self._jobs = jobs

    async def complete(self, result: bytes = b"") -> None:
        await self._jobs.complete(self.id, result)
        self.is_over = True

    async def fail(self, error: bytes = b"") -> None:
        await self._jobs._fail(self.id, error, self.attempt)
        self.is_over = True

    async def bury(self, error: bytes = b"") -> None:
        await self._jobs.bury(self.id, error)
        self.is_over = True

    async def release(self, delay: Seconds = 0) -> None:
        await self._jobs.release(self.id, delay)
        self.is_over = True

    async def extend(self) -> None:
        """The whole time to run again, from now. Raises: NotLeased if it has passed."""
        await self._jobs.touch(self.id, self.ttr_s)
