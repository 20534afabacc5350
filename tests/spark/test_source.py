"""``spark.read.format("lamina")`` in a real session: rows, schemas, filters, errors, and a log that grows meanwhile."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lamina
from lamina.log.options import LogOptions
from lamina.log.sync import OS
from lamina.pipeline.tables import scan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SMALL = LogOptions(sync=OS, segment_bytes=16 << 10)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    with lamina.open(folder, topics=SMALL, store=lamina.StoreOptions(epoch_ms=1)) as opened:
        publish(opened, 2000)
        opened.topic("other").publish({"n": "0"})
        for number in range(50):
            opened.store.put(1, b"key%d" % number, b"value")
        opened.jobs.add("mail", b"hello")
    return folder


def publish(data: lamina.Data, count: int, first: int = 0) -> None:
    for start in range(first, first + count, 50):
        data.topic("orders").publish_many([{"n": str(number)} for number in range(start, start + 50)])


def read(spark: SparkSession, path: object, **options: str) -> DataFrame:
    return spark.read.format("lamina").options(**options).load(str(path))


def test_no_registration_is_needed_and_rows_are_those_of_the_log(spark: SparkSession, data: Path) -> None:
    found = read(spark, data / "topics/orders").selectExpr("topic", "kind", "int(string(fields['n'])) n", "time_ns")
    rows = found.collect()
    assert sorted(row.n for row in rows) == list(range(2000))
    assert {(row.topic, row.kind) for row in rows} == {("orders", "entry")}
    assert sorted(row.time_ns for row in rows) == scan(str(data / "topics/orders")).read_all()["time_ns"].to_pylist()


def test_every_log_of_a_folder_is_in_records(spark: SparkSession, data: Path) -> None:
    counts = {row["log"]: row["count"] for row in read(spark, data).groupBy("log").count().collect()}
    assert counts["topics/orders"] == 2000 and counts["topics/other"] == 1 and counts["jobs"] == 1
    # Each with the begin and the end of its session; and how far epochs had come, at most before each and at the end.
    assert 50 * 3 < counts["store"] <= 50 * 4 + 1


def test_a_schema_is_the_projection(spark: SparkSession, data: Path) -> None:
    narrow = spark.read.format("lamina").schema("id_sequence bigint, time timestamp").load(str(data / "topics/orders"))
    assert narrow.columns == ["id_sequence", "time"] and narrow.count() == 2000
    assert isinstance(narrow.first()["time"], datetime)


def test_a_dataframe_and_its_filtered_copies_agree(spark: SparkSession, data: Path) -> None:
    found = read(spark, data / "topics/orders")
    few = found.where("int(string(fields['n'])) < 100 and kind = 'entry' and topic = 'orders'")
    assert (found.count(), few.count(), found.count()) == (2000, 100, 2000)
    middle = found.selectExpr("percentile(time_ns, 0.5)").first()[0]
    assert found.where(f"time_ns < {int(middle)}").count() + found.where(f"time_ns >= {int(middle)}").count() == 2000
    pair = found.where("topic = 'orders'").join(found.where("topic = 'none'"), "time_ns", "left_anti")
    assert pair.count() == 2000


def test_filters_are_taken_when_asked_for(spark: SparkSession, data: Path) -> None:
    times = sorted(row[0] for row in read(spark, data / "topics/orders").select("time_ns").collect())
    cut = times[150]
    taking = read(spark, data / "topics/orders", filterPushdown="true")
    assert taking.where(f"time_ns < {cut}").count() == 150
    # Spark 4.3 keeps what it planned for the filter. When this fails, Spark is mended: make filterPushdown the default.
    assert taking.count() < 2000
    moment = datetime.fromtimestamp(cut // 1000 / 10**6, UTC).isoformat().replace("+00:00", "Z")
    again = read(spark, data / "topics/orders", filterPushdown="true").where(f"time >= timestamp '{moment}'")
    assert abs(again.count() - 1850) <= 1
    named = read(spark, data, filterPushdown="true", view="topic").where("topic = 'other'")
    assert named.count() == 1 and named.rdd.getNumPartitions() == 1


def test_times_prune(spark: SparkSession, data: Path) -> None:
    times = sorted(row[0] for row in read(spark, data / "topics/orders").select("time_ns").collect())
    some = read(spark, data / "topics/orders", startingTimestamp=str(times[100]), endingTimestamp=str(times[300]))
    assert sorted(row[0] for row in some.select("time_ns").collect()) == times[100:300]
    assert read(spark, data / "topics/orders", endingTimestamp=str(times[0])).count() == 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"vew": "topic"}, "there is no option 'vew'; did you mean view?"),
        ({"view": "store_entry"}, "there is no view 'store_entry'; did you mean store_entries?"),
        ({"startingTimestamp": "soon"}, "startingTimestamp: 'soon' is not a time"),
    ],
)
def test_bad_options_are_told_before_any_task(
    spark: SparkSession, data: Path, options: dict[str, str], said: str
) -> None:
    with pytest.raises(Exception, match="BadOption") as told:
        read(spark, data, **options)
    assert said in str(told.value)


def test_a_wrong_column_or_folder_is_told(spark: SparkSession, data: Path, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="has no column 'tim'; did you mean time\\?"):
        spark.read.format("lamina").schema("tim timestamp").load(str(data / "topics/orders")).count()
    with pytest.raises(Exception, match="is bigint, not string"):
        spark.read.format("lamina").schema("time_ns string").load(str(data / "topics/orders")).count()
    with pytest.raises(Exception, match="no folder of lamina's"):
        read(spark, tmp_path)


def test_reads_beside_a_writer_are_prefixes(spark: SparkSession, tmp_path: Path) -> None:
    """A hundred of them without Spark, five with it; retention and rotation go on meanwhile."""
    with lamina.open(tmp_path, topics=SMALL, retention={"orders": "length:3000"}) as opened:
        publish(opened, 50)
        is_over = threading.Event()

        def write() -> None:
            first = 50
            while not is_over.wait(0.01):
                publish(opened, 50, first)
                first += 50

        writer = threading.Thread(target=write)
        writer.start()
        try:
            newest = 0
            for number in range(105):
                path = str(tmp_path / "topics/orders")
                if number % 21 == 20:
                    frame = spark.read.format("lamina").load(path)
                    found = sorted(int(row[0]) for row in frame.selectExpr("string(fields['n'])").collect() if row[0])
                else:
                    fields = scan(path, columns=["fields"]).read_all()["fields"].to_pylist()
                    found = [int(dict(each)["n"]) for each in fields if each]
                assert found == list(range(found[0], found[-1] + 1))  # nothing missing, nothing twice
                assert found[-1] >= newest
                newest = found[-1]
        finally:
            is_over.set()
            writer.join()
