"""A job, the lists of its queue, and the agenda of all: what the state machine (core.py) works on.

Compiled as it stands (setup.py, _job.pxd gives the types) and run as plain Python where it is not.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator

NEVER = (1 << 63) - 1
MS = 1_000_000
# What inspect shows, and the lists of a queue.
NEW, COMPLETED, FAILED, PENDING, LEASED = range(5)
AT_READY, AT_SCHEDULED, AT_LEASED, AT_COMPLETED, AT_FAILED = range(5)
PLACES = ("ready", "scheduled", "leased", "completed", "failed")

_UNSCHEDULED = -6795364578871345152  # the year 1 in workq's 64-bit nanoseconds, which wrap
_CHUNK = 512


class Counts:
    """What happened to the jobs of one queue since the start. The engine keeps it, whatever becomes of the state."""

    def __init__(self) -> None:
        self.added = self.leased = self.completed = 0
        self.again = 0
        """Leases of jobs that had been leased before."""
        self.failed = 0
        """Attempts that a worker called failed, the last ones too."""
        self.timed_out = 0
        """Leases whose time had passed."""
        self.dead = 0
        """Jobs that failed for good."""
        self.waited = 0
        """Nanoseconds, of all leases: from ready to leased."""


class Queue:
    """The jobs of one name, in a list for each place they can be in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_paused = False
        self.lists = [JobList() for _ in PLACES]
        self.ready = self.lists[AT_READY]
        self.uniques: dict[str, Job] = {}
        self.counts: Counts | None = None
        """Where what happens here is counted; None: nothing has happened yet."""


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
        self.given_back = 0
        """Attempts that were released: they count for workq only."""
        self.beyond = 0
        """It came back in a way that workq has no record for, and is taken there for leased (1) or failed (2): what
        would not fit that is told in notes."""
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
