"""Cleaning: sealed segments are rewritten without the records of jobs that are gone.

The rule that keeps a log right: the end of a job (its delete, expire, result...) goes only after its beginning is gone.
So segments are visited oldest first, and in a segment a record of a dead job is dropped if it is the beginning, or if
no older segment still has the beginning. A crash in between leaves ends without a beginning, which mean nothing.

Of a job that lives, a touch goes as soon as there is a newer record about the job: whatever comes after a touch says
itself how long the lease lasts, or ends it. The newest stays, so the log alone gives the same state.

Cleaned are only segments that the checkpoint covers, so that no record is dropped which a start has yet to replay; and
a rewrite is committed only when all that it was decided by is synced.

Segments with records that a consumer of the log has yet to read (log/consumers.py) are not cleaned at all, nor are
those of the recent past (log/history.py).

Which segments are worth it, as workq: the average life left of what was kept says when to come again. Segments found
at the start are looked at once to learn it, those filled since are cleaned on the first visit. What workq does not
know: one is visited sooner when enough of the touches that it keeps have newer ones, or to write old notes anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from lamina.engines.jobs import codec
from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import NEVER, Job
from lamina.errors import DiskFull, LaminaError
from lamina.log import consumers, rewrite
from lamina.log.formats import JOBS
from lamina.log.history import Dead, History
from lamina.log.naming import NUMBERED, FileName
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading
from lamina.log.sync import Level
from lamina.log.unread import newest_of, unread
from lamina.log.writer import Log

_WORTH_IT: Final = 8
"""A segment is visited again when one in so many of the records it kept has been superseded."""


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
    past: int = 0
    """Segments that stay as they are for the sake of the recent past."""
    freed_bytes: int = 0


@dataclass(slots=True)
class _Lives:
    """Of what a segment keeps, as far as it is about living jobs: how long it will live, and what may go sooner."""

    count: int = 0
    left_ns: int = 0
    touches: list[tuple[bytes, int]] = field(default_factory=list)
    """Job and time of each touch that was the newest word about its job."""
    superseded: int = 0
    """Touches that were not: seen where nothing is dropped."""
    has_old_notes: bool = False

    def note(self, left_ns: int) -> None:
        self.count += 1
        self.left_ns += max(left_ns, 0)

    def has_enough(self, superseded: int) -> bool:
        """So many records that are superseded make it worth another visit."""
        return superseded > 0 and superseded * _WORTH_IT >= self.count


@dataclass(slots=True)
class Pinned:
    """Beginnings of dead jobs that stay for now, in segments older than the one at hand."""

    ids: set[bytes] = field(default_factory=set)
    pauses: set[bytes] = field(default_factory=set)


class Life(Protocol):
    """What is asked of a job that lives."""

    @property
    def added(self) -> int: ...

    @property
    def changed(self) -> int: ...


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
    """Cleans the log of one engine. ``history``: keeps the recent past; without it nothing is kept for its sake."""

    def __init__(self, engine: JobEngine, checkpoint: Callable[[], None], history: History | None = None) -> None:
        self._engine = engine
        self._checkpoint = checkpoint
        self._history = history
        self._visit_at: dict[str, int] = {}
        self._kept: dict[str, _Lives] = {}
        """Of segments that were looked at, if they hold touches."""
        self._past: dict[str, Dead] = {}
        """What stood to go when it was looked at first, and stays for the sake of the past."""
        self._found: set[str] = set()
        """Segments that were there at the start and have not been looked at yet."""
        if isinstance(engine.log, Log):
            self._found = {name.name for name in engine.log.reader.segments()}

    def cycle(
        self, should_stop: Callable[[], bool] = lambda: False, *, everything: bool = False, needs_room: bool = False
    ) -> CleanReport:
        """Visit every sealed segment that is worth it (or ``everything``), oldest first.

        ``needs_room``: the disk is full, so the past does not count, and only what makes room is done.
        Raises: Corruption, DiskFull, DiskError; what was rewritten before that is right.
        """
        report = CleanReport()
        now = self._engine.clock.now_ns()
        sealed, held = self.sealed(now, seals=not needs_room)
        report.held = len(held)
        due = {name for name in sealed if everything or self._is_due(name.name, now)}.difference(held)
        if due:
            self._checkpoint()
        past = self._of_the_past([name for name in sealed if name not in held], due, now, needs_room)
        report.past = len(past)
        due -= past
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
                self._clean(name, pinned, report, renews=not needs_room)
        return report

    def _is_due(self, name: str, now: int) -> bool:
        if self._visit_at.get(name, 0) <= now:
            return True
        kept, jobs = self._kept.get(name), self._engine.state.jobs
        if kept is None:
            return False
        superseded = sum((job := jobs.get(id)) is None or job.changed > time_ns for id, time_ns in kept.touches)
        return kept.has_enough(superseded)

    def _of_the_past(self, sealed: list[FileName], due: set[FileName], now: int, needs_room: bool) -> set[FileName]:
        """Those that stay as they are though they are ``due``. Who stayed before and need not any more becomes due."""
        history, folder = self._history, self._engine.folder
        if history is None or folder is None:
            return set()
        since, dead = now - int(history.keep_s * 1e9), {}
        for name in sealed if not needs_room else ():
            one = self._past.get(name.name) or (self._what_goes(name, since) if name in due else None)
            if one is not None:
                dead[name] = one
        stay = history.held(folder, dead.values(), now)
        due.update(name for name in sealed if name.name in self._past and name.name not in stay)
        self._past = {name.name: one for name, one in dead.items() if name.name in stay}
        return {name for name in dead if name.name in stay}

    def _what_goes(self, name: FileName, since: int) -> Dead | None:
        """What cleaning would take from a segment that has records since then; None: nothing, or it has none."""
        engine, state, nothing = self._engine, self._engine.state, Pinned()
        assert engine.folder is not None and isinstance(engine.log, Log)
        newest = newest_of(engine.log.reader, name)
        if newest is None or newest < since:
            return None

        def keep(time_ns: int, payload: bytes) -> bool:
            return is_kept(state, time_ns, payload, nothing)

        would = rewrite.stage_without(engine.files, engine.folder, name, NUMBERED, keep, None)
        return Dead(name.name, newest, would.bytes_before - would.bytes_after) if would.dropped else None

    def sealed(self, now: int, *, seals: bool = True) -> tuple[list[FileName], list[FileName]]:
        """Sealed segments, oldest first, and those of them that a consumer has yet to read. Raises: DiskError.

        ``seals``: the file that grows is sealed if old notes are in it, or they would stay for as long as it grows.
        """
        engine, log = self._engine, self._engine.log
        assert isinstance(log, Log) and engine.folder is not None
        active = log.reader.segments()[-1:]
        if seals and active and active[0].name in self._found:
            has_old_notes = any(codec.is_old_note(payload) for _, payload in self._records(active[0]))
            try:
                if has_old_notes:
                    log.rotate(begin_next=True)
                self._found.discard(active[0].name)
            except DiskFull:
                pass  # the next cycle tries again
        sealed = log.reader.segments()[:-1]
        return sealed, unread(log.reader, sealed, consumers.tidy(engine.files, engine.folder, now))

    def _clean(self, name: FileName, pinned: Pinned, report: CleanReport, *, renews: bool) -> None:
        engine = self._engine
        state, lives, now = engine.state, _Lives(), engine.clock.now_ns()
        assert engine.folder is not None

        def keep(time_ns: int, payload: bytes) -> bool:
            job = alive(state, time_ns, payload)
            if job is None:
                stays = is_needed(state, payload, pinned)
            elif is_superseded(job, time_ns, payload):
                return False
            else:
                stays = True
                self._note(lives, job, time_ns, payload, now)
            lives.has_old_notes = lives.has_old_notes or (stays and renews and codec.is_old_note(payload))
            return stays

        def commit() -> None:
            if lives.has_old_notes:
                engine.fence()
            self._sync_what_decided(state)

        renew = codec.renewed if renews else rewrite.as_it_is
        done = rewrite.drop_records(
            engine.files, engine.folder, name, NUMBERED, keep, before_commit=commit, renew=renew
        )
        report.visited += 1
        report.kept += done.kept
        report.freed_bytes += done.bytes_before - done.bytes_after
        report.dropped += done.dropped
        report.removed += done.is_removed
        report.rewritten += done.is_new and not done.is_removed
        self._come_again(name, lives, now)

    def _note(self, lives: _Lives, job: Job, time_ns: int, payload: bytes, now: int) -> None:
        lives.note(job.expires - now)
        if _is_touch(payload):
            lives.touches.append((job.id, time_ns))

    def _sync_what_decided(self, state: State) -> None:
        """Raises: LaminaError if the state has been taken back meanwhile: then nothing is rewritten."""
        log = self._engine.log
        assert isinstance(log, Log)
        log.wait(self._engine.all_written(), Level.SYNCED)
        if self._engine.state is not state:
            raise LaminaError("cleaning was given up: records were refused meanwhile", hint="it is tried again")

    def _come_again(self, name: FileName, lives: _Lives, now: int) -> None:
        self._kept.pop(name.name, None)
        if lives.touches:
            self._kept[name.name] = lives
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
            lives.has_old_notes = lives.has_old_notes or codec.is_old_note(payload)
            if job is None:
                _pin_record(payload, pinned)
            elif is_superseded(job, time_ns, payload):
                lives.superseded += 1
            else:
                self._note(lives, job, time_ns, payload, now)
        self._come_again(name, lives, now)
        if lives.has_old_notes or lives.has_enough(lives.superseded):
            self._visit_at.pop(name.name, None)

    def _pin(self, name: FileName, pinned: Pinned) -> None:
        for time_ns, payload in self._records(name):
            if alive(self._engine.state, time_ns, payload) is None:
                _pin_record(payload, pinned)

    def _records(self, name: FileName) -> Iterator[tuple[int, bytes]]:
        engine = self._engine
        assert engine.folder is not None
        try:
            file = open_for_reading(engine.files, engine.folder, name.name)
        except FileNotFoundError:
            return
        try:
            for batch in FileScan(file):
                for at, time_ns in enumerate(batch.times):
                    if not JOBS.is_mark(payload := batch.payload(at)):
                        yield time_ns, payload
        finally:
            file.close()


def is_kept(state: Living[L], time_ns: int, payload: bytes, pinned: Pinned) -> bool:
    """What becomes of a record."""
    job = alive(state, time_ns, payload)
    return is_needed(state, payload, pinned) if job is None else not is_superseded(job, time_ns, payload)


def alive(state: Living[L], time_ns: int, payload: bytes) -> L | None:
    """The living job whose story the record is part of."""
    if codec.is_note(payload):
        kind, id, _, _ = codec.decode_note(payload)
        job = state.jobs.get(id)
        if job is not None and kind == codec.TRAITS:
            return job if time_ns == job.added - 1 else None  # they stand before what they are about
    else:
        job = state.jobs.get(payload[1:17])
        if job is not None and payload[0] in (codec.ADD, codec.SCHEDULE):
            return job if time_ns == job.added else None
    return job if job is not None and time_ns > job.added else None


def is_superseded(job: Life, time_ns: int, payload: bytes) -> bool:
    """A record of this living job that a newer one takes the place of, whatever that one is."""
    return time_ns < job.changed and _is_touch(payload)


def _is_touch(payload: bytes) -> bool:
    return codec.is_note(payload) and codec.decode_note(payload)[0] == codec.TOUCH


def is_needed(state: Living[L], payload: bytes, pinned: Pinned) -> bool:
    """A record of no living job: it stays as long as what it ends, or what it says of a queue, is there."""
    if codec.is_note(payload):
        kind, id, _, text = codec.decode_note(payload)
        if kind in (codec.PAUSE, codec.RESUME):
            queue = state.queues.get(text.decode("latin-1"))
            return (queue is not None and queue.is_paused) or text in pinned.pauses
        return kind == codec.FENCE or id in pinned.ids
    if payload[0] in (codec.ADD, codec.SCHEDULE):
        return False
    return payload[1:17] in pinned.ids


def _pin_record(payload: bytes, pinned: Pinned) -> None:
    if codec.is_note(payload):
        kind, _, _, text = codec.decode_note(payload)
        if kind == codec.PAUSE:
            pinned.pauses.add(text)
    elif payload[0] in (codec.ADD, codec.SCHEDULE):
        pinned.ids.add(payload[1:17])
