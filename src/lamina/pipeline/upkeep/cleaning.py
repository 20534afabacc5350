"""One task of cleaning: a sealed segment of the jobs log is written again without the records of jobs that are gone.

What a task has to know of the jobs (which live, since when; which queues are paused) is the same for all of them and
may be large. So it goes along as one piece of bytes, which Spark hands to every executor once, and each process unpacks
it once. What is decided by it, and how, is the engine's own business (engines/jobs/cleaner.py).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

from lamina.engines.jobs import codec
from lamina.engines.jobs.cleaner import Pinned, is_kept
from lamina.engines.jobs.core import State
from lamina.errors import from_os
from lamina.log import rewrite
from lamina.log.files import join
from lamina.log.files.real import RealFiles
from lamina.log.naming import NUMBERED, FileName, parse
from lamina.log.rewrite import RewriteReport
from lamina.pipeline.staging import part_name

_LIVES: Final = struct.Struct(">16sqq")  # id of a job, time of its beginning and of the newest record about it
_SIZE: Final = struct.Struct(">I")
_NO_PINS: Final = Pinned()  # every segment before this one is cleaned, too


@dataclass(slots=True)
class _Life:
    added: int
    changed: int


@dataclass(slots=True)
class _Queue:
    is_paused: bool = True


@dataclass(slots=True)
class Facts:
    """Of the jobs, what decides about records (engines/jobs/cleaner.Living)."""

    jobs: dict[bytes, _Life] = field(default_factory=dict)
    queues: dict[str, _Queue] = field(default_factory=dict)
    """Those that are paused."""


def pack(state: State) -> bytes:
    """For ``unpack``, in this process or another."""
    lives = (_LIVES.pack(id, job.added, job.changed) for id, job in state.jobs.items() if not job.is_foreground)
    paused = [name.encode() for name, queue in state.queues.items() if queue.is_paused]
    names = b"".join(_SIZE.pack(len(name)) + name for name in paused)
    return _SIZE.pack(len(paused)) + names + b"".join(lives)


@lru_cache(maxsize=1)
def unpack(facts: bytes) -> Facts:
    """Kept: the next task of this process asks for the same."""
    found = Facts()
    (left,), at = _SIZE.unpack_from(facts), _SIZE.size
    for _ in range(left):
        start = at + _SIZE.size
        at = start + _SIZE.unpack_from(facts, at)[0]
        found.queues[facts[start:at].decode()] = _Queue()
    found.jobs.update((id, _Life(added, changed)) for id, added, changed in _LIVES.iter_unpack(memoryview(facts)[at:]))
    return found


@dataclass(frozen=True, slots=True)
class Task:
    """A segment."""

    number: int
    folder: str
    name: str
    staging: str | None
    """Where the new file goes; None: only count."""


@dataclass(frozen=True, slots=True)
class Cleaned:
    """What became of it, or is to."""

    name: str
    staged: str
    report: RewriteReport


def clean(facts: bytes, task: Task) -> Cleaned | None:
    """Run a task. None: it was only to count, and the segment is gone, which happens beside a server.

    Raises: Corruption, DiskFull, DiskError. What is to be written again has to be there: no server runs, and the
        segments behind it are decided as if this one were cleaned.
    """
    living = unpack(facts)

    def keep(time_ns: int, payload: bytes) -> bool:
        return is_kept(living, time_ns, payload, _NO_PINS)

    staged = None if task.staging is None else join(task.staging, part_name(task.number))
    try:
        report = rewrite.stage_without(
            RealFiles(), task.folder, segment(task.name), NUMBERED, keep, staged, renew=codec.renewed
        )
    except FileNotFoundError as error:
        if task.staging is None:
            return None
        raise from_os(error, "open the file", join(task.folder, task.name)) from error
    return Cleaned(task.name, staged or "", report)


def segment(name: str) -> FileName:
    found = parse(name)
    assert found is not None, name
    return found
