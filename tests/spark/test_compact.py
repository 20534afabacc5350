"""Compaction of the store leaves the same bytes wherever it runs, and its tasks and its driver may be killed."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compaction_lab import FOLDER, History, elsewhere, parts_of
from lamina.engines.store import compaction_progress
from lamina.engines.store.api import Store
from lamina.engines.store.compacting import compact as compact_here
from lamina.engines.store.compaction_task import Task
from lamina.errors import Corruption
from lamina.log import kernel
from lamina.log.files.real import RealFiles
from lamina.log.formats import PWAL
from lamina.pipeline.compaction.plan import Sizes
from lamina.pipeline.jobs.compact import compact
from lamina.pipeline.running import SparkRunner
from lamina.testing import MemoryFiles

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZES = Sizes(piece_bytes=8000, range_entries=60, most_runs=4)


def history_at(folder: Path, seed: int = 3) -> tuple[Task, dict[str, bytes]]:
    """A store's folder with old parts and new inputs, what to do, and what the folder has to hold then."""
    history = History(random.Random(seed), keys=300)
    first = history.generation(40, part_bytes=3000, voids=())
    history.commit(first, elsewhere(history.disk, first, SIZES))
    task = history.generation(40, part_bytes=3000, memory_bytes=20_000)
    folder.mkdir()
    for path, content in history.disk.contents().items():
        (folder / path.removeprefix(f"{FOLDER}/")).write_bytes(content)
    disk = MemoryFiles(history.disk.contents())
    compact_here(disk, task)
    compaction_progress.remove(disk, FOLDER)
    wanted = {path.removeprefix(f"{FOLDER}/"): content for path, content in parts_of(disk).items()}
    return replace(task, folder=str(folder)), wanted


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "compaction.lock"}


def test_the_same_bytes_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    task, wanted = history_at(tmp_path / "store")
    outcome = elsewhere(RealFiles(), task, SIZES, SparkRunner(spark))
    assert outcome.parts_written > 2
    assert contents(tmp_path / "store") == wanted

    with Store.open(str(tmp_path / "one" / "store")) as store, store.session() as session:
        for number in range(500):
            session.put(1, b"%d" % (number % 100), b"%d" % number)
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    one, other = compact(str(tmp_path / "one"), spark=spark), compact(str(tmp_path / "other"), engine="local")
    assert (one.engine, other.engine) == ("spark", "local")
    assert replace(one.compaction, inputs=(), seconds=0) == replace(other.compaction, inputs=(), seconds=0)
    name = "store/pwal_compacted.1.0"
    assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "other" / name).read_bytes()


def test_what_is_wrong_with_a_file_is_told_as_it_is_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    task, _ = history_at(tmp_path / "store")
    path = tmp_path / "store" / task.inputs[-1]
    path.write_bytes(PWAL.header + kernel.encode_many(1, [b"no entry"]) + path.read_bytes()[len(PWAL.header) :])
    before = contents(tmp_path / "store")
    shutil.copytree(tmp_path / "store", tmp_path / "other")
    with pytest.raises(Corruption) as here:
        compact_here(RealFiles(), replace(task, folder=str(tmp_path / "other")))
    with pytest.raises(Corruption) as there:
        elsewhere(RealFiles(), task, SIZES, SparkRunner(spark))
    assert there.value.as_dict() == here.value.as_dict()
    assert contents(tmp_path / "store") == before


ON_A_CLUSTER = """
import os, signal, sys

sys.path[:0] = {paths!r}
from compaction_lab import elsewhere
from lamina.engines.store.compaction_task import Task
from lamina.log.files.real import RealFiles
from lamina.pipeline.compaction import distributed
from lamina.pipeline.running import SparkRunner
from lamina.pipeline.starting.session import session
from spark.test_compact import SIZES
import json


def failing_once(function, name):
    def run(work):
        result = function(work)
        number = work.part.number if name == "write" else work.number
        if number < 2:
            try:
                os.mkdir(f"{marks}/{{name}}-{{number}}")
            except FileExistsError:
                return result
            if number:
                os._exit(1)
            raise RuntimeError("the first try fails, with all that it has staged")
        return result

    return run


for name in ("gather", "merge", "write"):
    setattr(distributed, name, failing_once(getattr(distributed, name), name))
spark = session(master={master!r}, conf={{"spark.executor.memory": "512m"}})
task = Task.from_dict(json.loads({task!r}))
sync_folder = RealFiles.sync_folder


def killed(self, folder):
    if any(name.startswith("pwal_compacted.2.") for name in os.listdir(folder)):
        os.kill(os.getpid(), signal.SIGKILL)
    sync_folder(self, folder)


RealFiles.sync_folder = killed
elsewhere(RealFiles(), task, SIZES, SparkRunner(spark))
"""


def test_on_a_cluster_where_tasks_fail_at_first_and_the_driver_is_killed(cluster: str, tmp_path: Path) -> None:
    task, wanted = history_at(tmp_path / "store")
    before = contents(tmp_path / "store")
    marks = tmp_path / "marks"
    marks.mkdir()
    script = ON_A_CLUSTER.format(
        paths=[str(Path(__file__).parents[1])], marks=marks, master=cluster, task=json.dumps(task.as_dict())
    )
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=200, capture_output=True, text=True)
    assert ended.returncode == -9, ended.stderr[-3000:]
    assert {path.name for path in marks.iterdir()} == {
        f"{step}-{at}" for step in ("gather", "merge", "write") for at in (0, 1)
    }
    # It had just given its parts their names, and left all that it and the tries that failed had staged.
    assert (tmp_path / "store" / "_tmp").is_dir()
    left = {path.name: path.read_bytes() for path in (tmp_path / "store").iterdir() if path.is_file()}
    assert {name: left[name] for name in wanted} == wanted
    # Nothing names them yet: the next one, wherever, begins anew and leaves the same.
    for name in wanted.keys() - before.keys():
        (tmp_path / "store" / name).write_bytes(b"half of it")
    elsewhere(RealFiles(), task, SIZES)
    assert contents(tmp_path / "store") == wanted
