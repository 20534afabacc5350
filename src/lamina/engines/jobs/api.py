"""Jobs inside your process: ``lamina.open(folder).jobs``.

    with jobs.lease("mail", wait=5) as job:     # None after five seconds without a job
        if job:
            job.result = send(job.payload)      # leaving the block completes the job, an exception fails it

Every call returns when what it says is as safe as the sync policy promises. ``jobs.aio`` has the same for coroutines.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import COMPLETED, PLACES, Job
from lamina.engines.jobs.keeping import Keeper
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.jobs.views import JobResult, JobView, QueueView, parse_id, show_id
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import BadJob, JobNotFound, LaminaError, LogClosed
from lamina.log.history import History
from lamina.log.teardown import Teardown

if TYPE_CHECKING:
    from lamina.engines.jobs.aio import AsyncJobs

Seconds = float | timedelta

DAY_S: Final = 86_400
_LONGEST_ERROR: Final = 10_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_PAYLOAD: Final = 1 << 20
_NAME_LETTERS: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")


class Jobs:
    """All jobs of a data folder."""

    def __init__(self, engine: JobEngine, history: History | None = None, *, clean_ms: int = 300_000) -> None:
        """Use ``lamina.open(folder).jobs``."""
        self.engine = engine
        self._upkeep = Upkeep(engine, clean_ms=clean_ms, history=history)
        self._upkeep.start()
        self._keeper = Keeper(engine)
        self._wakers: set[Callable[[], object]] = set()
        self._is_closed = False

    def close(self) -> None:
        """Write and sync everything and stop; who waits is told. Raises: what kept records out of the log."""
        self._is_closed = True
        with Teardown(self.engine.folder or "jobs in memory") as teardown:
            for wake in list(self._wakers):
                teardown.try_to(wake, "who waits is not woken")
            teardown.step(self._keeper.stop)
            teardown.step(self._upkeep.stop)
            teardown.step(self._upkeep.checkpoint_at_stop)
            teardown.step(self.engine.close)

    @property
    def aio(self) -> AsyncJobs:
        """The same for coroutines."""
        from lamina.engines.jobs.aio import AsyncJobs

        return AsyncJobs(self)

    @contextmanager
    def woken_at_close(self, wake: Callable[[], object]) -> Iterator[None]:
        """Around a wait. Raises: LogClosed, when it is over, if that was why."""
        self._wakers.add(wake)
        try:
            self._check_open()
            yield
        finally:
            self._wakers.discard(wake)
        self._check_open()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed("the jobs are closed", hint="open the data folder again")

    # -- giving work -----------------------------------------------------------------------------------------------

    def add(self, name: str, payload: bytes, **options: object) -> str:
        """A job for the queue ``name``. Returns its id.

        Options: ``id`` (a version 4 UUID), ``ttr`` (seconds a worker has, 60), ``ttl`` (seconds it lives, a day),
        ``priority`` (higher first, 0), ``max_attempts`` and ``max_fails`` (0: no limit, and the first fail is final),
        ``at`` (a datetime) or ``delay`` (seconds), ``unique`` (a key: refused while another job of the queue has it),
        ``backoff`` (seconds before the first retry, doubled each time).
        Raises: DuplicateJob, BadJob, StorageError.
        """
        fields = job_fields(name, payload, self.engine.world_ns(), **options)  # type: ignore[arg-type]
        self.engine.settle(self.engine.add(*fields))
        return show_id(fields[0])

    def add_many(self, name: str, payloads: Iterable[bytes], **options: object) -> list[str]:
        """A job for each payload, all with one write and one sync. Raises: as ``add``; those before stay added."""
        engine, ids, positions, state = self.engine, list[str](), [0], self.engine.state
        try:
            for payload in payloads:
                fields = job_fields(name, payload, engine.world_ns(), **options)  # type: ignore[arg-type]
                positions.append(engine.add(*fields))
                ids.append(show_id(fields[0]))
        finally:
            engine.settle(positions[-1])
        if engine.state is not state:  # records were refused meanwhile: perhaps ours
            for position in positions:
                engine.settle(position)
        return ids

    def schedule(self, name: str, payload: bytes, at: datetime, **options: object) -> str:
        """``add`` for a later time."""
        return self.add(name, payload, at=at, **options)

    def run(
        self, name: str, payload: bytes, *, timeout: Seconds, ttr: Seconds = 60, priority: int = 0
    ) -> JobResult | None:
        """Have the work done by a worker and wait for it. None if nobody finished it in time; then it is forgotten."""
        told = threading.Event()
        job = self.engine.run(*run_fields(name, payload, ttr, priority))

        def done(ended: Job, position: int) -> None:
            if ended is job:  # else it was deleted, and another has its id
                told.set()

        try:
            self.engine.expect_result(job.id, done)
            left = to_ms("timeout", timeout) / 1000
            with self.woken_at_close(told.set):
                while not job.is_processed and not told.wait(max(left, 0)):
                    # A worker has it: its lease, which may grow, is waited for too.
                    left = (job.lease_until - self.engine.clock.now_ns()) / 1e9
                    if left <= 0:
                        return None
            return result_of(job)
        except JobNotFound:  # somebody deleted it
            return None
        finally:
            self.engine.leave_result(job.id, done)
            self.engine.forget(job)

    # -- doing work ------------------------------------------------------------------------------------------------

    @contextmanager
    def lease(self, *names: str, wait: Seconds = 0) -> Iterator[Leased | None]:
        """The next job of any of the queues, or None when none came in time.

        While the block runs the lease extends itself. Leaving it completes the job with ``job.result``, unless it was
        completed, failed, buried or released before; an exception fails it with its text, and goes on.
        """
        found = self.lease_many(*names, most=1, wait=wait)
        if not found:
            yield None
            return
        job = found[0]
        self._keeper.keep(job)
        try:
            yield job
            if not job.is_over:
                job.complete(job.result)
        except BaseException as error:
            if not job.is_over:
                try:
                    job.fail(error_text(error))
                except LaminaError as problem:  # what went wrong first is what matters
                    error.add_note(f"and the job could not be failed: {problem}")
            raise
        finally:
            self._keeper.let_go(job)

    def lease_many(self, *names: str, most: int, wait: Seconds = 0) -> list[Leased]:
        """Up to ``most`` jobs at once, each to be completed or failed by the caller within its time to run."""
        check_lease(names, most)
        jobs, position = self.engine.lease(names, most)
        if not jobs and wait:
            jobs, position = self._wait_for_job(names, most, to_ms("wait", wait) / 1000)
        self.engine.settle(position)
        return [Leased(self, job) for job in jobs]

    def _wait_for_job(self, names: Sequence[str], most: int, seconds: float) -> tuple[list[Job], int]:
        told = threading.Event()
        found: list[tuple[list[Job], int]] = []

        def deliver(jobs: list[Job], position: int) -> None:
            found.append((jobs, position))
            told.set()

        waiter = LeaseWaiter(names, most, deliver)
        self.engine.expect_job(waiter)
        try:
            with self.woken_at_close(told.set):
                told.wait(seconds)
        except BaseException:  # interrupted: a job that came meanwhile goes back, as if nobody had asked
            self.engine.leave(waiter)
            with suppress(LaminaError):
                for job in found[0][0] if found else ():
                    self.engine.release(job.id)
            raise
        self.engine.leave(waiter)
        return found[0] if found else ([], 0)

    def complete(self, id: str, result: bytes = b"") -> None:
        """Raises: JobNotFound, DuplicateResult."""
        self.engine.settle(self.engine.complete(parse_id(id), check_payload(result)))

    def fail(self, id: str, error: bytes = b"") -> None:
        """Another attempt if ``max_fails`` allows it, else the job is failed. Raises: JobNotFound, DuplicateResult."""
        self.engine.settle(self.engine.fail(parse_id(id), check_payload(error)))

    def bury(self, id: str, error: bytes = b"") -> None:
        """Failed for good, whatever ``max_fails`` says."""
        self.engine.settle(self.engine.fail(parse_id(id), check_payload(error), for_good=True))

    def touch(self, id: str, ttr: Seconds) -> None:
        """The lease lasts so long from now. Raises: JobNotFound, NotLeased."""
        self.engine.settle(self.engine.touch(parse_id(id), to_ms("ttr", ttr, 1, DAY_S)))

    def release(self, id: str, delay: Seconds = 0) -> None:
        """Give a leased job back; the attempt does not count. Raises: JobNotFound, NotLeased."""
        self.engine.settle(self.engine.release(parse_id(id), to_ms("delay", delay)))

    # -- looking after it --------------------------------------------------------------------------------------------

    def result(self, id: str, wait: Seconds = 0) -> JobResult | None:
        """How the job ended; None if it has not in time. Raises: JobNotFound."""
        told, ended = threading.Event(), list[Job]()

        def done(job: Job, position: int) -> None:
            ended.append(job)
            told.set()

        job = self.engine.expect_result(parse_id(id), done)
        try:
            if not job.is_processed and wait:
                with self.woken_at_close(told.set):
                    told.wait(to_ms("wait", wait) / 1000)
        finally:
            self.engine.leave_result(job.id, done)
        job = ended[0] if ended else job
        if not job.is_processed:
            return None
        self.engine.settle(0 if job.is_foreground else job.changed)
        return result_of(job)

    def delete(self, id: str) -> None:
        self.engine.settle(self.engine.delete(parse_id(id)))

    def redrive(self, id: str) -> None:
        """A failed job starts again as if new. Raises: JobNotFound, BadJob."""
        self.engine.settle(self.engine.redrive(parse_id(id)))

    def redrive_queue(self, name: str, limit: int = 1000) -> int:
        """The same for the failed jobs of a queue. Returns how many."""
        done, position = self.engine.redrive_queue(check_name(name), check_count("limit", limit))
        self.engine.settle(position)
        return done

    def pause(self, name: str) -> None:
        """Hand out no job of this queue until ``resume``."""
        self.engine.settle(self.engine.pause(check_name(name)))

    def resume(self, name: str) -> None:
        self.engine.settle(self.engine.pause(check_name(name), pauses=False))

    def show(self, id: str) -> JobView:
        """Raises: JobNotFound."""
        with self.engine.lock:
            return JobView.of(self.engine.job(parse_id(id)))

    def list(self, name: str, state: str = "ready", *, offset: int = 0, limit: int = 100) -> list[JobView]:
        """Jobs of a queue in one state, in the order in which they are handed out. Raises: JobNotFound, BadJob."""
        if state not in PLACES:
            raise BadJob(f"{state!r} is no state of a job", hint=f"one of {', '.join(PLACES)}")
        check_count("offset", offset)
        check_count("limit", limit)
        with self.engine.lock:
            self.engine.tick()
            queue = self.engine.state.queues.get(name)
            if queue is None:
                raise JobNotFound(f"no queue {name!r}")
            return [JobView.of(job) for job in queue.lists[PLACES.index(state)].some(offset, limit)]

    def queues(self) -> Sequence[QueueView]:
        engine = self.engine
        with engine.lock:
            engine.tick()
            now = engine.clock.now_ns()
            named = sorted(engine.state.queues.items())
            return [QueueView.of(queue, engine.workers.count(name), now) for name, queue in named]

    def clean(self) -> dict[str, int]:
        """Rewrite every sealed segment now, but for those of the recent past. Returns what was done."""
        from dataclasses import asdict

        return asdict(self._upkeep.clean(everything=True))


class Leased:
    """A job in the hands of a worker."""

    def __init__(self, jobs: Jobs, job: Job) -> None:
        self._jobs = jobs
        self._job = job
        self.id: Final = show_id(job.id)
        self.name: Final = job.queue.name
        self.payload: Final = job.payload
        self.attempt: Final = job.attempts
        self.ttr_s: Final = job.ttr / 1000
        self.result = b""
        self.is_over = False
        """Completed, failed, buried or released: not in our hands any more."""

    def complete(self, result: bytes = b"") -> None:
        self._jobs.complete(self.id, result)
        self.is_over = True

    def fail(self, error: bytes = b"") -> None:
        self._jobs.fail(self.id, error)
        self.is_over = True

    def bury(self, error: bytes = b"") -> None:
        self._jobs.bury(self.id, error)
        self.is_over = True

    def release(self, delay: Seconds = 0) -> None:
        self._jobs.release(self.id, delay)
        self.is_over = True

    def extend(self) -> None:
        """The whole time to run again, from now. Raises: NotLeased if it has passed."""
        self._jobs.engine.touch(self._job.id, self._job.ttr)

    def __repr__(self) -> str:
        return f"<Leased {self.id} of {self.name}, attempt {self.attempt}>"


# -- values -----------------------------------------------------------------------------------------------------------


def job_fields(
    name: str,
    payload: bytes,
    now_ns: int,
    *,
    id: str | None = None,
    ttr: Seconds = 60,
    ttl: Seconds = DAY_S,
    priority: int = 0,
    max_attempts: int = 0,
    max_fails: int = 0,
    at: datetime | None = None,
    delay: Seconds = 0,
    unique: str = "",
    backoff: Seconds = 0,
) -> tuple[bytes, str, int, int, bytes, int, int, int, int | None, str, int]:
    """What ``JobEngine.add`` takes. Raises: BadJob naming the value that cannot be."""
    if at is not None and not isinstance(at, datetime):
        raise BadJob(f"at of {at!r} cannot be", hint="a datetime with a zone")
    if at is not None and at.tzinfo is None:
        raise BadJob("a time without a zone says nothing", hint="datetime.now(UTC) + timedelta(...)")
    if at is not None and delay:
        raise BadJob("give at or delay, not both")
    time = None if at is None else (at - _EPOCH) // timedelta(microseconds=1) * 1000
    if delay:
        time = now_ns + to_ms("delay", delay) * 1_000_000
    check_count("priority", priority, -(2**31), 2**31 - 1)
    check_count("max_attempts", max_attempts, 0, 255)
    check_count("max_fails", max_fails, 0, 255)
    if unique:
        check_name(unique, "unique key")
    return (
        uuid4().bytes if id is None else parse_id(id),
        check_name(name),
        to_ms("ttr", ttr, 1, DAY_S),
        to_ms("ttl", ttl, 1, 30 * DAY_S),
        check_payload(payload),
        priority,
        max_attempts,
        max_fails,
        time,
        unique,
        to_ms("backoff", backoff, 0, DAY_S),
    )


def run_fields(name: str, payload: bytes, ttr: Seconds, priority: int) -> tuple[bytes, str, int, bytes, int]:
    """What ``JobEngine.run`` takes."""
    check_count("priority", priority, -(2**31), 2**31 - 1)
    return uuid4().bytes, check_name(name), to_ms("ttr", ttr, 1, DAY_S), check_payload(payload), priority


def check_lease(names: Sequence[str], most: int) -> list[str]:
    """The names. Raises: BadJob."""
    if not names:
        raise BadJob("a lease takes at least one queue")
    check_count("most", most, 1, 1000)
    return [check_name(name) for name in names]


def check_count(what: str, number: int, least: int = 0, most: int = 2**32) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or not least <= number <= most:
        raise BadJob(f"{what} of {number!r} cannot be", hint=f"{least} to {most}")
    return number


def error_text(error: BaseException) -> bytes:
    """What a failed job remembers of an exception."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:  # it cannot even say what it is
        text = type(error).__name__
    return text[:_LONGEST_ERROR].encode(errors="backslashreplace")


def to_ms(what: str, value: Seconds, least_ms: int = 0, most_s: int = 30 * DAY_S) -> int:
    seconds = value.total_seconds() if isinstance(value, timedelta) else value
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not least_ms <= seconds * 1000 <= most_s * 1000:
        raise BadJob(f"{what} of {value!r} cannot be", hint=f"{least_ms / 1000:g} to {most_s} seconds")
    return round(seconds * 1000)


def check_name(name: str, what: str = "name") -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= 255 or not _NAME_LETTERS.issuperset(name):
        raise BadJob(f"{str(name)[:60]!r} cannot be a {what}", hint="1 to 255 letters, digits, _ . and -")
    return name


def check_payload(payload: bytes) -> bytes:
    if not isinstance(payload, bytes):
        raise TypeError(f"bytes are needed, not {type(payload).__name__}")
    if len(payload) > MAX_PAYLOAD:
        raise BadJob(f"{len(payload)} bytes are too many", hint=f"at most {MAX_PAYLOAD}; keep large things elsewhere")
    return payload


def result_of(job: Job) -> JobResult:
    return JobResult(show_id(job.id), job.state == COMPLETED, job.result or b"")
