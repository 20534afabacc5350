"""A page that stays open: it follows what happens, stops when nobody looks, and outlives a restart of the server."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from browser.conftest import Open, Place
from browser.tabs import Tab
from integration.console_server import ConsoleServer, Filled
from lamina.server.http.console.live import EVERY_S, MOST_LOOKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser

HIDE = """is => {
  Object.defineProperty(document, "hidden", { value: is, configurable: true });
  Object.defineProperty(document, "visibilityState", { value: is ? "hidden" : "visible", configurable: true });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
SAYS = "text => document.getElementById('content').innerText.includes(text)"
PULSE = "text => document.getElementById('pulse').textContent === text"


def test_what_happens_is_seen_without_a_reload(tab: Tab, place: Place) -> None:
    tab.go("/jobs")
    tab.page.evaluate("window.__stays = true")
    with place.server.remote() as lm:
        lm.jobs.add("came-just-now", b"x")
        tab.until(SAYS, "came-just-now")
    assert tab.page.evaluate("window.__stays") is True
    tab.until(PULSE, "live")


def test_a_tab_that_nobody_sees_asks_for_nothing(tab: Tab) -> None:
    tab.go("/jobs")
    tab.page.wait_for_timeout(200)
    assert tab.requests.count("/live/jobs") == 1
    with tab.page.expect_event("requestfailed", lambda request: "/live/" in request.url):
        tab.page.evaluate(HIDE, True)
    tab.page.wait_for_timeout((EVERY_S + 1) * 1000)
    assert tab.requests.count("/live/jobs") == 1
    with tab.page.expect_request("**/live/jobs"):
        tab.page.evaluate(HIDE, False)
    tab.until(PULSE, "live")


def test_a_page_outlives_a_restart_of_the_server(chromium: Browser, tab_of: Open, tmp_path: Path) -> None:
    server = ConsoleServer(tmp_path / "data")
    with server:
        tab = tab_of(Place(server, Filled()))
        tab.allow("ERR_|Failed to load resource")
        tab.go("/audit")
        tab.until(PULSE, "live")
        server.stop()
    tab.until(PULSE, "the server does not answer")
    assert "Audit" in tab.content, "what was there can still be read"
    with server:
        tab.until(PULSE, "live")
        assert tab.go("/settings") == 200


def test_a_page_that_is_one_too_many_stands_still_and_says_why(tab: Tab, place: Place) -> None:
    tab.allow("503")
    with ExitStack() as opened:
        for _ in range(MOST_LOOKING + 1):
            last = opened.enter_context(place.server.connection())
            last.request("GET", "/live/jobs")
            status = last.getresponse().status
        assert status == 503
        tab.go("/jobs")
        tab.until("text => document.getElementById('pulse').textContent.includes(text)", "pages are live already")
        assert "Jobs" in tab.content and not tab.page.title().startswith("(!)")
        tab.go("/topics/tail?name=orders")
        tab.until("text => document.getElementById('tail-state').textContent.includes(text)", "pages are live already")


@pytest.mark.parametrize("path", ["/audit?limit=3", "/settings#settings"])
def test_a_deep_link_and_the_way_back(tab: Tab, path: str) -> None:
    assert tab.go(path) == 200
    tab.page.click("nav >> text=Audit")
    assert tab.at == "/audit"
    tab.page.go_back()
    assert tab.at == path.partition("#")[0]
