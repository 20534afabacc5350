"""Jobs on a log: commands are checked against the state, logged, and applied in the order of the log.

A command returns the position of its record. It must not be answered before the log says that this position has the
level its policy promises (``JobEngine.settle`` or ``settled``).

Threads: every method is safe from any thread.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice

from lamina import errors
from lamina.clock import Clock, SteadyClock, SystemClock
from lamina.engines import logged, loops
from lamina.engines.jobs import codec, loading
from lamina.engines.jobs.core import State, backed_off
from lamina.engines.jobs.job import AT_FAILED, AT_LEASED, AT_READY, FAILED, MS, NEVER, Counts, Job, Queue
from lamina.engines.jobs.volatile import VolatileLog
from lamina.engines.jobs.waiting import LeaseWaiter, Results, ResultWaiter, Workers, best_of
from lamina.errors import StorageError
from lamina.log.commit import Committer
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.measured import WAIT_BOUNDS
from lamina.log.options import LogOptions
from lamina.log.sync import interval
from lamina.log.teardown import Teardown
from lamina.log.writer import Log

_TOLD_IN_NOTES = ((), (codec.START, codec.TIMEOUT), (codec.START, codec.TIMEOUT, codec.COMPLETE, codec.FAIL))
_PAUSE_NS = 1000 * MS  # before what the disk refused is tried again
_MOST_LEASED_BYTES = 4 << 20  # payloads of one lease; the first job is handed out whatever its size
_WAITS = tuple(int(bound * 1e9) for bound in WAIT_BOUNDS)
_MOST_PER_TICK = 1000  # what falls due at once is done in pieces, so that nobody waits long for the lock

DEFAULT_OPTIONS = LogOptions(sync=interval(1000))


def _check_id(id: bytes) -> None:
    if id.startswith(codec.RESERVED):
        raise errors.BadJob("Reserved ID", hint="expected any other version 4 UUID, such as uuid.uuid4() makes")


class JobEngine(logged.Logged):
    """All jobs of one folder. Open it with ``JobEngine.open``."""

    def __init__(self, log: Log | VolatileLog, clock: Clock, folder: str | None, files: Files) -> None:
        """Use ``JobEngine.open``."""
        super().__init__(log, clock)
        self.folder = folder
        self.files = files
        self.state = State()
        self.evicted = 0  # unprocessed jobs that expired since the start
        self.counts: dict[str, Counts] = {}  # by the name of the queue, since the start
        self.waits = [0] * (len(_WAITS) + 1)  # leases, by how long the job had been ready (measured.WAIT_BOUNDS)
        self.workers = Workers()
        self.results = Results()
        self.on_due: Callable[[], None] | None = None
        """Called when something falls due earlier than before: whoever calls ``tick`` has to come earlier."""
        self._known_due, self._stuck_until = NEVER, 0
        self.replayed = self.ahead = 0  # records, at the start; nanoseconds, of the world's time
        self.checkpointed = 0  # up to where the checkpoint on disk covers the log

    @classmethod
    def open(
        cls,
        folder: str | None,
        *,
        options: LogOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
        threaded: bool = True,
        progress: Callable[[int, int], None] | None = None,
    ) -> JobEngine:
        """Open the jobs of a folder, a real workq's too, or jobs that are kept nowhere (``folder=None``).

        ``progress`` is told how many bytes of how many were read.
        Raises: what ``Log.open`` does; Corruption for a record that is no job command.
        """
        steady, disk, wanted = SteadyClock(clock or SystemClock()), files or RealFiles(), options or DEFAULT_OPTIONS
        return loading.opened(cls, folder, wanted, disk, steady, committer, threaded, progress)

    def close(self) -> None:
        """Write and sync everything. Raises: what kept records out of the log; it is closed all the same."""
        with Teardown(self.folder or "jobs in memory") as teardown:
            self.close_log(teardown)

    # -- jobs ----------------------------------------------------------------------------------------------------

    def add(
        self,
        id: bytes,
        name: str,
        ttr: int,
        ttl: int,
        payload: bytes,
        priority: int = 0,
        max_attempts: int = 0,
        max_fails: int = 0,
        time: int | None = None,
        unique: str = "",
        backoff: int = 0,
    ) -> int:
        """A new job, for now or for a ``time``.

        Raises: DuplicateJob, BadJob (its life is over before it starts, or its id is reserved).
        """
        _check_id(id)
        with self.lock:
            now = self._now()
            logged.check_room(self.reserve, len(payload))
            if time is not None:
                if time <= codec.ZERO_TIME:
                    time = None  # as workq: the zero time is no time
                elif time + self.ahead + ttl * MS <= now:
                    raise errors.BadJob("Invalid Time", hint="time + ttl is past")
            state = self.state
            if id in state.jobs:
                raise errors.DuplicateJob("Duplicate job")
            queue = state.queue(name)
            if unique and unique in queue.uniques:
                raise errors.DuplicateJob("Duplicate job", hint=f"a job with the key {unique} is not done yet")
            record = codec.encode_job(id, name, ttr, ttl, priority, max_attempts, max_fails, payload, time, now)
            traits = None
            if unique or backoff:
                self._fence()
                traits = codec.encode_note(codec.TRAITS, id, backoff, unique.encode())
            position = self._append(record, traits)
            job = state.add(position, id, name, ttr, ttl, priority, max_attempts, max_fails, payload, time, now)
            if traits is not None:
                state.set_traits(job, backoff, unique)
            counts = self._counts(queue)
            counts.added += 1
            if job.at == AT_READY:
                self._serve(queue)
            self._look_at_due()
            return position

    def run(self, id: bytes, name: str, ttr: int, payload: bytes, priority: int = 0) -> Job:
        """A job in the foreground: in memory only, until its caller ``forget``s it. Raises: DuplicateJob, BadJob."""
        _check_id(id)
        with self.lock:
            now = self._now()
            if id in self.state.jobs:
                raise errors.DuplicateJob("Duplicate job")
            job = self.state.add(now, id, name, ttr, 0, priority, 0, 0, payload, None, now)
            counts = self._counts(job.queue)
            counts.added += 1
            self._serve(job.queue)
            return job

    def forget(self, job: Job) -> None:
        """A foreground job has done its service."""
        with self.lock:
            if self.state.jobs.get(job.id) is job and job.is_foreground:
                self.state.remove(job)

    def lease(self, names: Sequence[str], most: int = 1) -> tuple[list[Job], int]:
        """Up to ``most`` jobs that are ready in any of the queues, best first, and the position to wait for."""
        with self.lock:
            self._now()
            return self._hand_out(names, most)

    def _hand_out(self, names: Sequence[str], most: int) -> tuple[list[Job], int]:
        state = self.state
        if most == 1 and len(names) == 1:  # what nearly everybody asks for
            queue = state.queue(names[0])
            if not queue.ready.size or queue.is_paused:
                return [], 0
            job = queue.ready.first()
            position = self._start(job)
            self._look_at_due()
            return [job], position
        queues = [state.queue(name) for name in dict.fromkeys(names)]
        jobs: list[Job] = []
        position = size = 0
        while len(jobs) < most and size < _MOST_LEASED_BYTES and (best := best_of(queues)) is not None:
            try:
                position = self._start(best) or position
            except StorageError:
                self._give_back_foreground(jobs)
                raise
            size += len(best.payload)
            jobs.append(best)
        if jobs:
            self._look_at_due()
        return jobs, position

    def _give_back_foreground(self, jobs: list[Job]) -> None:
        """The lease they were in was refused. Others are taken back with the log, which knows nothing of these."""
        for job in jobs:
            if job.is_foreground and job.at == AT_LEASED:
                self.state.release(self.clock.now_ns(), job, 0)

    def expect_job(self, waiter: LeaseWaiter) -> None:
        """Hand the next job of those names to ``waiter``; ``workers.remove`` takes it off again."""
        with self.lock:
            self._now()
            queues = [self.state.queue(name) for name in waiter.names]
            self.workers.add(waiter)
            try:
                for queue in queues:
                    self._serve(queue)
            except (StorageError, loops.MustWait):
                if self.workers.remove(waiter):  # else it was served when the state had been built again
                    raise

    def leave(self, waiter: LeaseWaiter) -> bool:
        """The waiter wants no job any more. False if it has been handed one."""
        with self.lock:
            return self.workers.remove(waiter)

    def complete(self, id: bytes, result: bytes) -> int:
        """Raises: JobNotFound, DuplicateResult."""
        with self.lock:
            self._now()
            job = self._unprocessed(id)
            position = self._log(job, codec.COMPLETE, result)
            self.state.complete(position, job, result)
            counts = self._counts(job.queue)
            counts.completed += 1
            self.results.tell(job)
            return 0 if job.is_foreground else position

    def fail(self, id: bytes, result: bytes, *, for_good: bool = False) -> int:
        """The job goes back to its queue if it may fail again, else it is failed (``for_good``: buried at once)."""
        with self.lock:
            self._now()
            job = self._unprocessed(id)
            counts = self._counts(job.queue)
            has_attempts = not job.max_attempts or job.attempts < job.max_attempts
            if job.max_fails > job.fails + 1 and has_attempts and not for_good:
                delay = backed_off(job, job.fails + 1)
                self._fence_for(job)
                self.state.timeout(self._log(job, codec.TIMEOUT), job)  # what workq can see of it
                position = self._note(job, codec.RETRY, delay, result)
                self.state.retry(position, job, delay, result)
                counts.failed += 1
                self._after_return(job)
            else:
                position = self._log(job, codec.FAIL, result)
                self.state.fail(position, job, result)
                counts.failed += 1
                counts.dead += 1
                self.results.tell(job)
            return 0 if job.is_foreground else position

    def delete(self, id: bytes) -> int:
        with self.lock:
            self._now()
            job = self._known(id)
            position = self._log(job, codec.DELETE)
            self.state.remove(job)
            return 0 if job.is_foreground else position

    def touch(self, id: bytes, ttr: int) -> int:
        """The lease lasts ``ttr`` milliseconds from now. Raises: JobNotFound, NotLeased."""
        with self.lock:
            self._now()
            job = self._leased(id)
            position = self._note(job, codec.TOUCH, ttr)
            self.state.touch(position, job, ttr)
            self._look_at_due()
            return 0 if job.is_foreground else position

    def release(self, id: bytes, delay: int = 0) -> int:
        """Give a leased job back, to be had again after ``delay`` milliseconds; the attempt does not count."""
        with self.lock:
            self._now()
            job = self._leased(id)
            self._fence_for(job)
            if not job.max_attempts or job.attempts < job.max_attempts:
                self.state.timeout(self._log(job, codec.TIMEOUT), job)  # what workq can see of it
            position = self._note(job, codec.RELEASE, delay)
            self.state.release(position, job, delay)
            self._after_return(job)
            return 0 if job.is_foreground else position

    def redrive(self, id: bytes) -> int:
        """A failed job starts again. Raises: JobNotFound, DuplicateJob (its unique key is taken), BadJob."""
        with self.lock:
            self._now()
            job = self._known(id)
            if job.state != FAILED:
                raise errors.BadJob("Not failed", hint="only a failed job can be driven again")
            if job.unique and job.unique in job.queue.uniques:
                raise errors.DuplicateJob("Duplicate job", hint=f"a job with the key {job.unique} is not done yet")
            return self._redrive(job)

    def _redrive(self, job: Job) -> int:
        position = self._note(job, codec.REDRIVE)
        self.state.redrive(position, job)
        self._after_return(job)
        return 0 if job.is_foreground else position

    def redrive_queue(self, name: str, limit: int) -> tuple[int, int]:
        """Drive up to ``limit`` failed jobs of a queue again, best first. Returns how many, and the position."""
        with self.lock:
            self._now()
            queue = self.state.queues.get(name)
            if queue is None:
                raise errors.JobNotFound("no such queue")
            done = position = 0
            while done < limit:
                may = (job for job in queue.lists[AT_FAILED] if job.unique not in queue.uniques)
                found = list(islice(may, limit - done))
                for job in found:
                    if job.unique not in queue.uniques:  # nor is it that of one before it
                        position = self._redrive(job)
                        done += 1
                if not found:
                    break
            return done, position

    def pause(self, name: str, *, pauses: bool = True) -> int:
        """Hand out no job of this queue until it is resumed."""
        with self.lock:
            self._now()
            queue = self.state.queue(name)
            kind = codec.PAUSE if pauses else codec.RESUME
            self._fence()
            position = self._append(codec.encode_note(kind, bytes(16), 0, name.encode()))
            queue.is_paused = pauses
            self._serve(queue)
            return position

    def job(self, id: bytes) -> Job:
        """Raises: JobNotFound."""
        with self.lock:
            self._now()
            return self._known(id)

    def leave_result(self, id: bytes, waiter: ResultWaiter) -> bool:
        """The waiter does not want to know any more. False if it has been told."""
        with self.lock:
            return self.results.remove(id, waiter)

    def expect_result(self, id: bytes, waiter: ResultWaiter) -> Job:
        """The job; if it is not processed yet, ``waiter`` is told when it is. Raises: JobNotFound."""
        with self.lock:
            self._now()
            job = self._known(id)
            if not job.is_processed:
                self.results.add(id, waiter)
            return job

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> float | None:
        """Do what has fallen due. Returns the seconds until more does, None if nothing will."""
        with self.lock:
            try:
                if isinstance(self.log, Log) and self.log.is_broken_off:  # building the state again failed before
                    loops.must_wait()
                    self.undo_refused(StorageError("records were refused"))
                self.push()  # or what falls due now would get the time of what gathered before
                self._do_due(self.clock.now_ns(), _MOST_PER_TICK)
                self.push()
            except StorageError:  # whoever waits for a record is told
                self._stuck_until = self.clock.now_ns() + _PAUSE_NS
            self._known_due = due = self._next_due()
            return None if due == NEVER else max(due - self.clock.now_ns(), 0) / 1e9

    def be_ready(self) -> None:
        """Wait until a loop can go on: nobody has the engine, what was refused is taken back, the log takes records.

        If it takes none, whoever wants to write next on the loop is told why.
        """
        if self.reserve is not None:
            self.reserve.look()
        with self.lock:
            if self.refusal is not None:
                with suppress(StorageError):
                    self.push()
            if self.journal.is_careful:
                try:  # it takes the end of a job that never was
                    self._append(codec.encode_plain(codec.EXPIRE, bytes(16)))
                except StorageError as error:
                    self.unready = error

    def world_ns(self) -> int:
        """What scheduled times are given in."""
        return self.clock.now_ns() - self.ahead

    def _now(self) -> int:
        now = self.clock.now_ns()
        if self.refusal is not None or (self.journal.pending and self.journal.is_old(now)):
            with suppress(StorageError):
                self.push()
        if self._next_due() <= now:
            self._do_due(now, _MOST_PER_TICK)
        return now

    def _next_due(self) -> int:
        return self._stuck_until or self.state.next_due()

    def _do_due(self, now: int, most: int) -> None:
        """At most so much at once. When the disk refuses, it is tried again a second later: nobody else is stopped."""
        if now < self._stuck_until:
            return
        try:
            if self._stuck_until:
                self._stuck_until = 0
                self._serve_all()
            while most and self.state.next_due() <= now:
                most -= 1
                job = self.state.agenda.first()
                assert job is not None
                self._do(job, now)
        except StorageError:
            self._stuck_until = now + _PAUSE_NS

    def _do(self, job: Job, now: int) -> None:
        if job.expires <= now:
            self._log(job, codec.EXPIRE)
            self.evicted += not job.is_processed
            self.state.remove(job)
        elif job.at == AT_LEASED:
            position = self._log(job, codec.TIMEOUT)
            self.state.timeout(position, job)
            counts = self._counts(job.queue)
            counts.timed_out += 1
            if job.is_processed:
                counts.dead += 1
                self.results.tell(job)
            else:
                self._after_return(job)
        else:
            self.state.wake(job)
            self._serve(job.queue)

    def _look_at_due(self) -> None:
        due = self._next_due()
        if due < self._known_due:
            self._known_due = due
            if self.on_due is not None:
                self.on_due()

    # -- handing out ---------------------------------------------------------------------------------------------

    def _serve(self, queue: Queue) -> None:
        """Hand ready jobs to waiting workers."""
        workers = self.workers
        while queue.ready.size and not queue.is_paused and (waiter := workers.first(queue.name)) is not None:
            jobs, position = self._hand_out(waiter.names, waiter.most)
            workers.remove(waiter)
            waiter.deliver(jobs, position)

    def _serve_all(self) -> None:
        for name in self.workers.names():
            self._serve(self.state.queue(name))

    def _start(self, job: Job) -> int:
        position = self._log(job, codec.START)
        counts = self._counts(job.queue)
        counts.leased += 1
        if job.attempts or job.given_back:
            counts.again += 1
        waited = max(position - (job.ready_at or job.added), 0)
        counts.waited += waited
        self.waits[bisect_left(_WAITS, waited)] += 1
        self.state.start(position, job)
        return 0 if job.is_foreground else position

    def _counts(self, queue: Queue) -> Counts:
        if queue.counts is None:  # it is new, or the state was built anew
            queue.counts = self.counts.setdefault(queue.name, Counts())
        return queue.counts

    def _after_return(self, job: Job) -> None:
        """A job waits again."""
        if job.at == AT_READY:
            self._serve(job.queue)
        self._look_at_due()

    def _known(self, id: bytes) -> Job:
        job = self.state.jobs.get(id)
        if job is None:
            raise errors.JobNotFound("no job has this id")
        return job

    def _unprocessed(self, id: bytes) -> Job:
        job = self._known(id)
        if job.is_processed:
            raise errors.DuplicateResult("Duplicate result")
        return job

    def _leased(self, id: bytes) -> Job:
        job = self._known(id)
        if job.at != AT_LEASED:
            raise errors.NotLeased("Not leased")
        return job

    # -- the log -------------------------------------------------------------------------------------------------

    def _log(self, job: Job, kind: int, result: bytes = b"") -> int:
        """Log a change of a job; those in the foreground live without a log."""
        if job.is_foreground:
            return self.clock.now_ns()
        if job.beyond and kind in _TOLD_IN_NOTES[job.beyond]:
            return self._note(job, codec.BEYOND + kind, 0, result)
        if kind == codec.COMPLETE or kind == codec.FAIL:
            return self._append(codec.encode_result(kind, job.id, result))
        return self._append(codec.encode_plain(kind, job.id))

    def _note(self, job: Job, kind: int, number: int = 0, text: bytes = b"") -> int:
        if job.is_foreground:
            return self.clock.now_ns()
        self._fence()
        return self._append(codec.encode_note(kind, job.id, number, text))

    def _fence_for(self, job: Job) -> None:
        """A note about this job comes, and nothing may stand between the record before it and the note."""
        if not job.is_foreground:
            self._fence()

    def _fence(self) -> None:
        if not self.state.is_fenced:
            self._append(codec.FENCE_RECORD)
            self.state.is_fenced = True

    def fence(self) -> None:
        """Have the log fenced (codec.FENCE_RECORD), for who writes notes into it by another way."""
        with self.lock:
            self._fence()

    def rebuild(self) -> None:
        loading.reload(self)

    def was_rebuilt(self) -> None:
        """Jobs that are back are handed out, and fall due, as if nothing had been."""
        self._known_due, self._stuck_until = NEVER, 0
        try:
            self._serve_all()
        except StorageError:
            self._stuck_until = self.clock.now_ns() + _PAUSE_NS
        self._look_at_due()
