"""The jobs of a server for coroutines: the methods of ``RemoteJobs``, awaited. No threads; of whichever loop runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from lamina.client.endpoint import Endpoint
from lamina.client.jobs import no_cleaning
from lamina.client.jobs_talk import JobsTalk
from lamina.client.leased import AsyncRemoteLeased
from lamina.client.workq_lines_aio import AsyncWorkqLines
from lamina.engines.jobs.api import Seconds, error_text
from lamina.engines.jobs.views import JobResult, JobView, QueueView
from lamina.errors import Disconnected, JobError, LaminaError

logger = logging.getLogger("lamina.jobs")


class AsyncRemoteJobs:
    """``jobs.aio``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._talk = JobsTalk(endpoint)
        self._lines = AsyncWorkqLines(endpoint)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._lines.endpoint}>"

    def close(self) -> None:
        """Hang up, soon. From any thread."""
        self._lines.close()

    async def closed(self) -> None:
        """Hang up on the connections of the running loop, and wait until that is done."""
        await self._lines.closed()

    async def add(self, name: str, payload: bytes, **options: object) -> str:
        return await self._lines.do(self._talk.add(name, payload, options))

    async def add_many(self, name: str, payloads: Iterable[bytes], **options: object) -> list[str]:
        return await self._lines.do(self._talk.add_many(name, payloads, options))

    async def schedule(self, name: str, payload: bytes, at: datetime, **options: object) -> str:
        return await self.add(name, payload, at=at, **options)

    async def run(
        self, name: str, payload: bytes, *, timeout: Seconds, ttr: Seconds = 60, priority: int = 0
    ) -> JobResult | None:
        return await self._lines.do(self._talk.run(name, payload, timeout, ttr, priority))

    @asynccontextmanager
    async def lease(self, *names: str, wait: Seconds = 0) -> AsyncIterator[AsyncRemoteLeased | None]:
        found = await self.lease_many(*names, most=1, wait=wait)
        if not found:
            yield None
            return
        job = found[0]
        keeping = asyncio.create_task(_keep(job))
        is_done = False
        try:
            yield job
            is_done = True
            if not job.is_over:
                await job.complete(job.result)
        except BaseException as error:
            # As in ``RemoteJobs.lease``.
            if not job.is_over and not (is_done and isinstance(error, Disconnected)):
                try:
                    await job.fail(error_text(error))
                except LaminaError as problem:  # what went wrong first is what matters
                    error.add_note(f"and the job could not be failed: {problem}")
            raise
        finally:
            keeping.cancel()
            await asyncio.wait([keeping])

    async def lease_many(self, *names: str, most: int, wait: Seconds = 0) -> list[AsyncRemoteLeased]:
        """If it is cancelled while it waits, the server gives the jobs to the next who asks."""
        found = await self._lines.do(self._talk.lease(names, most, wait))
        return [AsyncRemoteLeased(self, job) for job in found]

    async def complete(self, id: str, result: bytes = b"") -> None:
        await self._lines.do(self._talk.complete(id, result))

    async def fail(self, id: str, error: bytes = b"") -> None:
        await self._fail(id, error, None)

    async def _fail(self, id: str, error: bytes, attempt: int | None) -> None:
        await self._lines.do(self._talk.fail(id, error, attempt))

    async def bury(self, id: str, error: bytes = b"") -> None:
        await self._lines.do(self._talk.bury(id, error))

    async def touch(self, id: str, ttr: Seconds) -> None:
        await self._lines.do(self._talk.touch(id, ttr))

    async def release(self, id: str, delay: Seconds = 0) -> None:
        await self._lines.do(self._talk.release(id, delay))

    async def result(self, id: str, wait: Seconds = 0) -> JobResult | None:
        return await self._lines.do(self._talk.result(id, wait))

    async def delete(self, id: str) -> None:
        await self._lines.do(self._talk.delete(id))

    async def redrive(self, id: str) -> None:
        await self._lines.do(self._talk.redrive(id))

    async def redrive_queue(self, name: str, limit: int = 1000) -> int:
        return await self._lines.do(self._talk.redrive_queue(name, limit))

    async def pause(self, name: str) -> None:
        await self._lines.do(self._talk.pause(name))

    async def resume(self, name: str) -> None:
        await self._lines.do(self._talk.resume(name))

    async def show(self, id: str) -> JobView:
        return await self._lines.do(self._talk.show(id))

    async def list(self, name: str, state: str = "ready", *, offset: int = 0, limit: int = 100) -> Sequence[JobView]:
        return await self._lines.do(self._talk.listed(name, state, offset, limit))

    async def queues(self) -> Sequence[QueueView]:
        return await self._lines.do(self._talk.queues())

    async def clean(self) -> dict[str, int]:
        """Not over a connection. Raises: WireError."""
        raise no_cleaning()


async def _keep(job: AsyncRemoteLeased) -> None:
    """Extend the lease whenever a third of its time has passed."""
    pause_s = job.ttr_s / 3
    while not job.is_over:
        await asyncio.sleep(pause_s)
        pause_s = job.ttr_s / 3
        try:
            await job.extend()
        except JobError:  # it was too late, or somebody else ended it
            return
        except Exception as error:  # whatever it was: without this the lease would be lost
            logger.warning("the lease of job %s could not be extended: %s", job.id, error)
            pause_s = min(pause_s, 1.0)
