"""Doing the same to many jobs of a queue: a few under the lock at a time, then those are waited for, then the next."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Final

import msgspec

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import Job
from lamina.engines.jobs.views import show_id
from lamina.errors import DuplicateJob
from lamina.server.http.ops.jobs_shown import row_of, text_line
from lamina.server.http.ops.jobs_walking import find_queue, is_there, walk

MOST: Final = 100_000
"""Jobs that one call changes at most."""
Many = Annotated[int, msgspec.Meta(ge=1, le=MOST)]

_SLICE: Final = 100  # changes under the lock at once: about a millisecond
_LONGEST_S: Final = 5.0  # of one call
_COUNT_S: Final = 0.1  # for counting what is left
_EXAMPLES: Final = 5


@dataclass(slots=True)
class Bulk:
    """What a call did, or would do."""

    done: int = 0
    skipped: int = 0
    """Their unique key is taken by another job."""
    left: int = 0
    """Jobs that are meant and were not come to."""
    is_cut: bool = False
    """Not all jobs were looked at: there may be more left."""

    def told(self, what: str, done: str) -> str:
        """``put 12 failed jobs of mail back; 3 are left``."""
        text = f"{done} {self.done} {what}"
        if self.skipped:
            text += f"; {self.skipped} stay, for another job has their unique key"
        if self.left or self.is_cut:
            text += f"; {'at least ' if self.is_cut else ''}{self.left} are left: do it again"
        return text


def change(
    engine: JobEngine, name: str, at: int, is_meant: Callable[[Job], bool], act: Callable[[bytes], int], most: int
) -> Bulk:
    """``act`` on up to ``most`` jobs of a list. Durability: as the policy promises, when it returns.

    Raises: JobNotFound; the disk's error, then those of the slices before are done.
    """
    engine.tick()
    with engine.lock:
        find_queue(engine, name)
    bulk, end = Bulk(), time.monotonic() + _LONGEST_S
    for jobs in walk(engine, name, at, size=_SLICE):
        is_over = bulk.done >= most or time.monotonic() > end
        if is_over:
            if bulk.done >= most and end > time.monotonic() + _COUNT_S:
                end = time.monotonic() + _COUNT_S
            bulk.left += sum(1 for job in jobs if is_meant(job))
            if time.monotonic() > end:
                bulk.is_cut = len(jobs) == _SLICE
                break
            continue
        position = 0
        with engine.lock:
            for job in jobs:
                if not is_there(engine, job, at) or not is_meant(job):
                    continue
                if bulk.done == most:
                    bulk.left += 1
                    continue
                try:
                    position = act(job.id) or position
                    bulk.done += 1
                except DuplicateJob:
                    bulk.skipped += 1
        engine.settle(position)
    return bulk


def count(engine: JobEngine, name: str, at: int, is_meant: Callable[[Job], bool], most: int) -> tuple[Bulk, list[str]]:
    """How many are meant (``left``), and some of the first ``most``, a line each. Raises: JobNotFound."""
    engine.tick()
    with engine.lock:
        find_queue(engine, name)
    bulk, end, examples = Bulk(), time.monotonic() + _COUNT_S, list[Job]()
    for jobs in walk(engine, name, at):
        for job in jobs:
            if is_meant(job):
                bulk.left += 1
                if len(examples) < min(_EXAMPLES, most):
                    examples.append(job)
        if time.monotonic() > end:
            bulk.is_cut = True
            break
    with engine.lock:
        return bulk, [f"{show_id(job.id)}  {text_line(row_of(job).payload, 60)}" for job in examples]
