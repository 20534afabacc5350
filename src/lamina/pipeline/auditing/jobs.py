"""The command log: whatever happens to a job happens between its beginning and its end.

The engine's own state is what each command is held against, before it takes it; so memory is that of the jobs that
live, not of all that ever were. What is no violation, because engine or cleaning make it so:

    an end without a beginning     if a trace shows that cleaning took the beginning (holding.py)
    a second add of an id          if the life of the first was over by then: nobody need have written that down
    a result without an attempt    clients may give one; it is counted
    a timeout without an attempt   in front of a retry: a failure without an attempt is written as both
"""

from __future__ import annotations

from typing import Final

from lamina.engines.jobs import codec
from lamina.engines.jobs.core import State
from lamina.engines.jobs.job import FAILED, LEASED, Job
from lamina.pipeline.auditing.findings import JOB_ADDED, JOB_ATTEMPTS, JOB_ENDED, JOB_ONCE, MEANING, Findings
from lamina.pipeline.auditing.walking import Record, Walk
from lamina.pipeline.views.jobs import show_id

_BEGINS: Final = (codec.ADD, codec.SCHEDULE)
_ENDS: Final = (codec.DELETE, codec.EXPIRE)
_RESULTS: Final = (codec.COMPLETE, codec.FAIL)
_NOTE: Final = 32
"""What kinds of notes are told from kinds of records by."""
_ABOUT_NO_JOB: Final = tuple(_NOTE + kind for kind in (codec.FENCE, codec.PAUSE, codec.RESUME, codec.TRAITS))
_RETRY, _TOUCH, _RELEASE, _REDRIVE = (_NOTE + kind for kind in (codec.RETRY, codec.TOUCH, codec.RELEASE, codec.REDRIVE))


def audit(findings: Findings, walk: Walk) -> None:
    """Raises: DiskError."""
    _Jobs(findings, walk).audit()


class _Jobs:
    def __init__(self, findings: Findings, walk: Walk) -> None:
        self._findings, self._walk = findings, walk
        self._state = State()
        self._before: tuple[int, bytes, bool] = (0, b"", False)
        """Kind and job of the command before, and whether the job was leased then."""
        self._doubtful: Record | None = None
        """A timeout without an attempt: right if a retry is next."""
        self._orphans = self._unbegun = 0

    def audit(self) -> None:
        rows = 0
        for record in self._walk.records_of():
            rows += 1
            try:
                kind, id = _subject(record.payload)
                self._look(record, kind, id)
                self._state.apply(record.time_ns, record.payload)
            except ValueError as error:
                self._walk.means_nothing(record, error)
        for name in (MEANING, JOB_ADDED, JOB_ONCE, JOB_ENDED, JOB_ATTEMPTS):
            self._findings.looked(name, rows)
        if self._orphans:
            text = f"{self._orphans} records are of jobs whose beginning cleaning has removed"
            self._findings.note(JOB_ADDED, text)
        if self._unbegun:
            self._findings.note(JOB_ATTEMPTS, f"{self._unbegun} jobs were given a result without an attempt")

    def _look(self, record: Record, kind: int, id: bytes) -> None:
        doubtful, self._doubtful = self._doubtful, None
        if doubtful is not None and (kind, id) != (_RETRY, self._before[1]) and doubtful.file == record.file:
            # As the last of a file it is what a crash left of both.
            self._walk.bad(JOB_ATTEMPTS, doubtful, "an attempt ends that was never begun")
        before, self._before = self._before, (kind, id, False)
        if kind in _ABOUT_NO_JOB or kind > _NOTE + codec.TRAITS:
            return
        job = self._state.jobs.get(id)
        if kind in _BEGINS:
            if job is not None and job.expires > record.time_ns:
                self._walk.bad(JOB_ONCE, record, f"job {show_id(id)} is added, and is there already")
            return
        if job is None:
            if self._walk.trace.is_whole:
                self._walk.bad(JOB_ADDED, record, f"{_name(kind)} of job {show_id(id)}, which is not there")
            else:
                self._orphans += 1
            return
        self._before = (kind, id, job.state == LEASED)
        if kind not in _ENDS:
            self._look_at_job(record, kind, job, before)

    def _look_at_job(self, record: Record, kind: int, job: Job, before: tuple[int, bytes, bool]) -> None:
        name = f"{_name(kind)} of job {show_id(job.id)}"
        if kind == _REDRIVE:
            if job.state != FAILED:
                self._walk.bad(JOB_ENDED, record, f"{name}, which has not failed")
            return
        if job.is_processed:
            self._walk.bad(JOB_ENDED, record, f"{name}, which has its result already")
            return
        is_leased = job.state == LEASED
        is_told = before[:2] == (codec.TIMEOUT, job.id)
        """What workq can see of a retry or a release came just before."""
        if kind in _RESULTS:
            self._unbegun += not is_leased
        elif kind == codec.START and is_leased:
            self._walk.bad(JOB_ATTEMPTS, record, f"{name}, though the one before goes on")
        elif kind == codec.TIMEOUT and not is_leased:
            self._doubtful = record
        elif (kind == _TOUCH and not is_leased) or (kind == _RELEASE and not is_leased and not (is_told and before[2])):
            self._walk.bad(JOB_ATTEMPTS, record, f"{name}, which nobody works on")
        elif kind == _RETRY and not is_leased and not is_told:
            self._walk.bad(JOB_ATTEMPTS, record, f"{name}, of which no attempt has ended")


def _subject(payload: bytes) -> tuple[int, bytes]:
    """Kind and job of a command; a note that stands for a record is that record. Raises: BadRecord."""
    if len(payload) < 17:
        raise codec.BadRecord("a record without a job id")
    if not codec.is_note(payload):
        return payload[0], payload[1:17]
    kind, id, _, _ = codec.decode_note(payload)
    return (kind - codec.BEYOND if kind > codec.BEYOND else _NOTE + kind), id


def _name(kind: int) -> str:
    if kind > _NOTE:
        return codec.NOTE_NAMES[kind - _NOTE]
    return codec.NAMES[kind] if 0 < kind < len(codec.NAMES) else f"a record of kind {kind}"
