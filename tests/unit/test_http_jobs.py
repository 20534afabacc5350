"""Jobs over HTTP: what their operations and pages show and do, and what they refuse."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from http_lab import Acted, HttpLab, text_of
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.job import Job
from lamina.engines.jobs.views import parse_id, show_id
from lamina.engines.jobs.waiting import LeaseWaiter
from lamina.errors import DiskError
from lamina.server.http.console.pages import jobs as pages
from lamina.server.http.names import shown
from lamina.server.http.ops import jobs_redriving, jobs_walking
from lamina.server.http.ops.jobs_dead import NO_ERROR, group_name

_DAY_MS = 86_400_000


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as lab:
        greet(lab)
        yield lab


def greet(lab: HttpLab) -> None:
    """Both clients of the lab are let in: on a busy machine, one that never was would be left over at the end."""
    lab.redis("PING")
    lab.workq.ask(b"inspect server\r\n")


def restart(lab: HttpLab) -> None:
    lab.restart()
    greet(lab)


def engine(lab: HttpLab) -> JobEngine:
    assert lab.inside.jobs is not None
    return lab.inside.jobs


def add(lab: HttpLab, queue: str, payload: bytes = b"x", **options: Any) -> str:
    id = uuid4().bytes
    jobs = engine(lab)
    jobs.settle(jobs.add(id, queue, options.pop("ttr", 60_000), _DAY_MS, payload, **options))
    return show_id(id)


def lease(lab: HttpLab, queue: str) -> Job:
    jobs, position = engine(lab).lease([queue])
    engine(lab).settle(position)
    return jobs[0]


def dead(lab: HttpLab, queue: str, error: bytes, payload: bytes = b"x", **options: Any) -> str:
    id = add(lab, queue, payload, **options)
    jobs = engine(lab)
    jobs.settle(jobs.fail(parse_id(id), error, for_good=True))
    return id


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < end, "it never came to that"
        time.sleep(0.005)


def act(lab: HttpLab, operation: str, fields: dict[str, object]) -> Acted:
    acted = lab.act(operation, fields)
    lab.cookies.pop("lamina_told", None)  # a page would have taken it
    return acted


def ok(answer: tuple[int, Any]) -> Any:
    assert answer[0] == 200, answer
    return answer[1]


def refused(answer: tuple[int, Any]) -> tuple[int, str]:
    return answer[0], answer[1]["error"]["code"]


# -- looking -----------------------------------------------------------------------------------------------------------


def test_queues_are_counted_by_state_and_found_by_a_part_of_their_name(lab: HttpLab) -> None:
    add(lab, "mail.out")
    add(lab, "mail.out", time=engine(lab).world_ns() + 10**12)
    dead(lab, "mail.out", b"no")
    add(lab, "mail.out", priority=9)
    lease(lab, "mail.out")
    add(lab, "video")
    engine(lab).settle(engine(lab).pause("video"))
    waiter = LeaseWaiter(["video"], 1, lambda jobs, position: None)
    engine(lab).expect_job(waiter)
    found = ok(lab.get_json("/jobs/queues"))
    assert [row["name"] for row in found["queues"]] == ["mail.out", "video"]
    mail, video = found["queues"]
    assert (mail["ready"], mail["scheduled"], mail["leased"], mail["completed"], mail["failed"]) == (1, 1, 1, 0, 1)
    assert (video["is_paused"], video["waiting_workers"]) == (True, 1)
    assert mail["oldest_ready_s"] >= 0 and (found["total"], found["jobs"]) == (2, 5)
    assert [row["name"] for row in ok(lab.get_json("/jobs/queues", search="ide"))["queues"]] == ["video"]
    assert ok(lab.get_json("/jobs/queues", search="nothing"))["queues"] == []
    assert ok(lab.get_json("/jobs/queues/video"))["ready"] == 1
    assert refused(lab.get_json("/jobs/queues/nobody")) == (404, "job_not_found")


def test_queues_are_paged_by_name(lab: HttpLab) -> None:
    names = sorted(f"q{number}" for number in range(25))
    for name in reversed(names):
        add(lab, name)
    seen: list[str] = []
    after = ""
    while True:
        found = ok(lab.get_json("/jobs/queues", limit=10, after=after))
        seen += [row["name"] for row in found["queues"]]
        after = found["next"]
        if not after:
            break
        add(lab, "a-new-one")  # before where we are: it moves nobody
    assert seen == names


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ("/jobs/queues", {"limit": 0}),
        ("/jobs/queues", {"limit": 10**30}),
        ("/jobs/queues", {"limit": "many"}),
        ("/jobs/queues", {"nonsense": 1}),
        ("/jobs/queues/mail/jobs", {"state": "lost"}),
        ("/jobs/queues/mail/jobs", {"after": "somewhere"}),
        ("/jobs/queues/mail/jobs", {"after": "9" * 19 + ".0.0." + "0" * 32}),
        ("/jobs/queues/mail/jobs", {"preview": -1}),
        ("/jobs/search", {"text": ""}),
        ("/jobs/search", {"text": "x", "after": "mail:lost:"}),
        ("/jobs/search", {"text": "x", "after": "nonsense"}),
        ("/jobs/search", {"text": "x", "most_ms": 10**9}),
        ("/jobs/queues/mail/dead", {"after": "1.2.3"}),
        ("/jobs/one/abc", {}),
        ("/jobs/one/00000000-0000-0000-0000-000000000000", {}),
        ("/jobs/one/abc/timeline", {}),
        ("/jobs/queues/hex:zz", {}),
    ],
)
def test_what_cannot_be_asked_is_refused(lab: HttpLab, path: str, query: dict[str, object]) -> None:
    add(lab, "mail")
    status, answer = lab.get_json(path, None, **query)
    assert status == 400 and answer["error"]["code"] in ("bad_option", "bad_job", "bad_name"), answer
    assert answer["error"]["message"]


def test_pages_of_jobs_stay_right_while_jobs_come_and_go(tmp_path: Path) -> None:
    """A hundred thousand jobs: all that were there all the time are seen, each once, in the order of the queue."""
    settings: dict[str, Any] = {"jobs.segment_bytes": str(64 << 20)}
    with HttpLab(tmp_path, **settings) as lab:
        greet(lab)
        jobs = engine(lab)
        ids = [uuid4().bytes for _ in range(100_000)]
        for number, id in enumerate(ids):
            jobs.add(id, "mail", 60_000, _DAY_MS, b"%d" % number, number % 7)
        jobs.push()
        seen: list[str] = []
        after, gone, came = "", set[str](), 0
        while True:
            found = ok(lab.get_json("/jobs/queues/mail/jobs", limit=1000, preview=8, after=after))
            seen += [row["id"] for row in found["jobs"]]
            after = found["next"]
            if not after:
                break
            for number in (0, 1):  # the last one that was seen, and one that was not yet, go
                id = parse_id(seen[-1]) if number else ids[came * 7]
                if id in jobs.state.jobs:
                    jobs.delete(id)
                    gone.add(show_id(id))
            jobs.add(uuid4().bytes, "mail", 60_000, _DAY_MS, b"new", came % 9)
            came += 1
        assert came == 99 or came == 100
        assert len(seen) == len(set(seen))
        assert {show_id(id) for id in ids} - gone <= set(seen)
        priorities = [jobs.state.jobs[parse_id(id)].priority for id in seen if parse_id(id) in jobs.state.jobs]
        assert priorities == sorted(priorities, reverse=True)


def test_a_place_leads_on_from_any_job_of_the_list(lab: HttpLab) -> None:
    jobs = engine(lab)
    for number in range(3000):  # more than a chunk of the list
        jobs.add(uuid4().bytes, "mail", 60_000, _DAY_MS, b"", number % 3)
    ready = jobs.state.queues["mail"].ready
    every = list(ready)
    assert jobs_walking.some_after(ready, "", 5) == every[:5]
    for at in (0, 511, 512, 1023, 1024, 2047, 2998, 2999):
        assert jobs_walking.some_after(ready, jobs_walking.place_of(every[at]), 700) == every[at + 1 : at + 701]


def test_jobs_in_a_state_have_what_belongs_to_it(lab: HttpLab) -> None:
    add(lab, "mail", b"later", time=engine(lab).world_ns() + 10**12)
    add(lab, "mail", b"now", unique="k1", max_attempts=4)
    working = lease(lab, "mail")
    rows = ok(lab.get_json("/jobs/queues/mail/jobs", state="leased"))
    assert rows["total"] == 1
    row = rows["jobs"][0]
    assert (row["id"], row["payload"]["text"], row["unique"], row["max_attempts"]) == (
        show_id(working.id),
        "now",
        "k1",
        4,
    )
    assert row["lease_until_ns"] == working.lease_until
    later = ok(lab.get_json("/jobs/queues/mail/jobs", state="scheduled"))["jobs"][0]
    assert later["ready_ns"] > later["created_ns"] and later["lease_until_ns"] is None
    engine(lab).settle(engine(lab).complete(working.id, b"well done"))
    one = ok(lab.get_json(f"/jobs/one/{row['id']}"))
    assert (one["state"], one["result"]["text"], one["error"], one["ttl_ms"]) == (
        "completed",
        "well done",
        None,
        _DAY_MS,
    )
    assert refused(lab.get_json(f"/jobs/one/{uuid4()}")) == (404, "job_not_found")


def test_a_search_finds_ids_and_text_and_says_when_it_was_cut_off(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = add(lab, "mail", b'{"order": 8812}')
    add(lab, "mail", b"nothing", unique="key-8812")
    dead(lab, "video", b"no order 8812 there")
    add(lab, "video", b"8813")
    assert [row["id"] for row in ok(lab.get_json("/jobs/search", text=wanted))["jobs"]] == [wanted]
    by_begin = ok(lab.get_json("/jobs/search", text=wanted[:11].upper()))["jobs"]
    assert wanted in [row["id"] for row in by_begin]
    found = ok(lab.get_json("/jobs/search", text="8812"))
    assert len(found["jobs"]) == 3 and not found["is_cut"] and found["looked_at"] == 4
    assert len(ok(lab.get_json("/jobs/search", text="8812", queue="mail"))["jobs"]) == 2
    assert len(ok(lab.get_json("/jobs/search", text="8812", state="failed"))["jobs"]) == 1
    assert refused(lab.get_json("/jobs/search", text="8812", queue="nobody")) == (404, "job_not_found")
    pages, after = [], ""
    while True:
        found = ok(lab.get_json("/jobs/search", text="8812", limit=1, after=after))
        pages += [row["id"] for row in found["jobs"]]
        after = found["next"]
        if not after:
            break
    assert len(pages) == len(set(pages)) == 3

    monkeypatch.setattr("lamina.server.http.ops.jobs_search.MOST_JOBS", 1)
    cut = ok(lab.get_json("/jobs/search", text="8813"))
    assert cut["is_cut"] and cut["jobs"] == [] and cut["next"]
    for _ in range(10):
        if cut["jobs"]:
            break
        cut = ok(lab.get_json("/jobs/search", text="8813", after=cut["next"]))
    assert [row["payload"]["text"] for row in cut["jobs"]] == ["8813"]


def test_a_large_payload_is_cut_and_markup_is_text(lab: HttpLab) -> None:
    markup = b"<script>alert(1)</script><img src=x onerror=alert(2)>"
    id = dead(lab, "mail", b"<b>bad</b>", markup + b"." * (1 << 20 - 1))
    assert len(markup) < 200
    for path in (
        "/jobs/queue?name=mail&state=failed",
        f"/jobs/one?id={id}",
        "/jobs/dead?name=mail",
        "/jobs/find?text=alert",
    ):
        status, html, _ = lab.page(path)
        assert status == 200 and "&lt;script&gt;alert(1)&lt;/script&gt;" in html and "<script>alert" not in html, path
        assert "<b>bad" not in html and "onerror=alert(2)>" not in html
        assert len(html) < 400_000, path
        assert " style=" not in html and not re.search(r"<[^>]+ on\w+=", html.replace("&lt;", ""))
    row = ok(lab.get_json("/jobs/queues/mail/jobs", state="failed"))["jobs"][0]
    assert row["payload"]["is_cut"] and len(row["payload"]["text"]) == 200
    assert ok(lab.get_json(f"/jobs/one/{id}", most=1 << 20))["payload"]["is_cut"] is False
    rows = lab.request("GET", "/api/v1/jobs/queues/mail/jobs?state=failed&preview=65536&limit=1000")
    assert rows.status == 200 and len(rows.body) < 10_000


# -- the timeline ------------------------------------------------------------------------------------------------------


def whats(lab: HttpLab, id: str) -> list[tuple[str, str, int]]:
    found = ok(lab.get_json(f"/jobs/one/{id}/timeline", most_ms=5000))
    assert found["is_whole"], found
    return [(event["what"], event["state"], event["attempt"]) for event in found["events"]]


def test_a_timeline_tells_what_happened_also_before_a_restart(lab: HttpLab) -> None:
    id = add(lab, "mail", b"dear ann", max_fails=3, max_attempts=9, backoff=1)
    raw = parse_id(id)
    lease(lab, "mail")
    engine(lab).settle(engine(lab).touch(raw, 90_000))
    engine(lab).settle(engine(lab).fail(raw, b"no route"))
    story = [("added", "waiting", 0), ("leased", "working", 1), ("extended", "working", 1), ("failed", "delayed", 1)]
    assert whats(lab, id) == story
    for number in range(200):  # segments are small here: the story goes over many
        add(lab, "other", b"%d" % number * 20)
    until(lambda: ok(lab.get_json(f"/jobs/one/{id}"))["state"] == "ready")
    lease(lab, "mail")
    engine(lab).settle(engine(lab).release(raw))
    restart(lab)
    story += [("leased", "working", 2), ("released", "waiting", 2)]
    assert whats(lab, id) == story
    lease(lab, "mail")
    engine(lab).settle(engine(lab).fail(raw, b"gone for good", for_good=True))
    assert ok(lab.post_json(f"/jobs/one/{id}/redrive"))["count"] == 1
    lease(lab, "mail")
    engine(lab).settle(engine(lab).complete(raw, b"sent"))
    story += [("leased", "working", 2), ("failed", "failed", 2), ("redriven", "waiting", 0)]
    story += [("leased", "working", 1), ("completed", "completed", 1)]
    assert whats(lab, id) == story
    assert ok(lab.post_json(f"/jobs/one/{id}/delete"))["did"].startswith("deleted")
    story += [("deleted", "gone", 0)]
    found = ok(lab.get_json(f"/jobs/one/{id}/timeline", most_ms=5000))
    assert [(event["what"], event["state"], event["attempt"]) for event in found["events"]] == story
    assert found["queue"] == "mail" and not found["is_cut"]
    said = {event["what"]: event["said"]["text"] for event in found["events"] if event["said"]}
    assert said == {"failed": "gone for good", "completed": "sent"}
    times = [event["time_ns"] for event in found["events"]]
    assert times == sorted(times)
    since = [event["since_s"] for event in found["events"][1:]]
    assert since == [pytest.approx((b - a) / 1e9) for a, b in pairwise(times)]
    status, html, _ = lab.page(f"/jobs/one?id={id}")
    assert status == 200 and "This job is gone" in html and "gone for good" in html
    assert refused(lab.get_json(f"/jobs/one/{id}")) == (404, "job_not_found")


def test_a_timeline_tells_time_outs_and_scheduled_times(lab: HttpLab) -> None:
    id = add(lab, "mail", ttr=1, max_attempts=2, time=engine(lab).world_ns() + 10**8)
    until(lambda: ok(lab.get_json("/jobs/queues/mail"))["ready"] == 1)
    for state in ("ready", "failed"):
        lease(lab, "mail")
        until(lambda state=state: ok(lab.get_json(f"/jobs/one/{id}"))["state"] == state)  # type: ignore[misc]
    assert whats(lab, id) == [
        ("scheduled", "delayed", 0),
        ("leased", "working", 1),
        ("timed out", "waiting", 1),
        ("leased", "working", 2),
        ("timed out", "failed", 2),
    ]


def test_a_timeline_that_was_cut_off_says_how_far_it_came(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    id = add(lab, "mail")
    for number in range(100):
        add(lab, "other", b"%d" % number * 50)
    assert ok(lab.post_json(f"/jobs/one/{id}/delete"))
    monkeypatch.setattr("lamina.server.http.ops.jobs_timeline.MOST_BYTES", 1000)
    found = ok(lab.get_json(f"/jobs/one/{id}/timeline"))
    assert found["is_cut"] and not found["is_whole"]
    assert [event["what"] for event in found["events"]] in ([], ["deleted"])
    assert found["note"]
    monkeypatch.undo()
    found = ok(lab.get_json(f"/jobs/one/{id}/timeline", most_ms=5000))
    assert [event["what"] for event in found["events"]] == ["added", "deleted"] and found["reaches_ns"]


def test_a_timeline_tells_that_the_log_is_damaged(lab: HttpLab) -> None:
    id = add(lab, "mail", b"dear ann")
    for number in range(100):
        add(lab, "other", b"%d" % number * 50)
    folder = lab.folder / "jobs"
    oldest = min(folder.glob("*.log"))
    data = bytearray(oldest.read_bytes())
    data[data.index(b"dear ann")] ^= 1
    oldest.write_bytes(data)
    lease(lab, "mail")
    found = ok(lab.get_json(f"/jobs/one/{id}/timeline", most_ms=5000))
    assert [event["what"] for event in found["events"]] == ["leased"]
    assert "damaged" in found["note"] and oldest.name in found["note"] and not found["is_whole"]
    status, html, _ = lab.page(f"/jobs/one?id={id}")
    assert status == 200 and "damaged" in html


def test_a_live_page_reads_the_log_again_only_when_the_job_changed(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lamina.server.http.ops import jobs_timeline

    read, looks = jobs_timeline._read, list[str]()

    def counted(*given: Any) -> Any:
        looks.append(given[2])
        return read(*given)

    monkeypatch.setattr(jobs_timeline, "_read", counted)
    id = add(lab, "mail")
    for _ in range(3):
        assert lab.page(f"/jobs/one?id={id}")[0] == 200
    assert len(looks) == 1
    lease(lab, "mail")
    assert len(ok(lab.get_json(f"/jobs/one/{id}/timeline"))["events"]) == 2 and len(looks) == 2


def test_the_drawing_of_a_timeline_fills_its_width(lab: HttpLab) -> None:
    id = add(lab, "mail")
    lease(lab, "mail")
    engine(lab).settle(engine(lab).complete(parse_id(id), b""))
    from lamina.server.http.ops.jobs_story import Event

    found = ok(lab.get_json(f"/jobs/one/{id}/timeline"))["events"]
    events = [Event(time_ns=e["time_ns"], what=e["what"], state=e["state"], text="") for e in found]
    drawn = pages.spans(events, None)
    assert [span.state for span in drawn] == ["waiting", "working"]
    assert sum(span.width for span in drawn) == pytest.approx(1000, abs=1)
    assert pages.spans([], 5) == []


# -- dead letters ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "group"),
    [
        (b"timeout after 31s for order 8812\nTraceback", "timeout after #s for order #"),
        (b"no user 6f1e9c3a-52cf-4f1e-8e2b-0a1b2c3d4e5f", "no user #"),
        (b"at 0x7f00aa, commit deadbeef01", "at #, commit #"),
        (b"cafe is closed", "cafe is closed"),
        (b"", NO_ERROR),
        (b"\n\n", NO_ERROR),
        (b"\xff\xfe7", "\ufffd\ufffd#"),
        (b"x" * 5000, "x" * 200),
    ],
)
def test_errors_of_the_same_kind_are_one_group(error: bytes, group: str) -> None:
    assert group_name(error[:400]) == group


def test_dead_letters_are_grouped_by_error_and_put_back_by_group(lab: HttpLab) -> None:
    slow = [dead(lab, "mail", b"timeout after %d s" % number, b"slow %d" % number) for number in range(5)]
    odd = dead(lab, "mail", b"no such user")
    found = ok(lab.get_json("/jobs/queues/mail/dead"))
    assert [(group["error"], group["count"]) for group in found["groups"]] == [
        ("timeout after # s", 5),
        ("no such user", 1),
    ]
    first = found["groups"][0]
    assert [row["id"] for row in first["examples"]] == slow[:3] and first["oldest_ns"] < first["newest_ns"]
    assert (found["total"], found["looked_at"], found["is_cut"]) == (6, 6, False)
    only = ok(lab.get_json("/jobs/queues/mail/dead", error="no such user"))["groups"]
    assert [row["id"] for row in only[0]["examples"]] == [odd]
    plan = ok(lab.post_json("/jobs/queues/mail/redrive_group", {"error": "timeout after # s", "dry_run": True}))
    assert plan["count"] == 5 and "put 5 of 5 failed jobs" in plan["will"] and slow[0] in plan["details"][0]
    done = ok(lab.post_json("/jobs/queues/mail/redrive_group", {"error": "timeout after # s", "limit": 3}))
    assert done["count"] == 3 and "2 are left" in done["did"]
    done = ok(lab.post_json("/jobs/queues/mail/redrive_group", {"error": "timeout after # s"}))
    assert done["count"] == 2 and "left" not in done["did"]
    assert ok(lab.get_json("/jobs/queues/mail"))["failed"] == 1
    assert ok(lab.post_json("/jobs/queues/mail/redrive"))["count"] == 1
    assert ok(lab.get_json("/jobs/queues/mail"))["ready"] == 6
    assert ok(lab.post_json("/jobs/queues/mail/redrive"))["count"] == 0
    assert refused(lab.post_json("/jobs/queues/nobody/redrive")) == (404, "job_not_found")


def test_dead_letters_beyond_the_time_are_the_next_page(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        dead(lab, "mail", b"a" if number < 290 else b"b")
    monkeypatch.setattr("lamina.server.http.ops.jobs_dead.MOST_JOBS", 1)
    found = ok(lab.get_json("/jobs/queues/mail/dead"))
    assert found["is_cut"] and found["looked_at"] == 256 and found["total"] == 300
    rest = ok(lab.get_json("/jobs/queues/mail/dead", after=found["next"]))
    assert rest["looked_at"] == 44 and {group["error"]: group["count"] for group in rest["groups"]} == {
        "a": 34,
        "b": 10,
    }


def test_what_is_put_back_while_its_key_is_taken_stays(lab: HttpLab) -> None:
    dead(lab, "mail", b"no", unique="k")
    add(lab, "mail", b"newer", unique="k")
    done = ok(lab.post_json("/jobs/queues/mail/redrive"))
    assert done["count"] == 0 and "unique key" in done["did"]
    assert ok(lab.get_json("/jobs/queues/mail"))["failed"] == 1


def test_an_edited_job_takes_the_place_of_the_failed_one(lab: HttpLab) -> None:
    old = dead(
        lab, "mail", b"no", b"bad\nletter", priority=7, max_fails=3, max_attempts=5, unique="k", backoff=40, ttr=5000
    )
    plan = ok(lab.post_json(f"/jobs/one/{old}/redrive_edited", {"payload": "good", "dry_run": True}))
    assert "delete the failed job" in plan["will"] and ok(lab.get_json(f"/jobs/one/{old}"))["state"] == "failed"
    acted = act(lab, "jobs.redrive_edited", {"id": old, "payload": "good\r\nletter", "newlines": "lf"})
    assert acted.status == 200 and "will hold" in acted.plan
    rows = ok(lab.get_json("/jobs/queues/mail/jobs"))["jobs"]
    new = ok(lab.get_json(f"/jobs/one/{rows[0]['id']}"))
    assert new["payload"]["text"] == "good\nletter" and new["id"] in acted.did and len(rows) == 1
    assert (new["priority"], new["max_fails"], new["max_attempts"], new["unique"]) == (7, 3, 5, "k")
    assert (new["backoff_ms"], new["ttr_ms"], new["ttl_ms"]) == (40, 5000, _DAY_MS)
    assert refused(lab.get_json(f"/jobs/one/{old}")) == (404, "job_not_found")
    written = [entry for entry in lab.entries() if entry.action == "jobs.redrive_edited"]
    assert written[0].asked["payload"] == "12 characters" and "letter" not in str(written)
    restart(lab)
    assert [row["id"] for row in ok(lab.get_json("/jobs/queues/mail/jobs"))["jobs"]] == [new["id"]]
    assert refused(lab.post_json(f"/jobs/one/{new['id']}/redrive_edited", {"payload": "x"})) == (400, "bad_job")
    assert refused(lab.post_json(f"/jobs/one/{new['id']}/redrive_edited")) == (400, "bad_option")
    bad = {"payload": "!!", "encoding": "base64"}
    assert refused(lab.post_json(f"/jobs/one/{new['id']}/redrive_edited", bad)) == (400, "bad_option")


def test_an_edit_that_is_broken_off_loses_no_job(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    old = dead(lab, "mail", b"no", b"bad", unique="k")

    def refuse(engine: JobEngine, id: bytes) -> int:
        raise DiskError("the disk refused it")

    monkeypatch.setattr(jobs_redriving, "delete_old", refuse)
    done = ok(lab.post_json(f"/jobs/one/{old}/redrive_edited", {"payload": "good"}))
    assert "still there: the disk refused it" in done["did"]
    restart(lab)
    assert ok(lab.get_json(f"/jobs/one/{old}"))["state"] == "failed"
    assert ok(lab.get_json(f"/jobs/one/{done['id']}"))["payload"]["text"] == "good"

    def stop(engine: JobEngine, id: bytes) -> int:
        raise ZeroDivisionError  # a mistake of ours

    monkeypatch.setattr(jobs_redriving, "delete_old", stop)
    other = dead(lab, "mail", b"no", b"worse")
    assert (
        lab.request(
            "POST",
            f"/api/v1/jobs/one/{other}/redrive_edited",
            b'{"payload": "better"}',
            {"content-type": "application/json"},
        ).status
        == 500
    )
    assert ok(lab.get_json(f"/jobs/one/{other}"))["state"] == "failed"
    # Another job has the key: nothing is done at all.
    assert refused(lab.post_json(f"/jobs/one/{old}/redrive_edited", {"payload": "x"})) == (409, "duplicate_job")
    assert ok(lab.get_json(f"/jobs/one/{old}"))["state"] == "failed"


def test_what_a_form_cannot_hold_is_edited_in_base_64() -> None:
    assert pages.editable(shown(b"a\n\tb")) == ("a\n\tb", "text")
    assert pages.editable(shown(b"a\r\nb")) == ("YQ0KYg==", "base64")
    assert pages.editable(shown(b"\xff")) == ("/w==", "base64")
    assert pages.editable(shown(b"a\0")) == ("YQA=", "base64")
    assert pages.editable(shown(b"abc", 2)) is None


# -- changing ----------------------------------------------------------------------------------------------------------


def test_a_job_is_added_with_its_options_and_handed_to_who_waits(lab: HttpLab) -> None:
    body = {"payload": "aGkA", "encoding": "base64", "priority": -3, "ttr_s": 1.5, "delay_s": 30, "unique": "k"}
    plan = ok(lab.post_json("/jobs/queues/mail/add", {**body, "dry_run": True}))
    assert "to be had in 30s" in plan["details"][1] and ok(lab.get_json("/jobs/queues"))["queues"] == []
    id = ok(lab.post_json("/jobs/queues/mail/add", body))["id"]
    one = ok(lab.get_json(f"/jobs/one/{id}"))
    assert (one["state"], one["priority"], one["ttr_ms"], one["unique"]) == ("scheduled", -3, 1500, "k")
    assert engine(lab).job(parse_id(id)).payload == b"hi\0"
    assert refused(lab.post_json("/jobs/queues/mail/add", body)) == (409, "duplicate_job")
    told, given = threading.Event(), list[bytes]()

    def deliver(jobs: list[Job], position: int) -> None:
        given.extend(job.payload for job in jobs)
        told.set()

    engine(lab).expect_job(LeaseWaiter(["video"], 1, deliver))
    acted = act(lab, "jobs.add", {"queue": "video", "payload": "one\r\ntwo", "newlines": "lf", "priority": "1"})
    assert acted.status == 200 and told.wait(60) and given == [b"one\ntwo"]


@pytest.mark.parametrize(
    ("queue", "body"),
    [
        ("bad%20name", {}),
        ("q" * 300, {}),
        ("q", {"ttr_s": 0}),
        ("q", {"ttr_s": -1}),
        ("q", {"ttl_s": 1e300}),
        ("q", {"max_fails": 256}),
        ("q", {"priority": 2**40}),
        ("q", {"unique": "no spaces"}),
        ("q", {"payload": "x", "encoding": "base64"}),
        ("q", {"payload": "x" * ((1 << 20) + 1)}),
        ("q", {"payload": "é" * (1 << 19) + "é"}),
        ("q", {"colour": "red"}),
    ],
)
def test_a_job_that_cannot_be_is_refused(lab: HttpLab, queue: str, body: dict[str, object]) -> None:
    for dry_run in (True, False):
        status, code = refused(lab.post_json(f"/jobs/queues/{queue}/add", {**body, "dry_run": dry_run}))
        assert status == 400 and code in ("bad_job", "bad_option")
    assert ok(lab.get_json("/jobs/queues"))["jobs"] == 0


def test_a_lease_is_given_back_a_job_is_deleted_and_a_queue_is_paused(lab: HttpLab) -> None:
    id = add(lab, "mail")
    for dry_run in (True, False):
        assert refused(lab.post_json(f"/jobs/one/{id}/release", {"dry_run": dry_run})) == (409, "not_leased")
        assert refused(lab.post_json(f"/jobs/one/{id}/redrive", {"dry_run": dry_run})) == (400, "bad_job")
    assert ok(lab.post_json("/jobs/queues/mail/pause", {"dry_run": True}))["details"]
    assert "paused" in act(lab, "jobs.pause", {"queue": "mail"}).did
    assert engine(lab).lease(["mail"])[0] == []
    assert ok(lab.get_json("/jobs/queues/mail"))["is_paused"]
    assert "resumed" in act(lab, "jobs.resume", {"queue": "mail"}).did
    lease(lab, "mail")
    assert "may be done twice" in ok(lab.post_json(f"/jobs/one/{id}/release", {"dry_run": True}))["warning"]
    assert ok(lab.post_json(f"/jobs/one/{id}/release", {"delay_s": 60}))["count"] == 1
    one = ok(lab.get_json(f"/jobs/one/{id}"))
    assert (one["state"], one["attempts"], one["given_back"]) == ("scheduled", 0, 1)
    acted = act(lab, "jobs.delete", {"id": id})
    assert acted.status == 200 and "cannot be brought back" in acted.plan
    assert refused(lab.post_json(f"/jobs/one/{id}/delete")) == (404, "job_not_found")
    assert refused(lab.post_json("/jobs/queues/nobody/resume")) == (404, "job_not_found")
    assert refused(lab.post_json("/jobs/queues/nobody/resume", {"dry_run": True})) == (404, "job_not_found")
    assert refused(lab.post_json("/jobs/queues/bad%20name/pause")) == (400, "bad_job")
    restart(lab)
    assert ok(lab.get_json("/jobs/queues"))["jobs"] == 0


def test_jobs_that_are_over_are_purged_by_age_a_part_at_a_time(lab: HttpLab) -> None:
    ids = [dead(lab, "mail", b"no") for _ in range(250)]
    for id in (add(lab, "mail"), add(lab, "mail")):
        engine(lab).complete(parse_id(id), b"")
    add(lab, "mail")
    path = "/jobs/queues/mail/purge"
    assert ok(lab.post_json(path, {"state": "failed", "older_s": 3600}))["count"] == 0
    plan = ok(lab.post_json(path, {"state": "failed", "older_s": 0, "limit": 120, "dry_run": True}))
    assert plan["count"] == 120 and "120 of 250" in plan["will"] and plan["warning"]
    done = ok(lab.post_json(path, {"state": "failed", "older_s": 0, "limit": 120}))
    assert done["count"] == 120 and "130 are left" in done["did"]
    done = ok(lab.post_json(path, {"state": "failed", "older_s": 0}))
    assert done["count"] == 130 and "left" not in done["did"]
    left = ok(lab.get_json("/jobs/queues/mail"))
    assert (left["failed"], left["completed"], left["ready"]) == (0, 2, 1)
    assert ok(lab.post_json(path, {"state": "completed", "older_s": 0}))["count"] == 2
    assert refused(lab.post_json(path, {"state": "ready", "older_s": 0})) == (400, "bad_option")
    assert refused(lab.post_json(path, {"state": "failed"})) == (400, "bad_option")
    assert refused(lab.get_json(f"/jobs/one/{ids[0]}")) == (404, "job_not_found")


# -- rights ------------------------------------------------------------------------------------------------------------

_OF_ONE = ("delete", "release", "redrive", "redrive_edited")
_OF_QUEUE = ("add", "pause", "resume", "redrive", "redrive_group", "purge")


def _body(verb: str) -> dict[str, object]:
    bodies: dict[str, dict[str, object]] = {
        "redrive_edited": {"payload": "x"},
        "redrive_group": {"error": "no"},
        "purge": {"state": "failed", "older_s": 0},
    }
    return bodies.get(verb, {})


def test_rights_are_by_the_name_of_the_queue(lab: HttpLab) -> None:
    mine, others = dead(lab, "mail.out", b"no"), dead(lab, "video", b"no", b"secret")
    reader = lab.user("ann", "jobs:read:mail.*")
    writer = lab.user("bob", "jobs:write:mail.*")
    master = lab.user("eve", "jobs:admin:mail.*")
    stranger = lab.user("tom", "topics:admin")
    found = ok(lab.get_json("/jobs/queues", reader))
    assert [row["name"] for row in found["queues"]] == ["mail.out"] and found["total"] is None and found["jobs"] is None
    assert len(ok(lab.get_json("/jobs/search", reader, text="x"))["jobs"]) == 1
    assert ok(lab.get_json("/jobs/search", reader, text=others))["jobs"] == []
    assert ok(lab.get_json("/jobs/search", reader, text="secret"))["jobs"] == []
    assert ok(lab.get_json(f"/jobs/one/{mine}", reader))["queue"] == "mail.out"
    for path in ("/jobs/queues/video", "/jobs/queues/video/jobs", "/jobs/queues/video/dead"):
        assert refused(lab.get_json(path, reader)) == (403, "not_allowed")
    assert refused(lab.get_json("/jobs/search", reader, text="x", queue="video")) == (403, "not_allowed")
    for path in (f"/jobs/one/{others}", f"/jobs/one/{others}/timeline"):  # as if it was not there
        assert refused(lab.get_json(path, reader)) == (404, "job_not_found")
    for path in ("/jobs/queues", "/jobs/search?text=x", f"/jobs/one/{mine}", "/jobs/queues/mail.out"):
        assert refused(lab.get_json(path, stranger)) == (403, "not_allowed")
    assert lab.get_json("/jobs/queues")[0] == 401

    for verb in _OF_ONE:
        for dry_run in (True, False):
            body = {**_body(verb), "dry_run": dry_run}
            assert refused(lab.post_json(f"/jobs/one/{mine}/{verb}", body, reader)) == (403, "not_allowed")
            assert refused(lab.post_json(f"/jobs/one/{others}/{verb}", body, master)) == (404, "job_not_found")
    for verb in _OF_QUEUE:
        for dry_run in (True, False):
            body = {**_body(verb), "dry_run": dry_run}
            assert refused(lab.post_json(f"/jobs/queues/mail.out/{verb}", body, reader)) == (403, "not_allowed")
            assert refused(lab.post_json(f"/jobs/queues/video/{verb}", body, master)) == (403, "not_allowed")
    assert refused(lab.post_json(f"/jobs/one/{mine}/redrive", None, writer)) == (403, "not_allowed")
    assert refused(lab.post_json("/jobs/queues/mail.out/pause", None, writer)) == (403, "not_allowed")
    assert ok(lab.post_json("/jobs/queues/mail.out/add", {"payload": "hi"}, writer))["id"]
    assert ok(lab.post_json(f"/jobs/one/{mine}/redrive", None, master))["count"] == 1
    with engine(lab).lock:
        assert len(engine(lab).state.jobs) == 3

    # Of a job that is gone, only who may see its queue may see its story.
    engine(lab).settle(engine(lab).delete(UUID(others).bytes))
    assert refused(lab.get_json(f"/jobs/one/{others}/timeline", reader)) == (404, "job_not_found")
    assert lab.login(reader) == 303
    status, html, _ = lab.page("/jobs")
    assert status == 200 and "mail.out" in html and "video" not in html
    assert 'action="/act/' not in lab.page("/jobs/queue?name=mail.out")[1]
    assert 'action="/act/' not in lab.page(f"/jobs/one?id={mine}")[1]
    assert lab.page("/jobs/queue?name=video")[0] == 403
    assert act(lab, "jobs.delete", {"id": mine}).status == 403


# -- pages -------------------------------------------------------------------------------------------------------------


def test_pages_say_what_to_do_when_there_is_nothing(lab: HttpLab) -> None:
    assert "lamina jobs add" in text_of(lab.page("/jobs")[1])
    add(lab, "mail")
    assert "No queue has" in text_of(lab.page("/jobs", search="zzz")[1])
    assert "lamina jobs work mail" in text_of(lab.page("/jobs/queue", name="mail", state="leased")[1])
    assert "No job of this queue is failed" in text_of(lab.page("/jobs/dead", name="mail")[1])
    assert "None found in 1 job" in text_of(lab.page("/jobs/find", text="zzz")[1])
    assert lab.page("/jobs/find")[0] == 200
    for path in ("/jobs/queue?name=nobody", f"/jobs/one?id={uuid4()}", "/jobs/dead?name=nobody"):
        status, html, _ = lab.page(path)
        assert status == 404 and ("no queue of jobs named" in html or "no job has the id" in html)
    for path in ("/jobs/one?id=abc", "/jobs/queue", "/jobs/queue?name=mail&after=x", "/jobs?limit=-1"):
        assert lab.page(path)[0] == 400
    assert 'type="search"' in lab.page("/jobs")[1]


def test_pages_lead_from_the_queue_to_the_edit_of_a_dead_letter(lab: HttpLab) -> None:
    id = dead(lab, "mail", b"no user 17", b"\ndear ann")
    html = lab.page("/jobs")[1]
    assert 'href="/jobs/dead?name=mail"' in html
    html = lab.page("/jobs/dead?name=mail")[1]
    assert f'href="/jobs/one?id={id}&amp;edit=true#edit"' in html and "no user #" in html
    html = lab.page(f"/jobs/one?id={id}&edit=true")[1]
    assert '<details class="job-more" id="edit" open>' in html
    held = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", html, re.S)  # a browser drops the first line end
    assert held is not None and held[1] == "\ndear ann"
    acted = act(lab, "jobs.redrive_group", {"queue": "mail", "error": "no user #", "limit": "10"})
    assert acted.status == 200 and acted.did.startswith("put 1 failed jobs")
    assert "Take it from its worker" not in lab.page(f"/jobs/one?id={id}")[1]
    lease(lab, "mail")
    assert "Take it from its worker" in lab.page(f"/jobs/one?id={id}")[1]


def test_a_live_page_has_no_forms(lab: HttpLab) -> None:
    id = add(lab, "mail")
    for path in ("/jobs", "/jobs/queue?name=mail", f"/jobs/one?id={id}"):
        live = lab.page(path)[1].partition('<div id="live" data-live>')[2]
        parts = live.partition("</section>\n</div>")[0] if "/one" in path else live.partition("</div>\n</div>")[0]
        assert parts and "<form" not in parts, path
    with lab.stream(f"/live/jobs/one?id={id}") as events:
        assert next(events).startswith("retry")
        event = next(events)
    assert event.startswith("event: live") and "<form" not in event and 'id="story"' in event


def test_what_is_shown_before_is_no_more_than_what_will_be_done(lab: HttpLab) -> None:
    for number in range(4):
        dead(lab, "few", b"no", b"%d" % number)
    for path in ("purge", "redrive"):
        more = {"state": "failed", "older_s": 0} if path == "purge" else {}
        status, plan = lab.post_json(f"/api/v1/jobs/queues/few/{path}", {"limit": 2, "dry_run": True, **more})
        assert (status, plan["count"], len(plan["details"])) == (200, 2, 2), plan
