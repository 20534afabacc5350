"""The jobs and what happens to them: a state machine without clock, disk or socket.

Every change is a record of the log. ``State.apply`` takes one, live as in replay, so the state after a restart is the
state before. Time is the record's: deadlines are counted from it and go on over a restart.

    add ──> ready ──start──> leased ──complete──> completed        a job is in exactly one list of its queue,
             │ ▲                │ ├────fail─────> failed           kept in the order in which jobs are handed out
    schedule │ └──timeout/retry─┘ └── delete, expire ──> gone
         └> scheduled (its time, or the delay of a retry, has not come)

Compiled as it stands (setup.py, _core.pxd gives the types) and run as plain Python where it is not.
"""

from __future__ import annotations

import struct
from array import array

from lamina.engines.jobs import codec
from lamina.engines.jobs.job import (
    AT_COMPLETED,
    AT_FAILED,
    AT_LEASED,
    AT_READY,
    AT_SCHEDULED,
    COMPLETED,
    FAILED,
    LEASED,
    MS,
    NEVER,
    NEW,
    PENDING,
    Agenda,
    Job,
    Queue,
)

_WORKQ_ATTEMPTS = 255  # a job that had so many is not started again there


class State:
    """All jobs. Methods are the records of the log: each takes the position of its record first."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.agenda = Agenda()
        self.resumes_after = 0
        """Set while replaying behind a checkpoint: it may already hold what a record says."""
        self.ahead = 0
        """Nanoseconds by which the log's clock is ahead of the world's, which scheduled times are given in."""
        self.is_fenced = False
        """The log has a fence (codec.py) before what is yet to come."""
        self._traits = (0, 0, b"")

    # -- records -------------------------------------------------------------------------------------------------

    def apply(self, position: int, payload: bytes) -> None:
        """Take a record, whoever wrote it; one about a job that is not there changes nothing. Raises: BadRecord."""
        if len(payload) < 17:
            raise codec.BadRecord("a record without a job id")
        kind = payload[0]
        if kind <= 3 and payload[1:7] == b"lamjob" and codec.is_note(payload):
            self._apply_note(position, payload)
            return
        if kind == 1 or kind == 2:
            self._apply_job(position, payload)
            return
        result = b""
        if kind == 3 or kind == 4:
            result = codec.decode_result(payload)
        elif not 5 <= kind <= 8:
            raise codec.BadRecord(f"a record of the unknown kind {kind}")
        elif len(payload) != 17:
            raise codec.BadRecord("bytes behind the end of a record")
        self._change(position, self.jobs.get(payload[1:17]), kind, result)

    def _change(self, position: int, job: Job | None, kind: int, result: bytes) -> None:
        if job is None or (self.resumes_after and position <= job.changed):
            return
        if kind == 5 or kind == 6:
            self.remove(job)
        elif job.is_processed:
            return
        elif kind == 3:
            self.complete(position, job, result)
        elif kind == 4:
            self.fail(position, job, result)
        elif kind == 7:
            self.start(position, job)
        else:
            self.timeout(position, job)

    def apply_batch(self, data: bytes, times: array[int], offsets: array[int], lengths: array[int], after: int) -> None:
        """Take the records of a batch of the log that are past ``after``. The kernel's marks are about nobody.

        Raises: BadRecord; its ``number`` says which one.
        """
        for number in range(len(times)):
            if times[number] > after:
                start = offsets[number]
                try:
                    self.apply(times[number], data[start : start + lengths[number]])
                except (codec.BadRecord, struct.error) as error:
                    raise codec.BadRecord(f"no job command: {error}", number) from error

    def _apply_job(self, position: int, payload: bytes) -> None:
        id, name, ttr, ttl, priority, max_attempts, max_fails, body, time, created = codec.decode_job(payload)
        old = self.jobs.get(id)
        if old is not None:
            if self.resumes_after and position <= old.changed:
                return
            self.remove(old)  # expired while nobody wrote it down, or a cleaner of workq dropped its end
        job = self.add(position, id, name, ttr, ttl, priority, max_attempts, max_fails, body, time, created)
        if self._traits[0] == position:
            self.set_traits(job, self._traits[1], self._traits[2].decode("latin-1"))

    def _apply_note(self, position: int, payload: bytes) -> None:
        kind, id, number, text = codec.decode_note(payload)
        if kind == codec.PAUSE or kind == codec.RESUME:
            self.queue(text.decode("latin-1")).is_paused = kind == codec.PAUSE
            return
        if kind == codec.TRAITS:
            self._traits = (position + 1, number, text)  # of the job that comes next
            return
        if kind == codec.FENCE:
            self.is_fenced = True
            return
        job = self.jobs.get(id)
        if kind > codec.BEYOND:
            self._change(position, job, kind - codec.BEYOND, text)
        elif job is None or (self.resumes_after and position <= job.changed):
            return
        elif kind == codec.REDRIVE:
            if job.state == FAILED:
                self.redrive(position, job)
        elif job.is_processed:
            return
        elif kind == codec.RETRY:
            self.retry(position, job, number, text)
        elif kind == codec.TOUCH:
            self.touch(position, job, number)
        elif kind == codec.RELEASE:
            self.release(position, job, number)

    def add(
        self,
        position: int,
        id: bytes,
        name: str,
        ttr: int,
        ttl: int,
        priority: int,
        max_attempts: int,
        max_fails: int,
        payload: bytes,
        time: int | None,
        created: int,
    ) -> Job:
        """A new job; its id is free."""
        job = Job(id, self.queue(name), payload)
        job.ttr = ttr
        job.ttl = ttl
        job.priority = priority
        job.max_attempts = max_attempts
        job.max_fails = max_fails
        job.created = codec.clamped(created)
        job.added = job.changed = position
        if time is not None:
            job.time = time
            job.order = codec.wrapped(time)
            job.ready_at = codec.clamped(time + self.ahead)
            job.at = AT_SCHEDULED if job.ready_at > position else AT_READY
        if ttl:
            job.expires = self.expiry(job)
        self.jobs[id] = job
        job.queue.lists[job.at].add(job)
        self.agenda.put(job, self._due(job))
        return job

    def expiry(self, job: Job) -> int:
        """When its life is over: counted from its time, if it has one, else from when it was made."""
        start = job.created if job.time is None else job.time + self.ahead
        return codec.clamped(start + job.ttl * MS)

    def set_traits(self, job: Job, backoff: int, unique: str) -> None:
        """What workq's ``add`` cannot say."""
        job.backoff = backoff
        job.unique = unique
        if unique:
            job.queue.uniques[unique] = job

    def start(self, position: int, job: Job) -> None:
        job.attempts += 1
        if job.given_back or job.attempts >= _WORKQ_ATTEMPTS:
            self._compare_with_workq(job)
        job.state = LEASED
        job.lease_until = position + job.ttr * MS
        self._move(position, job, AT_LEASED)

    def _compare_with_workq(self, job: Job) -> None:
        """workq counts attempts that were given back too: what is the last one there may not be so here."""
        limit = job.max_attempts or _WORKQ_ATTEMPTS
        if job.attempts + job.given_back >= limit and job.attempts != job.max_attempts:
            job.beyond = max(job.beyond, 1)

    def timeout(self, position: int, job: Job) -> None:
        """The time to run has passed: back to its old place, or failed if that was the last attempt."""
        if job.max_attempts and job.attempts >= job.max_attempts:
            job.state = FAILED
            self._finish(position, job, b"", AT_FAILED)
            return
        self._wait_again(position, job, backed_off(job, job.attempts))

    def retry(self, position: int, job: Job, delay: int, error: bytes) -> None:
        """A failure that is not the last."""
        job.fails += 1
        job.result = error
        self._wait_again(position, job, delay)

    def release(self, position: int, job: Job, delay: int) -> None:
        """The worker gives it back: the attempt does not count, though for workq it did."""
        if job.max_attempts and job.attempts >= job.max_attempts:
            job.beyond = max(job.beyond, 1)
        job.attempts = max(job.attempts - 1, 0)
        job.given_back += 1
        self._wait_again(position, job, delay)

    def redrive(self, position: int, job: Job) -> None:
        """A failed job starts again as if new. For workq it stays failed."""
        job.beyond = 2
        job.attempts = job.fails = 0
        job.result = None
        if job.unique:
            job.queue.uniques.setdefault(job.unique, job)
        self._wait_again(position, job, 0)

    def _wait_again(self, position: int, job: Job, delay: int) -> None:
        job.state = PENDING
        job.lease_until = 0
        job.ready_at = position + delay * MS
        self._move(position, job, AT_SCHEDULED if delay else AT_READY)

    def touch(self, position: int, job: Job, ttr: int) -> None:
        """The lease lasts so many milliseconds from now."""
        job.lease_until = position + ttr * MS
        job.changed = position
        self.agenda.put(job, self._due(job))

    def complete(self, position: int, job: Job, result: bytes) -> None:
        job.state = COMPLETED
        self._finish(position, job, result, AT_COMPLETED)

    def fail(self, position: int, job: Job, result: bytes) -> None:
        """For good. ``fails`` counts only where retries were asked for, as workq never counts."""
        if job.fails:
            job.fails += 1
        job.state = FAILED
        self._finish(position, job, result, AT_FAILED)

    def _finish(self, position: int, job: Job, result: bytes, at: int) -> None:
        job.result = result
        job.lease_until = 0
        self._forget_unique(job)
        self._move(position, job, at)

    def remove(self, job: Job) -> None:
        """Deleted or expired."""
        del self.jobs[job.id]
        job.queue.lists[job.at].remove(job)
        self.agenda.take(job)
        self._forget_unique(job)

    def wake(self, job: Job) -> None:
        """Its time has come. No record says so: it follows from the clock."""
        lists = job.queue.lists
        lists[job.at].remove(job)
        job.at = AT_READY
        lists[AT_READY].add(job)
        self.agenda.put(job, self._due(job))

    # -- the rest ------------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue of that name, made when first used."""
        queue = self.queues.get(name)
        if queue is None:
            queue = self.queues[name] = Queue(name)
        return queue

    def next_due(self) -> int:
        job = self.agenda.first()
        return NEVER if job is None else job.due

    def restore(self, job: Job) -> None:
        """Take in a job as a checkpoint has it; what is in the world's time is counted anew by the clock of now."""
        if job.time is not None:
            job.expires = self.expiry(job)
            if job.state == NEW and job.at == AT_SCHEDULED:
                job.ready_at = codec.clamped(job.time + self.ahead)
        self.jobs[job.id] = job
        job.queue.lists[job.at].add(job)
        self.agenda.put(job, self._due(job))
        if job.unique and not job.is_processed:
            job.queue.uniques[job.unique] = job

    def _move(self, position: int, job: Job, at: int) -> None:
        job.changed = position
        lists = job.queue.lists
        if at != job.at:
            lists[job.at].remove(job)
            job.at = at
            lists[at].add(job)
        self.agenda.put(job, self._due(job))

    def _due(self, job: Job) -> int:
        due = job.expires
        if job.at == AT_LEASED:
            due = min(due, job.lease_until)
        elif job.at == AT_SCHEDULED:
            due = min(due, job.ready_at)
        return due

    def _forget_unique(self, job: Job) -> None:
        if job.unique and job.queue.uniques.get(job.unique) is job:
            del job.queue.uniques[job.unique]


def backed_off(job: Job, times: int) -> int:
    """Milliseconds to wait before the next attempt: twice as long each time, at most a day."""
    return min(job.backoff << min(max(times - 1, 0), 27), 86_400_000)
