"""The report is the same page wherever it is made."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import lamina
from lamina.engines.store.api import Store
from lamina.pipeline.jobs.report import report
from upkeep_lab import START, jobs_folder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_both_engines_make_the_same_page(spark: SparkSession, tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    with lamina.open(data) as opened:
        opened.topic("orders").publish_many([{"number": str(number)} for number in range(50)])
        _, sid = opened.queues.create()
        opened.queue(sid).send(b"hello")
    with Store.open(str(data / "store")) as store:
        store.put(1, b"k", b"v")
    found = []
    for since in (None, START + 10**11):
        found.append(report(str(data), str(tmp_path / "local.html"), now=START, since=since, engine="local"))
        found.append(report(str(data), str(tmp_path / "spark.html"), now=START, since=since, spark=spark))
        assert (tmp_path / "local.html").read_bytes() == (tmp_path / "spark.html").read_bytes()
    assert [each.engine for each in found] == ["local", "spark"] * 2
    assert found[0].sections == ["overview", "jobs", "topics", "queues", "store"]
    assert found[2].totals["jobs.added"] < found[0].totals["jobs.added"]
