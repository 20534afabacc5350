"""Compaction in tasks when something goes wrong, and as a job: old or new, whole, and nothing is left behind."""

from __future__ import annotations

import errno
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import CliRunner

from compaction_lab import FOLDER, History, elsewhere, parts_of
from lamina.engines.elsewhere import Stopper
from lamina.engines.store import compaction_progress as progress_notes
from lamina.engines.store.api import Store
from lamina.engines.store.compacting import compact
from lamina.engines.store.compaction_task import Task
from lamina.engines.store.options import StoreOptions
from lamina.errors import BadOption, Corruption, DiskError, DiskFull, LogLocked, Stopped, StorageError
from lamina.log.files.real import RealFiles
from lamina.pipeline.compaction import distributed
from lamina.pipeline.compaction.cutting import cut
from lamina.pipeline.compaction.distributed import compact_with
from lamina.pipeline.compaction.plan import Sizes
from lamina.pipeline.jobs import compact as job
from lamina.pipeline.running import LocalRunner
from lamina.testing import FaultyFiles, MemoryFiles

T = TypeVar("T")
R = TypeVar("R")
SMALL = Sizes(piece_bytes=1000, range_entries=20, most_runs=3)


def some(seed: int = 3, **facts: int) -> tuple[History, Task]:
    """A history with old parts, and what to do next."""
    history = History(random.Random(seed), keys=300)
    first = history.generation(40, part_bytes=3000, voids=())
    history.commit(first, elsewhere(history.disk, first, SMALL))
    return history, history.generation(30, **{"part_bytes": 3000, "memory_bytes": 20_000, **facts})


def done(history: History, task: Task) -> dict[str, bytes]:
    """What the folder has to look like then."""
    disk = MemoryFiles(history.disk.contents())
    compact(disk, task)
    progress_notes.remove(disk, FOLDER)
    return parts_of(disk)


# -- tasks -----------------------------------------------------------------------------------------------------------


class Twice(LocalRunner):
    """Every task is run twice, and the later result counts."""

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Callable[[int, int], None] = lambda a, b: None
    ) -> list[R]:
        super().map(function, tasks)
        return super().map(function, tasks, progress)


class Failing(LocalRunner):
    """Every task fails once after it has done its work, and is tried again."""

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Callable[[int, int], None] = lambda a, b: None
    ) -> list[R]:
        def run(task: T) -> R:
            with suppress(ZeroDivisionError):
                function(task)
                raise ZeroDivisionError
            return function(task)

        return super().map(run, tasks, progress)


@pytest.mark.parametrize("runner", [Twice(), Failing()])
def test_tasks_may_be_run_twice(runner: LocalRunner) -> None:
    history, task = some()
    wanted = done(history, task)
    elsewhere(history.disk, task, SMALL, runner)
    assert parts_of(history.disk) == wanted


@pytest.mark.parametrize("operation", ["create", "append", "read", "open", "sync", "rename", "sync_folder", "remove"])
def test_a_disk_that_fails_leaves_all_as_it_was(operation: str) -> None:
    history, task = some()
    wanted, before = done(history, task), parts_of(history.disk)
    struck = 0
    for nth in [*range(1, 12), *range(12, 400, 29)]:
        disk = MemoryFiles(history.disk.contents())
        files = FaultyFiles(disk)
        fault = files.fail(operation, nth=nth, error=errno.ENOSPC if operation in ("create", "append") else errno.EIO)
        try:
            elsewhere(files, task, SMALL)
        except StorageError as error:
            assert isinstance(error, DiskFull | DiskError | Corruption), error
            files.heal()
            left = parts_of(disk)
            if operation != "remove":
                assert left == before
            elsewhere(disk, task, SMALL)
        struck += fault.struck
        assert parts_of(disk) == wanted
    assert struck


def test_files_that_change_under_it_are_told_of_with_the_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    history, task = some()
    before = parts_of(history.disk)

    def cut_behind_damage(*arguments: Any) -> Any:
        for name in task.inputs:
            content = before[f"{FOLDER}/{name}"]
            history.disk.write(f"{FOLDER}/{name}", content[:16] + bytes(byte ^ 1 for byte in content[16:]))
        return cut(*arguments)

    monkeypatch.setattr(distributed, "cut", cut_behind_damage)
    with pytest.raises(Corruption, match="though it was right before") as caught:
        elsewhere(history.disk, task, SMALL)
    assert caught.value.file in task.inputs and caught.value.offset >= 16
    for name in task.inputs:
        history.disk.write(f"{FOLDER}/{name}", before[f"{FOLDER}/{name}"])
    assert parts_of(history.disk) == before


def test_it_can_be_given_up_between_tasks() -> None:
    history, task = some()
    before = parts_of(history.disk)
    for after in range(0, 30, 4):
        stopper = Stopper()
        told: list[tuple[int, int]] = []

        def progress(done: int, total: int, after: int = after, stopper: Stopper = stopper) -> None:
            told.append((done, total))  # noqa: B023
            if len(told) > after:  # noqa: B023
                stopper.stop()

        with pytest.raises(Stopped):
            compact_with(LocalRunner(), SMALL)(history.disk, task, progress, stopper)
        assert told == sorted(told) and all(0 <= one <= total for one, total in told)
        assert parts_of(history.disk) == before


def test_never_two_at_once() -> None:
    history, task = some()
    lock = history.disk.lock(progress_notes.lock_path(FOLDER))
    with pytest.raises(LogLocked):
        elsewhere(history.disk, task, SMALL)
    assert not isinstance(lock, str)
    lock.release()
    elsewhere(history.disk, task, SMALL)


# -- of an open store ------------------------------------------------------------------------------------------------

OPTIONS = StoreOptions(epoch_ms=1, part_bytes=4096, memory_bytes=1 << 20)


def written(folder: Path, seed: int = 3) -> dict[bytes, bytes]:
    """A store with entries in two channels; returns what is in it."""
    chance = random.Random(seed)
    there: dict[bytes, bytes] = {}
    with Store.open(str(folder / "store"), options=OPTIONS) as store:
        for number in range(60):
            with store.session(wait=number % 10 == 0) as session:
                for _ in range(20):
                    key, value = b"key %d" % chance.randrange(300), chance.randbytes(60)
                    if chance.random() < 0.8:
                        session.put(1, key, value)
                        there[key] = value
                    else:
                        session.remove(1, key)
                        there.pop(key, None)
        store.wait_durable(session.epoch)
    return there


def content(folder: Path) -> dict[bytes, bytes]:
    with Store.open(str(folder / "store"), options=OPTIONS) as store:
        return {found.key: found.value for found in store.scan(1)}


def parts_in(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((folder / "store").glob("pwal_compacted.*"))}


def test_a_store_is_compacted_by_who_is_asked_and_committed_as_ever(tmp_path: Path) -> None:
    there = written(tmp_path)
    with Store.open(str(tmp_path / "store"), options=OPTIONS) as store:
        report = store.compact(compact=compact_with(LocalRunner(), SMALL))
        assert report.generation == 1 and report.parts_written > 2 and report.entries_live == len(there)
        assert {found.key: found.value for found in store.scan(1)} == there
        store.put(1, b"key 0", b"new")
        again = store.compact(compact=compact_with(LocalRunner(), SMALL))
        assert again.generation == 2 and again.parts_kept
        assert store.compact(compact=compact_with(LocalRunner(), SMALL)).inputs == ()
    assert content(tmp_path) == {**there, b"key 0": b"new"}
    assert not (tmp_path / "store" / "_tmp").exists()


KILLED = """
import os, sys
from lamina.engines.store import catalog
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.log.files.real import RealFiles
from lamina.pipeline.compaction import distributed
from lamina.pipeline.compaction.plan import Sizes
from lamina.pipeline.running import LocalRunner

folder, point = sys.argv[1:]


def killing(function, before, only=""):
    def run(*arguments):
        if only not in str(arguments):
            return function(*arguments)
        if not before:
            function(*arguments)
        os.kill(os.getpid(), 9)
    return run


if point == "gathered":
    distributed.check = killing(distributed.check, True)
elif point == "merged":
    distributed.cut = killing(distributed.cut, True)
elif point == "written":
    RealFiles.rename = killing(RealFiles.rename, True, "_tmp")
elif point == "renamed":
    RealFiles.rename = killing(RealFiles.rename, False, "_tmp")
elif point == "before the commit":
    catalog.save = killing(catalog.save, True)
elif point == "committed":
    catalog.save = killing(catalog.save, False)
with Store.open(folder, options=StoreOptions(epoch_ms=1, part_bytes=4096, memory_bytes=1 << 20)) as store:
    sizes = Sizes(piece_bytes=1000, range_entries=20, most_runs=3)
    store.compact(compact=distributed.compact_with(LocalRunner(), sizes))
"""


@pytest.mark.parametrize("point", ["gathered", "merged", "written", "renamed", "before the commit", "committed"])
def test_killed_anywhere_it_is_the_old_generation_or_the_new_one(tmp_path: Path, point: str) -> None:
    there = written(tmp_path)
    folder = tmp_path / "store"
    killed = subprocess.run(
        [sys.executable, "-c", KILLED, str(folder), point], check=False, capture_output=True, text=True, timeout=60
    )
    assert killed.returncode == -9, killed.stderr
    is_new = point == "committed"
    with Store.open(str(folder), options=OPTIONS) as store:
        assert store.engine.catalog.generation == (1 if is_new else 0)
        assert bool(parts_in(tmp_path)) == is_new  # what no catalog names is gone
        assert {found.key: found.value for found in store.scan(1)} == there
    report = job.compact(str(tmp_path), engine="local").compaction
    assert report.generation == 1 and report.entries_live == len(there)
    assert content(tmp_path) == there
    assert not (folder / "_tmp").exists()


# -- the job ---------------------------------------------------------------------------------------------------------


def test_the_job_in_this_process(tmp_path: Path) -> None:
    there = written(tmp_path)
    leftover = tmp_path / "store" / "_tmp" / "compact-000000000000"
    leftover.mkdir(parents=True)
    (leftover / "part-00000-000000000000").write_bytes(b"of one that was killed")
    report = job.compact(str(tmp_path), engine="local")
    facts = report.as_dict()
    assert (facts["engine"], facts["generation"], facts["entries_live"]) == ("local", 1, len(there))
    assert facts["entries_read"] == 1200 and facts["inputs"]
    assert content(tmp_path) == there
    assert not (tmp_path / "store" / "_tmp").exists()
    again = job.compact(str(tmp_path / "store"))
    assert (again.engine, again.compaction.inputs) == ("local", ())


def test_the_job_beside_a_server_says_whom_to_ask(tmp_path: Path) -> None:
    written(tmp_path)
    with Store.open(str(tmp_path / "store"), options=OPTIONS):
        with pytest.raises(LogLocked, match=str(tmp_path)) as caught:
            job.compact(str(tmp_path))
        assert "lamina store compact" in caught.value.hint


def test_the_job_where_there_is_no_store(tmp_path: Path) -> None:
    with pytest.raises(BadOption):
        job.compact(str(tmp_path))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(BadOption, match="engine"):
        written(tmp_path)
        job.compact(str(tmp_path), engine="none")


def test_the_command(tmp_path: Path) -> None:
    import json

    from lamina.cli.pipeline_compact import compact as command

    there = written(tmp_path)
    found = CliRunner().invoke(command, ["--data", str(tmp_path), "--json"], standalone_mode=False)
    assert found.exception is None and found.return_value == 0, found.output
    facts = json.loads(found.output)
    assert (facts["engine"], facts["entries_live"]) == ("local", len(there))
    shown = CliRunner().invoke(command, ["--data", str(tmp_path)], standalone_mode=False)
    assert shown.return_value == 0 and "nothing to do" in shown.output


def test_the_folder_of_the_staged_is_no_concern_of_the_store(tmp_path: Path) -> None:
    """Verifying, backing up and cleaning up go on as if it were not there."""
    from lamina.engines.store.verifying import verify

    written(tmp_path)
    folder = tmp_path / "store"
    (folder / "_tmp" / "compact-0").mkdir(parents=True)
    (folder / "_tmp" / "compact-0" / "part-0").write_bytes(b"?")
    assert verify(RealFiles(), str(folder)).is_sound
    with Store.open(str(folder), options=OPTIONS) as store:
        store.compact()
        store.clean_up()
        manifest = store.back_up(str(tmp_path / "backup"))
    assert manifest is not None
    assert not (tmp_path / "backup" / "_tmp").exists()
