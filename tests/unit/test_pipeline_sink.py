"""Publishing from Spark, without Spark: tasks and the driver are called as it calls them."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="Spark is not installed")
pa = pytest.importorskip("pyarrow", reason="Arrow is not installed")

from pyspark.sql.types import StructType  # noqa: E402

import lamina  # noqa: E402
import sink_lab as lab  # noqa: E402
from lamina.engines.topics import ids  # noqa: E402
from lamina.errors import (  # noqa: E402
    BadName,
    BadOption,
    BadTopic,
    Corruption,
    DiskFull,
    LaminaError,
    LogLocked,
    RecordTooLarge,
    StorageError,
)
from lamina.pipeline.sinking import publishing, sink, sink_folder  # noqa: E402
from lamina.pipeline.sinking.publications import Publications, Seen, Standing  # noqa: E402
from lamina.pipeline.sinking.sink_columns import Layout  # noqa: E402
from lamina.pipeline.sinking.sink_options import SinkOptions  # noqa: E402
from lamina.pipeline.sinking.sink_parts import PartWriter, staged_name  # noqa: E402
from lamina.units import MIB  # noqa: E402


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


def left(place: Path) -> list[str]:
    """What is staged."""
    return sorted(path.name for path in place.glob("_tmp/*"))


# -- options -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "neither a path nor a server"),
        ({"path": "x", "tpoic": "t"}, "did you mean topic"),
        ({"path": "x", "server": "h:1"}, "either a folder or a server"),
        ({"path": "x", "stagingPath": "y"}, "for publishing to a server"),
        ({"path": "s3://bucket/x"}, "cannot write to s3://bucket/x"),
        ({"server": "h:1"}, "stagingPath"),
        ({"server": "h", "stagingPath": "x"}, "'h' is no address"),
        ({"server": "h:99999", "stagingPath": "x"}, "is no address"),
        ({"path": "x", "batchId": "1"}, "without a queryId"),
        ({"path": "x", "queryId": "q", "batchId": "-1"}, "is no number"),
        ({"path": "x", "queryId": "q" * 300}, "q"),
        ({"path": "x", "inDoubt": "skp"}, "did you mean skip"),
    ],
)
def test_an_option_that_cannot_be_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(LaminaError, match=said):
        SinkOptions.parse(given, is_stream=False)


def test_options_are_found_in_capitals_or_not() -> None:
    found = SinkOptions.parse({"SERVER": "[::1]:7", "stagingpath": "file:///s", "QUERYID": "q"}, is_stream=False)
    assert (found.server, found.place, found.query, found.batch) == (("::1", 7), "/s", "q", 0)
    guarded = {"server": "h:1", "stagingPath": "s", "password": "secret"}
    assert "secret" not in repr(SinkOptions.parse(guarded, is_stream=False))


def test_a_stream_stages_beside_its_checkpoint_and_counts_its_batches_itself() -> None:
    found = SinkOptions.parse({"server": "h:1", "checkpointLocation": "/c"}, is_stream=True)
    assert found.place == "/c/lamina"
    with pytest.raises(BadOption, match="counts its batches itself"):
        SinkOptions.parse({"path": "x", "queryId": "q", "batchId": "1"}, is_stream=True)


def test_overwriting_is_refused(data: Path) -> None:
    for make in (sink.writer, sink.stream_writer):
        with pytest.raises(BadOption, match="never overwritten"):
            make({"path": str(data), "topic": "t"}, lab.ROWS, True)
    assert not data.exists()


def test_a_folder_that_is_none_of_ours_is_refused(tmp_path: Path, data: Path) -> None:
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").write_bytes(b"")
    lab.publish({"path": str(data)}, 0, [lab.rows(("t", "x"))])
    for path, said in (
        (tmp_path / "photos", "no folder of lamina's"),
        (tmp_path / "photos" / "one.jpg", "is no folder"),
        (data / "topics", "only a part"),
        (data / "topics" / "t", "only a part"),
    ):
        with pytest.raises(BadOption, match=said):
            lab.stream({"path": str(path)})


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("value string", "no topic was given.*or a column topic"),
        ("topics string, value string", "did you mean topics"),
        ("topic integer, value string", "column topic: int is no text"),
        ("topic string", "no column is left"),
        ("topic string, id long, value string", "column id: bigint is no text.*rename it"),
        ("topic string, price double", r'column price: double cannot be a value.*col\("price"\).cast'),
        ("topic string, at timestamp", "column at: timestamp"),
        ("topic string, fields string", "column fields: string cannot be the fields"),
        ("topic string, fields map<string,int>", "column fields: map<string,int>"),
        ("topic string, field map<string,string>", "column field: map<string,string>.*did you mean fields"),
        ("topic string, fields map<string,string>, extra string", "column extra: there is a column of all fields"),
        ("topic string, deep struct<x:int>", "column deep: struct<x:int>.*to_json"),
    ],
)
def test_a_column_that_cannot_be_is_named(columns: str, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        Layout.of(_typed(columns), None, can_choose_ids=True)


def _typed(columns: str) -> StructType:
    from pyspark.sql.types import IntegerType, MapType, StringType

    made = StructType()
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        if kind.startswith("map"):
            made.add(name, MapType(StringType(), IntegerType() if "int" in kind else StringType()))
        elif kind.startswith("struct"):
            made.add(name, StructType().add("x", IntegerType()))
        else:
            made.add(name, kind)
    return made


def test_a_server_gives_ids_itself() -> None:
    with pytest.raises(BadOption, match="column ID: a server gives ids itself"):
        Layout.of(_typed("ID string, value string"), b"t", can_choose_ids=False)


def test_every_other_column_is_a_field_and_a_null_is_none() -> None:
    layout = Layout.of(_typed("Topic string, n long, name string, raw binary"), None, can_choose_ids=True)
    batch = pa.record_batch(
        {
            "Topic": ["a", "b", "c"],
            "n": pa.array([-5, None, 1 << 62], pa.int64()),
            "name": pa.array(["é", "", None], pa.large_string()),
            "raw": pa.array([b"\xff\x00", None, None], pa.binary()),
        }
    )
    assert [*layout.entries(batch)] == [
        (b"a", 0, [b"n", b"-5", b"name", "é".encode(), b"raw", b"\xff\x00"]),
        (b"b", 0, [b"name", b""]),
        (b"c", 0, [b"n", b"%d" % (1 << 62)]),
    ]


@pytest.mark.parametrize("key", [pa.string(), pa.binary()])
@pytest.mark.parametrize("start", [0, 1])
def test_a_map_is_all_fields(key: Any, start: int) -> None:
    layout = Layout.of(_typed("topic string, fields map<string,string>"), b"one", can_choose_ids=True)
    maps: Any = [[("x", b"1")], [("k", b"1"), ("n", None), ("k2", b"")], [("only", b"2")]]
    if key == pa.binary():
        maps = [[(name.encode(), value) for name, value in each] for each in maps]
    batch = pa.record_batch([pa.array(["t"] * 3), pa.array(maps, pa.map_(key, pa.binary()))], names=["topic", "fields"])
    found = [(topic, flat) for topic, _, flat in layout.entries(batch.slice(start))]
    assert (
        found
        == [
            (b"one", [b"x", b"1"]),
            (b"one", [b"k", b"1", b"k2", b""]),
            (b"one", [b"only", b"2"]),
        ][start:]
    )


@pytest.mark.parametrize(
    ("topic", "value", "said"),
    [(None, "x", "no topic: it is null"), ("t", None, "no field"), ("t" * 300, "x", "cannot be a name")],
)
def test_a_row_that_cannot_be_published_fails_its_task(
    data: Path, topic: str | None, value: str | None, said: str
) -> None:
    with pytest.raises((BadTopic, BadName), match=said):
        lab.staged(lab.stream({"path": str(data)}), [lab.rows(("t", "fine"), (topic, value))])


def test_an_entry_that_is_too_large_fails_its_task(tmp_path: Path) -> None:
    from lamina.log.files.real import RealFiles

    out = PartWriter(RealFiles(), str(tmp_path), 0)
    with pytest.raises(RecordTooLarge):
        out.add((b"t", ids.FIRST, [b"value", bytes(64 * MIB)]))


# -- into a folder -----------------------------------------------------------------------------------------------------


def test_rows_are_published_in_the_order_of_partitions_and_nothing_is_left(data: Path) -> None:
    options = {"path": str(data)}
    parts = [lab.rows(("t", "1"), ("u", "2")), lab.rows(), lab.rows(("t", "3"), ("t", "4"))]
    messages = lab.staged(lab.stream(options), parts)
    lab.stream(options).commit([messages[2], messages[0], messages[1]], 0)
    assert lab.values(data, "t") == ["1", "3", "4"]
    assert lab.values(data, "u") == ["2"]
    assert not left(data)
    with lamina.open(data) as opened:  # the folder is as it has to be for everybody
        assert opened.topics.names() == ["t", "u"]
        assert [message.value for message in opened.topic("t").read()] == [b"1", b"3", b"4"]


def test_a_batch_counts_once_however_often_it_is_committed(data: Path) -> None:
    options = {"path": str(data)}
    messages = lab.publish(options, 0, [lab.rows(("t", "1"))])
    lab.stream(options).commit(messages, 0)  # the driver died before it noted that this was done
    lab.publish(options, 0, [lab.rows(("t", "1"))])  # and did all of it again
    lab.publish(options, 1, [lab.rows(("t", "2"))])
    lab.publish(options, 0, [lab.rows(("t", "1"))])
    assert lab.values(data, "t") == ["1", "2"]
    assert not left(data)


def test_queries_and_batches_out_of_order_do_not_disturb_each_other(data: Path) -> None:
    options = {"path": str(data)}
    for query, batch in (("q", 3), ("r", 3), ("q", 1), ("q", 2), ("q", 3), ("r", 0), ("q", 1)):
        lab.publish(options, batch, [lab.rows(("t", f"{query}{batch}"))], query)
    assert lab.values(data, "t") == ["q3", "r3", "q1", "q2", "r0"]
    assert Publications(lamina.log.files.real.RealFiles(), str(data)).read("q").done == ((1, 3),)


def test_duplicated_and_failed_tasks_leave_nothing(data: Path) -> None:
    options, batch = {"path": str(data)}, lab.rows(("t", "1"))
    writer = lab.stream(options)
    first, duplicate = lab.staged(writer, [batch]), lab.staged(writer, [batch])
    with suppress(BadTopic):
        lab.staged(writer, [lab.rows(*[("t", "x" * 1000)] * 5000, ("t", None))])  # failed in the middle
    assert len([*data.glob("_tmp/*/part-*")]) == 3
    assert first != duplicate
    lab.stream(options).commit(first, 0)
    assert lab.values(data, "t") == ["1"]
    assert not left(data)


def test_what_attempts_before_left_is_swept_and_what_others_stage_is_not(data: Path) -> None:
    options = {"path": str(data)}
    lab.staged(lab.stream(options), [lab.rows(("t", "dead"))])
    other = lab.staged(lab.stream(options), [lab.rows(("t", "other"))], "r")
    (data / "_tmp" / staged_name("forgotten", 1_600_000_000_000, "1")).mkdir()
    lab.publish(options, 0, [lab.rows(("t", "1"))])
    assert left(data) == [other[0].staged]
    lab.stream(options).commit(other, 0)
    assert lab.values(data, "t") == ["1", "other"]
    assert not left(data)


def test_aborting_removes_what_was_staged(data: Path) -> None:
    options = {"path": str(data)}
    messages = lab.staged(lab.stream(options), [lab.rows(("t", "1")), lab.rows(("t", "2"))])
    lab.stream(options).abort([messages[0], None], 0)
    assert not left(data)
    with pytest.raises(StorageError, match="staged file"):
        lab.stream(options).commit(messages, 0)
    assert lab.values(data, "t") == []


def test_aborting_behind_a_failed_commit_keeps_what_counts(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"path": str(data)}
    messages = lab.staged(lab.stream(options), [lab.rows(("t", "1"), ("t", "2"))])

    def refuse(*arguments: object) -> None:
        raise DiskFull("no room")

    with monkeypatch.context() as patched, pytest.raises(DiskFull):
        patched.setattr(sink_folder.FolderOutlet, "add", refuse)
        lab.stream(options).commit(messages, 0)
    lab.stream(options).abort(messages, 0)
    lab.publish(options, 0, [lab.rows(("t", "2"), ("t", "1"))])  # the same rows, in another order
    assert lab.values(data, "t") == ["1", "2"]
    assert not left(data)


def test_a_lost_part_is_noticed_before_anything_is_published(data: Path) -> None:
    options = {"path": str(data)}
    messages = lab.staged(lab.stream(options), [lab.rows(("t", "1")), lab.rows(("t", "2"))])
    part = next(data.glob("_tmp/*/part-00001-*"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(StorageError, match="bytes and not"):
        lab.stream(options).commit(messages, 0)
    assert lab.values(data, "t") == []
    with pytest.raises(StorageError, match="not said"):
        lab.stream(options).commit([messages[0], None], 0)


def test_a_damaged_part_is_named_and_nothing_is_published_twice(data: Path) -> None:
    options = {"path": str(data)}
    messages = lab.staged(lab.stream(options), [lab.rows(("t", "1"), ("t", "2"))])
    part = next(data.glob("_tmp/*/part-*"))
    part.write_bytes(part.read_bytes()[:-1] + b"?")
    for _ in range(2):
        with pytest.raises(Corruption, match=r"part-00000"):
            lab.stream(options).commit(messages, 0)
    assert lab.values(data, "t") == []


def test_a_damaged_note_is_an_error_and_no_new_beginning(data: Path) -> None:
    lab.publish({"path": str(data)}, 0, [lab.rows(("t", "1"))])
    note = data / "publications" / "q.publication"
    note.write_bytes(note.read_bytes()[:-3])
    with pytest.raises(Corruption, match=r"q\.publication"):
        lab.publish({"path": str(data)}, 0, [lab.rows(("t", "1"))])
    assert lab.values(data, "t") == ["1"]


def test_a_batch_write_without_a_name_publishes_each_time_and_with_one_once(data: Path) -> None:
    def write(**names: str) -> None:
        writer = sink.writer({"path": str(data), "topic": "t", **names}, lab.ROWS, False)
        writer.commit([writer.write(iter([lab.rows(("passed over", "x"))]))])

    write()
    write()
    for batch in ("1", "2", "1"):
        write(queryId="load", batchId=batch)
    write(queryId="other")
    write(queryId="other")
    assert len(lab.values(data, "t")) == 5
    assert not left(data)


def test_a_folder_that_a_server_has_is_refused_before_any_task(data: Path) -> None:
    with lamina.open(data) as opened:
        opened.topic("t").publish("theirs")
        with pytest.raises(LogLocked, match=r"option.*server"):
            lab.stream({"path": str(data)})


def test_chosen_ids_are_kept_and_have_to_grow(data: Path) -> None:
    def write(*parts: list[str | None], batch: int) -> None:
        options = {"path": str(data), "topic": "t", "queryId": "q", "batchId": str(batch)}
        writer = sink.writer(options, StructType().add("id", "string").add("value", "string"), False)
        made = [pa.record_batch({"id": pa.array(part, pa.string()), "value": ["x"] * len(part)}) for part in parts]
        writer.commit([writer.stage([each], number, "q", "q") for number, each in enumerate(made)])

    write(["5-1", "5-2"], ["7"], batch=0)
    with lamina.open(data) as opened:
        assert [message.id for message in opened.topic("t").read()] == ["5-1", "5-2", "7-0"]
    for number, (parts, said) in enumerate(
        {
            (("8-0", "8-0"),): "8-0 .* is not behind 8-0",
            (("9-0",), ("8-0",)): "8-0 .* is not behind 9-0",
            (("7-0",),): "7-0 .* is not behind 7-0",
            (("8-0", None),): "is null",
            (("0-0",),): "id of nothing",
            (("soon",),): "is no id",
        }.items()
    ):
        with pytest.raises(BadTopic, match=said):
            write(*(list(part) for part in parts), batch=10 + number)
    with lamina.open(data) as opened:
        assert opened.topic("t").stats().length == 3
    write(["8-0"], batch=11)  # a refused batch can come again, mended


def test_many_topics_are_not_all_open_at_once(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_TOPICS", 8)
    monkeypatch.setattr(sink_folder, "_MOST_OPEN", 16)
    most, true_look = 0, sink_folder.FolderOutlet.look

    def look(self: sink_folder.FolderOutlet, topics: Iterable[bytes]) -> dict[bytes, Seen]:
        nonlocal most
        found = true_look(self, topics)
        most = max(most, len([*self._topics.opened()]))
        return found

    monkeypatch.setattr(sink_folder.FolderOutlet, "look", look)
    lab.publish({"path": str(data)}, 0, [lab.rows(*((f"t{number % 60}", "x") for number in range(90)))])
    assert most <= 24
    assert [len(lab.values(data, f"t{number}")) for number in (0, 29, 30, 59)] == [2, 2, 1, 1]


def test_what_is_known_does_not_grow_with_the_batches() -> None:
    standing = Standing()
    for batch in range(1000):
        standing = standing.with_done(batch)
    assert standing.done == ((0, 999),)
    assert standing.is_done(999)
    assert not standing.is_done(1000)
    assert standing.with_done(2000).with_done(1500).done == ((0, 999), (1500, 1500), (2000, 2000))
