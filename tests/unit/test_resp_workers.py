"""Commands that have to wait for the disk, or for a lock, are run by workers: others are answered meanwhile, and nobody
sees a part of what a worker does."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from integration.resp_wire import OK, QUEUED
from lamina.engines import loops
from lamina.log import ALWAYS, OS
from lamina.server.workers import Workers
from queue_doors import QueueDoors
from resp_lab import PATIENCE_S, PONG, Caller, Lab, in_loop, kinds
from waiting import until


@contextmanager
def held_at_the_disk(lab: Lab, wanted: str, path: str) -> Iterator[threading.Event]:
    """Whoever does that operation stands still for as long. Gives what is set when somebody does."""
    has_come, may_go = threading.Event(), threading.Event()

    def hold(operation: str, at: str) -> None:
        if operation == wanted and path in at and not may_go.is_set():
            has_come.set()
            assert may_go.wait(PATIENCE_S)

    lab.files.before, lab.holds_threads = hold, True
    try:
        yield has_come
    finally:
        may_go.set()
        lab.holds_threads = False


async def closed_and_opened(*names: str, entries: int = 3) -> Lab:
    """Topics that were written to, and that nobody has opened since."""
    before = Lab(OS)
    for name in names:
        topic = before.topic(name)
        for number in range(entries):
            topic.add([b"f", b"%d" % number])
    before.topics.close()
    lab = Lab(OS)
    lab.topics.close()
    lab.files.inner = before.disk
    before.disk.drop_locks()
    lab.disk = before.disk
    lab.topics = lab.house.topics = lab.opened(lab.files)
    lab.topics.taken = lab.door.workers.taken
    return lab


# -- one command -----------------------------------------------------------------------------------------------------


@in_loop
async def test_while_a_topic_is_opened_all_others_are_answered() -> None:
    lab = await closed_and_opened("slow", "quick")
    first, second = lab.caller(), lab.caller()
    await second.ask("XLEN quick")
    with held_at_the_disk(lab, "open", "/slow/") as has_come:
        first.send("XLEN slow", "PING")
        await until(has_come.is_set)
        assert kinds(await second.ask("PING", "XADD quick * f v", "XLEN quick")) == ".i."
        assert first.got() == []
    await lab.settle()
    assert first.got() == [3, PONG]


@in_loop
async def test_commands_for_a_topic_that_a_worker_has_come_in_the_order_of_asking() -> None:
    lab = await closed_and_opened("slow")
    callers = [lab.caller() for _ in range(4)]
    with held_at_the_disk(lab, "open", "/slow/") as has_come:
        callers[0].send("XLEN slow")
        await until(has_come.is_set)
        for caller in callers[1:]:
            caller.send("XADD slow * f v")
    await lab.settle()
    assert callers[0].got() == [3]
    added = [caller.got()[0] for caller in callers[1:]]
    assert kinds(added) == "iii" and added == sorted(added)


@in_loop
async def test_a_run_of_entries_for_a_topic_that_has_to_be_opened_is_added_whole() -> None:
    lab = await closed_and_opened("a")
    caller = lab.caller()
    answers = await caller.ask(*["XADD a * f v"] * 50, "XLEN a")
    assert kinds(answers) == "i" * 50 + "." and answers[-1] == 53
    assert len(set(answers)) == 51


@in_loop
async def test_who_hangs_up_while_a_worker_works_for_it_holds_up_nobody() -> None:
    lab = await closed_and_opened("slow")
    first, second = lab.caller(), lab.caller()
    with held_at_the_disk(lab, "open", "/slow/") as has_come:
        first.send("XLEN slow")
        await until(has_come.is_set)
        first.connection.connection_lost(None)
        second.send("XLEN slow")
    await lab.settle()
    assert second.got() == [3] and first.line.sent == b""


@in_loop
async def test_a_door_that_closes_lets_workers_finish() -> None:
    lab = await closed_and_opened("slow")
    caller = lab.caller()
    with held_at_the_disk(lab, "open", "/slow/") as has_come:
        caller.send("XLEN slow", "PING")
        await until(has_come.is_set)
        closing = asyncio.create_task(lab.door.close())
        await lab.settle()
        assert not closing.done()
    await lab.settle()
    await closing
    assert caller.got() == [3] and caller.line.is_closed


@in_loop
async def test_a_mistake_in_a_worker_is_told_and_the_next_command_is_answered(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lab = await closed_and_opened("a")
    monkeypatch.setattr(lab.topics, "_folder_of", lambda name: 1 / 0)
    answers = await lab.caller().ask("XLEN a", "PING")
    assert answers[0].startswith(b"ERR internal error") and answers[1] == PONG
    assert "ZeroDivisionError" in caplog.text


# -- who waits -------------------------------------------------------------------------------------------------------


@in_loop
async def test_an_entry_that_comes_while_a_worker_looks_for_one_wakes_who_asked() -> None:
    """It is looked for where there is none yet, and comes before the client is one of those who wait."""
    lab = await closed_and_opened("slow")
    reader, publisher = lab.caller(), lab.caller()
    with held_at_the_disk(lab, "open", "/slow/") as has_come:
        reader.send("XREAD BLOCK 0 STREAMS slow $")
        await until(has_come.is_set)
        publisher.send("XADD slow * f new")
    await lab.settle()
    ((_, ((_, fields),)),) = reader.got()[0]
    assert fields == [b"f", b"new"]


@in_loop
async def test_who_waits_for_old_entries_is_served_by_a_worker() -> None:
    lab = Lab(OS)
    reader, publisher = lab.caller(), lab.caller()
    lab.make("a")
    await publisher.ask("XGROUP CREATE a g $ MKSTREAM")
    reader.send("XREADGROUP GROUP g c BLOCK 0 STREAMS a >")
    await asyncio.sleep(0)
    topic = lab.topic("a")
    topic.lock.acquire()  # somebody else has the topic
    try:
        taken = threading.Thread(target=lambda: (topic.add([b"f", b"1"]), None))
        taken.start()
        lab.door._changed(b"a")
        for _ in range(20):
            await asyncio.sleep(0)
    finally:
        topic.lock.release()
    taken.join()
    lab.door._changed(b"a")
    await lab.settle()
    assert len(reader.got()) == 1


# -- transactions ----------------------------------------------------------------------------------------------------


@in_loop
async def test_nobody_sees_a_part_of_a_transaction_that_a_worker_runs() -> None:
    lab = await closed_and_opened("a", "slow", entries=1)
    caller, other = lab.caller(), lab.caller()
    await other.ask("XLEN a")
    with held_at_the_disk(lab, "open", "/slow/") as has_come:
        queued = await caller.ask("MULTI", "XADD a * f 1", "XADD slow * f 1", "XADD a * f 2")
        assert queued == [OK, QUEUED, QUEUED, QUEUED]
        caller.send("EXEC")
        await until(has_come.is_set)
        other.send("XLEN a", "XLEN slow")
        for _ in range(20):
            await asyncio.sleep(0)
        assert other.got() == []
    await lab.settle()
    assert kinds(caller.got()[0]) == "iii" and other.got() == [3, 2]


@in_loop
async def test_a_transaction_over_what_is_at_hand_needs_no_worker() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XADD a * f v", "XADD b * f v")
    done = lab.door.workers.done
    (*_, answer) = await caller.ask("MULTI", "XADD a * f 1", "XADD b * f 1", "XLEN a", "EXEC")
    assert kinds(answer) == "ii." and answer[2] == 2
    assert lab.door.workers.done == done


@in_loop
async def test_a_transaction_whose_topic_somebody_has_changes_nothing_before_it_is_free() -> None:
    lab = Lab(OS)
    caller = lab.caller()
    await caller.ask("XADD a * f v", "XADD b * f v")
    has_it, may_go = threading.Event(), threading.Event()

    def have_b() -> None:
        with lab.topic("b").lock:
            has_it.set()
            assert may_go.wait(PATIENCE_S)

    holder = threading.Thread(target=have_b)
    holder.start()
    await until(has_it.is_set)
    lab.holds_threads = True
    caller.send("MULTI", "XADD a * f 1", "XADD b * f 1", "EXEC")
    for _ in range(20):
        await asyncio.sleep(0.001)
    may_go.set()
    holder.join()
    lab.holds_threads = False
    await lab.settle()
    assert kinds(caller.got()[-1]) == "ii"
    assert (lab.topic("a").state.length, lab.topic("b").state.length) == (2, 2)


# -- queues in journals ----------------------------------------------------------------------------------------------


@in_loop
async def test_while_a_journal_is_synced_all_others_are_answered() -> None:
    lab = QueueDoors("journal", ALWAYS)
    sender, other = lab.caller(), lab.caller()
    _, sid = await lab.new_queue(sender)
    await sender.ask(f"Q.SEND {sid} first")
    with held_at_the_disk(lab, "sync", "/messages/") as has_come:
        sender.send(f"Q.SEND {sid} second", "PING")
        await until(has_come.is_set)
        assert await other.ask("PING") == [PONG]
        assert kinds(await other.ask("XADD a * f v")) == "i"
        other.send(f"Q.SEND {sid} third")
        assert sender.got() == []
    await until_answered(lab, sender, 2)
    assert [body for body in lab.bodies_after_a_kill(queue_of(lab)) if body] == [b"first", b"second", b"third"]


def queue_of(lab: QueueDoors) -> str:
    from lamina.engines.queues import ids

    (rid,) = lab.engine.state.queues
    return ids.wire(rid).decode()


async def until_answered(lab: Lab, caller: Caller, count: int) -> list[Any]:
    found: list[Any] = []
    async with asyncio.timeout(PATIENCE_S):
        while len(found) < count:
            await lab.settle()
            found += caller.got()
    await lab.settle()
    return found


# -- the threads themselves ------------------------------------------------------------------------------------------


@in_loop
async def test_jobs_with_a_key_in_common_follow_each_other_and_others_do_not_wait() -> None:
    workers = Workers(asyncio.get_running_loop())
    order: list[str] = []
    may_go = threading.Event()

    def work(name: str, *, waits: bool = False) -> None:
        if waits:
            assert may_go.wait(PATIENCE_S)
        order.append(name)

    told: list[object] = []
    workers.run([b"a"], lambda: work("a", waits=True), lambda result, problem: told.append(problem))
    workers.run([b"a", b"b"], lambda: work("ab"), lambda result, problem: told.append(problem))
    workers.run([b"b"], lambda: work("b"), lambda result, problem: told.append(problem))
    workers.run([b"c"], lambda: work("c"), lambda result, problem: told.append(problem))
    workers.run([], lambda: work("none"), lambda result, problem: told.append(problem))
    await until(lambda: workers.done == 2)
    assert set(order) == {"c", "none"} and set(workers.taken) == {b"a", b"b"}
    may_go.set()
    await workers.all_done()
    assert order[2:] == ["a", "ab", "b"]
    assert told == [None] * 5 and not workers.taken
    workers.close()


@in_loop
async def test_jobs_that_share_a_key_run_beside_each_other_and_not_beside_one_that_has_it_alone() -> None:
    workers = Workers(asyncio.get_running_loop())
    order: list[str] = []
    may_go = {name: threading.Event() for name in ("one", "other", "alone", "late")}

    def run(name: str, *, is_shared: bool) -> None:
        def work() -> None:
            loops.must_wait()
            order.append(f"{name} begins")
            assert may_go[name].wait(PATIENCE_S)
            order.append(f"{name} ends")

        workers.run([b"a"], work, lambda result, problem: None, is_shared=is_shared)

    run("one", is_shared=True)
    run("other", is_shared=True)
    await until(lambda: len(order) == 2)
    assert not workers.taken, "the loop may go on with it"
    run("alone", is_shared=False)
    run("late", is_shared=True)
    assert workers.taken == {b"a": 1}
    may_go["other"].set()
    await until(lambda: workers.done == 1)
    assert "alone begins" not in order
    may_go["one"].set()
    await until(lambda: "alone begins" in order)
    assert "late begins" not in order
    may_go["alone"].set()
    await until(lambda: "late begins" in order)
    assert not workers.taken
    may_go["late"].set()
    await workers.all_done()
    assert not workers._lines
    workers.close()


@in_loop
async def test_what_waited_for_others_alone_is_done_by_the_loop() -> None:
    """Else a crowd that comes for a topic while it is opened would go through threads for as long as it stays."""
    workers = Workers(asyncio.get_running_loop())
    may_go = threading.Event()
    done: list[int] = []
    seen: list[bool] = []

    def open_it() -> None:
        loops.must_wait()
        assert may_go.wait(PATIENCE_S)

    def add() -> None:
        assert b"a" not in workers.taken, "what has the key may touch it"
        seen.append(loops.is_at_once())
        done.append(threading.get_ident())

    workers.run([b"a"], open_it, lambda result, problem: None)
    for _ in range(3):
        workers.run([b"a"], add, lambda result, problem: None)
    workers.run([b"a"], open_it, lambda result, problem: None)
    workers.run([b"a"], add, lambda result, problem: None)
    assert workers.taken == {b"a": 6}
    may_go.set()
    await workers.all_done()
    assert done == [threading.get_ident()] * 4 and seen == [True] * 4
    assert not workers.taken and not workers._lines and not loops.is_at_once()
    workers.close()
