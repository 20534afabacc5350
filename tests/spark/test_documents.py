"""The tutorial of Spark and the notebook do as they say: each as a program of its own, in an empty folder."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def run(script: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_the_tutorial(tmp_path: Path) -> None:
    page = (ROOT / "docs/tutorial-spark.md").read_text()
    inside, typed, *_, table = blocks((ROOT / "docs/tutorial.md").read_text())  # its steps 2 and 3: tests/docs
    said = run("\n".join([inside, typed, table.replace("spark.stop()", ""), *blocks(page)]), tmp_path)
    assert "|coffee|" in said.replace(" ", "")
    for words in re.findall(r"^lamina (pipeline [^\n]*?)(?:  +.*)?$", page, re.MULTILINE):
        command = words.split()
        done = subprocess.run(
            [sys.executable, "-m", "lamina", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (words, done.stderr)
    assert (tmp_path / "report.html").exists() and (tmp_path / "back" / "topics" / "orders").is_dir()


def test_the_notebook(tmp_path: Path) -> None:
    shown = run((ROOT / "examples/notebook.py").read_text(), tmp_path)
    assert "bytes of the last hour:" in shown and "|invoice|" in shown.replace(" ", "")
