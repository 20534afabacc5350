"""A life of a job server against a disk that remembers, and what every disk after a power cut must show.

The story keeps the whole visible state after each record of the log. A disk after a cut, opened, must show one of
these states, whole: not an older one than was promised, and never a mixture of two (a deleted or completed job that is
back, a job that is lost, an attempt that is forgotten). The same must be so when the checkpoint is taken away.

While a checkpoint or a cleaned segment is being written, other threads go on. ``Disk`` lets the story do so at exactly
those places, with one thread and by seed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from unittest import mock

from lamina.engines.jobs import checkpoint, codec, loading
from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import (
    AT_FAILED,
    AT_LEASED,
    AT_READY,
    AT_SCHEDULED,
    FAILED,
    MS,
    PENDING,
    Job,
)
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import BadJob, JobError
from lamina.log import rewrite
from lamina.log.files.memory import Content, MemoryFiles
from lamina.log.formats import JOBS
from lamina.log.naming import NUMBERED
from lamina.log.options import LogOptions
from lamina.log.reader import Reader, Record
from lamina.log.sync import ALWAYS, OS, Level, Sync, interval
from lamina.log.writer import Log, Position
from lamina.testing import ManualClock, PowerLoss, PowerLossState

POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
FOLDER = "data"
CHECKPOINT = f"{FOLDER}/checkpoint"
QUEUES = ("a", "b", "c")
IDS = [bytes((16 + number,)) * 16 for number in range(14)]
AFTER = b"\xee" * 16
"""The job that is added after a cut."""
_TIMEOUT_NOTE = codec.BEYOND + codec.TIMEOUT

# -- what clients see -----------------------------------------------------------------------------------------------


class Seen(NamedTuple):
    """A job, as far as any client can see it."""

    queue: str
    place: int
    """``scheduled`` is told apart from ``ready`` in View.delayed: no record says that a job awakes."""
    state: int
    payload: bytes
    lease_until: int
    expires: int
    attempts: int
    fails: int
    result: bytes | None
    priority: int
    ttr: int
    ttl: int
    max_attempts: int
    max_fails: int
    time: int | None
    created: int
    unique: str
    backoff: int


class View(NamedTuple):
    """Everything that clients can see."""

    jobs: dict[bytes, Seen]
    delayed: dict[bytes, int]
    """Which jobs are in the list of scheduled ones, and until when."""
    paused: frozenset[str]
    uniques: frozenset[tuple[str, str, bytes]]

    @property
    def key(self) -> int:
        return hash((frozenset(self.jobs.items()), self.paused, self.uniques))

    def is_as(self, other: View, now: int) -> bool:
        """The same at the time ``now``, when those whose time had come were ready."""
        if (self.jobs, self.paused, self.uniques) != (other.jobs, other.paused, other.uniques):
            return False
        mine, theirs = ({id: until for id, until in v.delayed.items() if until > now} for v in (self, other))
        return mine == theirs

    def without_times(self) -> View:
        """What is the same whatever the clock of the world says: scheduled times are given by that one."""
        jobs = {id: seen._replace(expires=0) if seen.time is not None else seen for id, seen in self.jobs.items()}
        return self._replace(jobs=jobs, delayed={})


def view_of(state: State) -> View:
    jobs: dict[bytes, Seen] = {}
    delayed: dict[bytes, int] = {}
    for id, job in state.jobs.items():
        if job.is_foreground:
            continue
        if job.at == AT_SCHEDULED:
            delayed[id] = job.ready_at
        place = AT_READY if job.at == AT_SCHEDULED else job.at
        jobs[id] = Seen(job.queue.name, place, *(getattr(job, name) for name in Seen._fields[2:]))
    queues = state.queues.values()
    paused = frozenset(queue.name for queue in queues if queue.is_paused)
    uniques = frozenset((queue.name, key, job.id) for queue in queues for key, job in queue.uniques.items())
    return View(jobs, delayed, paused, uniques)


def check_lists(state: State) -> None:
    """Each job is in the list of its place, in order, and nowhere else; and each is on the agenda."""
    listed: list[bytes] = []
    for queue in state.queues.values():
        for place, jobs in enumerate(queue.lists):
            found = list(jobs)
            assert all(job.at == place and job.queue is queue for job in found), "a job in a list of another place"
            assert len(found) == len(jobs), "a list that miscounts"
            listed += [job.id for job in found]
    assert sorted(listed) == sorted(state.jobs), "a job in no list, or in two"
    on_agenda = {job.id for job in state.agenda.heap}
    assert on_agenda >= {id for id, job in state.jobs.items() if not job.is_foreground}, "a job that never falls due"


# -- the disk, and those who go on while it is written to ---------------------------------------------------------


def _is_replacement(path: str) -> bool:
    """Of a segment or a checkpoint: nobody holds the lock of the log meanwhile."""
    return path.endswith(".rw") and not path.endswith("manifest.rw")


class Disk(PowerLoss):
    """Lets others work while a replacement is being made. ``between(may_wait)`` is called where they could."""

    between: Callable[[bool], None] | None = None

    def __init__(self, contents: dict[str, bytes] | None = None, model: str = "strict") -> None:
        super().__init__(contents, model)  # type: ignore[arg-type]
        self._temporary: set[int] = set()

    def do_link(self, path: str, content: Content) -> None:
        super().do_link(path, content)
        if _is_replacement(path):
            self._temporary.add(content.number)
            self._let_others(may_wait=True)

    def do_append(self, content: Content, data: bytes) -> None:
        super().do_append(content, data)
        if content.number in self._temporary:
            self._let_others(may_wait=True)

    def do_sync(self, content: Content) -> None:
        # The log's own sync happens under its lock: others may append meanwhile, but not wait.
        self._let_others(may_wait=content.number in self._temporary)
        super().do_sync(content)

    def do_rename(self, old: str, new: str) -> None:
        super().do_rename(old, new)
        self._let_others(may_wait=_is_replacement(old))

    def do_remove(self, path: str) -> None:
        super().do_remove(path)
        self._let_others(may_wait=path.endswith(".log"))

    def _let_others(self, *, may_wait: bool) -> None:
        between, self.between = self.between, None
        if between is not None:
            between(may_wait)
        self.between = between


# -- the story ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Acked:
    """The caller was told that everything up to ``position`` has reached ``level``."""

    position: int
    level: Level


@dataclass(frozen=True)
class Time:
    """It is ``now_ns``."""

    now_ns: int


@dataclass
class Moment:
    """The log up to one record, and what clients saw then."""

    position: int
    view: View
    now: int = 0
    """The latest time at which it was so."""
    is_half: bool = False
    """Inside a command of two records. Whoever gave it has no answer yet, and its first half is a timeout."""


class WatchedLog(Log):
    """Tells the story of every record that the engine gives to the log."""

    story: ClassVar[Story]

    def append_at(self, first: Position, payloads: Sequence[bytes]) -> None:
        super().append_at(first, payloads)
        self.story.appended(first, payloads)


@dataclass
class Story:
    """What was done, the disk it was done to, and what was to be seen after each record.

    What was to be seen is told by a state of the story's own, which takes the records one by one and never sees a disk,
    a checkpoint or a cleaned segment. The engine's must be the same at every step.
    """

    disk: Disk
    clock: ManualClock
    policy: Sync
    rng: random.Random
    segment_bytes: int = 700
    first: Callable[[], State] = State
    """What was there before."""

    def __post_init__(self) -> None:
        self.engine: JobEngine | None = None
        self.state = self.first()
        self.records: list[tuple[int, bytes]] = []
        self.moments = [Moment(0, view_of(self.state))]
        self.foreground: list[bytes] = []
        self.done: set[str] = set()
        """Names of the acts that had an effect, to know what a story covers."""
        self._writes: list[tuple[float, int]] = []
        self._by_key: dict[int, list[Moment]] = {}
        self._loaded = 0
        self.begin()

    # -- opening and closing -------------------------------------------------------------------------------------

    def begin(self) -> None:
        self._check_restart()
        self._note_time()
        watched = type("WatchedLog", (WatchedLog,), {"story": self})
        with mock.patch.object(loading, "Log", watched):
            self.engine = self.open(self.disk, self.clock)
        self._note_time()
        self._check_engine(self.engine)
        self.upkeep = Upkeep(self.engine)
        self.foreground = []
        self.note_progress()

    @property
    def options(self) -> LogOptions:
        return LogOptions(sync=self.policy, segment_bytes=self.segment_bytes, gather_bytes=1 << 30)

    def open(self, files: MemoryFiles, clock: ManualClock) -> JobEngine:
        return JobEngine.open(FOLDER, files=files, clock=clock, threaded=False, options=self.options)

    def load(self, contents: dict[str, bytes]) -> tuple[State, int]:
        """What a start finds on this disk, before it does anything that has fallen due; and how far the log came."""
        files = MemoryFiles(contents)
        log = Log.open(FOLDER, files=files, threaded=False, options=self.options, family=NUMBERED, format=JOBS)
        try:
            payloads = (batch.payload(at) for _, batch in log.reader.batches() for at in range(len(batch.times)))
            notes = [payload for payload in payloads if codec.is_note(payload)]
            if not all(map(codec.is_old_note, notes)):
                assert codec.FENCE_RECORD in notes, "a lamina of before opens it, and forgets what notes say"
            return checkpoint.load(files, FOLDER, log.reader)[0], log.position
        finally:
            log.close()

    def kill(self) -> None:
        """The process dies and is started again: what was written stays, what was not was never there."""
        written = max(self.log.written, self._loaded)
        self.records = [record for record in self.records if record[0] <= written]
        self.moments = [moment for moment in self.moments if moment.position <= written]
        self.state = self.first()
        for position, payload in self.records:
            self.state.apply(position, payload)
        self.engine = None
        self.disk.drop_locks()
        self.begin()

    def close(self, jump_s: float = 0) -> None:
        assert self.engine is not None
        engine, self.engine = self.engine, None
        engine.close()
        self._check_engine(engine)
        self.disk.note(Acked(self.moments[-1].position, Level.SYNCED))
        self.clock.jump(jump_s)
        self.begin()

    def _check_restart(self) -> None:
        """A start shows what was there when the process ended."""
        state, position = self.load(self.disk.contents())
        last = self.moments[-1]
        assert view_of(state).is_as(last.view, last.now), "a restart shows another state than the last one"
        # The newest record may have been cleaned away since: then the log ends before the moment.
        last.position = self._loaded = max(last.position, position)

    @property
    def log(self) -> Log:
        assert self.engine is not None and isinstance(self.engine.log, Log)
        return self.engine.log

    # -- what was seen -------------------------------------------------------------------------------------------

    def appended(self, first: int, payloads: Sequence[bytes]) -> None:
        for position, payload in enumerate(payloads, first):
            self.moments[-1].is_half = self._is_second_half(position, payload)
            self.state.apply(position, payload)
            self.records.append((position, payload))
            self.moments.append(Moment(position, view_of(self.state), self.moments[-1].now))
        if self.engine is not None:
            self._check_engine(self.engine)

    def _is_second_half(self, position: int, payload: bytes) -> bool:
        """A job that is given back, or fails for now, is a timeout for workq, and a note for us right behind it."""
        if not codec.is_note(payload) or not self.records:
            return False
        kind, id, _, _ = codec.decode_note(payload)
        before, what = self.records[-1]
        is_timeout = what == codec.encode_plain(codec.TIMEOUT, id) or what == codec.encode_note(_TIMEOUT_NOTE, id)
        return kind in (codec.RETRY, codec.RELEASE) and before == position - 1 and is_timeout

    def _check_engine(self, engine: JobEngine) -> None:
        """The engine is where the records are."""
        view, last = view_of(engine.state), self.moments[-1]
        if engine.ahead:
            is_same = view.without_times().is_as(last.view.without_times(), last.now)
        else:
            is_same = view.is_as(last.view, last.now)
        assert is_same, "the engine does what it does not log"
        check_lists(engine.state)

    def find(self, view: View) -> Iterator[Moment]:
        """When clients saw this. For stories that are over."""
        if not self._by_key:
            for moment in self.moments:
                self._by_key.setdefault(moment.view.key, []).append(moment)
        for moment in self._by_key.get(view.key, []):
            if view.is_as(moment.view, moment.now):
                yield moment

    # -- promises ------------------------------------------------------------------------------------------------

    def settle(self, position: int) -> None:
        """Wait for the answer; from here on it is promised."""
        self.engine.settle(position)
        self.disk.note(Acked(position, self.policy.level))
        self.note_progress()

    def note_progress(self) -> None:
        """What the log says of itself is a promise too."""
        log = self.log
        self.disk.note(Acked(log.written, Level.WRITTEN))
        self.disk.note(Acked(log.synced, Level.SYNCED))
        self._writes.append((self.clock.monotonic(), log.written))

    def round(self) -> None:
        """The committer comes by. Under ``interval``, what was written an interval ago is safe from then on."""
        assert self.engine is not None
        self.engine.push()
        self.log.run_round()
        if self.policy.interval_ms is not None:
            before = self.clock.monotonic() - self.policy.interval_ms / 1000
            due = max((position for when, position in self._writes if when <= before), default=0)
            self.disk.note(Acked(due, Level.SYNCED))
        self.note_progress()

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self._note_time()

    def _note_time(self) -> None:
        self.disk.note(Time(self.clock.now_ns()))
        # A job that awoke before the clock went back is awake in a checkpoint but not by the log alone. Both are right.
        clock = self.clock if self.engine is None else self.engine.clock
        self.moments[-1].now = max(self.moments[-1].now, clock.now_ns())

    # -- commands ------------------------------------------------------------------------------------------------

    def say(self, act: str, *arguments: object, settles: bool = True, **more: object) -> int:
        """Give the engine a command; 0 if it was refused for what it says. With ``settles``, wait for its answer."""
        try:
            answer = getattr(self.engine, act)(*arguments, **more)
        except (JobError, BadJob):
            return 0
        position: int = answer[1] if isinstance(answer, tuple) else answer
        if position:
            self.done.add(act)
            if settles:
                self.settle(position)
        return position

    def add(self, number: int, queue: str = "a", *, ttr: int = 1000, ttl: int = 3_600_000, **more: object) -> int:
        size = more.pop("size", 40)
        assert isinstance(size, int)
        payload = b"%d." % number + bytes(size)
        return self.say("add", IDS[number], queue, ttr, ttl, payload, **more)

    def ids(self, *places: int) -> list[bytes]:
        jobs = self.engine.state.jobs
        return [id for id, job in jobs.items() if job.at in places and not job.is_foreground]

    def checkpoint(self) -> None:
        before = self.engine.checkpointed
        with mock.patch.object(checkpoint, "_SLICE", 2):
            self.upkeep.checkpoint()
        if self.engine.checkpointed > before:
            self.done.add("checkpoint")
        self.note_progress()

    def clean(self, *, everything: bool = True) -> None:
        with mock.patch.object(checkpoint, "_SLICE", 2):
            report = self.upkeep.cleaner.cycle(everything=everything)
        self.done |= {name for name in ("rewritten", "removed", "skipped", "dropped") if getattr(report, name)}
        self.note_progress()


# -- told by seed ---------------------------------------------------------------------------------------------------


def tell(policy: str, seed: int, *, steps: int = 45, model: str = "strict") -> Story:
    """Commands, rotation, checkpoints, cleaning, kills and restarts, as ``seed`` says."""
    rng = random.Random(f"jobs/{policy}/{seed}")
    sizes = (300, 500, 700, 1500)
    story = Story(Disk(model=model), ManualClock(), POLICIES[policy], rng, segment_bytes=sizes[seed % len(sizes)])
    for _ in range(steps):
        if rng.random() < 0.4:
            story.pass_time(rng.choice([0.0001, 0.02, 0.3, 0.3, 2.0]))
        act = rng.random()
        if act < 0.72:
            command(story)
        elif act < 0.76:
            story.round()
        elif act < 0.79:
            story.log.rotate()
            story.note_progress()
        elif act < 0.83:
            with others_go_on(story):
                story.checkpoint()
        elif act < 0.92:
            with others_go_on(story):
                story.clean(everything=rng.random() < 0.5)
        elif act < 0.96:
            story.kill()
        else:
            story.close(rng.choice([0, 0, -3600]))
    story.round()
    if seed % 2:
        story.close()
    return story


class others_go_on:  # noqa: N801 - reads as a verb where it is used
    """For a while, now and then a command comes in between."""

    def __init__(self, story: Story) -> None:
        self._story = story

    def __enter__(self) -> None:
        share = self._story.rng.choice([0, 0.15, 0.5])

        def between(may_wait: bool) -> None:
            if self._story.rng.random() < share:
                command(self._story, settles=may_wait and self._story.rng.random() < 0.5)

        self._story.disk.between = between

    def __exit__(self, *problem: object) -> None:
        self._story.disk.between = None


def command(story: Story, *, settles: bool | None = None) -> None:
    """Some command, and more often than not its answer."""
    rng = story.rng
    settles = rng.random() < 0.75 if settles is None else settles
    acts = (_add, _lease, _finish, _fail, _delete, _touch, _release, _redrive, _pause, _tick, _run, _expect)
    with suppress(IndexError):  # no job is where it would have to be
        position = rng.choices(acts, (24, 16, 12, 8, 9, 3, 4, 5, 4, 8, 2, 2))[0](story)
        if position and settles:
            story.settle(position)


def _add(story: Story) -> int:
    rng = story.rng
    more: dict[str, object] = {}
    if rng.random() < 0.2:
        more["time"] = story.clock.now_ns() + rng.choice([-50, 30, 400, 5000]) * MS
    if rng.random() < 0.25:
        more["unique"] = rng.choice(["", "u1", "u2"])
        more["backoff"] = rng.choice([0, 10, 700])
    return story.add(
        rng.randrange(len(IDS)),
        rng.choice(QUEUES),
        ttr=rng.choice([30, 400, 5000]),
        ttl=rng.choice([500, 3000, 20_000, 3_600_000]),
        size=rng.choice([0, 20, 150, 400]),
        priority=rng.choice([0, 0, 5, -3]),
        max_attempts=rng.choice([0, 0, 1, 2]),
        max_fails=rng.choice([0, 2, 3]),
        settles=False,
        **more,
    )


def _lease(story: Story) -> int:
    names = story.rng.sample(QUEUES, story.rng.choice([1, 2, 3]))
    return story.say("lease", names, story.rng.choice([1, 1, 3]), settles=False)


def _expect(story: Story) -> int:
    """A worker waits: the next job of its queue is its own as soon as there is one."""

    def deliver(jobs: list[Job], position: int) -> None:
        story.done.add("deliver")

    story.engine.expect_job(LeaseWaiter([story.rng.choice(QUEUES)], 1, deliver))
    story.engine.push()
    return story.moments[-1].position


def _finish(story: Story) -> int:
    id = story.rng.choice(story.ids(AT_LEASED, *story.rng.choice([(), (AT_READY, AT_SCHEDULED)])))
    return story.say("complete", id, b"r" * story.rng.choice([0, 5, 90]), settles=False)


def _fail(story: Story) -> int:
    id = story.rng.choice(story.ids(AT_LEASED, *story.rng.choice([(), (AT_READY, AT_SCHEDULED)])))
    return story.say("fail", id, b"why" * 3, for_good=story.rng.random() < 0.3, settles=False)


def _delete(story: Story) -> int:
    return story.say("delete", story.rng.choice(list(story.engine.state.jobs)), settles=False)


def _touch(story: Story) -> int:
    return story.say("touch", story.rng.choice(story.ids(AT_LEASED)), story.rng.choice([10, 2000]), settles=False)


def _release(story: Story) -> int:
    return story.say("release", story.rng.choice(story.ids(AT_LEASED)), story.rng.choice([0, 0, 300]), settles=False)


def _redrive(story: Story) -> int:
    id = story.rng.choice(story.ids(AT_FAILED))
    if story.rng.random() < 0.5:
        return story.say("redrive_queue", story.engine.state.jobs[id].queue.name, 3, settles=False)
    return story.say("redrive", id, settles=False)


def _pause(story: Story) -> int:
    name = story.rng.choice(QUEUES)
    queue = story.engine.state.queues.get(name)
    return story.say("pause", name, pauses=not (queue and queue.is_paused), settles=False)


def _tick(story: Story) -> int:
    before = story.moments[-1].position
    story.engine.tick()
    position = story.moments[-1].position
    if position > before:
        story.done.add("tick")
    return position if position > before else 0


def _run(story: Story) -> int:
    """A job in the foreground: in no log, in no checkpoint, and no trouble to either."""
    if story.foreground and story.rng.random() < 0.7:
        id = story.foreground.pop()
        story.say("complete", id, b"", settles=False)
        if (job := story.engine.state.jobs.get(id)) is not None and job.is_foreground:
            story.engine.forget(job)
        return 0
    id = story.rng.randbytes(16)
    story.engine.run(id, story.rng.choice(QUEUES), 1000, b"now")
    story.foreground.append(id)
    return 0


# -- the promises ---------------------------------------------------------------------------------------------------


def promised(state: PowerLossState) -> int:
    """The newest position that this disk must have."""
    levels = (Level.SYNCED, Level.WRITTEN) if state.is_kill else (Level.SYNCED,)
    return max((note.position for note in state.notes if isinstance(note, Acked) and note.level in levels), default=0)


def time_of(state: PowerLossState) -> int:
    """When the power went."""
    return next(note.now_ns for note in reversed(state.notes) if isinstance(note, Time))


def check(story: Story, state: PowerLossState, *, variant: int = 0) -> set[int]:
    """Open a disk after a cut and hold it against the promises. Raises AssertionError naming the broken one.

    ``variant`` counts the disks: some of them are looked at more closely. Returns the digests of the disks after a
    second cut, inside the recovery of this one, that were looked at too.
    """
    contents, least, now = state.files.contents(), promised(state), time_of(state)
    view = _check_disk(story, contents, least)
    if CHECKPOINT in contents:
        bare = {path: data for path, data in contents.items() if path != CHECKPOINT}
        alone = _check_disk(story, bare, least)
        assert alone.is_as(view, _LATEST), "the log alone gives another state than checkpoint and log"
        if variant % 8 == 1:
            _check_start(story, bare, alone, now, goes_on=True, cleans=variant % 16 == 1)
    _check_start(story, contents, view, now, goes_on=variant % 3 == 0, cleans=variant % 6 == 0)
    return _check_cuts_inside_recovery(story, contents, now) if variant % 150 == 0 else set()


_LATEST = 1 << 62


def _check_disk(story: Story, contents: dict[str, bytes], least: int) -> View:
    """What is on the disk is a moment of the story, and none that is too old."""
    state, _ = story.load(contents)
    view = view_of(state)
    _check_is_a_moment(story, view, least)
    check_lists(state)
    assert len(view.jobs) == len(state.jobs), "a job of the foreground outlived its caller"
    return view


def _check_start(
    story: Story, contents: dict[str, bytes], view: View, now: int, *, goes_on: bool, cleans: bool
) -> None:
    """The power is back at once: the same, but for what has fallen due since the newest record."""
    files = MemoryFiles(contents)
    engine = story.open(files, ManualClock(now))
    found, expected = view_of(engine.state), after_due(view, engine.clock.now_ns(), engine.ahead)
    assert found.jobs == expected.jobs, "what fell due was not done as it should be"
    assert (found.paused, found.uniques) == (expected.paused, expected.uniques)
    check_lists(engine.state)
    if goes_on:
        _go_on(story, engine, files, cleans=cleans)
    engine.close()


def _go_on(story: Story, engine: JobEngine, files: MemoryFiles, *, cleans: bool) -> None:
    """What was found once stays, through cleaning too, and what is added now joins it."""
    if cleans:
        upkeep = Upkeep(engine)
        engine.log.rotate()
        upkeep.cleaner.cycle(everything=True)
    engine.settle(engine.add(AFTER, "after", 1000, 999_000, b"after the cut"))
    seen = view_of(engine.state)
    if cleans:
        upkeep.cleaner.cycle(everything=True)
        files.drop_locks()  # killed
    else:
        engine.close()
    after = view_of(story.load(files.contents())[0])
    assert AFTER in after.jobs, "a job added after recovery is gone"
    if engine.ahead:
        seen, after = seen.without_times(), after.without_times()
    assert after.is_as(seen, engine.clock.now_ns()), "jobs changed from one start to the next"
    story.open(files, ManualClock(engine.clock.now_ns())).close()


def records(contents: dict[str, bytes]) -> Iterator[Record]:
    return Reader(FOLDER, files=MemoryFiles(contents)).read()


def in_the_former_form(payload: bytes) -> bytes:
    """A note as it was before layout 2."""
    if not codec.is_note(payload):
        return payload
    kind, id, number, text = codec.decode_note(payload)
    body = id + codec.uvarint(number) + text
    return b"\x03lamjob\0" + bytes([kind]) + bytes(8) + codec.uvarint(len(body)) + body


def as_it_was(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The files as a lamina of before would have written them."""
    files = MemoryFiles({path: data for path, data in contents.items() if path != CHECKPOINT})
    for name in Reader(FOLDER, files=files).segments():
        rewrite.drop_records(
            files,
            FOLDER,
            name,
            NUMBERED,
            lambda time_ns, payload: payload != codec.FENCE_RECORD,
            renew=in_the_former_form,
        )
    return files.contents()


def _check_is_a_moment(story: Story, view: View, least: int) -> None:
    found = [moment.position for moment in story.find(view)]
    if not found:
        raise AssertionError(f"a state that never was: {_nearest(story, view)}")
    assert max(found) >= least, "an acknowledged change is lost"


def _nearest(story: Story, view: View) -> str:
    """In what the state differs from the moment that is most like it."""

    def differences(other: View) -> list[str]:
        out = [f"paused {sorted(view.paused)}, not {sorted(other.paused)}"] if view.paused != other.paused else []
        if view.uniques != other.uniques:
            out.append(f"unique keys {sorted(view.uniques)}, not {sorted(other.uniques)}")
        for id in {*view.jobs, *other.jobs}:
            mine, theirs = view.jobs.get(id), other.jobs.get(id)
            if mine is None or theirs is None:
                out.append(f"job {id.hex()[:4]} is {'lost' if mine is None else 'back'}: {mine or theirs}")
            elif mine != theirs:
                changed = [name for name in Seen._fields if getattr(mine, name) != getattr(theirs, name)]
                pairs = [f"{name} {getattr(mine, name)!r}, not {getattr(theirs, name)!r}" for name in changed]
                out.append(f"job {id.hex()[:4]} has {'; '.join(pairs)}")
        return out or [f"delayed {view.delayed}, not {other.delayed}"]

    seen = [(moment, differences(moment.view)) for moment in story.moments]
    moment, best = min(reversed(seen), key=lambda pair: len(pair[1]))
    return f"nearest to position {moment.position}: {', '.join(best)}"


def after_due(view: View, now: int, ahead: int) -> View:
    """What the clock alone does to jobs, in a few lines: it ends lives and leases."""
    jobs: dict[bytes, Seen] = {}
    for id, seen in view.jobs.items():
        if seen.time is not None:
            seen = seen._replace(expires=seen.expires + ahead)
        if seen.place == AT_LEASED and seen.lease_until <= now:
            if seen.max_attempts and seen.attempts >= seen.max_attempts:
                seen = seen._replace(state=FAILED, place=AT_FAILED, result=b"", lease_until=0)
            else:
                seen = seen._replace(state=PENDING, place=AT_READY, lease_until=0)
        if seen.expires > now:
            jobs[id] = seen
    uniques = frozenset(key for key in view.uniques if key[2] in jobs and jobs[key[2]].state != FAILED)
    return view._replace(jobs=jobs, uniques=uniques)


def _check_cuts_inside_recovery(story: Story, contents: dict[str, bytes], now: int) -> set[int]:
    """The power goes again while the first recovery is at work, or in the first commands behind it."""

    def first() -> State:
        return story.load(contents)[0]

    disk, rng = Disk(contents, story.disk.model), random.Random(now)
    second = Story(disk, ManualClock(now), story.policy, rng, story.segment_bytes, first)
    for _ in range(3):
        command(second)
    second.clean()
    second.add(0)
    second.say("delete", IDS[0])
    second.round()
    # Whatever the first start showed was there before it: its own promises begin with that.
    digests: set[int] = set()
    for number, after in enumerate(some_states(disk, rng, points=20)):
        digests.add(digest(after))
        again = after.files.contents()
        view = _check_disk(second, again, promised(after))
        if number % 4 == 0:
            _check_start(second, again, view, time_of(after), goes_on=True, cleans=number % 8 == 0)
    return digests


def some_states(disk: PowerLoss, rng: random.Random, *, points: int, each: int = 4) -> Iterator[PowerLossState]:
    """A few disks after a cut at each of some points, drawn at random."""
    for point in rng.sample(range(disk.points + 1), min(points, disk.points + 1)):
        states = list(disk.states(per_point=8, seed=rng.getrandbits(32), at=point))
        yield from rng.sample(states, min(each, len(states)))


def digest(state: PowerLossState) -> int:
    return hash(frozenset(state.files.contents().items()))
