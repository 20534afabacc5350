"""What deploy/ says is so: systemd reads the unit, and every command, flag and variable in it exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import click
import pytest

from lamina.cli.tree import COMMANDS, load
from lamina.config import SETTINGS

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNIT = (DEPLOY / "lamina.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()


def check_command(words: list[str]) -> None:
    """``lamina`` knows the command and each of its flags."""
    assert words[0] in COMMANDS, words
    command = load(words[0])
    if isinstance(command, click.Group) and len(words) > 1:
        command = command.commands[words[1]]
    known = {option for parameter in command.params for option in parameter.opts}
    assert {word for word in words if word.startswith("--")} <= known, words


def test_the_commands_of_both_exist_with_their_flags() -> None:
    (started,) = re.findall(r"^ExecStart=\S*/lamina (.*)$", UNIT, re.MULTILINE)
    check_command(started.split())
    (entry,) = re.findall(r'^ENTRYPOINT \["(.*)"\]$', CONTAINER, re.MULTILINE)
    assert entry == "lamina"
    check_command(re.findall(r'"([^"]+)"', re.findall(r"^CMD (.*)$", CONTAINER, re.MULTILINE)[0]))
    health = re.findall(r'"([^"]+)"', re.findall(r"^HEALTHCHECK.* CMD (.*)$", CONTAINER, re.MULTILINE)[0])
    assert health.pop(0) == "lamina"
    check_command(health)


def test_the_commands_of_the_page_exist() -> None:
    page = (DEPLOY / "README.md").read_text()
    found = re.findall(r"(?<![\w/-])lamina ((?:user add|config example|health)\b[^`;\n]*)", page)
    assert len(found) >= 4
    for words in found:
        check_command(words.split())


def test_every_variable_is_a_setting() -> None:
    known = {setting.variable for setting in SETTINGS.values()}
    used = set(re.findall(r"\bLAMINA_\w+", UNIT + CONTAINER + (DEPLOY / "README.md").read_text()))
    assert used and used <= known


def test_the_unit_is_told_when_the_server_is_ready_and_gives_it_little_else() -> None:
    pairs = [line.partition("=")[::2] for line in UNIT.splitlines() if "=" in line and not line.startswith("#")]
    settings = dict(pairs)
    assert re.findall(r"^\[(\w+)\]$", UNIT, re.MULTILINE) == ["Unit", "Service", "Install"]
    assert settings["Type"] == "notify" and settings["TimeoutStartSec"] == "infinity"
    assert settings["User"] not in ("", "root") and settings["NoNewPrivileges"] == "yes"
    assert settings["ProtectSystem"] == "strict" and settings["CapabilityBoundingSet"] == ""
    assert (settings["StateDirectory"], settings["StateDirectoryMode"]) == ("lamina", "0700")
    assert settings["RestartPreventExitStatus"] == "2", "the exit code of wrong settings"
    most = SETTINGS["server.max_connections"].default
    assert isinstance(most, int) and int(settings["LimitNOFILE"]) >= 2 * most + 20_000


def test_the_container_does_not_run_as_root_and_keeps_its_data_outside() -> None:
    stages = re.findall(r"^FROM (\S+)", CONTAINER, re.MULTILINE)
    assert len(stages) == 2 and stages[0] == stages[1]
    last = CONTAINER.rpartition("FROM ")[2]
    assert re.search(r"^USER lamina$", last, re.MULTILINE) and "useradd --system" in last
    assert re.search(r"^VOLUME /data$", last, re.MULTILINE) and "LAMINA_DATA=/data" in last
    copied = [
        word for line in re.findall(r"^COPY (?!--from)(.*) \S+$", CONTAINER, re.MULTILINE) for word in line.split()
    ]
    assert copied and all((DEPLOY.parent / name).exists() for name in copied)


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "lamina.service"
    # It looks whether the program is there.
    unit.write_text(UNIT.replace("/usr/local/bin/lamina", shutil.which("true") or "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False
    )
    about_it = [line for line in done.stderr.splitlines() if "lamina.service" in line]
    assert about_it == []
