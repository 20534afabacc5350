"""The job ``audit`` on Spark says the same as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import upkeep_lab
from history_lab import History
from lamina.pipeline.jobs.audit import audit
from lamina.pipeline.jobs.export import export

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_report_is_the_same_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    data, out = tmp_path / "data", tmp_path / "out"
    history = History(data, 5)
    history.steps(60)
    history.close()
    export(str(data), str(out), view="jobs")
    here = audit(str(data), engine="local", export=str(out))
    there = audit(str(data), spark=spark, export=str(out))
    assert (there.engine, there.is_sound) == ("spark", True)
    assert there.checks == here.checks
    # And with a mistake: a log of jobs that begins in the middle, under the number of the first.
    jobs = upkeep_lab.jobs_folder(tmp_path / "wrong", steps=200) / "jobs"
    (jobs / "000000002.log").rename(jobs / "000000001.log")
    here, there = audit(str(tmp_path / "wrong")), audit(str(tmp_path / "wrong"), spark=spark)
    assert not there.is_sound and there.checks == here.checks
