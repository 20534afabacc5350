"""Holes in the net itself: each planted mistake of the jobs engine (jobs_mutants.py) must be caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crash.jobs_mutants import MUTANTS
from crash.mutants import Mutant

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package to spoil."""
    shutil.copytree(ROOT / "src" / "lamina", tmp_path / "lamina", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    return tmp_path


def run_test(sources: Path, test: str) -> subprocess.CompletedProcess[str]:
    # Compiled modules would run what was compiled, not what is written.
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "LAMINA_PURE": "1"}
    environment |= {"LAMINA_DISKS": "2000"}
    environment.pop("LAMINA_CAMPAIGN", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_still_fits(mutant: Mutant) -> None:
    text = (ROOT / "src" / "lamina" / mutant.file).read_text()
    assert text.count(mutant.old) == 1, f"{mutant.file} no longer holds what this mutant edits, or holds it twice"


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    MUTANTS if os.environ.get("LAMINA_CAMPAIGN") else MUTANTS[::4],
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_the_suite_catches(mutant: Mutant, sources: Path) -> None:
    path = sources / "lamina" / mutant.file
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    for test in mutant.tests:
        result = run_test(sources, test)
        if result.returncode:
            break
    assert result.returncode == 1, f"not caught: {mutant.name}\n{result.stdout[-3000:]}{result.stderr[-1000:]}"
    assert "\nFAILED tests/" in result.stdout, "the tests did not fail, they could not be run"


def test_the_copy_is_what_the_tests_run_against(sources: Path) -> None:
    (sources / "lamina" / "engines" / "jobs" / "core.py").write_text("raise RuntimeError('the copy was imported')\n")
    result = run_test(sources, "tests/crash/test_jobs_power_loss.py")
    assert "the copy was imported" in result.stdout
