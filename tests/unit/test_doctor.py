"""``lamina doctor``: each thing that can be wrong is found, told with what to do, and nothing is changed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import lamina
from lamina.cli import doctor_machine
from lamina.cli.doctor import doctor
from lamina.cli.doctor_finding import NOTE, OK, PROBLEM, WARNING, Finding
from lamina.cli.doctor_folder import look
from lamina.log import consumers
from lamina.log.files.real import RealFiles
from lamina.testing import ManualClock


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with something of everything, closed in order."""
    folder = tmp_path_factory.mktemp("model") / "data"
    with lamina.open(folder) as opened:
        for number in range(5):
            opened.jobs.add("mail", b"%d" % number)
            opened.topic("orders").publish({"number": str(number)})
        opened.queues.create()
        with opened.store.session() as session:
            session.put(1, b"a", b"b")
    for reserve in [*folder.rglob("reserve"), *folder.rglob(".reserve")]:
        reserve.unlink()
    return folder


@pytest.fixture
def data(model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(model, tmp_path / "data"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def found(folder: Path, level: str, *, deep: bool = False) -> list[Finding]:
    """What is of this level; looking has changed nothing."""
    before = contents(folder)
    findings = list(look(str(folder), deep=deep))
    assert contents(folder) == before
    return [finding for finding in findings if finding.level == level]


def texts(findings: list[Finding]) -> str:
    return "\n".join(f"{finding.about}: {finding.text} -> {finding.do}" for finding in findings)


def newest(folder: Path, pattern: str) -> Path:
    return max(path for path in folder.rglob(pattern) if path.is_file() and path.suffix != ".index")


@pytest.mark.parametrize("deep", [False, True])
def test_a_folder_that_is_well_has_nothing_to_warn_of(data: Path, deep: bool) -> None:
    assert texts(found(data, WARNING, deep=deep) + found(data, PROBLEM, deep=deep)) == ""
    assert any(finding.about == "logs" for finding in found(data, OK, deep=deep))


def test_a_folder_that_is_not_there_is_only_noted(tmp_path: Path) -> None:
    assert "is not there" in texts(found(tmp_path / "nowhere", NOTE))


def test_a_folder_of_something_else_is_told(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    (tmp_path / "thesis.txt").write_text("x")
    assert "holds no data of lamina" in texts(found(tmp_path, WARNING))


def test_a_later_version_is_a_problem(data: Path) -> None:
    (data / "lamina.json").write_text('{"format": 99}')
    assert "version 99" in texts(found(data, PROBLEM))


def test_what_others_may_read_is_told_with_the_command(data: Path) -> None:
    data.chmod(0o755)
    said = texts(found(data, WARNING))
    assert "is open to others (mode 0755)" in said and f"chmod go-rwx {data}" in said


def test_who_has_it_open_is_told(data: Path) -> None:
    with lamina.open(data) as opened:
        opened.jobs.add("mail", b"more")
        said = texts(found(data, NOTE))
    assert "jobs: " in said and "is writing there" in said and str(os.getpid()) in said


@pytest.mark.parametrize("deep", [False, True])
def test_a_torn_tail_is_a_note_for_a_crash_leaves_it(data: Path, deep: bool) -> None:
    path = newest(data / "jobs", "*.log")
    path.with_suffix(".log.index").unlink(missing_ok=True)
    with path.open("ab") as file:
        file.write(b"\x17half of a record")
    assert "torn tail" in texts(found(data, NOTE, deep=deep))
    assert texts(found(data, PROBLEM, deep=deep)) == ""


def spoil(path: Path, at: int) -> None:
    bytes_ = bytearray(path.read_bytes())
    bytes_[at] ^= 0xFF
    path.write_bytes(bytes_)


def test_damage_is_a_problem_with_its_place_and_the_way_out(data: Path) -> None:
    path = newest(data / "topics", "*.dat")
    for index in data.rglob("*.index"):
        index.unlink()
    spoil(path, 40)
    for deep in (False, True):
        said = texts(found(data, PROBLEM, deep=deep))
        assert f"{path.name}, byte " in said and f"lamina log repair {path.parent}" in said


def test_damage_in_the_middle_needs_a_deep_look(data: Path) -> None:
    spoil(newest(data / "store", "pwal_*"), 30)
    assert "lamina store repair" in texts(found(data, PROBLEM, deep=True))


def test_a_file_of_another_kind_is_a_problem(data: Path) -> None:
    path = newest(data / "jobs", "*.log")
    path.write_bytes(b"GIF89a" + bytes(100))
    assert path.name in texts(found(data, PROBLEM))


def test_records_of_the_future_are_told(tmp_path: Path) -> None:
    ahead = ManualClock(time.time_ns() + 3600 * 10**9)
    with lamina.open(tmp_path / "data", clock=ahead) as opened:
        opened.jobs.add("mail", b"")
    said = texts(found(tmp_path / "data", WARNING))
    assert "in the future" in said and ("59m" in said or "1h" in said)


def test_what_crashes_and_jobs_left_is_noted(data: Path) -> None:
    jobs = data / "jobs"
    (jobs / "000000001.log.rw").write_bytes(b"half")
    (jobs / "_tmp" / "compact-1").mkdir(parents=True)
    (jobs / "_tmp" / "compact-1" / "part").write_bytes(bytes(2048))
    (jobs / "000000001.log.torn-20261115T061700.123456789Z").write_bytes(b"tail")
    (jobs / "notes.txt").write_text("mine")
    said = texts(found(data, NOTE))
    assert "000000001.log.rw: left behind by a crash" in said
    assert "_tmp/ of a pipeline job (2.0 KiB)" in said
    assert "torn tails" in said and "notes.txt" in said
    (jobs / "000000001.log.broken-20261115T061700.123456789Z").write_bytes(b"bad")
    assert "damage that was taken out" in texts(found(data, WARNING))


def test_a_consumer_that_is_far_behind_is_told(data: Path) -> None:
    files, folder, now = RealFiles(), str(data / "jobs"), time.time_ns()
    consumers.save(files, folder, "export", now, now + 10**18)
    assert "consumer export has read up to" in texts(found(data, NOTE))
    consumers.save(files, folder, "lost", now - 30 * 86_400 * 10**9, now + 10**18)
    said = texts(found(data, WARNING))
    assert "consumer lost" in said and "--remove lost" in said and "export" not in said


def test_users_that_nobody_can_read_are_a_problem(data: Path) -> None:
    assert "whoever reaches a door may do everything" in texts(found(data, NOTE))
    users = data / "users.json"
    users.write_text("{}")
    users.chmod(0o600)
    assert "users" in texts(found(data, PROBLEM))


# -- the machine -------------------------------------------------------------------------------------------------------


def test_the_disk_below_a_folder_is_looked_at_also_if_the_folder_is_not_there(tmp_path: Path) -> None:
    findings = list(doctor_machine.look_below(str(tmp_path / "a" / "b")))
    assert {finding.about for finding in findings} >= {"disk", "sync"}
    assert list(tmp_path.iterdir()) == []


def test_a_disk_with_less_room_than_the_low_water_mark_is_a_problem(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor_machine, "part_of", lambda disk, wanted: disk)
    findings = list(doctor_machine.look_below(str(tmp_path)))
    assert "takes nothing new" in texts([finding for finding in findings if finding.level == PROBLEM])


@pytest.mark.parametrize(
    ("kind", "level"),
    [("ext4", OK), ("xfs", OK), ("nfs4", WARNING), ("tmpfs", WARNING), ("overlay", WARNING)],
)
def test_the_kind_of_file_system_matters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, level: str
) -> None:
    monkeypatch.setattr(doctor_machine, "file_system_of", lambda folder: kind)
    (finding,) = (one for one in doctor_machine.look_below(str(tmp_path)) if one.about == "file system")
    assert finding.level == level and kind in finding.text


def test_the_kind_is_read_from_the_mounts(tmp_path: Path) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"22 1 0:1 / /proc rw - proc proc rw\n36 22 {os.major(device)}:{os.minor(device)} / / rw shared:1 - zfs a rw\n"
    )
    assert doctor_machine.file_system_of(str(tmp_path), str(mounts)) == "zfs"
    mounts.write_text("nonsense\n")
    assert doctor_machine.file_system_of(str(tmp_path), str(mounts)) is None
    assert doctor_machine.file_system_of(str(tmp_path), str(tmp_path / "gone")) is None


def test_a_slow_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for milliseconds, level in ((0.5, OK), (45.0, WARNING), (0.001, NOTE), (None, NOTE)):
        monkeypatch.setattr(doctor_machine, "measure_sync", lambda folder, said=milliseconds: said)
        (finding,) = (one for one in doctor_machine.look_below(str(tmp_path)) if one.about == "sync")
        assert finding.level == level


def test_few_file_handles_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for hard, level in ((1 << 20, OK), (20_000, NOTE), (1024, WARNING)):
        monkeypatch.setattr(resource, "getrlimit", lambda which, most=hard: (min(1024, most), most))
        (finding,) = (one for one in doctor_machine.look() if one.about == "file handles")
        assert finding.level == level


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def machine_is_well(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What the machine of the tests is like must not decide about exit codes."""
    if "exits" in request.node.name:
        monkeypatch.setattr(doctor_machine, "look", lambda: iter([Finding(OK, "python", "fine")]))
        monkeypatch.setattr(doctor_machine, "look_below", lambda folder, *room: iter([]))
    yield


def run(*arguments: object) -> Result:
    return CliRunner().invoke(doctor, [str(word) for word in arguments], standalone_mode=False)


def said(*arguments: object) -> tuple[int, dict[str, Any]]:
    result = run(*arguments, "--json")
    assert result.exception is None, result.exception
    return result.return_value, json.loads(result.output)


def test_it_exits_with_0_5_or_6(data: Path) -> None:
    code, report = said("--data", data)
    assert (code, report["worst"]) == (0, "note"), report
    data.chmod(0o755)
    code, report = said("--data", data)
    assert (code, report["worst"]) == (5, "warning")
    (data / "lamina.json").write_text("?")
    code, report = said("--data", data)
    assert (code, report["worst"]) == (6, "problem")
    assert {"level", "about", "text", "do"} == report["findings"][0].keys()


def test_a_setting_that_cannot_be_exits_with_6(data: Path, tmp_path: Path) -> None:
    config = tmp_path / "lamina.toml"
    config.write_text("[jobs]\nsynk = 1\n")
    code, report = said("--data", data, "--config", config)
    assert code == 6
    assert any(finding["about"] == "settings" and "synk" in finding["text"] for finding in report["findings"])


def test_a_certificate_that_is_none_exits_with_6(data: Path, tmp_path: Path) -> None:
    cert = tmp_path / "cert.pem"
    cert.write_text("no")
    config = tmp_path / "lamina.toml"
    config.write_text(f'[server]\ntls_cert = "{cert}"\ntls_key = "{cert}"\n')
    code, report = said("--data", data, "--config", config)
    assert code == 6
    assert any(finding["about"] == "certificate" for finding in report["findings"])


def test_people_get_lines_with_what_to_do_and_it_exits_the_same(data: Path) -> None:
    data.chmod(0o755)
    result = run("--data", data)
    assert result.return_value == 5
    assert "warning rights" in result.output and "→ chmod go-rwx" in result.output
