"""Compiled twins stand in for their source: all of a package or none, and never those of an older source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SOURCES = Path(__file__).parents[2] / "src" / "lamina"
TWINS = sorted(path for path in SOURCES.rglob("_*.so") if path.name != "_speed" and not path.name.startswith("_speed."))


@pytest.mark.parametrize("twin", TWINS, ids=lambda path: path.name.split(".")[0])
def test_a_twin_is_not_older_than_its_source(twin: Path) -> None:
    source = twin.parent / f"{twin.name.split('.')[0].lstrip('_')}.py"
    assert twin.stat().st_mtime >= source.stat().st_mtime, "run make: the compiled modules are of an older source"


def which(environment: dict[str, str]) -> str:
    code = "from lamina.engines.jobs import codec, core, engine; print(codec.__name__, core.State, engine.JobEngine)"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout


def test_the_environment_chooses_the_python_source() -> None:
    assert "_" not in which({"LAMINA_PURE": "1"}).replace("__", "")


@pytest.mark.skipif(not TWINS, reason="nothing was compiled here")
def test_the_twins_stand_in_for_their_source() -> None:
    assert which({}).count("jobs._") == 3
