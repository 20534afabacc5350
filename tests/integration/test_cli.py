"""The command line, run as a program: what it prints, its exit codes, and that it changes nothing unless told to."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import prefork
from lamina.log import Level, Log, LogOptions, Reader

LAMINA = [sys.executable, "-m", "lamina"]


def lamina(*arguments: object) -> subprocess.CompletedProcess[str]:
    return prefork.run_text(*arguments)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of several files, closed in order."""
    folder = tmp_path / "log"
    with Log.open(str(folder), options=LogOptions(segment_bytes=600)) as log:
        for number in range(30):
            log.append(b"record %d" % number, until=Level.SYNCED)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".lock"}


def damage(folder: Path, number: int) -> tuple[str, int]:
    record = list(Reader(str(folder)).read())[number]
    path = folder / record.file
    data = bytearray(path.read_bytes())
    data[record.offset + 18] ^= 1
    path.write_bytes(data)
    return record.file, record.offset


class TestVerify:
    def test_a_whole_log_is_fine(self, folder: Path) -> None:
        result = lamina("log", "verify", folder, "--json")
        found = json.loads(result.stdout)
        assert result.returncode == 0
        assert (found["torn"], found["damage"]) == ([], [])
        assert found["segments"] == len(list(folder.glob("*.log")))
        assert found["bytes"] == sum(path.stat().st_size for path in folder.glob("*.log"))
        assert found["records"] - found["marks"] == 30

    def test_a_torn_tail_is_normal(self, folder: Path) -> None:
        newest = max(folder.glob("*.log"))
        size = newest.stat().st_size
        with newest.open("ab") as file:
            file.write(b"\x01half a record")
        before = contents(folder)
        result = lamina("log", "verify", folder, "--json")
        (torn,) = json.loads(result.stdout)["torn"]
        assert (torn["file"], torn["offset"], torn["bytes"]) == (newest.name, size, 14)
        assert result.returncode == 0
        assert contents(folder) == before

    def test_damage_is_named_and_left(self, folder: Path) -> None:
        name, offset = damage(folder, 7)
        before = contents(folder)
        result = lamina("log", "verify", folder, "--json")
        (found,) = json.loads(result.stdout)["damage"]
        assert (found["file"], found["offset"], found["reason"]) == (name, offset, "the checksum differs")
        assert result.returncode == 6
        assert contents(folder) == before
        human = lamina("log", "verify", folder)
        assert human.returncode == 6
        assert f"{name}, byte {offset}" in human.stdout

    def test_beside_a_running_writer(self, folder: Path) -> None:
        with Log.open(str(folder)) as log:
            log.append(b"more", until=Level.SYNCED)
            result = lamina("log", "verify", folder, "--json")
            found = json.loads(result.stdout)
            assert found["writer"] == f"process {os.getpid()}"
            assert (found["torn"], found["damage"]) == ([], [])


class TestDump:
    def test_one_line_of_json_per_record_in_log_order(self, folder: Path) -> None:
        result = lamina("log", "dump", folder, "--json")
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        assert all({"time_ns", "file", "offset", "size", "payload"} <= set(line) for line in lines)
        assert [line["time_ns"] for line in lines] == sorted(line["time_ns"] for line in lines)
        data = [base64.b64decode(line["payload"]) for line in lines if "mark" not in line]
        assert data == [b"record %d" % number for number in range(30)]
        assert len(lines) == json.loads(lamina("log", "verify", folder, "--json").stdout)["records"]

    def test_bounds_and_limit(self, folder: Path) -> None:
        records = list(Reader(str(folder)).read())
        result = lamina(
            "log", "dump", folder, "--json", "--since", records[10].time_ns, "--until", records[12].time_ns
        )  # fmt: skip
        lines = [json.loads(line) for line in result.stdout.splitlines()]
        data = [base64.b64decode(line["payload"]) for line in lines if "mark" not in line]
        assert data == [b"record 10", b"record 11"]
        assert len(lamina("log", "dump", folder, "--limit", "3").stdout.splitlines()) == 3

    def test_it_stops_at_damage_and_says_so(self, folder: Path) -> None:
        name, offset = damage(folder, 7)
        result = lamina("log", "dump", folder)
        assert result.returncode == 6
        assert "record 6" in result.stdout
        assert "record 8" not in result.stdout
        assert f"{name}, byte {offset}" in result.stderr

    def test_a_reader_that_has_had_enough_is_no_error(self, folder: Path) -> None:
        with Log.open(str(folder)) as log:
            log.append_many([b"x" * 100] * 5000, until=Level.WRITTEN)
        script = f'set -o pipefail; {sys.executable} -m lamina log dump "{folder}" | head -n 1'
        result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
        assert "record 0" in result.stdout
        assert result.returncode == 0
        assert result.stderr == ""


class TestRepair:
    def test_without_yes_it_only_shows_what_it_would_do(self, folder: Path) -> None:
        damage(folder, 7)
        before = contents(folder)
        result = lamina("log", "repair", folder)
        assert result.returncode == 6
        assert "would:" in result.stdout
        assert contents(folder) == before

    def test_with_yes_it_quarantines_and_keeps_what_it_takes_out(self, folder: Path) -> None:
        damage(folder, 7)
        result = lamina("log", "repair", folder, "--yes", "--json")
        assert result.returncode == 5
        assert len(json.loads(result.stdout)["done"]) == 1
        assert [path for path in folder.iterdir() if ".broken-" in path.name]
        assert lamina("log", "verify", folder).returncode == 0
        with Log.open(str(folder)) as log:
            assert len(list(log.reader.read())) == 29

    def test_a_torn_tail_is_cut_and_kept(self, folder: Path) -> None:
        newest = max(folder.glob("*.log"))
        with newest.open("ab") as file:
            file.write(bytes(100))
        assert lamina("log", "repair", folder, "--yes").returncode == 5
        (kept,) = [path for path in folder.iterdir() if ".torn-" in path.name]
        assert kept.read_bytes() == bytes(100)
        assert lamina("log", "repair", folder, "--yes").returncode == 0

    def test_a_later_version_is_left_alone(self, folder: Path) -> None:
        path = max(folder.glob("*.log"))
        data = path.read_bytes()
        path.write_bytes(data[:7] + b"\x09" + data[8:])
        before = contents(folder)
        result = lamina("log", "repair", folder, "--yes")
        assert result.returncode == 6
        assert "version 9" in result.stdout
        assert contents(folder) == before

    def test_not_beside_a_running_writer(self, folder: Path) -> None:
        damage(folder, 7)
        with Log.open(str(folder)):
            result = lamina("log", "repair", folder, "--yes")
        assert result.returncode == 1
        assert "is writing here" in result.stderr


class TestStatAndTail:
    def test_stat_shows_each_file(self, folder: Path) -> None:
        found = json.loads(lamina("log", "stat", folder, "--json").stdout)
        assert [row["file"] for row in found["segments"]] == sorted(path.name for path in folder.glob("*.log"))
        assert sum(row["records"] for row in found["segments"]) == 30
        assert "30 records" in lamina("log", "stat", folder).stdout

    def test_tail_shows_the_newest(self, folder: Path) -> None:
        lines = lamina("log", "tail", folder, "-n", "2").stdout.splitlines()
        assert ["record 28" in lines[0], "record 29" in lines[1]] == [True, True]

    def test_tail_follows_a_running_writer(self, folder: Path) -> None:
        command = [*LAMINA, "log", "tail", str(folder), "-n", "0", "-f", "--json"]
        environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
        with (
            Log.open(str(folder)) as log,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as tail,
        ):
            assert tail.stdout is not None
            time.sleep(1.5)
            for number in range(3):
                log.append(b"new %d" % number, until=Level.SYNCED)
            lines = [json.loads(tail.stdout.readline()) for _ in range(3)]
            tail.send_signal(signal.SIGINT)
            assert tail.wait(timeout=20) == 130
        assert [base64.b64decode(line["payload"]) for line in lines] == [b"new 0", b"new 1", b"new 2"]


class TestBadInput:
    @pytest.mark.parametrize("verb", ["stat", "dump", "verify", "repair", "tail"])
    def test_a_folder_that_is_not_there(self, tmp_path: Path, verb: str) -> None:
        result = lamina("log", verb, tmp_path / "nowhere")
        assert result.returncode == 1
        assert "nowhere" in result.stderr
        assert "check the path" in result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "nowhere").exists()

    @pytest.mark.parametrize("verb", ["stat", "dump", "verify", "repair"])
    def test_an_empty_folder_is_an_empty_log(self, tmp_path: Path, verb: str) -> None:
        result = lamina("log", verb, tmp_path)
        assert result.returncode == 0, result.stderr
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
    def test_a_folder_without_rights(self, folder: Path) -> None:
        folder.chmod(0)
        try:
            result = lamina("log", "verify", folder)
        finally:
            folder.chmod(0o700)
        assert result.returncode == 1
        assert "rights" in result.stderr

    def test_the_folder_above_the_logs(self, folder: Path) -> None:
        result = lamina("log", "verify", folder.parent)
        assert result.returncode == 2
        assert str(folder) in result.stderr

    def test_a_folder_and_a_link_with_the_names_of_log_files(self, folder: Path) -> None:
        (folder / "000000000.log").mkdir()
        (folder / "000000900.log").symlink_to(folder / "000000001.log")
        result = lamina("log", "verify", folder, "--json")
        assert result.returncode == 6
        damage = {found["file"]: found["reason"] for found in json.loads(result.stdout)["damage"]}
        assert "not a regular file" in damage["000000000.log"]
        assert "symbolic link" in damage["000000900.log"]

    def test_a_number_of_records_that_cannot_be(self, folder: Path) -> None:
        result = lamina("log", "tail", folder, "-n", "9" * 40)
        assert result.returncode == 2
        assert "Traceback" not in result.stderr

    def test_a_log_that_is_not_there(self, folder: Path) -> None:
        result = lamina("log", "tail", folder, "--log", "nope")
        assert result.returncode == 2
        assert "numbered" in result.stderr

    def test_a_file_of_another_kind(self, folder: Path) -> None:
        (folder / "000000000.log").write_bytes(b"\x7fELF" + bytes(100))
        result = lamina("log", "verify", folder, "--json")
        assert result.returncode == 6
        (found,) = json.loads(result.stdout)["damage"]
        assert (found["file"], found["offset"]) == ("000000000.log", 0)
        assert "unknown kind" in found["reason"]

    def test_foreign_names_are_reported_without_their_control_characters(self, folder: Path) -> None:
        (folder / "evil\x1b[31m\n.log").write_bytes(b"")
        result = lamina("log", "verify", folder)
        assert result.returncode == 0
        assert "\x1b" not in result.stdout

    def test_a_time_that_is_none(self, folder: Path) -> None:
        result = lamina("log", "dump", folder, "--since", "yesterday")
        assert result.returncode == 2
        assert "'yesterday' is not a time" in result.stderr

    def test_errors_are_json_for_programs(self, tmp_path: Path) -> None:
        result = lamina("log", "verify", tmp_path / "nowhere", "--json")
        assert json.loads(result.stdout)["error"]["code"] == "disk_error"


def test_help_names_every_verb() -> None:
    text = lamina("log", "--help").stdout
    for verb in ("stat", "dump", "verify", "repair", "tail"):
        assert verb in text


def test_it_is_a_command_and_a_module() -> None:
    for command in (LAMINA, [Path(sys.executable).with_name("lamina")]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.startswith("lamina")
