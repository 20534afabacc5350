"""Folders that former versions wrote open in this one, and hold what they held, however they ended.

Who changes a format adds a folder that the version before wrote, by written.py.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from golden.written import seen
from integration.lamina_server import LaminaServer

FOLDERS = sorted(Path(__file__).parent.glob("folders/*/*.tar.gz"))
every_folder = pytest.mark.parametrize(
    "packed", FOLDERS, ids=lambda path: f"{path.parent.name}-{path.name.split('.')[0]}"
)


@pytest.fixture
def folder(packed: Path, tmp_path: Path) -> Path:
    with tarfile.open(packed) as tar:
        tar.extractall(tmp_path, filter="data")
    folder = tmp_path / "data"
    for each in [folder, *folder.rglob("*")]:
        each.chmod(0o700 if each.is_dir() else 0o600)
    return folder


def found(folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    """What it held, and what is found in a copy of it now."""
    expected = json.loads((folder.parent / "expected.json").read_text())
    copy = folder.parent / "copy"
    shutil.copytree(folder, copy)
    now = seen(copy, expected["store"], expected["now_ns"], expected["known"])
    shutil.rmtree(copy)
    return expected["seen"], json.loads(json.dumps(now))


def test_there_are_folders_of_each_store_and_each_end() -> None:
    assert {path.name for path in FOLDERS} >= {
        f"{store}-{end}.tar.gz" for store in ("memory", "journal") for end in ("stopped", "killed")
    }


@every_folder
def test_it_holds_what_it_held(folder: Path) -> None:
    before, now = found(folder)
    for part, expected in before.items():
        assert now[part] == expected, part


@every_folder
def test_a_server_starts_on_it_and_loses_nothing(folder: Path) -> None:
    expected = json.loads((folder.parent / "expected.json").read_text())
    for _ in range(2):
        with LaminaServer(folder, "--queues", expected["store"], "--segment-bytes", 4096) as server:
            server.stop()
    before, now = found(folder)
    assert now["topics"] == before["topics"]
    assert now["store"]["entries"] == before["store"]["entries"]
    # Jobs and messages of queues have an end: by the clock of a real server they go, a month after they were written.


@every_folder
def test_the_tools_find_it_whole(folder: Path) -> None:
    words = [sys.executable, "-m", "lamina", "doctor", "--data", str(folder), "--deep"]
    looked = subprocess.run(words, capture_output=True, text=True)
    assert looked.returncode in (0, 5), looked.stdout + looked.stderr  # 6: something is broken
