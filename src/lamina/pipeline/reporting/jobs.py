"""The lives of jobs: how long each waited and ran, and how many did so at a time.

Tasks see parts of the log. One that sees a job added follows it to the end of its part, and hands over what was not
over by then. Of a job that was added before its part it cannot tell what a record means: it hands over the record.
The driver, which gets the parts in the order of the log, goes on from there. So it keeps only what crosses parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import pyarrow as pa

from lamina.pipeline.reporting.tally import Tally

COLUMNS: Final = ("time_ns", "kind", "id", "name", "run_at", "max_attempts", "number", "size")
WAITING: Final = "jobs.waiting"
RUNNING: Final = "jobs.running"
LAST_TIMEOUTS: Final = "jobs.last-timeouts"
"""Those after which a job is not tried again: it has failed for good."""
_UNKNOWN: Final = "(unknown)"
_SERIES: Final = {
    "add": "jobs.added",
    "schedule": "jobs.added",
    "start-attempt": "jobs.started",
    "complete": "jobs.completed",
    "fail": "jobs.failed",
    "timeout-attempt": "jobs.timeouts",
    "retry": "jobs.retries",
    "release": "jobs.released",
    "redrive": "jobs.redriven",
    "delete": "jobs.deleted",
    "expire": "jobs.expired",
}
_MS: Final = 10**6
_OVER: Final = ""


class Job(NamedTuple):
    """What is known of a job that is not gone yet."""

    name: str
    state: str
    """WAITING, RUNNING, or over."""
    since_ns: int
    attempts: int = 0
    max_attempts: int = 0
    was_started: bool = False
    is_timed_out: bool = False
    """Its last record was a timeout."""


class Event(NamedTuple):
    """A record of a job that was added in an earlier part."""

    time_ns: int
    kind: str
    id: str
    number: int


class Lives:
    """Follows jobs through records in the order of the log."""

    def __init__(self, tally: Tally, since_ns: int | None, until_ns: int | None) -> None:
        self.tally = tally
        self.jobs: dict[str, Job] = {}
        self.untold: list[Event] = []
        self._since_ns = since_ns if since_ns is not None else -(1 << 63)
        self._until_ns = until_ns if until_ns is not None else 1 << 63

    def read(self, batch: pa.RecordBatch, path: str) -> None:
        """Rows of the view ``jobs`` with ``COLUMNS``."""
        facts = self.tally.log(path)
        columns = [batch.column(name) for name in COLUMNS]
        columns[4] = columns[4].cast(pa.int64())
        for time_ns, kind, id, name, run_at, most, number, size in zip(*map(pa.Array.to_pylist, columns), strict=True):
            if time_ns >= self._until_ns:
                return
            if time_ns >= self._since_ns:
                facts.add(1, size, time_ns, time_ns)
                if kind in _SERIES:
                    self.tally.count(_SERIES[kind], self.tally.bucket(time_ns))
            if kind in ("add", "schedule"):
                self._add(time_ns, id, name, time_ns if run_at is None else max(run_at * 1000, time_ns), most or 0)
            elif kind in _SERIES:
                self._change(Event(time_ns, kind, id, number or 0))

    def take(self, jobs: dict[str, Job], untold: Iterable[Event]) -> None:
        """Go on with what a task has found in the next part of the log."""
        for event in untold:
            job = self.jobs.get(event.id)
            self._apply(event, Job(_UNKNOWN, _OVER, event.time_ns) if job is None else job)
        self.jobs.update(jobs)

    def finish(self) -> None:
        """The log is at its end: what is there stays."""
        for job in self.jobs.values():
            if job.state != _OVER:
                self.tally.span(job.state, job.since_ns, None)
        self.jobs.clear()

    # -- one record --------------------------------------------------------------------------------------------------

    def _add(self, time_ns: int, id: str, name: str, ready_ns: int, max_attempts: int) -> None:
        old = self.jobs.get(id)
        if old is not None and old.state != _OVER:
            self.tally.span(old.state, old.since_ns, time_ns)
        self.jobs[id] = Job(name, WAITING, ready_ns, max_attempts=max_attempts)
        if time_ns >= self._since_ns:
            self.tally.name("jobs.added", name)

    def _change(self, event: Event) -> None:
        job = self.jobs.get(event.id)
        if job is None:
            self.untold.append(event)
        else:
            self._apply(event, job)

    def _apply(self, event: Event, job: Job) -> None:
        time_ns, kind, id, number = event
        if job.state != _OVER:
            self.tally.span(job.state, job.since_ns, time_ns)
        if kind == "start-attempt":
            self._start(time_ns, id, job)
        elif kind in ("retry", "release", "redrive"):
            self._end_attempt(time_ns, job, kind)
            if job.is_timed_out:
                self._forget_timeout(job)
            attempts = {"retry": job.attempts, "release": max(job.attempts - 1, 0), "redrive": 0}[kind]
            again = Job(job.name, WAITING, time_ns + number * _MS, attempts, job.max_attempts, job.was_started)
            self._keep(id, again)
        elif kind == "timeout-attempt":
            self._end_attempt(time_ns, job, kind)
            is_last = 0 < job.max_attempts <= job.attempts
            if is_last and time_ns >= self._since_ns:  # without a record of its own
                self.tally.count("jobs.failed", self.tally.bucket(time_ns))
                self.tally.count(LAST_TIMEOUTS, self.tally.bucket(time_ns))
                self.tally.name("jobs.failed", job.name)
            state = _OVER if is_last else WAITING
            self._keep(id, Job(job.name, state, time_ns, job.attempts, job.max_attempts, job.was_started, not is_last))
        elif kind in ("complete", "fail"):
            self._end_attempt(time_ns, job, kind)
            self._keep(id, Job(job.name, _OVER, time_ns, job.attempts, job.max_attempts, job.was_started))
        else:
            self.jobs.pop(id, None)

    def _start(self, time_ns: int, id: str, job: Job) -> None:
        if job.state == WAITING and not job.was_started and time_ns >= self._since_ns:
            self.tally.latency("jobs.wait", time_ns, time_ns - job.since_ns)
        if job.name != _UNKNOWN:
            self.jobs[id] = Job(job.name, RUNNING, time_ns, job.attempts + 1, job.max_attempts, True)

    def _end_attempt(self, time_ns: int, job: Job, kind: str) -> None:
        if time_ns < self._since_ns:
            return
        if job.state == RUNNING:
            self.tally.latency("jobs.run", time_ns, time_ns - job.since_ns)
        self.tally.name(_SERIES[kind], job.name)

    def _forget_timeout(self, job: Job) -> None:
        """In front of a retry and a release stands a timeout, for workq to see: nothing ran out of time."""
        if job.since_ns >= self._since_ns:
            self.tally.count(_SERIES["timeout-attempt"], self.tally.bucket(job.since_ns), -1)
            self.tally.name(_SERIES["timeout-attempt"], job.name, -1)

    def _keep(self, id: str, job: Job) -> None:
        if job.name != _UNKNOWN:  # its end cannot be told either
            self.jobs[id] = job
