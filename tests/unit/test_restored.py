"""What a server says it restored, and when it knows that it is of no use any more."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from integration.workq_server import raw_id
from lamina.clock import ManualClock
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.store.api import Store
from lamina.engines.topics.topics import Topics
from lamina.errors import LaminaError
from lamina.log.files.faulty import Fault
from lamina.log.options import LogOptions
from lamina.log.reserve import Reserve
from lamina.log.sync import ALWAYS
from lamina.server import restored
from lamina.server.life import Life
from lamina.testing import FaultyFiles, MemoryFiles


class Lab:
    """One disk in memory for all engines."""

    def __init__(self) -> None:
        self.disk, self.clock = MemoryFiles(), ManualClock()
        self.files = FaultyFiles(self.disk)
        self.life = Life(self.clock)

    def jobs(self) -> JobEngine:
        options = LogOptions(sync=ALWAYS)
        return JobEngine.open("jobs", files=self.files, clock=self.clock, options=options, threaded=False)

    def report(self, name: str) -> list[str]:
        return [line for line in self.life.report if line.startswith(f"{name}: ")]


@pytest.fixture
def lab() -> Lab:
    return Lab()


def test_jobs_are_told_with_what_was_cut(lab: Lab) -> None:
    engine = lab.jobs()
    for number in range(3):
        engine.add(raw_id(number), "mail", 1000, 10**9, b"")
    engine.all_written()
    lab.disk = MemoryFiles(lab.disk.contents())  # killed
    lab.files = FaultyFiles(lab.disk)
    file = lab.disk.open("jobs/000000001.log", write=True)
    file.append([b"\x17half of a record"])
    file.close()
    with lab.life.restoring("jobs") as told:
        engine = lab.jobs()
        restored.tell_jobs(engine, told)
    engine.close()
    first, second = lab.report("jobs")
    assert first.startswith("jobs: 3 jobs in 1 queue (") and " from 1 file" in first
    assert second.startswith("jobs: left out 17 bytes of 000000001.log: a torn tail (")
    assert "kept as 000000001.log.torn-" in second


def test_queues_topics_and_store_are_told(lab: Lab) -> None:
    opened = open_engine("queues", files=lab.files, clock=lab.clock, threaded=False)
    opened.close()
    lab.disk.create("queues/smp-server-store-9.dump.saving").close()
    with lab.life.restoring("queues") as told:
        queues = open_engine("queues", files=lab.files, clock=lab.clock, threaded=False, progress=told)
        restored.tell_queues(queues, told)
    queues.close()
    with lab.life.restoring("topics") as told:
        topics = Topics.open("topics", files=lab.files, clock=lab.clock, threaded=False)
        restored.tell_topics(topics, told)
    topics.close()
    with lab.life.restoring("store") as told:
        store = Store.open("store", files=lab.files, clock=lab.clock, progress=told)
        restored.tell_store(store, told)
    store.close()
    assert lab.report("queues")[0].startswith("queues: 0 queues, 0 messages")
    assert "queues: left out smp-server-store-9.dump.saving: in-progress dump" in lab.report("queues")
    assert lab.report("topics")[0].startswith("topics: 0 topics, each opened at its first use")
    assert lab.report("store")[0].startswith("store: 0 entries read, epoch ")


def test_a_log_that_failed_needs_a_new_start(lab: Lab) -> None:
    engine = lab.jobs()
    restored.watch_log(lab.life, "jobs", lambda: engine.log)  # type: ignore[arg-type, return-value]
    lab.life.ready()
    assert lab.life.needs_restart == ""
    lab.files.faults.append(Fault("sync"))
    position = engine.add(raw_id(1), "mail", 1000, 10**9, b"")
    with pytest.raises(LaminaError):
        engine.settle(position)
    assert lab.life.needs_restart.startswith("jobs: ")
    assert lab.life.problems.keys() == {"jobs"}
    with suppress(LaminaError):
        engine.close()


def test_a_log_that_was_closed_in_order_is_no_problem(lab: Lab) -> None:
    engine = lab.jobs()
    restored.watch_log(lab.life, "jobs", lambda: engine.log)  # type: ignore[arg-type, return-value]
    engine.close()
    assert lab.life.problems == {}


def test_a_full_disk_is_a_problem_until_there_is_room(lab: Lab) -> None:
    reserve = Reserve(lab.files, "reserve", lab.clock, 1000)
    restored.watch_room(lab.life, "jobs", lambda: reserve)
    lab.life.ready()
    assert lab.life.problems == {}
    lab.files.faults.append(Fault("create", error=errno.ENOSPC, times=1_000))
    reserve.give()
    lab.clock.advance(1)
    assert "the disk is full" in lab.life.problems["jobs disk"]
    assert lab.life.needs_restart == "", "it may end by itself"
    lab.files.faults.clear()
    lab.clock.advance(1)
    assert lab.life.problems == {}, "whoever looks finds out that there is room again"


def test_a_write_that_the_disk_refuses_is_a_problem_until_one_gets_through(lab: Lab) -> None:
    engine = lab.jobs()
    restored.watch_log(lab.life, "jobs", lambda: engine.log)  # type: ignore[arg-type, return-value]
    lab.life.ready()
    lab.files.faults.append(Fault("append", times=1_000))
    for number in range(2):
        with pytest.raises(LaminaError):
            engine.settle(engine.add(raw_id(number), "mail", 1000, 10**9, b""))
        assert "Input/output error" in lab.life.needs_restart and not lab.life.is_ready
    lab.files.faults.clear()
    engine.settle(engine.add(raw_id(7), "mail", 1000, 10**9, b""))
    assert lab.life.needs_restart == "" and lab.life.is_ready
    engine.close()


def test_a_topic_that_refuses_writes_is_a_problem_and_so_are_its_groups(lab: Lab) -> None:
    options = LogOptions(sync=ALWAYS)
    topics = Topics.open("topics", files=lab.files, clock=lab.clock, options=options, threaded=False)
    restored.watch_topics(lab.life, topics)
    topic = topics.get_or_make(b"orders")
    topic.settle(topic.add([b"f", b"v"])[1])
    groups = topic.groups
    lab.life.ready()
    for log, write in (
        ("/orders/", lambda: topic.settle(topic.add([b"f", b"v"])[1])),
        ("/orders/groups/", lambda: groups.settle(groups.create(b"g", None))),
    ):
        lab.files.faults.append(Fault("append", times=1_000, only=log))
        with pytest.raises(LaminaError):
            write()
        assert lab.life.needs_restart.startswith("topics: orders: "), log
        lab.files.faults.clear()
        write()
        assert lab.life.is_ready, log
    topics.close()


@pytest.mark.parametrize("store", ["memory", "journal"])
def test_queues_that_refuse_writes_are_a_problem(lab: Lab, store: str) -> None:
    options = QueueOptions(store=store)
    engine = open_engine("queues", files=lab.files, clock=lab.clock, threaded=False, options=options)
    restored.watch_log(lab.life, "queues", lambda: engine.keeper if store == "journal" else engine.log)
    lab.life.ready()
    queue = engine.create(None, None)[0]
    engine.keeper.settle(engine.send(queue, b"one")[-1])
    lab.files.faults.append(Fault("append", times=1_000))
    with pytest.raises(LaminaError):
        engine.keeper.settle(engine.send(queue, b"two")[-1])
    assert "Input/output error" in lab.life.needs_restart
    lab.files.faults.clear()
    engine.keeper.settle(engine.send(queue, b"three")[-1])
    assert lab.life.is_ready
    engine.close()


def test_a_store_that_refuses_writes_is_a_problem(lab: Lab) -> None:
    store = Store.open("store", files=lab.files, clock=lab.clock)
    restored.watch_log(lab.life, "store", lambda: store.engine)
    lab.life.ready()
    store.put(1, b"tea", b"41")
    lab.files.faults.append(Fault("append", times=1_000))
    with pytest.raises(LaminaError):
        store.put(1, b"tea", b"42")
    assert "Input/output error" in lab.life.needs_restart
    lab.files.faults.clear()
    store.put(1, b"tea", b"43")
    assert lab.life.is_ready
    store.close()


def test_a_log_of_groups_that_failed_needs_a_new_start(lab: Lab) -> None:
    options = LogOptions(sync=ALWAYS)
    topics = Topics.open("topics", files=lab.files, clock=lab.clock, options=options, threaded=False)
    restored.watch_topics(lab.life, topics)
    topic = topics.get_or_make(b"orders")
    lab.life.ready()
    lab.files.faults.append(Fault("sync", times=1_000))
    position = topic.groups.create(b"g", None)
    with pytest.raises(LaminaError):
        topic.groups.settle(position)
    assert lab.life.needs_restart.startswith("topics: orders: ")
    with suppress(LaminaError):
        topics.close()


def test_a_disk_without_room_is_a_problem_also_for_what_keeps_none(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored.watch_disk(lab.life, str(tmp_path))
    lab.life.ready()
    assert lab.life.problems == {}
    room = os.statvfs(tmp_path)
    full = os.statvfs_result((*room[:4], 1, *room[5:]))
    monkeypatch.setattr(os, "statvfs", lambda folder: full)
    assert "the disk is full" in lab.life.problems["disk"] and lab.life.needs_restart == ""
