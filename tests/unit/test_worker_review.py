"""Nothing that is in a job, or a message, ends a worker or a reader: calls that are wrong, and functions that are."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest

import lamina
from lamina.client.worker import Worker
from lamina.client.worker_parts import Tally
from lamina.data import Data
from lamina.errors import BadBody, BadJob, BadOption
from lamina.tasks import TaskBook
from lamina.testing import MemoryFiles

LONG = 60.0


class Fussy(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        raise KeyError(self.number)


class Loose(msgspec.Struct):
    number: dict[str, Any]


class TestPoison:
    """Nothing that is in a job ends a thread of a worker."""

    @pytest.fixture
    def data(self) -> Iterator[Data]:
        with lamina.open("data", files=MemoryFiles()) as data:
            yield data

    @pytest.fixture
    def book(self, data: Data) -> TaskBook:
        book = TaskBook(lambda: data.jobs)

        class Mute(Exception):
            def __str__(self) -> str:
                raise RuntimeError("I say nothing")

        @book(name="fine")
        async def fine() -> int:
            return 1

        @book(name="leave")
        async def leave() -> None:
            raise SystemExit(3)

        @book(name="mute")
        def mute() -> None:
            raise Mute

        @book(name="round")
        def round_() -> list[Any]:
            made: list[Any] = []
            made.append(made)
            return made

        @book(name="fussy")
        def fussy(one: Fussy) -> None: ...

        @book(name="any")
        def any_(one: Any) -> None: ...

        return book

    @pytest.mark.parametrize(
        ("payload", "expected"),
        [
            (b'{"task":"leave","arguments":{}}', Tally(done=2, failed=1)),
            (b'{"task":"mute","arguments":{}}', Tally(done=2, failed=1)),
            (b'{"task":"round","arguments":{}}', Tally(done=2, buried=1)),
            (b'{"task":"fussy","arguments":{"one":{"number":1}}}', Tally(done=2, buried=1)),
            (b'{"task":"any","arguments":{"one":%b1%b}}' % (b"[" * 9999, b"]" * 9999), Tally(done=2, buried=1)),
            (b'{"task":"any","arguments":{"one":"\xff"}}', Tally(done=2, buried=1)),
            (b'{"task":"\xff","arguments":{}}', Tally(done=2, buried=1)),
        ],
    )
    def test_a_worker_goes_on(self, data: Data, book: TaskBook, payload: bytes, expected: Tally) -> None:
        data.jobs.add("tasks", payload)
        data.jobs.add_many("tasks", [b'{"task":"fine","arguments":{}}'] * 2)
        worker = Worker(data.jobs, book, concurrency=1, grace_s=0)
        self._run(worker, lambda: worker.run(until_empty=True))
        assert worker.tally == expected

    def test_a_worker_goes_on_when_nobody_hears_it(self, data: Data, book: TaskBook) -> None:
        def say(line: str) -> None:
            raise BrokenPipeError

        data.jobs.add_many("tasks", [b'{"task":"fine","arguments":{}}'] * 3)
        worker = Worker(data.jobs, book, concurrency=1, grace_s=0, say=say)
        self._run(worker, lambda: worker.run(until_empty=True))
        assert worker.tally == Tally(done=3)

    def test_a_worker_ends_though_something_on_its_loop_does_not(
        self, data: Data, book: TaskBook, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("lamina.client.worker_parts._LAST_S", 0.05)

        async def stay() -> None:
            while True:
                try:
                    await asyncio.sleep(LONG)
                except asyncio.CancelledError:
                    continue

        @book(name="begin")
        async def begin() -> None:
            stays.append(asyncio.create_task(stay()))
            await asyncio.sleep(0)

        stays: list[asyncio.Task[None]] = []
        data.jobs.add("tasks", b'{"task":"begin","arguments":{}}')
        worker = Worker(data.jobs, book, concurrency=1)
        self._run(worker, lambda: worker.run(until_empty=True))
        assert worker.tally == Tally(done=1)

    def test_a_job_that_comes_again_while_it_is_at_work_is_two_calls(self) -> None:
        """Its lease got lost, as the server was away. How each of them ended is told, and both leases are kept."""
        told: list[tuple[int, bytes]] = []
        both, kept = threading.Barrier(2), threading.Event()

        class Again:
            id, name, payload, ttr_s = "one", "tasks", b'{"task":"both","arguments":{}}', 0.1

            def __init__(self, attempt: int) -> None:
                self.attempt = attempt

            def complete(self, result: bytes = b"") -> None:
                told.append((self.attempt, result))

            fail = bury = complete

        class Jobs:
            def __init__(self) -> None:
                self.given = [Again(1), Again(2)]

            def lease_many(self, *names: str, most: int, wait: float = 0) -> list[Again]:
                return [self.given.pop(0)] if self.given else []

            def touch(self, id: str, ttr_s: float) -> None:
                if not self.given and len(told) == 1:
                    kept.set()  # of the second one, though the first is over

        jobs = Jobs()
        book = TaskBook(lambda: jobs)  # type: ignore[arg-type, return-value]
        turns = iter((True, False))

        @book(name="both")
        def both_() -> int:
            is_first = next(turns)
            both.wait(LONG)
            if not is_first:
                kept.wait(LONG / 6)
            return int(kept.is_set())

        worker = Worker(jobs, book, concurrency=2)
        self._run(worker, lambda: worker.run(until_empty=True))
        assert worker.tally == Tally(done=2)
        assert sorted(attempt for attempt, _ in told) == [1, 2]
        assert told[-1][1] == b"1", "the lease of the second was kept to its end"

    def _run(self, worker: Worker, work: Callable[[], object]) -> None:
        running = threading.Thread(target=work, daemon=True)
        running.start()
        running.join(LONG / 4)
        is_stuck = running.is_alive()
        worker.stop()
        worker.stop()
        assert not is_stuck, worker.tally

    @pytest.mark.parametrize("value", [float("nan"), [1.0, float("inf")], {"deep": (float("-inf"),)}])
    def test_a_number_that_json_would_drop_is_not_sent(self, book: TaskBook, value: object) -> None:
        with pytest.raises(BadJob, match="nan and inf"):
            book["any"].put(value)

    def test_an_option_that_is_none_is_refused_wherever_it_is_given(self, book: TaskBook) -> None:
        with pytest.raises(BadOption, match="a task has no option retries"):
            book["any"].with_options(retries=3)

    def test_an_argument_that_is_in_itself_is_not_sent(self, book: TaskBook) -> None:
        made: list[Any] = []
        made.append(made)
        with pytest.raises(BadJob, match="cannot be sent"):
            book["any"].put(made)

    def test_a_body_that_no_object_can_be_made_of_is_a_bad_body(self, data: Data) -> None:
        data.topic("fussy").publish({"number": b"1"})
        data.topic("loose").publish({"number": b'{"a":' * 9999 + b"1" + b"}" * 9999})
        (fussy,), (loose,) = data.topic("fussy", Fussy).read(), data.topic("loose", Loose).read()
        with pytest.raises(BadBody):
            _ = fussy.body
        with pytest.raises(BadBody):
            _ = loose.body
        made: dict[str, Any] = {}
        made["made"] = made
        with pytest.raises(BadBody):
            data.topic("loose", Loose).publish(Loose(made))
