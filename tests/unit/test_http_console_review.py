"""What somebody who keeps the console open all day relies on: how the server is, what was typed, what counts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_lab import Answer, HttpLab
from lamina.server.http.console import page as console

STATIC = Path(console.__file__).parent / "static"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as lab:
        yield lab


def states(lab: HttpLab, path: str) -> str:
    with lab.stream("/live" + path) as events:
        return next(event for event in events if event.startswith("event: state"))


def pressed(lab: HttpLab, operation: str, **fields: object) -> Answer:
    """What a button leads to."""
    return lab.post_form(f"/act/{operation}", {**fields, "form_token": lab.form_token(), "back": "/topics"})


def test_every_live_page_says_how_the_server_is(lab: HttpLab) -> None:
    told = states(lab, "/jobs")
    assert 'id="phase"' in told and "ready" in told and "<p" not in told
    lab.life.problem("disk", "no room is <left>")
    told = states(lab, "/jobs")
    assert "<strong>disk</strong>: no room is &lt;left&gt;" in told, "who looks at another page is told, too"
    _, shown, _ = lab.page("/jobs")
    assert shown.count("no room is &lt;left&gt;") == 1 and shown.count('id="problems"') == 1


def test_what_was_typed_is_there_after_a_mistake(lab: HttpLab) -> None:
    lab.redis("XADD", "orders", "*", "item", "tea")
    answer = pressed(lab, "topics.publish", name="orders", kind="json", body='{"tea": "<b>')
    assert answer.status == 400 and "Nothing was changed" in answer.text
    assert "{&#34;tea&#34;: &#34;&lt;b&gt;" in answer.text and 'action="/act/topics.publish"' in answer.text
    answer = pressed(lab, "topics.trim", name="orders", keep="some")
    assert answer.status == 400 and "openapi.json says" not in answer.text, (
        "a person is not sent to a document for programs"
    )


def test_what_cannot_be_undone_is_not_the_next_key(lab: HttpLab) -> None:
    lab.redis("XADD", "orders", "*", "item", "tea")
    plan = pressed(lab, "topics.delete", name="orders").text
    assert re.search(r"<a [^>]*autofocus[^>]*>Leave it", plan) and "danger" in plan
    plan = pressed(lab, "topics.publish", name="orders", body="tea").text
    assert re.search(r"<button [^>]*autofocus[^>]*>Do it", plan) and "danger" not in plan


def test_a_group_that_nobody_looks_at_after_a_start_is_not_said_to_have_read_all(lab: HttpLab) -> None:
    for number in range(5):
        lab.redis("XADD", "orders", "*", "item", str(number))
    lab.redis("XADD", "plain", "*", "item", "of no group")
    lab.redis("XGROUP", "CREATE", "orders", "packers", "0")

    def topics() -> dict[str, object]:
        _, found = lab.get_json("/overview")
        return next(one for one in found["engines"] if one["name"] == "topics")

    assert (topics()["waiting"], topics()["is_at_least"]) == (5, False)
    lab.restart()
    assert (topics()["waiting"], topics()["is_at_least"]) == (0, True)
    assert "≥ 0" in lab.page("/")[1]
    assert lab.inside.looking is not None
    lab.inside.looking.look()
    assert (topics()["waiting"], topics()["is_at_least"]) == (5, False)


def test_what_is_being_written_is_told_of_all_logs(lab: HttpLab) -> None:
    lab.redis("S.WRITE", "1", "PUT", "tea", "41")
    lab.redis("Q.NEW")
    lab.redis("XADD", "orders", "*", "item", "tea")
    _, found = lab.get_json("/logs")
    active = {one["name"]: one["active_bytes"] for one in found["logs"]}
    for name in ("store", "queues", "topics/orders"):
        _, one = lab.get_json("/logs/one", name=name)
        assert active[name] == sum(each["bytes"] for each in one["segments"] if each["state"] == "active") > 0


def test_the_last_minutes_can_be_seen_by_themselves(lab: HttpLab) -> None:
    _, found = lab.get_json("/overview/history", range="15m")
    assert found["step_s"] == 10 and all(len(values) == 90 for values in found["values"].values())
    assert lab.page("/", range="15m")[0] == 200


def test_a_page_names_settings_that_are_there(lab: HttpLab) -> None:
    lab.redis("S.WRITE", "1", "PUT", "tea", "41")
    assert "--store-option compact_every_s=3600" in lab.page("/store/compactions")[1]


def test_scripts_of_one_page_share_no_names() -> None:
    seen: dict[str, str] = {}
    for path in sorted(STATIC.glob("*.js")):
        for name in re.findall(r"^(?:async )?(?:function|const|let|class) (\w+)", path.read_text(), re.MULTILINE):
            assert name not in seen, f"{name} of {path.name} is in {seen[name]}, too"
            seen[name] = path.name
