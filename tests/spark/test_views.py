"""Every view through Spark has the rows that it has without: of a folder with something of every engine in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import lamina
from lamina.pipeline import views
from lamina.pipeline.schema import Column, ddl
from lamina.pipeline.tables import scan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with lamina.open(folder, store=lamina.StoreOptions(epoch_ms=1)) as opened:
        jobs = opened.jobs
        for number in range(20):
            jobs.add("mail", b"job %d" % number, priority=number % 3)
        with jobs.lease("mail") as lease:
            assert lease is not None
        topic = opened.topic("orders")
        topic.publish_many([{"n": str(number), "odd": b"\xff"} for number in range(30)])
        with topic.subscribe("readers", consumer="ann", since="start") as subscription:
            next(subscription).ack()
        queue = opened.queues.create()
        for number in range(5):
            opened.queue(queue.sid).send(b"message %d" % number)
        opened.queue(opened.queues.create(ttl=50).sid).send(b"other")
        for number in range(40):
            opened.store.put(1 + number % 2, b"key %d" % number, b"value %d" % number)
        opened.store.remove(1, b"key 0")
    return folder


def plain(value: Any) -> Any:
    """As both can have it."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return sorted((name, plain(one)) for name, one in value.items())
    if isinstance(value, list):
        return [tuple(map(plain, one)) if isinstance(one, tuple) else plain(one) for one in value]
    return value


def sorted_rows(columns: tuple[Column, ...], rows: list[list[Any]]) -> list[list[Any]]:
    for row in rows:
        for at, column in enumerate(columns):
            if column.type == "timestamp" and row[at] is not None:
                row[at] = row[at].timestamp()  # Spark gives it in the zone of this machine
    return sorted(([plain(value) for value in row] for row in rows), key=repr)


def test_every_view_has_the_same_rows_with_spark_and_without(spark: SparkSession, data: Path) -> None:
    for name, view in views.VIEWS.items():
        found = spark.read.format("lamina").options(view=name, minPartitions="1").load(str(data))
        names = [column.name for column in view.columns]
        where = {"size", "file", "position"} if name != "records" and not view.is_state else set()
        assert found.columns == [each for each in names if each not in where]
        found = spark.read.format("lamina").options(view=name).schema(ddl(view.columns)).load(str(data))
        assert found.columns == names
        rows = [list(row) for row in found.collect()]
        expected = [[row[each] for each in names] for row in scan(str(data), name).read_all().to_pylist()]
        assert rows, f"nothing in {name}"
        assert sorted_rows(view.columns, rows) == sorted_rows(view.columns, expected), name


def test_a_filter_on_the_topic_of_a_state_leaves_it_right(spark: SparkSession, data: Path) -> None:
    groups = spark.read.format("lamina").options(view="group_state").load(str(data))
    assert groups.where("topic = 'orders'").select("group").collect()[0][0] == "readers"
    assert groups.where("topic = 'other'").count() == 0
    jobs = spark.read.format("lamina").options(view="job_state").load(str(data))
    assert jobs.where("created > '2020-01-01' AND priority = 2").count() == 6
