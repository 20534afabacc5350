"""Folders of the real limestone library become stores that hold what was promised: import and export, as programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "limestone"
CASES = sorted(case.parent.name for case in GOLDEN.glob("*/expected.json")) if GOLDEN.is_dir() else []

pytestmark = pytest.mark.skipif(not CASES, reason="no golden folders of limestone here (set LAMINA_GOLDEN)")


def lamina_store(*arguments: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "lamina", "store", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def entries_of(lines: list[dict[str, Any]]) -> list[tuple[int, bytes, bytes]]:
    return [(line["storage"], bytes.fromhex(line["key"]), bytes.fromhex(line["value"])) for line in lines]


@pytest.mark.parametrize("case", CASES)
def test_a_folder_of_limestone_becomes_a_store_with_what_it_promised(case: str, tmp_path: Path) -> None:
    correct = json.loads((GOLDEN / case / "expected.json").read_text())["correct"]
    data = tmp_path / "data"
    imported = lamina_store("import", GOLDEN / case / "dir", "--to", data, "--json")
    if correct.get("open") == "refused":
        assert imported.returncode == 6, imported.stderr
        assert not data.exists()
        return
    report = json.loads(imported.stdout)
    is_clean = not report["repairs"] and not report["losses"] and not report["blobs"]
    assert imported.returncode == (0 if is_clean else 5), imported.stderr
    exported = lamina_store("export", data, "--jsonl")
    assert exported.returncode == 0, exported.stderr
    found = entries_of([json.loads(line) for line in exported.stdout.splitlines()])
    assert found == sorted(found)
    assert len(found) == report["entries"]
    if correct.get("recoverable") is False:
        assert report["losses"]
        return
    assert not report["losses"]
    assert found == sorted(entries_of(correct["entries"]))
    assert report["epoch"] == correct["max_epoch"]


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("01")])
def test_an_imported_store_goes_on_behind_its_last_epoch(case: str, tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert lamina_store("import", GOLDEN / case / "dir", "--to", data).returncode == 0
    before = lamina_store("export", data).stdout.splitlines()
    written = json.loads(lamina_store("put", data, 1, "alpha", "newer", "--json").stdout)
    assert written["epoch"] > json.loads((GOLDEN / case / "expected.json").read_text())["correct"]["max_epoch"]
    assert lamina_store("get", data, 1, "alpha").stdout == "newer\n"
    assert lamina_store("compact", data).returncode == 0
    after = lamina_store("export", data).stdout.splitlines()
    assert len(after) == len(before)
    assert len(set(after) - set(before)) == 1
    assert lamina_store("verify", data).returncode == 0


@pytest.mark.parametrize("case", [case for case in CASES if case.startswith("22")])
def test_blobs_that_are_not_imported_are_told_with_exit_code_5(case: str, tmp_path: Path) -> None:
    imported = lamina_store("import", GOLDEN / case / "dir", "--to", tmp_path / "data")
    assert imported.returncode == 5
    told = " ".join(imported.stderr.split())
    assert "2 references to blobs: the values were imported, the files of the blobs were not: keep" in told
    assert json.loads(lamina_store("export", tmp_path / "data", "--jsonl").stdout.splitlines()[0])["storage"] == 1
