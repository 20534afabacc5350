"""Debian's Chromium on a real server. Without Chromium, or Playwright to drive it, all of this is skipped."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser.tabs import Tab, launched
from integration.console_server import ConsoleServer, Filled, fill, record_runs
from integration.secured_server import make_users

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All of them in one process, where tests are run by several: there is one browser and one server.

    First, before it is looked which test belongs to which group.

    Where there is none, one test is left, to say so in one line.
    """
    ours = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in ours:
        item.add_marker(pytest.mark.xdist_group("browser"))
    if ours and (reason := missing()):
        ours[0].add_marker(pytest.mark.skip(reason=reason))
        items[:] = [item for item in items if item not in ours[1:]]
        config.hook.pytest_deselected(items=ours[1:])


def missing() -> str:
    """What these tests need and is not here."""
    if shutil.which("chromium") is None:
        return "the tests of the console in a browser: Chromium is not installed (Debian: apt install chromium)"
    if find_spec("playwright") is None:
        return "the tests of the console in a browser: Playwright is not installed (pip install playwright)"
    return ""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """One for each module: while Playwright drives it the thread has a running loop; other tests begin their own."""
    from playwright.sync_api import Error

    with ExitStack() as opened:
        try:
            browser = opened.enter_context(launched(shutil.which("chromium") or ""))
        except Error as error:
            pytest.skip(f"Chromium does not start here: {str(error).splitlines()[0]}")
        yield browser


class Place:
    """A server and what is on it."""

    def __init__(self, server: ConsoleServer, filled: Filled) -> None:
        self.server, self.filled = server, filled


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """Open to everybody on this machine, filled with something of everything."""
    with ConsoleServer(tmp_path_factory.mktemp("place") / "data") as server:
        with server.remote() as lm:
            filled = fill(lm)
        record_runs(server.folder)
        yield Place(server, filled)


@pytest.fixture(scope="session")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """The same with users, whose names are their tokens."""
    folder = tmp_path_factory.mktemp("guarded") / "data"
    make_users(folder, ann="*:admin", reader="*:read", mailer="jobs:write:mail", late="*:admin")
    with ConsoleServer(folder) as server:
        with server.remote("ann", "ann") as lm:
            filled = fill(lm)
        record_runs(server.folder)
        yield Place(server, filled)


Open = Callable[..., Tab]


@pytest.fixture
def tab_of(chromium: Browser) -> Iterator[Open]:
    """Opens tabs, each in a profile of its own. What went wrong in one fails the test."""
    tabs: list[Tab] = []

    def open(place: Place, **options: object) -> Tab:
        tabs.append(Tab(chromium, place.server.url, **options))
        return tabs[-1]

    yield open
    problems = [problem for tab in tabs for problem in tab.close()]
    assert problems == []


@pytest.fixture
def tab(tab_of: Open, place: Place) -> Tab:
    """One on the open server."""
    return tab_of(place)
