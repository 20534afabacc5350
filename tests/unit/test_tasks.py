"""Functions as jobs: what travels, what is refused before it does, and what a worker in this process makes of it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any, TypedDict

import msgspec
import pytest

import lamina
from lamina.client.worker import Worker
from lamina.data import Data
from lamina.engines.jobs.api import Jobs
from lamina.errors import (
    BadJob,
    BadOption,
    DuplicateJob,
    LaminaError,
    TaskFailed,
    TaskUnfinished,
)
from lamina.tasks import TaskBook
from lamina.testing import MemoryFiles

LONG = 60.0


@dataclass
class Address:
    street: str
    number: int = 1


class Order(msgspec.Struct):
    item: str
    when: datetime
    to: Address


class Size(TypedDict):
    width: int


@pytest.fixture
def jobs() -> Iterator[Jobs]:
    data: Data = lamina.open("data", files=MemoryFiles())
    yield data.jobs
    data.close()


@pytest.fixture
def task(jobs: Jobs) -> TaskBook:
    return TaskBook(lambda: jobs)


def work(jobs: Jobs, task: TaskBook, **options: Any) -> Worker:
    """All that is ready is done."""
    worker = Worker(jobs, task, **options)
    worker.run(until_empty=True)
    return worker


def until(is_so: Callable[[], object]) -> None:
    end = time.monotonic() + LONG
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.002)


class TestCalls:
    def test_a_call_is_made_by_a_worker_and_its_result_comes_back(self, jobs: Jobs, task: TaskBook) -> None:
        @task(queue="mail")
        def send(to: str, *more: int, copies: int = 1, **rest: bool) -> list[str]:
            """Sends."""
            return [to, str(copies), *map(str, more), *sorted(rest)]

        assert send("x") == ["x", "1"]
        assert (vars(send)["__name__"], send.__doc__, task[send.name]) == ("send", "Sends.", send)
        plain, starred = send.put("me"), send.put("you", 1, 2, copies=3, late=True)
        with pytest.raises(TaskUnfinished) as caught:
            plain.result()
        assert caught.value.retryable
        assert work(jobs, task).tally.done == 2
        assert plain.result() == ["me", "1"]
        assert starred.result() == ["you", "3", "1", "2", "late"]
        assert send.handle(plain.id).result(wait=1) == ["me", "1"]
        assert jobs.show(plain.id).name == "mail"

    def test_typed_values_travel(self, jobs: Jobs, task: TaskBook) -> None:
        seen: list[Any] = []

        @task()
        def take(order: Order, day: date, data: bytes, sizes: dict[int, Size], maybe: int | None) -> Order:
            seen.append((order, day, data, sizes, maybe))
            return order

        order = Order("tea", datetime(2026, 1, 2, tzinfo=UTC), Address("Lane", 3))
        given = (order, date(2026, 1, 1), b"\0\xff", {5: Size(width=2)}, None)
        handle = take.put(*given)
        work(jobs, task)
        assert seen == [given]
        assert handle.result() == order

    def test_coroutine_functions_share_a_loop(self, jobs: Jobs, task: TaskBook) -> None:
        loops = set()
        both = threading.Barrier(2)

        @task()
        async def double(number: int) -> int:
            loops.add(asyncio.get_running_loop())
            await asyncio.get_running_loop().run_in_executor(None, both.wait, LONG)  # both are at it
            return 2 * number

        handles = double.put_many([(1,), (2,)])
        work(jobs, task, concurrency=2)
        assert [handle.result() for handle in handles] == [2, 4]
        assert len(loops) == 1
        assert asyncio.run(direct(double)) == 6

    def test_run_waits_for_the_result(self, jobs: Jobs, task: TaskBook) -> None:
        @task(wait=LONG)
        def add(a: int, b: int) -> int:
            return a + b

        with pytest.raises(TaskUnfinished, match="not done in 0"):
            add.with_options(wait=0.01).run(1, 1)
        worker = Worker(jobs, task)
        running = threading.Thread(target=worker.run)
        running.start()
        assert add.run(1, b=2) == 3
        worker.stop()
        running.join(LONG)
        assert worker.tally.done == 2, "what nobody waited for is done all the same"

    def test_at_a_time(self, jobs: Jobs, task: TaskBook) -> None:
        @task()
        def tick(number: int) -> None: ...

        when = datetime.now(UTC) + timedelta(days=1)
        ids = [tick.at(when, 1).id, tick.at(60, 2).id, tick.at(timedelta(hours=1), number=3).id]
        assert {jobs.show(id).state for id in ids} == {"scheduled"}
        assert jobs.show(ids[0]).scheduled_ns == round(when.timestamp() * 10**6) * 1000

    def test_coroutines_put_and_wait(self, jobs: Jobs, task: TaskBook) -> None:
        @task(wait=LONG)
        def add(a: int, b: int = 1) -> int:
            return a + b

        async def story() -> None:
            ready = await add.aio.put(1)
            many = await add.aio.put_many([(2,), (3, 4)])
            await add.aio.at(3600, 1)
            with pytest.raises(TaskUnfinished):
                await ready.result()
            worker = Worker(jobs, task)
            running = asyncio.create_task(asyncio.to_thread(worker.run))
            assert await add.aio.run(5, b=5) == 10
            worker.stop()
            await running
            assert [await handle.result() for handle in (ready, *many)] == [2, 3, 7]
            assert await add.aio.handle(ready.id).result() == 2

        asyncio.run(story())

    def test_options_are_those_of_its_jobs(self, jobs: Jobs, task: TaskBook) -> None:
        @task(queue="q", ttr=5, ttl=100, priority=3, max_attempts=2, max_fails=4, backoff=1)
        def f() -> None: ...

        view = jobs.show(f.put().id)
        assert (view.name, view.ttr_ms, view.ttl_ms, view.priority) == ("q", 5000, 100_000, 3)
        assert (view.max_attempts, view.max_fails) == (2, 4)
        assert jobs.show(f.with_options(priority=9, queue="p").put().id).priority == 9

    def test_the_same_call_once(self, jobs: Jobs, task: TaskBook) -> None:
        @task(unique=True)
        def f(a: int, b: dict[str, int]) -> None: ...

        @task(name="by/key", unique=lambda a: f"key-{a}")
        def g(a: int) -> None: ...

        f.put(1, {"x": 1, "y": 2})
        with pytest.raises(DuplicateJob):
            f.put(b={"y": 2, "x": 1}, a=1)
        f.put(2, {})
        g.put(1)
        with pytest.raises(DuplicateJob):
            g.put_many([(2,), (1,)])
        assert work(jobs, task).tally.done == 4
        f.put(1, {"x": 1, "y": 2})


async def direct(double: Any) -> Any:
    """Two calls here, as each waits for the other."""
    first, _ = await asyncio.gather(double(3), double(4))
    return first


class TestRefused:
    """Before anything is sent."""

    def test_arguments_that_do_not_fit(self, jobs: Jobs, task: TaskBook) -> None:
        @task()
        def f(a: int, *, b: Order | None = None) -> None: ...

        any_task: Any = f
        bad: list[Callable[[], object]] = [
            lambda: any_task.put("secret"),
            lambda: any_task.put(),
            lambda: any_task.put(1, 2),
            lambda: any_task.put(1, c=3),
            lambda: any_task.put(1, b={"item": "x"}),
            lambda: any_task.put(object()),
            lambda: any_task.put(2.5),
            lambda: any_task.put(None),
            lambda: any_task.at(5, "x"),
            lambda: any_task.run("x"),
            lambda: any_task.put_many([(1,), ("x",)]),
            lambda: any_task.put_many([1]),
            lambda: asyncio.run(any_task.aio.put("x")),
            lambda: asyncio.run(any_task.aio.put_many([(1,), ("x",)])),
        ]
        for call in bad:
            with pytest.raises(BadJob) as caught:
                call()
            assert "secret" not in str(caught.value)
        assert not jobs.queues()

    def test_a_payload_that_is_too_large(self, jobs: Jobs, task: TaskBook) -> None:
        @task()
        def f(text: str) -> None: ...

        with pytest.raises(BadJob, match="too many"):
            f.put("x" * (1 << 20))

    def test_what_cannot_be_a_task(self, jobs: Jobs, task: TaskBook) -> None:
        for options, kind in (
            ({"queue": "a b"}, BadJob),
            ({"ttr": 0}, BadJob),
            ({"wait": -1}, BadJob),
            ({"colour": "red"}, BadOption),
        ):
            with pytest.raises(kind):
                task(**options)(print)
        with pytest.raises(BadOption):
            task()(5)  # type: ignore[call-overload]

        @task(name="one")
        def f(lock: threading.Thread) -> None: ...

        @task(name="two")
        def g(what: "NotThere") -> None: ...  # type: ignore[name-defined]  # noqa: F821, UP037

        with pytest.raises(BadOption, match="two tasks 'one'"):
            task(name="one")(g.function)
        wrong: Any
        for wrong in (f, g):
            with pytest.raises(BadOption):
                wrong.put(1)
            with pytest.raises(BadOption):
                Worker(jobs, {"x": wrong})
        with pytest.raises(BadOption, match="no tasks"):
            Worker(jobs, {})

    def test_nothing_is_opened_by_a_decorator(self) -> None:
        task = TaskBook(lambda: pytest.fail("it was asked for"))

        @task()
        def f(a: int) -> int:
            return a

        assert f(1) == 1


class TestEndings:
    def test_an_exception_fails_the_job_with_its_text(self, jobs: Jobs, task: TaskBook) -> None:
        @task(max_fails=2)
        def divide(a: int) -> float:
            return a / 0

        handle = divide.put(1)
        lines: list[str] = []
        worker = work(jobs, task, say=lines.append)
        assert (worker.tally.failed, worker.tally.done) == (2, 0)
        with pytest.raises(TaskFailed, match="ZeroDivisionError: division by zero") as caught:
            handle.result()
        assert caught.value.facts["id"] == handle.id
        assert all("division" not in line for line in lines), "what is in a job stays there"
        ends = [line.rpartition(", ")[2] for line in lines]
        assert ends == ["attempt 1: ZeroDivisionError", "attempt 2: ZeroDivisionError"]

    def test_the_end_of_a_program_is_not_that_of_the_worker(self, jobs: Jobs, task: TaskBook) -> None:
        @task()
        def leave() -> None:
            raise SystemExit(3)

        @task()
        async def cancel() -> None:
            raise asyncio.CancelledError

        handles = leave.put(), cancel.put()
        assert work(jobs, task).tally.failed == 2
        for handle in handles:
            with pytest.raises(TaskFailed):
                handle.result()

    def test_what_is_no_call_of_ours_is_buried(self, jobs: Jobs, task: TaskBook) -> None:
        @task(max_fails=5)
        def f(a: int) -> int:
            return a

        payloads = [
            b"", b"\xff", b"[]", b'{"task": 5, "arguments": {}}', b'{"task": "unknown", "arguments": {}}',
            b'{"task": "%b", "arguments": {"a": "x"}}' % f.name.encode(), b'{"task": "%b"}' % f.name.encode(),
            b'{"task": "%b", "arguments": {"a": 1, "b": 1}}' % f.name.encode(),
        ]  # fmt: skip
        ids = jobs.add_many("tasks", payloads, max_fails=5)
        assert work(jobs, task).tally.buried == len(payloads)
        assert {jobs.show(id).state for id in ids} == {"failed"}
        assert b"no task 'unknown'" in (jobs.show(ids[4]).last_error or b"")

    def test_a_result_that_cannot_be_kept_is_not_tried_again(self, jobs: Jobs, task: TaskBook) -> None:
        @task(name="kind", max_fails=5)
        def wrong_kind() -> int:
            return "x"  # type: ignore[return-value]

        @task(name="object", max_fails=5)
        def no_json() -> Any:
            return object()

        @task(name="size", max_fails=5)
        def too_large() -> str:
            return "x" * (1 << 20)

        handles = [wrong_kind.put(), no_json.put(), too_large.put()]
        assert work(jobs, task).tally.buried == 3
        for handle in handles:
            with pytest.raises(TaskFailed):
                handle.result()


class TestStopping:
    def test_it_waits_for_what_runs(self, jobs: Jobs, task: TaskBook) -> None:
        begun, may_end = threading.Event(), threading.Event()

        @task()
        def slow() -> int:
            begun.set()
            assert may_end.wait(LONG)
            return 1

        handles = slow.put_many([()] * 2)
        worker = Worker(jobs, task, concurrency=1)
        running = threading.Thread(target=worker.run)
        running.start()
        assert begun.wait(LONG)
        worker.stop()
        may_end.set()
        running.join(LONG)
        assert handles[0].result() == 1
        view = jobs.show(handles[1].id)
        assert (view.state, view.attempts) == ("ready", 0)
        assert (worker.tally.done, worker.tally.released) == (1, 0)

    def test_after_its_grace_it_gives_back(self, jobs: Jobs, task: TaskBook) -> None:
        begun, may_end = threading.Event(), threading.Event()

        @task(max_fails=1)
        def stuck() -> None:
            begun.set()
            may_end.wait(LONG)

        handle = stuck.put()
        others = set(threading.enumerate())  # those of servers of other tests have such names, too
        worker = Worker(jobs, task, grace_s=LONG)
        running = threading.Thread(target=worker.run)
        running.start()
        assert begun.wait(LONG)
        crew = [each for each in set(threading.enumerate()) - others if each.name.startswith("lamina-worker")]
        assert crew
        worker.stop()
        worker.stop()  # the second time: at once
        running.join(LONG)
        assert not running.is_alive()
        view = jobs.show(handle.id)
        assert (view.state, view.attempts, view.fails) == ("ready", 0, 0)
        assert worker.tally.released == 1
        may_end.set()
        for thread in crew:
            thread.join(LONG)
            assert not thread.is_alive()
        assert jobs.show(handle.id).state == "ready", "what ended too late was not told"

    def test_a_lease_is_extended_while_a_call_runs(self, jobs: Jobs, task: TaskBook) -> None:
        begun, may_end = threading.Event(), threading.Event()

        @task(ttr=0.2)
        def slow() -> None:
            begun.set()
            assert may_end.wait(LONG)

        handle = slow.put()
        worker = Worker(jobs, task)
        running = threading.Thread(target=lambda: worker.run(most=1))
        running.start()
        assert begun.wait(LONG)
        first = jobs.show(handle.id).lease_until_ns or 0
        until(lambda: (jobs.show(handle.id).lease_until_ns or 0) > first + 200_000_000)
        may_end.set()
        running.join(LONG)
        assert jobs.show(handle.id).attempts == 1

    def test_what_somebody_else_ended_is_left(self, jobs: Jobs, task: TaskBook) -> None:
        @task()
        def f(id: str) -> None:
            for each in jobs.list("tasks", "leased"):
                jobs.complete(each.id, b"1")

        f.put("x")
        assert work(jobs, task).tally.not_ours == 1

    def test_the_number_of_threads(self, jobs: Jobs, task: TaskBook) -> None:
        @task()
        def f() -> None: ...

        for size in (0, 1001):
            with pytest.raises(LaminaError):
                Worker(jobs, task, concurrency=size)
