"""What a server says it restored, and when it knows that it is of no use any more."""

from __future__ import annotations

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
from lamina.log.files import Room
from lamina.log.files.faulty import Fault
from lamina.log.files.real import RealFiles
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS
from lamina.server import restored
from lamina.server.disks import Disks
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


def test_a_full_disk_is_one_problem_until_there_is_room(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = [Room(1 << 30, 1 << 30)]
    monkeypatch.setattr(RealFiles, "room", lambda self, folder: room[0])
    disks = Disks(lab.life, str(tmp_path / "data"), reserve_bytes=1000, low_water_bytes=1000)
    reserve = disks.of(str(tmp_path / "data" / "jobs"))
    assert disks.all() == [reserve] and reserve is disks.of(str(tmp_path / "data" / "topics"), ".reserve")
    lab.life.ready()
    assert lab.life.problems == {} and (tmp_path / "data" / "reserve").stat().st_size == 1000
    room[0] = Room(1 << 30, 999)
    reserve.look()  # as the threads do that look after the engines
    assert "the disk is full: 999 B" in lab.life.problems["disk"] and len(lab.life.problems) == 1
    assert lab.life.needs_restart == "", "it may end by itself"
    room[0] = Room(1 << 30, 2000)
    reserve.look()
    assert lab.life.problems == {}


def test_a_folder_on_another_disk_has_a_reserve_of_its_own(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.lstat

    def lstat(path: str) -> os.stat_result:
        found = real(path)
        return os.stat_result((*found[:2], found.st_dev + path.endswith("topics"), *found[3:10]))

    monkeypatch.setattr(os, "lstat", lstat)
    disks = Disks(lab.life, str(tmp_path), reserve_bytes=1000, low_water_bytes=1000)
    first, other = disks.of(str(tmp_path / "jobs")), disks.of(str(tmp_path / "topics"), ".reserve")
    assert disks.all() == [first, other] and disks.first is first
    assert (tmp_path / "reserve").exists() and (tmp_path / "topics" / ".reserve").exists()
    assert not (tmp_path / "jobs" / "reserve").exists()


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
