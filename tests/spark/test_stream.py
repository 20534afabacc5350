"""``readStream`` as Spark runs it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lamina
from lamina.log import consumers, rewrite
from lamina.log.files.real import RealFiles
from lamina.log.options import LogOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = LogOptions(segment_bytes=4000)


def publish(data: lamina.Data, topic: str, first: int, count: int) -> None:
    data.topic(topic).publish_many({"n": str(number)} for number in range(first, first + count))


def test_a_stream_gives_each_message_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    path, out = str(tmp_path / "data"), str(tmp_path / "out")

    def run(**options: str) -> int:
        stream = spark.readStream.format("lamina").option("view", "topic").options(**options).load(path)
        query = (
            stream.selectExpr("topic", "decode(fields['n'], 'UTF-8') AS n")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(out)
        )
        assert query.awaitTermination(60)
        return len(query.recentProgress)

    with lamina.open(path, topics=SMALL) as data:
        publish(data, "orders", 0, 300)
        publish(data, "returns", 0, 10)
        run()
        publish(data, "orders", 300, 300)
        publish(data, "late", 0, 10)
        batches = run(maxRecordsPerTrigger="200", consumer="export")
        assert batches >= 2
        (position,) = consumers.find(RealFiles(), f"{path}/topics/orders")
        assert position.name == "export"
    rows = spark.read.parquet(out).collect()
    found: dict[str, list[int]] = {}
    for row in rows:
        found.setdefault(row.topic, []).append(int(row.n))
    assert {name: sorted(its) for name, its in found.items()} == {
        "orders": list(range(600)),
        "returns": list(range(10)),
        "late": list(range(10)),
    }


def test_a_stream_goes_along_with_what_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = str(tmp_path / "data")
    with lamina.open(path, topics=SMALL) as data:
        publish(data, "orders", 0, 10)
        stream = spark.readStream.format("lamina").schema("time_ns bigint, log string").load(path)
        query = (
            stream.writeStream.format("memory")
            .queryName("along")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        try:
            for number in range(10, 40, 10):
                publish(data, "orders", number, 10)
                end = time.monotonic() + 30
                while spark.table("along").count() < number + 10 and time.monotonic() < end:
                    time.sleep(0.02)
            assert spark.table("along").distinct().count() == spark.table("along").count() == 40
        finally:
            query.stop()


def test_a_loss_names_the_log_and_the_range(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.errors import StreamingQueryException

    path = tmp_path / "data"
    with lamina.open(path, topics=SMALL) as data:
        for number in range(0, 300, 10):  # a file ends between calls
            publish(data, "orders", number, 10)
    files = sorted((path / "topics/orders").glob("*.dat"))
    assert len(files) > 1
    start = f'{{"topics/orders": {int(files[0].stat().st_mtime_ns) - 10**12}}}'
    rewrite.remove(RealFiles(), str(path / "topics/orders"), [files[0].name])
    stream = spark.readStream.format("lamina").option("startingOffsets", start).load(str(path))
    query = (
        stream.writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    with pytest.raises(StreamingQueryException, match="topics/orders: they were cleaned away"):
        query.awaitTermination(60)
