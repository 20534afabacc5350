"""``clean``: the jobs log without the records of jobs that are gone, all sealed segments at once.

    1 open the jobs, and write a checkpoint     2 one task a segment: decide, write the new file to _tmp, sync it
    3 put the new files in place, oldest first

Commit: in step 3, the rename of each file by itself (log/rewrite.py). Oldest first, the end of a job goes only after
its beginning; so wherever it stops, the log is right, and the next run does the rest. The result is what the server's
own cleaning leaves (engines/jobs/cleaner.py) when it visits everything at the same moment.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from lamina.clock import Clock, ManualClock, SteadyClock, SystemClock
from lamina.engines.jobs import checkpoint, loading
from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.jobs.volatile import VolatileLog
from lamina.errors import BadOption
from lamina.log import consumers, mark, rewrite
from lamina.log.files import Files, join
from lamina.log.naming import NUMBERED, FileName
from lamina.log.reader import Reader
from lamina.log.sync import Level
from lamina.log.unread import unread
from lamina.log.writer import Log
from lamina.pipeline import places
from lamina.pipeline.choosing import runner
from lamina.pipeline.jobs.place import folder_of, for_itself, size_of
from lamina.pipeline.running import Progress, Runner
from lamina.pipeline.staging import staging
from lamina.pipeline.upkeep import cleaning
from lamina.pipeline.upkeep.cleaning import Cleaned, Task
from lamina.units import show_time

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_JOB: Final = "clean"
_LOCKED: Final = "a running server cleans by itself: leave it to that, stop it first, or look with --dry-run"


@dataclass(frozen=True, slots=True)
class CleanReport:
    """What was done, or would be."""

    visited: int
    """Segments."""
    rewritten: int
    removed: int
    held: int
    """Segments that are left alone, since a consumer has yet to read them."""
    dropped: int
    """Records."""
    kept: int
    bytes_before: int
    """Of the visited segments."""
    bytes_after: int
    now_ns: int
    """Jobs that had expired by then are gone."""
    engine: str
    is_dry_run: bool
    seconds: float

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def clean(
    data: str,
    *,
    engine: str = "auto",
    spark: SparkSession | None = None,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    progress: Progress = lambda done, total: None,
    now: int | None = None,
    dry_run: bool = False,
) -> CleanReport:
    """Clean the jobs of a folder that no server has open.

    ``now``: nanoseconds since 1970, for runs that give the same again; what has expired by then goes. A log that has
    later records than that counts from its newest on. ``dry_run`` changes nothing, needs no lock, and may look ahead.
    Durability: when it returns, all of it is synced.
    Raises: LogLocked while a server runs; BadOption; Corruption, or DiskError because an executor does not reach the
        folder (nothing was changed); DiskFull, DiskError, LogFailed: what was put in place before is right, and the
        next run does the rest.
    """
    start = time.monotonic()
    files, folder = folder_of(data, places.JOBS)
    work = _Cleaning(files, folder, now, progress)
    if dry_run:
        state, moment, names, held = work.look()
        with runner(engine, size=work.measure(names), spark=spark, master=master, conf=conf) as where:
            found = work.run(where, names, state, None)
        return work.report(found, held, moment, where.name, start, is_dry_run=True)
    if now is not None and now > time.time_ns():
        raise BadOption(
            f"{show_time(now)} is yet to come", hint="jobs that expire until then are not gone; see it with --dry-run"
        )
    with work.opened() as (jobs, names, held):
        size = work.measure(names)
        with (
            runner(engine, size=size, spark=spark, master=master, conf=conf) as where,
            staging(files, folder, _JOB) as place,
        ):
            found = work.run(where, names, jobs.state, place)
            work.commit(found, jobs, data)
        return work.report(found, held, jobs.clock.now_ns(), where.name, start, is_dry_run=False)


class _Cleaning:
    def __init__(self, files: Files, folder: str, now: int | None, progress: Progress) -> None:
        self._files, self._folder, self._now, self._progress = files, folder, now, progress
        self._sizes: list[int] = []

    # -- the jobs ----------------------------------------------------------------------------------------------------

    @contextmanager
    def opened(self) -> Iterator[tuple[JobEngine, list[FileName], list[FileName]]]:
        """The jobs, whose log and checkpoint hold all that decides; which segments are visited, and which are held."""
        with for_itself(_LOCKED):
            jobs = JobEngine.open(self._folder, files=self._files, clock=self._clock(), threaded=False)
        try:
            upkeep = Upkeep(jobs)
            sealed, held = upkeep.cleaner.sealed(jobs.clock.now_ns())
            assert isinstance(jobs.log, Log)
            upkeep.checkpoint()
            jobs.log.wait(jobs.all_written(), Level.SYNCED)
            yield jobs, [name for name in sealed if name not in held], held
        finally:
            jobs.close()

    def look(self) -> tuple[State, int, list[FileName], list[FileName]]:
        """The same without a lock and without a change, and the moment: what expires does so in memory alone."""
        reader = self._reader()
        names = reader.segments()[:-1]
        clock = SteadyClock(self._clock())
        ahead = clock.not_before(_newest(reader))
        state, _, _ = checkpoint.load(self._files, self._folder, reader, ahead)
        jobs = JobEngine(VolatileLog(), clock, None, self._files)
        jobs.state = state
        loading.forget_expired(jobs)
        now = jobs.clock.now_ns()
        held = unread(reader, names, consumers.holding(self._files, self._folder, now))
        return state, now, [name for name in names if name not in held], held

    def _clock(self) -> Clock:
        """One that stands still if the moment was given, and not before the log: records never go back in time."""
        if self._now is None:
            return SystemClock()
        return ManualClock(max(self._now, _newest(self._reader())))

    def _reader(self) -> Reader:
        return Reader(self._folder, family=NUMBERED, files=self._files)

    # -- the work ----------------------------------------------------------------------------------------------------

    def measure(self, names: list[FileName]) -> int:
        """How much there is to do."""
        self._sizes = [size_of(self._files, join(self._folder, name.name)) for name in names]
        return sum(self._sizes)

    def run(self, where: Runner, names: list[FileName], state: State, place: str | None) -> list[Cleaned]:
        """``place``: where new files are staged; None: nowhere, and segments that are gone meanwhile are left out."""
        tasks = [Task(number, self._folder, name.name, place) for number, name in enumerate(names)]
        done_by = [0, *accumulate(self._sizes)]
        try:
            found = where.map(
                partial(cleaning.clean, cleaning.pack(state)),
                tasks,
                lambda done, total: self._progress(done_by[done], done_by[-1]),
            )
        finally:
            cleaning.unpack.cache_clear()
        return [one for one in found if one is not None]

    def commit(self, found: list[Cleaned], jobs: JobEngine, data: str) -> None:
        """Each file is a commit by itself; the order is what matters."""
        if any(one.report.renewed for one in found):  # there are notes now that a lamina of before does not know
            if not os.path.samefile(data, self._folder):
                mark.make(self._files, os.path.abspath(data))
            jobs.fence()
            assert isinstance(jobs.log, Log)
            jobs.log.wait(jobs.all_written(), Level.SYNCED)
        for one in found:
            rewrite.commit_staged(self._files, self._folder, cleaning.segment(one.name), one.report, one.staged)

    def report(
        self, found: list[Cleaned], held: list[FileName], now: int, engine: str, start: float, *, is_dry_run: bool
    ) -> CleanReport:
        reports = [one.report for one in found]
        return CleanReport(
            visited=len(reports),
            rewritten=sum(one.is_new and not one.is_removed for one in reports),
            removed=sum(one.is_removed for one in reports),
            held=len(held),
            dropped=sum(one.dropped for one in reports),
            kept=sum(one.kept for one in reports),
            bytes_before=sum(one.bytes_before for one in reports),
            bytes_after=sum(one.bytes_after for one in reports),
            now_ns=now,
            engine=engine,
            is_dry_run=is_dry_run,
            seconds=round(time.monotonic() - start, 3),
        )


def _newest(reader: Reader) -> int:
    """Time of the newest record of a log, 0 if there is none."""
    for name in reversed(reader.segments()):
        segment = reader.open(name, is_newest=True)
        if segment is None:
            continue
        try:
            if last := reader.index_of(segment).last_data:
                return last
        finally:
            segment.file.close()
    return 0
