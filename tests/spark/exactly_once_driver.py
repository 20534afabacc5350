"""A driver with two streams, to be killed: jobs to Parquet, and topics through ``foreachBatch``.

python exactly_once_driver.py JOBS TOPICS OUT along|finish
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from lamina.pipeline.starting.session import session


def main(jobs: str, topics: str, out: Path, *, ends: bool) -> None:
    spark = session(master="local[2]", conf={"spark.sql.shuffle.partitions": "2"})

    def stream(path: str, view: str) -> DataFrame:
        options = {"view": view, "consumer": "test", "consumerExpiry": "1h", "maxRecordsPerTrigger": "2000"}
        return spark.readStream.format("lamina").options(**options).load(path)

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(str(out / "batches" / str(number)))

    def start(writer: DataStreamWriter, name: str, sink: str | None = None) -> None:
        writer = writer.option("checkpointLocation", str(out / "checkpoints" / name))
        if ends:
            writer = writer.trigger(availableNow=True)
        queries.append(writer.start(sink))

    queries: list[StreamingQuery] = []
    of_jobs = stream(jobs, "records").select("time_ns", "payload")
    start(of_jobs.writeStream.format("parquet"), "jobs", str(out / "jobs"))
    of_topics = stream(topics, "topic").selectExpr("topic", "time_ns", "fields['n'] AS n")
    start(of_topics.writeStream.foreachBatch(write), "topics")
    for query in queries:
        query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], Path(sys.argv[3]), ends=sys.argv[4] == "finish")
