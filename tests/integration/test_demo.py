"""``lamina demo``, run as a program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from waiting import wait_until

LAMINA = [sys.executable, "-m", "lamina"]


def test_nothing_is_lost_and_nothing_but_the_page_is_left(tmp_path: Path) -> None:
    command = [*LAMINA, "demo", "--no-spark", "--kills", "2", "--json"]
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary)}
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=300, cwd=tmp_path, env=environment
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert [each["kind"] for each in found["verdicts"]] == ["jobs", "topics", "queues", "store"]
    for verdict in found["verdicts"]:
        assert verdict["acknowledged"] > 0 and (verdict["lost"], verdict["back"]) == (0, 0)
    assert found["problems"] == [] and len(found["kills"]) == 2
    assert found["past"]["is_right"] is True
    assert found["compacted"]["live"] > 0  # the store may have compacted most of it by itself before
    page = tmp_path / "lamina-demo.html"
    assert found["report"]["path"] == str(page) and "<svg" in page.read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lamina-demo.html", "tmp"]
    assert list(temporary.iterdir()) == []
    assert servers_of(temporary) == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_no_server_behind(tmp_path: Path, how: signal.Signals) -> None:
    command = [*LAMINA, "demo", "--no-spark", "--keep", str(tmp_path / "kept"), "--report", str(tmp_path / "page.html")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as demo:
        wait_until(lambda: servers_of(tmp_path) != [])
        demo.send_signal(how)
        complaints = demo.communicate(timeout=120)[1]
    assert (demo.returncode, complaints.strip()) == (130, "")
    assert servers_of(tmp_path) == []


def test_a_folder_that_is_not_new_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("keep this")
    command = [*LAMINA, "demo", "--keep", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 2 and "is not empty" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def servers_of(folder: Path) -> list[str]:
    """Processes that serve something below the folder."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = path.read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if "serve" in words and any(word.startswith(str(folder)) for word in words):
            found.append(path.parent.name)
    return found
