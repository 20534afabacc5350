"""``lm`` in four ways: every test of this folder says what holds for all of them."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lamina
from contract.blocking import LoopThread
from contract.ways import WAYS, AllDoors, ForCoroutines, connected


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AllDoors]:
    """One real server for all tests."""
    with AllDoors(tmp_path_factory.mktemp("served") / "data") as server:
        yield server


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def thing(way: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """What ``lamina.open`` or ``lamina.connect`` gives, as it is: with ``.aio`` twins."""
    if way.startswith("remote"):
        made = connected(request.getfixturevalue("server"))
    else:
        made = lamina.open(tmp_path / "data")
    try:
        yield made
    finally:
        made.close()


@pytest.fixture
def lm(way: str, thing: Any) -> Iterator[Any]:
    """The same, to be used without ``await`` in every way."""
    if not way.endswith("-aio"):
        yield thing
        return
    thread = LoopThread()
    try:
        yield ForCoroutines(thing, thread)
    finally:
        thing.close()
        thread.stop()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has: the server is one for all."""
    test = re.sub(r"[^A-Za-z0-9]+", "-", request.node.name)[:60].strip("-")
    return f"{test}-{uuid.uuid4().hex[:8]}"
