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
from bisect import bisect_left, insort
from collections.abc import Iterator

from lamina.engines.jobs import codec

NEVER = (1 << 63) - 1
MS = 1_000_000
# What inspect shows, and the lists of a queue.
NEW, COMPLETED, FAILED, PENDING, LEASED = range(5)
AT_READY, AT_SCHEDULED, AT_LEASED, AT_COMPLETED, AT_FAILED = range(5)
PLACES = ("ready", "scheduled", "leased", "completed", "failed")

_UNSCHEDULED = -6795364578871345152  # the year 1 in workq's 64-bit nanoseconds, which wrap
_CHUNK = 512


class Queue:
    """The jobs of one name, in a list for each place they can be in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.lists = [JobList() for _ in PLACES]
        self.ready = self.lists[AT_READY]
        self.uniques: dict[str, Job] = {}


class Job:
    """One job. Times are nanoseconds since 1970, TTR, TTL and back-off milliseconds."""

    def __init__(self, id: bytes, queue: Queue, payload: bytes) -> None:
        self.id = id
        self.queue = queue
        self.payload = payload
        self.result: bytes | None = None
        self.time: int | None = None
        self.unique = ""
        self.ttr = self.ttl = self.priority = self.backoff = 0
        self.max_attempts = self.max_fails = self.attempts = self.fails = 0
        self.state = NEW
        self.at = AT_READY
        self.created = 0
        self.order = _UNSCHEDULED
        self.added = 0
        """Position of the record that brought it."""
        self.changed = 0
        """Position of the newest record about it."""
        self.ready_at = 0
        self.lease_until = 0
        self.expires = NEVER
        self.due = self.key = NEVER
        self.slot = -1

    def __lt__(self, other: Job) -> bool:
        return self.comes_before(other)

    def comes_before(self, other: Job) -> bool:
        """Priority, then scheduled time (workq's, which wraps), then age, then id."""
        if self.priority != other.priority:
            return self.priority > other.priority
        if self.order != other.order:
            return self.order < other.order
        if self.created != other.created:
            return self.created < other.created
        return self.id < other.id

    @property
    def is_foreground(self) -> bool:
        """It belongs to a ``run``: nothing about it is logged."""
        return self.ttl == 0

    @property
    def is_processed(self) -> bool:
        return self.state == COMPLETED or self.state == FAILED


class JobList:
    """Jobs in order: short sorted lists in a row, so that adding and removing move few of them."""

    def __init__(self) -> None:
        self.chunks: list[list[Job]] = []
        self.size = 0

    def add(self, job: Job) -> None:
        chunks = self.chunks
        self.size += 1
        if not chunks:
            chunks.append([job])
            return
        chunk = chunks[-1]
        number = len(chunks) - 1
        if chunk[-1] < job:
            chunk.append(job)
        else:
            number = self._find(job)
            chunk = chunks[number]
            insort(chunk, job)
        if len(chunk) > 2 * _CHUNK:
            chunks.insert(number + 1, chunk[_CHUNK:])
            del chunk[_CHUNK:]

    def remove(self, job: Job) -> None:
        chunks = self.chunks
        chunk = chunks[0]
        number = 0
        if chunk[0] is job:
            del chunk[0]
        else:
            number = self._find(job)
            chunk = chunks[number]
            del chunk[bisect_left(chunk, job)]
        self.size -= 1
        if not chunk:
            del chunks[number]

    def _find(self, job: Job) -> int:
        """Number of the first chunk whose last job is not before ``job``."""
        chunks = self.chunks
        low, high = 0, len(chunks) - 1
        while low < high:
            middle = (low + high) // 2
            if chunks[middle][-1] < job:
                low = middle + 1
            else:
                high = middle
        return low

    def first(self) -> Job:
        return self.chunks[0][0]

    def some(self, offset: int, limit: int) -> list[Job]:
        found: list[Job] = []
        for chunk in self.chunks:
            if offset >= len(chunk):
                offset -= len(chunk)
                continue
            found += chunk[offset : offset + limit - len(found)]
            offset = 0
            if len(found) >= limit:
                break
        return found

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Job]:
        for chunk in self.chunks:
            yield from chunk


class Agenda:
    """All jobs by when something is due: a heap that knows where each job is, so that none is in it twice.

    A job whose time moves back keeps its place (``key``) until it comes to the top: most are gone before that.
    """

    def __init__(self) -> None:
        self.heap: list[Job] = []

    def put(self, job: Job, due: int) -> None:
        """Add the job, or move it to its new time."""
        job.due = due
        if job.slot < 0:
            job.key = due
            self.heap.append(job)
            self._rise(job, len(self.heap) - 1)
        elif due < job.key:
            job.key = due
            self._rise(job, job.slot)

    def first(self) -> Job | None:
        """The job with something due first."""
        heap = self.heap
        while heap:
            job = heap[0]
            if job.key == job.due:
                return job
            job.key = job.due
            self._sink(job, 0)
        return None

    def take(self, job: Job) -> None:
        heap = self.heap
        slot = job.slot
        last = heap.pop()
        job.slot = -1
        if last is not job:
            self._sink(last, slot)
            self._rise(last, last.slot)

    def _rise(self, job: Job, slot: int) -> None:
        heap = self.heap
        while slot > 0:
            up = (slot - 1) >> 1
            other = heap[up]
            if other.key <= job.key:
                break
            heap[slot] = other
            other.slot = slot
            slot = up
        heap[slot] = job
        job.slot = slot

    def _sink(self, job: Job, slot: int) -> None:
        heap = self.heap
        size = len(heap)
        while True:
            down = 2 * slot + 1
            if down >= size:
                break
            other = heap[down]
            if down + 1 < size:
                right = heap[down + 1]
                if right.key < other.key:
                    down += 1
                    other = right
            if job.key <= other.key:
                break
            heap[slot] = other
            other.slot = slot
            slot = down
        heap[slot] = job
        job.slot = slot


class State:
    """All jobs. Methods are the records of the log: each takes the position of its record first."""

    def __init__(self) -> None:
        self.jobs: dict[bytes, Job] = {}
        self.queues: dict[str, Queue] = {}
        self.agenda = Agenda()
        self.resumes_after = 0
        """Set while replaying behind a checkpoint: it may already hold what a record says."""

    # -- records -------------------------------------------------------------------------------------------------

    def apply(self, position: int, payload: bytes) -> None:
        """Take a record, whoever wrote it; one about a job that is not there changes nothing. Raises: BadRecord."""
        if len(payload) < 17:
            raise codec.BadRecord("a record without a job id")
        kind = payload[0]
        if kind == 1 or kind == 2:
            self._apply_job(position, payload)
            return
        if kind == 3 and payload[1:8] == b"lamjob\0":
            self._apply_note(position, payload)
            return
        job = self.jobs.get(payload[1:17])
        if kind == 3 or kind == 4:
            result = codec.decode_result(payload)
        elif not 5 <= kind <= 8:
            raise codec.BadRecord(f"a record of the unknown kind {kind}")
        elif len(payload) != 17:
            raise codec.BadRecord("bytes behind the end of a record")
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
        self.add(position, id, name, ttr, ttl, priority, max_attempts, max_fails, body, time, created)

    def _apply_note(self, position: int, payload: bytes) -> None:
        kind, id, number, text = codec.decode_note(payload)
        if kind == codec.PAUSE or kind == codec.RESUME:
            self.queue(text.decode("latin-1")).is_paused = kind == codec.PAUSE
            return
        job = self.jobs.get(id)
        if job is None or (self.resumes_after and position <= job.changed):
            return
        if kind == codec.REDRIVE:
            if job.state == FAILED:
                self.redrive(position, job)
        elif job.is_processed:
            return
        elif kind == codec.TRAITS:
            self.set_traits(position, job, number, text.decode("latin-1"))
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
            job.ready_at = codec.clamped(time)
            job.at = AT_SCHEDULED if time > position else AT_READY
        if ttl:
            job.expires = codec.clamped((created if time is None else time) + ttl * MS)
        self.jobs[id] = job
        job.queue.lists[job.at].add(job)
        self.agenda.put(job, self._due(job))
        return job

    def set_traits(self, position: int, job: Job, backoff: int, unique: str) -> None:
        """What workq's ``add`` cannot say."""
        job.changed = position
        job.backoff = backoff
        job.unique = unique
        if unique:
            job.queue.uniques[unique] = job

    def start(self, position: int, job: Job) -> None:
        job.attempts += 1
        job.state = LEASED
        job.lease_until = position + job.ttr * MS
        self._move(position, job, AT_LEASED)

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
        """The worker gives it back: the attempt does not count."""
        job.attempts = max(job.attempts - 1, 0)
        self._wait_again(position, job, delay)

    def redrive(self, position: int, job: Job) -> None:
        """A failed job starts again as if new."""
        job.attempts = job.fails = 0
        job.result = None
        if job.unique:
            job.queue.uniques.setdefault(job.unique, job)
        self._wait_again(position, job, 0)

    def _wait_again(self, position: int, job: Job, delay: int) -> None:
        job.state = PENDING
        job.lease_until = 0
        if delay:
            job.ready_at = position + delay * MS
            self._move(position, job, AT_SCHEDULED)
        else:
            self._move(position, job, AT_READY)

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
        """Take in a job as a checkpoint has it."""
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
