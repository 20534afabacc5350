"""What a second look at the HTTP door found where it touches data and threads."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from http_lab import HttpLab
from integration.workq_server import raw_id
from lamina import runs
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.engines.topics.topics import Topics
from lamina.errors import DiskFull, LogClosed
from lamina.pipeline.recording import Recording
from lamina.server import houses, measures
from lamina.server.inside import Inside
from lamina.server.life import Life
from lamina.server.measures.families import Metric
from lamina.server.measures.totals import Busiest, Totals
from lamina.server.refusals import Refusals
from lamina.server.security.gate import Gate
from lamina.server.turns import Turns

LONGEST_S = 20.0


# -- records of runs ---------------------------------------------------------------------------------------------------


def test_a_path_that_is_no_text_does_not_stop_a_job_of_the_pipeline(tmp_path: Path) -> None:
    data = os.path.join(tmp_path, os.fsdecode(b"caf\xe9"))
    os.makedirs(os.path.join(data, "jobs"))
    given = SimpleNamespace(as_dict=lambda: {"path": data, "many": 1 << 80})
    with Recording(data, "clean", arguments={"data": data, "conf": {os.fsdecode(b"\xff"): "1"}}) as run:
        assert run.done(given) is given
    found = runs.read(data, runs.ids(data)[0], time.time_ns())
    assert found.state == runs.DONE
    assert found.arguments["data"].endswith("caf\\udce9")


def test_what_keeps_a_record_from_being_written_does_not_stop_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    with Recording(str(tmp_path), "clean") as run:
        monkeypatch.setattr(run, "_run", msgspec.structs.replace(run.run, version="\udce9"))
    assert len(runs.ids(str(tmp_path))) == 1


def test_a_run_of_another_user_is_not_lost_for_a_server_that_may_not_see_its_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jobs").mkdir()
    data = str(tmp_path)
    with Recording(data, "clean"):
        id = runs.ids(data)[0]
        monkeypatch.setattr(runs, "_started", lambda pid: 0)  # as with ProtectProc=invisible
        assert runs.read(data, id, time.time_ns()).state == runs.LOST
        monkeypatch.setattr(runs, "_sees_others", lambda: False)
        assert runs.read(data, id, time.time_ns()).state == runs.RUNNING
        assert runs.read(data, id, time.time_ns() + 3600 * 10**9).state == runs.LOST


# -- the line of busy clients ------------------------------------------------------------------------------------------


class Client:
    """One that may break."""

    def __init__(self, name: str, told: list[str], *, breaks: bool = False) -> None:
        self.name, self.told, self.breaks = name, told, breaks
        self.is_in_line = False

    def work(self) -> None:
        if self.breaks:
            raise MemoryError
        self.told.append(self.name)

    def hang_up(self) -> None:
        self.told.append(f"{self.name} is sent away")


def test_a_client_that_breaks_does_not_keep_those_behind_it_waiting() -> None:
    async def run() -> list[str]:
        told: list[str] = []
        turns = Turns(asyncio.get_running_loop())
        for client in (Client("a", told), Client("b", told, breaks=True), Client("c", told)):
            turns.wait(client)
        for _ in range(5):
            await asyncio.sleep(0)
        return told

    assert asyncio.run(run()) == ["a", "b is sent away", "c"]


# -- the end of a server -----------------------------------------------------------------------------------------------


def test_a_disk_that_refuses_at_the_stop_keeps_leases_and_the_engine_is_closed_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(job: bytes) -> int:
        raise DiskFull("the disk is full")

    def give_back(engine: JobEngine) -> None:
        original(cast(JobEngine, SimpleNamespace(lock=engine.lock, state=engine.state, release=refuse)))

    original = houses._return_leases
    monkeypatch.setattr(houses, "_return_leases", give_back)
    settings: dict[str, Any] = {"jobs.return_leases": "on"}
    with HttpLab(tmp_path, **settings) as lab:
        engine = lab.inside.jobs
        assert engine is not None
        engine.settle(engine.add(raw_id(1), "q", 60_000, 600_000, b"one"))
        engine.lease(["q"])
    assert "stay leased: the disk is full" in caplog.text
    with HttpLab(tmp_path) as lab:  # nobody holds the folder
        assert lab.get_json("/jobs/queues/q")[0] == 200


def test_the_upkeep_of_jobs_stops_when_a_cleaning_that_somebody_asked_for_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = JobEngine.open(str(tmp_path))
    upkeep = Upkeep(engine)
    begun, may_end = threading.Event(), threading.Event()
    cycle = upkeep.cleaner.cycle

    def slow(*args: Any, **words: Any) -> Any:
        begun.set()
        assert may_end.wait(LONGEST_S)
        return cycle(*args, **words)

    monkeypatch.setattr(upkeep.cleaner, "cycle", slow)
    cleaning = threading.Thread(target=upkeep.clean)
    cleaning.start()
    assert begun.wait(LONGEST_S)
    stopping = threading.Thread(target=upkeep.stop)
    stopping.start()
    stopping.join(0.2)
    assert stopping.is_alive()
    may_end.set()
    stopping.join(LONGEST_S)
    cleaning.join(LONGEST_S)
    assert not stopping.is_alive()
    engine.close()


def test_counters_are_not_shown_once_nobody_keeps_them() -> None:
    life = Life()
    inside = Inside(life, Gate())
    life.ready()
    measured = measures.of(inside)
    refusals = Refusals()
    refusals.note("not_ready")
    measured.count_http(refusals)
    assert any(each.metric.kind == "counter" for each in measured.families())
    life.stopping("SIGTERM")
    assert not any(each.metric.kind == "counter" for each in measured.families())


# -- topics that are made by the first message -------------------------------------------------------------------------


def test_an_unused_topic_stays_if_somebody_writes_to_it_just_before_it_is_deleted(tmp_path: Path) -> None:
    topics = Topics.open(str(tmp_path))
    topic = topics.get_or_make(b"fresh")
    let_go = topics._let_go

    def late(name: bytes) -> None:
        topic.settle(topic.add([b"f", b"v"])[1])  # by another thread, which is told that it is safe
        let_go(name)

    topics._let_go = late  # type: ignore[method-assign]
    topics.delete_unused(b"fresh")
    topics._let_go = let_go  # type: ignore[method-assign]
    found = topics.get(b"fresh")
    assert found is not None and found.state.length == 1
    topics.delete_unused(b"fresh")
    assert topics.get(b"fresh") is found
    topics.close()


def test_an_unused_topic_goes(tmp_path: Path) -> None:
    topics = Topics.open(str(tmp_path))
    topics.get_or_make(b"fresh")
    topics.delete_unused(b"fresh")
    topics.delete_unused(b"never")
    assert topics.count() == 0
    assert topics.get(b"fresh") is None
    topics.close()


def test_two_who_publish_to_a_new_topic_do_not_delete_what_the_other_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: Topics, name: bytes) -> bool:
        raise AssertionError(f"{name!r} is deleted with all that is in it")

    with HttpLab(tmp_path) as lab:
        monkeypatch.setattr(Topics, "delete", never)
        assert lab.post_json("/topics/publish", {"name": "fresh", "body": "x", "id": "0-0"})[0] == 400
        assert lab.get_json("/topics/one", name="fresh")[0] == 404
        assert lab.post_json("/topics/publish", {"name": "fresh", "body": "x"})[0] == 200
        assert lab.post_json("/topics/publish", {"name": "fresh", "body": "x", "id": "0-0"})[0] == 400
        assert lab.redis("XLEN", "fresh") == 1


def test_topics_that_were_closed_open_none_any_more(tmp_path: Path) -> None:
    topics = Topics.open(str(tmp_path))
    topic = topics.get_or_make(b"one")
    topic.settle(topic.add([b"f", b"v"])[1])
    topics.close()
    with pytest.raises(LogClosed):
        topics.get(b"one")
    with pytest.raises(LogClosed):
        topics.get_or_make(b"two")


# -- counters ----------------------------------------------------------------------------------------------------------


def test_the_busiest_name_of_the_last_run_goes_on_though_many_others_are_used_before_it() -> None:
    metric = Metric("added_total", "counter", "", ("topic",))
    totals = Totals()
    totals.continue_from({f'added_total{{topic="old{number}"}}': 1.0 for number in range(20)})
    totals.continue_from({'added_total{topic="busy"}': 1000.0})
    busiest = Busiest(totals, (metric, metric), most=10)
    busiest.follow({f"new{number}": (2.0, 0.0) for number in range(10)})
    assert len(totals.by_key) <= 21
    busiest.follow({**{f"new{number}": (2.0, 0.0) for number in range(10)}, "busy": (5.0, 0.0)})
    assert busiest.values(0)["busy"] == 1005.0


# -- the store ---------------------------------------------------------------------------------------------------------


def test_cleaning_the_store_keeps_the_history_that_the_setting_asks_for(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        for value in ("old", "new"):
            assert lab.post_json("/store/put", {"storage": 1, "key": "k", "value": value})[0] == 200
            assert lab.post_json("/store/compact", {"wait": True})[0] == 200
        store = lab.inside.find_store()
        assert store is not None
        plan = lab.post_json("/store/clean", {"dry_run": True})[1]
        assert lab.post_json("/store/clean")[1]["count"] == plan["count"]
        assert store.as_of(epoch=1).get(1, b"k") == b"old"
        assert lab.post_json("/store/clean", {"keep_epoch": store.last_epoch})[1]["count"] > 0
