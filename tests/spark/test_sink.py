"""Publishing with Spark itself: the crashes are in tests/unit/test_pipeline_sink_crashes.py, where they cost less."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lamina
import sink_lab as lab
from integration.lamina_server import LaminaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def test_rows_become_entries_in_order(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 2000, 1, 4).selectExpr(
        "if(id % 2 = 0, 'even', 'odd') AS topic", "map('value', cast(id AS string), 'none', NULL) AS fields"
    )
    for _ in range(2):  # under a name once, however often it is done
        rows.write.format("lamina").mode("append").option("queryId", "load").save(str(tmp_path / "data"))
    with lamina.open(tmp_path / "data") as data:
        assert [int(message.value) for message in data.topic("even").read()] == list(range(0, 2000, 2))
        assert [int(message.value) for message in data.topic("odd").read()] == list(range(1, 2000, 2))
        assert set(next(iter(data.topic("odd").read())).fields) == {b"value"}
    assert not (tmp_path / "data" / "_tmp").exists()


def test_what_cannot_be_is_refused_before_a_task_starts(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(10).selectExpr("cast(raise_error('a task ran') AS string) AS value", "id AS number")

    def write(rows: DataFrame, mode: str = "append", **options: str) -> None:
        rows.write.format("lamina").mode(mode).options(**options).save(str(tmp_path / "data"))

    cases: list[tuple[Callable[[], None], str]] = [
        (lambda: write(rows.selectExpr("value", "1.5D AS price"), topic="t"), "column price: double cannot be a value"),
        (lambda: write(rows), "no topic was given"),
        (lambda: write(rows, tpoic="t"), "did you mean topic"),
        (lambda: write(rows, "overwrite", topic="t"), "never overwritten"),
        (lambda: write(rows.withColumnRenamed("number", "id"), topic="t"), "column id: bigint is no text"),
    ]
    for wrong, said in cases:
        with pytest.raises(Exception, match=said) as caught:
            wrong()
        assert "a task ran" not in str(caught.value)
    with pytest.raises(Exception, match="a task ran"):
        write(rows, topic="t")
    assert not (tmp_path / "data" / "topics").exists()


def test_a_stream_publishes_each_batch_once(spark: SparkSession, tmp_path: Path) -> None:
    arriving, checkpoint, data = tmp_path / "in", tmp_path / "checkpoint", tmp_path / "data"
    arriving.mkdir()

    def run() -> None:
        lines = spark.readStream.format("text").load(str(arriving))
        query = (
            lines.writeStream.format("lamina")
            .option("checkpointLocation", str(checkpoint))
            .option("topic", "lines")
            .trigger(availableNow=True)
            .start(str(data))
        )
        assert query.awaitTermination(120)
        query.stop()

    for batch in range(2):
        (arriving / f"{batch}.txt").write_text("".join(f"{batch}.{number}\n" for number in range(50)))
        run()
    newest = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdigit())
    for path in (checkpoint / "commits").glob(f"*{newest}*"):
        path.unlink()  # as if the driver had died between our commit and Spark's
    (arriving / "2.txt").write_text("2.0\n")
    run()
    found = lab.values(data, "lines")
    assert sorted(found) == sorted([f"{batch}.{number}" for batch in range(2) for number in range(50)] + ["2.0"])
    assert not (data / "_tmp").exists()


def test_batches_go_to_a_server_once(spark: SparkSession, tmp_path: Path) -> None:
    with LaminaServer(tmp_path / "served") as server:
        writing = (
            spark.range(0, 500, 1, 3)
            .selectExpr("cast(id AS string) AS value", "'x' AS more")
            .write.format("lamina")
            .mode("append")
            .options(server=f"127.0.0.1:{server.port}", stagingPath=str(tmp_path / "staging"), topic="t", queryId="q")
        )
        for batch in (1, 2, 1):
            writing.option("batchId", batch).save()
        with lamina.connect(f"lamina://127.0.0.1:{server.port}") as lm:
            found = [int(message.value) for message in lm.topic("t").read()]
    assert found == [*range(500), *range(500)]
