"""The jobs of an engine at a glance: how many are where, and for how long the oldest has been ready.

The sizes of lists are looked at without the lock; for the oldest it is held for some queues at a time.
"""

from __future__ import annotations

from itertools import islice
from typing import Final, NamedTuple

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_READY, PLACES, Job, Queue

_AT_ONCE: Final = 50  # queues that are looked into before others have the lock
_FIRST: Final = 16  # jobs at the head of a queue that are looked at
_HEADS: Final = 64  # parts of a long queue whose first job is looked at: later ones have a lower priority, or are newer


class QueueSeen(NamedTuple):
    """One queue."""

    name: str
    sizes: tuple[int, ...]
    """As ``PLACES``: ready, scheduled, leased, completed, failed."""
    oldest_s: float


class JobsSeen(NamedTuple):
    """All of them."""

    sizes: tuple[int, ...]
    oldest_s: float
    queues: list[QueueSeen]


def look(engine: JobEngine) -> JobsSeen:
    """Of a queue with priorities the job that waits longest may be further back than is looked."""
    queues = list(engine.state.queues.values())
    oldest: dict[str, float] = {}
    waiting = [queue for queue in queues if queue.ready.size]
    for start in range(0, len(waiting), _AT_ONCE):
        with engine.lock:
            now = engine.clock.now_ns()
            for queue in waiting[start : start + _AT_ONCE]:
                oldest[queue.name] = max(now - _oldest(queue, now), 0) / 1e9
    seen = [
        QueueSeen(queue.name, tuple(jobs.size for jobs in queue.lists), oldest.get(queue.name, 0.0)) for queue in queues
    ]
    sizes = tuple(map(sum, zip(*(one.sizes for one in seen), strict=True))) if seen else (0,) * len(PLACES)
    return JobsSeen(sizes, max(oldest.values(), default=0.0), seen)


def _oldest(queue: Queue, now: int) -> int:
    ready = queue.lists[AT_READY]
    chunks = ready.chunks
    step = max(len(chunks) // _HEADS, 1)
    jobs: list[Job] = [*ready.some(0, _FIRST), *(chunk[0] for chunk in islice(chunks, 0, None, step))]
    return min((job.ready_at or job.added for job in jobs), default=now)
