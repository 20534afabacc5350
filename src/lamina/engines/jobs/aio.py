"""Jobs for coroutines: the methods of ``Jobs``, awaited. None blocks the loop or takes a thread while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

from lamina.engines.jobs.api import (
    DAY_S,
    Leased,
    Seconds,
    check_count,
    check_lease,
    check_name,
    check_payload,
    error_text,
    job_fields,
    result_of,
    run_fields,
    to_ms,
)
from lamina.engines.jobs.job import Job
from lamina.engines.jobs.views import JobResult, JobView, QueueView, parse_id, show_id
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import JobNotFound, LaminaError

if TYPE_CHECKING:
    from lamina.engines.jobs.api import Jobs


class AsyncJobs:
    """``jobs.aio``."""

    def __init__(self, jobs: Jobs) -> None:
        self._jobs = jobs
        self._engine = jobs.engine

    async def add(self, name: str, payload: bytes, **options: object) -> str:
        fields = job_fields(name, payload, self._engine.world_ns(), **options)  # type: ignore[arg-type]
        await self._engine.settled(self._engine.add(*fields))
        return show_id(fields[0])

    async def add_many(self, name: str, payloads: Iterable[bytes], **options: object) -> list[str]:
        engine, ids, positions, state = self._engine, list[str](), [0], self._engine.state
        try:
            for payload in payloads:
                fields = job_fields(name, payload, engine.world_ns(), **options)  # type: ignore[arg-type]
                positions.append(engine.add(*fields))
                ids.append(show_id(fields[0]))
        finally:
            await engine.settled(positions[-1])
        if engine.state is not state:  # records were refused meanwhile: perhaps ours
            for position in positions:
                await engine.settled(position)
        return ids

    async def schedule(self, name: str, payload: bytes, at: datetime, **options: object) -> str:
        return await self.add(name, payload, at=at, **options)

    async def run(
        self, name: str, payload: bytes, *, timeout: Seconds, ttr: Seconds = 60, priority: int = 0
    ) -> JobResult | None:
        job = self._engine.run(*run_fields(name, payload, ttr, priority))
        try:
            left = to_ms("timeout", timeout) / 1000
            while (ended := await self._ended(job.id, max(left, 0))) is None:
                # A worker has it: its lease, which may grow, is waited for too.
                left = (job.lease_until - self._engine.clock.now_ns()) / 1e9
                if left <= 0:
                    return None
            return result_of(job) if ended is job else None
        except JobNotFound:  # somebody deleted it
            return None
        finally:
            self._engine.forget(job)

    async def _ended(self, id: bytes, seconds: float) -> Job | None:
        """The job when it has ended, None if it has not in time. Raises: JobNotFound."""
        loop = asyncio.get_running_loop()
        told, ended = asyncio.Event(), list[Job]()

        def done(job: Job, position: int) -> None:
            ended.append(job)
            wake(loop, told.set)

        job = self._engine.expect_result(id, done)
        if job.is_processed or not seconds:
            self._engine.leave_result(id, done)
            return job if job.is_processed else None
        try:
            with self._jobs.woken_at_close(lambda: wake(loop, told.set)), suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await told.wait()
        finally:
            self._engine.leave_result(id, done)
        return ended[0] if ended else None

    @asynccontextmanager
    async def lease(self, *names: str, wait: Seconds = 0) -> AsyncIterator[AsyncLeased | None]:
        found = await self.lease_many(*names, most=1, wait=wait)
        if not found:
            yield None
            return
        job = found[0]
        self._jobs._keeper.keep(job.lease)
        try:
            yield job
            if not job.is_over:
                await job.complete(job.result)
        except BaseException as error:
            if not job.is_over:
                try:
                    await job.fail(error_text(error))
                except LaminaError as problem:  # what went wrong first is what matters
                    error.add_note(f"and the job could not be failed: {problem}")
            raise
        finally:
            self._jobs._keeper.let_go(job.lease)

    async def lease_many(self, *names: str, most: int, wait: Seconds = 0) -> list[AsyncLeased]:
        check_lease(names, most)
        jobs, position = self._engine.lease(names, most)
        if not jobs and wait:
            jobs, position = await self._wait_for_job(names, most, to_ms("wait", wait) / 1000)
        try:
            await self._engine.settled(position)
        except asyncio.CancelledError:
            self._give_back(jobs)
            raise
        return [AsyncLeased(self, Leased(self._jobs, job)) for job in jobs]

    def _give_back(self, jobs: Iterable[Job]) -> None:
        """Cancelled: what came meanwhile goes back to its queue, as if nobody had asked."""
        with suppress(LaminaError):
            for job in jobs:
                self._engine.release(job.id)
            self._engine.push()

    async def _wait_for_job(self, names: tuple[str, ...], most: int, seconds: float) -> tuple[list[Job], int]:
        loop = asyncio.get_running_loop()
        found: asyncio.Future[tuple[list[Job], int]] = loop.create_future()

        def tell(jobs: list[Job], position: int) -> None:
            if not found.done():
                found.set_result((jobs, position))

        def deliver(jobs: list[Job], position: int) -> None:
            delivered.append((jobs, position))
            wake(loop, tell, jobs, position)

        delivered: list[tuple[list[Job], int]] = []
        waiter = LeaseWaiter(names, most, deliver)
        self._engine.expect_job(waiter)
        try:
            with self._jobs.woken_at_close(lambda: wake(loop, tell, [], 0)):
                async with asyncio.timeout(seconds):
                    return await asyncio.shield(found)
        except TimeoutError:
            self._engine.leave(waiter)
            return delivered[0] if delivered else ([], 0)
        except BaseException:
            self._engine.leave(waiter)
            self._give_back(delivered[0][0] if delivered else ())
            raise

    async def complete(self, id: str, result: bytes = b"") -> None:
        await self._engine.settled(self._engine.complete(parse_id(id), check_payload(result)))

    async def fail(self, id: str, error: bytes = b"") -> None:
        await self._engine.settled(self._engine.fail(parse_id(id), check_payload(error)))

    async def bury(self, id: str, error: bytes = b"") -> None:
        await self._engine.settled(self._engine.fail(parse_id(id), check_payload(error), for_good=True))

    async def release(self, id: str, delay: Seconds = 0) -> None:
        await self._engine.settled(self._engine.release(parse_id(id), to_ms("delay", delay)))

    async def touch(self, id: str, ttr: Seconds) -> None:
        await self._engine.settled(self._engine.touch(parse_id(id), to_ms("ttr", ttr, 1, DAY_S)))

    async def redrive(self, id: str) -> None:
        await self._engine.settled(self._engine.redrive(parse_id(id)))

    async def redrive_queue(self, name: str, limit: int = 1000) -> int:
        done, position = self._engine.redrive_queue(check_name(name), check_count("limit", limit))
        await self._engine.settled(position)
        return done

    async def pause(self, name: str) -> None:
        await self._engine.settled(self._engine.pause(check_name(name)))

    async def resume(self, name: str) -> None:
        await self._engine.settled(self._engine.pause(check_name(name), pauses=False))

    async def clean(self) -> dict[str, int]:
        return await asyncio.to_thread(self._jobs.clean)

    async def delete(self, id: str) -> None:
        await self._engine.settled(self._engine.delete(parse_id(id)))

    async def result(self, id: str, wait: Seconds = 0) -> JobResult | None:
        job = await self._ended(parse_id(id), to_ms("wait", wait) / 1000)
        if job is None:
            return None
        await self._engine.settled(0 if job.is_foreground else job.changed)
        return result_of(job)

    async def show(self, id: str) -> JobView:
        return self._jobs.show(id)

    async def list(self, name: str, state: str = "ready", *, offset: int = 0, limit: int = 100) -> Sequence[JobView]:
        return self._jobs.list(name, state, offset=offset, limit=limit)

    async def queues(self) -> Sequence[QueueView]:
        return self._jobs.queues()


def wake(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Call into the loop from any thread; a loop that was closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(call, *arguments)


class AsyncLeased:
    """A job in the hands of a coroutine."""

    def __init__(self, jobs: AsyncJobs, lease: Leased) -> None:
        self._jobs = jobs
        self.lease = lease
        self.id, self.name, self.payload, self.attempt = lease.id, lease.name, lease.payload, lease.attempt
        self.ttr_s = lease.ttr_s
        self.result = b""
        self.is_over = False

    async def complete(self, result: bytes = b"") -> None:
        await self._jobs.complete(self.id, result)
        self.is_over = True

    async def fail(self, error: bytes = b"") -> None:
        await self._jobs.fail(self.id, error)
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
