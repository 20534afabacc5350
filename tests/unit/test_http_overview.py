"""The overview, as JSON and as a page: how a server is, and how it was before it was restarted."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from http_lab import HttpLab
from lamina.clock import ManualClock, SystemClock
from lamina.server import measures
from lamina.server.history import History
from lamina.server.measures import vitals


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as made:
        yield made


class Past:
    """A history that is an hour old already."""

    def __init__(self, lab: HttpLab) -> None:
        self.lab = lab
        self.clock = ManualClock(SystemClock().now_ns() - 600 * 10**9)
        self.history = lab.inside.history = History(None, clock=self.clock)

    def note(self, count: int = 1) -> None:
        for _ in range(count):
            self.history.sample(vitals(self.lab.inside))
            self.clock.advance(10)


def test_a_server_that_nobody_used_says_what_to_do(lab: HttpLab) -> None:
    Past(lab).note(3)

    status, html, _ = lab.page("/")

    assert status == 200
    assert "No traffic yet" in html
    assert "XADD orders" in html and "lamina jobs add mail hello --server" in html
    assert "<svg" not in html


def test_what_comes_in_is_counted_and_drawn(lab: HttpLab) -> None:
    measures.of(lab.inside).look.share = math.inf  # look anew each time, whatever it costs
    past = Past(lab)
    past.note(2)
    for _ in range(20):
        lab.redis("XADD", "orders", "*", "item", "tea")
    past.note(3)

    status, now = lab.get_json("/overview")
    assert status == 200
    assert now["phase"] == "ready" and now["problems"] == {} and now["has_traffic"]
    assert now["figures"]["topics.added"] == 20
    engines = {engine["name"]: engine for engine in now["engines"]}
    assert {"jobs", "topics", "queues"} <= set(engines)
    assert engines["topics"]["disk_bytes"] > 0

    status, found = lab.get_json("/overview/history", names="topics.added, jobs.ready", range="1h")
    assert status == 200
    assert [value for value in found["values"]["topics.added"] if value] == [2.0]
    assert found["step_s"] == 10 and len(found["values"]["jobs.ready"]) == 360
    assert len(found["restarts"]) == 1 and found["is_loaded"]

    for range_ in ("1h", "24h", "14d"):
        status, html, _ = lab.page("/", range=range_)
        assert status == 200 and "No traffic yet" not in html
        assert f'href="/?range={range_}" aria-current="page"' in html
        assert html.count("<figure") == 8 and 'id="chart-came"' in html
        assert "style=" not in html and "<style" not in html


def _wait(is_so: Callable[[History], bool], lab: HttpLab) -> None:
    deadline = time.monotonic() + 60
    while lab.inside.history is None or not is_so(lab.inside.history):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_history_survives_a_restart_of_the_server(lab: HttpLab) -> None:
    _wait(lambda history: bool(history.names), lab)  # from there on it is seen to grow
    lab.redis("XADD", "orders", "*", "item", "tea")
    lab.restart()
    _wait(lambda history: history.is_loaded, lab)

    _, found = lab.get_json("/overview/history", names="topics.added")

    assert len(found["restarts"]) >= 1 and found["is_loaded"]
    assert [value for value in found["values"]["topics.added"] if value]
    assert lab.get_json("/overview")[1]["has_traffic"]


def test_rates_of_now_are_between_samples(lab: HttpLab) -> None:
    past = Past(lab)
    past.note(1)
    for _ in range(10):
        lab.redis("XADD", "orders", "*", "item", "tea")

    _, now = lab.get_json("/overview")

    assert now["rates"]["topics.added"] == 1.0
    assert [engine["came_per_s"] for engine in now["engines"] if engine["name"] == "topics"] == [1.0]


def test_charts_are_drawn_once_for_all_who_look(lab: HttpLab) -> None:
    past = Past(lab)
    lab.redis("XADD", "orders", "*", "item", "tea")
    past.note(4)
    _, first, _ = lab.page("/")
    _, second, _ = lab.page("/")
    assert _charts(first) == _charts(second)

    lab.redis("XADD", "orders", "*", "item", "tea")
    past.note(1)

    assert _charts(lab.page("/")[1]) != _charts(first)


def _charts(html: str) -> str:
    return html[html.index("<figure") : html.rindex("</figure>")]


def test_the_live_part_is_sent_again(lab: HttpLab) -> None:
    past = Past(lab)
    lab.redis("XADD", "orders", "*", "item", "tea")
    past.note(2)

    with lab.stream("/live/?range=24h") as events:
        shown = next(event for event in events if event.startswith("event: live"))

    assert 'id="tiles"' in shown and 'id="chart-sync"' in shown


def test_problems_are_shown(lab: HttpLab) -> None:
    lab.life.problem("disk", "the disk is full: <b>0 B</b> free")

    _, now = lab.get_json("/overview")
    _, html, _ = lab.page("/")

    assert now["problems"] == {"disk": "the disk is full: <b>0 B</b> free"}
    assert "the disk is full: &lt;b&gt;0 B&lt;/b&gt; free" in html
    assert "tile alarm" in html


def test_without_a_history_the_rest_is_there(lab: HttpLab) -> None:
    lab.inside.history = None
    assert lab.page("/")[0] == 200
    assert lab.get_json("/overview")[0] == 200

    status, error = lab.get_json("/overview/history")

    assert status == 503 and error["error"]["code"] == "not_ready"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ({"range": "2h"}, "range"),
        ({"names": "jobs.nothing"}, "jobs.nothing"),
        ({"names": "x" * 5000}, "names"),
        ({"other": "1"}, "other"),
    ],
)
def test_bad_questions_are_told(lab: HttpLab, query: dict[str, str], said: str) -> None:
    Past(lab).note(1)

    status, error = lab.get_json("/overview/history", **query)

    assert status == 400
    assert error["error"]["code"] == "bad_option" and said in error["error"]["message"]


def test_a_page_with_a_bad_range_is_an_error_page(lab: HttpLab) -> None:
    status, html, _ = lab.page("/", range="<script>")

    assert status == 400 and "<script>" not in html.partition("<body>")[2]


def test_it_needs_the_right_to_look_at_the_server(lab: HttpLab) -> None:
    token = lab.user("ann", "jobs:write")
    reader = lab.user("ops", "admin:read")

    assert lab.get_json("/overview", token)[0] == 403
    assert lab.get_json("/overview/history", token)[0] == 403
    assert lab.get_json("/overview", reader)[0] == 200
    assert lab.get_json("/overview")[0] == 401
