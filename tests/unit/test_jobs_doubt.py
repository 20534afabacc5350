"""Answers that rest on what was refused, and ends that come at the same moment: found by review, each mended."""

from __future__ import annotations

import asyncio
import threading

import pytest

from lamina.engines.jobs.api import Jobs
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import AT_READY
from lamina.engines.jobs.upkeep import Upkeep
from lamina.errors import DiskFull
from lamina.log import ALWAYS, LogOptions, kernel
from lamina.log.refused import Refused
from lamina.server.workq.door import Connection, WorkqDoor
from lamina.testing import FaultyFiles, MemoryFiles
from unit.test_jobs_refused import FULL, HOUR, READ_ONLY, Lab, Line, add, connected, in_loop, nth
from waiting import until


def named(word: bytes, number: int, rest: bytes = b"") -> bytes:
    return word + b" " + add(number).split(b" ")[1] + rest + b"\r\n"


@in_loop
async def test_a_refusal_that_rests_on_a_refused_record_is_the_disks() -> None:
    """Who takes "Duplicate job" for success would lose it."""
    lab = Lab()
    door = WorkqDoor(lab.engine)
    (first, first_line), (second, second_line) = connected(door), connected(door)
    await asyncio.sleep(0.005)
    lab.full_once()
    first.data_received(add(1))
    second.data_received(add(1) + named(b"inspect job", 1))
    await until(lambda: first_line.sent.count(b"\n") == 1 and second_line.sent.count(b"\n") == 2)
    assert (first_line.sent, second_line.sent) == (FULL, FULL * 2)
    second.data_received(add(1) + add(1))
    await until(lambda: second_line.sent.count(b"\n") == 4)
    assert second_line.sent == FULL * 2 + b"+OK\r\n-CLIENT-ERROR Duplicate job\r\n"


@in_loop
async def test_records_that_could_not_be_handed_over_are_not_answered_as_if_they_were(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lab = Lab()
    door = WorkqDoor(lab.engine)
    (first, first_line), (second, second_line) = connected(door), connected(door)
    await asyncio.sleep(0.005)
    encode = kernel.encode_into

    def fail_once(*arguments: object) -> object:
        monkeypatch.setattr(kernel, "encode_into", encode)
        raise MemoryError

    monkeypatch.setattr(kernel, "encode_into", fail_once)
    for number, connection in enumerate((first, second, first), 1):
        connection.data_received(add(number))
        await until(lambda number=number: (first_line.sent + second_line.sent).count(b"\n") == number)  # type: ignore[misc]
    answered = [first_line.sent.split(b"\r\n")[0], second_line.sent[:-2], first_line.sent.split(b"\r\n")[1]]
    kept = lab.after_restart().state.jobs
    assert [answer == b"+OK" for answer in answered] == [nth(number) in kept for number in (1, 2, 3)]
    assert answered[0] + b"\r\n" == READ_ONLY and answered[2] == b"+OK"


@in_loop
async def test_records_that_another_thread_kept_from_the_log_are_answered_when_it_lets_go() -> None:
    """Cleaning and checkpoints have the engine for moments. The connection never got another answer."""
    files, may_sync, has, let_go = FaultyFiles(MemoryFiles()), threading.Event(), threading.Event(), threading.Event()
    engine = JobEngine.open("jobs", files=files, options=LogOptions(sync=ALWAYS))
    door = WorkqDoor(engine)
    (first, first_line), (second, second_line) = connected(door), connected(door)

    def before(operation: str, path: str) -> None:
        if operation == "sync":
            may_sync.wait(30)

    def have_the_engine() -> None:
        with engine.lock:
            has.set()
            let_go.wait(30)

    files.before = before
    first.data_received(add(1))
    await asyncio.sleep(0.05)  # its turn waits for the sync
    second.data_received(add(2))
    other = threading.Thread(target=have_the_engine)
    other.start()
    has.wait(30)
    await asyncio.sleep(0.05)  # the turn cannot tell the log, and waits for no more than the first does
    may_sync.set()
    await until(lambda: first_line.sent == b"+OK\r\n")
    await asyncio.sleep(0.05)
    assert second_line.sent == b"", "it may be lost yet"
    let_go.set()
    await until(lambda: second_line.sent == b"+OK\r\n")
    other.join()
    engine.close()


@in_loop
async def test_a_run_never_takes_the_result_of_another_job_with_its_id() -> None:
    lab = Lab()
    door = WorkqDoor(lab.engine)
    (runner, runner_line), (client, line) = connected(door), connected(door)
    runner.data_received(add(1).replace(b"add", b"run").replace(b"3600000", b"300"))
    await asyncio.sleep(0.01)
    client.data_received(named(b"delete", 1) + add(1) + named(b"complete", 1, b" 2\r\nok"))
    await asyncio.sleep(0.01)
    assert line.sent == b"+OK\r\n" * 3
    client.data_received(named(b"result", 1, b" 0"))
    await asyncio.sleep(0.5)
    assert line.sent.endswith(b" 1 2\r\nok\r\n") and runner_line.sent == b"-TIMEOUT\r\n"
    lab.engine.log.rotate()  # type: ignore[union-attr]
    client.data_received(add(2))
    await asyncio.sleep(0.01)
    Upkeep(lab.engine).clean(everything=True)
    assert nth(1) in lab.after_restart().state.jobs


def test_an_embedded_run_never_takes_the_result_of_another_job_with_its_id() -> None:
    lab = Lab()
    jobs = Jobs(lab.engine)
    outcomes: list[object] = []
    thread = threading.Thread(target=lambda: outcomes.append(jobs.run("q", b"x", timeout=0.3)))
    thread.start()
    while not lab.engine.state.jobs:
        pass
    (id,) = lab.engine.state.jobs
    lab.engine.delete(id)
    lab.engine.settle(lab.engine.add(id, "q", 1000, HOUR, b"other"))
    lab.engine.settle(lab.engine.complete(id, b"not yours"))
    thread.join()
    assert outcomes == [None]
    assert id in lab.engine.state.jobs
    jobs.close()


@in_loop
async def test_a_job_handed_over_in_the_last_moment_is_told_before_the_door_closes() -> None:
    lab = Lab()
    door = WorkqDoor(lab.engine)
    (worker, worker_line), (client, line) = connected(door), connected(door)
    worker.data_received(b"lease q 10000\r\n")
    await asyncio.sleep(0.01)
    client.data_received(add(1))
    await door.close()
    assert line.sent == b"+OK\r\n" and worker_line.sent.startswith(b"+OK 1\r\n")


async def handed_over_by_another_thread(lab: Lab, commands: bytes) -> tuple[Connection, Line]:
    """A worker that waits, and a job that came for it while the loop was elsewhere."""
    worker, line = connected(WorkqDoor(lab.engine))
    await asyncio.sleep(0.005)
    worker.data_received(commands)
    await asyncio.sleep(0.005)
    other = threading.Thread(target=lambda: lab.engine.settle(lab.engine.add(nth(1), "q", 1000, HOUR, b"x")))
    other.start()
    other.join()
    return worker, line


@in_loop
async def test_a_worker_that_ends_its_side_as_a_job_comes_gets_one_answer_and_then_the_others() -> None:
    worker, line = await handed_over_by_another_thread(Lab(), b"lease q 10000\r\ninspect queue nobody\r\n")
    worker.eof_received()
    await asyncio.sleep(0.01)
    assert line.sent.startswith(b"+OK 1\r\n") and line.sent.endswith(b"\r\nx\r\n-NOT-FOUND\r\n")
    assert line.sent.count(b"\r\n") == 4 and line.is_closed


@in_loop
async def test_a_job_that_came_for_a_worker_who_had_just_left_goes_back() -> None:
    lab = Lab()
    worker, _ = await handed_over_by_another_thread(lab, b"lease q 10000\r\n")
    worker.connection_lost(None)
    await asyncio.sleep(0.01)
    assert lab.engine.state.jobs[nth(1)].at == AT_READY


def test_a_refused_lease_of_several_leaves_no_run_leased() -> None:
    lab = Lab()
    engine = lab.engine
    engine.settle(engine.add(nth(1), "q", 1000, HOUR, b"background"))
    lab.full_once()
    with pytest.raises(DiskFull):
        engine.settle(engine.add(nth(2), "q", 1000, HOUR, b"x"))
    job = engine.run(nth(5), "q", 60_000, b"foreground", priority=5)
    lab.files.heal()
    lab.full_once()
    with pytest.raises(DiskFull):
        engine.lease(["q"], 2)
    assert job.at == AT_READY
    assert [each.id for each in engine.lease(["q"], 2)[0]] == [nth(5), nth(1)]


def test_many_refusals_in_a_row_swallow_nothing_that_was_written() -> None:
    refused, error = Refused(), DiskFull("full")
    refused.add(10, 12, error, 5)
    for first in range(100, 20_000, 2):
        refused.add(first, first, error, 50)
    assert refused.find(50) is None
    assert refused.find(11) is error and refused.find(100) is error and refused.find(19_998) is error
