"""Promises of the job ``asof``: what it makes is what the engines reported then, and whole or not there."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import lamina
from history_lab import OPTIONS, START, History, Seen, open_data, seen
from lamina.cli.pipeline_asof import asof as command
from lamina.clock import ManualClock
from lamina.engines.queues.message import NO_TTL
from lamina.engines.topics import compaction, ids
from lamina.errors import BadOption, Corruption, DiskFull, LogLocked, StorageError, TooOld
from lamina.log import Reader
from lamina.log.files.real import RealFile, RealFiles
from lamina.log.folders import folder_name
from lamina.pipeline import places, reach, snapshot
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.jobs.asof import AsOfReport, as_of
from lamina.pipeline.jobs.audit import audit
from lamina.pipeline.restoring import asking, target

Moment = tuple[int, Seen]


def opened(path: Path, at: int) -> Seen:
    with open_data(path, ManualClock(at)) as data:
        return seen(data)


def restored(data: Path, at: int, name: str = "then", **options: Any) -> Path:
    to = data.with_name(name)
    shutil.rmtree(to, ignore_errors=True)
    as_of(str(data), at, restore=str(to), **options)
    return to


def check(report: AsOfReport, found: Seen, then: Seen, alive: set[str]) -> None:
    """It is as it was, but for what the report says. ``alive``: jobs that are there to this day."""
    told = {note.partition(":")[0] for note in report.notes}
    if "jobs" in told:  # of jobs that are over by now, records may be gone
        found["jobs"] = [job for job in found["jobs"] if job.id in alive]
        then["jobs"] = [job for job in then["jobs"] if job.id in alive]
    for name in [name for name in then if name.startswith("topic ")]:
        if f"topics/{folder_name(name.removeprefix('topic ').encode())}" in told:
            kept, were = found.pop(name)[1], then.pop(name)[1]
            assert kept == [entry for entry in were if entry in kept]
    if "queues" in told:  # a dump that was written later has left out what had expired by then
        for rid, (*_, ttl, were) in then["queues"].items():
            is_kept = found["queues"][rid][-1].__contains__
            assert all(is_kept(one) for one in were if (ttl if one[-1] == NO_TTL else one[-1]) == 0)
            were[:] = filter(is_kept, were)
    assert found == then


def leftovers(path: Path) -> list[str]:
    return [each.name for each in path.parent.iterdir() if target.RESTORING in each.name]


@pytest.fixture
def history(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    made = History(tmp_path / "data", 3, history_s=getattr(request, "param", 3600))
    yield made
    made.close()


# -- as it was -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
def test_a_restored_folder_opens_as_it_was(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "data", seed)
    history.takes_away = False  # files in which nothing is alive go by themselves
    moments: list[Moment] = []
    for _ in range(4):
        history.steps(40)
        moments.append(history.moment())
    alive = {job.id for job in moments[-1][1]["jobs"]}
    for at, then in moments:  # beside the engines, which have all files open
        to = tmp_path / str(at)
        report = as_of(str(history.path), at, restore=str(to))
        assert audit(str(to)).is_sound
        check(report, opened(to, at), then, alive)  # jobs are cleaned by themselves
        assert not leftovers(to)
    history.close()


@pytest.mark.parametrize("seed", range(4))
def test_after_upkeep_it_is_as_it_was_or_says_how_far_it_reaches(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path / "data", 100 + seed)
    moments: list[Moment] = []
    for _ in range(8):
        history.steps(25, upkeep=True)
        moments.append(history.moment())
    _, now = moments[-1]
    alive = {job.id for job in now["jobs"]}
    reached = 0
    for at, then in moments:
        to = tmp_path / "then"
        try:
            report = as_of(str(history.path), at, restore=str(to))
        except TooOld as error:
            assert int(str(error.facts["oldest_time_ns"])) > at and not to.exists() and not leftovers(to)
            continue
        reached += 1
        found = opened(to, at)
        check(report, found, then, alive)
        shutil.rmtree(to)
    assert reached  # the last moment is always within reach
    history.close()


def test_a_restored_folder_goes_on(history: History) -> None:
    history.steps(60)
    at, then = history.moment()
    history.steps(30)
    to = restored(history.path, at)
    with open_data(to, ManualClock(at + 10**9)) as data:
        data.store.put(1, b"key0", b"from now on")
        data.topic("orders").publish({"n": "new"})
        data.log("plain", OPTIONS).append(b"new", until=lamina.Level.SYNCED)
    found = opened(to, at + 2 * 10**9)
    assert found["store"][1, b"key0"][0] == b"from now on"
    assert [payload for _, payload in found["plain"]] == [*(payload for _, payload in then["plain"]), b"new"]
    assert audit(str(to)).is_sound


def test_one_log_is_restored_by_its_path(history: History) -> None:
    history.steps(80)
    at, then = history.moment()
    to = history.path.with_name("one")
    report = as_of(str(history.path / "jobs"), at, restore=str(to))
    assert report.logs == ["jobs"] and os.listdir(to) == ["jobs"]
    with open_data(to, ManualClock(at)) as data:
        assert seen(data)["jobs"] == then["jobs"]


def test_no_record_is_later_than_the_time_and_none_is_missing(history: History) -> None:
    history.steps(60)
    at, _ = history.moment()
    history.steps(60)
    to = restored(history.path, at)
    for log in ("jobs", "logs/plain"):
        all_of = [(one.time_ns, one.payload) for one in Reader(str(history.path / log)).read()]
        kept = [(one.time_ns, one.payload) for one in Reader(str(to / log)).read()]
        assert kept == [one for one in all_of if one[0] <= at] != all_of


def test_queues_reach_back_to_their_dump(history: History) -> None:
    while len(history.queues) < 3:
        history.clock.advance(1)
        history._queue()
    at, then = history.moment()
    history.clock.advance(1)
    history.data.queues.dump()
    later, _ = history.moment()
    within = restored(history.path, START + 10**9)  # an hour is kept
    shutil.rmtree(within)
    history.data.history.keep_s = 0
    history.data.queues.dump()
    with pytest.raises(TooOld, match="queues") as told:
        restored(history.path, START + 10**9)
    earliest = int(str(told.value.facts["oldest_time_ns"]))
    assert START + 10**9 < earliest <= at
    to = restored(history.path, earliest)
    assert opened(to, later)["queues"] == then["queues"]


def test_entries_that_retention_took_since_are_told_and_before_the_oldest_file_it_is_refused(history: History) -> None:
    topic = history.data.topic("orders")
    for number in range(200):
        history.clock.advance(1)
        topic.publish({"n": str(number)})
    at, then = history.moment()
    assert history.data.topics.upkeep.shed(b"orders", lamina_retention("length:20")).files
    history.clock.advance(1)
    later, now = history.moment()
    to = history.path.with_name("then")
    report = as_of(str(history.path), at, restore=str(to))
    assert [note for note in report.notes if note.startswith("topics/orders")]
    found = opened(to, at)["topic orders"][1]
    assert found == then["topic orders"][1][-len(found) :] and 20 <= len(found) < 200
    assert as_of(str(history.path), later, restore=str(history.path.with_name("now"))).notes == []
    assert opened(history.path.with_name("now"), later) == now
    with pytest.raises(TooOld, match="orders") as told:
        restored(history.path, START + 10**10)
    assert START + 10**10 < int(str(told.value.facts["oldest_time_ns"])) <= at


@pytest.mark.parametrize("history", [0], indirect=True)
def test_entries_that_a_topic_is_without_since_are_told_and_nothing_else_of_it_is_wrong(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "LEAST", 0)
    topic = history.data.topic("orders")
    for number in range(300):
        history.clock.advance(1)
        topic.publish({"n": str(number)})
    at, then = history.moment()
    engine = history.data.topics.engine.get(b"orders")
    assert engine is not None
    published = [id for id, _ in engine.read(ids.FIRST)[0]]
    alive = [published[5], *published[200:]]
    engine.settle(engine.delete([id for id in published if id not in alive])[1])
    history.clock.advance(1)
    (place,) = [place for place in places.find(RealFiles(), str(history.path)) if place.kind == places.TOPIC]
    formerly = snapshot.pin(RealFiles(), place.folder, [place]).files
    upkeep = history.data.topics.upkeep
    assert sum(upkeep.shed(b"orders").rewritten for _ in range(3))
    history.clock.advance(1)
    later, now = history.moment()
    report = as_of(str(history.path), at, restore=str(history.path.with_name("then")))
    assert [note for note in report.notes if note.startswith("topics/orders") and "deleted by" in note]
    found = opened(history.path.with_name("then"), at)["topic orders"][1]
    assert [entry for entry in then["topic orders"][1] if entry in found] == found and len(found) == len(alive)
    assert as_of(str(history.path), later, restore=str(history.path.with_name("now"))).notes == []
    assert opened(history.path.with_name("now"), later) == now
    with pytest.raises(TooOld, match="orders"):
        restored(history.path, START + 3 * 10**9)
    with pytest.raises(StorageError, match="written anew"):
        Frozen(RealFiles(), place, formerly)
    pinned = snapshot.pin(RealFiles(), place.folder, [place]).files
    reach.check_compacted(RealFiles(), place, pinned, later)
    with pytest.raises(TooOld, match="orders"):
        reach.check_compacted(RealFiles(), place, pinned, at)
    assert audit(str(history.path)).is_sound


def lamina_retention(text: str) -> Any:
    from lamina.engines.topics.retention import parse

    return parse(text)


def test_a_store_reaches_back_to_its_oldest_catalog(history: History) -> None:
    for _ in range(10):
        history.clock.advance(1)
        history._store()
    at, _ = history.moment()
    for _ in range(2):
        history.clock.advance(1)
        history._store()
        history.data.store.rotate()
        history.data.store.compact()
        history.data.store.clean_up()
    later, now = history.moment()
    with pytest.raises(TooOld, match="store do not reach back") as told:
        restored(history.path / "store", at)
    assert at < int(str(told.value.facts["oldest_time_ns"])) <= later
    to = restored(history.path, int(str(told.value.facts["oldest_time_ns"])))
    assert opened(to, later)["store"] == now["store"]


def test_what_is_known_of_storages_and_versions_is_restored(history: History) -> None:
    with history.data.store.session() as session:
        session.add_storage(7)
        session.put(7, b"key", b"value")
        session.put(8, b"key", b"value")
        session.clear_storage(8)
        session.remove_storage(9)
    at, _ = history.moment()
    infos = history.data.store.storages()
    before = history.data.store.entry(7, b"key")
    with open_data(restored(history.path, at), ManualClock(at)) as data:
        assert data.store.storages() == infos
        assert data.store.entry(7, b"key") == before
        assert data.store.get(8, b"key") is None
        assert data.store.put(7, b"key", b"later") and data.store.get(7, b"key") == b"later"


# -- a table ---------------------------------------------------------------------------------------------------------


def test_a_state_becomes_a_table(history: History, tmp_path: Path) -> None:
    history.steps(80)
    at, then = history.moment()
    history.steps(40)
    report = as_of(str(history.path), at, view="job_state", to=str(tmp_path / "jobs.parquet"))
    rows = pq.read_table(tmp_path / "jobs.parquet").to_pylist()
    assert sorted(row["id"] for row in rows) == [job.id for job in then["jobs"]]
    assert report.rows == len(rows) and report.view == "job_state"
    report = as_of(str(history.path), at, view="store_state", to=str(tmp_path / "store"))
    rows = pq.read_table(tmp_path / "store").to_pylist()
    assert {(row["storage"], row["key"]): row["value"] for row in rows} == {
        place: value for place, (value, _) in then["store"].items()
    }
    assert report.files == len(os.listdir(tmp_path / "store"))
    assert not leftovers(tmp_path / "store")


def test_a_state_of_nothing_is_a_table_too(history: History, tmp_path: Path) -> None:
    history._plain()
    history._job()
    history.clock.advance(1000)
    at, _ = history.moment()
    as_of(str(history.path), at, view="topic_state", to=str(tmp_path / "none.parquet"))
    as_of(str(history.path), at, view="topic_state", to=str(tmp_path / "none"))
    assert pq.read_table(tmp_path / "none.parquet").num_rows == pq.read_table(tmp_path / "none").num_rows == 0


# -- what is refused -------------------------------------------------------------------------------------------------


def test_what_cannot_be_is_refused_and_nothing_is_made(history: History, tmp_path: Path) -> None:
    history.steps(20)
    at, _ = history.moment()
    data, to = str(history.path), tmp_path / "then"
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("mine")
    refused: list[tuple[str, str | int, dict[str, str]]] = [
        ("yet to come", time.time_ns() + 10**12, {"restore": str(to)}),
        ("nothing was in", START - 10**9, {"restore": str(to)}),
        ("before all times", -5, {"restore": str(to)}),
        ("not empty", at, {"restore": str(full)}),
        ("is in", at, {"restore": f"{data}/then"}),
        ("is in", at, {"restore": data}),
        ("time: ", "last tuesday", {"restore": str(to)}),
        ("say what", at, {}),
        ("say what", at, {"view": "job_state"}),
        ("say what", at, {"view": "job_state", "to": str(to), "restore": str(to)}),
        ("no state", at, {"view": "jobs", "to": str(to)}),
        ("no view", at, {"view": "job_stat", "to": str(to)}),
        ("not empty", at, {"view": "job_state", "to": str(full)}),
        ("shared storage", at, {"restore": "hdfs://x/y"}),
    ]
    for words, moment, options in refused:
        if words == "shared storage":
            continue  # reached only where its library is
        with pytest.raises(BadOption, match=words):
            as_of(data, moment, **options)  # type: ignore[arg-type]
        assert not to.exists() and not leftovers(to) and (full / "file").read_text() == "mine"
    with pytest.raises(BadOption, match="no folder of lamina"):
        as_of(str(full), at, restore=str(to))


def test_the_earliest_time_is_told(history: History, tmp_path: Path) -> None:
    history.clock.advance(1)
    history._plain()
    with pytest.raises(BadOption) as told:
        as_of(str(history.path), START, restore=str(tmp_path / "then"))
    assert "2023-11-14T22:13:21" in told.value.hint


def test_a_damaged_log_is_not_restored_in_part(history: History, tmp_path: Path) -> None:
    history.steps(60)
    at, _ = history.moment()
    history.close()
    path = max((history.path / "store").glob("pwal_0000*"), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption):
        as_of(str(history.path), at, restore=str(tmp_path / "then"))
    assert not (tmp_path / "then").exists() and not leftovers(tmp_path / "then")
    path.write_bytes(bytes(data[:60]) + bytes([data[60] ^ 1]) + bytes(data[61:]))
    history.data = open_data(history.path, history.clock)


def test_journals_keep_the_present_only(tmp_path: Path) -> None:
    clock = ManualClock(START)
    with lamina.open(tmp_path / "data", clock=clock, queues=lamina.QueueOptions(store="journal")) as data:
        made = data.queues.create()
        data.queue(made.sid).send(b"body")
    clock.advance(5)
    with pytest.raises(BadOption, match="journals"):
        as_of(str(tmp_path / "data"), clock.now_ns(), restore=str(tmp_path / "then"))


def test_a_time_that_is_only_just_over_waits_until_it_is_written() -> None:
    waited: list[float] = []
    now = time.time_ns()
    assert asking.moment(now, waited.append) == now
    assert len(waited) == 1 and 0 < waited[0] <= 1
    asking.moment(now - 10**10, waited.append)
    assert len(waited) == 1


# -- cut short -------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_nothing(history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history.steps(60)
    at, then = history.moment()
    real, left = RealFile.append, [0]

    def append(self: RealFile, parts: Any) -> int:
        if target.RESTORING in self.path:
            left[0] -= 1
            if left[0] < 0:
                raise OSError(28, "no room", self.path)
        return real(self, parts)

    monkeypatch.setattr(RealFile, "append", append)
    for left[0] in (0, 1, 4):
        with pytest.raises(DiskFull):
            as_of(str(history.path), at, restore=str(tmp_path / "then"))
        assert not (tmp_path / "then").exists() and not leftovers(tmp_path / "then")
    monkeypatch.undo()
    assert opened(restored(history.path, at), at) == then


def test_two_runs_for_one_target_do_not_meet(history: History, tmp_path: Path) -> None:
    history.steps(10)
    at, _ = history.moment()
    to = str(tmp_path / "then")
    with target.making(RealFiles(), to), pytest.raises(LogLocked, match="another run"):
        as_of(str(history.path), at, restore=to)
    (tmp_path / f"then{target.RESTORING}").mkdir()
    (tmp_path / f"then{target.RESTORING}" / "mine").write_text("mine")
    with pytest.raises(BadOption, match="in the way"):
        as_of(str(history.path), at, restore=to)


_KILLED = """
import os, sys
from lamina.log.folders import folder_name
from lamina.log.files.real import RealFile, RealFiles
from lamina.pipeline.jobs.asof import AsOfReport, as_of
left = int(sys.argv[4])
def dying(real):
    def act(*given):
        global left
        left -= 1
        if left < 0:
            os.kill(os.getpid(), 9)
        return real(*given)
    return act
for kind, names in ((RealFile, ("append", "sync")), (RealFiles, ("create", "rename_folder", "sync_folder", "rename"))):
    for name in names:
        setattr(kind, name, dying(getattr(kind, name)))
as_of(sys.argv[1], int(sys.argv[2]), restore=sys.argv[3])
print(left)
"""


def test_a_run_that_is_killed_leaves_nothing_under_the_name_and_the_next_one_succeeds(
    history: History, tmp_path: Path
) -> None:
    history.steps(50)
    at, then = history.moment()
    to = tmp_path / "then"

    def run(steps: int) -> subprocess.CompletedProcess[str]:
        arguments = [sys.executable, "-c", _KILLED, str(history.path), str(at), str(to), str(steps)]
        return subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)

    whole = run(10**6)
    assert whole.returncode == 0, whole.stderr
    steps = 10**6 - int(whole.stdout)
    expected = opened(to, at)
    assert expected == then
    shutil.rmtree(to)
    for left in [*random.Random(1).sample(range(steps - 4), 4), steps - 2, steps - 1]:
        assert run(left).returncode == -signal.SIGKILL
        if to.exists():  # behind the commit point
            assert left >= steps - 4 and opened(to, at) == then
            shutil.rmtree(to)
        as_of(str(history.path), at, restore=str(to))
        assert opened(to, at) == then and not leftovers(to)
        shutil.rmtree(to)


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_makes_what_it_is_asked_for(history: History, tmp_path: Path) -> None:
    history.steps(30)
    at, then = history.moment()
    runner = CliRunner()
    base = ["--data", str(history.path), "--time", str(at), "--json"]
    made = runner.invoke(command, [*base, "--restore", str(tmp_path / "then")], standalone_mode=False)
    assert made.return_value == 0, made.exception
    report = json.loads(made.output)
    assert report["time_ns"] == at and "jobs" in report["logs"]
    assert opened(tmp_path / "then", at) == then
    made = runner.invoke(
        command, [*base, "--view", "job_state", "--to", str(tmp_path / "jobs.parquet")], standalone_mode=False
    )
    assert made.return_value == 0 and json.loads(made.output)["rows"] == len(then["jobs"])
    shown = runner.invoke(
        command, [*base[:-1], "--view", "job_state", "--to", str(tmp_path / "j")], standalone_mode=False
    )
    assert shown.return_value == 0
