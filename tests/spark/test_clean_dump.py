"""The upkeep jobs ``clean`` and ``dump`` leave the same bytes wherever they run, and tasks may fail."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lamina.clock import ManualClock
from lamina.engines.queues.fold_worker import Stopper
from lamina.errors import Corruption
from lamina.log.files.real import RealFiles
from lamina.pipeline.jobs.clean import clean
from lamina.pipeline.jobs.dump import dump
from lamina.pipeline.running import Runner, SparkRunner
from lamina.pipeline.upkeep.folding import fold_on
from queues_store_lab import NOW, TTL
from upkeep_lab import (
    BUCKET,
    DUMP,
    LATER,
    LOG,
    PIECE,
    cleaned_by_the_engine,
    contents,
    folded_by_the_engine,
    jobs_folder,
    sealed,
    some_store,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def queues_folder(folder: Path) -> dict[str, bytes]:
    found = some_store()
    folder.mkdir()
    for name, data in found.items():
        (folder / name).write_bytes(data)
    return found


def fold(runner: Runner, folder: str, size: int = 1) -> None:
    """In many small tasks."""
    fold_on(runner, piece=PIECE * size, bucket=BUCKET * size)(
        RealFiles(),
        folder,
        2,
        now=NOW,
        ttl=TTL,
        keeps_messages=True,
        force=False,
        clock=ManualClock(),
        step=lambda name: None,
        stopper=Stopper(),
    )


def test_the_same_bytes_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    data, other = jobs_folder(tmp_path / "one"), tmp_path / "other"
    shutil.copytree(data, other)
    assert clean(str(data), spark=spark, now=LATER).engine == "spark"
    cleaned_by_the_engine(other, LATER)
    assert contents(data) == contents(other)

    found = queues_folder(tmp_path / "queues")
    fold(SparkRunner(spark), str(tmp_path / "queues"))
    _, wanted = folded_by_the_engine(found, 2)
    assert isinstance(wanted, tuple)
    assert contents(tmp_path / "queues") == {**found, DUMP.format(2): wanted[1]}
    assert dump(str(tmp_path / "queues"), spark=spark, now=NOW * 10**9, ttl=TTL).engine == "spark"
    assert list(contents(tmp_path / "queues")) == [DUMP.format(3)]


def test_what_is_wrong_with_a_file_is_told_as_it_is_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    clean(str(data), spark=spark, now=LATER)  # leaves a checkpoint, so that opening it does not meet the damage
    segment = data / "jobs" / min(path.name for path in (data / "jobs").glob("*.log"))
    spoiled = bytearray(segment.read_bytes())
    spoiled[-3] ^= 1
    segment.write_bytes(spoiled)
    before = sealed(data)
    with pytest.raises(Corruption, match=segment.name):
        clean(str(data), spark=spark, now=LATER)
    assert sealed(data) == before
    assert not (data / "jobs" / "_tmp").exists()

    found = queues_folder(tmp_path / "queues")
    spoiled = bytearray(found[LOG.format(1)])
    spoiled[random.Random(1).randrange(100, 2000)] ^= 1
    (tmp_path / "queues" / LOG.format(1)).write_bytes(spoiled)
    with pytest.raises(Corruption, match=LOG.format(1)):
        fold(SparkRunner(spark), str(tmp_path / "queues"))
    assert DUMP.format(2) not in contents(tmp_path / "queues")


ON_A_CLUSTER = """
import os, sys

sys.path[:0] = {paths!r}
from spark.test_clean_dump import fold
from lamina.pipeline.upkeep import cleaning, folding_tasks
from lamina.pipeline.jobs.clean import clean
from lamina.pipeline.running import SparkRunner
from lamina.pipeline.starting.session import session


def failing_once(function, name):
    def run(*arguments):
        task = arguments[-1]
        result = function(*arguments)
        if task.number < 2:
            try:
                os.mkdir(f"{marks}/{{name}}-{{task.number}}")
            except FileExistsError:
                return result
            if task.number:
                os._exit(1)
            raise RuntimeError("the first try fails, with all that it has staged")
        return result

    return run


cleaning.clean = failing_once(cleaning.clean, "clean")
folding_tasks.sort = failing_once(folding_tasks.sort, "sort")
folding_tasks.fold = failing_once(folding_tasks.fold, "fold")
spark = session(master={master!r}, conf={{"spark.executor.memory": "512m"}})
assert clean({data!r}, spark=spark, now={now}).engine == "spark"
fold(SparkRunner(spark), {queues!r}, 4)
spark.stop()
"""


def test_the_same_bytes_on_a_cluster_where_tasks_fail_at_first(cluster: str, tmp_path: Path) -> None:
    data, other, marks = jobs_folder(tmp_path / "one", steps=120), tmp_path / "other", tmp_path / "marks"
    shutil.copytree(data, other)
    found = queues_folder(tmp_path / "queues")
    marks.mkdir()
    script = ON_A_CLUSTER.format(
        paths=[str(Path(__file__).parents[1])],
        marks=marks,
        master=cluster,
        data=str(data),
        now=LATER,
        queues=str(tmp_path / "queues"),
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=200, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {path.name for path in marks.iterdir()} == {
        f"{job}-{at}" for job in ("clean", "sort", "fold") for at in (0, 1)
    }
    cleaned_by_the_engine(other, LATER)
    assert contents(data) == contents(other)
    _, wanted = folded_by_the_engine(found, 2)
    assert isinstance(wanted, tuple)
    assert contents(tmp_path / "queues") == {**found, DUMP.format(2): wanted[1]}


SLOW_AT_FIRST = """
import os, sys, time

sys.path[:0] = {paths!r}
from lamina.pipeline.upkeep import cleaning
from lamina.pipeline.jobs.clean import clean
from lamina.pipeline.starting.session import session

work = cleaning.clean


def slow_at_first(facts, task):
    result = work(facts, task)
    if task.number == 0:
        try:
            os.mkdir("{marks}/first")
        except FileExistsError:
            os.mkdir("{marks}/second")  # the duplicate, while the first is still at it
            return result
        time.sleep(60)
    return result


cleaning.clean = slow_at_first
conf = {{
    "spark.executor.memory": "512m",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.minTaskRuntime": "100ms",
}}
spark = session(master={master!r}, conf=conf)
assert clean({data!r}, spark=spark, now={now}).engine == "spark"
spark.stop()
"""


def test_a_task_that_is_run_twice_at_the_same_time_counts_once(cluster: str, tmp_path: Path) -> None:
    data, other, marks = jobs_folder(tmp_path / "one", steps=120), tmp_path / "other", tmp_path / "marks"
    shutil.copytree(data, other)
    marks.mkdir()
    paths = [str(Path(__file__).parents[1])]
    script = SLOW_AT_FIRST.format(paths=paths, marks=marks, master=cluster, data=str(data), now=LATER)
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=200, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr[-3000:]
    assert {path.name for path in marks.iterdir()} == {"first", "second"}
    cleaned_by_the_engine(other, LATER)
    assert contents(data) == contents(other)
