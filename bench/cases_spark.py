"""Spark reading the log: against Parquet of the same rows, in the same session, turn by turn."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bench.runner import Case, Context, Result, Skipped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MEGABYTES = 1000
ROUNDS = 5
_found: dict[str, dict[str, Any]] = {}


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def through(frame: DataFrame) -> None:
    """Every row and column, and nothing kept."""
    frame.write.format("noop").mode("overwrite").save()


def measured(context: Context) -> dict[str, Any]:
    """All figures of one topic, taken once: the best of some rounds of each, turn by turn."""
    if context.folder in _found:
        return _found[context.folder]
    spark = make_session()
    folder = context.fresh("spark")
    size = context.scaled(MEGABYTES, 5) * 10**6
    context.need_room(size)
    context.say("writing a topic ...")
    rows = fill(os.path.join(folder, "topics", "orders"), size)
    path, parquet = os.path.join(folder, "topics", "orders"), os.path.join(folder, "parquet")

    def read(**options: str) -> DataFrame:
        return spark.read.format("lamina").options(**options).load(path)

    context.say("writing the same rows as Parquet ...")
    read().write.option("compression", "none").parquet(parquet)
    first, last = read().selectExpr("min(time_ns)", "max(time_ns)").first()  # type: ignore[misc]
    tenth = {"startingTimestamp": str(first + (last - first) // 2)}
    tenth["endingTimestamp"] = str(first + (last - first) * 6 // 10)
    works: dict[str, Callable[[], object]] = {
        "full": lambda: through(read()),
        "parquet": lambda: through(spark.read.parquet(parquet)),
        "narrow": lambda: spark.read.format("lamina").schema("time_ns bigint").load(path).count(),
        "tenth": lambda: through(read(**tenth)),
        "records": lambda: through(read(view="records")),
        "ready": lambda: through(ready),
    }
    ready = _ready_rows(spark, read(), rows)
    taken: dict[str, list[float]] = {name: [] for name in works}
    for number in range(ROUNDS if context.scale >= 1 else 1):
        for name, work in works.items():
            context.say(f"round {number + 1}: {name} ...")
            taken[name].append(seconds(work))
    found: dict[str, Any] = {name: min(each) for name, each in taken.items()}
    found |= {"rows": rows, "bytes": size, "rows of the tenth": read(**tenth).count()}
    spark.stop()
    context.fresh("spark")
    _found[context.folder] = found
    return found


def _ready_rows(spark: SparkSession, frame: DataFrame, rows: int) -> DataFrame:
    """As many rows of the same kind, by a source that reads no file and decodes nothing: each task has some ready, and
    hands them over again and again. No source in Python can be faster.
    """
    from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

    some = frame.limit(10_000).toArrow().combine_chunks().to_batches()[0]
    schema, tasks = frame.schema, 8

    class Ready(DataSource, DataSourceReader):  # inside: so that it travels to the workers as it is
        def __init__(self, options: Any) -> None:
            self.options = options

        @classmethod
        def name(cls) -> str:
            return "ready"

        def reader(self, schema: Any) -> DataSourceReader:
            return self

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(number) for number in range(tasks)]

        def read(self, partition: InputPartition) -> Any:
            left = rows // tasks
            while left > 0:
                yield some.slice(0, left)
                left -= some.num_rows

    spark.dataSource.register(Ready)
    return spark.read.format("ready").schema(schema).load()


def make_session() -> SparkSession:
    try:
        from lamina.pipeline.starting.session import session
    except ImportError as error:
        raise Skipped(f"Spark is not installed: {error}") from error
    return session("bench", master="local[2]", conf={"spark.driver.memory": "4g"})


def fill(folder: str, size: int) -> int:
    """A topic of about so many bytes. Returns how many entries it has."""
    from lamina.engines.topics import entries
    from lamina.engines.topics.ids import EntryId
    from lamina.log.formats import TOPIC
    from lamina.log.naming import TIMED
    from lamina.log.options import LogOptions
    from lamina.log.sync import OS
    from lamina.log.writer import Log

    os.makedirs(folder, exist_ok=True)
    number = time.time_ns() // 10**6 % 10**9  # ids rise, also in a topic that has some
    first, written = number, 0
    with Log.open(folder, options=LogOptions(sync=OS), family=TIMED, format=TOPIC) as log:
        while written < size:
            batch = [_entry(entries.encode, EntryId, each) for each in range(number, number + 2000)]
            log.append_many(batch)
            number += len(batch)
            written += sum(map(len, batch)) + 21 * len(batch)
    return number - first


def _entry(encode: Any, entry_id: Any, number: int) -> bytes:
    user, amount, body = b"user%07d" % (number % 100_000), b"%09d" % (number * 7), b"%016d" % number * 8
    found: bytes = encode(entry_id(1_700_000_000_000 + number << 64), [b"user", user, b"amount", amount, b"body", body])
    return found


def full(context: Context) -> Result:
    found = measured(context)
    rows = found["rows"]
    extra = {
        "MB/s": found["bytes"] / found["full"] / 1e6,
        "records rows/s": rows / found["records"],
        "most that a source in Python can reach, of Parquet": found["parquet"] / found["ready"],
    }
    return Result(rows / found["full"], rows / found["parquet"], extra)


def narrow(context: Context) -> Result:
    found = measured(context)
    return Result(found["rows"] / found["narrow"], found["rows"] / found["full"])


def tenth(context: Context) -> Result:
    found = measured(context)
    return Result(found["full"], found["tenth"], {"rows": found["rows of the tenth"]})


CASES = [
    Case("spark_scan", "rows/s", "all columns of a 1 GB topic; base: Parquet, uncompressed, same rows", full, 0.8),
    Case("spark_narrow", "rows/s", "count of one column of the same topic; base: all its columns", narrow, 2.0),
    Case("spark_time_range", "s", "all columns, all times; base: a tenth of the time", tenth, 2.0),
]
