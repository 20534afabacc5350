"""The job ``export`` on Spark: the same files as without it, and Spark reads them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lamina.clock import ManualClock
from lamina.log import LogOptions
from lamina.log.writer import Log
from lamina.pipeline.exporting import asking
from lamina.pipeline.jobs.export import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START = 1_700_000_000 * 10**9


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


def test_both_engines_give_the_same_bytes_and_spark_reads_each_row_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(asking, "TASK_BYTES", 1 << 20)
    clock = ManualClock(START)
    options = LogOptions(segment_bytes=1 << 20)
    data, outs = tmp_path / "data", {"local": tmp_path / "local", "spark": tmp_path / "spark"}
    appended = 0
    logs = [Log.open(str(data / "logs" / name), clock=clock, options=options, threaded=False) for name in "ab"]
    for count in (6000, 500):
        for log in logs:
            for number in range(count):
                clock.advance(7)
                log.append(b"%d " % number * 60)
            log.run_round()
            appended += count
        local = export(str(data), str(outs["local"]), engine="local", merge_below=1 << 19)
        spread = export(str(data), str(outs["spark"]), spark=spark, merge_below=1 << 19)
        assert (local.engine, spread.engine) == ("local", "spark")
        assert spread.rows == local.rows == 2 * count and (local.merged, local.files) == (spread.merged, spread.files)
        assert local.merged or not local.batch
    for log in logs:
        log.close()
    assert contents(outs["local"]) == contents(outs["spark"])
    found = spark.read.parquet(str(outs["spark"] / "records"))
    assert found.count() == appended == found.select("log", "time_ns").distinct().count()
    assert found.where("date != to_date(time)").count() == 0
    assert found.where("date = '2023-11-15'").count() > 0
