"""Cleaning: sealed segments are rewritten without the records of jobs that are gone.

The rule that keeps a log right: the end of a job (its delete, expire, result...) goes only after its beginning is gone.
So segments are visited oldest first, and in a segment a record of a dead job is dropped if it is the beginning, or if
no older segment still has the beginning. A crash in between leaves ends without a beginning, which mean nothing.

Cleaned are only segments that the checkpoint covers, so that no record is dropped which a start has yet to replay; and
a rewrite is committed only when all that it was decided by is synced.

Segments with records that a consumer of the log has yet to read (log/consumers.py) are not cleaned at all.

Which segments are worth it, as workq: the average life left of what was kept says when to come again. Segments found
at the start are looked at once to learn it, those filled since are cleaned on the first visit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from lamina.engines.jobs import codec
from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import NEVER
from lamina.errors import LaminaError
from lamina.log import consumers, rewrite
from lamina.log.formats import JOBS
from lamina.log.naming import NUMBERED, FileName
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading
from lamina.log.sync import Level
from lamina.log.unread import unread
from lamina.log.writer import Log


@dataclass(slots=True)
class CleanReport:
    """What a cycle did."""

    visited: int = 0
    rewritten: int = 0
    removed: int = 0
    dropped: int = 0
    kept: int = 0
    skipped: int = 0
    """Segments that are not worth a visit yet, or that are held."""
    held: int = 0
    """Segments that a consumer has yet to read."""
    freed_bytes: int = 0


@dataclass(slots=True)
class _Lives:
    """Of what a segment keeps: how long it will live."""

    count: int = 0
    left_ns: int = 0

    def note(self, left_ns: int) -> None:
        self.count += 1
        self.left_ns += max(left_ns, 0)


@dataclass(slots=True)
class Pinned:
    """Beginnings of dead jobs that stay for now, in segments older than the one at hand."""

    ids: set[bytes] = field(default_factory=set)
    pauses: set[bytes] = field(default_factory=set)


class Life(Protocol):
    """What is asked of a job that lives."""

    @property
    def added(self) -> int: ...


class Pausable(Protocol):
    """What is asked of a queue."""

    @property
    def is_paused(self) -> bool: ...


L = TypeVar("L", bound=Life)
L_co = TypeVar("L_co", bound=Life, covariant=True)


class Living(Protocol[L_co]):
    """What decides about records: a State, or facts that were taken from one."""

    @property
    def jobs(self) -> Mapping[bytes, L_co]: ...

    @property
    def queues(self) -> Mapping[str, Pausable]: ...


class Cleaner:
    """Cleans the log of one engine."""

    def __init__(self, engine: JobEngine, checkpoint: Callable[[], None]) -> None:
        self._engine = engine
        self._checkpoint = checkpoint
        self._visit_at: dict[str, int] = {}
        self._found: set[str] = set()
        """Segments that were there at the start and have not been looked at yet."""
        if isinstance(engine.log, Log):
            self._found = {name.name for name in engine.log.reader.segments()}

    def cycle(self, should_stop: Callable[[], bool] = lambda: False, *, everything: bool = False) -> CleanReport:
        """Visit every sealed segment that is worth it (or ``everything``), oldest first.

        Raises: Corruption, DiskFull, DiskError; what was rewritten before that is right.
        """
        report = CleanReport()
        now = self._engine.clock.now_ns()
        sealed, held = self.sealed(now)
        report.held = len(held)
        due = {name for name in sealed if everything or self._visit_at.get(name.name, 0) <= now}.difference(held)
        if due:
            self._checkpoint()
        pinned = Pinned()
        for name in sealed:
            if should_stop():
                break
            if name not in due:
                report.skipped += 1
                if any(other > name for other in due):
                    self._pin(name, pinned)
            elif name.name in self._found and not everything:
                self._found.discard(name.name)
                self._learn(name, pinned)
                report.skipped += 1
            else:
                self._clean(name, pinned, report)
        return report

    def sealed(self, now: int) -> tuple[list[FileName], list[FileName]]:
        """Sealed segments, oldest first, and those of them that a consumer has yet to read. Raises: DiskError."""
        engine, log = self._engine, self._engine.log
        assert isinstance(log, Log) and engine.folder is not None
        sealed = log.reader.segments()[:-1]
        return sealed, unread(log.reader, sealed, consumers.tidy(engine.files, engine.folder, now))

    def _clean(self, name: FileName, pinned: Pinned, report: CleanReport) -> None:
        engine = self._engine
        state, lives, now = engine.state, _Lives(), engine.clock.now_ns()
        assert engine.folder is not None

        def keep(time_ns: int, payload: bytes) -> bool:
            job = alive(state, time_ns, payload)
            if job is not None:
                lives.note(job.expires - now)
                return True
            return is_needed(state, payload, pinned)

        def commit() -> None:
            self._sync_what_decided(state)

        done = rewrite.drop_records(engine.files, engine.folder, name, NUMBERED, keep, before_commit=commit)
        report.visited += 1
        report.kept += done.kept
        report.freed_bytes += done.bytes_before - done.bytes_after
        report.dropped += done.dropped
        report.removed += done.is_removed
        report.rewritten += bool(done.dropped) and not done.is_removed
        self._come_again(name, lives, now)

    def _sync_what_decided(self, state: State) -> None:
        """Raises: LaminaError if the state has been taken back meanwhile: then nothing is rewritten."""
        log = self._engine.log
        assert isinstance(log, Log)
        log.wait(self._engine.all_written(), Level.SYNCED)
        if self._engine.state is not state:
            raise LaminaError("cleaning was given up: records were refused meanwhile", hint="it is tried again")

    def _come_again(self, name: FileName, lives: _Lives, now: int) -> None:
        if lives.count:
            self._visit_at[name.name] = now + min(lives.left_ns // lives.count, NEVER - now)
        else:
            self._visit_at.pop(name.name, None)

    # -- segments that are not rewritten ---------------------------------------------------------------------------

    def _learn(self, name: FileName, pinned: Pinned) -> None:
        """Look at a segment for how long its jobs will live."""
        lives, now, state = _Lives(), self._engine.clock.now_ns(), self._engine.state
        for time_ns, payload in self._records(name):
            job = alive(state, time_ns, payload)
            if job is not None:
                lives.note(job.expires - now)
            else:
                _pin_record(payload, pinned)
        self._come_again(name, lives, now)

    def _pin(self, name: FileName, pinned: Pinned) -> None:
        for time_ns, payload in self._records(name):
            if alive(self._engine.state, time_ns, payload) is None:
                _pin_record(payload, pinned)

    def _records(self, name: FileName) -> list[tuple[int, bytes]]:
        engine = self._engine
        assert engine.folder is not None
        try:
            file = open_for_reading(engine.files, engine.folder, name.name)
        except FileNotFoundError:
            return []
        try:
            return [
                (time_ns, payload)
                for batch in FileScan(file)
                for at, time_ns in enumerate(batch.times)
                if not JOBS.is_mark(payload := batch.payload(at))
            ]
        finally:
            file.close()


def _subject(payload: bytes) -> bytes:
    """Which job a record is about."""
    return codec.decode_note(payload)[1] if codec.is_note(payload) else payload[1:17]


def alive(state: Living[L], time_ns: int, payload: bytes) -> L | None:
    """The living job whose story the record is part of."""
    job = state.jobs.get(_subject(payload))
    if job is None:
        return None
    if payload[0] in (codec.ADD, codec.SCHEDULE):
        return job if time_ns == job.added else None
    if codec.is_note(payload) and codec.decode_note(payload)[0] == codec.TRAITS:
        return job if time_ns == job.added - 1 else None  # they stand before what they are about
    return job if time_ns > job.added else None


def is_needed(state: Living[L], payload: bytes, pinned: Pinned) -> bool:
    """A record of no living job: it stays as long as what it ends, or what it says of a queue, is there."""
    if payload[0] in (codec.ADD, codec.SCHEDULE):
        return False
    if codec.is_note(payload):
        kind, id, _, text = codec.decode_note(payload)
        if kind in (codec.PAUSE, codec.RESUME):
            queue = state.queues.get(text.decode("latin-1"))
            return (queue is not None and queue.is_paused) or text in pinned.pauses
        return id in pinned.ids
    return payload[1:17] in pinned.ids


def _pin_record(payload: bytes, pinned: Pinned) -> None:
    if payload[0] in (codec.ADD, codec.SCHEDULE):
        pinned.ids.add(payload[1:17])
    elif codec.is_note(payload):
        kind, _, _, text = codec.decode_note(payload)
        if kind == codec.PAUSE:
            pinned.pauses.add(text)
