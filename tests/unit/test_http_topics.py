"""Topics over HTTP: what is asked and done through the API and the pages is what clients of the RESP door see."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec
import pytest

from http_lab import Acted, HttpLab, text_of
from integration.resp_wire import Wire
from integration.test_watching import WatchedServer
from lamina.errors import BadOption, BadTopic
from lamina.server.http.console.pages import topics_tail as tail_pages
from lamina.server.http.ops import topics_changes, topics_one, topics_reading
from lamina.server.http.ops.topics_common import first_at, last_at, shown_name, time_of
from lamina.server.http.ops.topics_tail import AT_ONCE, Follower

BINARY = b"\xff/\x00<b>"
MARKUP = "a/b & <script>alert(1)</script>"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpLab]:
    with HttpLab(tmp_path_factory.mktemp("topics")) as lab:
        yield lab


@pytest.fixture
def lab(shared: HttpLab) -> HttpLab:
    """One server for all tests that leave it as it is, but for its topics."""
    shared.redis("FLUSHALL")
    shared.cookies.clear()
    return shared


@pytest.fixture
def own(tmp_path: Path) -> Iterator[HttpLab]:
    """For one test alone: users stay."""
    with HttpLab(tmp_path) as lab:
        yield lab


def get(lab: HttpLab, path: str, **query: object) -> Any:
    status, found = lab.get_json(f"/topics{path}", None, **query)
    assert status == 200, found
    return found


def refused(lab: HttpLab, path: str, **query: object) -> tuple[int, str]:
    status, found = lab.get_json(f"/topics{path}", None, **query)
    assert status != 200, found
    return status, found["error"]["code"]


def post(lab: HttpLab, path: str, **body: object) -> Any:
    status, found = lab.post_json(f"/topics{path}", body)
    assert status == 200, found
    return found


def not_posted(lab: HttpLab, path: str, **body: object) -> tuple[int, str]:
    status, found = lab.post_json(f"/topics{path}", body)
    assert status != 200, found
    return status, found["error"]["code"]


def act(lab: HttpLab, operation: str, **fields: object) -> Acted:
    lab.cookies.pop("lamina_told", None)
    return lab.act(operation, fields)


def fill(lab: HttpLab, name: str | bytes, count: int, first_ms: int = 1000) -> None:
    """Messages v0, v1, ... with the ids first_ms-0, first_ms+1-0, ..."""
    lab.wire.ask_all([("XADD", name, f"{first_ms + number}-0", "f", f"v{number}") for number in range(count)])


def ids(found: Any) -> list[str]:
    return [one["id"] for one in found["entries"]]


def values(found: Any) -> list[str]:
    return [one["fields"][0]["value"]["text"] for one in found["entries"]]


# -- moments -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1700000000123", 1700000000123),
        ("1700000000123456789", 1700000000123),
        ("2023-11-14T22:13:20.123Z", 1700000000123),
        ("2023-11-14T23:13:20.123+01:00", 1700000000123),
        ("2023-11-14 22:13", 1699999980000),
        ("2023-11-14", 1699920000000),
        ("-1h", 7200000 - 3600000),
        ("-1.5s", 7200000 - 1500),
        ("-99999d", 0),
        ("0", 0),
    ],
)
def test_a_moment_is_a_time_as_people_and_programs_write_it(text: str, ms: int) -> None:
    now_ns = 7200000 * 1_000_000
    assert first_at(text, now_ns) == ms << 64
    assert last_at(text, now_ns) == ms << 64 | (1 << 64) - 1, "all of that millisecond"


def test_a_moment_can_be_an_id() -> None:
    assert first_at("17-3", 0) == last_at("17-3", 0) == 17 << 64 | 3


@pytest.mark.parametrize(
    "text", ["", "x", "-1y", "123456789012345", "12345678901234567890", "2023-13-01", "1h", "１２"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises((BadOption, BadTopic)):
        first_at(text, 0)


def test_an_id_beyond_all_times_has_no_time() -> None:
    assert time_of(first_at("18446744073709551615-0", 0)) is None


# -- the list ----------------------------------------------------------------------------------------------------------


def test_topics_are_listed_by_name_page_by_page(lab: HttpLab) -> None:
    for number in range(7):
        fill(lab, f"topic-{number}", number + 1)
    lab.redis("XGROUP", "CREATE", "topic-6", "g", "0")
    first = get(lab, "", limit=3)
    assert [one["name"] for one in first["topics"]] == ["topic-0", "topic-1", "topic-2"]
    assert (first["total"], first["next"]) == (7, "topic-2")
    second = get(lab, "", limit=3, after=first["next"])
    last = get(lab, "", limit=3, after=second["next"])
    assert [one["name"] for one in last["topics"]] == ["topic-6"] and not last["next"]
    row = last["topics"][0]
    assert (row["length"], row["added"], row["groups"], row["lag"], row["is_open"]) == (7, 7, 1, 7, True)
    assert row["bytes"] > 0 and row["last_ns"] == 1006 * 10**6


def test_a_search_is_a_part_of_the_name_or_a_pattern(lab: HttpLab) -> None:
    for name in ("orders.eu", "orders.us", "Mail-Orders", "mail"):
        fill(lab, name, 1)

    def found(search: str) -> list[str]:
        return [one["name"] for one in get(lab, "", search=search)["topics"]]

    assert found("ORDERS") == ["Mail-Orders", "orders.eu", "orders.us"]
    assert found("orders.*") == ["orders.eu", "orders.us"]
    assert found("nothing") == []
    assert "No topic fits." in text_of(lab.page("/topics", search="nothing")[1])


def test_looking_at_the_list_opens_no_topic(lab: HttpLab) -> None:
    for number in range(5):
        fill(lab, f"t{number}", 3)
    lab.restart()
    found = get(lab, "")
    assert [(one["is_open"], one["length"], one["bytes"] > 0) for one in found["topics"]] == [(False, None, True)] * 5
    assert lab.page("/topics")[0] == 200
    assert lab.inside.topics is not None and list(lab.inside.topics.opened()) == []
    assert get(lab, "/one", name="t3")["length"] == 3
    assert [one["is_open"] for one in get(lab, "")["topics"]] == [False, False, False, True, False]


def test_a_topic_that_was_never_written_to_is_not_there(lab: HttpLab) -> None:
    assert lab.inside.topics is not None
    lab.inside.topics.get_or_make(b"nothing")
    assert get(lab, "")["topics"] == []
    assert refused(lab, "/one", name="nothing") == (404, "not_there")
    assert "There is no topic yet." in text_of(lab.page("/topics")[1])


# -- one topic ---------------------------------------------------------------------------------------------------------


def test_one_topic_tells_how_much_it_holds_and_from_when_to_when(lab: HttpLab) -> None:
    fill(lab, "mail", 10)
    lab.redis("XTRIM", "mail", "MAXLEN", "8")
    lab.redis("XDEL", "mail", "1005-0")
    one = get(lab, "/one", name="mail")
    assert (one["length"], one["added"], one["deleted"]) == (7, 10, 1)
    assert (one["first_id"], one["last_id"], one["trimmed_to"]) == ("1002-0", "1009-0", "1001-0")
    assert (one["first_ns"], one["retention"]) == (1002 * 10**6, "keep")
    page = text_of(lab.page("/topics/one", name="mail")[1])
    assert "Removed up to 1001-0" in page and "No group reads it." in page


def test_why_a_topic_is_so_large_names_who_holds_it(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"topics.retain": "*=length:10"}
    with HttpLab(tmp_path, **settings) as lab:
        lab.redis("XGROUP", "CREATE", "mail", "slow", "$", "MKSTREAM")
        for number in range(40):
            lab.redis("XADD", "mail", "*", "f", "x" * 400, "n", str(number))
        why = get(lab, "/why", name="mail")
        assert why["retention"] == "length:10" and [one["limit"] for one in why["limits"]] == ["length:10"]
        assert why["limits"][0]["files"] > 0
        assert [(one["group"], one["holds"], one["unread"]) for one in why["holders"]] == [("slow", True, 40)]
        assert "held by slow" in why["answer"]
        page = text_of(lab.page("/topics/one", name="mail")[1])
        assert "The group slow holds what is from" in page and "length:10 alone would let go" in page


def test_while_files_are_looked_after_the_page_is_there_and_says_so(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics_one, "_WAIT_S", 0.001)
    fill(lab, "mail", 1)
    assert lab.inside.topics is not None
    topic = lab.inside.topics.get(b"mail")
    assert topic is not None
    with topic.at_work:
        assert refused(lab, "/why", name="mail") == (503, "not_ready")
        status, page, _ = lab.page("/topics/one", name="mail")
    assert status == 200 and "Its files are being looked after" in page


def test_groups_tell_lag_pending_and_who_reads(lab: HttpLab) -> None:
    lab.redis("XADD", "mail", "*", "f", "v")
    lab.wire.ask_all([("XADD", "mail", "*", "f", f"v{number}") for number in range(5)])
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    lab.redis("XGROUP", "CREATE", "mail", "at-end", "$")
    taken = lab.redis("XREADGROUP", "GROUP", "g", "ann", "COUNT", "2", "STREAMS", "mail", ">")[0][1]
    at_end, group = get(lab, "/groups", name="mail")["groups"]
    assert (at_end["lag"], at_end["lag_s"], at_end["pending"], at_end["seen_s"]) == (0, 0.0, 0, None)
    assert (group["lag"], group["pending"], group["consumers"]) == (4, 2, 1)
    assert (group["oldest_pending"], group["last_id"]) == (taken[0][0].decode(), taken[1][0].decode())
    assert group["lag_s"] >= 0 and group["oldest_pending_s"] >= 0
    one = get(lab, "/group", name="mail", group="g")
    assert [(each["name"], each["pending"]) for each in one["consumers"]] == [("ann", 2)]
    lab.redis("XADD", "mail", "*", "f", "v")
    assert lab.redis("XINFO", "GROUPS", "mail")[0][-1] is None, "Redis does not know how far behind it is"
    assert get(lab, "/groups", name="mail")["groups"][0]["lag"] == 1, "so it is counted"
    assert get(lab, "/group", name="mail", group="at-end")["group"]["lag"] == 1
    paged = get(lab, "/groups", name="mail", limit=1)
    assert (paged["total"], paged["next"]) == (2, "at-end")
    assert get(lab, "/groups", name="mail", limit=1, after="at-end")["groups"][0]["name"] == "g"


def test_pending_messages_come_page_by_page_and_by_consumer(lab: HttpLab) -> None:
    fill(lab, "mail", 5)
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    lab.redis("XREADGROUP", "GROUP", "g", "ann", "COUNT", "3", "STREAMS", "mail", ">")
    lab.redis("XREADGROUP", "GROUP", "g", "bob", "STREAMS", "mail", ">")
    lab.redis("XDEL", "mail", "1001-0")
    page = get(lab, "/pending", name="mail", group="g", limit=2)
    assert [(one["id"], one["is_there"]) for one in page["pending"]] == [("1000-0", True), ("1001-0", False)]
    assert (page["total"], page["next"]) == (5, "1001-0")
    rest = get(lab, "/pending", name="mail", group="g", after=page["next"])
    assert [one["consumer"] for one in rest["pending"]] == ["ann", "bob", "bob"] and not rest["next"]
    own = get(lab, "/pending", name="mail", group="g", consumer="bob")
    assert (own["total"], [one["id"] for one in own["pending"]]) == (2, ["1003-0", "1004-0"])
    assert get(lab, "/pending", name="mail", group="g", consumer="nobody")["total"] == 0
    shown = text_of(lab.page("/topics/group", name="mail", group="g", consumer="ann")[1])
    assert "Pending for ann" in shown and "1001-0 removed" in shown and "3 in all" in shown


def test_a_group_that_lost_messages_to_retention_says_so(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"topics.retain": "*=length:10,hold:0s"}
    with HttpLab(tmp_path, **settings) as lab:
        lab.redis("XGROUP", "CREATE", "mail", "late", "$", "MKSTREAM")
        for _ in range(40):
            lab.redis("XADD", "mail", "*", "f", "x" * 400)
        assert lab.inside.topics_upkeep is not None
        went = lab.inside.topics_upkeep.shed(b"mail")
        assert went.entries > 0
        assert get(lab, "/groups", name="mail")["groups"][0]["lost_to"]
        assert "lost messages up to" in lab.page("/topics/one", name="mail")[1]


# -- messages ----------------------------------------------------------------------------------------------------------


def test_messages_of_a_window_come_forwards_and_backwards_page_by_page(lab: HttpLab) -> None:
    fill(lab, "mail", 25)
    newest = get(lab, "/entries", name="mail", limit=10)
    assert (newest["order"], ids(newest)[0], ids(newest)[-1]) == ("newest", "1024-0", "1015-0")
    assert ids(get(lab, "/entries", name="mail", limit=10, after=newest["next"]))[0] == "1014-0"
    window = {"name": "mail", "since": 1005, "until": 1011}
    page = get(lab, "/entries", limit=4, **window)
    assert (ids(page), page["next"]) == (["1005-0", "1006-0", "1007-0", "1008-0"], "1008-0")
    rest = get(lab, "/entries", limit=4, after=page["next"], **window)
    assert (ids(rest), rest["next"], rest["gap"]) == (["1009-0", "1010-0", "1011-0"], "", "")
    assert ids(get(lab, "/entries", order="newest", limit=2, **window)) == ["1011-0", "1010-0"]
    everything, after = [], ""
    while True:
        page = get(lab, "/entries", name="mail", limit=7, order="oldest", after=after)
        everything += values(page)
        after = page["next"]
        if not after:
            break
    assert everything == [f"v{number}" for number in range(25)]


def test_a_window_of_time_has_exactly_what_came_in_it(lab: HttpLab) -> None:
    first = lab.redis("XADD", "mail", "*", "f", "old").decode()
    base = int(first.partition("-")[0])
    for offset in (3_600_000, 3_600_001, 7_200_000):
        lab.redis("XADD", "mail", f"{base + offset}-0", "f", f"at {offset}")

    def iso(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")

    window = get(lab, "/entries", name="mail", since=iso(base + 3_600_000), until=iso(base + 3_600_001))
    assert values(window) == ["at 3600000", "at 3600001"]
    assert values(get(lab, "/entries", name="mail", until=iso(base))) == ["old"]
    assert values(get(lab, "/entries", name="mail", since="-1h", until=base)) == ["old"]
    shown = text_of(lab.page("/topics/entries", name="mail", since=iso(base + 1), until=iso(base + 5))[1])
    assert "Nothing was published in this window." in shown


def test_what_was_trimmed_out_of_a_window_is_told(lab: HttpLab) -> None:
    fill(lab, "mail", 10)
    lab.redis("XTRIM", "mail", "MAXLEN", "4")
    found = get(lab, "/entries", name="mail", since=1002)
    assert ids(found)[0] == "1006-0" and "1005-0" in found["gap"]
    assert get(lab, "/entries", name="mail", since=1006)["gap"] == ""
    assert get(lab, "/entries", name="mail")["gap"] == "", "nobody asked for what is gone"
    assert "Messages of this window are gone" in lab.page("/topics/entries", name="mail", since=1002)[1]


def test_a_page_that_was_trimmed_away_meanwhile_tells_the_gap(lab: HttpLab) -> None:
    fill(lab, "mail", 10)
    page = get(lab, "/entries", name="mail", order="oldest", limit=2)
    lab.redis("XTRIM", "mail", "MAXLEN", "2")
    rest = get(lab, "/entries", name="mail", order="oldest", after=page["next"])
    assert ids(rest) == ["1008-0", "1009-0"] and rest["gap"]


def test_a_value_of_a_megabyte_is_cut_and_a_page_of_them_ends_early(lab: HttpLab) -> None:
    large = b"x" * (1 << 20)
    for number in range(12):
        lab.redis("XADD", "mail", f"{number + 1}-0", "body", large)
    page = get(lab, "/entries", name="mail", order="oldest")
    value = page["entries"][0]["fields"][0]["value"]
    assert (len(value["text"]), value["size"], value["is_cut"]) == (256, 1 << 20, True)
    assert 1 < len(page["entries"]) < 12 and page["next"] == page["entries"][-1]["id"]
    rest = get(lab, "/entries", name="mail", order="oldest", after=page["next"])
    assert len(page["entries"]) + len(rest["entries"]) == 12
    whole = get(lab, "/entry", name="mail", id="3-0", most=1 << 20)
    assert len(whole["entry"]["fields"][0]["value"]["text"]) == 1 << 20
    status, html, _ = lab.page("/topics/entry", name="mail", id="3-0")
    assert status == 200 and len(html) < 300_000 and "of 1.0 MiB, cut" in html
    assert len(lab.page("/topics/entries", name="mail")[1]) < 50_000


def test_a_message_of_many_fields_is_cut_in_a_list_and_bounded_when_whole(lab: HttpLab) -> None:
    fields = [word for number in range(2500) for word in (f"n{number}", "v")]
    lab.redis("XADD", "mail", "1-0", *fields)
    row = get(lab, "/entries", name="mail")["entries"][0]
    assert (len(row["fields"]), row["more_fields"]) == (20, 2480)
    whole = get(lab, "/entry", name="mail", id="1-0")["entry"]
    assert (len(whole["fields"]), whole["more_fields"]) == (2000, 500)


def test_one_message_has_neighbours_and_one_that_is_gone_says_why(lab: HttpLab) -> None:
    fill(lab, "mail", 5)
    lab.redis("XDEL", "mail", "1001-0")
    found = get(lab, "/entry", name="mail", id="1002-0")
    assert (found["before"], found["behind"]) == ("1000-0", "1003-0")
    assert (get(lab, "/entry", name="mail", id="1000-0")["before"]) == ""
    assert (get(lab, "/entry", name="mail", id="1004-0")["behind"]) == ""
    assert refused(lab, "/entry", name="mail", id="1001-0") == (404, "not_there")
    status, html, _ = lab.page("/topics/entry", name="mail", id="1001-0")
    assert status == 404 and "it was deleted" in html


def test_bytes_that_are_no_text_are_shown_in_base_64_and_names_in_hexadecimal(lab: HttpLab) -> None:
    lab.redis("XADD", BINARY, "1-0", b"\xfe", b"\x00\xff")
    lab.redis("XGROUP", "CREATE", BINARY, b"\xfdg", "0")
    shown = shown_name(BINARY)
    assert shown == "hex:ff2f003c623e"
    assert get(lab, "")["topics"][0]["name"] == shown
    field = get(lab, "/entries", name=shown)["entries"][0]["fields"][0]
    assert (field["name"], field["value"]["base64"]) == ("hex:fe", "AP8=")
    assert get(lab, "/group", name=shown, group="hex:fd67")["group"]["lag"] == 1
    for path in ("/topics/one", "/topics/entries", "/topics/tail"):
        assert lab.page(path, name=shown)[0] == 200
    assert post(lab, "/publish", name=shown, body="x")["count"] == 1
    assert lab.redis("XLEN", BINARY) == 2


def test_a_topic_without_a_name_can_be_looked_at(lab: HttpLab) -> None:
    fill(lab, b"", 2)
    assert get(lab, "")["topics"][0]["name"] == "hex:"
    assert get(lab, "/one", name="hex:")["length"] == 2


def test_markup_in_names_and_values_is_shown_as_text(lab: HttpLab) -> None:
    lab.redis("XADD", MARKUP, "1-0", "<img src=x onerror=alert(1)>", "</pre><script>alert(2)</script>")
    lab.redis("XGROUP", "CREATE", MARKUP, "<i>g</i>", "0")
    lab.redis("XREADGROUP", "GROUP", "<i>g</i>", "<u>c", "STREAMS", MARKUP, ">")
    pages = [
        ("/topics", {}),
        ("/topics/one", {"name": MARKUP}),
        ("/topics/entries", {"name": MARKUP}),
        ("/topics/entry", {"name": MARKUP, "id": "1-0"}),
        ("/topics/tail", {"name": MARKUP}),
        ("/topics/group", {"name": MARKUP, "group": "<i>g</i>"}),
    ]
    for path, query in pages:
        status, html, _ = lab.page(path, **query)
        assert status == 200, path
        assert "<script>alert" not in html and "<img src=x" not in html and "<i>g" not in html and "<u>c" not in html
        assert not re.search(r"<[a-z][^>]*\s(style|on\w+)=", html), "the policy forbids them"
    assert "alert(2)" in html or "alert(1)" in html
    links = re.findall(r'href="(/topics/one\?[^"]*)"', lab.page("/topics")[1])
    assert lab.page(links[0].replace("&amp;", "&"))[0] == 200, "the link leads to it"


_UNASKABLE: list[tuple[str, dict[str, object], tuple[int, str]]] = [
    ("", {"limit": 0}, (400, "bad_option")),
    ("", {"limit": 1001}, (400, "bad_option")),
    ("", {"limit": "9" * 30}, (400, "bad_option")),
    ("", {"after": "hex:xyz"}, (400, "bad_name")),
    ("", {"what": "is this"}, (400, "bad_option")),
    ("/one", {}, (400, "bad_option")),
    ("/one", {"name": "none"}, (404, "not_there")),
    ("/one", {"name": "x" * 4000}, (404, "not_there")),
    ("/one", {"name": "hex:1"}, (400, "bad_name")),
    ("/why", {"name": "none"}, (404, "not_there")),
    ("/entries", {"name": "mail", "since": "yesterday"}, (400, "bad_option")),
    ("/entries", {"name": "mail", "since": "99999999999999999999-0"}, (400, "bad_topic")),
    ("/entries", {"name": "mail", "after": "x"}, (400, "bad_topic")),
    ("/entries", {"name": "mail", "order": "up"}, (400, "bad_option")),
    ("/entries", {"name": "mail", "preview": 10**9}, (400, "bad_option")),
    ("/entry", {"name": "mail", "id": "x"}, (400, "bad_topic")),
    ("/entry", {"name": "mail", "id": "1-0"}, (404, "not_there")),
    ("/group", {"name": "mail", "group": "none"}, (404, "no_group")),
    ("/pending", {"name": "mail", "group": "none"}, (404, "no_group")),
    ("/pending", {"name": "mail", "group": "g", "after": "-"}, (400, "bad_topic")),
]


def test_what_cannot_be_asked_is_refused(lab: HttpLab) -> None:
    fill(lab, "mail", 1)
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    for path, query, expected in _UNASKABLE:
        assert refused(lab, path, **query) == expected, (path, query)


# -- changes -----------------------------------------------------------------------------------------------------------


def test_a_message_is_planned_published_and_audited_without_its_payload(lab: HttpLab) -> None:
    plan = post(lab, "/publish", name="mail", fields={"item": "a secret tea"}, dry_run=True)
    assert "publish a message of 1 field, 16 B, to mail" in plan["will"]
    assert "does not exist yet" in plan["details"][0]
    assert lab.redis("EXISTS", "mail") == 0, "a dry run makes nothing"
    done = post(lab, "/publish", name="mail", fields={"item": "a secret tea", "n": "2"})
    assert lab.redis("XRANGE", "mail", "-", "+") == [
        [done["id"].encode(), [b"item", b"a secret tea", b"n", b"2"]],
    ]
    began = lab.entries()[1]
    assert (began.action, began.target, began.outcome) == ("topics.publish", "mail", "begun")
    assert all("secret" not in msgspec.json.encode(one).decode() for one in lab.entries())


def test_a_person_publishes_text_or_the_members_of_a_json_object(lab: HttpLab) -> None:
    done = act(lab, "topics.publish", name=MARKUP, body="hello")
    assert done.status == 200 and "publish a message of 1 field" in done.plan
    done = act(lab, "topics.publish", name=MARKUP, body='{"a": "text", "b": 2, "c": [1, true]}', kind="json")
    assert done.status == 200, done
    found = [fields for _, fields in lab.redis("XRANGE", MARKUP, "-", "+")]
    assert found == [[b"value", b"hello"], [b"a", b"text", b"b", b"2", b"c", b"[1,true]"]]


_UNPUBLISHABLE: list[tuple[dict[str, object], str]] = [
    ({"name": "mail", "body": "x", "fields": {"a": "b"}}, "bad_option"),
    ({"name": "mail", "fields": {}}, "bad_topic"),
    ({"name": "mail", "body": "no json", "kind": "json"}, "bad_option"),
    ({"name": "mail", "body": "[1]", "kind": "json"}, "bad_option"),
    ({"name": "mail", "body": "x", "kind": "xml"}, "bad_option"),
    ({"name": "mail", "body": "x", "id": "1-0"}, "bad_topic"),
    ({"name": "mail", "body": "x", "id": "0-0"}, "bad_topic"),
    ({"name": "x" * 300, "body": "x"}, "bad_name"),
    ({"name": "new", "body": "x", "id": "0-0"}, "bad_topic"),
]


def test_what_cannot_be_published_changes_nothing(lab: HttpLab) -> None:
    fill(lab, "mail", 1)
    for body, code in _UNPUBLISHABLE:
        for dry_run in (True, False):
            said = not_posted(lab, "/publish", **body, dry_run=dry_run)
            assert said == (400, code), body
            assert lab.redis("XLEN", "mail") == 1 and lab.redis("KEYS", "*") == [b"mail"]


def test_a_message_that_is_too_large_is_refused(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    topics = lab.inside.topics
    assert topics is not None
    monkeypatch.setattr(topics, "options", replace(topics.options, max_payload=1000))
    assert not_posted(lab, "/publish", name="mail", body="x" * 2000) == (400, "record_too_large")
    assert lab.redis("EXISTS", "mail") == 0


def test_clients_that_wait_are_woken_by_a_message_a_reset_and_a_deletion(lab: HttpLab) -> None:
    fill(lab, "mail", 2)
    lab.redis("XGROUP", "CREATE", "mail", "g", "$")
    with Wire(lab.ports[1]) as reader, Wire(lab.ports[1]) as member:
        reader.send("XREAD", "BLOCK", "0", "STREAMS", "mail", "$")
        member.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "mail", ">")
        _until_waiting(lab, 2)
        moved = post(lab, "/groups/reset", name="mail", group="g", to="start")
        assert moved["again"] == 2
        assert [id for id, _ in member.read()[0][1]] == [b"1000-0", b"1001-0"]
        done = post(lab, "/publish", name="mail", body="new")
        assert reader.read() == [[b"mail", [[done["id"].encode(), [b"value", b"new"]]]]]
        assert [id for id, _ in member.ask("XREADGROUP", "GROUP", "g", "c", "STREAMS", "mail", ">")[0][1]]
        member.send("XREADGROUP", "GROUP", "g", "c", "BLOCK", "0", "STREAMS", "mail", ">")
        _until_waiting(lab, 1)
        post(lab, "/delete", name="mail")
        assert b"no longer exists" in member.read() or b"NOGROUP" in member.read()


def test_a_client_that_waits_at_a_real_server_is_woken_and_what_was_published_survives_a_kill(tmp_path: Path) -> None:
    def ask(server: WatchedServer, body: dict[str, object]) -> Any:
        connection = HTTPConnection("127.0.0.1", server.ports["http"], timeout=60)
        headers = {"content-type": "application/json"}
        connection.request("POST", "/api/v1/topics/publish", msgspec.json.encode(body), headers)
        answer = connection.getresponse()
        found = msgspec.json.decode(answer.read())
        connection.close()
        assert answer.status == 200, found
        return found

    with WatchedServer(tmp_path / "data") as server, Wire(server.ports["resp"]) as reader:
        reader.send("XREAD", "BLOCK", "0", "STREAMS", "mail", "0")
        with Wire(server.ports["resp"]) as other:
            end = time.monotonic() + 60
            while b"blocked_clients:1" not in other.ask("INFO", "clients"):
                assert time.monotonic() < end, "nobody waits"
        done = ask(server, {"name": "mail", "body": "hello"})
        entry = [done["id"].encode(), [b"value", b"hello"]]
        assert reader.read() == [[b"mail", [entry]]]
        server.kill()
    with WatchedServer(tmp_path / "data") as server, Wire(server.ports["resp"]) as reader:
        assert reader.ask("XRANGE", "mail", "-", "+") == [entry]


def _until_waiting(lab: HttpLab, count: int) -> None:
    """Until so many clients wait; a client whose command has not come yet would not be woken."""
    assert lab.inside.resp is not None
    house = lab.inside.resp.house
    for _ in range(3000):
        if lab.on_loop(lambda: sum(session.is_waiting for session in house.sessions.values())) >= count:
            return
        threading.Event().wait(0.01)
    raise AssertionError("nobody waits")


def test_the_oldest_are_removed_by_number_as_the_plan_said(lab: HttpLab) -> None:
    fill(lab, "mail", 3000)
    for keep in (2000, 1500, 10, 0):
        plan = post(lab, "/trim", name="mail", keep=keep, dry_run=True)
        done = post(lab, "/trim", name="mail", keep=keep)
        assert plan["count"] == done["count"] and lab.redis("XLEN", "mail") == keep
    assert post(lab, "/trim", name="mail", keep=5)["count"] == 0
    lab.restart()
    assert lab.redis("XLEN", "mail") == 0, "it is so for good"


def test_the_oldest_are_removed_by_time_as_the_plan_said(lab: HttpLab) -> None:
    fill(lab, "mail", 2000)
    lab.redis("XDEL", "mail", "1003-0")
    plan = post(lab, "/trim", name="mail", before="1970-01-01T00:00:02.500Z", dry_run=True)
    assert (plan["count"], lab.redis("XLEN", "mail")) == (1499, 1999)
    assert post(lab, "/trim", name="mail", before="2500-0")["count"] == 1499
    assert get(lab, "/one", name="mail")["first_id"] == "2500-0"
    assert not_posted(lab, "/trim", name="mail") == (400, "bad_option")
    assert not_posted(lab, "/trim", name="mail", keep=1, before="-1h") == (400, "bad_option")
    assert not_posted(lab, "/trim", name="mail", keep=-1) == (400, "bad_option")
    assert not_posted(lab, "/trim", name="none", keep=1) == (404, "not_there")


def test_a_topic_is_deleted_with_its_groups_after_it_was_said(lab: HttpLab) -> None:
    fill(lab, "mail", 5)
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    done = act(lab, "topics.delete", name="mail")
    assert "delete the topic mail with everything in it" in done.plan and "5 messages" in done.plan
    assert done.did == "deleted the topic mail" and lab.redis("EXISTS", "mail") == 0
    assert not_posted(lab, "/delete", name="mail") == (404, "not_there")
    assert not_posted(lab, "/delete", name="mail", dry_run=True) == (404, "not_there")


def test_a_damaged_topic_can_be_deleted(lab: HttpLab) -> None:
    fill(lab, "mail", 500)
    lab.restart()
    segments = sorted((lab.folder / "topics" / "mail").glob("*.dat"))
    for one in (lab.folder / "topics" / "mail").glob("checkpoint*"):
        one.unlink()
    segments[0].write_bytes(b"\0" * segments[0].stat().st_size)
    assert lab.get_json("/topics/one", name="mail")[0] == 500
    assert "damaged" in post(lab, "/delete", name="mail", dry_run=True)["will"]
    post(lab, "/delete", name="mail")
    assert get(lab, "")["topics"] == []


# -- groups ------------------------------------------------------------------------------------------------------------


def test_a_group_is_made_where_it_was_said(lab: HttpLab) -> None:
    fill(lab, "mail", 10)
    for number, (at, gets) in enumerate([("end", 0), ("start", 10), ("1007", 3), ("1007-0", 3), ("-1h", 0)]):
        wanted = {"name": "mail", "group": at}
        assert post(lab, "/groups/create", at=at, dry_run=True, **wanted)["count"] == gets
        assert get(lab, "/groups", name="mail")["total"] == number
        post(lab, "/groups/create", at=at, **wanted)
        taken = lab.redis("XREADGROUP", "GROUP", at, "c", "STREAMS", "mail", ">")
        assert (len(taken[0][1]) if taken else 0) == gets, at
        assert not_posted(lab, "/groups/create", **wanted) == (409, "group_exists")
        assert not_posted(lab, "/groups/create", dry_run=True, **wanted) == (409, "group_exists")
    assert not_posted(lab, "/groups/create", name="mail", group="x", at="soon") == (400, "bad_option")
    for dry_run in (True, False):
        long = {"name": "x" * 300, "group": "g", "make_topic": True, "dry_run": dry_run}
        assert not_posted(lab, "/groups/create", **long) == (400, "bad_name")


def test_a_group_of_a_topic_that_is_not_there_is_made_if_asked_for(lab: HttpLab) -> None:
    assert not_posted(lab, "/groups/create", name="mail", group="g") == (404, "not_there")
    assert lab.redis("EXISTS", "mail") == 0
    post(lab, "/groups/create", name="mail", group="g", make_topic=True)
    lab.restart()
    assert get(lab, "/groups", name="mail")["groups"][0]["name"] == "g"


def test_the_preview_of_a_reset_is_what_then_happens(lab: HttpLab) -> None:
    fill(lab, "mail", 30)
    lab.redis("XTRIM", "mail", "MAXLEN", "28")
    lab.redis("XDEL", "mail", "1005-0", "1025-0")
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    taken = lab.redis("XREADGROUP", "GROUP", "g", "c", "COUNT", "15", "STREAMS", "mail", ">")[0][1]
    before = _rest(lab)
    for to, is_back in [("start", True), ("end", False), ("1003", True), ("1020-0", False), ("1029-0", False)]:
        lab.redis("XGROUP", "SETID", "mail", "g", taken[-1][0])
        plan = post(lab, "/groups/reset", name="mail", group="g", to=to, dry_run=True)
        done = post(lab, "/groups/reset", name="mail", group="g", to=to)
        after = _rest(lab)
        assert plan["count"] == done["count"] == abs(len(after) - len(before)) > 0
        assert (done["again"], done["skipped"]) == ((done["count"], 0) if is_back else (0, done["count"]))
        assert done["pending"] == 15 and done["did"].split(": ")[1] in plan["will"]
    assert not_posted(lab, "/groups/reset", name="mail", group="g", to="soon") == (400, "bad_option")
    assert not_posted(lab, "/groups/reset", name="mail", group="none", to="end") == (404, "no_group")


def _rest(lab: HttpLab) -> list[bytes]:
    """What the group gets now."""
    found = lab.redis("XREADGROUP", "GROUP", "g", "probe", "NOACK", "STREAMS", "mail", ">")
    return [id for id, _ in found[0][1]] if found else []


def test_counting_looks_at_the_smaller_side_and_is_exact_from_either_end(lab: HttpLab) -> None:
    fill(lab, "mail", 3000)
    lab.redis("XDEL", "mail", "1001-0", "3990-0")
    assert lab.inside.topics is not None
    topic = lab.inside.topics.get(b"mail")
    assert topic is not None
    moments = [first_at(f"{ms}-0", 0) for ms in (0, 1000, 1001, 2500, 3989, 3999, 9999)]
    for after in moments:
        for until in moments:
            there = [id for id, _ in topic.read(after, until)[0] if id > after] if until > after else []
            assert topics_reading.count(topic, after, until) == (len(there), True)
    assert topics_reading.count(topic, moments[1], moments[4], most_s=0.0) == (0, False)


def test_a_group_is_deleted_after_it_was_said_what_is_forgotten(lab: HttpLab) -> None:
    fill(lab, "mail", 3)
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    lab.redis("XREADGROUP", "GROUP", "g", "c", "STREAMS", "mail", ">")
    done = act(lab, "topics.delete_group", name="mail", group="g")
    assert "1 consumer, 3 messages pending" in done.plan and done.did == "deleted the group g of mail"
    assert lab.redis("XINFO", "GROUPS", "mail") == []
    assert not_posted(lab, "/groups/delete", name="mail", group="g") == (404, "no_group")
    assert not_posted(lab, "/groups/delete", name="none", group="g") == (404, "not_there")


def test_pending_messages_are_acknowledged_and_given_to_another(lab: HttpLab) -> None:
    fill(lab, "mail", 4)
    lab.redis("XGROUP", "CREATE", "mail", "g", "0")
    lab.redis("XREADGROUP", "GROUP", "g", "ann", "STREAMS", "mail", ">")
    plan = post(lab, "/acknowledge", name="mail", group="g", ids="1000-0, 1000-0\n9-9", dry_run=True)
    assert plan["count"] == 1 and "1 message of these is not pending" in plan["details"][0]
    assert post(lab, "/acknowledge", name="mail", group="g", ids="1000-0 1001-0")["count"] == 2
    given = {"name": "mail", "group": "g", "ids": "1002-0 1003-0", "consumer": "bob"}
    assert post(lab, "/claim", idle_s=1e6, **given)["count"] == 0, "it was delivered just now"
    assert post(lab, "/claim", dry_run=True, **given)["count"] == post(lab, "/claim", **given)["count"] == 2
    assert [one[1] for one in lab.redis("XPENDING", "mail", "g", "-", "+", "9")] == [b"bob", b"bob"]
    for ids in ("x", ",", " ".join(["1-1"] * 1001)):
        assert not_posted(lab, "/acknowledge", name="mail", group="g", ids=ids)[0] == 400
    assert not_posted(lab, "/acknowledge", name="mail", group="none", ids="1-1") == (404, "no_group")
    assert not_posted(lab, "/claim", **{**given, "group": "none"}) == (404, "no_group")


# -- rights ------------------------------------------------------------------------------------------------------------


def test_who_may_read_some_topics_sees_those_and_changes_nothing(own: HttpLab) -> None:
    lab = own
    for name in ("mail.a", "mail.b", "other"):
        fill(lab, name, 1)
    token = lab.user("ann", "topics:read:mail.*")
    status, found = lab.get_json("/topics", token)
    assert status == 200 and [one["name"] for one in found["topics"]] == ["mail.a", "mail.b"] and found["total"] == 2
    assert lab.get_json("/topics/one", token, name="mail.a")[0] == 200
    for path in ("one", "why", "entries", "groups"):
        assert lab.get_json(f"/topics/{path}", token, name="other")[0] == 403
        assert lab.get_json(f"/topics/{path}", token, name="no such topic")[0] == 403, "it does not learn what is there"
    changes: list[tuple[str, dict[str, object]]] = [
        ("publish", {"body": "x"}),
        ("trim", {"keep": 0}),
        ("delete", {}),
        ("groups/create", {"group": "g"}),
        ("groups/delete", {"group": "g"}),
        ("groups/reset", {"group": "g", "to": "start"}),
        ("acknowledge", {"group": "g", "ids": "1-1"}),
        ("claim", {"group": "g", "ids": "1-1", "consumer": "c"}),
    ]
    for path, body in changes:
        for dry_run in (True, False):
            status, said = lab.post_json(f"/topics/{path}", {"name": "mail.a", "dry_run": dry_run, **body}, token)
            assert (status, said["error"]["code"]) == (403, "not_allowed"), path
    lab.login(token)
    html = lab.page("/topics/one", name="mail.a")[1]
    assert "/act/" not in html, "what would be refused is not offered"


def test_who_may_write_some_topics_writes_those_and_deletes_none(own: HttpLab) -> None:
    lab = own
    fill(lab, "mail.a", 1)
    token = lab.user("ann", "topics:write:mail.*")
    assert lab.post_json("/topics/publish", {"name": "mail.a", "body": "x"}, token)[0] == 200
    assert lab.post_json("/topics/publish", {"name": "other", "body": "x"}, token)[0] == 403
    assert lab.post_json("/topics/delete", {"name": "mail.a"}, token)[0] == 403
    assert lab.entries()[0].user == "ann"
    boss = lab.user("bob", "topics:admin:mail.*")
    assert lab.post_json("/topics/delete", {"name": "mail.a"}, boss)[0] == 200


# -- the live tail -----------------------------------------------------------------------------------------------------


def rows(event: str) -> Any:
    found = dict(line.partition(": ")[::2] for line in event.splitlines())
    assert found["event"] == "rows", event
    assert found["id"] == msgspec.json.decode(found["data"])["cursor"]
    return msgspec.json.decode(found["data"])


def next_rows(events: Iterator[str]) -> Any:
    return rows(next(event for event in events if "event: " in event))


def test_a_tail_shows_the_newest_and_then_what_comes(lab: HttpLab) -> None:
    fill(lab, "mail", 100)
    with lab.stream("/live/tail?name=mail") as events:
        first = next_rows(events)
        assert (len(first["rows"]), first["rows"][-1]["id"], first["skipped"]) == (AT_ONCE, "1099-0", 0)
        lab.redis("XADD", "mail", "2000-0", "f", "<b>new</b>")
        batch = next_rows(events)
        assert [one["id"] for one in batch["rows"]] == ["2000-0"]
        assert batch["rows"][0]["fields"][0]["value"]["text"] == "<b>new</b>"
        cursor = batch["cursor"]
    fill(lab, "mail", 60, 3000)
    with lab.stream("/live/tail?name=mail", {"last-event-id": cursor}) as events:
        batch = next_rows(events)
    assert (batch["rows"][0]["id"], batch["rows"][-1]["id"], batch["skipped"]) == ("3035-0", "3059-0", 35)


def test_a_tail_since_a_time_begins_there(lab: HttpLab) -> None:
    fill(lab, "mail", 300)
    with lab.stream("/live/tail?name=mail&since=1290") as events:
        found = next_rows(events)
    assert (found["rows"][0]["id"], len(found["rows"]), found["skipped"]) == ("1290-0", 10, 0)
    with lab.stream("/live/tail?name=mail&since=0") as events:
        found = next_rows(events)
    assert (len(found["rows"]), found["skipped"]) == (200, None), "too many: it says that there are more"


def test_a_tail_goes_on_when_its_topic_is_deleted_and_made_anew(lab: HttpLab) -> None:
    with lab.stream("/live/tail?name=" + quote(MARKUP)) as events:
        assert next_rows(events)["rows"] == [], "it need not be there yet"
        fill(lab, MARKUP, 2)
        assert [one["id"] for one in next_rows(events)["rows"]][-1:] == ["1001-0"]
        lab.redis("DEL", MARKUP)
        assert next_rows(events)["is_anew"]
        fill(lab, MARKUP, 1, 5)
        assert [one["id"] for one in next_rows(events)["rows"]] == ["5-0"]


def test_large_messages_of_a_tail_are_cut_and_few_are_read(lab: HttpLab) -> None:
    for number in range(30):
        lab.redis("XADD", "mail", f"{number + 1}-0", "f", "x" * 300_000)
    assert lab.inside.topics is not None
    follower = Follower(lab.inside.topics, b"mail")
    batch = follower.look()
    assert batch is not None and 1 <= len(batch.rows) < 4 and batch.rows[-1].id == "30-0"
    assert len(msgspec.json.encode(batch)) < 5000
    assert follower.look() is None


def test_the_newest_are_the_same_whether_in_memory_or_in_files(lab: HttpLab) -> None:
    for number in range(1, 61):
        lab.redis("XADD", "mail", f"{number}-0", "f", "x" * 30_000)  # more than is kept in memory
    lab.redis("XDEL", "mail", "58-0", "60-0", "3-0")
    lab.redis("XTRIM", "mail", "MINID", "3")
    assert lab.inside.topics is not None
    topic = lab.inside.topics.get(b"mail")
    assert topic is not None and first_at("3-0", 0) < topic.tail.first_id, "the oldest are in files only"
    for start in ("0-0", "2-0", "10-0", "50-0", "58-0", "59-0", "60-0", "61-0"):
        for end in ("4-0", "59-0", "70-0"):
            for most in (1, 3, 100):
                low, high = first_at(start, 0), first_at(end, 0)
                expected, _ = topic.records(low, high, most, newest_first=True)
                found, _ = topics_reading.newest(topic, low, high, most, 1 << 30)
                assert found == expected[::-1], (start, end, most)


def test_a_browser_that_goes_away_is_noticed(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lab, "mail", 1)
    ended = threading.Event()
    made = tail_pages._events

    async def watched(*args: Any) -> Any:
        try:
            async for one in made(*args):
                yield one
        finally:
            ended.set()

    monkeypatch.setattr(tail_pages, "_events", watched)
    with lab.stream("/live/tail?name=mail") as events:
        next_rows(events)
        assert not ended.is_set()
    assert ended.wait(60), "nobody reads for it any more"


def test_who_loses_the_right_is_sent_away_from_a_tail(own: HttpLab) -> None:
    lab = own
    fill(lab, "mail", 1)
    token = lab.user("ann", "topics:read:mail")
    with lab.stream("/live/tail?name=mail", {"authorization": f"Bearer {token}"}) as events:
        next_rows(events)
        with _same_token(lab, "ann", token, "topics:read:other"):
            assert any("event: gone" in event and "may not read" in event for event in events)
    other = lab.user("bob", "topics:read:mail")
    with lab.stream("/live/tail?name=mail", {"authorization": f"Bearer {other}"}) as events:
        next_rows(events)
        lab.user("bob", "topics:read:mail")  # another token
        assert any("event: gone" in event and "log in again" in event for event in events)


def _same_token(lab: HttpLab, name: str, token: str, right: str) -> Any:
    from lamina.server.security import tokens, users
    from lamina.server.security.rights import Right
    from lamina.server.security.users import User

    with users.changing(str(lab.folder)) as known:
        known[name] = User(name, (Right.parse(right),), tokens.digest(token), 1, None)
    lab.read_users()
    return nullcontext()


def test_a_tail_that_cannot_be_is_refused(lab: HttpLab) -> None:
    for query in (
        "",
        "?name=hex:1",
        "?name=mail&since=x",
        "?name=mail&after=x",
        "?name=mail&after=1-1@99999999999999999999",
        "?name=mail&name=other",
    ):
        assert lab.request("GET", f"/live/tail{query}").status == 400, query


def test_a_tail_needs_the_right_to_read(own: HttpLab) -> None:
    lab = own
    token = lab.user("ann", "topics:read:mail")
    answer = lab.request("GET", "/live/tail?name=other", headers={"authorization": f"Bearer {token}"})
    assert answer.status == 403
    assert lab.request("GET", "/live/tail?name=mail").status == 401


def test_the_script_of_the_tail_never_makes_html_of_what_comes() -> None:
    script = (Path(topics_changes.__file__).parents[1] / "console" / "static" / "tail.js").read_text()
    for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser"):
        assert word not in script
    assert "textContent" in script


def test_looking_is_not_counted_as_reading(lab: HttpLab) -> None:
    fill(lab, "mail", 5)
    assert lab.redis("XRANGE", "mail", "-", "+")
    topic = lab.inside.topics.get(b"mail") if lab.inside.topics is not None else None
    assert topic is not None and topic.counts.read == 5
    for path in ("/topics/entries?name=mail", "/topics/one?name=mail", "/topics/entries?name=mail&order=backwards"):
        lab.page(path)
        lab.get_json(path)
    assert topic.counts.read == 5
