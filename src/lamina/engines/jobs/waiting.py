"""Those who wait: workers for a job, clients for a result.

First come, first served. A worker may wait on several names and is taken off all of them when it is served or leaves,
so nobody who left is handed a job, and a job never lies ready while a worker waits for it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

from lamina.engines.jobs.job import Job, Queue


class LeaseWaiter:
    """A worker that waits for up to ``most`` jobs of any of ``names``.

    ``deliver`` is called once, with the jobs, while the engine is locked: it must not call back into the engine.
    """

    __slots__ = ("deliver", "most", "names")

    def __init__(self, names: Sequence[str], most: int, deliver: Callable[[list[Job], int], None]) -> None:
        self.names = tuple(dict.fromkeys(names))
        self.most = most
        self.deliver = deliver


class Workers:
    """Waiting workers, by name."""

    def __init__(self) -> None:
        self._by_name: dict[str, OrderedDict[LeaseWaiter, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return True  # also while nobody waits

    def add(self, waiter: LeaseWaiter) -> None:
        self._count += 1
        for name in waiter.names:
            self._by_name.setdefault(name, OrderedDict())[waiter] = None

    def remove(self, waiter: LeaseWaiter) -> bool:
        """False if it was served, or taken off, before."""
        was_there = False
        for name in waiter.names:
            waiting = self._by_name.get(name)
            if waiting is not None and waiter in waiting:
                was_there = True
                del waiting[waiter]
                if not waiting:
                    del self._by_name[name]
        self._count -= was_there
        return was_there

    def names(self) -> list[str]:
        return list(self._by_name)

    def first(self, name: str) -> LeaseWaiter | None:
        waiting = self._by_name.get(name)
        return next(iter(waiting)) if waiting else None

    def count(self, name: str) -> int:
        return len(self._by_name.get(name, ()))


ResultWaiter = Callable[[Job, int], None]
"""Called once, with the processed job and the position of its result."""


class Results:
    """Who waits for the result of which job: each of them is told."""

    def __init__(self) -> None:
        self._by_id: dict[bytes, list[ResultWaiter]] = {}

    def add(self, id: bytes, waiter: ResultWaiter) -> None:
        self._by_id.setdefault(id, []).append(waiter)

    def remove(self, id: bytes, waiter: ResultWaiter) -> bool:
        waiting = self._by_id.get(id, [])
        if waiter not in waiting:
            return False
        waiting.remove(waiter)
        if not waiting:
            del self._by_id[id]
        return True

    def tell(self, job: Job) -> None:
        for waiter in self._by_id.pop(job.id, ()):
            waiter(job, job.changed)


def best_of(queues: Sequence[Queue]) -> Job | None:
    """The job to hand out next: the highest priority of the queues' first ones, then the one that is ready longest."""
    best: Job | None = None
    for queue in queues:
        if queue.ready.size and not queue.is_paused:
            job = queue.ready.first()
            if best is None or (-job.priority, max(job.created, job.ready_at)) < (
                -best.priority,
                max(best.created, best.ready_at),
            ):
                best = job
    return best
