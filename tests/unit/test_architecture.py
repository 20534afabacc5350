"""Rules about the source that no reader has to check by hand."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import lamina

ROOT = Path(lamina.__file__).parent
LONGEST = 650  # one idea told well may be that long: what must be read together stands together
DISK_MODULES = {"os", "io", "pathlib", "shutil", "fcntl"}


def sources(*folders: str) -> list[str]:
    return sorted(str(path.relative_to(ROOT)) for folder in folders for path in (ROOT / folder).rglob("*.py"))


def calls_the_system(name: str) -> bool:
    """The place for it: the disk itself, and kernel.py for one environment variable."""
    return name.startswith("log/files/") or name == "log/kernel.py"


KERNEL_AND_ENGINES = sources("log", "engines")
SYSTEM_FREE = [name for name in KERNEL_AND_ENGINES if not calls_the_system(name)]
WRITTEN_BY_HAND = sorted(
    str(path.relative_to(ROOT)) for suffix in ("py", "pyi", "pyx", "h") for path in ROOT.rglob(f"*.{suffix}")
)


@cache
def tree(name: str) -> ast.Module:
    return ast.parse((ROOT / name).read_text())


def imported(name: str) -> Iterator[str]:
    """Top-level modules that a source file imports, anywhere in it."""
    for node in ast.walk(tree(name)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def called(name: str) -> set[str]:
    """Plain names that a source file calls, anywhere in it."""
    calls = (node.func for node in ast.walk(tree(name)) if isinstance(node, ast.Call))
    return {function.id for function in calls if isinstance(function, ast.Name)}


def test_there_is_something_to_check() -> None:
    assert "log/writer.py" in SYSTEM_FREE


@pytest.mark.parametrize("name", SYSTEM_FREE)
def test_only_the_disk_imports_what_reaches_the_disk(name: str) -> None:
    assert DISK_MODULES.isdisjoint(imported(name))


@pytest.mark.parametrize("name", KERNEL_AND_ENGINES)
def test_nobody_calls_the_builtin_open(name: str) -> None:
    assert "open" not in called(name)


def test_the_kernel_switch_uses_the_system_only_for_its_environment() -> None:
    attributes = (node for node in ast.walk(tree("log/kernel.py")) if isinstance(node, ast.Attribute))
    used = {node.attr for node in attributes if isinstance(node.value, ast.Name) and node.value.id == "os"}
    assert used == {"environ"}


@pytest.mark.parametrize("name", WRITTEN_BY_HAND)
def test_no_source_file_is_longer_than_650_lines(name: str) -> None:
    assert len((ROOT / name).read_text().splitlines()) <= LONGEST


def compiled_as_written() -> list[str]:
    """The modules that setup.py compiles from their Python source."""
    tree = ast.parse((ROOT.parents[1] / "setup.py").read_text())
    (table,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "AS_WRITTEN"
    )
    packages: dict[str, tuple[str, ...]] = ast.literal_eval(table)
    folders = {package: package.removeprefix("lamina.").replace(".", "/") for package in packages}
    return [f"{folders[package]}/{name}.py" for package, names in packages.items() for name in names]


def waits_in_a_handler(name: str) -> list[int]:
    """Lines of coroutines that wait while they handle an error."""
    handlers = (node for node in ast.walk(tree(name)) if isinstance(node, ast.ExceptHandler))
    return [node.lineno for handler in handlers for node in ast.walk(handler) if isinstance(node, ast.Await)]


@pytest.mark.parametrize("name", compiled_as_written())
def test_no_compiled_coroutine_waits_while_it_handles_an_error(name: str) -> None:
    """Under CPython 3.11 one that Cython compiled crashes the process there."""
    assert not waits_in_a_handler(name)
