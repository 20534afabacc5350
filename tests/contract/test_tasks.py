"""Tasks, in every way: put, made by a worker, and told."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from contract.blocking import Blocking, LoopThread
from lamina.client.worker import Worker
from lamina.errors import BadJob, DuplicateJob, TaskFailed, TaskUnfinished


@pytest.fixture
def thread(thing: Any) -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thing.close()  # while its loop runs
    thread.stop()


def test_a_call_comes_back(thing: Any, way: str, name: str, thread: LoopThread) -> None:
    @thing.task(queue=name, unique=True, wait=0.01)
    def divide(a: int, b: int = 2) -> float:
        return a / b

    task = Blocking(divide.aio, thread) if way.endswith("-aio") else divide
    right, wrong = task.put(5), task.put(1, b=0)
    later, many = task.at(3600, 7), task.put_many([(6,), (8, 4)])
    with pytest.raises(TaskUnfinished):
        task.run(9)
    with pytest.raises(DuplicateJob):
        task.put(5)
    with pytest.raises(BadJob):
        task.put("x")
    tally = Worker(thing.jobs, thing.tasks, concurrency=3).run(until_empty=True)
    assert (tally.done, tally.failed) == (4, 1)
    assert (right.result(), [each.result() for each in many]) == (2.5, [3.0, 2.0])
    with pytest.raises(TaskFailed, match="ZeroDivisionError: division by zero"):
        wrong.result(wait=1)
    with pytest.raises(TaskUnfinished):
        later.result()
    assert task.handle(right.id).result() == 2.5
