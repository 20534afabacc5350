"""``lamina config``: what holds, where it is from, what is wrong with it, and a file to begin with."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from integration.workq_server import LAMINA


def config(cwd: Path, *words: object, **around: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LAMINA_")}
    return subprocess.run(
        [LAMINA, "config", *map(str, words)],
        cwd=cwd,
        env={**environment, "LAMINA_PURE": os.environ.get("LAMINA_PURE", ""), **around},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_show_has_value_and_origin_of_each_and_no_secret(tmp_path: Path) -> None:
    (tmp_path / "lamina.toml").write_text('[jobs]\nsync = "os"\n[server]\npassword = "geheim"\n')
    shown = config(tmp_path, "show", LAMINA_RESP_LISTEN="off")
    assert shown.returncode == 0 and "geheim" not in shown.stdout + shown.stderr
    rows = {line.split("  ")[0]: line.split() for line in shown.stdout.splitlines()}
    assert rows["[jobs] sync"][2:4] == ['"os"', "lamina.toml"]
    assert rows["[resp] listen"][2:5] == ['"off"', "environment", "LAMINA_RESP_LISTEN"]
    assert rows["[topics] sync"][2:4] == ['"always"', "default"]
    assert rows["[server] password"][2:4] == ["set", "lamina.toml"]
    assert rows["[queues] password"][2:5] == ["not", "set", "default"]

    read = json.loads(config(tmp_path, "show", "--json").stdout)
    by_key = {row["key"]: row for row in read["settings"]}
    assert by_key["jobs.sync"] == {"key": "jobs.sync", "origin": "lamina.toml", "reload": False, "value": "os"}
    assert by_key["server.password"]["is_set"] is True and "value" not in by_key["server.password"]


def test_check_says_all_that_is_wrong_and_what_is_unwise(tmp_path: Path) -> None:
    assert config(tmp_path, "check").returncode == 0
    file = tmp_path / "other.toml"
    file.write_text('[job]\nx = 1\n[topics]\nsynk = 1\n[resp]\nlisten = "0.0.0.0:6380"')
    file.chmod(0o644)
    wrong = config(tmp_path, "check", "--config", file)
    assert wrong.returncode == 2
    assert [line.partition("; ")[0] for line in wrong.stderr.splitlines()] == [
        f"wrong: {file}, line 1: [job] is no section",
        f"wrong: {file}, line 4: [topics] synk is no setting",
    ]
    file.write_text('[resp]\nlisten = "0.0.0.0:6380"\n[workq]\nlisten = "[::]:1"\n[server]\npassword = "geheim"')
    wrong = config(tmp_path, "check", "--config", file, "--json")
    assert wrong.returncode == 2 and "geheim" not in wrong.stdout
    found = json.loads(wrong.stdout)
    assert len(found["problems"]) == 2 and all("in the clear" in problem for problem in found["problems"])
    assert "others may read it (mode 0644)" in found["warnings"][0]
    file.write_text('[resp]\nlisten = "0.0.0.0:6380"\n[server]\ninsecure = true\n[jobs]\nsync = "os"')
    unwise = config(tmp_path, "check", "--config", file)
    assert unwise.returncode == 0
    assert "warning: resp on 0.0.0.0:6380 is open to other machines without TLS" in unwise.stderr
    assert 'warning: [jobs] sync = "os": a power cut can take what was answered' in unwise.stderr


def test_check_finds_a_folder_of_a_later_version(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/lamina.json").write_text('{"format": 9}')
    found = config(tmp_path, "check", "--data", "data")
    assert found.returncode == 2 and "a data folder of version 9" in found.stderr


def test_the_example_is_a_file_that_changes_nothing(tmp_path: Path) -> None:
    before = json.loads(config(tmp_path, "show", "--json").stdout)
    made = config(tmp_path, "example")
    assert made.returncode == 0
    (tmp_path / "lamina.toml").write_text(made.stdout)
    assert config(tmp_path, "check").returncode == 0
    after = json.loads(config(tmp_path, "show", "--json").stdout)
    values = [[(row["key"], row.get("value")) for row in each["settings"]] for each in (before, after)]
    assert values[0] == values[1]
