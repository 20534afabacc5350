"""Promises of the job ``clean``: what the engine's own cleaning leaves, whole at every moment, and no leftovers."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from golden.test_jobs_golden import as_it_was
from lamina.cli.pipeline_clean import clean as command
from lamina.clock import ManualClock
from lamina.engines.jobs import codec
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.errors import BadOption, Corruption, DiskError, LogLocked
from lamina.log import consumers
from lamina.log.files.real import RealFiles
from lamina.log.reader import Reader
from lamina.pipeline.jobs.clean import clean
from lamina.pipeline.running import LocalRunner, Progress, Runner
from lamina.pipeline.upkeep import cleaning
from upkeep_lab import LATER, START, cleaned_by_the_engine, contents, jobs_folder, sealed, some_id

T = TypeVar("T")
R = TypeVar("R")
clean_job = sys.modules[clean.__module__]


def seen(data: Path, *, by_the_log_alone: bool = False) -> object:
    """What a server that starts would know, in a copy."""
    copy = data.parent / f"{data.name} looked at"
    shutil.copytree(data, copy)
    if by_the_log_alone:
        (copy / "jobs" / "checkpoint").unlink()
    engine = JobEngine.open(str(copy / "jobs"), clock=ManualClock(LATER), threaded=False)
    jobs = {
        id: (job.queue.name, job.state, job.added, job.expires, job.ready_at) for id, job in engine.state.jobs.items()
    }
    paused = {name for name, queue in engine.state.queues.items() if queue.is_paused}
    engine.close()
    shutil.rmtree(copy)
    return jobs, paused


@pytest.mark.parametrize("seed", range(6))
def test_it_leaves_what_the_engines_own_cleaning_leaves(tmp_path: Path, seed: int) -> None:
    data, other = jobs_folder(tmp_path / "one", seed), tmp_path / "other"
    shutil.copytree(data, other)
    before, known, found = contents(data), seen(data), sealed(data)
    would = clean(str(data), now=LATER, dry_run=True)
    assert contents(data) == before
    report = clean(str(data), now=LATER)
    cleaned_by_the_engine(other, LATER)
    assert contents(data) == contents(other) != before
    assert seen(data) == known
    assert report.dropped and report.rewritten and report.engine == "local"
    assert would.is_dry_run and {**would.as_dict(), "is_dry_run": False, "seconds": 0} == {
        **report.as_dict(),
        "seconds": 0,
    }
    assert report.visited == len(found)
    assert report.bytes_before == sum(map(len, found.values()))
    assert report.bytes_after == sum(map(len, sealed(data).values()))


@pytest.mark.parametrize("seed", range(3))
def test_it_writes_former_notes_anew_as_the_engine_does(tmp_path: Path, seed: int) -> None:
    data, other = jobs_folder(tmp_path / "one", seed), tmp_path / "other"
    as_it_was(data / "jobs")
    shutil.copytree(data, other)
    known = seen(data)
    clean(str(data), now=LATER)
    cleaned_by_the_engine(other, LATER)
    assert sealed(data) == sealed(other)
    assert json.loads((data / "lamina.json").read_text()) == {"format": 2}, "an older lamina would forget the notes"
    payloads = [record.payload for record in Reader(str(data / "jobs")).read()]
    assert codec.FENCE_RECORD in payloads and not any(map(codec.is_old_note, payloads))
    assert seen(data) == seen(data, by_the_log_alone=True) == known


def test_segments_of_which_nothing_stays_are_removed(tmp_path: Path) -> None:
    data, other, month = jobs_folder(tmp_path / "one"), tmp_path / "other", START + 30 * 86400 * 10**9
    shutil.copytree(data, other)
    report = clean(str(data), now=month)
    cleaned_by_the_engine(other, month)
    assert contents(data) == contents(other)
    assert report.removed > 5
    assert report.bytes_after == sum(map(len, sealed(data).values()))


def test_run_again_it_changes_no_segment(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    clean(str(data), now=LATER)
    before = sealed(data)
    report = clean(str(data), now=LATER)
    assert (report.dropped, report.rewritten, report.removed) == (0, 0, 0)
    assert sealed(data) == before


def test_one_log_of_a_data_folder_will_do(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    assert clean(str(data / "jobs"), now=LATER).dropped


def test_a_live_owner_is_named(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    engine = JobEngine.open(str(data / "jobs"), clock=ManualClock(LATER), threaded=False)
    try:
        with pytest.raises(LogLocked, match=r"this process is writing here.*cleans by itself") as caught:
            clean(str(data))
        assert caught.value.facts["holder"] == "this process"
        assert clean(str(data), now=LATER, dry_run=True).visited
    finally:
        engine.close()


def test_a_moment_that_is_yet_to_come_is_for_looking_only(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    before, far = contents(data), 4_000_000_000 * 10**9
    with pytest.raises(BadOption, match="yet to come"):
        clean(str(data), now=far)
    assert clean(str(data), now=far, dry_run=True).dropped > clean(str(data), now=LATER, dry_run=True).dropped
    assert contents(data) == before


def test_a_moment_before_the_newest_record_does_not_set_jobs_back(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    engine = JobEngine.open(str(data / "jobs"), clock=ManualClock(LATER), threaded=False)
    engine.add(some_id(9999), "later", 1000, 10**9, b"", time=LATER + 10**12)
    engine.close()
    known = seen(data)
    assert clean(str(data), now=START).now_ns >= LATER
    assert seen(data) == known


def test_what_a_consumer_has_yet_to_read_stays(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    folder = str(data / "jobs")
    all_of_it = clean(str(data), now=LATER, dry_run=True)
    consumers.save(RealFiles(), folder, "reader", START + 100 * 10**9, LATER + 10**12, now_ns=START)
    would = clean(str(data), now=LATER, dry_run=True)
    other = tmp_path / "other"
    shutil.copytree(data, other)
    report = clean(str(data), now=LATER)
    cleaned_by_the_engine(other, LATER)
    assert contents(data) == contents(other)
    assert report.held == would.held and 0 < report.held < all_of_it.visited
    assert report.visited == all_of_it.visited - report.held


def test_a_damaged_segment_stops_it_before_anything_is_changed(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    clean(str(data), now=LATER, dry_run=True)
    segment = sorted((data / "jobs").glob("*.log"))[3]
    Upkeep(engine := JobEngine.open(str(data / "jobs"), clock=ManualClock(LATER), threaded=False)).checkpoint()
    engine.close()
    spoiled = bytearray(segment.read_bytes())
    spoiled[100] ^= 1
    segment.write_bytes(spoiled)
    before = sealed(data)
    with pytest.raises(Corruption, match=segment.name):
        clean(str(data), now=LATER)
    assert sealed(data) == before
    assert not (data / "jobs" / "_tmp").exists()


class Blind(LocalRunner):
    """Some executors do not reach the folder."""

    def __init__(self, blind: Callable[[int], bool]) -> None:
        self._blind = blind

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Progress = lambda done, total: None
    ) -> list[R]:
        def elsewhere(task: T) -> T:
            assert isinstance(task, cleaning.Task)
            return replace(task, folder="/not/mounted") if self._blind(task.number) else task

        return super().map(function, [elsewhere(task) for task in tasks], progress)


@pytest.mark.parametrize("blind", [lambda number: True, lambda number: number % 2 == 0, lambda number: number == 3])
def test_an_executor_that_does_not_reach_the_folder_stops_it_before_anything_is_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blind: Callable[[int], bool]
) -> None:
    data = jobs_folder(tmp_path / "data")
    known, before = seen(data), sealed(data)

    @contextmanager
    def runner(*_: object, **__: object) -> Iterator[Runner]:
        yield Blind(blind)

    monkeypatch.setattr(clean_job, "runner", runner)
    with pytest.raises(DiskError, match=r"/not/mounted/\d{9}\.log: cannot open the file"):
        clean(str(data), now=LATER)
    assert sealed(data) == before
    assert seen(data) == seen(data, by_the_log_alone=True) == known
    assert not (data / "jobs" / "_tmp").exists()
    assert clean(str(data), now=LATER, dry_run=True).visited < len(before)  # as beside a server that cleans


@pytest.mark.parametrize("place", [0, 1, 5])
def test_killed_between_two_files_the_log_is_right_and_the_next_run_does_the_rest(tmp_path: Path, place: int) -> None:
    data, other = jobs_folder(tmp_path / "one"), tmp_path / "other"
    shutil.copytree(data, other)
    known = seen(data)
    script = f"""
import os, signal
from lamina.log import rewrite
from lamina.pipeline.jobs import clean
commit, done = rewrite.commit_staged, 0
def killing(*arguments):
    global done
    if done == {place}:
        os.kill(os.getpid(), signal.SIGKILL)
    done += 1
    commit(*arguments)
rewrite.commit_staged = killing
clean.clean({str(data)!r}, now={LATER})
"""
    ended = subprocess.run([sys.executable, "-c", script], check=False, timeout=60)
    assert ended.returncode == -signal.SIGKILL
    assert (data / "jobs" / "_tmp").exists()
    assert seen(data) == seen(data, by_the_log_alone=True) == known
    clean(str(data), now=LATER)
    cleaned_by_the_engine(other, LATER)
    assert sealed(data) == sealed(other)
    assert contents(data).keys() == contents(other).keys()
    assert seen(data) == known


def test_a_failing_disk_at_the_commit_leaves_a_right_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = jobs_folder(tmp_path / "data")
    known = seen(data)
    rename, done = RealFiles.rename, 0

    def failing(self: RealFiles, old: str, new: str) -> None:
        nonlocal done
        if "/_tmp/" in old:
            done += 1
            if done == 2:
                raise OSError(5, "input/output error")
        rename(self, old, new)

    monkeypatch.setattr(RealFiles, "rename", failing)
    with pytest.raises(DiskError):
        clean(str(data), now=LATER)
    assert done == 2
    assert seen(data) == known
    assert not (data / "jobs" / "_tmp").exists()


def test_a_task_that_is_run_twice_is_harmless(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, other = jobs_folder(tmp_path / "one"), tmp_path / "other"
    shutil.copytree(data, other)
    run = cleaning.clean

    def twice(facts: bytes, task: cleaning.Task) -> cleaning.Cleaned | None:
        run(facts, task)
        return run(facts, task)

    monkeypatch.setattr(cleaning, "clean", twice)
    clean(str(data), now=LATER)
    cleaned_by_the_engine(other, LATER)
    assert contents(data) == contents(other)


def test_what_killed_jobs_left_confuses_nobody(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    left = data / "jobs" / "_tmp" / "clean-1234"
    left.mkdir(parents=True)
    (left / "part-00000-abc").write_bytes(b"half a file")
    seen(data)
    clean(str(data), now=LATER)
    assert not (data / "jobs" / "_tmp").exists()


@pytest.mark.parametrize("wrong", ["nothing", "empty"])
def test_a_folder_without_jobs_is_told_and_not_made(tmp_path: Path, wrong: str) -> None:
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(command, ["--data", str(tmp_path / wrong)])
    assert result.exit_code and result.exception is not None
    assert not (tmp_path / "nothing").exists()
    assert not list((tmp_path / "empty").iterdir())


def test_shared_storage_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadOption, match="shared storage"):
        clean("mock://bucket/data")


def test_the_command_says_what_it_did(tmp_path: Path) -> None:
    data = jobs_folder(tmp_path / "data")
    at = ["--data", str(data), "--now", str(LATER)]
    told = CliRunner().invoke(command, [*at, "--dry-run"])
    assert "records would go" in told.output
    result = CliRunner().invoke(command, [*at, "--json"])
    facts = json.loads(result.output)
    assert facts["dropped"] > 0 and facts["engine"] == "local" and not facts["is_dry_run"]
    assert "0 records went" in CliRunner().invoke(command, at).output
