"""Every action, as a person does it: the button, the page that says what will happen, the message, the audit record."""

from __future__ import annotations

from typing import Any

import pytest

from browser.conftest import Open, Place
from browser.standstill import go_on, stopped_children
from browser.tabs import Tab
from browser.ways import WAYS
from integration.console_samples import SAMPLES, address_of, changing
from lamina.server.http.ops import all_operations

NAMES = [operation.name for operation in changing()]
WHILE_RUNNING = ("logs.stop", "store.cancel")
"""Offered only while there is something to stop."""
GONE = ("jobs.delete", "topics.delete", "topics.delete_group", "queues.delete")
"""Their page is gone with what it showed."""
READS_QUEUES = "queues."
"""Messages are somebody's: to look at queues one has to look after them."""


def audited(place: Place, token: str | None = None) -> list[dict[str, Any]]:
    """The newest first."""
    return list(place.server.get("/api/v1/audit", token).json()["entries"])


def test_there_is_a_way_to_every_action() -> None:
    assert sorted(WAYS) == sorted(SAMPLES) == sorted(NAMES)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in WHILE_RUNNING])
def test_an_action_is_shown_before_it_is_done(tab: Tab, place: Place, name: str) -> None:
    way, fields = WAYS[name], SAMPLES[name](place.filled)
    start = way.page(place.filled)
    assert tab.go(start) == 200
    before = audited(place)
    shown = tab.press(name, fields, way.hidden(place.filled))
    assert "This will" in shown and "written to the audit log" in shown
    assert audited(place) == before, "nothing was done yet"
    told = tab.confirm()
    done, begun = audited(place)[:2]
    assert (done["action"], done["outcome"], begun["outcome"]) == (name, "done", "begun")
    assert told[1:] == done["told"][1:]  # its first letter is made a capital
    if name not in GONE:
        assert tab.at == start, "back where one was"


@pytest.mark.parametrize(
    ("name", "begins", "page"),
    [
        ("store.cancel", "store.compact", "/store/compactions"),
        ("logs.stop", "logs.compact", "/log/one?name=store"),
    ],
)
def test_what_is_going_on_can_be_stopped(tab: Tab, place: Place, name: str, begins: str, page: str) -> None:
    with place.server.remote() as lm:
        lm.store.put(1, f"before {name}".encode(), b"so that there is something to compact")
        lm.store.rotate()
    with stopped_children(place.server.pid):  # a compaction is a process of its own: it stands still
        path, body = address_of(all_operations()[begins], SAMPLES[begins](place.filled))
        assert place.server.post(path, body).status == 200
        tab.go(page)
        assert "This will" in tab.press(name, {})
        with tab.page.expect_navigation(wait_until="commit"):
            tab.page.evaluate("document.querySelector('form.confirm').submit()")
            go_on(place.server.pid)
    tab.page.wait_for_selector("p.told")
    assert [entry["outcome"] for entry in audited(place) if entry["action"] == name] == ["done", "begun"]


def test_one_who_leaves_it_changes_nothing(tab: Tab, place: Place) -> None:
    way = WAYS["jobs.add"]
    tab.go(way.page(place.filled))
    start, before = tab.at, audited(place)
    tab.press("jobs.add", {**SAMPLES["jobs.add"](place.filled), "payload": "never"})
    with tab.page.expect_navigation():
        tab.page.click("text=Leave it")
    assert tab.at == start and audited(place) == before


def test_a_mistake_in_a_field_is_told_on_a_page(tab: Tab, place: Place) -> None:
    tab.allow("status of 400")
    tab.go(WAYS["queues.purge"].page(place.filled))
    shown = tab.press("queues.purge", {"older_than": "next week"})
    assert "400" in shown and "bad_option" in shown


def test_a_read_only_token_sees_everything_and_changes_nothing(tab_of: Open, guarded: Place) -> None:
    tab = tab_of(guarded)
    tab.allow("status of 40[13]")
    tab.go("/")
    tab.login("reader")
    before = audited(guarded, "ann")
    for name in NAMES:
        way = WAYS[name]
        if name.startswith(READS_QUEUES):
            assert tab.go(way.page(guarded.filled)) == 403
            continue
        assert tab.go(way.page(guarded.filled)) == 200
        offered = tab.page.locator(f'form[action="/act/{name}"]')
        if offered.count():  # a page may as well not offer it
            shown = tab.press(name, SAMPLES[name](guarded.filled), way.hidden(guarded.filled))
            assert "reader may not" in shown, name
    assert audited(guarded, "ann") == before
