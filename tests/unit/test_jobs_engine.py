"""The jobs engine, command by command, with a clock and a disk that obey: what happens, what is refused, what lasts."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import COMPLETED, FAILED, LEASED, NEW, PENDING, PLACES, Job
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import (
    BadJob,
    DiskFull,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    LaminaError,
    LogClosed,
    LogFailed,
    NotLeased,
)
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, OS, Sync
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

FOLDER = "jobs"
MS = 1_000_000
SECOND = 1000 * MS
HOUR = 3_600_000
DAY = 24 * HOUR
FACTS = (
    *("priority", "ttr", "ttl", "payload", "result", "time", "unique", "backoff", "max_attempts", "max_fails"),
    *("attempts", "fails", "state", "at", "created", "ready_at", "lease_until", "expires"),
)


def nth(number: int) -> bytes:
    """An id of version 4."""
    return number.to_bytes(6, "big") + b"\x40\0\x80" + number.to_bytes(7, "big")


class Lab:
    """An engine on a disk in memory, with verbs for what tests do to it. Jobs go by number."""

    def __init__(self, sync: Sync = ALWAYS, clock: ManualClock | None = None) -> None:
        self.disk = MemoryFiles()
        self.files = FaultyFiles(self.disk)
        self.clock = clock or ManualClock()
        self.options = LogOptions(sync=sync)
        self.open()

    def open(self) -> JobEngine:
        self.engine = JobEngine.open(FOLDER, files=self.files, clock=self.clock, options=self.options, threaded=False)
        return self.engine

    def reopen(self) -> JobEngine:
        self.engine.close()
        return self.open()

    def restart(self) -> JobEngine:
        """The process is killed and started again."""
        self.disk = MemoryFiles(self.disk.contents())
        self.files = FaultyFiles(self.disk)
        return self.open()

    @property
    def now(self) -> int:
        return self.engine.clock.now_ns()

    def add(self, number: int, name: str = "q", ttr: int = 1000, ttl: int = HOUR, **more: Any) -> bytes:
        payload = more.pop("payload", b"%d" % number)
        self.engine.settle(self.engine.add(nth(number), name, ttr, ttl, payload, **more))
        return nth(number)

    def do(self, command: str, number: int, *arguments: Any, **more: Any) -> None:
        self.engine.settle(getattr(self.engine, command)(nth(number), *arguments, **more))

    def lease(self, *names: str, most: int = 1) -> list[int]:
        """Numbers of the jobs that were handed out."""
        jobs, position = self.engine.lease(names or ("q",), most)
        self.engine.settle(position)
        return numbers(jobs)

    def job(self, number: int) -> Job:
        return self.engine.job(nth(number))

    def place(self, number: int) -> str:
        return PLACES[self.job(number).at]

    def listed(self, place: str = "ready", name: str = "q") -> list[int]:
        return numbers(self.engine.state.queues[name].lists[PLACES.index(place)])

    def pass_time(self, seconds: float) -> None:
        """So much and a little more: records that came one after another have times that do, by nanoseconds."""
        self.clock.advance(seconds + 1e-6)
        self.engine.tick()

    def worker(self, *names: str, most: int = 1) -> Worker:
        worker = Worker(names or ("q",), most)
        self.engine.expect_job(worker.waiter)
        return worker

    def listener(self, number: int) -> list[tuple[int, bytes | None]]:
        """What somebody who waits for the result is told."""
        told: list[tuple[int, bytes | None]] = []
        self.engine.expect_result(nth(number), lambda job, position: told.append((job.state, job.result)))
        return told

    def fill_disk(self, times: int = 1 << 30) -> None:
        self.files.fail("append", error=errno.ENOSPC, times=times)

    def picture(self) -> object:
        """Everything that can be seen of the jobs."""
        state = self.engine.state
        jobs = {id: tuple(getattr(job, fact) for fact in FACTS) for id, job in state.jobs.items()}
        lists = {name: [numbers(jobs) for jobs in queue.lists] for name, queue in state.queues.items()}
        more = {
            name: (queue.is_paused, {key: job.id for key, job in queue.uniques.items()})
            for name, queue in state.queues.items()
        }
        return jobs, lists, more, state.next_due()


class Worker:
    """Waits for jobs."""

    def __init__(self, names: tuple[str, ...], most: int) -> None:
        self.got: list[list[int]] = []
        self.waiter = LeaseWaiter(names, most, lambda jobs, position: self.got.append(numbers(jobs)))


def numbers(jobs: Any) -> list[int]:
    return [int.from_bytes(job.id[:6], "big") for job in jobs]


@pytest.fixture
def lab() -> Lab:
    return Lab()


AGAIN: dict[str, Callable[[Lab], object]] = {"restart": Lab.restart, "orderly": Lab.reopen}


def over_a_checkpoint(lab: Lab) -> None:
    Upkeep(lab.engine).checkpoint()
    lab.restart()
    assert lab.engine.checkpointed


every_start = pytest.mark.parametrize("again", [*AGAIN.values(), over_a_checkpoint], ids=[*AGAIN, "checkpoint"])


# -- add -----------------------------------------------------------------------------------------------------------


def test_a_new_job_is_ready_with_the_facts_it_was_given(lab: Lab) -> None:
    lab.add(1, "mail", 2000, 5000, payload=b"x", priority=-3, max_attempts=2, max_fails=4, unique="k", backoff=7)
    job = lab.job(1)
    assert (job.queue.name, job.ttr, job.ttl, job.payload, job.priority) == ("mail", 2000, 5000, b"x", -3)
    assert (job.max_attempts, job.max_fails, job.unique, job.backoff) == (2, 4, "k", 7)
    assert (job.state, lab.place(1), job.attempts, job.fails, job.result) == (NEW, "ready", 0, 0, None)
    assert (job.created, job.expires) == (lab.now, lab.now + 5 * SECOND)


@pytest.mark.parametrize("end", ["ready", "leased", "completed", "failed"])
def test_an_id_is_taken_in_any_state_and_any_queue(lab: Lab, end: str) -> None:
    lab.add(1)
    if end != "ready":
        lab.lease()
    if end in ("completed", "failed"):
        lab.do("complete" if end == "completed" else "fail", 1, b"")
    with pytest.raises(DuplicateJob):
        lab.add(1, "another")
    with pytest.raises(DuplicateJob):
        lab.engine.run(nth(1), "another", 1000, b"")


def test_an_id_is_free_again_when_the_job_is_gone(lab: Lab) -> None:
    lab.add(1)
    lab.do("delete", 1)
    lab.add(1, ttl=1000)
    lab.pass_time(1)
    lab.add(1, "another")
    assert lab.lease("another") == [1]


def test_a_time_is_refused_when_the_whole_life_is_past(lab: Lab) -> None:
    with pytest.raises(BadJob, match="Invalid Time"):
        lab.add(1, ttl=1000, time=lab.now - SECOND)
    assert "q" not in lab.engine.state.queues
    lab.add(1, ttl=1001, time=lab.now - SECOND)
    assert lab.lease() == [1]


def test_the_zero_time_is_no_time(lab: Lab) -> None:
    lab.add(1, time=-62135596800 * SECOND)
    assert (lab.job(1).time, lab.place(1)) == (None, "ready")


def test_a_refused_job_changes_nothing(lab: Lab) -> None:
    lab.add(1, unique="k")
    before = lab.picture()
    for refused in ({"number": 1}, {"number": 2, "unique": "k"}, {"number": 3, "ttl": 1, "time": lab.now - SECOND}):
        with pytest.raises(LaminaError):
            lab.add(**refused)  # type: ignore[arg-type]
    assert lab.picture() == before
    assert lab.restart().state.jobs.keys() == {nth(1)}


# -- order and lease -----------------------------------------------------------------------------------------------


def test_priority_then_time_then_age_then_id(lab: Lab) -> None:
    past = lab.now - SECOND
    lab.add(9, time=past + 5)
    lab.add(8, time=past)
    lab.clock.advance(0.001)
    lab.add(5)
    lab.add(4)
    lab.clock.advance(0.001)
    lab.add(3, priority=1)
    lab.add(2, priority=-1)
    lab.add(1, priority=2**31 - 1)
    lab.add(6, priority=-(2**31))
    order = [1, 3, 4, 5, 8, 9, 2, 6]
    assert lab.listed() == order
    assert lab.lease(most=100) == order


def test_nothing_ready_leases_nothing_and_makes_the_queue(lab: Lab) -> None:
    assert lab.lease("nobody", "knows") == []
    assert {"nobody", "knows"} <= lab.engine.state.queues.keys()


def test_of_several_queues_the_highest_priority_comes_first_then_the_oldest(lab: Lab) -> None:
    lab.add(1, "a")
    lab.clock.advance(0.001)
    lab.add(2, "b")
    lab.add(3, "c", priority=1)
    assert [lab.lease("b", "c", "a", "a") for _ in range(4)] == [[3], [1], [2], []]


def test_a_lease_says_when_it_ends_and_counts_the_attempt(lab: Lab) -> None:
    lab.add(1, ttr=2500)
    lab.lease()
    job = lab.job(1)
    assert (job.state, job.attempts, lab.place(1)) == (LEASED, 1, "leased")
    assert 0 <= job.lease_until - lab.now - 2500 * MS < 100


# -- commands and their errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "arguments"),
    [("complete", [b""]), ("fail", [b""]), ("delete", []), ("touch", [1]), ("release", []), ("redrive", [])],
)
def test_a_command_about_no_job_is_refused(lab: Lab, command: str, arguments: list[Any]) -> None:
    with pytest.raises(JobNotFound):
        lab.do(command, 1, *arguments)
    with pytest.raises(JobNotFound):
        lab.job(1)
    with pytest.raises(JobNotFound):
        lab.listener(1)


@pytest.mark.parametrize("end", ["complete", "fail"])
@pytest.mark.parametrize("second", ["complete", "fail"])
def test_a_second_result_is_refused_and_the_first_stays(lab: Lab, end: str, second: str) -> None:
    lab.add(1)
    lab.do(end, 1, b"first")
    with pytest.raises(DuplicateResult):
        lab.do(second, 1, b"second")
    assert lab.job(1).result == b"first"


@pytest.mark.parametrize("state", ["ready", "scheduled", "completed"])
def test_only_a_leased_job_can_be_touched_or_released(lab: Lab, state: str) -> None:
    lab.add(1, time=lab.now + SECOND if state == "scheduled" else None)
    if state == "completed":
        lab.do("complete", 1, b"")
    for command, arguments in (("touch", [1000]), ("release", [0])):
        with pytest.raises(NotLeased):
            lab.do(command, 1, *arguments)


@pytest.mark.parametrize("state", ["ready", "scheduled", "leased", "pending"])
@pytest.mark.parametrize(("end", "expected"), [("complete", COMPLETED), ("fail", FAILED)])
def test_a_result_needs_no_lease(lab: Lab, state: str, end: str, expected: int) -> None:
    lab.add(1, time=lab.now + SECOND if state == "scheduled" else None)
    if state in ("leased", "pending"):
        lab.lease()
    if state == "pending":
        lab.pass_time(1.5)
    lab.do(end, 1, b"r")
    assert (lab.job(1).state, lab.job(1).result, lab.job(1).fails) == (expected, b"r", 0)
    assert lab.listed() == lab.listed("scheduled") == lab.listed("leased") == []
    assert lab.lease() == []


def test_who_comes_too_late_finishes_the_job_of_the_second_worker(lab: Lab) -> None:
    lab.add(1)
    lab.lease()
    lab.pass_time(1)
    assert lab.lease() == [1]
    lab.do("complete", 1, b"of the first")
    with pytest.raises(DuplicateResult):
        lab.do("complete", 1, b"of the second")


def test_nothing_works_after_close(lab: Lab) -> None:
    lab.add(1)
    lab.engine.close()
    with pytest.raises(LogClosed):
        lab.add(2)


# -- time ----------------------------------------------------------------------------------------------------------


def test_a_job_goes_back_to_its_old_place_when_its_time_to_run_has_passed(lab: Lab) -> None:
    for number in (1, 2, 3):
        lab.add(number)
        lab.clock.advance(0.001)
    assert lab.lease() == [1]
    lab.pass_time(0.998)
    assert lab.place(1) == "leased"
    lab.pass_time(0.002)
    assert (lab.place(1), lab.job(1).state, lab.job(1).attempts) == ("ready", PENDING, 1)
    assert lab.listed() == [1, 2, 3]


def test_a_scheduled_job_wakes_at_its_time_and_not_before(lab: Lab) -> None:
    lab.add(1, time=lab.now + 2 * SECOND)
    lab.pass_time(1.999)
    assert (lab.place(1), lab.lease()) == ("scheduled", [])
    lab.pass_time(0.001)
    assert lab.lease() == [1]


@pytest.mark.parametrize("state", ["ready", "scheduled", "leased", "completed", "failed"])
def test_a_life_ends_in_any_state(lab: Lab, state: str) -> None:
    lab.add(1, ttr=HOUR, ttl=2000, time=lab.now + SECOND if state == "scheduled" else None)
    if state == "leased":
        lab.lease()
    if state in ("completed", "failed"):
        lab.do(state.removesuffix("d") if state == "completed" else "fail", 1, b"")
    lab.pass_time(1.999 + (state == "scheduled"))
    lab.job(1)
    lab.pass_time(0.001)
    with pytest.raises(JobNotFound):
        lab.job(1)
    assert lab.engine.evicted == (state not in ("completed", "failed"))
    assert not any(lab.engine.state.queues["q"].lists)


def test_tick_says_when_to_come_again(lab: Lab) -> None:
    assert lab.engine.tick() is None
    lab.add(1, ttr=1000, ttl=5000)
    assert lab.engine.tick() == pytest.approx(5)
    lab.lease()
    assert lab.engine.tick() == pytest.approx(1)
    lab.add(2, time=lab.now + SECOND // 2)
    assert lab.engine.tick() == pytest.approx(0.5)


def test_whoever_ticks_is_told_when_something_falls_due_earlier(lab: Lab) -> None:
    called: list[float] = []
    lab.engine.on_due = lambda: called.append(lab.clock.monotonic())
    lab.add(1, ttr=1000, ttl=5000)
    lab.lease()
    lab.add(2, ttl=HOUR)
    assert len(called) == 2
    lab.do("touch", 1, 10)
    assert len(called) == 3


def test_a_thousand_things_due_at_once_are_done_in_pieces(lab: Lab) -> None:
    for number in range(2500):
        lab.engine.add(nth(number), "q", 1000, 1000, b"")
    lab.clock.advance(1)
    assert lab.engine.tick() == 0
    assert len(lab.engine.state.jobs) == 1500
    lab.engine.tick()
    assert lab.engine.tick() is None
    assert lab.engine.evicted == 2500


@every_start
def test_a_lease_goes_on_over_a_restart(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, ttr=10_000)
    lab.lease()
    lab.clock.advance(6)
    again(lab)
    lab.pass_time(3.9)
    assert lab.place(1) == "leased"
    lab.pass_time(0.2)
    assert (lab.place(1), lab.job(1).attempts) == ("ready", 1)


@every_start
def test_a_life_goes_on_over_a_restart(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, ttl=10_000)
    lab.add(2, ttl=10_000)
    lab.do("complete", 2, b"r")
    lab.clock.advance(6)
    again(lab)
    lab.pass_time(3.9)
    assert (lab.place(1), lab.place(2)) == ("ready", "completed")
    lab.pass_time(0.2)
    assert lab.engine.state.jobs == {}


@every_start
def test_a_schedule_goes_on_over_a_restart(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, time=lab.now + 10 * SECOND)
    lab.add(2, max_fails=2, backoff=10_000)
    lab.lease()
    lab.do("fail", 2, b"once")
    lab.clock.advance(6)
    again(lab)
    lab.pass_time(3.9)
    assert lab.listed("scheduled") == [2, 1]
    lab.pass_time(0.2)
    assert lab.listed() == [2, 1]


@every_start
def test_an_extended_lease_goes_on_over_a_restart(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, ttr=1000)
    lab.lease()
    lab.do("touch", 1, 10_000)
    again(lab)
    lab.pass_time(9.9)
    assert lab.place(1) == "leased"
    lab.pass_time(0.2)
    assert lab.place(1) == "ready"


@every_start
def test_what_fell_due_while_nobody_was_there_is_done_at_the_start(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, "gone", ttl=5000)
    lab.add(2, ttr=5000)
    lab.add(3, "late", time=lab.now + 5 * SECOND)
    lab.add(4, "last", ttr=5000, max_attempts=1)
    assert lab.lease("q", "last", most=2) == [2, 4]
    Upkeep(lab.engine).checkpoint()
    lab.engine.close()
    lab.clock.advance(60)
    lab.open()
    assert "gone" not in lab.engine.state.queues
    again(lab)
    assert (lab.place(2), lab.place(3), lab.place(4)) == ("ready", "ready", "failed")
    assert lab.engine.state.jobs.keys() == {nth(2), nth(3), nth(4)}
    assert lab.engine.evicted == 0


# -- clocks that jump ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seconds", [-7200, -1, 1, 7200, 10**7], ids=str)
def test_a_jump_of_the_wall_clock_ends_nothing_early_and_nothing_late(lab: Lab, seconds: int) -> None:
    lab.add(1, ttr=5000)
    lab.add(2, ttl=5000)
    lab.add(3, time=lab.now + 5 * SECOND)
    lab.lease()
    lab.clock.jump(seconds)
    lab.pass_time(4.9)
    assert [lab.place(number) for number in (1, 2, 3)] == ["leased", "ready", "scheduled"]
    lab.pass_time(0.2)
    assert (lab.place(1), lab.place(3)) == ("ready", "ready")
    assert lab.engine.evicted == 1


@every_start
def test_a_job_is_not_early_when_the_clock_was_set_back_before_the_start(
    lab: Lab, again: Callable[[Lab], object]
) -> None:
    lab.add(1)
    lab.clock.jump(-3600)
    again(lab)
    lab.add(2, "later", time=lab.now + 60 * SECOND)
    assert lab.place(2) == "scheduled"
    assert lab.lease("later") == []


@every_start
def test_a_lease_ends_in_time_when_the_clock_was_set_back_before_the_start(
    lab: Lab, again: Callable[[Lab], object]
) -> None:
    lab.add(1)
    lab.clock.jump(-3600)
    again(lab)
    lab.lease()
    lab.pass_time(1.5)
    assert lab.place(1) == "ready"


# -- attempts, fails, delays ---------------------------------------------------------------------------------------


def test_the_last_attempt_that_times_out_fails_the_job_with_nothing(lab: Lab) -> None:
    lab.add(1, max_attempts=2)
    told = lab.listener(1)
    for _ in range(2):
        assert lab.lease() == [1]
        lab.pass_time(1)
    assert (lab.job(1).state, lab.job(1).result, lab.job(1).attempts, lab.job(1).fails) == (FAILED, b"", 2, 0)
    assert told == [(FAILED, b"")]
    assert lab.lease() == []
    with pytest.raises(DuplicateResult):
        lab.do("complete", 1, b"late")


def test_attempts_have_no_end_of_their_own(lab: Lab) -> None:
    lab.add(1, ttr=1)
    for _ in range(300):
        assert lab.lease() == [1]
        lab.pass_time(0.001)
    assert (lab.job(1).attempts, lab.restart().job(nth(1)).attempts) == (300, 300)


def test_without_max_fails_the_first_fail_is_final(lab: Lab) -> None:
    lab.add(1)
    lab.lease()
    lab.do("fail", 1, b"no")
    assert (lab.job(1).state, lab.job(1).result) == (FAILED, b"no")


@every_start
def test_a_job_fails_max_fails_times_and_waits_twice_as_long_each_time(
    lab: Lab, again: Callable[[Lab], object]
) -> None:
    lab.add(1, ttr=HOUR, max_fails=4, backoff=1000)
    for turn, delay in enumerate((1, 2, 4), 1):
        assert lab.lease() == [1]
        lab.do("fail", 1, b"turn %d" % turn)
        again(lab)
        assert (lab.job(1).fails, lab.job(1).state, lab.job(1).result) == (turn, PENDING, b"turn %d" % turn)
        lab.pass_time(delay - 0.01)
        assert lab.lease() == []
        lab.pass_time(0.01)
    assert lab.lease() == [1]
    lab.do("fail", 1, b"last")
    again(lab)
    assert (lab.job(1).fails, lab.job(1).state, lab.job(1).result) == (4, FAILED, b"last")


def test_a_timed_out_attempt_is_backed_off_too_but_is_no_fail(lab: Lab) -> None:
    lab.add(1, backoff=1000)
    lab.lease()
    lab.pass_time(1)
    assert (lab.place(1), lab.job(1).fails) == ("scheduled", 0)
    lab.pass_time(1)
    assert lab.lease() == [1]


def test_no_delay_is_longer_than_a_day(lab: Lab) -> None:
    lab.add(1, ttl=30 * DAY, max_fails=255, backoff=DAY // 2)
    for _ in range(3):
        assert lab.lease() == [1]
        lab.do("fail", 1, b"")
        assert (lab.job(1).ready_at - lab.now) // MS <= DAY
        lab.pass_time(86_400)


def test_a_fail_after_the_last_attempt_is_final_whatever_max_fails_says(lab: Lab) -> None:
    lab.add(1, max_attempts=2, max_fails=9)
    for _ in range(2):
        assert lab.lease() == [1]
        lab.do("fail", 1, b"no")
    assert (lab.place(1), lab.lease()) == ("failed", [])


def test_buried_is_failed_whatever_max_fails_says(lab: Lab) -> None:
    lab.add(1, max_fails=9)
    lab.lease()
    lab.do("fail", 1, b"dead", for_good=True)
    assert (lab.place(1), lab.job(1).result) == ("failed", b"dead")


def test_a_retry_tells_nobody_and_the_last_fail_all(lab: Lab) -> None:
    lab.add(1, max_fails=2)
    told = [lab.listener(1), lab.listener(1)]
    lab.do("fail", 1, b"once")
    assert told == [[], []]
    lab.do("fail", 1, b"twice")
    assert told == [[(FAILED, b"twice")]] * 2


# -- release, touch, redrive, unique, pause ------------------------------------------------------------------------


@every_start
def test_a_released_job_is_back_and_the_attempt_does_not_count(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, max_attempts=1)
    lab.lease()
    lab.do("release", 1)
    again(lab)
    assert (lab.place(1), lab.job(1).attempts, lab.job(1).lease_until) == ("ready", 0, 0)
    assert lab.lease() == [1]
    lab.do("release", 1, 5000)
    again(lab)
    lab.pass_time(4.9)
    assert (lab.place(1), lab.lease()) == ("scheduled", [])
    lab.pass_time(0.2)
    assert lab.lease() == [1]


def test_a_touched_lease_lasts_from_now_also_for_less(lab: Lab) -> None:
    lab.add(1, ttr=1000)
    lab.lease()
    for _ in range(5):
        lab.pass_time(0.9)
        lab.do("touch", 1, 1000)
    assert lab.place(1) == "leased"
    lab.do("touch", 1, 10)
    lab.pass_time(0.011)
    assert (lab.place(1), lab.job(1).attempts) == ("ready", 1)
    with pytest.raises(NotLeased):
        lab.do("touch", 1, 1000)


@every_start
def test_a_redriven_job_starts_as_if_new(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1, max_fails=2, max_attempts=9)
    for _ in range(2):
        lab.lease()
        lab.do("fail", 1, b"no")
    lab.do("redrive", 1)
    again(lab)
    job = lab.job(1)
    assert (lab.place(1), job.attempts, job.fails, job.result) == ("ready", 0, 0, None)
    assert lab.lease() == [1]


@pytest.mark.parametrize("state", ["ready", "leased", "completed"])
def test_only_a_failed_job_is_driven_again(lab: Lab, state: str) -> None:
    lab.add(1)
    if state != "ready":
        lab.lease()
    if state == "completed":
        lab.do("complete", 1, b"")
    with pytest.raises(BadJob):
        lab.do("redrive", 1)


def test_a_queue_is_driven_again_best_first_up_to_a_limit(lab: Lab) -> None:
    for number in range(1, 6):
        lab.add(number, priority=number)
        lab.do("fail", number, b"")
    assert lab.engine.redrive_queue("q", 2)[0] == 2
    assert (lab.listed(), lab.listed("failed")) == ([5, 4], [3, 2, 1])
    assert lab.engine.redrive_queue("q", 100)[0] == 3
    assert lab.engine.redrive_queue("q", 100)[0] == 0
    with pytest.raises(JobNotFound):
        lab.engine.redrive_queue("unknown", 1)


@pytest.mark.parametrize("end", ["complete", "fail", "delete", "expire"])
@every_start
def test_a_unique_key_is_taken_until_its_job_is_done(lab: Lab, again: Callable[[Lab], object], end: str) -> None:
    lab.add(1, unique="k", ttl=10_000)
    lab.lease()
    again(lab)
    with pytest.raises(DuplicateJob):
        lab.add(2, unique="k")
    lab.add(3, unique="other")
    lab.add(4, "elsewhere", unique="k")
    if end == "expire":
        lab.pass_time(10)
    else:
        lab.do(end, 1, *([] if end == "delete" else [b""]))
    again(lab)
    lab.add(2, unique="k")


def test_a_failed_job_is_not_driven_again_while_another_has_its_key(lab: Lab) -> None:
    lab.add(1, unique="k")
    lab.do("fail", 1, b"")
    lab.add(2, unique="k")
    with pytest.raises(DuplicateJob):
        lab.do("redrive", 1)
    assert lab.engine.redrive_queue("q", 10)[0] == 0
    lab.do("complete", 2, b"")
    lab.do("redrive", 1)
    with pytest.raises(DuplicateJob):
        lab.add(3, unique="k")


@every_start
def test_a_paused_queue_hands_out_nothing_until_it_is_resumed(lab: Lab, again: Callable[[Lab], object]) -> None:
    lab.add(1)
    lab.add(2, "open")
    lab.engine.settle(lab.engine.pause("q"))
    again(lab)
    assert lab.lease("q") == []
    assert lab.lease("q", "open", most=2) == [2]
    worker = lab.worker("q")
    assert worker.got == []
    lab.engine.settle(lab.engine.pause("q", pauses=False))
    assert worker.got == [[1]]
    again(lab)
    lab.add(3)
    assert lab.lease() == [3]


# -- run -----------------------------------------------------------------------------------------------------------


def test_a_job_in_the_foreground_is_leased_and_forgotten_and_never_logged(lab: Lab) -> None:
    job = lab.engine.run(nth(1), "q", 1000, b"now", 5)
    told = lab.listener(1)
    assert lab.lease() == [1]
    lab.pass_time(1)
    assert lab.lease() == [1]
    lab.do("complete", 1, b"done")
    assert told == [(COMPLETED, b"done")]
    lab.engine.forget(job)
    lab.engine.forget(job)
    with pytest.raises(JobNotFound):
        lab.job(1)
    assert lab.restart().state.jobs == {}


def test_a_forgotten_job_is_not_mistaken_for_its_successor(lab: Lab) -> None:
    job = lab.engine.run(nth(1), "q", 1000, b"")
    lab.do("delete", 1)
    lab.add(1)
    lab.engine.forget(job)
    assert lab.place(1) == "ready"


# -- workers that wait ---------------------------------------------------------------------------------------------


def test_first_come_first_served(lab: Lab) -> None:
    workers = [lab.worker() for _ in range(3)]
    for number in (1, 2):
        lab.add(number)
    assert [worker.got for worker in workers] == [[[1]], [[2]], []]
    lab.add(3)
    lab.add(4)
    assert (workers[2].got, lab.listed()) == ([[3]], [4])


def test_a_worker_at_several_queues_is_served_once_and_taken_off_all(lab: Lab) -> None:
    wide, narrow = lab.worker("a", "b", "a"), lab.worker("b")
    lab.add(1, "b")
    assert (wide.got, narrow.got) == ([[1]], [])
    lab.add(2, "a")
    assert lab.listed(name="a") == [2]
    lab.add(3, "b")
    assert narrow.got == [[3]]
    assert [lab.engine.workers.count(name) for name in "ab"] == [0, 0]


def test_a_worker_that_left_gets_nothing_and_the_next_one_does(lab: Lab) -> None:
    gone, next_one = lab.worker("a", "b"), lab.worker("b")
    assert lab.engine.leave(gone.waiter)
    assert not lab.engine.leave(gone.waiter)
    lab.add(1, "b")
    assert (gone.got, next_one.got) == ([], [[1]])
    assert not lab.engine.leave(next_one.waiter)


def test_a_worker_may_take_many_but_waits_for_the_first_only(lab: Lab) -> None:
    worker = lab.worker("a", "b", most=10)
    lab.add(1, "a")
    assert worker.got == [[1]]
    lab.add(2, "a")
    lab.add(3, "b")
    assert lab.worker("a", "b", most=10).got == [[2, 3]]


@pytest.mark.parametrize("how", ["timeout", "schedule", "fail", "release", "redrive", "resume"])
def test_however_a_job_becomes_ready_a_waiting_worker_gets_it_at_once(lab: Lab, how: str) -> None:
    lab.add(1, ttr=1000, max_fails=2, time=lab.now + SECOND if how == "schedule" else None)
    if how == "redrive":
        lab.do("fail", 1, b"", for_good=True)
    elif how == "resume":
        lab.engine.pause("q")
    elif how != "schedule":
        lab.lease()
    worker = lab.worker()
    assert worker.got == []
    if how in ("timeout", "schedule"):
        lab.pass_time(1)
    elif how == "resume":
        lab.engine.pause("q", pauses=False)
    else:
        lab.do(how, 1, *([b""] if how == "fail" else []))
    assert worker.got == [[1]]


def test_many_jobs_fall_due_at_once_while_many_workers_wait() -> None:
    count = 30_000
    clock = ManualClock()
    engine = JobEngine.open(None, clock=clock)
    got: list[int] = []
    for number in range(count):
        engine.add(nth(number), "q", 1000, HOUR, b"", time=clock.now_ns() + SECOND)
        engine.expect_job(LeaseWaiter(["q"], 1, lambda jobs, position: got.extend(numbers(jobs))))
    clock.advance(1)
    while engine.tick() == 0:
        pass
    assert sorted(got) == list(range(count))


class CreepingClock(ManualClock):
    """Goes on by itself, a little at each look."""

    step_ns = 0

    def elapsed_ns(self) -> int:
        self.elapsed += self.step_ns / 1e9
        return super().elapsed_ns()


def test_no_worker_is_served_with_nothing() -> None:
    clock = CreepingClock()
    lab = Lab(OS, clock)
    worker = lab.worker()
    lab.add(1, ttl=1, time=lab.now + SECOND)
    clock.advance(1)
    clock.step_ns = 700_000
    lab.engine.tick()
    clock.step_ns = 0
    lab.engine.tick()
    lab.add(2)
    assert worker.got in ([[1]], [[2]])


# -- results -------------------------------------------------------------------------------------------------------


def test_all_who_wait_for_a_result_are_told(lab: Lab) -> None:
    lab.add(1)
    told = [lab.listener(1) for _ in range(5)]
    lab.do("complete", 1, b"r")
    assert told == [[(COMPLETED, b"r")]] * 5
    assert lab.listener(1) == []
    assert (lab.job(1).state, lab.job(1).result) == (COMPLETED, b"r")


def test_who_waits_no_more_is_not_told(lab: Lab) -> None:
    lab.add(1)
    told: list[bytes | None] = []

    def waiter(job: Job, position: int) -> None:
        told.append(job.result)

    lab.engine.expect_result(nth(1), waiter)
    stays = lab.listener(1)
    assert lab.engine.results.remove(nth(1), waiter)
    assert not lab.engine.results.remove(nth(1), waiter)
    lab.do("complete", 1, b"r")
    assert (told, stays) == ([], [(COMPLETED, b"r")])


# -- a full disk ---------------------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[str, list[Any]]] = {
    "complete": ("complete", [nth(1), b"r"]),
    "fail": ("fail", [nth(1), b"r"]),
    "retry": ("fail", [nth(4), b"r"]),
    "delete": ("delete", [nth(1)]),
    "touch": ("touch", [nth(1), 9000]),
    "release": ("release", [nth(1)]),
    "redrive": ("redrive", [nth(3)]),
    "pause": ("pause", ["q"]),
    "lease": ("lease", [["q"]]),
    "add": ("add", [nth(9), "q", 1000, HOUR, b"new"]),
    "add with traits": ("add", [nth(9), "q", 1000, HOUR, b"new", 0, 0, 0, None, "key", 5]),
}


def filled(lab: Lab) -> Lab:
    """One job leased, one ready, one failed, one that may fail again."""
    lab.add(1, ttr=HOUR)
    lab.lease()
    lab.add(2, ttr=HOUR, unique="u")
    lab.add(3, unique="f")
    lab.do("fail", 3, b"")
    lab.add(4, max_fails=3, backoff=50)
    return lab


@pytest.mark.parametrize("sync", [ALWAYS, OS], ids=str)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_the_full_disk_refused_was_never_made(change: str, sync: Sync) -> None:
    lab = filled(Lab(sync))
    before = lab.picture()
    command, arguments = CHANGES[change]

    def make() -> None:
        made = getattr(lab.engine, command)(*arguments)
        lab.engine.settle(made[1] if isinstance(made, tuple) else made)

    lab.fill_disk()
    for _ in range(3):
        with pytest.raises(DiskFull):
            make()
        assert lab.picture() == before
    contents = lab.disk.contents()
    lab.files.heal()
    make()
    after = lab.picture()
    assert after != before, "it goes on by itself"
    lab.restart()
    assert lab.picture() == after
    lab.disk = MemoryFiles(contents)
    lab.restart()
    assert lab.picture() == before, "nothing of it was on the disk"


def test_a_refused_change_takes_none_of_those_before_it_back(lab: Lab) -> None:
    lab.add(1)
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.add(2)
    lab.files.heal()
    lab.add(3)
    lab.do("complete", 1, b"r")
    lab.restart()
    assert (lab.listed(), lab.listed("completed")) == ([3], [1])


def test_reads_go_on_while_the_disk_is_full(lab: Lab) -> None:
    filled(lab)
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.add(9)
    assert (lab.place(1), lab.place(2), lab.listed("failed")) == ("leased", "ready", [3])
    lab.listener(2)


def test_reads_go_on_while_the_disk_is_full_and_something_is_due(lab: Lab) -> None:
    lab.add(1, ttl=1000)
    lab.add(2)
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.add(9)
    lab.clock.advance(2)
    for _ in range(3):
        assert lab.place(2) == "ready"


def test_waiting_and_jobs_in_the_foreground_outlast_a_full_disk(lab: Lab) -> None:
    lab.add(1)
    lab.engine.run(nth(2), "fore", 1000, b"")
    worker, told = lab.worker("w"), [lab.listener(1), lab.listener(2)]
    lab.lease("nobody")
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.add(9)
    lab.files.heal()
    lab.add(3, "w")
    assert worker.got == [[3]]
    assert "nobody" in lab.engine.state.queues
    assert lab.lease("fore") == [2]
    for number in (1, 2):
        lab.do("complete", number, b"r")
    assert told == [[(COMPLETED, b"r")]] * 2


def test_a_job_whose_lease_was_refused_goes_to_the_next_worker(lab: Lab) -> None:
    lab.add(1)
    jobs, position = lab.engine.lease(["q"])
    worker = lab.worker()
    lab.fill_disk(times=1)
    with pytest.raises(DiskFull):
        lab.engine.settle(position)
    assert numbers(jobs) == [1]
    assert worker.got == [[1]]


def test_a_worker_waits_on_when_its_lease_is_refused(lab: Lab) -> None:
    lab.add(1, time=lab.now + SECOND)
    worker = lab.worker()
    lab.fill_disk()
    with pytest.raises(DiskFull):
        lab.add(2, "other")
    lab.clock.advance(2)
    lab.engine.tick()
    lab.files.heal()
    lab.engine.tick()
    assert worker.got == [[1]] or lab.engine.leave(worker.waiter)


def test_what_is_back_after_a_full_disk_falls_due_again(lab: Lab) -> None:
    lab.add(1, ttr=5000, ttl=HOUR)
    lab.lease()
    position = lab.engine.complete(nth(1), b"r")
    assert lab.engine.tick() == pytest.approx(HOUR / 1000)
    called: list[bool] = []
    lab.engine.on_due = lambda: called.append(True)
    lab.fill_disk(times=1)
    with pytest.raises(DiskFull):
        lab.engine.settle(position)
    assert lab.place(1) == "leased"
    assert called == [True]


# -- a sync that fails ---------------------------------------------------------------------------------------------


def test_after_a_failed_sync_changes_are_refused_and_reads_go_on(lab: Lab) -> None:
    filled(lab)
    before = lab.picture()
    lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.add(9)
    assert lab.picture() == before
    with pytest.raises(LogFailed):
        lab.do("complete", 1, b"r")
    assert lab.place(2) == "ready"
    lab.listener(2)


def test_a_change_after_a_failed_sync_is_not_made(lab: Lab) -> None:
    filled(lab)
    before = lab.picture()
    lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.add(9)
    for number in (10, 11):
        with pytest.raises(LogFailed):
            lab.add(number)
    with pytest.raises(LogFailed):
        lab.do("complete", 1, b"r")
    assert lab.picture() == before


def test_reads_go_on_after_a_failed_sync_when_something_is_due(lab: Lab) -> None:
    lab.add(1, ttl=1000)
    lab.add(2)
    lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.add(9)
    lab.clock.advance(2)
    for _ in range(3):
        lab.engine.tick()
        assert lab.place(2) == "ready"


def test_a_new_start_finds_what_was_safe_before_the_sync_failed(lab: Lab) -> None:
    lab.add(1)
    lab.files.fail("sync", error=errno.EIO)
    with pytest.raises(LogFailed):
        lab.add(2)
    lab.engine.close()
    lab.open()
    assert lab.place(1) == "ready"
    lab.add(3)
    assert lab.restart().state.jobs.keys() >= {nth(1), nth(3)}
