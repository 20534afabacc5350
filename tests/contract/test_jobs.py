"""Jobs, in every way: inside the process and behind a server, for threads and for coroutines."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lamina.engines.jobs.views import JobResult, JobView, QueueView
from lamina.errors import (
    BadJob,
    DuplicateJob,
    DuplicateResult,
    JobNotFound,
    LogClosed,
    NotLeased,
    WireError,
)

NOBODY = "11111111-1111-4111-8111-111111111111"
LONG = 60  # seconds to wait for what comes


@pytest.fixture
def jobs(lm: Any) -> Any:
    return lm.jobs


def later(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.005)


def queue_view(jobs: Any, name: str) -> QueueView | None:
    return next((view for view in jobs.queues() if view.name == name), None)


class TestGiving:
    def test_a_job_is_shown_as_it_was_given(self, jobs: Any, name: str) -> None:
        given = str(uuid.uuid4())
        before = time.time_ns()
        id = jobs.add(
            name, b"a\r\nb\0", id=given.upper(), ttr=2.5, ttl=timedelta(hours=1), priority=-7, max_attempts=3,
            max_fails=4, unique="key-1", backoff=1,
        )  # fmt: skip
        view = jobs.show(id)
        assert isinstance(view, JobView)
        assert (id, view.id, view.name, view.state) == (given, given, name, "ready")
        assert (view.payload, view.priority, view.unique) == (b"a\r\nb\0", -7, "key-1")
        assert (view.ttr_ms, view.ttl_ms, view.max_attempts, view.max_fails) == (2500, 3_600_000, 3, 4)
        assert (view.attempts, view.fails, view.result, view.last_error) == (0, 0, None, None)
        assert view.lease_until_ns is None and view.scheduled_ns is None
        assert view.expires_ns is not None
        assert before <= view.created_ns <= time.time_ns()

    def test_one_for_later(self, jobs: Any, name: str) -> None:
        at = datetime.now(UTC) + timedelta(hours=1)
        first, second = jobs.schedule(name, b"1", at), jobs.add(name, b"2", delay=7200)
        assert jobs.show(first).scheduled_ns == round(at.timestamp() * 10**6) * 1000
        assert [view.id for view in jobs.list(name, "scheduled")] == [first, second]
        assert jobs.lease_many(name, most=5) == []

    def test_one_for_soon_comes_by_itself(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"1", delay=0.05)
        assert [job.id for job in jobs.lease_many(name, most=5, wait=LONG)] == [id]

    def test_many_at_once_keep_their_order(self, jobs: Any, name: str) -> None:
        ids = jobs.add_many(name, (b"%d" % number for number in range(600)), max_fails=2)
        assert len(set(ids)) == 600
        assert [view.payload for view in jobs.list(name, limit=1000)] == [b"%d" % number for number in range(600)]
        assert jobs.show(ids[-1]).max_fails == 2
        assert jobs.add_many(name, []) == []

    def test_many_with_one_that_cannot_be(self, jobs: Any, name: str) -> None:
        with pytest.raises(BadJob):
            jobs.add_many(name, [b"1", b"2", bytes((1 << 20) + 1), b"4"])
        assert [view.payload for view in jobs.list(name)] == [b"1", b"2"]
        with pytest.raises(DuplicateJob):
            jobs.add_many(name, [b"3", b"4"], unique="one")
        assert [view.payload for view in jobs.list(name)] == [b"1", b"2", b"3"]

    def test_an_id_and_a_key_are_taken_once(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"", unique="key")
        with pytest.raises(DuplicateJob):
            jobs.add(name, b"", id=id)
        with pytest.raises(DuplicateJob):
            jobs.add(name, b"", unique="key")
        jobs.complete(id)
        jobs.add(name, b"", unique="key")

    def test_the_largest_payload(self, jobs: Any, name: str) -> None:
        jobs.add(name, bytes(1 << 20))
        (job,) = jobs.lease_many(name, most=1)
        job.complete(bytes(1 << 20))
        assert jobs.result(job.id).result == bytes(1 << 20)
        assert len(jobs.show(job.id).result) == 1 << 20

    @pytest.mark.parametrize(
        ("payload", "options"),
        [
            (bytes((1 << 20) + 1), {}),
            (b"", {"ttr": 0}),
            (b"", {"ttr": 100_000}),
            (b"", {"ttl": 31 * 86_400}),
            (b"", {"priority": 2**31}),
            (b"", {"max_fails": 256}),
            (b"", {"unique": "a b"}),
            (b"", {"backoff": -1}),
            (b"", {"id": "x"}),
            (b"", {"at": datetime(2026, 1, 1)}),  # noqa: DTZ001
            (b"", {"at": datetime(2020, 1, 1, tzinfo=UTC)}),
            (b"", {"at": datetime.now(UTC), "delay": 1}),
        ],
    )
    def test_what_cannot_be(self, jobs: Any, name: str, payload: bytes, options: dict[str, Any]) -> None:
        with pytest.raises(BadJob):
            jobs.add(name, payload, **options)
        assert queue_view(jobs, name) is None

    def test_more_that_cannot_be(self, jobs: Any) -> None:
        for bad in ("", "a b", "x\r\npause y", "ä", "x" * 256):
            with pytest.raises(BadJob):
                jobs.add(bad, b"")
        with pytest.raises(TypeError):
            jobs.add("q", "text")
        with pytest.raises(TypeError):
            jobs.add("q", b"", colour="red")


class TestDoing:
    def test_a_block_completes_its_job(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"work", ttr=30)
        with jobs.lease(name) as job:
            assert (job.id, job.name, job.payload, job.attempt) == (id, name, b"work", 1)
            view = jobs.show(id)
            assert (view.state, view.attempts) == ("leased", 1)
            assert view.lease_until_ns > time.time_ns()
            job.result = b"done"
        assert jobs.result(id) == JobResult(id, True, b"done")
        assert (jobs.show(id).state, jobs.show(id).result, jobs.show(id).last_error) == ("completed", b"done", None)

    def test_an_exception_fails_it_and_goes_on(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"", max_fails=2)
        for attempt in (1, 2):
            with pytest.raises(ZeroDivisionError), jobs.lease(name, wait=LONG) as job:
                assert job.attempt == attempt
                raise ZeroDivisionError("over nothing")
        view = jobs.show(id)
        assert (view.state, view.fails, view.attempts) == ("failed", 2, 2)
        assert view.last_error == b"ZeroDivisionError: over nothing"
        assert jobs.result(id) == JobResult(id, False, b"ZeroDivisionError: over nothing")

    def test_none_when_none_came(self, jobs: Any, name: str) -> None:
        for wait in (0, 0.01):
            with jobs.lease(name, wait=wait) as job:
                assert job is None

    def test_what_is_over_in_the_block_is_left_alone(self, jobs: Any, name: str) -> None:
        ids = jobs.add_many(name, [b"1", b"2", b"3"], max_fails=9)
        with jobs.lease(name) as job:
            job.bury(b"hopeless")
            assert job.is_over
        with jobs.lease(name) as job:
            job.release()
        with jobs.lease(name) as job:
            job.complete(b"early")
        assert [jobs.show(id).state for id in ids] == ["failed", "completed", "ready"]
        assert jobs.show(ids[1]).result == b"early"
        assert jobs.show(ids[1]).attempts == 1, "a release does not count"

    def test_a_lease_lasts_as_long_as_its_block(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"", ttr=0.3)
        with jobs.lease(name) as job:
            first = jobs.show(id).lease_until_ns
            until(lambda: jobs.show(id).lease_until_ns > first + 300_000_000)
            assert not job.is_over
        view = jobs.show(id)
        assert (view.state, view.attempts) == ("completed", 1)

    def test_a_lease_without_a_block_runs_out(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"", ttr=0.05)
        (first,) = jobs.lease_many(name, most=1)
        (second,) = jobs.lease_many(name, most=1, wait=LONG)
        assert (first.id, first.attempt, second.id, second.attempt) == (id, 1, id, 2)
        assert second.ttr_s == 0.05

    def test_several_queues_and_priorities(self, jobs: Any, name: str) -> None:
        other = f"{name}-2"
        low, high, third = jobs.add(name, b"", priority=1), jobs.add(name, b"", priority=2), jobs.add(other, b"")
        assert {job.id for job in jobs.lease_many(name, other, most=10)} == {low, high, third}
        assert jobs.lease_many(name, other, most=10) == []

    def test_one_who_waits_gets_the_next(self, jobs: Any, name: str) -> None:
        found: list[Any] = []
        waiting = later(lambda: found.extend(jobs.lease_many(name, most=2, wait=LONG)))
        until(lambda: (view := queue_view(jobs, name)) is not None and view.waiting_workers == 1)
        id = jobs.add(name, b"")
        waiting.join(LONG)
        assert [job.id for job in found] == [id]

    def test_touch_extend_and_release(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"", ttr=5)
        for call in (lambda: jobs.touch(id, 10), lambda: jobs.release(id)):
            with pytest.raises(NotLeased):
                call()
        jobs.lease_many(name, most=1)
        jobs.touch(id, 1000)
        assert jobs.show(id).lease_until_ns > time.time_ns() + 900 * 10**9
        jobs.release(id, delay=3600)
        assert jobs.show(id).state == "scheduled"

    def test_an_ending_is_told_once(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"")
        (job,) = jobs.lease_many(name, most=1)
        job.complete(b"1")
        for call in (lambda: jobs.complete(id, b"2"), lambda: jobs.fail(id), lambda: jobs.bury(id), job.complete):
            with pytest.raises(DuplicateResult):
                call()
        assert jobs.result(id).result == b"1"

    def test_what_cannot_be_leased(self, jobs: Any, name: str) -> None:
        for call in (
            lambda: jobs.lease_many(most=1),
            lambda: jobs.lease_many(name, most=0),
            lambda: jobs.lease_many(name, most=1001),
            lambda: jobs.lease_many("a b", most=1),
            lambda: jobs.lease_many(name, most=1, wait=-1),
        ):
            with pytest.raises(BadJob):
                call()


class TestRun:
    def test_it_gives_the_result(self, jobs: Any, name: str) -> None:
        def work() -> None:
            with jobs.lease(name, wait=LONG) as job:
                job.result = job.payload.upper()

        worker = later(work)
        result = jobs.run(name, b"abc", timeout=LONG, priority=3)
        worker.join(LONG)
        assert (result.is_success, result.result) == (True, b"ABC")
        with pytest.raises(JobNotFound):  # it is forgotten
            jobs.show(result.id)

    def test_nobody_is_there(self, jobs: Any, name: str) -> None:
        assert jobs.run(name, b"", timeout=0.01) is None
        assert jobs.lease_many(name, most=1) == []

    def test_it_waits_for_who_has_it(self, jobs: Any, name: str) -> None:
        def work() -> None:
            with pytest.raises(ValueError, match="no"), jobs.lease(name, wait=LONG):
                time.sleep(0.05)
                raise ValueError("no")

        worker = later(work)
        until(lambda: (view := queue_view(jobs, name)) is not None and view.waiting_workers == 1)
        result = jobs.run(name, b"", timeout=0.01)
        worker.join(LONG)
        assert (result.is_success, result.result) == (False, b"ValueError: no")


class TestLookingAfter:
    def test_nobody_knows_this_job(self, jobs: Any) -> None:
        for call in (
            jobs.show, jobs.delete, jobs.redrive, jobs.result, jobs.complete, jobs.fail, jobs.bury, jobs.release,
            lambda one: jobs.touch(one, 1),
        ):  # fmt: skip
            with pytest.raises(JobNotFound):
                call(NOBODY)
            with pytest.raises(BadJob):
                call("not-an-id")

    def test_a_result_is_waited_for(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"")
        assert jobs.result(id) is None
        assert jobs.result(id, wait=0.01) is None
        found: list[JobResult] = []
        waiting = later(lambda: found.append(jobs.result(id, wait=LONG)))
        jobs.complete(id, b"yes")
        waiting.join(LONG)
        assert found == [JobResult(id, True, b"yes")]

    def test_failed_jobs_are_driven_again(self, jobs: Any, name: str) -> None:
        ids = jobs.add_many(name, [b"1", b"2", b"3"])
        with pytest.raises(BadJob):
            jobs.redrive(ids[0])
        for id in ids:
            jobs.fail(id, b"why")
        jobs.redrive(ids[0])
        assert jobs.show(ids[0]).state == "ready"
        assert jobs.redrive_queue(name, limit=1) == 1
        assert jobs.redrive_queue(name) == 1
        assert jobs.redrive_queue(name) == 0
        assert [view.fails for view in jobs.list(name)] == [0, 0, 0]
        with pytest.raises(JobNotFound):
            jobs.redrive_queue(f"{name}-none")

    def test_a_paused_queue_hands_out_nothing(self, jobs: Any, name: str) -> None:
        jobs.add(name, b"")
        jobs.pause(name)
        assert queue_view(jobs, name).is_paused  # type: ignore[union-attr]
        assert jobs.lease_many(name, most=1) == []
        jobs.resume(name)
        assert len(jobs.lease_many(name, most=1)) == 1

    def test_the_queues_are_counted(self, jobs: Any, name: str) -> None:
        ids = jobs.add_many(name, [b""] * 6)
        jobs.add(name, b"", delay=3600)
        jobs.lease_many(name, most=2)
        jobs.complete(ids[2])
        jobs.fail(ids[3])
        view = queue_view(jobs, name)
        assert isinstance(view, QueueView)
        assert (view.ready, view.scheduled, view.leased, view.completed, view.failed) == (2, 1, 2, 1, 1)
        assert (view.is_paused, view.waiting_workers) == (False, 0)
        assert view.oldest_ready_s is not None and view.oldest_ready_s >= 0
        names = [view.name for view in jobs.queues()]
        assert names == sorted(names)

    def test_lists_have_pages(self, jobs: Any, name: str) -> None:
        ids = jobs.add_many(name, [b"x"] * 250)
        assert [view.id for view in jobs.list(name)] == ids[:100]
        assert [view.id for view in jobs.list(name, offset=10, limit=3)] == ids[10:13]
        assert [view.id for view in jobs.list(name, limit=5000)] == ids
        assert jobs.list(name, offset=250) == []
        assert jobs.list(name, limit=0) == []
        assert jobs.list(name, "failed") == []
        with pytest.raises(JobNotFound):
            jobs.list(f"{name}-none")
        for options in ({"state": "lost"}, {"offset": -1}, {"limit": -1}):
            with pytest.raises(BadJob):
                jobs.list(name, **options)

    def test_large_jobs_are_listed_too(self, jobs: Any, name: str) -> None:
        jobs.add_many(name, [bytes(900_000)] * 6)
        assert [len(view.payload) for view in jobs.list(name)] == [900_000] * 6

    def test_a_deleted_job_is_gone(self, jobs: Any, name: str) -> None:
        id = jobs.add(name, b"")
        jobs.delete(id)
        assert jobs.list(name) == []
        with pytest.raises(JobNotFound):
            jobs.delete(id)

    def test_cleaning(self, jobs: Any, way: str) -> None:
        if way.startswith("remote"):
            with pytest.raises(WireError, match="clean"):
                jobs.clean()
        else:
            assert "removed" in jobs.clean()


def test_who_waits_is_told_that_it_is_closed(jobs: Any, thing: Any, name: str) -> None:
    told: list[Exception] = []

    def wait() -> None:
        try:
            jobs.lease_many(name, most=1, wait=LONG)
        except Exception as error:
            told.append(error)

    waiting = later(wait)
    until(lambda: (view := queue_view(jobs, name)) is not None and view.waiting_workers == 1)
    thing.close()
    waiting.join(LONG)
    assert [type(error) for error in told] == [LogClosed]
