"""Reading a table without Spark: snapshots, pieces, time ranges, and what happens to files meanwhile."""

from __future__ import annotations

import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow", reason="the extra spark is not installed")

import lamina
from lamina.errors import BadOption, Corruption, StorageError, WrongFormat
from lamina.log.options import LogOptions
from lamina.log.sync import OS
from lamina.pipeline import pieces, places
from lamina.pipeline.options import ReadOptions
from lamina.pipeline.pieces import Times
from lamina.pipeline.tables import Table, scan

SMALL = LogOptions(sync=OS, segment_bytes=4096)


def publish(data: lamina.Data, count: int, first: int = 0, topic: str = "orders") -> None:
    for start in range(first, first + count, 20):  # a file ends between calls
        some = range(start, min(start + 20, first + count))
        data.topic(topic).publish_many([{"n": str(number), "body": "x" * 80} for number in some])


@pytest.fixture
def data(tmp_path: Path) -> Iterator[lamina.Data]:
    with lamina.open(tmp_path, topics=SMALL, jobs=SMALL, store=lamina.StoreOptions(epoch_ms=1), history_s=0) as opened:
        yield opened


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [int(dict(row["fields"])["n"]) for row in rows]


def rows(path: object, view: str | None = None, **options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = scan(str(path), view, **options).read_all().to_pylist()
    return found


def table(path: object, **options: str) -> Table:
    return Table(ReadOptions.parse({"path": str(path), **options}))


def test_every_entry_is_a_row_in_order(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 500)
    found = rows(tmp_path / "topics/orders")
    assert numbers(found) == list(range(500))
    assert {row["topic"] for row in found} == {"orders"} and {row["kind"] for row in found} == {"entry"}
    times = [row["time_ns"] for row in found]
    assert times == sorted(set(times))
    assert all(row["time"].timestamp() * 10**6 // 1 - row["time_ns"] // 1000 <= 1 for row in found)
    assert len({row["file"] for row in found}) > 5
    for row in found[::50]:  # the position leads to the record
        raw = (tmp_path / "topics/orders" / row["file"]).read_bytes()
        assert raw[row["position"]] == 1 and str(row["fields"][0][1], "ascii") in str(raw[row["position"] :][:200])


def test_a_data_folder_is_read_as_records_of_all_logs(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 10)
    publish(data, 5, topic="a/b")
    data.jobs.add("mail", b"hello")
    found = rows(tmp_path)
    assert {row["log"] for row in found} == {"jobs", "topics/orders", "topics/a%2Fb"}
    assert next(row for row in found if row["log"] == "jobs")["payload"][0] == 1
    assert [row["topic"] for row in rows(tmp_path, "topic", topic="a/*")] == ["a/b"] * 5
    assert {row["topic"] for row in rows(tmp_path / "topics", "topic")} == {"orders", "a/b"}


def test_a_snapshot_does_not_grow(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 100)
    one = table(tmp_path / "topics/orders")
    pinned = one.pin()
    publish(data, 100, 100)
    wanted = one.choose(["time_ns"])
    assert sum(batch.num_rows for task in one.plan(pinned) for batch in one.read(task, wanted)) == 100
    assert len(rows(tmp_path / "topics/orders")) == 200


@pytest.mark.parametrize("partitions", [1, 3, 40])
def test_pieces_are_all_of_it_once(
    data: lamina.Data, tmp_path: Path, partitions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pieces, "_LEAST", 512)
    with lamina.open(tmp_path / "large", topics=LogOptions(sync=OS)) as large:
        for first in range(0, 6000, 100):
            publish(large, 100, first)
    one = table(tmp_path / "large/topics/orders", minPartitions=str(partitions))
    tasks = one.plan(one.pin())
    assert len(tasks) >= min(partitions, 8)
    found = [row for task in tasks for batch in one.read(task, one.choose(["fields"])) for row in batch.to_pylist()]
    assert numbers(found) == list(range(6000))


def test_a_time_range_reads_only_the_files_it_needs(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 1000)
    everything = rows(tmp_path / "topics/orders")
    since, until = everything[400]["time_ns"], everything[500]["time_ns"]
    options = {"startingTimestamp": str(since), "endingTimestamp": str(until)}
    assert numbers(rows(tmp_path / "topics/orders", **options)) == list(range(400, 500))
    one = table(tmp_path / "topics/orders", **options)
    tasks = one.plan(one.pin())
    opened = {piece.file.name for task in tasks for piece in task}
    assert opened == {row["file"] for row in everything[400:500]}
    narrow = Times(since, since)
    assert one.plan(one.pin(), narrow) == []


def test_names_that_are_no_text_are_shown(data: lamina.Data, tmp_path: Path) -> None:
    data.topic("t").publish({"grün": "1"})
    topic = data.topic("t").make()
    with topic.lock:
        _, position = topic.add([b"\xff\xfe", b"2"])
    topic.settle(position)
    found = rows(tmp_path / "topics/t")
    assert [row["fields"] for row in found] == [[("grün", b"1")], [("\\xff\\xfe", b"2")]]


# -- what happens to files meanwhile ----------------------------------------------------------------------------------


def test_a_file_that_was_rewritten_gives_what_is_left_of_it(data: lamina.Data, tmp_path: Path) -> None:
    ids = [data.jobs.add("mail", b"x" * 100) for _ in range(100)]
    one = table(tmp_path / "jobs", view="records")
    pinned = one.pin()
    before = [row["time_ns"] for row in _read(one, pinned)]
    for id in ids[::2]:
        data.jobs.delete(id)
    assert data.jobs.clean()["dropped"]
    after = [row["time_ns"] for row in _read(one, pinned)]
    assert set(after) < set(before) and len(after) >= 50


def test_a_file_that_cleaning_removed_is_passed_over(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 200)
    one = table(tmp_path / "topics/orders")
    pinned = one.pin()
    gone = sorted(each.name for each in (tmp_path / "topics/orders").glob("*.dat"))[0]
    os.remove(tmp_path / "topics/orders" / gone)
    found = _read(one, pinned)
    assert 0 < len(found) < 200 and gone not in {row["file"] for row in found}


def _read(one: Table, pinned: Any) -> list[dict[str, Any]]:
    wanted = one.choose(None)
    return [row for task in one.plan(pinned) for batch in one.read(task, wanted) for row in batch.to_pylist()]


def test_a_channel_that_was_rotated_is_found(data: lamina.Data, tmp_path: Path) -> None:
    for number in range(20):
        data.store.put(1, b"key%d" % number, b"value")
    one = table(tmp_path / "store")
    pinned = one.pin()
    before = _read(one, pinned)
    assert sorted(row["key"] for row in before) == sorted(b"key%d" % number for number in range(20))
    assert all(row["is_durable"] and row["kind"] == "put" and row["epoch"] > 0 for row in before)
    data.store.rotate()
    data.store.put(1, b"later", b"")
    assert _read(one, pinned) == before
    data.store.compact()
    assert _read(one, pinned) == before
    data.store.clean_up()
    with pytest.raises(StorageError, match="was merged into another file") as told:
        _read(one, pinned)
    assert "read again" in told.value.hint
    after = rows(tmp_path / "store")
    assert sorted(row["key"] for row in after) == sorted([*(row["key"] for row in before), b"later"])
    assert {row["epoch"] for row in after if row["key"] != b"later"} == {None}


def test_sessions_stay_whole_however_the_file_is_cut(
    data: lamina.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(300):
        with data.store.session() as session:
            for entry in range(number % 40):
                session.put(number % 3, b"%d.%d" % (number, entry), b"v" * 50)
    whole = rows(tmp_path / "store")
    assert len(whole) == sum(number % 40 for number in range(300))
    data.store.rotate()
    monkeypatch.setattr(pieces, "_LEAST", 512)
    one = table(tmp_path / "store", minPartitions="200")
    pinned = one.pin()
    by_piece = [(piece.start, piece.stop) for _, task in one.plan(pinned) for piece in task]
    assert len(by_piece) > 3
    cut = _read(one, pinned)
    assert [(row["epoch"], row["key"]) for row in cut] == [(row["epoch"], row["key"]) for row in whole]
    for since in (whole[1000]["time_ns"], whole[3333]["time_ns"]):
        late = _read(table(tmp_path / "store", minPartitions="200", startingTimestamp=str(since)), pinned)
        assert [row["key"] for row in late] == [row["key"] for row in whole if row["time_ns"] >= since]


# -- bad input --------------------------------------------------------------------------------------------------------


def test_damage_names_file_and_byte_and_can_be_a_row(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 300)
    names = sorted(each.name for each in (tmp_path / "topics/orders").glob("*.dat"))
    path = tmp_path / "topics/orders" / names[2]
    whole = rows(tmp_path / "topics/orders")
    victim = [row for row in whole if row["file"] == names[2]][5]
    content = bytearray(path.read_bytes())
    content[victim["position"] + 40] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(Corruption) as told:
        rows(tmp_path / "topics/orders")
    assert (told.value.file, told.value.offset) == (names[2], victim["position"])
    found = rows(tmp_path / "topics/orders", mode="permissive")
    bad = [row for row in found if row["damage"] is not None]
    assert [(row["file"], row["position"], row["time_ns"]) for row in bad] == [(names[2], victim["position"], None)]
    assert numbers([row for row in found if row["damage"] is None]) == [
        n for n in range(300) if n != numbers([victim])[0]
    ]


def test_a_record_that_means_nothing_is_damage_too(tmp_path: Path) -> None:
    from lamina.log.formats import TOPIC
    from lamina.log.naming import TIMED
    from lamina.log.writer import Log

    folder = tmp_path / "topics/t"
    folder.mkdir(parents=True)
    with Log.open(str(folder), family=TIMED, format=TOPIC) as log:
        log.append_many([b"\x95\x01\x05\x06\xc4\x01a\xc4\x01b", b"nonsense", b"\x95\x01\x07\x08\xc4\x01a\xc4\x01c"])
    with pytest.raises(Corruption, match="no array"):
        rows(folder)
    found = rows(folder, mode="permissive")
    assert [(row["id_ms"], row["damage"]) for row in found] == [(5, None), (None, "no array"), (7, None)]


def test_a_newer_format_is_told(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 50)
    data.close()
    path = sorted((tmp_path / "topics/orders").glob("*.dat"))[0]
    content = bytearray(path.read_bytes())
    content[7] = 9
    path.write_bytes(content)
    with pytest.raises(WrongFormat, match="version 9"):
        rows(tmp_path, "topic")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vew": "topic"}, "did you mean view"),
        ({"view": "topics"}, "did you mean topic"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp: 'yesterday' is not a time"),
        ({"endingTimestamp": "1700000000000"}, "milliseconds"),
        ({"mode": "lenient"}, "failfast"),
        ({"minPartitions": "many"}, "minPartitions"),
        ({"maxPartitionBytes": "big"}, "is not a size"),
        ({"failOnDataLoss": "perhaps"}, "neither true nor false"),
        ({"asOf": "2026-11-15"}, "not a state"),
        ({"startingTimestamp": "2026-11-16", "endingTimestamp": "2026-11-15"}, "exchange"),
    ],
)
def test_a_wrong_option_is_told_with_the_right_one(
    data: lamina.Data, tmp_path: Path, options: dict[str, str], said: str
) -> None:
    publish(data, 1)
    with pytest.raises(BadOption) as told:
        table(tmp_path / "topics/orders", **options)
    assert said in str(told.value)


def test_a_column_that_is_not_there_is_told(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 1)
    with pytest.raises(BadOption, match="did you mean time_ns"):
        table(tmp_path / "topics/orders").choose(["tme_ns"])


def test_a_folder_that_is_not_laminas_is_told(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(BadOption, match="no folder of lamina's"):
        rows(tmp_path)
    with pytest.raises(StorageError, match="nowhere"):
        rows(tmp_path / "nowhere")


def test_shared_storage_is_read_through_arrow(
    data: lamina.Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyarrow.fs import LocalFileSystem

    from lamina.log.files.real import RealFiles
    from lamina.pipeline import storage

    publish(data, 300)
    local = rows(tmp_path, "topic")
    shared: Any = storage.ArrowFiles(LocalFileSystem())
    monkeypatch.setattr(storage, "_arrow", lambda uri: (shared, uri.removeprefix("mock://")))
    monkeypatch.setattr(RealFiles, "open", None)  # nothing is read past Arrow
    assert rows(f"mock://{tmp_path}", "topic") == local


def test_pieces_and_places_are_plain_values(data: lamina.Data, tmp_path: Path) -> None:
    import pickle

    publish(data, 50)
    one = table(tmp_path)
    tasks = one.plan(one.pin())
    assert pickle.loads(pickle.dumps(tasks)) == tasks  # noqa: S301
    assert places.find(*_storage(tmp_path))[0].path == "topics/orders"
    assert array("q").itemsize == 8


def _storage(path: Path) -> tuple[Any, str]:
    from lamina.pipeline.storage import open_storage

    return open_storage(str(path))


# -- found by review --------------------------------------------------------------------------------------------------


def test_a_damaged_first_record_is_told(data: lamina.Data, tmp_path: Path) -> None:
    publish(data, 300)
    names = sorted(each.name for each in (tmp_path / "topics/orders").glob("*.dat"))
    path = tmp_path / "topics/orders" / names[2]
    content = bytearray(path.read_bytes())
    content[8] = 0x77
    path.write_bytes(content)
    with pytest.raises(Corruption) as told:
        rows(tmp_path / "topics/orders")
    assert (told.value.file, told.value.offset) == (names[2], 8)
    assert [row["file"] for row in rows(tmp_path / "topics/orders", mode="permissive") if row["damage"]] == [names[2]]


def test_a_file_that_was_rewritten_twice_may_have_the_number_of_the_first(data: lamina.Data, tmp_path: Path) -> None:
    from dataclasses import replace

    publish(data, 300)
    one = table(tmp_path / "topics/orders")
    pinned = one.pin()
    name = sorted(each.name for each in (tmp_path / "topics/orders").glob("*.dat"))[1]
    path = tmp_path / "topics/orders" / name
    position = next(row["position"] for row in rows(path.parent) if row["file"] == name and row["position"] > 1000)
    path.write_bytes(path.read_bytes()[:8] + path.read_bytes()[position:])  # the same file to the system, but shorter
    (path.parent / "manifest").unlink()  # which would say so
    left = rows(path.parent)
    assert len(left) < 300
    assert [row["time_ns"] for row in _read(one, pinned)] == [row["time_ns"] for row in left]
    assert replace(pinned, files=pinned.files[:1]).bytes() < pinned.bytes()


class Changing:
    """A disk on which something happens right behind a listing, once."""

    def __init__(self, happens: Any, listings: int) -> None:
        from lamina.log.files.real import RealFiles

        self._files, self._happens, self._left = RealFiles(), happens, listings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._files, name)

    def list(self, folder: str) -> list[str]:
        found = self._files.list(folder)
        self._left -= 1
        if self._left == 0:
            self._happens()
        return found


@pytest.mark.parametrize("listings", range(1, 9))
def test_a_snapshot_of_a_store_that_rotates_meanwhile_has_no_hole(
    data: lamina.Data, tmp_path: Path, listings: int
) -> None:
    from lamina.pipeline import snapshot

    for number in range(10):
        data.store.put(1, b"%d" % number, b"")

    def rotate() -> None:
        data.store.put(1, b"10", b"")
        data.store.rotate()
        data.store.put(1, b"11", b"")

    one = table(tmp_path / "store")
    disk: Any = Changing(rotate, listings)
    found = {row["key"] for row in _read(one, snapshot.pin(disk, one.options.path, one.logs))}
    assert found in [{b"%d" % number for number in range(count)} for count in (10, 11, 12)]


@pytest.mark.parametrize("listings", range(1, 6))
def test_a_snapshot_of_queues_that_dump_meanwhile_is_not_empty(
    data: lamina.Data, tmp_path: Path, listings: int
) -> None:
    from lamina.pipeline import snapshot

    queue = data.queues.create()
    for _ in range(5):
        data.queue(queue.sid).send(b"x")
    one = table(tmp_path, view="queue_messages")
    disk: Any = Changing(lambda: data.queues.dump(), listings)
    assert len(_read(one, snapshot.pin(disk, str(tmp_path), one.logs))) == 5


def test_one_odd_entry_of_a_store_is_one_row_of_damage(data: lamina.Data, tmp_path: Path) -> None:
    from lamina.log import kernel

    with data.store.session() as session:
        for number in range(100):
            session.put(1, b"%d" % number, b"")
    data.store.rotate()
    data.close()
    (path,) = (each for each in (tmp_path / "store").glob("pwal_0000.*") if not each.name.endswith(".index"))
    entries = rows(tmp_path / "store")
    victim = entries[40]
    content = bytearray(path.read_bytes())
    end = entries[41]["position"]
    payload = bytes([99]) + content[victim["position"] + 17 : end - 4]
    content[victim["position"] : end] = kernel.encode_many(victim["time_ns"], [payload])
    path.write_bytes(content)
    with pytest.raises(Corruption, match="kind 99"):
        rows(tmp_path / "store")
    found = rows(tmp_path / "store", mode="permissive")
    assert [row["key"] for row in found] == [None if at == 40 else row["key"] for at, row in enumerate(entries)]


def test_a_stray_file_beside_plain_logs_is_passed_over(data: lamina.Data, tmp_path: Path) -> None:
    data.log("mine").append(b"x")
    data.log("mine").close()
    (tmp_path / "logs" / "README").write_text("hello")
    assert [row["log"] for row in rows(tmp_path)] == ["logs/mine"]
