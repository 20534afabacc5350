"""The benchmarks of the console run and write what they promise. Their figures are not looked at."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from lamina.server.http.console.page import Menu

ROOT = Path(__file__).parents[2]


def bench(name: str, folder: Path, *words: str) -> Any:
    out = folder / "out.json"
    command = [sys.executable, "-m", f"bench.{name}", *words, "--json", str(out), "--dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (0, 1), done.stderr  # 1: a bar was missed
    assert [path.name for path in folder.iterdir()] == ["out.json"], "nothing stays of the data"
    return json.loads(out.read_text())


def test_what_the_console_costs(tmp_path: Path) -> None:
    found = bench("console_cost", tmp_path, "--rounds", "1", "--seconds", "0.3")
    assert found["ratio"] > 0 and found["without_per_s"] > 0 and found["with_per_s"] > 0
    assert found["tabs"] == ["/", "/log", "/jobs", "/topics", "/queues"]


def test_how_long_pages_take(tmp_path: Path) -> None:
    rows = bench("console_size", tmp_path, "--scale", "0.001", "--times", "1")
    assert {row["page"] for row in rows} >= {path for _, path, *_ in Menu.ENTRIES}
    assert all(row["p95_ms"] > 0 and row["load_per_s"] > 0 for row in rows)
