"""The stream reader, driven as Spark drives it, without Spark."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxBytes, ReadMaxRows

import lamina
from lamina.errors import BadOption, Corruption
from lamina.log import OS, Level, Log, LogOptions, consumers, rewrite
from lamina.log.files.real import RealFiles
from lamina.log.naming import NUMBERED
from lamina.pipeline import places, storage
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.streaming import stream_offsets, stream_position, track, watching
from lamina.pipeline.streaming.stream import LaminaStreamReader
from lamina.pipeline.streaming.watching import Watching
from lamina.pipeline.tables import Table
from lamina.pipeline.views.records import RecordsView

ALL = ReadAllAvailable()
Offset = dict[str, Any]


def _sent(value: Any) -> Any:
    """As it arrives in another process."""
    return pickle.loads(pickle.dumps(value))  # noqa: S301


class Query:
    """What Spark does with a reader: each batch is planned, read and then committed."""

    columns: tuple[str, ...] = ("log", "time_ns", "payload")

    def __init__(self, path: Path, **options: str) -> None:
        self.options = {"path": str(path), "view": "records", **options}
        self.offset: Offset | None = None
        self.restart()

    def restart(self) -> None:
        """The driver died: a new reader goes on from the last offset."""
        table = Table(ReadOptions.parse(self.options))
        self.reader = LaminaStreamReader(table.options, table.view, table.choose(self.columns))
        if self.offset is None:
            self.offset = self.reader.initialOffset()

    def read(self, start: Offset, end: Offset) -> list[tuple[str, int, bytes]]:
        start, end = json.loads(json.dumps(start)), json.loads(json.dumps(end))
        rows = []
        for partition in _sent(list(self.reader.partitions(start, end))):
            there = _sent(self.reader)
            for batch in there.read(partition):
                rows += [tuple(row.values()) for row in batch.to_pylist()]
        return rows

    def plan(self, limit: ReadLimit | None = None) -> Offset:
        assert self.offset is not None
        return self.reader.latestOffset(self.offset, self.reader.getDefaultReadLimit() if limit is None else limit)

    def batch(self, limit: ReadLimit | None = None) -> list[bytes]:
        """Payloads of the next batch, which is empty if there is nothing new."""
        end = self.plan(limit)
        assert self.offset is not None
        if end == self.offset:
            return []
        rows = self.read(self.offset, end)
        self.reader.commit(end)
        self.offset = end
        return [row[-1] for row in rows]

    def rest(self) -> list[bytes]:
        found: list[bytes] = []
        while some := self.batch():
            found += some
        return found


@pytest.fixture(autouse=True)
def looks_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """New logs are found at once, and records too."""
    monkeypatch.setattr(watching, "_POLL_SHARE", 0)
    monkeypatch.setattr(stream_position, "_SHARE", 0)
    monkeypatch.setattr(watching, "_LOOK_S", 0.0)
    monkeypatch.setattr(watching, "_SHARE", 0)


class Lab:
    """Logs of a data folder, which a server writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.logs: dict[str, Log] = {}

    def open(self, name: str, segment_bytes: int = 1000) -> Log:
        path = str(self.folder / "logs" / name)
        log = Log.open(path, options=LogOptions(segment_bytes=segment_bytes, sync=OS), threaded=False)
        self.logs[name] = log
        return log

    def write(self, name: str, first: int, count: int, size: int = 0) -> list[bytes]:
        log = self.logs.get(name) or self.open(name)
        payloads = [b"%s-%d" % (name.encode(), number) + bytes(size) for number in range(first, first + count)]
        for payload in payloads:
            log.append(payload, until=Level.SYNCED)
        return payloads

    def names(self, name: str) -> list[str]:
        return [segment.name for segment in self.logs[name].reader.segments()]

    def remove_oldest(self, name: str, count: int = 1) -> None:
        rewrite.remove(RealFiles(), str(self.folder / "logs" / name), self.names(name)[:count])

    def remove_from_the_middle(self, name: str, place: int) -> tuple[int, int]:
        """A sealed file, of which cleaning keeps nothing. Returns the times of the last record before it and in it."""
        reader = self.logs[name].reader
        file = reader.segments()[place]
        times = [record.time_ns for record in reader.read() if record.file == file.name]
        before = max(record.time_ns for record in reader.read() if record.time_ns < times[0])
        report = rewrite.drop_records(RealFiles(), reader.folder, file, NUMBERED, lambda _, __: False)
        assert report.is_removed
        return before, times[-1]

    def count(self, name: str, place: int) -> int:
        reader = self.logs[name].reader
        return sum(record.file == reader.segments()[place].name for record in reader.read())

    def close(self) -> None:
        for log in self.logs.values():
            log.close()


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "data")
    yield made
    made.close()


# -- what is given ---------------------------------------------------------------------------------------------------


def test_each_record_once_across_rotations_and_restarts(lab: Lab) -> None:
    written = lab.write("a", 0, 5)
    query = Query(lab.folder)
    assert query.batch() == written
    assert query.batch() == []
    given = list(written)
    rng = random.Random(7)
    for number in range(30):
        written += lab.write("a", 5 + 40 * number, 40, 20)
        if rng.random() < 0.3:
            query.restart()
        given += query.batch()
    assert given == written
    assert len(lab.names("a")) > 10


def test_a_batch_that_is_read_again_has_the_same_rows(lab: Lab) -> None:
    lab.write("a", 0, 50, 20)
    query = Query(lab.folder)
    start, end = query.offset, query.plan()
    assert start is not None
    rows = query.read(start, end)
    assert len(rows) == 50
    lab.write("a", 50, 100, 20)
    query.restart()
    assert query.read(start, end) == rows


def test_a_record_that_is_half_written_is_not_given_before_it_is_whole(lab: Lab) -> None:
    lab.write("a", 0, 3)
    whole = (lab.folder / "logs/a/000000001.log").read_bytes()
    lab.write("a", 3, 1)
    now = (lab.folder / "logs/a/000000001.log").read_bytes()
    other = lab.folder.parent / "other/logs/b"
    other.mkdir(parents=True)
    path = other / "000000001.log"
    path.write_bytes(whole)
    query = Query(other.parent.parent)
    assert len(query.batch()) == 3
    for size in range(len(whole) + 1, len(now)):
        path.write_bytes(now[:size])
        assert query.batch() == []
    path.write_bytes(now)
    assert query.batch() == [b"a-3"]


def test_a_file_that_was_cut_back_and_written_anew_gives_what_is_new(lab: Lab) -> None:
    lab.write("a", 0, 3)
    path = lab.folder / "logs/a/000000001.log"
    before = path.read_bytes()
    lab.write("a", 3, 2)
    query = Query(lab.folder)
    assert len(query.batch()) == 5
    lab.close()
    path.write_bytes(before)  # a power cut took what was not synced
    path.with_name(f"{path.name}.index").unlink()  # nor was it closed
    assert query.batch() == []
    lab.open("a")
    assert lab.write("a", 10, 2) == query.batch()


def test_damage_is_told_with_its_place(lab: Lab) -> None:
    lab.write("a", 0, 3, 100)
    query = Query(lab.folder)
    assert len(query.batch()) == 3
    size = (lab.folder / "logs/a/000000001.log").stat().st_size
    lab.write("a", 3, 3, 100)
    path = lab.folder / "logs/a/000000001.log"
    data = bytearray(path.read_bytes())
    data[size + 60] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption, match=r"000000001\.log"):
        query.restart()
        query.batch()


def test_damage_is_passed_over_if_that_was_asked_for(lab: Lab) -> None:
    lab.write("a", 0, 2, 50)
    path = lab.folder / "logs/a/000000001.log"
    size = path.stat().st_size
    lab.write("a", 2, 3, 50)
    data = bytearray(path.read_bytes())
    data[size + 60] ^= 1
    path.write_bytes(data)
    query = Query(lab.folder, mode="permissive")
    payloads = [payload for payload in query.batch() if payload is not None]
    assert [payload.rstrip(b"\0") for payload in payloads] == [b"a-0", b"a-1", b"a-3", b"a-4"]


def test_cleaning_rewrites_a_file_between_planning_and_reading(lab: Lab) -> None:
    written = lab.write("a", 0, 60, 20)
    query = Query(lab.folder)
    first = query.batch(ReadMaxRows(10))
    start, end = query.offset, query.plan()
    assert start is not None
    partitions = list(query.reader.partitions(start, end))
    for name in lab.logs["a"].reader.segments()[:-1]:
        rewrite.drop_records(
            RealFiles(), str(lab.folder / "logs/a"), name, NUMBERED, lambda _, payload: not payload.startswith(b"a-3")
        )
    rows = [row["payload"] for each in partitions for batch in query.reader.read(each) for row in batch.to_pylist()]
    sealed = len(written) - len(rows) - len(first)
    assert 0 < sealed <= 11
    assert [*first, *rows] == [each for each in written if each in first or each in rows]


# -- logs that come and go -------------------------------------------------------------------------------------------


def test_a_new_log_is_read_from_its_beginning_and_a_deleted_one_leaves(lab: Lab) -> None:
    lab.write("a", 0, 3)
    query = Query(lab.folder, startingOffsets="latest")
    assert query.batch() == []
    written = lab.write("b", 0, 60, 20)
    assert query.batch() == written
    assert query.offset is not None
    assert set(query.offset["logs"]) == {"logs/a", "logs/b"}
    lab.logs.pop("a").close()
    shutil.rmtree(lab.folder / "logs/a")
    lab.write("b", 60, 1)
    assert query.batch() == [b"b-60"]
    assert set(query.offset["logs"]) == {"logs/b"}
    query.restart()
    assert query.batch() == []
    written = lab.write("a", 0, 2)
    assert query.batch() == written


def test_a_log_that_cannot_be_listed_keeps_its_place(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write("a", 0, 3)
    lab.write("b", 0, 3)
    query = Query(lab.folder)
    assert len(query.batch()) == 6
    query.restart()
    found = [place for place in places.find(RealFiles(), str(lab.folder)) if place.name == "b"]
    monkeypatch.setattr(places, "find", lambda *_: found)
    lab.write("b", 3, 1)
    assert query.batch() == [b"b-3"]
    monkeypatch.undo()
    query.restart()
    assert query.batch() == []


def test_topics_are_chosen_by_name_and_their_view_is_streamed(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as data:
        data.topic("orders").publish({"n": "1"})
        data.topic("noise").publish({"n": "2"})
        table = Table(ReadOptions.parse({"path": str(tmp_path), "view": "topic", "topic": "ord*"}))
        reader = LaminaStreamReader(table.options, table.view, table.choose(["topic", "fields"]))
        end = reader.latestOffset(reader.initialOffset(), ALL)
        assert list(end["logs"]) == ["topics/orders"]
        rows = [
            row
            for each in reader.partitions(reader.initialOffset(), end)
            for batch in reader.read(each)
            for row in batch.to_pylist()
        ]
    assert rows == [{"topic": "orders", "fields": [("n", b"1")]}]


def test_the_store_is_streamed_by_channel_through_rotations(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as data:
        store = data.store
        query = None
        given: list[bytes] = []
        for number in range(4):
            for each in range(10):
                store.put(1, b"%d-%d" % (number, each), b"x")
            query = query or Query(tmp_path)
            given += query.batch()
            store.rotate()
        assert query is not None
        given += query.rest()
        keys = [payload for payload in given if payload[:1] == b"\x03"]
        assert len(keys) == len(set(keys)) == 40
        assert query.offset is not None
        assert all(key.startswith("store/pwal_") for key in query.offset["logs"])


# -- where it begins -------------------------------------------------------------------------------------------------


def test_starting_at_a_time_at_the_end_and_at_an_offset(lab: Lab) -> None:
    lab.write("a", 0, 5)
    first = [record.time_ns for record in lab.logs["a"].reader.read()]
    lab.write("b", 0, 1)
    assert Query(lab.folder, startingTimestamp=str(first[3])).batch() == [b"a-3", b"a-4", b"b-0"]
    assert Query(lab.folder, startingOffsets="latest").batch() == []
    assert Query(lab.folder, startingOffsets=json.dumps({"logs/a": first[3]})).batch() == [b"a-4", b"b-0"]
    assert Query(lab.folder, startingOffsets=json.dumps({"logs/a": -1, "logs/b": -2})).batch() == [b"b-0"]
    for empty in ("{}", '{"version": 1, "logs": {}}', " earliest"):
        assert len(Query(lab.folder, startingOffsets=empty).batch()) == 6
    whole = json.dumps(stream_offsets.show({"logs/a": first[1], "logs/b": first[1]}))
    assert Query(lab.folder, startingOffsets=whole).batch() == [b"a-2", b"a-3", b"a-4", b"b-0"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": "newest"}, "no offset"),
        ({"startingOffsets": "[1]"}, "no offset"),
        ({"startingOffsets": '{"logs/a": "soon"}'}, "no time of logs/a"),
        ({"startingOffsets": '{"logs/c": 5}'}, "no log 'logs/c'"),
        ({"startingOffsets": '{"version": 1, "logs": {"logs/a": "x"}}'}, "no time of logs/a"),
        ({"startingOffsets": '{"version": 1, "logs": {"logs/a": 1.5}}'}, "no time of logs/a"),
        ({"startingOffsets": '{"version": 1, "logs": [1]}'}, "of version 1"),
        ({"startingOffsets": '{"version": 3, "logs": {}}'}, "of version 3"),
        ({"endingTimestamp": "-1m"}, "no end"),
        ({"consumer": ""}, "name of a consumer"),
        ({"consumer": "x", "consumerExpiry": "0"}, "consumerExpiry"),
    ],
)
def test_what_cannot_be_streamed_is_refused(lab: Lab, options: dict[str, str], said: str) -> None:
    lab.write("a", 0, 1)
    with pytest.raises(lamina.errors.LaminaError, match=said):
        table = Table(ReadOptions.parse({"path": str(lab.folder), "view": "records", **options}))
        LaminaStreamReader(table.options, table.view, table.choose(None)).initialOffset()


def test_a_state_is_refused(lab: Lab) -> None:
    lab.write("a", 0, 1)
    table = Table(ReadOptions.parse({"path": str(lab.folder), "view": "records"}))

    class State:
        name, is_state, kinds = "job_state", True, ("jobs",)

    with pytest.raises(BadOption, match="job_state is a state"):
        LaminaStreamReader(table.options, State(), [])  # type: ignore[arg-type]


def test_an_offset_of_a_later_version_is_refused(lab: Lab) -> None:
    lab.write("a", 0, 1)
    query = Query(lab.folder)
    query.offset = {"version": 2, "logs": {}}
    with pytest.raises(BadOption, match="version 2"):
        query.plan()


# -- how much --------------------------------------------------------------------------------------------------------


def test_limits_are_kept_and_divided_fairly(lab: Lab) -> None:
    written = {name: lab.write(name, 0, count, 10) for name, count in (("a", 100), ("b", 100), ("c", 5))}
    query = Query(lab.folder, maxRecordsPerTrigger="30")
    first = query.batch()
    assert len(first) == 30
    counts = {name: sum(each.startswith(name.encode()) for each in first) for name in written}
    assert counts["c"] == 5
    assert min(counts["a"], counts["b"]) >= 12
    sizes = [len(first)]
    rest = []
    while some := query.batch():
        sizes.append(len(some))
        rest += some
        query.restart()
    assert sizes == [30, 30, 30, 30, 30, 30, 25]
    given = [*first, *rest]
    for name, its in written.items():
        assert [each for each in given if each.startswith(name.encode())] == its


def test_more_logs_than_records_to_give(lab: Lab) -> None:
    names = [f"log{number}" for number in range(7)]
    written = {each for name in names for each in lab.write(name, 0, 3)}
    query = Query(lab.folder, maxRecordsPerTrigger="2")
    given = [query.batch() for _ in range(11)]
    assert [len(each) for each in given] == [2] * 10 + [1]
    assert {each for some in given for each in some} == written
    first = [each for some in given[:4] for each in some]
    assert {each[:4] for each in first} == {name.encode() for name in names}


def test_bytes_are_limited_too_and_a_large_record_comes_all_the_same(lab: Lab) -> None:
    lab.write("a", 0, 3, 500)
    query = Query(lab.folder, maxBytesPerTrigger="100B")
    assert isinstance(query.reader.getDefaultReadLimit(), ReadMaxBytes)
    assert [len(query.batch()) for _ in range(4)] == [1, 1, 1, 0]
    both = Query(lab.folder, maxBytesPerTrigger="1100B", maxRecordsPerTrigger="100")
    assert [len(both.batch()) for _ in range(3)] == [2, 1, 0]
    assert len(Query(lab.folder, maxRecordsPerTrigger="1").batch(ALL)) == 3


def test_available_now_stops_at_what_was_there(lab: Lab) -> None:
    lab.write("a", 0, 10)
    query = Query(lab.folder, maxRecordsPerTrigger="4")
    query.reader.prepareForTriggerAvailableNow()
    lab.write("a", 10, 10)
    lab.write("b", 0, 10)
    assert [len(query.batch()) for _ in range(4)] == [4, 4, 2, 0]
    query.restart()
    assert len(query.rest()) == 20


def test_a_large_batch_is_divided_among_tasks(lab: Lab) -> None:
    lab.open("a", 1 << 30)
    lab.logs["a"].append_many([bytes(1000)] * 6000, until=Level.SYNCED)
    query = Query(lab.folder, minPartitions="4")
    assert query.offset is not None
    partitions = query.reader.partitions(query.offset, query.plan())
    assert 4 <= len(partitions) <= 8
    assert len(query.batch()) == 6000
    lab.write("a", 0, 1)
    (only,) = query.reader.partitions(query.offset, query.plan())
    assert sum(piece.bytes for _, _, its in only.value for piece in its) < 1 << 20
    assert len(pickle.dumps(only)) < 3000


# -- consumer --------------------------------------------------------------------------------------------------------


def test_the_position_is_left_beside_the_log(lab: Lab) -> None:
    lab.write("a", 0, 3)
    folder = str(lab.folder / "logs/a")
    query = Query(lab.folder, consumer="export", consumerExpiry="1h")
    query.plan()
    (one,) = consumers.find(RealFiles(), folder)
    assert (one.name, one.position) == ("export", 0)
    assert 3500 < (one.expires_ns - time.time_ns()) / 1e9 < 3700
    query.batch()
    (one,) = consumers.find(RealFiles(), folder)
    assert query.offset is not None
    assert one.position == query.offset["logs"]["logs/a"]
    query.restart()
    lab.write("a", 3, 3)
    query.plan()
    (now,) = consumers.find(RealFiles(), folder)
    assert now.position == one.position
    anonymous = Query(lab.folder)
    anonymous.batch()
    assert len(consumers.find(RealFiles(), folder)) == 1


def test_a_position_is_said_again_before_it_expires(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.write("a", 0, 3)
    query = Query(lab.folder, consumer="export", consumerExpiry="1h")
    query.batch()
    folder = str(lab.folder / "logs/a")
    (before,) = consumers.find(RealFiles(), folder)
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now + 2000)
    query.plan()
    (after,) = consumers.find(RealFiles(), folder)
    assert after.written_ns > before.written_ns


def test_positions_do_not_take_all_the_time(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_position, "_SHARE", 10**6)
    lab.write("a", 0, 3)
    query = Query(lab.folder, consumer="export")
    query.batch()
    assert query.offset is not None
    folder = str(lab.folder / "logs/a")
    assert [one.position for one in consumers.find(RealFiles(), folder)] == [0]
    query.reader.stop()
    assert [one.position for one in consumers.find(RealFiles(), folder)] == [query.offset["logs"]["logs/a"]]


# -- cost ------------------------------------------------------------------------------------------------------------


class Counting(RealFiles):
    """Notes what is asked of the disk."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def open(self, path: str, *, write: bool = False) -> Any:
        self.calls.append(f"open {os.path.basename(path)}")
        return super().open(path, write=write)

    def list(self, folder: str) -> list[str]:
        self.calls.append(f"list {os.path.basename(folder)}")
        return super().list(folder)


def test_a_poll_without_news_neither_lists_nor_opens(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_LOOK_S", 1000.0)
    monkeypatch.setattr(track, "_SETTLED_NS", 0)
    lab.open("a", 1 << 20)
    lab.write("a", 0, 50)
    disk = Counting()
    monkeypatch.setattr(storage, "open_storage", lambda path: (disk, path))
    query = Query(lab.folder)
    query.batch()
    followed = Watching(ReadOptions(str(lab.folder)), RecordsView())
    before = followed.ends()
    disk.calls.clear()
    for _ in range(10):
        assert query.plan() == query.offset
        assert followed.ends() == before
    assert disk.calls == []
    lab.write("a", 50, 1)
    assert query.plan() != query.offset
    assert followed.ends() != before
    assert disk.calls == []
    followed.close()
