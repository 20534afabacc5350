"""Holes in the net itself: each planted mistake (mutants.py) must be caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crash.mutants import MUTANTS, Mutant

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package to spoil."""
    shutil.copytree(ROOT / "src" / "lamina", tmp_path / "lamina", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    return tmp_path


def run_tests(sources: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1"}
    environment |= {"LAMINA_DISKS": "3000", "LAMINA_PURE": "1" if "test_every_byte" in tests[0] else "0"}
    environment.pop("LAMINA_CAMPAIGN", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=200)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_the_suite_catches(mutant: Mutant, sources: Path) -> None:
    path = sources / "lamina" / "log" / mutant.file
    text = path.read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} no longer holds what this mutant edits, or holds it twice"
    path.write_text(text.replace(mutant.old, mutant.new))
    result = run_tests(sources, mutant.tests)
    assert result.returncode == 1, f"not caught: {mutant.name}\n{result.stdout[-3000:]}{result.stderr[-1000:]}"
    assert "\nFAILED tests/" in result.stdout, "the tests did not fail, they could not be run"


def test_the_copy_is_what_the_tests_run_against(sources: Path) -> None:
    (sources / "lamina" / "log" / "kernel.py").write_text("raise RuntimeError('the copy was imported')\n")
    result = run_tests(sources, ("tests/unit/test_writer.py",))
    # The guard of loops (conftest.py) imports the kernel before anything is collected: pytest tells that elsewhere.
    assert "the copy was imported" in result.stdout + result.stderr
