"""Any sequence of commands, waits, restarts, kills, checkpoints and cleanings leaves the jobs as the model has them.

The engine and a model that is too plain to be wrong (jobs_model.py) are told the same; after every command all that can
be seen of them must be alike. Each step is a few commands and then something that happens to the engine as a whole.
``LAMINA_CAMPAIGN=10`` tries ten times as many sequences.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lamina.engines.jobs import checkpoint
from lamina.engines.jobs.cleaner import Cleaner
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_LEASED, PLACES, Job
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import LaminaError
from lamina.log import LogOptions, Reader
from lamina.log.survey import survey
from lamina.log.sync import ALWAYS, OS, Sync
from lamina.testing import ManualClock, MemoryFiles
from property.jobs_model import MS, NEVER, WAITING, Model, Refused

EXAMPLES = 100 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
STEPS = 40
FOLDER = "jobs"
FACTS = (
    *("ttr", "ttl", "payload", "priority", "max_attempts", "max_fails", "time", "unique", "backoff"),
    *("created", "state", "attempts", "fails", "result", "expires"),
)

# No two things fall due at the same moment, so their order is defined: each move of the clock has the salt on top of
# its milliseconds, and what is counted from one moment is never the same number of them. The salt is also more than the
# nanoseconds by which the stamps of engine and model may differ.
SALT_NS = 10_000
JUMP_SALT_NS = 453_700
NEAR_NS = 3_000


def some(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(choices)


TTR = some(20, 1000, 100_000)
TOUCH = some(25, 1500)
TTL = some(2_592_000_000, 2_592_000_000, 2_592_000_000, 6000, 300)
DELAY = some(0, 35, 2500)
BACKOFF = some(0, 0, 13, 450)
OFFSET = some(-50, 45, 4000)
PASSES = some(1, 15, 40, 40, 40, 400, 2000, 2000, 7000, 200_000, 2_600_000_000)
JUMP = some(-3_600_000, -5000, -500, 500, 5000, 3_600_000)

IDS = [bytes([0, 0, 0, n, 0, 0, 0x40, 0, 0x80, *bytes(6), n]) for n in range(1, 13)]
WHICH = st.integers(0, 31)
NAME = some("a", "b", "c")
NAMES = st.lists(NAME, min_size=1, max_size=3, unique=True)
MOST = st.integers(1, 3)
LIMIT = some(0, 0, 1, 2, 3)
UNIQUE = some("", "", "k", "l")
PRIORITY = some(0, 0, 1, -1)
RESULT = some(b"", b"done", b"x" * 130)


def command(name: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(st.just(name), *arguments)


COMMAND = st.one_of(
    command("add", WHICH, NAME, TTR, TTL, PRIORITY, LIMIT, LIMIT),
    command("add_with_traits", WHICH, NAME, TTR, LIMIT, LIMIT, UNIQUE, BACKOFF),
    command("schedule", WHICH, NAME, OFFSET, TTL, LIMIT, UNIQUE, BACKOFF),
    command("run_in_front", WHICH, NAME, TTR, PRIORITY),
    command("forget", WHICH),
    command("lease", NAMES, MOST),
    command("lease", NAMES, MOST),
    command("complete", WHICH, RESULT),
    command("fail", WHICH, RESULT, some(False, False, True)),
    command("fail", WHICH, RESULT, some(False, False, True)),
    command("delete", WHICH),
    command("delete", WHICH),
    command("touch", WHICH, TOUCH),
    command("release", WHICH, DELAY),
    command("redrive", WHICH),
    command("redrive_queue", NAME, MOST),
    command("pause", NAME, some(True, False, False)),
    command("wait_for_jobs", NAMES, MOST),
    command("leave", WHICH),
    command("wait_for_result", WHICH),
    command("stop_listening", WHICH),
)
COMMANDS = st.lists(COMMAND, max_size=9)


def disk_with(contents: dict[str, bytes]) -> MemoryFiles:
    disk = MemoryFiles(contents)
    disk.make_folder(FOLDER)
    return disk


def outcome(call: Callable[..., Any], *arguments: Any, **more: Any) -> tuple[str, Any]:
    """The name of the error, and what was returned if there was none."""
    try:
        return "", call(*arguments, **more)
    except LaminaError as error:
        return type(error).__name__, None
    except Refused as refused:
        return str(refused), None


def lists(engine: JobEngine) -> dict[tuple[str, str], list[bytes]]:
    queues = engine.state.queues.values()
    found = {(queue.name, PLACES[at]): [job.id for job in queue.lists[at]] for queue in queues for at in range(5)}
    return {where: ids for where, ids in found.items() if ids}


def paused(engine: JobEngine) -> set[str]:
    return {queue.name for queue in engine.state.queues.values() if queue.is_paused}


def lasting(engine: JobEngine, *, is_ahead: bool) -> object:
    """Everything that a restart must bring back, to the nanosecond.

    Where the wall clock was set back, the engine's clock goes on from the newest record: a job that was awake may wait
    for its time again, and times that jobs were scheduled for are counted anew.
    """
    names = (*FACTS, "added", "changed", "order", "beyond", "lease_until", "ready_at")
    kept = {id: job for id, job in engine.state.jobs.items() if not job.is_foreground}
    facts = {id: {name: getattr(job, name) for name in names} for id, job in kept.items()}
    dozing = {id for id, job in kept.items() if is_ahead and job.ready_at}
    for id in dozing:
        del facts[id]["ready_at"], facts[id]["expires"]
    order = {where: [id for id in ids if id in kept and id not in dozing] for where, ids in lists(engine).items()}
    keys = {(queue.name, key): job.id for queue in engine.state.queues.values() for key, job in queue.uniques.items()}
    return facts, {where: ids for where, ids in order.items() if ids}, keys, paused(engine)


class Gate:
    """The lock of an engine at which others, who have been waiting for it, come in first."""

    def __init__(self, lock: Any, let_in: Callable[[], object]) -> None:
        self.lock, self.let_in = lock, let_in
        self.is_open = True

    def __enter__(self) -> None:
        if self.is_open:
            self.is_open = False
            self.let_in()
            self.is_open = True
        self.lock.acquire()

    def __exit__(self, *problem: object) -> None:
        self.lock.release()


class JobsMachine(RuleBasedStateMachine):
    """Drives an engine and a model."""

    sync: Sync = ALWAYS

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.disk = disk_with({})
        self.model = Model()
        self.workers: dict[int, LeaseWaiter] = {}
        self.listeners: dict[int, tuple[bytes, Callable[[Job, int], None]]] = {}
        self.got: dict[int, list[bytes]] = {}
        self.told: dict[int, tuple[int, bytes | None]] = {}
        self.gone: set[int] = set()
        self.held: dict[bytes, tuple[Job, int]] = {}  # until when it is somebody's
        self.ending = b""
        self.numbers = iter(range(1, 1 << 30))
        self.is_ahead = False  # the engine, of the wall clock, since that was set back
        self.jumps_back = True
        self.open()
        self.settle()

    @initialize(jumps_back=st.booleans())
    def choose(self, jumps_back: bool) -> None:
        self.jumps_back = jumps_back

    # -- opening, telling, looking -------------------------------------------------------------------------------

    def opened(self, disk: MemoryFiles, clock: ManualClock) -> JobEngine:
        options = LogOptions(sync=self.sync, segment_bytes=300)
        return JobEngine.open(FOLDER, files=disk, clock=clock, threaded=False, options=options)

    def open(self) -> None:
        self.engine = self.opened(self.disk, self.clock)
        self.engine.on_due = self.come_at_once
        self.alarm: float | None = 0.0
        self.upkeep = Upkeep(self.engine)

    def come_at_once(self) -> None:
        self.alarm = 0.0

    @property
    def now(self) -> int:
        return self.engine.clock.now_ns()

    def settle(self) -> None:
        self.engine.push()
        self.engine.log.run_round()
        self.written = {id: dict(job) for id, job in self.model.jobs.items()}, self.model.paused

    def obey(self, commands: list[Any]) -> None:
        while commands:
            self.obey_next(commands)

    def obey_next(self, commands: list[Any]) -> bool:
        if commands:
            name, *arguments = commands.pop(0)
            getattr(self, name)(*arguments)
            self.compare()
        return False

    def both(self, name: str, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        """Tell both the same; the same must come of it."""
        self.do_due()
        ours = outcome(getattr(self.model, name), *arguments, **more)
        theirs = outcome(getattr(self.engine, name), *arguments, **more)
        assert ours[0] == theirs[0], f"{name}: the model says {ours[0] or 'ok'}, the engine {theirs[0] or 'ok'}"
        return ours[1], theirs[1]

    def do_due(self) -> int:
        """In the model; the engine has to do it by itself before anything else."""
        self.model.now = self.now
        return self.model.tick()

    def compare(self) -> None:
        model, engine = self.model, self.engine
        places = {(job["name"], place) for job in model.jobs.values() for place in PLACES}
        expected = {where: [job["id"] for job in model.listed(*where)] for where in places}
        assert {where: ids for where, ids in expected.items() if ids} == lists(engine)
        assert sorted(model.jobs) == sorted(engine.state.jobs)
        for id, job in engine.state.jobs.items():
            ours = model.jobs[id]
            assert {name: ours[name] for name in FACTS} == {name: getattr(job, name) for name in FACTS}
            assert abs(ours["lease_until"] - job.lease_until) < NEAR_NS
            assert abs(ours["ready_at"] - job.ready_at) < NEAR_NS
        assert model.paused == paused(engine)
        assert model.evicted == engine.evicted
        assert model.got == self.got
        assert model.told == self.told
        for queue in engine.state.queues.values():
            is_stuck = queue.ready.size and engine.workers.count(queue.name) and not queue.is_paused
            assert not is_stuck, "a job lies ready while a worker waits for it"

    def pick(self, which: int, place: str) -> bytes:
        """An id: mostly of a job in that place, else of any job, else any."""
        there = sorted(id for id, job in self.model.jobs.items() if job["place"] == place and which % 4)
        ids = there or sorted(self.model.jobs) or IDS
        return ids[which // 4 % len(ids)]

    def fresh(self, which: int) -> bytes:
        """An id that is free, mostly."""
        ids = [id for id in IDS if id not in self.model.jobs or not which % 4] or IDS
        return ids[which // 4 % len(ids)]

    # -- commands ------------------------------------------------------------------------------------------------

    def add(self, which: int, name: str, ttr: int, ttl: int, priority: int, attempts: int, fails: int) -> None:
        self.both("add", self.fresh(which), name, ttr, ttl, b"payload", priority, attempts, fails, None, "", 0)

    def add_with_traits(
        self, which: int, name: str, ttr: int, attempts: int, fails: int, unique: str, backoff: int
    ) -> None:
        self.both("add", self.fresh(which), name, ttr, 6000, b"", 0, attempts, fails, None, unique, backoff)

    def schedule(self, which: int, name: str, offset: int, ttl: int, attempts: int, unique: str, backoff: int) -> None:
        time = self.now - self.engine.ahead + offset * MS + next(self.numbers) % 100 * 20
        self.both("add", self.fresh(which), name, 1000, ttl, b"", 0, attempts, 2, time, unique, backoff)

    def run_in_front(self, which: int, name: str, ttr: int, priority: int) -> None:
        self.both("run", self.fresh(which), name, ttr, b"fore", priority)

    def forget(self, which: int) -> None:
        job = self.engine.state.jobs.get(self.pick(which, "completed"))
        if job is not None and job.is_foreground:
            self.engine.forget(job)
            del self.model.jobs[job.id]

    def lease(self, names: list[str], most: int) -> None:
        ours, (jobs, position) = self.both("lease", names, most)
        assert ours == self.hand_over(jobs, position)

    def hand_over(self, jobs: list[Job], position: int) -> list[bytes]:
        for job in jobs:
            before, until = self.held.get(job.id, (None, 0))
            assert before is not job or until <= self.now, "handed to two workers at once"
            if job.id != self.ending:
                self.held[job.id] = (job, job.lease_until)
        assert bool(position) == any(not job.is_foreground for job in jobs)
        return [job.id for job in jobs]

    def give_up(self, name: str, id: bytes, *arguments: Any, **more: Any) -> None:
        """A command after which nobody holds the job, unless it was handed to the next at once."""
        self.held.pop(id, None)
        self.ending = id
        self.both(name, id, *arguments, **more)
        self.ending = b""
        job = self.engine.state.jobs.get(id)
        if job is not None and job.at == AT_LEASED:
            self.held[id] = (job, job.lease_until)

    def complete(self, which: int, result: bytes) -> None:
        self.give_up("complete", self.pick(which, "leased"), result)

    def fail(self, which: int, result: bytes, for_good: bool) -> None:
        self.give_up("fail", self.pick(which, "leased"), result, for_good=for_good)

    def delete(self, which: int) -> None:
        self.give_up("delete", self.pick(which, "ready" if which % 2 else "completed"))

    def release(self, which: int, delay: int) -> None:
        self.give_up("release", self.pick(which, "leased"), delay)

    def touch(self, which: int, ttr: int) -> None:
        id = self.pick(which, "leased")
        _, position = self.both("touch", id, ttr)
        if position is not None:
            job = self.engine.state.jobs[id]
            self.held[id] = (job, job.lease_until)

    def redrive(self, which: int) -> None:
        self.both("redrive", self.pick(which, "failed"))

    def redrive_queue(self, name: str, limit: int) -> None:
        self.engine.state.queue(name)  # an empty queue may be unknown after a restart
        ours, (done, _) = self.both("redrive_queue", name, limit)
        assert ours == done

    def pause(self, name: str, pauses: bool) -> None:
        self.both("pause", name, pauses=pauses)

    def wait_for_jobs(self, names: list[str], most: int) -> None:
        number = next(self.numbers)

        def deliver(jobs: list[Job], position: int) -> None:
            assert number not in self.got, "a worker was served twice"
            assert number not in self.gone, "a worker was served who had left"
            assert jobs, "a worker was served with nothing"
            self.got[number] = self.hand_over(jobs, position)

        self.workers[number] = LeaseWaiter(names, most, deliver)
        self.do_due()
        self.model.expect_job(number, names, most)
        self.engine.expect_job(self.workers[number])

    def leave(self, which: int) -> None:
        if self.workers:
            number = sorted(self.workers)[which % len(self.workers)]
            assert self.model.leave(number) == self.engine.leave(self.workers.pop(number))
            self.gone.add(number)

    def wait_for_result(self, which: int) -> None:
        number, id = next(self.numbers), self.pick(which, "leased")

        def deliver(job: Job, position: int) -> None:
            assert number not in self.told and number not in self.gone
            self.told[number] = (job.state, job.result)

        self.listeners[number] = (id, deliver)
        self.do_due()
        ours = outcome(self.model.expect_result, number, id)
        theirs = outcome(self.engine.expect_result, id, deliver)
        assert ours[0] == theirs[0]

    def stop_listening(self, which: int) -> None:
        if self.listeners:
            number = sorted(self.listeners)[which % len(self.listeners)]
            waits = (number, self.listeners[number][0]) in self.model.listening
            assert waits == self.engine.results.remove(*self.listeners.pop(number))
            self.model.listening = [each for each in self.model.listening if each[0] != number]
            self.gone.add(number)

    # -- time ----------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        due, wait = self.do_due(), self.engine.tick()
        assert wait != 0, "something is still due"
        assert abs(due - (NEVER if wait is None else self.now + round(wait * 1e9))) < NEAR_NS
        self.alarm = None if wait is None else self.clock.monotonic() + wait
        self.compare()

    def tick_if_told(self) -> None:
        if self.alarm is not None and self.alarm <= self.clock.monotonic():
            self.tick()

    @rule(commands=COMMANDS, ms=PASSES)
    def time_passes(self, commands: list[Any], ms: int) -> None:
        """Whoever ticks comes when he was told to, and not before."""
        while commands:
            self.obey_next(commands)
            self.tick_if_told()
        self.clock.advance(ms / 1000 + SALT_NS / 1e9)
        self.tick_if_told()
        self.do_due()
        self.compare()

    @rule(commands=COMMANDS, ms=PASSES)
    def time_passes_and_the_tick_is_late(self, commands: list[Any], ms: int) -> None:
        self.obey(commands)
        self.clock.advance(ms / 1000 + SALT_NS / 1e9)

    @rule(ms=JUMP)
    def the_wall_clock_jumps(self, ms: int) -> None:
        if ms > 0 or self.jumps_back:
            self.clock.jump(ms / 1000 + JUMP_SALT_NS / 1e9)

    # -- the end, and a new beginning ----------------------------------------------------------------------------

    @rule(commands=COMMANDS, is_orderly=st.booleans())
    def restart(self, commands: list[Any], is_orderly: bool) -> None:
        """All is as it was, but for what fell due because the wall clock was moved."""
        self.obey(commands)
        self.tick()
        self.settle()
        before = lasting(self.engine, is_ahead=self.is_ahead)
        has_jumped = abs(self.clock.now_ns() + self.engine.ahead - self.now) > NEAR_NS
        if is_orderly:
            self.engine.close()
        self.begin_again()
        assert has_jumped or before == lasting(self.engine, is_ahead=self.is_ahead)

    @rule(written=COMMANDS, lost=COMMANDS)
    def kill_with_records_not_written(self, written: list[Any], lost: list[Any]) -> None:
        self.obey(written)
        self.settle()
        self.obey(lost)
        self.model.jobs, self.model.paused = self.written
        self.begin_again()

    def begin_again(self) -> None:
        self.clock.advance(SALT_NS / 1e9)  # or the newest records would be ahead of the clock
        self.disk = disk_with(self.disk.contents())
        times = [batch.times[-1] for _, batch in Reader(FOLDER, files=self.disk).batches()]
        for each in (self.workers, self.listeners, self.held):
            each.clear()
        self.open()
        self.model.jobs = {id: job for id, job in self.model.jobs.items() if job["ttl"]}
        self.model.waiting, self.model.listening = [], []
        self.model.last, self.model.ahead = times[-1] if times else 0, self.engine.ahead
        self.is_ahead |= self.engine.ahead > 0
        if self.is_ahead:
            self.count_scheduled_times_anew()
        self.do_due()
        self.model.evicted = 0
        self.compare()
        self.tick()
        self.settle()

    def count_scheduled_times_anew(self) -> None:
        """The wall clock was set back: see ``lasting``."""
        for id, ours in self.model.jobs.items():
            if ours["time"] is not None:
                ours["expires"] = ours["time"] + self.engine.ahead + ours["ttl"] * MS
            if ours["ready_at"] and id in self.engine.state.jobs:
                job = self.engine.state.jobs[id]
                ours["ready_at"] = job.ready_at
                if {ours["place"], PLACES[job.at]} == {*WAITING}:
                    ours["place"] = PLACES[job.at]

    # -- the disk ------------------------------------------------------------------------------------------------

    @rule(commands=COMMANDS)
    def rotate(self, commands: list[Any]) -> None:
        self.obey(commands)
        self.settle()
        self.engine.log.rotate()

    @rule(commands=COMMANDS, meanwhile=COMMANDS)
    def make_a_checkpoint(self, commands: list[Any], meanwhile: list[Any]) -> None:
        """One command comes in before each job that is written."""
        self.obey(commands)
        lock, size = self.engine.lock, checkpoint._SLICE
        self.engine.lock = Gate(lock, lambda: self.obey_next(meanwhile))  # type: ignore[assignment]
        checkpoint._SLICE = 1  # type: ignore[misc]
        try:
            self.upkeep.checkpoint()
        finally:
            self.engine.lock, checkpoint._SLICE = lock, size  # type: ignore[misc]
        self.check_the_disk()

    @rule(commands=COMMANDS, meanwhile=COMMANDS, everything=some(False, False, True), is_new=some(False, False, True))
    def clean(self, commands: list[Any], meanwhile: list[Any], everything: bool, is_new: bool) -> None:
        """One command comes in before each segment that is visited."""
        self.rotate(commands)
        if is_new:
            self.upkeep.cleaner = Cleaner(self.engine, self.upkeep.checkpoint)
        self.upkeep.cleaner.cycle(lambda: self.obey_next(meanwhile), everything=everything)
        self.check_the_disk()

    def check_the_disk(self) -> None:
        """The log is whole, and gives the same jobs with and without the checkpoint."""
        self.tick()
        self.settle()
        expected = lasting(self.engine, is_ahead=self.is_ahead)
        contents = self.disk.contents()
        found = survey(disk_with(contents), FOLDER)
        assert not found.damage and not found.torn
        for left_out in ("", f"{FOLDER}/{checkpoint.CHECKPOINT}"):
            disk = disk_with({path: data for path, data in contents.items() if path != left_out})
            engine = self.opened(disk, ManualClock(self.now - self.engine.ahead + SALT_NS))
            assert expected == lasting(engine, is_ahead=self.is_ahead)


@pytest.mark.slow
@pytest.mark.parametrize("policy", [ALWAYS, OS], ids=str)
def test_the_engine_does_what_the_model_does(policy: Sync) -> None:
    machine = type("JobsMachine", (JobsMachine,), {"sync": policy})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=STEPS,
            deadline=None,
            report_multiple_bugs=False,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
