"""Every screen, in light, dark and at the width of a telephone; and all of it without a mouse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from browser.conftest import Open, Place
from browser.tabs import Tab
from integration.console_server import Browser
from integration.crawling import Walk, page_of, walk
from lamina.server.http.console.page import Menu
from lamina.server.http.console.pages import all_pages

NARROW = {"width": 400, "height": 800}
TOO_WIDE = """() => [...document.querySelectorAll("main *")]
  .filter(one => one.getBoundingClientRect().right > innerWidth + 1 && !one.closest(".table, pre, svg, nav"))
  .map(one => one.outerHTML.slice(0, 120))"""
UNNAMED = """() => [...document.querySelectorAll("input:not([type=hidden]), select, textarea, button, a")]
  .filter(one => !(one.labels?.length || one.getAttribute("aria-label") || one.textContent.trim() || one.title))
  .map(one => one.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def walked(place: Place) -> Iterator[Walk]:
    """Addresses of all kinds of pages, found by links."""
    visitor = Browser(place.server)

    def look(at: str) -> tuple[int, str, str]:
        got = visitor.get(at)
        return got.status, got.headers.get("content-type", ""), got.text

    yield walk(look, most=120)


def addresses(walked: Walk) -> list[str]:
    """Two of each kind of page."""
    pages, seen, chosen = all_pages(), dict[str, int](), []
    for at in walked.pages:
        kind = page_of(at, pages)
        if kind is not None and seen.setdefault(kind.path, 0) < 2:
            seen[kind.path] += 1
            chosen.append(at)
    assert seen.keys() == {page.path for page in pages}
    return chosen


def test_every_screen_is_shown_without_complaint(tab: Tab, walked: Walk) -> None:
    for at in addresses(walked):
        assert tab.go(at) == 200, at
        assert tab.page.title().endswith("· Lamina")
        assert tab.page.evaluate(UNNAMED) == [], at
        assert tab.page.evaluate("window.__pwned") is None, at
        assert tab.problems == [], at


def test_every_screen_fits_a_telephone(tab_of: Open, place: Place, walked: Walk) -> None:
    tab = tab_of(place, viewport=NARROW, color_scheme="dark")
    for at in addresses(walked):
        tab.go(at)
        wide = tab.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= NARROW["width"], (at, tab.page.evaluate(TOO_WIDE))


def test_light_and_dark_differ(tab_of: Open, place: Place) -> None:
    grounds = set()
    for scheme in ("light", "dark"):
        tab = tab_of(place, color_scheme=scheme)
        tab.go("/settings")
        grounds.add(tab.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))
    assert len(grounds) == 2


def test_markup_is_shown_as_text_and_never_run(tab: Tab, place: Place) -> None:
    pages = [
        f"/jobs/one?id={place.filled.ready}",
        "/topics/entries?name=orders&order=newest",
        f"/queues/one?handle={place.filled.handles[3]}",
        "/store/scan?storage=2",
        "/pipeline",
    ]
    for at in pages:
        tab.go(at)
        assert "<script>window.__pwned = 1</script>" in tab.page.inner_text("main"), at
        assert tab.page.evaluate("window.__pwned") is None, at
    assert "/nothing" not in tab.requests


def test_without_scripts_every_screen_is_there(tab_of: Open, place: Place) -> None:
    tab = tab_of(place, java_script_enabled=False)
    for _, path, title, _ in Menu.ENTRIES:
        assert tab.go(path) == 200
        assert tab.page.inner_text("nav [aria-current]") == title


def test_keys_lead_everywhere(tab: Tab) -> None:
    tab.go("/settings")
    for key, path in {"o": "/", "l": "/log", "j": "/jobs", "t": "/topics", "q": "/queues", "s": "/store"}.items():
        with tab.page.expect_navigation():
            tab.page.keyboard.press("g")
            tab.page.keyboard.press(key)
        assert tab.at == path
    tab.page.keyboard.press("Tab")
    assert tab.page.evaluate("document.activeElement.className") == "skip"
    assert tab.page.locator(".skip").bounding_box()["x"] >= 0, "who tabs to it sees it"  # type: ignore[index]
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "content"
    tab.go("/jobs")
    tab.page.keyboard.press("/")
    assert tab.page.evaluate("document.activeElement.type") == "search"
    tab.page.keyboard.type("g")
    tab.page.keyboard.type("o")
    assert tab.at == "/jobs", "letters in a field are letters"


def test_an_action_needs_no_mouse(tab: Tab, place: Place) -> None:
    tab.go("/jobs/queue?name=reports.daily")
    form = tab.form("jobs.pause")
    for _ in range(200):
        tab.page.keyboard.press("Tab")
        if form.locator("button").evaluate("one => one === document.activeElement"):
            break
    with tab.page.expect_navigation():
        tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.textContent") == "Do it"
    with tab.page.expect_navigation():
        tab.page.keyboard.press("Enter")
    assert tab.page.locator("p.told").count() == 1
