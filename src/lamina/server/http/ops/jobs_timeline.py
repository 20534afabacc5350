"""The timeline of one job, read from the records about it in the log.

Of a job that is there, it is known between which positions its records are. Of one that is gone, the log is searched
from its end back, for so long at most: the answer says how far that was. Files are searched for the 16 bytes of the
id, which is as fast as memory, and only around what is found records are read.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final
from weakref import WeakKeyDictionary

from lamina.engines.jobs.codec import BadRecord
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import Job
from lamina.errors import Corruption, LaminaError
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import FileName
from lamina.log.reader import Reader, Segment, records_of
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.writer import Log
from lamina.server.http.operations import Asks, Gives, Operation, Place
from lamina.server.http.ops.jobs_looking import Id
from lamina.server.http.ops.jobs_search import Milliseconds
from lamina.server.http.ops.jobs_shown import id_of, no_job, queue_name, shown_name
from lamina.server.http.ops.jobs_story import Event, Story, Told, subject
from lamina.server.inside import Inside

MOST_BYTES: Final = 4 << 30
"""Of the log, that one look reads."""
MOST_EVENTS: Final = 1000
_WINDOW: Final = 1 << 20
_KEPT: Final = 64  # timelines that are remembered
_KEPT_S: Final = 20.0  # those of jobs that are gone


class TimelineAsks(Asks, frozen=True, kw_only=True):
    """Of which job."""

    id: Id
    most_ms: Milliseconds = 150
    """How long to look."""


class Timeline(Gives, frozen=True, kw_only=True):
    """What happened to a job, oldest first."""

    id: str
    queue: str | None = None
    """None: its beginning was not found."""
    events: list[Event]
    is_whole: bool = False
    """It starts with the beginning of the job, and nothing in between was left out."""
    is_cut: bool = False
    """The time was up, or there are too many events: there may be more."""
    looked_bytes: int = 0
    reaches_ns: int | None = None
    """Time of the oldest record of the files that were looked at."""
    note: str = ""
    """Why there is less than one might expect."""


@dataclass(slots=True)
class _Look:
    """One search of the log."""

    reader: Reader
    id: bytes
    end: float
    records: list[Told] = field(default_factory=list)
    looked: int = 0
    reaches_ns: int | None = None
    is_cut: bool = False
    problem: str = ""

    def through(self, names: list[FileName], places: list[int], since: int, until: int | None) -> None:
        """Look at these files, in this order."""
        for place in places:
            if self.is_cut or time.monotonic() > self.end:
                self.is_cut = True
                return
            segment = self.reader.open(names[place], is_newest=place == len(names) - 1)
            if segment is None:
                continue
            try:
                self._in_file(segment, since, until)
                first = self.reader.first_time(segment.name)
                if first is not None and not self.is_cut:
                    self.reaches_ns = first if self.reaches_ns is None else min(first, self.reaches_ns)
            except Corruption as error:
                self.problem = f"a part of the log is damaged: {error}"
            finally:
                segment.file.close()

    def _in_file(self, segment: Segment, since: int, until: int | None) -> None:
        start, end = HEADER_SIZE, segment.end
        if until is not None:  # of a job that is there
            index = self.reader.index_of(segment)
            start = index.seek(since)
            point = bisect_right(index.times, until)
            end = index.offsets[point] if point < len(index.offsets) else end
        hits = self._hits(segment, start, end)
        if not hits:
            return
        index = self.reader.index_of(segment)
        seen = -1
        for hit in hits:
            point = bisect_right(index.offsets, hit) - 1
            if hit >= index.bytes:  # the index ends where a record is not whole
                raise Corruption(segment.name.name, index.bytes, REASONS[Stop.TRUNCATED])
            if point <= seen:
                continue
            seen = point
            stop = index.offsets[point + 1] if point + 1 < len(index.offsets) else index.bytes
            scan = FileScan(segment.file, index.offsets[point], stop, self.reader.max_payload)
            for batch in scan:
                for record in records_of(batch, segment):
                    if self.id in record.payload and subject(record.payload) == self.id:
                        self.records.append(Told(*record))
            if scan.stop < stop:
                raise Corruption(segment.name.name, scan.stop, REASONS[scan.why or Stop.TRUNCATED])

    def _hits(self, segment: Segment, at: int, end: int) -> list[int]:
        """Where the id is in the file."""
        found: list[int] = []
        window = bytearray(min(_WINDOW, max(end - at, 0)))
        while at < end:
            if time.monotonic() > self.end or self.looked > MOST_BYTES or len(self.records) > MOST_EVENTS:
                self.is_cut = True
                break
            filled = segment.file.read_into(memoryview(window)[: end - at], at)
            place = window.find(self.id, 0, filled)
            while place >= 0:
                found.append(at + place)
                place = window.find(self.id, place + 1, filled)
            self.looked += filled
            if filled < len(window) or at + filled >= end:
                break
            at += filled - len(self.id) + 1  # it may lie across the end of the window
        return found


def _read(engine: JobEngine, id: bytes, shown_id: str, job: Job | None, most_ms: int) -> Timeline:
    log = engine.log
    if not isinstance(log, Log) or (job is not None and job.is_foreground):
        why = "a job in the foreground" if isinstance(log, Log) else "this server keeps jobs in memory only, and"
        name = None if job is None else shown_name(job.queue.name)
        return Timeline(id=shown_id, queue=name, events=[], note=f"{why} leaves no records")
    added, changed = (0, 0) if job is None else (job.added, job.changed)
    if job is not None:
        try:
            engine.settle(changed)  # or the newest record may not be there yet
        except LaminaError:
            changed = 0  # the job page tells what is wrong with the log
    reader = log.reader
    look = _Look(reader, id, time.monotonic() + most_ms / 1000)
    names = reader.segments()
    if job is None:
        look.through(names, list(range(len(names) - 1, -1, -1)), 0, None)
    elif names:
        since, until = added - 1, max(changed, added)  # its traits stand before it
        first, last = reader.file_for(names, since), reader.file_for(names, until + 1)
        # Its beginning first, then from the newest back: if the time is up, the middle is missing.
        look.through(names, [first, *range(last, first, -1)], since, until)
    story, problem = Story(), look.problem
    try:
        story.tell(look.records)
    except BadRecord as error:
        problem = f"a record cannot be read: {error}"
    is_begun = bool(story.events) and story.events[0].what in ("added", "scheduled")
    if not story.events and not problem:
        problem = "no record of it was found in what was looked at"
    elif not is_begun and not problem:
        problem = "records from before were cleaned away, or lie further back"
    name = story.queue if story.queue is not None else None if job is None else job.queue.name
    return Timeline(
        id=shown_id,
        queue=None if name is None else shown_name(name),
        events=story.events[-MOST_EVENTS:],
        is_whole=is_begun and not look.is_cut and not look.problem and len(story.events) <= MOST_EVENTS,
        is_cut=look.is_cut or len(story.events) > MOST_EVENTS,
        looked_bytes=look.looked,
        reaches_ns=look.reaches_ns,
        note=problem,
    )


class _Remembered:
    """Timelines that were just read: a page that is live asks again and again, and most jobs rarely change."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: WeakKeyDictionary[Inside, OrderedDict[tuple[bytes, int], tuple[int, float, Timeline]]]
        self._known = WeakKeyDictionary()

    def get(self, inside: Inside, key: tuple[bytes, int], changed: int) -> Timeline | None:
        with self._lock:
            found = self._known.get(inside, OrderedDict()).get(key)
        if found is None or found[0] != changed or (not changed and time.monotonic() - found[1] > _KEPT_S):
            return None
        return found[2]

    def keep(self, inside: Inside, key: tuple[bytes, int], changed: int, found: Timeline) -> None:
        with self._lock:
            known = self._known.setdefault(inside, OrderedDict())
            known[key] = changed, time.monotonic(), found
            known.move_to_end(key)
            if len(known) > _KEPT:
                known.popitem(last=False)


_REMEMBERED: Final = _Remembered()


async def _timeline(place: Place, asked: TimelineAsks) -> Timeline:
    place.check_some("jobs", "read")
    id = id_of(asked.id)
    engine = place.is_there(place.inside.jobs)

    def look() -> Timeline:
        engine.tick()
        with engine.lock:
            job = engine.state.jobs.get(id)
            changed = 0 if job is None else job.changed
        if job is not None and not place.may("jobs", "read", job.queue.name):
            raise no_job(asked.id)
        key = (id, asked.most_ms)
        found = _REMEMBERED.get(place.inside, key, changed)
        if found is None:
            found = _read(engine, id, asked.id.strip(), job, asked.most_ms)
            _REMEMBERED.keep(place.inside, key, changed, found)
        if job is None and not _may_know(place, found):
            raise no_job(asked.id)
        return found

    return await place.in_thread(look)


def _may_know(place: Place, found: Timeline) -> bool:
    """Of a job that is gone, whose queue may not be known: then only who may see all jobs."""
    if found.queue is None:
        return place.user.may_all("jobs", "read")
    return place.may("jobs", "read", queue_name(found.queue))


TIMELINE: Final = Operation(
    name="jobs.timeline",
    method="GET",
    path="/jobs/one/{id}/timeline",
    summary="What happened to a job, from its records in the log; also of one that is gone",
    right=("jobs", "read"),
    asks=TimelineAsks,
    gives=Timeline,
    do=_timeline,
    errors=("bad_job", "job_not_found", "disk_error"),
)
OPERATIONS: Final = (TIMELINE,)
