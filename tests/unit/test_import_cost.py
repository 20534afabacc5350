"""Importing lamina is cheap, and its public names are a list one can read."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

import lamina

PUBLIC = [
    "ALWAYS",
    "OS",
    "Data",
    "Level",
    "Log",
    "LogOptions",
    "QueueOptions",
    "Reader",
    "Record",
    "Remote",
    "StoreOptions",
    "__version__",
    "connect",
    "errors",
    "interval",
    "open",
]
HEAVY = [
    "click",
    "rich",
    "pyspark",
    "pyarrow",
    "starlette",
    "uvicorn",
    "msgspec",
    "asyncio",
    "crc32c",
    "ctypes",
]
MEASURE = """
import json, sys, time
before = set(sys.modules)
started = time.perf_counter()
import lamina
seconds = time.perf_counter() - started
print(json.dumps([seconds, sorted(set(sys.modules) - before)]))
"""


def fresh_import() -> tuple[float, list[str]]:
    """Seconds and modules that importing lamina takes in a new process."""
    done = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True, text=True)
    seconds, modules = json.loads(done.stdout)
    return seconds, modules


def test_importing_lamina_takes_less_than_50_ms() -> None:
    assert min(fresh_import()[0] for _ in range(5)) < 0.050


def test_importing_lamina_loads_nothing_heavy() -> None:
    loaded = {module.partition(".")[0] for module in fresh_import()[1]}
    assert loaded.isdisjoint(HEAVY)


def test_the_public_names_are_the_ones_listed_here() -> None:
    assert lamina.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_resolves(name: str) -> None:
    assert getattr(lamina, name) is not None


def test_a_name_that_is_not_public_does_not_resolve() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        lamina.no_such_name  # noqa: B018


def test_dir_shows_the_public_names() -> None:
    assert sorted(dir(lamina)) == sorted(PUBLIC)
