"""The benchmarks run and write what they promise. Their figures are not looked at: a test machine is busy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration import redis_peer

ROOT = Path(__file__).parents[2]


def bench(*words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "bench", *words], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_json_has_a_row_for_each_case(tmp_path: Path) -> None:
    out, files = tmp_path / "out.json", tmp_path / "files"
    words = ["--case", "append_100B_x1000_os", "--case", "scan_200B"]

    shown = bench("--scale", "0.01", "--dir", str(files), "--json", str(out), *words)

    rows = json.loads(out.read_text())
    assert [row["case"] for row in rows] == ["append_100B_x1000_os", "scan_200B"]
    for row in rows:
        assert isinstance(row["unit"], str)
        assert all(row[key] > 0 for key in ("ours", "base", "ratio"))
    assert shown == ""
    assert list(files.iterdir()) == []


def test_list_names_every_case_without_running_any() -> None:
    names = [line.split()[0] for line in bench("--list").splitlines()]

    assert {"append_1KiB_x10_always", "scan_200B_memory", "group_commit_64", "open_killed_4GB", "asof_4GB"} <= set(
        names
    )
    assert len(names) == len(set(names))


def test_compare_flags_what_changed_by_more_than_a_tenth(tmp_path: Path) -> None:
    before, after = tmp_path / "a.json", tmp_path / "b.json"
    before.write_text(json.dumps([{"case": "same", "ratio": 0.50}, {"case": "slower", "ratio": 0.50}]))
    after.write_text(json.dumps([{"case": "same", "ratio": 0.52}, {"case": "slower", "ratio": 0.40}]))

    same, slower = bench("compare", str(before), str(after)).splitlines()[1:]

    assert "WORSE" not in same
    assert "WORSE" in slower


@pytest.mark.skipif(redis_peer.PROGRAM is None, reason=redis_peer.MISSING)
def test_topics_are_compared_with_a_redis(tmp_path: Path) -> None:
    out, files = tmp_path / "out.json", tmp_path / "files"
    cases = ["topics_xadd_always_P16", "topics_fan_out_200", "topics_xread_files", "topics_restart_2GB_redis"]

    bench("--scale", "0.001", "--dir", str(files), "--json", str(out), *(f"--case={case}" for case in cases))

    rows = {row["case"]: row for row in json.loads(out.read_text())}
    assert list(rows) == cases
    assert all(row["ratio"] > 0 for row in rows.values())
    assert rows["topics_xadd_always_P16"]["bare fdatasync us"] > 0
    assert rows["topics_xread_files"]["entries"] % 1000 == 0
    assert list(files.iterdir()) == []


def test_what_needs_a_redis_is_skipped_with_a_line_where_there_is_none(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    words = ["--case", "topics_xadd", "--dir", str(tmp_path / "files"), "--json", str(out)]

    done = subprocess.run(
        [sys.executable, "-m", "bench", *words],
        cwd=ROOT,
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    lines = done.stderr.splitlines()
    assert done.returncode == 0, done.stderr
    assert len(lines) == 4
    assert all("skipped, needs redis-server" in line for line in lines)
    assert json.loads(out.read_text()) == []
