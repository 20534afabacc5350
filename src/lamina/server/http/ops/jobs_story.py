"""The story of a job: what its records say, one after the other, as a person tells it.

Some of what happens is two records, so that workq can follow: a failure that is tried again, and a release, are a
timeout first. And of a job that workq can no longer follow, records are notes. Told is what happened.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import msgspec

from lamina.engines.jobs import codec
from lamina.engines.jobs.core import backed_off
from lamina.engines.jobs.job import MS, Job, Queue
from lamina.server.http.names import Shown, shown
from lamina.units import show_duration

_MOST_SHOWN: Final = 4096  # bytes of a result or an error

What = Literal[
    "added",
    "scheduled",
    "leased",
    "extended",
    "timed out",
    "failed",
    "released",
    "redriven",
    "completed",
    "deleted",
    "expired",
]


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a job."""

    time_ns: int
    what: What
    state: str
    """What the job is from then on: waiting, delayed, working, completed, failed or gone."""
    text: str
    """In a few words, such as ``to be tried again in 10s``."""
    attempt: int = 0
    """Which one it belongs to; 0: none."""
    since_s: float | None = None
    """Seconds since the event before."""
    said: Shown | None = None
    """The result, or the error."""
    file: str = ""
    offset: int = 0
    """Where its record is."""


class Told(NamedTuple):
    """A record about the job."""

    time_ns: int
    payload: bytes
    file: str
    offset: int


class Story:
    """Goes through the records of one job, oldest first."""

    def __init__(self) -> None:
        self.queue: str | None = None
        """The name of its queue, once its beginning was seen."""
        self.events: list[Event] = []
        self._job = Job(bytes(16), Queue(""), b"")

    def tell(self, records: Iterable[Told]) -> list[Event]:
        """Raises: BadRecord."""
        told = sorted(records)
        for number, record in enumerate(told):
            after = told[number + 1] if number + 1 < len(told) else None
            self._take(record, _kind(record.payload), None if after is None else _kind(after.payload))
        return self.events

    def _take(self, record: Told, kind: int, after: int | None) -> None:
        payload, job = record.payload, self._job
        if kind in (codec.ADD, codec.SCHEDULE):
            self._begin(record)
        elif kind == codec.START:
            job.attempts += 1
            self._note(record, "leased", "working", f"attempt {job.attempts}{_time_to_run(job)}", job.attempts)
        elif kind == codec.TIMEOUT:
            if after not in (_RETRY, _RELEASE):  # else that is what happened
                self._time_out(record)
        elif kind in (codec.COMPLETE, codec.FAIL):
            is_good = kind == codec.COMPLETE
            said = codec.decode_note(payload)[3] if codec.is_note(payload) else codec.decode_result(payload)
            what: What = "completed" if is_good else "failed"
            self._note(record, what, what, "" if is_good else "for good", job.attempts, said)
        elif kind == codec.DELETE:
            self._note(record, "deleted", "gone", "")
        elif kind == codec.EXPIRE:
            self._note(record, "expired", "gone", "its time to live was over")
        else:
            self._take_note(record, kind)

    def _begin(self, record: Told) -> None:
        _, name, ttr, ttl, priority, max_attempts, max_fails, _, time, _ = codec.decode_job(record.payload)
        backoff = self._job.backoff
        self.queue = name
        self._job = job = Job(bytes(16), Queue(name), b"")
        job.ttr, job.ttl, job.priority, job.backoff = ttr, ttl, priority, backoff
        job.max_attempts, job.max_fails = max_attempts, max_fails
        if time is None:
            self._note(record, "added", "waiting", f"with priority {priority}" if priority else "")
        else:
            wait = (time - record.time_ns) / 1e9
            text = f"to be had in {show_duration(wait)}" if wait > 0 else "for a time that had come"
            self._note(record, "scheduled", "delayed" if wait > 0 else "waiting", text)

    def _time_out(self, record: Told) -> None:
        job = self._job
        if job.max_attempts and job.attempts >= job.max_attempts:
            text = f"attempt {job.attempts} of {job.max_attempts} was the last"
            self._note(record, "timed out", "failed", text, job.attempts)
            return
        delay = backed_off(job, job.attempts)
        self._note(record, "timed out", "delayed" if delay else "waiting", _again(delay), job.attempts)

    def _take_note(self, record: Told, kind: int) -> None:
        _, _, number, text = codec.decode_note(record.payload)
        job = self._job
        if kind == _TRAITS:
            job.backoff = number  # of the job that comes next
        elif kind == _RETRY:
            state = "delayed" if number else "waiting"
            self._note(record, "failed", state, _again(number), job.attempts, text)
        elif kind == _TOUCH:
            self._note(record, "extended", "working", f"{show_duration(number / 1000)} from then on", job.attempts)
        elif kind == _RELEASE:
            state = "delayed" if number else "waiting"
            self._note(record, "released", state, f"the attempt does not count; {_again(number)}", job.attempts)
            job.attempts = max(job.attempts - 1, 0)
        elif kind == _REDRIVE:
            job.attempts = 0
            self._note(record, "redriven", "waiting", "as if it was new")

    def _note(
        self, record: Told, what: What, state: str, text: str, attempt: int = 0, said: bytes | None = None
    ) -> None:
        before = self.events[-1].time_ns if self.events else None
        self.events.append(
            Event(
                time_ns=record.time_ns,
                what=what,
                state=state,
                text=text,
                attempt=attempt,
                since_s=None if before is None else max(record.time_ns - before, 0) / 1e9,
                said=None if said is None else shown(said, _MOST_SHOWN),
                file=record.file,
                offset=record.offset,
            )
        )


_NOTES: Final = 1000  # kinds of notes are counted from here
_RETRY, _TOUCH, _RELEASE = _NOTES + codec.RETRY, _NOTES + codec.TOUCH, _NOTES + codec.RELEASE
_REDRIVE, _TRAITS = _NOTES + codec.REDRIVE, _NOTES + codec.TRAITS


def _kind(payload: bytes) -> int:
    """Of a record, or of the one that a note stands for; other notes are counted from ``_NOTES``."""
    if not codec.is_note(payload):
        return payload[0]
    kind = codec.decode_note(payload)[0]
    return kind - codec.BEYOND if kind > codec.BEYOND else _NOTES + kind


def subject(payload: bytes) -> bytes:
    """Which job a record is about. Raises: BadRecord."""
    return codec.decode_note(payload)[1] if codec.is_note(payload) else payload[1:17]


def _again(delay_ms: int) -> str:
    return f"to be tried again in {show_duration(delay_ms / 1000)}" if delay_ms else "to be tried again at once"


def _time_to_run(job: Job) -> str:
    limit = f" of {job.max_attempts}" if job.max_attempts else ""
    return limit + (f", {show_duration(job.ttr * MS / 1e9)} to run" if job.ttr else "")
