"""Jobs inside a process, for threads and for coroutines: what a caller gets, waits for, and is refused."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import lamina
from lamina.engines.jobs import keeping
from lamina.engines.jobs.api import Jobs
from lamina.errors import (
    BadJob,
    DiskFull,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    LogClosed,
    NotLeased,
)
from lamina.testing import FaultyFiles, MemoryFiles

SOON = 5.0  # seconds that something may take which happens at once on an idle machine


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def jobs(files: FaultyFiles) -> Iterator[Jobs]:
    data = lamina.open("data", files=files)
    yield data.jobs
    files.heal()
    data.close()


def in_thread(call: Callable[[], object]) -> Callable[..., Any]:
    """Start ``call`` in a thread; returns what waits for its outcome."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(call())
        except Exception as error:
            outcome.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def wait(seconds: float = SOON) -> object:
        thread.join(seconds)
        assert outcome, "it is still waiting"
        return outcome[0]

    return wait


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + SOON
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.002)


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(2 * SOON):
            await story()

    asyncio.run(limited())


# -- giving work ---------------------------------------------------------------------------------------------------


def test_a_job_is_shown_as_it_was_given(jobs: Jobs) -> None:
    given = str(uuid.uuid4())
    id = jobs.add("mail", b"x", id=given.upper(), ttr=2.5, ttl=timedelta(hours=1), priority=-7, max_attempts=3)
    view = jobs.show(id)
    assert (id, view.id, view.name, view.payload, view.state) == (given, given, "mail", b"x", "ready")
    assert (view.ttr_ms, view.ttl_ms, view.priority, view.max_attempts) == (2500, 3_600_000, -7, 3)
    assert (view.scheduled_ns, view.lease_until_ns, view.result, view.last_error) == (None, None, None, None)
    assert view.expires_ns == view.created_ns + 3600 * 10**9
    assert view.as_dict()["payload"] == "x"


def test_without_an_id_each_job_gets_one_of_its_own(jobs: Jobs) -> None:
    ids = {jobs.add("q", b"") for _ in range(20)}
    assert len(ids) == 20
    assert all(uuid.UUID(id).version == 4 for id in ids)


def test_many_are_added_in_order(jobs: Jobs) -> None:
    ids = jobs.add_many("q", (b"%d" % number for number in range(100)), priority=3)
    assert [view.id for view in jobs.list("q", limit=1000)] == ids
    assert {view.priority for view in jobs.list("q", limit=1000)} == {3}
    assert jobs.add_many("q", []) == []


def test_of_many_those_before_a_refused_one_stay(jobs: Jobs) -> None:
    with pytest.raises(TypeError):
        jobs.add_many("q", [b"a", b"b", "text", b"c"])  # type: ignore[list-item]
    assert [view.payload for view in jobs.list("q")] == [b"a", b"b"]
    with pytest.raises(DuplicateJob):
        jobs.add_many("u", [b"a", b"b"], unique="k")
    assert len(jobs.list("u")) == 1


def test_a_later_time_or_a_delay_schedules(jobs: Jobs) -> None:
    at = datetime(2099, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
    one, two = jobs.schedule("q", b"", at), jobs.add("q", b"", delay=3600)
    assert jobs.show(one).scheduled_ns == int(at.timestamp()) * 10**9 + 678_901_000
    assert [view.id for view in jobs.list("q", "scheduled")] == [two, one]
    jobs.add("soon", b"now", delay=0.05)
    with jobs.lease("soon", wait=SOON) as job:
        assert job is not None and job.payload == b"now"


BAD_VALUES: list[dict[str, Any]] = [
    {"name": ""},
    {"name": "a b"},
    {"name": "ä"},
    {"name": "n" * 256},
    {"name": None},
    {"payload": bytes((1 << 20) + 1)},
    {"id": "x"},
    {"id": str(uuid.UUID(int=0))},
    {"id": "6ba7b810-9dad-11d1-80b4-00c04fd430c4"},
    {"ttr": -1},
    {"ttr": 86_401},
    {"ttr": float("nan")},
    {"ttr": "5"},
    {"ttr": True},
    {"ttl": 31 * 86_400},
    {"ttl": float("inf")},
    {"priority": 2**31},
    {"priority": 1.5},
    {"max_attempts": -1},
    {"max_attempts": 256},
    {"max_fails": 256},
    {"max_fails": "3"},
    {"at": datetime(2099, 1, 1)},  # noqa: DTZ001
    {"at": datetime(1999, 1, 1, tzinfo=UTC)},
    {"at": datetime(2099, 1, 1, tzinfo=UTC), "delay": 1},
    {"delay": -1},
    {"delay": 31 * 86_400},
    {"unique": "a b"},
    {"unique": "k" * 256},
    {"backoff": 86_401},
]


def shown(values: dict[str, Any]) -> str:
    return ",".join(f"{key}={str(value)[:20]}" for key, value in values.items())


@pytest.mark.parametrize("values", BAD_VALUES, ids=shown)
def test_a_value_that_cannot_be_is_refused_and_nothing_is_added(jobs: Jobs, values: dict[str, Any]) -> None:
    given = {"name": "q", "payload": b"", **values}
    with pytest.raises(BadJob):
        jobs.add(**given)
    with pytest.raises(BadJob):
        asyncio.run(jobs.aio.add(**given))
    assert jobs.queues() == []


@pytest.mark.parametrize("payload", ["text", None, 5, bytearray(b"x")], ids=str)
def test_a_payload_is_bytes(jobs: Jobs, payload: Any) -> None:
    with pytest.raises(TypeError):
        jobs.add("q", payload)
    with pytest.raises(TypeError):
        jobs.complete(jobs.add("q", b""), payload)


def test_the_widest_values_are_taken(jobs: Jobs) -> None:
    id = jobs.add(
        "n" * 255, bytes(1 << 20), ttr=86_400, ttl=30 * 86_400, priority=2**31 - 1, max_attempts=255, max_fails=255
    )
    assert jobs.show(id).ttl_ms == 2_592_000_000
    assert jobs.show(jobs.add("q", b"", ttr=0.001, ttl=86_400)).ttr_ms == 1
    with pytest.raises(BadJob):
        jobs.add("q", b"", ttr=0)


def test_the_lowest_priority_is_taken(jobs: Jobs) -> None:
    assert jobs.show(jobs.add("q", b"", priority=-(2**31))).priority == -(2**31)


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.list("q", "sleeping"),
        lambda jobs: jobs.lease_many(most=1),
        lambda jobs: jobs.lease_many("q", most=0),
        lambda jobs: jobs.lease_many("q", most=1001),
        lambda jobs: jobs.lease_many("a b", most=1),
        lambda jobs: jobs.lease_many("nobody", most=1, wait=-1),
        lambda jobs: jobs.run("a b", b"", timeout=0),
        lambda jobs: jobs.run("q", b"", timeout=-1),
        lambda jobs: jobs.pause("a b"),
        lambda jobs: jobs.result("x"),
        lambda jobs: jobs.touch(jobs.add("z", b""), -1),
        lambda jobs: jobs.redrive(jobs.add("z", b"")),
    ],
)
def test_a_call_that_cannot_be_is_refused(jobs: Jobs, call: Callable[[Jobs], object]) -> None:
    with pytest.raises(BadJob):
        call(jobs)


@pytest.mark.parametrize(
    "call",
    [
        lambda jobs: jobs.list("q", limit=-1),
        lambda jobs: jobs.list("q", offset=-1),
        lambda jobs: jobs.redrive_queue("q", -1),
    ],
    ids=["list limit", "list offset", "redrive limit"],
)
def test_a_negative_limit_is_refused(jobs: Jobs, call: Callable[[Jobs], object]) -> None:
    for id in jobs.add_many("q", [b""] * 3):
        jobs.fail(id)
    with pytest.raises(BadJob):
        call(jobs)


@pytest.mark.parametrize("command", ["complete", "fail", "bury", "delete", "release", "redrive", "show", "result"])
def test_an_unknown_id_is_not_found(jobs: Jobs, command: str) -> None:
    with pytest.raises(JobNotFound):
        getattr(jobs, command)(str(uuid.uuid4()))
    with pytest.raises(JobNotFound):
        jobs.touch(str(uuid.uuid4()), 1)


# -- the lease block -----------------------------------------------------------------------------------------------


def test_leaving_the_block_completes_the_job_with_its_result(jobs: Jobs) -> None:
    id = jobs.add("q", b"work")
    with jobs.lease("q") as job:
        assert job is not None
        assert (job.id, job.name, job.payload, job.attempt) == (id, "q", b"work", 1)
        assert jobs.show(id).state == "leased"
        job.result = job.payload.upper()
    found = jobs.result(id)
    assert found is not None
    assert (found.id, found.is_success, found.result) == (id, True, b"WORK")


def test_an_exception_fails_the_job_with_its_text_and_goes_on(jobs: Jobs) -> None:
    id = jobs.add("q", b"")
    with pytest.raises(ZeroDivisionError), jobs.lease("q"):
        raise ZeroDivisionError("no such number")
    found = jobs.result(id)
    assert found is not None
    assert (found.is_success, found.result) == (False, b"ZeroDivisionError: no such number")
    assert jobs.show(id).last_error == b"ZeroDivisionError: no such number"


def test_a_job_that_may_fail_again_is_back_after_an_exception(jobs: Jobs) -> None:
    id = jobs.add("q", b"", max_fails=2)
    for attempt in (1, 2):
        with pytest.raises(ValueError, match="no"), jobs.lease("q") as job:
            assert job is not None and job.attempt == attempt
            raise ValueError("no")
    assert jobs.show(id).state == "failed"


@pytest.mark.parametrize("text", [os.fsdecode(b"\xff"), "x" * (1 << 20)], ids=["of a file name", "too long"])
def test_any_exception_fails_the_job(jobs: Jobs, text: str) -> None:
    id = jobs.add("q", b"")
    came = ""
    try:
        with jobs.lease("q"):
            raise OSError(text)
    except Exception as error:
        came = type(error).__name__
    assert (came, jobs.show(id).state) == ("OSError", "failed")


def test_the_exception_goes_on_also_when_the_job_is_gone(jobs: Jobs) -> None:
    id = jobs.add("q", b"")
    with pytest.raises(ZeroDivisionError), jobs.lease("q"):
        jobs.delete(id)
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("act", "state"), [("complete", "completed"), ("fail", "failed"), ("bury", "failed"), ("release", "ready")]
)
@pytest.mark.parametrize("raises", [False, True])
def test_what_was_ended_inside_the_block_is_left_so(jobs: Jobs, act: str, state: str, raises: bool) -> None:
    id = jobs.add("q", b"", max_fails=9 if act == "bury" else 0)
    try:
        with jobs.lease("q") as job:
            assert job is not None
            getattr(job, act)()
            assert job.is_over
            if raises:
                raise KeyError
    except KeyError:
        assert raises
    assert jobs.show(id).state == state


def test_a_job_that_somebody_else_finished_says_so(jobs: Jobs) -> None:
    id = jobs.add("q", b"")
    with pytest.raises(DuplicateResult), jobs.lease("q"):
        jobs.complete(id, b"by another")
    found = jobs.result(id)
    assert found is not None and found.result == b"by another"


def test_a_lease_extends_itself_as_long_as_the_block_runs(jobs: Jobs) -> None:
    id = jobs.add("q", b"", ttr=0.2)
    with jobs.lease("q"):
        for _ in range(8):
            time.sleep(0.1)
            assert (jobs.show(id).state, jobs.lease_many("q", most=1)) == ("leased", [])
    assert (jobs.show(id).state, jobs.show(id).attempts) == ("completed", 1)


def test_after_the_block_a_lease_is_not_extended(jobs: Jobs) -> None:
    jobs.add("q", b"", ttr=0.1)
    with jobs.lease("q") as job:
        assert job is not None
        job.release()
    (leased,) = jobs.lease_many("q", most=1)
    with jobs.lease("q", wait=SOON) as job:
        assert job is not None and (job.id, job.attempt) == (leased.id, 2)


def test_a_lease_that_was_lost_is_not_extended(jobs: Jobs) -> None:
    jobs.add("q", b"", ttr=0.1)
    (leased,) = jobs.lease_many("q", most=1)
    until(lambda: jobs.show(leased.id).state == "ready")
    with pytest.raises(NotLeased):
        leased.extend()


def test_no_job_in_time_is_none(jobs: Jobs) -> None:
    with jobs.lease("q") as job:
        assert job is None
    started = time.monotonic()
    with jobs.lease("q", "r", wait=0.1) as job:
        assert job is None
    assert 0.1 <= time.monotonic() - started < SOON


def test_a_waiting_block_gets_the_job_when_it_comes(jobs: Jobs) -> None:
    def work() -> bytes:
        with jobs.lease("a", "b", wait=SOON) as job:
            assert job is not None
            return job.payload

    waits = [in_thread(work) for _ in range(3)]
    until(lambda: sum(queue.waiting_workers for queue in jobs.queues()) == 6)
    for number in range(3):
        jobs.add("ab"[number % 2], b"%d" % number)
    assert sorted(wait() for wait in waits) == [b"0", b"1", b"2"]
    assert sum(queue.waiting_workers for queue in jobs.queues()) == 0


def test_several_jobs_are_leased_at_once(jobs: Jobs) -> None:
    ids = jobs.add_many("q", [b""] * 5)
    found = jobs.lease_many("q", most=3)
    assert [job.id for job in found] == ids[:3]
    for job in found:
        job.complete(b"r")
    assert len(jobs.lease_many("q", most=1000)) == 2
    assert jobs.lease_many("q", most=3) == []


def test_many_threads_do_each_job_once(jobs: Jobs) -> None:
    done: list[bytes] = []

    def work() -> None:
        while True:
            with jobs.lease("q", wait=0.3) as job:
                if job is None:
                    return
                done.append(job.payload)

    waits = [in_thread(work) for _ in range(6)]
    jobs.add_many("q", [b"%d" % number for number in range(300)])
    assert [wait() for wait in waits] == [None] * 6
    assert sorted(map(int, done)) == list(range(300))
    assert len(jobs.list("q", "completed", limit=1000)) == 300


# -- run and result ------------------------------------------------------------------------------------------------


def worker(jobs: Jobs, act: str = "complete") -> Callable[[], Any]:
    def work() -> None:
        with jobs.lease("q", wait=SOON) as job:
            assert job is not None
            getattr(job, act)(job.payload + b"!")

    return in_thread(work)


@pytest.mark.parametrize(("act", "is_success"), [("complete", True), ("fail", False)])
def test_run_waits_for_the_result_and_the_job_is_forgotten(jobs: Jobs, act: str, is_success: bool) -> None:
    wait = worker(jobs, act)
    found = jobs.run("q", b"now", timeout=SOON)
    assert found is not None
    assert (found.is_success, found.result) == (is_success, b"now!")
    assert wait() is None
    with pytest.raises(JobNotFound):
        jobs.show(found.id)


def test_run_that_nobody_takes_is_none_and_gone(jobs: Jobs) -> None:
    assert jobs.run("q", b"", timeout=0.05) is None
    assert jobs.lease_many("q", most=1) == []


def test_run_waits_for_the_worker_that_has_it(jobs: Jobs) -> None:
    wait = in_thread(lambda: jobs.run("q", b"", timeout=0.5, ttr=SOON))
    (job,) = jobs.lease_many("q", most=1, wait=SOON)
    time.sleep(0.7)
    job.complete(b"late")
    found = wait()
    assert found is not None and found.result == b"late"


def test_a_result_is_waited_for_and_can_be_had_again(jobs: Jobs) -> None:
    id = jobs.add("q", b"x")
    assert jobs.result(id) is None
    assert jobs.result(id, wait=0.05) is None
    waits = [in_thread(lambda: jobs.result(id, wait=SOON)) for _ in range(3)]
    worker(jobs)
    results = [wait() for wait in waits] + [jobs.result(id)]
    assert {(found.is_success, found.result) for found in results} == {(True, b"x!")}


# -- looking after it ----------------------------------------------------------------------------------------------


def test_queues_are_counted(jobs: Jobs) -> None:
    ids = jobs.add_many("q", [b""] * 5)
    jobs.add("q", b"", delay=60)
    jobs.lease_many("q", most=2)
    jobs.complete(ids[2])
    jobs.fail(ids[3])
    jobs.pause("a")
    first, second = jobs.queues()
    assert (first.name, first.is_paused, first.oldest_ready_s) == ("a", True, None)
    assert (second.ready, second.scheduled, second.leased, second.completed, second.failed) == (1, 1, 2, 1, 1)
    assert second.oldest_ready_s is not None and 0 <= second.oldest_ready_s < SOON


def test_failed_jobs_are_driven_again(jobs: Jobs) -> None:
    ids = jobs.add_many("q", [b""] * 4)
    for id in ids:
        jobs.fail(id, b"no")
    jobs.redrive(ids[2])
    assert jobs.redrive_queue("q", 2) == 2
    assert [view.id for view in jobs.list("q")] == ids[:3]
    assert jobs.redrive_queue("q") == 1
    with pytest.raises(JobNotFound):
        jobs.redrive_queue("unknown")


def test_a_paused_queue_waits(jobs: Jobs) -> None:
    jobs.add("q", b"")
    jobs.pause("q")
    wait = worker(jobs)
    until(lambda: jobs.queues()[0].waiting_workers == 1)
    jobs.resume("q")
    assert wait() is None


def test_everything_is_there_after_closing_and_opening(files: FaultyFiles) -> None:
    with lamina.open("data", files=files) as data:
        ids = data.jobs.add_many("q", [b"%d" % number for number in range(50)])
        data.jobs.complete(ids[0], b"r")
        assert data.jobs.clean()["removed"] == 0
    with lamina.open("data", files=files) as data:
        assert [view.id for view in data.jobs.list("q")] == ids[1:]
        found = data.jobs.result(ids[0])
        assert found is not None and found.result == b"r"


def test_after_closing_every_change_is_refused(files: FaultyFiles) -> None:
    with lamina.open("data", files=files) as data:
        jobs = data.jobs
        id = jobs.add("q", b"")
    with pytest.raises(LogClosed):
        jobs.add("q", b"")
    with pytest.raises(LogClosed):
        jobs.complete(id)


def test_closing_wakes_those_who_wait(files: FaultyFiles) -> None:
    data = lamina.open("data", files=files)
    jobs = data.jobs
    waits = [
        in_thread(lambda: jobs.lease_many("q", most=1, wait=60)),
        in_thread(lambda: jobs.run("r", b"", timeout=60)),
    ]
    until(lambda: sum(queue.waiting_workers + queue.ready for queue in jobs.queues()) == 2)
    data.close()
    for wait in waits:
        outcome = wait(1.0)
        assert outcome in ([], None) or isinstance(outcome, LogClosed)


def test_a_full_disk_refuses_and_lets_go_on(jobs: Jobs, files: FaultyFiles) -> None:
    jobs.add("q", b"kept")
    files.fail("append", error=errno.ENOSPC, times=1 << 30)
    for _ in range(3):
        with pytest.raises(DiskFull):
            jobs.add("q", b"refused")
    with pytest.raises(DiskFull):
        jobs.add_many("q", [b"refused"] * 3)
    assert [view.payload for view in jobs.list("q")] == [b"kept"]
    files.heal()
    while not jobs.engine.reserve.look():  # type: ignore[union-attr]  # it is tried once in a while
        time.sleep(0.05)
    jobs.add("q", b"again")
    assert [view.payload for view in jobs.list("q")] == [b"kept", b"again"]


def test_the_keeper_does_not_spin_while_the_disk_is_full(
    jobs: Jobs, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs.add("q", b"", ttr=0.6)
    warnings: list[object] = []
    monkeypatch.setattr(keeping.logger, "warning", lambda *words: warnings.append(words))
    (leased,) = jobs.lease_many("q", most=1)
    jobs._keeper.keep(leased)
    files.fail("append", error=errno.ENOSPC, times=1 << 30)
    with pytest.raises(DiskFull):
        jobs.add("z", b"")
    time.sleep(0.5)
    assert jobs.show(leased.id).state == "leased"
    assert len(warnings) < 20


# -- coroutines ----------------------------------------------------------------------------------------------------


def test_coroutines_add_lease_and_complete(jobs: Jobs) -> None:
    async def story() -> None:
        aio = jobs.aio
        id = await aio.add("q", b"x", priority=2)
        later = await aio.schedule("q", b"", datetime(2099, 1, 1, tzinfo=UTC))
        many = await aio.add_many("m", [b"1", b"2"])
        assert ((await aio.show(id)).priority, (await aio.show(later)).state) == (2, "scheduled")
        async with aio.lease("q") as job:
            assert job is not None
            assert (job.id, job.name, job.payload, job.attempt) == (id, "q", b"x", 1)
            job.result = b"r"
        found = await aio.result(id)
        assert found is not None and (found.is_success, found.result) == (True, b"r")
        leased = await aio.lease_many("m", most=9)
        assert [each.id for each in leased] == many
        await leased[0].complete(b"one")
        await aio.fail(many[1], b"two")
        assert [queue.failed for queue in await aio.queues() if queue.name == "m"] == [1]
        await aio.delete(many[1])
        with pytest.raises(JobNotFound):
            await aio.result(many[1])

    run(story)


@pytest.mark.parametrize(
    ("act", "state"), [("complete", "completed"), ("fail", "failed"), ("bury", "failed"), ("release", "ready")]
)
def test_what_was_ended_inside_an_async_block_is_left_so(jobs: Jobs, act: str, state: str) -> None:
    async def story() -> None:
        id = await jobs.aio.add("q", b"")
        with pytest.raises(KeyError):
            async with jobs.aio.lease("q") as job:
                assert job is not None
                await getattr(job, act)()
                raise KeyError
        assert jobs.show(id).state == state

    run(story)


def test_an_exception_in_an_async_block_fails_the_job(jobs: Jobs) -> None:
    async def story() -> None:
        id = await jobs.aio.add("q", b"")
        with pytest.raises(KeyError):
            async with jobs.aio.lease("q"):
                raise KeyError("k")
        assert jobs.show(id).last_error == b"KeyError: 'k'"

    run(story)


def test_an_async_lease_extends_itself(jobs: Jobs) -> None:
    async def story() -> None:
        id = await jobs.aio.add("q", b"", ttr=0.2)
        async with jobs.aio.lease("q"):
            await asyncio.sleep(0.6)
            assert jobs.show(id).state == "leased"
        assert (jobs.show(id).state, jobs.show(id).attempts) == ("completed", 1)

    run(story)


def test_a_hundred_coroutines_wait_and_each_gets_one(jobs: Jobs) -> None:
    async def story() -> None:
        async def work() -> bytes:
            async with jobs.aio.lease("q", wait=SOON) as job:
                assert job is not None
                return job.payload

        tasks = [asyncio.create_task(work()) for _ in range(100)]
        await asyncio.sleep(0.05)
        await jobs.aio.add_many("q", [b"%d" % number for number in range(100)])
        assert sorted(map(int, await asyncio.gather(*tasks))) == list(range(100))

    run(story)


def test_no_job_in_time_is_none_for_a_coroutine(jobs: Jobs) -> None:
    async def story() -> None:
        async with jobs.aio.lease("q", wait=0.05) as job:
            assert job is None
        assert await jobs.aio.run("q", b"", timeout=0.05) is None
        assert await jobs.aio.result(await jobs.aio.add("q", b""), wait=0.05) is None

    run(story)


def test_a_cancelled_coroutine_gets_no_job_and_the_next_does(jobs: Jobs) -> None:
    async def story() -> None:
        async def work() -> bytes:
            async with jobs.aio.lease("q", wait=60) as job:
                assert job is not None
                return job.payload

        gone = asyncio.create_task(work())
        await asyncio.sleep(0.02)
        gone.cancel()
        with pytest.raises(asyncio.CancelledError):
            await gone
        stays = asyncio.create_task(work())
        await asyncio.sleep(0.02)
        id = await jobs.aio.add("q", b"x")
        assert await stays == b"x"
        assert jobs.show(id).attempts == 1

    run(story)


def test_a_job_that_came_as_its_coroutine_was_cancelled_goes_back(jobs: Jobs) -> None:
    async def story() -> None:
        task = asyncio.create_task(jobs.aio.lease_many("q", most=1, wait=60))
        await asyncio.sleep(0.02)
        id = jobs.add("q", b"x")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (jobs.show(id).state, jobs.show(id).attempts) == ("ready", 0)

    run(story)


def test_coroutines_run_and_wait_for_results(jobs: Jobs) -> None:
    async def story() -> None:
        async def work() -> None:
            async with jobs.aio.lease("q", wait=SOON) as job:
                assert job is not None
                await asyncio.sleep(0.1)
                job.result = job.payload + b"!"

        tasks = [asyncio.create_task(work()) for _ in range(2)]
        found = await jobs.aio.run("q", b"now", timeout=0.05, ttr=SOON)
        assert found is not None and found.result == b"now!"
        id = await jobs.aio.add("q", b"later")
        results = await asyncio.gather(*(jobs.aio.result(id, wait=SOON) for _ in range(5)), *tasks)
        assert [each.result for each in results if each is not None] == [b"later!"] * 5

    run(story)


def test_run_of_a_job_that_was_deleted_is_none_for_both(jobs: Jobs) -> None:
    async def story() -> None:
        task = asyncio.create_task(jobs.aio.run("q", b"", timeout=0.1, ttr=0.3))
        async with asyncio.timeout(SOON):
            (job,) = await jobs.aio.lease_many("q", most=1, wait=SOON)
        jobs.delete(job.id)
        assert await task is None

    wait = in_thread(lambda: jobs.run("q", b"", timeout=0.1, ttr=0.3))
    (job,) = jobs.lease_many("q", most=1, wait=SOON)
    jobs.delete(job.id)
    assert wait() is None
    run(story)


def test_a_full_disk_refuses_a_coroutine_too(jobs: Jobs, files: FaultyFiles) -> None:
    async def story() -> None:
        await jobs.aio.add("q", b"kept")
        files.fail("append", error=errno.ENOSPC, times=1 << 30)
        outcomes = await asyncio.gather(*(jobs.aio.add("q", b"no") for _ in range(20)), return_exceptions=True)
        assert {type(outcome) for outcome in outcomes} == {DiskFull}
        files.heal()
        while not jobs.engine.reserve.look():  # type: ignore[union-attr]
            await asyncio.sleep(0.05)
        await jobs.aio.add("q", b"again")
        assert [view.payload for view in jobs.list("q")] == [b"kept", b"again"]

    run(story)
