"""Walking over the jobs of a queue: a few at a time, from where one stopped, while jobs come and go.

A list of jobs is in the order in which they are handed out, and what a job is ordered by never changes. So the place of
the last job that was seen leads on to the next one, also when that job is gone: none is seen twice, and none that was
there all the time is left out. The lock is held for a search by halves and the copying of a few references.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import PLACES, Job, JobList, Queue
from lamina.errors import BadOption, JobNotFound
from lamina.server.http.operations import Place
from lamina.server.inside import Inside

SLICE: Final = 256
"""Jobs that are taken under the lock at once."""
_PLACE: Final = re.compile(r"(-?\d{1,19})\.(-?\d{1,19})\.(-?\d{1,19})\.([0-9a-f]{32})", re.ASCII)
_64_BITS: Final = 1 << 63


def place_of(job: Job) -> str:
    """What its list is ordered by, as text: where to go on behind it."""
    return f"{job.priority}.{job.order}.{job.created}.{job.id.hex()}"


def _stand_in(place: str) -> Job:
    """A job that would stand there. Raises: BadOption."""
    found = _PLACE.fullmatch(place)
    numbers = [int(number) for number in found.groups()[:3]] if found else []
    if found is None or any(not -_64_BITS <= number < _64_BITS for number in numbers):
        raise BadOption(f"after: {place[:60]!r} is no place in a list of jobs", hint="give next of the page before")
    job = Job(bytes.fromhex(found[4]), Queue(""), b"")
    job.priority, job.order, job.created = numbers
    return job


def some_after(jobs: JobList, place: str, most: int) -> list[Job]:
    """Up to ``most`` jobs behind ``place`` (empty: from the first on). Under the engine's lock. Raises: BadOption."""
    chunks = jobs.chunks
    if not place:
        return jobs.some(0, most)
    behind = _stand_in(place)
    low, high = 0, len(chunks)
    while low < high:  # the first chunk that has a job behind it
        middle = (low + high) // 2
        if behind < chunks[middle][-1]:
            high = middle
        else:
            low = middle + 1
    number = low
    if number == len(chunks):
        return []
    chunk = chunks[number]
    low, high = 0, len(chunk)
    while low < high:
        middle = (low + high) // 2
        if behind < chunk[middle]:
            high = middle
        else:
            low = middle + 1
    found = chunk[low : low + most]
    while len(found) < most and (number := number + 1) < len(chunks):
        found += chunks[number][: most - len(found)]
    return found


def find_queue(engine: JobEngine, name: str) -> Queue:
    """Raises: JobNotFound."""
    queue = engine.state.queues.get(name)
    if queue is None:
        raise JobNotFound(
            f"there is no queue of jobs named {name[:80]!r}", hint="it is made by the first job that is added to it"
        )
    return queue


def walk(engine: JobEngine, name: str, at: int, after: str = "", size: int = SLICE) -> Iterator[list[Job]]:
    """The jobs of one list of a queue, in slices. What a job says may change meanwhile; it may be gone, too."""
    while True:
        with engine.lock:  # by name each time: the state may be another one by now
            queue = engine.state.queues.get(name)
            found = [] if queue is None else some_after(queue.lists[at], after, size)
        if not found:
            return
        yield found
        if len(found) < size:
            return
        after = place_of(found[-1])


def is_there(engine: JobEngine, job: Job, at: int) -> bool:
    """Whether that very job is (still) in that list. Under the engine's lock."""
    return engine.state.jobs.get(job.id) is job and job.at == at


class Through(NamedTuple):
    """A place among all jobs: queue by queue, and list by list in each."""

    queue: str
    at: int
    place: str = ""

    def __str__(self) -> str:
        return f"{self.queue}:{PLACES[self.at]}:{self.place}"

    @classmethod
    def parse(cls, text: str) -> Through:
        """Raises: BadOption."""
        queue, _, rest = text.rpartition(":")[0].rpartition(":")
        place = text.rpartition(":")[2]
        if rest not in PLACES or (place and not _PLACE.fullmatch(place)):
            raise BadOption(f"after: {text[:60]!r} is no place among jobs", hint="give next of the page before")
        return cls(queue, PLACES.index(rest), place)


class Names:
    """Names of all queues in order, made anew only when there are others: most looks find what the last one found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Inside, tuple[State, int, list[str]]] = WeakKeyDictionary()

    def of(self, inside: Inside, engine: JobEngine) -> list[str]:
        """Not to be changed."""
        with engine.lock:
            state, count = engine.state, len(engine.state.queues)
            with self._lock:
                known = self._known.get(inside)
            if known is not None and known[0] is state and known[1] == count:
                return known[2]
            found = list(state.queues)
        found.sort()
        with self._lock:
            self._known[inside] = state, count, found
        return found


NAMES: Final = Names()


def readable(place: Place, engine: JobEngine) -> list[str]:
    """Names of the queues that the user may know of, in order: a page may end at any of them, and then names it."""
    names = NAMES.of(place.inside, engine)
    if place.user.may_all("jobs", "read"):
        return names
    return [name for name in names if place.may("jobs", "read", name)]
