"""A disk that refuses one write and takes the next: nothing that was answered is lost, and nobody waits for ever.

Everything runs on a disk in memory that fails when told to. What other threads do (the commit thread, the upkeep) is
done by hand where the order matters.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress

import pytest

from lamina.engines.jobs import loading
from lamina.engines.jobs.api import Jobs
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import Job
from lamina.engines.jobs.waiting import LeaseWaiter, Results, ResultWaiter
from lamina.errors import DiskFull, LaminaError, LogFailed
from lamina.log import ALWAYS, OS, LogOptions, Sync, interval
from lamina.log.files.faulty import Fault
from lamina.server.workq.door import Connection, WorkqDoor
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles
from waiting import until

HOUR = 3_600_000
FULL = b"-SERVER-ERROR Disk full, nothing was changed, try again\r\n"
READ_ONLY = b"-SERVER-ERROR Read-only mode triggered by cmdlog circuit breaker\r\n"


def in_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: object, **more: object) -> None:
        asyncio.run(test(*arguments, **more))

    return run


def nth(number: int) -> bytes:
    return number.to_bytes(6, "big") + b"\x40\0\x80" + number.to_bytes(7, "big")


def add(number: int, name: str = "q") -> bytes:
    text = nth(number).hex()
    id = f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return f"add {id} {name} 1000 {HOUR} 1\r\nx\r\n".encode()


class Lab:
    """An engine whose rounds are run by hand."""

    def __init__(self, sync: Sync = OS, clock: ManualClock | None = None) -> None:
        self.disk, self.clock, self.options = MemoryFiles(), clock or ManualClock(), LogOptions(sync=sync)
        self.files = FaultyFiles(self.disk)
        self.engine = self.opened(self.files)

    def opened(self, files: MemoryFiles | FaultyFiles) -> JobEngine:
        return JobEngine.open("jobs", files=files, clock=self.clock, options=self.options, threaded=False)

    def full_once(self, times: int = 1) -> None:
        self.files.fail("append", error=errno.ENOSPC, times=times)

    def after_restart(self) -> JobEngine:
        return self.opened(MemoryFiles(self.disk.contents()))


class SlowClock(ManualClock):
    """Time passes whenever somebody looks at it."""

    step = 0.0

    def elapsed_ns(self) -> int:
        self.elapsed += self.step
        return super().elapsed_ns()


class Line:
    """The transport of a connection; keeps what was sent."""

    def __init__(self) -> None:
        self.sent = b""
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent += data

    def close(self) -> None:
        self.is_closed = True

    def write_eof(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        return

    def resume_reading(self) -> None:
        return

    def get_extra_info(self, name: str) -> None:
        return None


def connected(door: WorkqDoor) -> tuple[Connection, Line]:
    connection, line = door(), Line()
    connection.connection_made(line)  # type: ignore[arg-type]
    return connection, line


# -- nothing that was answered is lost -----------------------------------------------------------------------------


@in_loop
async def test_what_follows_a_refused_record_is_refused_too_until_the_state_is_right() -> None:
    lab = Lab()
    door = WorkqDoor(lab.engine)
    (first, first_line), (second, second_line) = connected(door), connected(door)
    await asyncio.sleep(0)
    first.data_received(add(1))
    lab.clock.advance(0.002)  # longer than records may gather: the next command hands over what is pending
    second.data_received(add(2))
    lab.full_once()
    lab.engine.log.run_round()  # type: ignore[union-attr]  # another thread's
    await until(lambda: first_line.sent and second_line.sent)
    assert (first_line.sent, second_line.sent) == (FULL, FULL)
    assert not lab.engine.state.jobs and not lab.after_restart().state.jobs
    first.data_received(add(1))
    await until(lambda: first_line.sent.endswith(b"+OK\r\n"))
    assert first_line.sent == FULL + b"+OK\r\n"
    assert list(lab.after_restart().state.jobs) == [nth(1)]


@in_loop
async def test_with_a_disk_that_is_full_at_times_all_that_was_answered_is_there() -> None:
    disk, chance = MemoryFiles(), random.Random(5)
    files = FaultyFiles(disk)

    class Moody(Fault):
        def strikes(self, operation: str, path: str) -> bool:
            return operation == "append" and path.endswith(".log") and chance.random() < 0.15

    engine = JobEngine.open("jobs", files=files, options=LogOptions(sync=interval(1)))
    door = WorkqDoor(engine)
    lines = [connected(door) for _ in range(20)]
    asked: list[list[int]] = [[] for _ in lines]
    files.faults.append(Moody("append", error=errno.ENOSPC))
    number = 0
    for _ in range(150):
        for mine, (connection, _) in zip(asked, lines, strict=True):
            for _ in range(5):
                number += 1
                mine.append(number)
                connection.data_received(add(number, "a"))
        await asyncio.sleep(0.001)
        files.calls.clear()
    await asyncio.sleep(0.2)
    files.heal()
    await until(lambda: sum(line.sent.count(b"\n") for _, line in lines) >= number)
    answered = set()
    for mine, (_, line) in zip(asked, lines, strict=True):
        answers = line.sent.split(b"\r\n")[:-1]
        assert len(answers) == len(mine)
        answered |= {nth(each) for each, answer in zip(mine, answers, strict=True) if answer == b"+OK"}
    engine.close()
    kept = set(JobEngine.open("jobs", files=MemoryFiles(disk.contents()), threaded=False).state.jobs)
    assert 0 < len(answered) < number
    assert answered <= kept == set(engine.state.jobs)


def test_what_fell_due_and_was_refused_is_taken_back_before_anybody_builds_on_it() -> None:
    lab = Lab()
    engine = lab.engine
    engine.settle(engine.add(nth(1), "q", 1000, HOUR, b"x", max_attempts=1))
    engine.settle(engine.lease(["q"])[1])
    lab.clock.advance(2)
    lab.full_once()
    engine.tick()
    engine.log.run_round()  # type: ignore[union-attr]  # the end of the lease is refused, and nobody waits for it
    with pytest.raises(DiskFull):
        engine.settle(engine.redrive(nth(1)))
    engine.tick()
    engine.settle(engine.redrive(nth(1)))
    assert lab.after_restart().state.jobs[nth(1)].attempts == 0


def test_adding_many_tells_when_the_first_of_them_were_refused() -> None:
    lab = Lab()
    jobs = Jobs(lab.engine)

    def payloads() -> object:
        yield from (b"1", b"2")
        lab.clock.advance(0.01)
        lab.full_once()
        lab.engine.push()
        lab.engine.log.run_round()  # type: ignore[union-attr]
        with suppress(LaminaError):
            lab.engine.settle(lab.engine.log.position)  # somebody else notices
        yield from (b"3", b"4")

    with pytest.raises(DiskFull):
        jobs.add_many("q", payloads())  # type: ignore[arg-type]
    jobs.close()


def test_a_run_that_took_the_id_of_a_job_whose_end_was_refused_does_not_hide_it() -> None:
    lab = Lab()
    engine = lab.engine
    engine.settle(engine.add(nth(1), "q", 1000, HOUR, b"background"))
    position = engine.delete(nth(1))
    job = engine.run(nth(1), "q", 1000, b"foreground")
    lab.full_once()
    with pytest.raises(DiskFull):
        engine.settle(position)
    engine.forget(job)
    (leased,), position = engine.lease(["q"])
    assert leased.payload == b"background"
    engine.settle(engine.complete(nth(1), b""))
    lab.clock.advance(3601)
    engine.tick()
    assert not engine.state.jobs


# -- nobody waits for ever -----------------------------------------------------------------------------------------


def test_a_worker_that_waited_through_a_full_disk_is_served() -> None:
    lab = Lab()
    engine = lab.engine
    told, got = [], list[Job]()
    engine.on_due = lambda: told.append(1)
    engine.settle(engine.add(nth(1), "q", 1000, 24 * HOUR, b"x"))
    _, position = engine.lease(["q"])
    engine.expect_job(LeaseWaiter(["q"], 1, lambda jobs, position: got.extend(jobs)))
    engine.tick()
    told.clear()
    lab.full_once(times=2)
    with pytest.raises(DiskFull):
        engine.settle(position)
    lab.files.heal()
    next_s = 0.0
    for second in range(10):  # whoever ticks comes when told
        if told or second >= next_s:
            told.clear()
            wait = engine.tick()
            assert wait is not None
            next_s = second + wait
        lab.clock.advance(1)
    assert [job.id for job in got] == [nth(1)]


@in_loop
async def test_a_failed_log_is_read_once_and_then_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    loads, load = [], loading.load
    monkeypatch.setattr(loading, "load", lambda engine, *more: (loads.append(1), load(engine, *more)))
    lab = Lab(ALWAYS)
    door = WorkqDoor(lab.engine)
    connection, line = connected(door)
    connection.data_received(add(1) + b"lease q 0\r\n")
    await asyncio.sleep(0.01)
    loads.clear()
    lab.files.fail("sync")
    for number in range(2, 8):
        told = line.sent.count(b"\n")
        connection.data_received(add(number))
        await until(lambda told=told: line.sent.count(b"\n") > told)  # type: ignore[misc]
    assert line.sent.endswith(READ_ONLY * 6)
    assert len(loads) == 1
    lab.clock.advance(2)  # the lease falls due, and cannot be ended
    waits = [lab.engine.tick() for _ in range(5)]
    assert waits == [1.0] * 5 and len(loads) == 1
    connection.data_received(b"inspect queue q\r\n")
    await asyncio.sleep(0.01)
    assert line.sent.endswith(b"ready-len 0\r\nscheduled-len 0\r\n")


@in_loop
async def test_a_lease_that_the_disk_refuses_is_answered_once() -> None:
    clock = SlowClock()
    lab = Lab(clock=clock)
    door = WorkqDoor(lab.engine)
    connection, line = connected(door)
    engine = lab.engine
    engine.settle(engine.add(nth(1), "q", 1000, HOUR, b"x", time=engine.clock.now_ns() + 10_000_000))
    lab.full_once(times=100)
    with pytest.raises(DiskFull):
        engine.settle(engine.add(nth(2), "other", 1000, HOUR, b"x"))
    clock.advance(0.008)
    clock.step = 0.0015  # the job wakes up between the look for one and the waiting
    connection.data_received(b"lease q 200\r\n")
    clock.step = 0.0
    await asyncio.sleep(0.05)
    lab.files.heal()
    await asyncio.sleep(0.3)
    assert line.sent == FULL
    assert engine.workers.count("q") == 0


@in_loop
async def test_answers_keep_their_order_when_the_log_fails() -> None:
    lab = Lab(ALWAYS)
    door = WorkqDoor(lab.engine)
    connection, line = connected(door)

    class Idle:
        """A commit thread that does not come."""

        def nudge(self, log: object) -> None:
            return

        def come_again(self, log: object, seconds: float) -> None:
            return

    lab.engine.log._committer = Idle()  # type: ignore[union-attr, assignment]
    connection.data_received(add(1))
    await asyncio.sleep(0.01)
    lab.files.fail("sync")
    lab.engine.log.run_round()  # type: ignore[union-attr]
    connection.data_received(b"nonsense\r\n")
    door.answers._flush()
    await until(lambda: line.sent.count(b"\n") == 2)
    assert line.sent == READ_ONLY + b"-CLIENT-ERROR Unknown command\r\n"


# -- the embedded jobs ---------------------------------------------------------------------------------------------


@in_loop
async def test_whoever_waits_for_a_result_gets_it_though_records_were_refused_meanwhile() -> None:
    files = FaultyFiles(MemoryFiles())
    jobs = Jobs(JobEngine.open("jobs", files=files, options=LogOptions(sync=OS)))
    id = jobs.add("q", b"x")
    coroutine = asyncio.create_task(jobs.aio.result(id, wait=10))
    thread = asyncio.create_task(asyncio.to_thread(jobs.result, id, 10))
    await asyncio.sleep(0.05)
    files.fail("append", error=errno.ENOSPC)
    with pytest.raises(DiskFull):
        jobs.add("other", b"y")
    jobs.complete(id, b"done")
    for ended in (await coroutine, await thread, jobs.result(id)):
        assert ended is not None and (ended.is_success, ended.result) == (True, b"done")
    jobs.close()


@in_loop
async def test_a_lease_that_is_cancelled_while_it_is_synced_goes_back() -> None:
    files = FaultyFiles(MemoryFiles())
    jobs = Jobs(JobEngine.open("jobs", files=files, options=LogOptions(sync=ALWAYS)))
    id = jobs.add("q", b"x", max_attempts=1)
    files.before = lambda operation, path: time.sleep(0.2) if operation == "sync" else None
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), jobs.aio.lease("q", wait=10):
            pytest.fail("leased before it was synced")
    files.before = lambda operation, path: None
    view = jobs.show(id)
    assert (view.state, view.attempts) == ("ready", 0)
    jobs.close()


@pytest.fixture
def hectic() -> Iterator[None]:
    """Threads take turns all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


class Guarded(Results):
    """Must not be touched without the lock of its engine: waiters would get lost."""

    def __init__(self, engine: JobEngine) -> None:
        super().__init__()
        self.lock = engine.lock
        self.calls = self.unguarded = 0

    def add(self, id: bytes, waiter: ResultWaiter) -> None:
        self.check()
        super().add(id, waiter)

    def remove(self, id: bytes, waiter: ResultWaiter) -> bool:
        self.check()
        return super().remove(id, waiter)

    def tell(self, job: Job) -> None:
        self.check()
        super().tell(job)

    def check(self) -> None:
        self.calls += 1
        self.unguarded += not self.lock.is_mine()


@in_loop
async def test_those_who_wait_for_results_are_kept_under_the_lock() -> None:
    engine = JobEngine.open(None)
    engine.results = guarded = Guarded(engine)
    jobs = Jobs(engine)
    door = WorkqDoor(engine)
    connection, line = connected(door)
    id = jobs.add("q", b"x")
    assert jobs.result(id, wait=0.01) is None
    assert await jobs.aio.result(id, wait=0.01) is None
    assert jobs.run("other", b"x", timeout=0.01) is None
    assert await jobs.aio.run("other", b"x", timeout=0.01) is None
    connection.data_received(f"result {id} 10\r\n".encode() + add(1).replace(b"add", b"run").replace(b"3600000", b"10"))
    await asyncio.sleep(0.1)
    assert line.sent == b"-TIMEOUT\r\n-TIMEOUT\r\n"
    jobs.complete(id)
    assert guarded.calls > 10 and not guarded.unguarded
    jobs.close()


@pytest.mark.usefixtures("hectic")
def test_two_who_clean_at_once_do_not_spoil_each_other() -> None:
    disk = MemoryFiles()
    jobs = Jobs(JobEngine.open("jobs", files=disk, options=LogOptions(sync=OS, segment_bytes=2000)))
    problems: list[Exception] = []

    def clean() -> None:
        try:
            for _ in range(5):
                jobs.clean()
        except Exception as problem:
            problems.append(problem)

    ids = jobs.add_many("q", [b"x" * 50] * 60)
    threads = [threading.Thread(target=clean) for _ in range(3)]
    for thread in threads:
        thread.start()
    for id in ids[::2]:
        jobs.delete(id)
    for thread in threads:
        thread.join()
    alive = set(jobs.engine.state.jobs)
    jobs.close()
    assert not problems
    contents = {path: data for path, data in disk.contents().items() if not path.endswith("checkpoint")}
    assert set(JobEngine.open("jobs", files=MemoryFiles(contents), threaded=False).state.jobs) == alive


def test_redriving_a_queue_passes_over_what_expires_meanwhile() -> None:
    clock = SlowClock()
    engine = Lab(clock=clock).engine
    for number in range(50):
        engine.add(nth(number), "q", 1000, HOUR if number < 40 else 1000, b"x", priority=-number)
        engine.fail(nth(number), b"")
    engine.push()
    assert engine.redrive_queue("q", 30)[0] == 30
    clock.step = 0.3
    assert engine.redrive_queue("q", 1000)[0] == 20


def test_a_failed_log_refuses_and_says_why() -> None:
    lab = Lab(ALWAYS)
    lab.engine.settle(lab.engine.add(nth(1), "q", 1000, HOUR, b"x"))
    lab.files.fail("sync")
    for number in (2, 3):
        with pytest.raises(LogFailed, match="cannot sync"):
            lab.engine.settle(lab.engine.add(nth(number), "q", 1000, HOUR, b"x"))
    assert list(lab.engine.state.jobs) == [nth(1)]
