"""A session from beginning to end, in a process of its own: ``session_lab.py MASTER`` prints what it found, as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from lamina.pipeline.starting.session import running, session


def numbers() -> type[DataSource]:
    """Two partitions of ten rows, as record batches; each row says where it was read. Made here, so that it is pickled
    with its code: workers do not find this file.
    """

    class Numbers(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers"

        def schema(self) -> str:
            return "number long, worker string"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    class Reader(DataSourceReader):
        def partitions(self) -> list[InputPartition]:
            return [InputPartition(0), InputPartition(10)]

        def read(self, partition: InputPartition) -> Iterator[Any]:
            import sys

            import pyarrow
            import pyspark

            first = partition.value
            where = [f"{sys.executable} {pyspark.__file__}"] * 10
            columns = [pyarrow.array(range(first, first + 10), pyarrow.int64()), pyarrow.array(where)]
            yield pyarrow.RecordBatch.from_arrays(columns, names=["number", "worker"])

    return Numbers


def use(spark: SparkSession) -> dict[str, Any]:
    """A count of Spark's own, a read of a Python source, and Python on the executors."""
    spark.dataSource.register(numbers())
    rows = spark.read.format("numbers").load().collect()
    jvm: Any = spark.sparkContext._jvm
    return {
        "count": spark.range(1000).selectExpr("id % 7 as seventh").groupBy("seventh").count().count(),
        "sum": sum(row.number for row in rows),
        "workers": sorted({row.worker for row in rows}),
        "tasks": sorted(spark.sparkContext.parallelize(range(4), 4).map(lambda n: n * n).collect()),
        "java": jvm.System.getProperty("java.home"),
        "master": spark.sparkContext.master,
    }


if __name__ == "__main__":
    before = {name: os.environ.get(name) for name in ("JAVA_HOME", "PYSPARK_PYTHON", "SPARK_LOCAL_IP")}
    made = session(master=sys.argv[1], conf={"spark.sql.shuffle.partitions": "2", "spark.lamina.classCache": "false"})
    facts = use(made)
    made.stop()
    is_as_before = before == {name: os.environ.get(name) for name in before}
    print(json.dumps({**facts, "is_stopped": running() is None, "is_as_before": is_as_before}))
