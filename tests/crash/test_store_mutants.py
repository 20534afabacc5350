"""Holes in the net itself: each planted mistake of the store (store_mutants.py) must be caught."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crash.mutants import Mutant
from crash.store_mutants import MUTANTS

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A copy of the package to spoil."""
    shutil.copytree(ROOT / "src" / "lamina", tmp_path / "lamina", ignore=shutil.ignore_patterns("__pycache__", "*.c"))
    return tmp_path


def run_test(sources: Path, test: str) -> subprocess.CompletedProcess[str]:
    # Compiled modules would run what was compiled, not what is written.
    environment = {**os.environ, "PYTHONPATH": str(sources), "PYTHONDONTWRITEBYTECODE": "1", "LAMINA_PURE": "1"}
    environment |= {"LAMINA_SHRINK": "0"}  # that it fails is enough
    environment.pop("LAMINA_CAMPAIGN", None)
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", test]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=300)


def place(sources: Path, mutant: Mutant) -> Path:
    """The one file that holds what the mutant edits, once."""
    paths = [path for path in sorted((sources / "lamina" / mutant.file).glob("*.py")) if mutant.old in path.read_text()]
    assert len(paths) == 1, f"{mutant.name}: {len(paths)} files of {mutant.file} hold what this mutant edits"
    assert paths[0].read_text().count(mutant.old) == 1, f"{mutant.name}: {paths[0].name} holds it twice"
    return paths[0]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name.replace(" ", "-"))
def test_each_mutant_still_fits(mutant: Mutant) -> None:
    place(ROOT / "src", mutant)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mutant",
    MUTANTS if os.environ.get("LAMINA_CAMPAIGN") else MUTANTS[::6],
    ids=lambda mutant: mutant.name.replace(" ", "-"),
)
def test_the_suite_catches(mutant: Mutant, sources: Path) -> None:
    path = place(sources, mutant)
    text = path.read_text()
    path.write_text(text.replace(mutant.old, mutant.new))
    for test in mutant.tests:
        result = run_test(sources, test)
        if result.returncode:
            break
    assert result.returncode == 1, f"not caught: {mutant.name}\n{result.stdout[-3000:]}{result.stderr[-1000:]}"
    assert "\nFAILED tests/" in result.stdout, "the tests did not fail, they could not be run"


def test_the_copy_is_what_the_tests_run_against(sources: Path) -> None:
    (sources / "lamina" / "engines" / "store" / "codec.py").write_text("raise RuntimeError('the copy was imported')\n")
    result = run_test(sources, "tests/crash/test_store_power_loss.py")
    assert "the copy was imported" in result.stdout
