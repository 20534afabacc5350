"""Records of runs over a data folder: what a real command leaves, and that it never stands in the way."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

import lamina
from lamina import runs
from lamina.cli.tree import lamina as tree
from lamina.errors import BadOption, NotThere, StorageError
from lamina.pipeline import recording
from lamina.pipeline.recording import Recording, data_folder
from lamina.runs import Run

LONGEST_S = 60.0
SLOW = """
import sys, time
from lamina.pipeline.recording import Recording
with Recording(sys.argv[1], "export", step="exporting") as run:
    run.progress(1, 4)
    print("begun", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with lamina.open(str(tmp_path / "data")) as lm:
        for number in range(20):
            lm.jobs.add("mail", b"letter %d" % number)
    return tmp_path / "data"


def cli(*words: object) -> Any:
    return CliRunner().invoke(tree, [str(word) for word in words])


def kept(data: Path) -> list[Run]:
    now = time.time_ns()
    return [runs.read(str(data), id, now) for id in runs.ids(str(data))]


def test_a_command_leaves_a_record_that_says_what_it_did(data: Path) -> None:
    asked = ("pipeline", "clean", "--data", data, "--conf", "spark.hadoop.fs.s3a.secret.key=hunter2")
    assert cli(*asked).exit_code == 0
    (run,) = kept(data)
    assert (run.kind, run.state, run.percent, run.error) == ("clean", "done", 100.0, "")
    assert run.ended_ns is not None and run.ended_ns >= run.started_ns
    assert run.counts["engine"] == "local" and run.counts["kept"] == 0
    assert run.arguments["conf"] == ["spark.hadoop.fs.s3a.secret.key"]
    (file,) = (data / "pipeline" / "runs").iterdir()
    assert file.name == run.id + ".json" and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert b"hunter2" not in file.read_bytes()


def test_a_run_that_fails_leaves_the_code_of_the_error(data: Path) -> None:
    assert cli("pipeline", "compact", "--data", data).exit_code != 0
    (run,) = kept(data)
    assert (run.state, run.error) == ("failed", "bad_option")
    assert "holds no store" in run.told


def test_every_kind_of_run_is_recorded_in_the_folder_that_is_read(data: Path, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    assert cli("pipeline", "audit", "--data", data).exit_code == 0
    assert cli("pipeline", "report", "--data", data, "--to", page).exit_code == 0
    exported = cli("pipeline", "export", "--data", data, "--to", tmp_path / "out", "--engine", "local")
    assert exported.exit_code == 0, exported.output
    assert cli("backup", data, "--to", tmp_path / "backup").exit_code == 0
    assert [run.kind for run in kept(data)] == ["backup", "export", "report", "audit"]
    backup, export, report, audit = kept(data)
    assert (audit.counts["violations"], audit.written_bytes) == (0, None)
    assert export.counts["rows"] > 0 and export.written_bytes == export.counts["bytes"]
    assert backup.counts["logs"] == 1
    assert report.report == str(page)
    assert runs.page(str(data), report.id) == page.read_bytes()
    assert not (tmp_path / "backup" / "pipeline").exists()


def test_a_backup_says_nothing_about_the_records(data: Path, tmp_path: Path) -> None:
    cli("pipeline", "clean", "--data", data)
    assert "left out" not in cli("backup", data, "--to", tmp_path / "backup").output


def test_one_log_of_a_folder_is_recorded_in_the_folder(data: Path) -> None:
    assert cli("pipeline", "audit", "--data", data / "jobs").exit_code == 0
    assert [run.kind for run in kept(data)] == ["audit"]
    assert not (data / "jobs" / "pipeline").exists()


def test_what_is_no_data_folder_gets_no_record(tmp_path: Path) -> None:
    assert cli("pipeline", "clean", "--data", tmp_path).exit_code != 0
    assert list(tmp_path.iterdir()) == []
    assert data_folder("s3://bucket/data") is None
    assert data_folder(str(tmp_path / "missing")) is None


def test_a_folder_that_cannot_be_written_does_not_stop_the_run(data: Path) -> None:
    (data / "pipeline").write_bytes(b"a file where the folder would be")
    assert cli("pipeline", "audit", "--data", data).exit_code == 0
    with pytest.raises(StorageError):
        runs.ids(str(data))


def test_a_disk_that_is_full_meanwhile_does_not_stop_the_run(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: str, content: bytes, *, sync: bool) -> None:
        raise OSError(28, "No space left on device")

    with Recording(str(data), "export") as run:
        monkeypatch.setattr(recording, "_replace", full)
        run.progress(1, 2)
    (found,) = kept(data)
    assert found.state == "running", "the last record that could be written"


@pytest.fixture
def slow(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen([sys.executable, "-c", SLOW, str(data)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"begun\n"
        try:
            yield process
        finally:
            process.kill()


def test_progress_is_seen_from_another_process_and_a_killed_run_is_lost(
    data: Path, slow: subprocess.Popen[bytes]
) -> None:
    end = time.monotonic() + LONGEST_S
    while kept(data)[0].percent is None and time.monotonic() < end:
        time.sleep(0.05)
    (run,) = kept(data)
    assert (run.state, run.percent, run.step, run.process.pid) == ("running", 25.0, "exporting", slow.pid)
    slow.kill()
    slow.wait()
    assert kept(data)[0].state == "lost"


def test_a_run_that_is_interrupted_says_so(data: Path, slow: subprocess.Popen[bytes]) -> None:
    slow.send_signal(signal.SIGINT)
    slow.wait()
    (run,) = kept(data)
    assert (run.state, run.error) == ("failed", "interrupted")


def test_a_run_on_another_machine_is_lost_when_it_is_silent(data: Path) -> None:
    with Recording(str(data), "export") as made:
        pass
    elsewhere = msgspec.structs.replace(
        made.run, state="running", updated_ns=10**18, process=runs.Process(pid=1, started=1, place="elsewhere")
    )
    (data / "pipeline" / "runs" / f"{made.run.id}.json").write_bytes(msgspec.json.encode(elsewhere))
    assert runs.read(str(data), made.run.id, 10**18 + 30 * 10**9).state == "running"
    assert runs.read(str(data), made.run.id, 10**18 + 61 * 10**9).state == "lost"


def test_a_process_that_got_the_same_id_later_is_not_the_run(data: Path) -> None:
    with Recording(str(data), "export") as made:
        pass
    mine = runs.this_process()
    other = msgspec.structs.replace(
        made.run, state="running", process=msgspec.structs.replace(mine, started=mine.started + 1)
    )
    (data / "pipeline" / "runs" / f"{made.run.id}.json").write_bytes(msgspec.json.encode(other))
    assert kept(data)[0].state == "lost"


def test_the_newest_are_kept_and_the_oldest_go(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "MOST_KEPT", 3)
    monkeypatch.setattr(runs, "MOST_PAGES", 1)
    folder = data / "pipeline" / "runs"
    made = []
    for number in range(5):
        with Recording(str(data), "report", now_ns=lambda at=number: 10**18 + at * 10**9) as one:  # type: ignore[misc]
            pass
        (folder / f"{one.run.id}.html").write_bytes(b"<p>")
        made.append(one.run.id)
        if number == 0:
            (folder / f"{one.run.id}.json.new").write_bytes(b"of one that was killed")
    assert runs.ids(str(data)) == made[:1:-1]
    assert {file.name for file in folder.iterdir()} == {f"{id}.json" for id in made[2:]} | {f"{made[4]}.html"}


@pytest.mark.parametrize("id", ["../../users", "", "20261116T183340.535Z-clean-03d4446e/../x", "a" * 5000, "\0"])
def test_no_other_file_is_read_by_a_strange_name(data: Path, id: str) -> None:
    with pytest.raises(NotThere):
        runs.read(str(data), id, 0)
    with pytest.raises(NotThere):
        runs.page(str(data), id)
    assert not runs.has_page(str(data), id)


def test_a_record_that_is_broken_and_one_that_is_a_link_are_refused(data: Path, tmp_path: Path) -> None:
    folder = data / "pipeline" / "runs"
    folder.mkdir(parents=True)
    broken, linked = (runs.new_id("clean", 10**18 + at) for at in range(2))
    (folder / f"{broken}.json").write_bytes(b'{"id": 3')
    secret = tmp_path / "secret"
    secret.write_text("{}")
    (folder / f"{linked}.json").symlink_to(secret)
    (folder / f"{linked}.html").symlink_to(secret)
    for id in (broken, linked):
        with pytest.raises(StorageError):
            runs.read(str(data), id, 0)
    with pytest.raises(StorageError):
        runs.page(str(data), linked)


def test_nothing_secret_is_in_the_record_of_an_address(data: Path) -> None:
    try:
        with Recording(str(data), "export", arguments={"to": "s3://key:secret@bucket/x"}) as run:
            raise BadOption("s3://key:secret@bucket cannot be reached")
    except BadOption:
        pass
    shown = json.dumps(msgspec.to_builtins(kept(data)[0]))
    assert "secret" not in shown and "s3://bucket/x" in shown
    assert run.run.error == "bad_option"


def test_a_record_of_a_later_version_with_more_in_it_can_be_read(data: Path) -> None:
    with Recording(str(data), "clean") as run:
        pass
    path = data / "pipeline" / "runs" / f"{run.run.id}.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "new_field": [1]}))
    assert kept(data)[0].kind == "clean"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_what_root_wrote_belongs_to_the_owner_of_the_data(data: Path) -> None:
    os.chown(data, 12345, 12345)
    cli("pipeline", "audit", "--data", data)
    for path in (data / "pipeline", data / "pipeline" / "runs", *(data / "pipeline" / "runs").iterdir()):
        assert path.stat().st_uid == 12345
