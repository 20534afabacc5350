"""Logs over HTTP: sizes as on the disk, what is alive, who pins what, and every action planned and done."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from http_lab import HttpLab, text_of
from integration.workq_server import add, job_id
from lamina.engines.queues import ids
from lamina.engines.topics.retention import Retentions
from lamina.errors import Stopped
from lamina.log import consumers
from lamina.log.files.real import RealFiles
from lamina.log.reader import Reader
from lamina.server.http.ops import logs_verify
from lamina.server.http.ops.logs_sizes import together
from lamina.server.http.ops.logs_works import Running

FILES = RealFiles()
DAY_NS = 86_400 * 10**9
_LONGEST_S = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path, **{"server.history_s": "0"}) as lab:
        assert lab.inside.topics_upkeep is not None
        lab.inside.topics_upkeep.retentions = Retentions.parse(["limited*=length:10"])
        yield lab


def fill_jobs(lab: HttpLab, count: int = 60, *, gone: int = 0) -> None:
    """Files of 4 KiB; the first ``gone`` jobs are deleted."""
    for number in range(count):
        assert lab.workq.ask(add(number, "mail", b"x" * 300)).startswith(b"+OK")
    for number in range(gone):
        assert lab.workq.ask(b"delete %b\r\n" % job_id(number).encode()).startswith(b"+OK")


def fill_topic(lab: HttpLab, name: str, count: int = 60) -> list[bytes]:
    return [lab.redis("XADD", name, "*", "f", "x" * 300) for _ in range(count)]


def until(holds: Callable[[], Any]) -> Any:
    """What ``holds`` gives once it is something."""
    end = time.monotonic() + _LONGEST_S
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")


def one(lab: HttpLab, name: str, token: str | None = None) -> Any:
    """A log, when what was measured is of the files that are there now."""

    def look() -> Any:
        status, found = lab.get_json("/logs/one", token, name=name)
        assert status == 200, found
        return None if found["is_measuring"] else found

    until(look)
    from lamina.server.http.ops.logs_desk import desk_of

    desk_of(lab.inside).measures.forget(name)
    return until(look)


def on_disk(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}


def names_of(found: Any) -> list[str]:
    return [row["name"] for row in found["logs"]]


def listed(lab: HttpLab, token: str | None = None, **query: object) -> Any:
    def look() -> Any:
        status, found = lab.get_json("/logs", token, **query)
        assert status == 200, found
        return found if found["is_complete"] else None

    return until(look)


def done(lab: HttpLab, action: str, name: str, token: str | None = None) -> Any:
    """Do it, and wait for its end. Gives the work."""
    status, began = lab.post_json(f"/logs/{action}", {"name": name}, token)
    assert status == 200, began

    def ended() -> Any:
        works = lab.get_json("/logs/one", token, name=name)[1]["works"]
        return next((work for work in works if work["id"] == began["id"] and work["ended_ns"]), None)

    return until(ended) if began["work"] else began


# -- what is shown -----------------------------------------------------------------------------------------------------


def test_every_log_is_listed_with_the_size_that_it_has_on_disk(lab: HttpLab) -> None:
    fill_jobs(lab)
    fill_topic(lab, "orders")
    fill_topic(lab, "team/mail", 1)
    lab.redis("XGROUP", "CREATE", "orders", "billing", "0")
    lab.redis("S.WRITE", "1", "PUT", "k", "v")
    found = listed(lab)
    assert set(names_of(found)) >= {
        "jobs", "queues", "store", "topics/orders", "groups/orders", "topics/team/mail", "logs/lamina.audit",
    }  # fmt: skip
    assert [row["bytes"] for row in found["logs"]] == sorted((row["bytes"] for row in found["logs"]), reverse=True)
    data = lab.folder
    folders = {"jobs": data / "jobs", "topics/orders": data / "topics" / "orders", "queues": data / "queues"}
    for row in found["logs"]:
        if row["name"] in folders:
            assert row["bytes"] + row["other_bytes"] == sum(on_disk(folders[row["name"]]).values()), row["name"]
            assert sum(row["pieces"]) == row["bytes"]
    status, html, _ = lab.page("/log")
    assert status == 200 and "topics/team/mail" in html and "<svg" in html


def test_a_log_shows_its_files_as_they_are_on_disk(lab: HttpLab) -> None:
    fill_jobs(lab)
    found = one(lab, "jobs")
    sizes = {name: size for name, size in on_disk(lab.folder / "jobs").items() if name.endswith(".log")}
    assert len(sizes) > 4
    assert {each["file"]: each["bytes"] for each in found["segments"]} == sizes
    assert found["bytes"] == sum(sizes.values())
    assert found["bytes"] + found["other_bytes"] == sum(on_disk(lab.folder / "jobs").values())
    assert [each["state"] for each in found["segments"]] == ["active"] + ["sealed"] * (len(sizes) - 1)
    assert sum(found["totals"].values()) == found["bytes"]
    for each in found["segments"][1:]:
        assert each["live_bytes"] + each["dead_bytes"] + each["pinned_bytes"] == each["bytes"]
        assert each["first_ns"] <= each["last_ns"] and each["records"] > 0
    assert found["segments"][0]["live_bytes"] is None, "what grows is not split"


def test_records_of_jobs_that_are_gone_are_dead(lab: HttpLab) -> None:
    fill_jobs(lab, gone=30)
    found = one(lab, "jobs")
    oldest = found["segments"][-1]
    assert oldest["dead_bytes"] == oldest["bytes"] - 8, "all but the head of the file"
    newest_sealed = found["segments"][1]
    assert newest_sealed["live_bytes"] > 0
    assert "go at the next cleaning" in found["answer"]


def test_a_consumer_pins_by_its_name_what_it_has_yet_to_read(lab: HttpLab) -> None:
    fill_jobs(lab, gone=50)
    folder = str(lab.folder / "jobs")
    reader = Reader(folder, files=FILES)
    middle = reader.segments()[2]
    first = reader.first_time(middle)
    assert first is not None
    consumers.save(FILES, folder, "spark-hourly", first, time.time_ns() + DAY_NS)
    consumers.save(FILES, folder, "over", 0, 1)
    found = one(lab, "jobs")
    by_file = {each["file"]: each for each in found["segments"]}
    held = [each for each in found["segments"] if each["pinned_bytes"]]
    assert held and all(each["pinned_by"] == ["spark-hourly"] and each["dead_bytes"] == 0 for each in held)
    assert by_file["000000001.log"]["dead_bytes"] and not by_file["000000001.log"]["pinned_by"]
    (holder,) = found["holders"]
    assert (holder["name"], holder["kind"], holder["oldest_file"]) == ("spark-hourly", "consumer", middle.name)
    assert holder["files"] == len([name for name in by_file if name >= middle.name])
    assert "spark-hourly" in found["answer"]
    page = lab.page("/log/one", name="jobs")[1]
    assert "pinned by spark-hourly" in page and 'class="m-bracket"' in page
    done(lab, "clean", "jobs")
    after = {each["file"] for each in one(lab, "jobs")["segments"]}
    assert {each["file"] for each in held} <= after and "000000001.log" not in after


def test_trimmed_and_deleted_entries_of_a_topic_are_dead(lab: HttpLab) -> None:
    added = fill_topic(lab, "orders")
    lab.redis("XDEL", "orders", added[40])
    lab.redis("XTRIM", "orders", "MAXLEN", "=", "35")
    found = one(lab, "topics/orders")
    oldest, sealed = found["segments"][-1], found["segments"][1:]
    assert oldest["dead_bytes"] == oldest["bytes"] and oldest["live_bytes"] == 0
    mixed = [each for each in sealed if each["dead_bytes"] and each["live_bytes"]]
    assert len(mixed) == 2, "where the front is, and where one was deleted"
    assert any(each["dead_bytes"] == 0 for each in sealed)


def test_a_group_pins_what_the_limits_would_let_go(lab: HttpLab) -> None:
    lab.redis("XGROUP", "CREATE", "limited", "billing", "0", "MKSTREAM")
    fill_topic(lab, "limited")
    found = one(lab, "topics/limited")
    oldest = found["segments"][-1]
    assert (oldest["pinned_bytes"], oldest["pinned_by"]) == (oldest["bytes"], ["billing"])
    assert "length" in oldest["note"] and "billing" in found["answer"]
    assert [(each["name"], each["kind"]) for each in found["holders"]] == [("billing", "group")]
    assert done(lab, "clean", "topics/limited")["told"].startswith("let 0 files go")
    lab.redis("XGROUP", "DESTROY", "limited", "billing")
    found = one(lab, "topics/limited")
    assert found["totals"]["pinned"] == 0 and found["totals"]["dead"] > 0
    freed = done(lab, "clean", "topics/limited")
    assert not freed["told"].startswith("let 0 files go")
    assert one(lab, "topics/limited")["totals"]["dead"] == 0


def test_queues_are_told_by_handles_never_by_ids(tmp_path: Path) -> None:
    with HttpLab(tmp_path, queues="journal") as lab:
        rid, sid = lab.redis("Q.NEW")[:2]
        assert lab.redis("Q.SEND", sid, "hello")
        raw = ids.parse(rid)
        assert raw is not None
        found = one(lab, "queues/messages")
        assert [each["file"] for each in found["segments"]] == [f"queue {ids.handle(raw)}"]
        assert found["bytes"] > 0
        page = lab.page("/log/one", name="queues/messages")[1]
        assert rid.decode() not in page and sid.decode() not in page
        assert "no damage" in done(lab, "verify", "queues/messages")["told"]


def test_the_page_of_a_log_is_live(lab: HttpLab) -> None:
    fill_jobs(lab, 3)
    lab.page("/log/one?name=jobs")
    with lab.stream("/live/log/one?name=jobs") as events:
        told = next(event for event in events if event.startswith("event: live"))
    assert "<svg" in told and "000000001.log" in told
    assert "<form" not in told, "forms are of one session"


def test_names_are_shown_as_text(lab: HttpLab) -> None:
    nasty = "<script>alert(1)</script>"
    fill_topic(lab, nasty, 3)
    fill_topic(lab, "\x00odd", 3)
    found = listed(lab, search="script")
    assert names_of(found) == [f"topics/{nasty}"]
    assert "<script>alert" not in lab.page("/log")[1]
    assert "<script>alert" not in lab.page("/log/one", name=f"topics/{nasty}")[1]
    assert lab.get_json("/logs/one", name="topics/hex:006f6464")[0] == 200


def test_pages_of_the_list_have_every_log_once(lab: HttpLab) -> None:
    for number in range(12):
        fill_topic(lab, f"t{number}", 1)
    listed(lab)
    seen: list[str] = []
    after = ""
    while True:
        found = listed(lab, limit=5, after=after)
        seen += names_of(found)
        after = found["next"]
        if not after:
            break
    assert len(seen) == len(set(seen)) == found["count"]
    assert {f"topics/t{number}" for number in range(12)} <= set(seen)
    assert listed(lab, search="T1")["count"] == 3


def test_pages_of_the_files_have_every_file_once(lab: HttpLab) -> None:
    fill_jobs(lab)
    whole = [each["file"] for each in one(lab, "jobs")["segments"]]
    first = lab.get_json("/logs/one", name="jobs", limit=3)[1]
    rest = lab.get_json("/logs/one", name="jobs", after=first["next"])[1]
    assert [each["file"] for each in first["segments"] + rest["segments"]] == whole
    assert rest["next"] == ""


def test_what_is_not_there_is_said_so(lab: HttpLab) -> None:
    queries: list[tuple[dict[str, object], int]] = [
        ({"name": "nothing"}, 404),
        ({"name": "topics/nothing"}, 404),
        ({"name": "groups/nothing"}, 404),
        ({"name": "logs/nothing"}, 404),
        ({"name": "logs/../jobs"}, 404),
        ({"name": "topics/hex:zz"}, 400),
        ({"name": "topics/" + "x" * 4000}, 404),
        ({"name": ""}, 400),
        ({"name": "jobs", "limit": 10**30}, 400),
        ({}, 400),
    ]
    for query, status in queries:
        assert lab.get_json("/logs/one", None, **query)[0] == status, query
        assert lab.page("/log/one", **query)[0] == status, query


def test_a_page_that_cannot_be_is_refused(lab: HttpLab) -> None:
    assert lab.get_json("/logs", after="nonsense")[0] == 400
    assert lab.get_json("/logs", limit=0)[0] == 400


# -- actions -----------------------------------------------------------------------------------------------------------


def test_rotating_is_planned_then_done_and_audited(lab: HttpLab) -> None:
    fill_jobs(lab, 3)
    status, plan = lab.post_json("/logs/rotate", {"name": "jobs", "dry_run": True})
    assert status == 200 and "seal 000000001.log of jobs" in plan["will"]
    assert one(lab, "jobs")["segments"][0]["state"] == "active", "a plan changes nothing"
    acted = lab.act("logs.rotate", {"name": "jobs"})
    assert (acted.status, acted.did) == (200, "sealed 000000001.log of jobs")
    assert "This will seal 000000001.log of jobs" in acted.plan
    assert one(lab, "jobs")["segments"][0]["state"] == "sealed"
    assert "sealed 000000001.log of jobs" in text_of(lab.page("/log/one", name="jobs")[1])
    assert lab.act("logs.rotate", {"name": "jobs"}).did.startswith("nothing was in the file")
    entry = lab.entries()[2]
    assert (entry.action, entry.target, entry.outcome) == ("logs.rotate", "jobs", "done")


def test_cleaning_jobs_frees_what_was_dead(lab: HttpLab) -> None:
    fill_jobs(lab, gone=40)
    before = one(lab, "jobs")
    plan = lab.post_json("/logs/clean", {"name": "jobs", "dry_run": True})[1]
    assert plan["count"] == before["segment_count"] - 1 and "jobs that are gone" in " ".join(plan["details"])
    work = done(lab, "clean", "jobs")
    assert work["outcome"] == "done" and "removed" in work["told"]
    after = one(lab, "jobs")
    assert after["totals"]["dead"] == 0
    left = sum(each["bytes"] for each in after["segments"] if each["state"] != "checkpoint")
    assert left <= before["bytes"] - before["totals"]["dead"] + 500, "but for marks"
    assert after["works"][0]["action"] == "clean"
    assert "What was done" in lab.page("/log/one", name="jobs")[1]


@pytest.mark.parametrize("history_s", [0, 3600])
def test_queues_are_dumped(tmp_path: Path, history_s: int) -> None:
    with HttpLab(tmp_path, **{"server.history_s": str(history_s)}) as lab:
        sid = lab.redis("Q.NEW")[1]
        assert lab.redis("Q.SEND", sid, "hello")
        plan = lab.post_json("/logs/clean", {"name": "queues", "dry_run": True})[1]
        assert "write a dump of 1 queues" in plan["will"]
        assert done(lab, "clean", "queues")["told"].startswith("wrote dump 0: 1 queues, 1 messages")
        found = one(lab, "queues")
        states = {each["file"]: each["state"] for each in found["segments"]}
        assert states["smp-server-store-0.dump"] == "dump"
        assert ("smp-server-store-0.log" in states) == bool(history_s)
        held = [each for each in found["holders"] if each["kind"] == "history"]
        assert [(each["files"], each["oldest_file"]) for each in held] == [(1, "smp-server-store-0.log")][: len(held)]
        assert bool(held) == bool(history_s)
        assert lab.post_json("/logs/rotate", {"name": "queues"})[0] == 400


def test_what_the_store_keeps_for_the_recent_past_is_told(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        for value in ("old", "new"):
            lab.redis("S.WRITE", "1", "PUT", "k", value)
            assert done(lab, "compact", "store")["told"].startswith("merged ")
        found = one(lab, "store")
        (held,) = [each for each in found["holders"] if each["kind"] == "history"]
        assert held["files"] >= 2 and held["bytes"] > 0 and "history_s" in held["advice"]
        assert lab.redis("S.GET", "1", "k", "ASOF", "1") in (b"old", None)


def test_a_store_is_rotated_compacted_and_cleaned(tmp_path: Path) -> None:
    with HttpLab(tmp_path, **{"server.history_s": "0"}) as lab:
        _rotate_compact_and_clean_a_store(lab)


def _rotate_compact_and_clean_a_store(lab: HttpLab) -> None:
    for number in range(20):
        lab.redis("S.WRITE", "1", "PUT", f"k{number % 5}", "v" * 100)
    assert "sealed" in lab.act("logs.rotate", {"name": "store"}).did
    plan = lab.post_json("/logs/compact", {"name": "store", "dry_run": True})[1]
    assert plan["count"] >= 1
    assert done(lab, "compact", "store")["told"].startswith("merged ")
    found = one(lab, "store")
    assert "compacted" in {each["state"] for each in found["segments"]}
    assert found["totals"]["dead"] > 0
    plan = lab.post_json("/logs/clean", {"name": "store", "dry_run": True})[1]
    assert plan["count"] >= 1
    assert done(lab, "clean", "store")["told"].startswith(f"removed {plan['count']} files")
    assert one(lab, "store")["totals"]["dead"] == 0
    assert lab.redis("S.GET", "1", "k1") == b"v" * 100


def test_the_log_of_groups_is_compacted(lab: HttpLab) -> None:
    fill_topic(lab, "orders", 3)
    for number in range(5):
        lab.redis("XGROUP", "CREATE", "orders", f"g{number}", "0")
    assert (
        "write what the groups know anew"
        in lab.post_json("/logs/compact", {"name": "groups/orders", "dry_run": True})[1]["will"]
    )
    assert "removed 1 files" in done(lab, "compact", "groups/orders")["told"]
    assert len(lab.redis("XINFO", "GROUPS", "orders")) == 5


def test_sound_logs_are_verified(lab: HttpLab) -> None:
    fill_jobs(lab, 20)
    fill_topic(lab, "orders", 20)
    lab.redis("XGROUP", "CREATE", "orders", "billing", "0")
    lab.redis("S.WRITE", "1", "PUT", "k", "v")
    for name in ("jobs", "topics/orders", "groups/orders", "queues", "store", "logs/lamina.audit"):
        assert "nothing is changed" in lab.post_json("/logs/verify", {"name": name, "dry_run": True})[1]["will"]
        work = done(lab, "verify", name)
        assert (work["outcome"], work["damage"]) == ("done", []), work
        assert work["told"].endswith("no damage")


def test_damage_is_found_and_shown_with_its_file_and_byte(lab: HttpLab) -> None:
    fill_jobs(lab)
    path = lab.folder / "jobs" / "000000002.log"
    with path.open("r+b") as file:
        file.seek(1000)
        byte = file.read(1)
        file.seek(1000)
        file.write(bytes([byte[0] ^ 1]))
    work = done(lab, "verify", "jobs")
    (bad,) = work["damage"]
    assert bad["file"] == "000000002.log" and bad["offset"] <= 1000 < bad["end"]
    found = one(lab, "jobs")
    assert found["damage"] == [bad]
    assert next(each for each in found["segments"] if each["file"] == bad["file"])["damage"] == [bad]
    page = lab.page("/log/one", name="jobs")[1]
    assert 'class="m-damage"' in page
    assert f"Damage in 000000002.log , byte {bad['offset']}" in text_of(page).replace("\u202f", "")


def test_all_of_a_log_is_measured_when_somebody_asks_for_it(lab: HttpLab) -> None:
    fill_jobs(lab, gone=30)
    assert "are alive" in done(lab, "measure", "jobs")["told"]
    assert lab.post_json("/logs/measure", {"name": "logs/lamina.audit"})[0] == 400


def test_a_second_request_is_refused_until_the_first_ends_or_is_stopped(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, goes_on = threading.Event(), threading.Event()

    def slow(ref: object, work: Running) -> str:
        for step in range(10**6):
            work.progress(step, 10**6)
            began.set()
            goes_on.wait(0.01)
        raise AssertionError("nobody stopped it")

    monkeypatch.setattr(logs_verify, "verify", slow)
    fill_jobs(lab, 3)
    status, first = lab.post_json("/logs/verify", {"name": "jobs"})
    assert status == 200 and first["did"].startswith("began to verify jobs")
    assert began.wait(_LONGEST_S)
    status, found = lab.post_json("/logs/clean", {"name": "jobs"})
    assert (status, found["error"]["code"]) == (503, "busy")
    assert "began to verify jobs before" in found["error"]["message"]
    assert lab.post_json("/logs/verify", {"name": "jobs", "dry_run": True})[0] == 503
    page = text_of(lab.page("/log/one", name="jobs")[1])
    assert "verify goes on since" in page and "Stop verify" in page
    assert lab.post_json("/logs/stop", {"name": "jobs"})[1]["did"] == "stopped: verify jobs"
    (work,) = until(lambda: [each for each in one(lab, "jobs")["works"] if each["ended_ns"]])
    assert work["outcome"] == Stopped.code
    assert lab.post_json("/logs/stop", {"name": "jobs"})[0] == 404
    monkeypatch.undo()
    assert done(lab, "verify", "jobs")["outcome"] == "done"


def test_what_cannot_be_done_to_a_log_is_refused_with_what_can(lab: HttpLab) -> None:
    fill_topic(lab, "orders", 1)
    for action, name in (("compact", "jobs"), ("compact", "topics/orders"), ("clean", "logs/lamina.audit")):
        status, found = lab.post_json(f"/logs/{action}", {"name": name})
        assert (status, found["error"]["code"]) == (400, "bad_option"), found
        assert found["error"]["hint"]
    assert lab.post_json("/logs/rotate", {"name": "topics/nothing"})[0] == 404


# -- rights ------------------------------------------------------------------------------------------------------------


def test_who_may_read_some_topics_sees_the_logs_of_these_alone(lab: HttpLab) -> None:
    fill_jobs(lab, 3)
    fill_topic(lab, "orders.eu", 3)
    fill_topic(lab, "secret", 3)
    token = lab.user("ann", "topics:read:orders.*")
    found = listed(lab, token)
    assert names_of(found) == ["topics/orders.eu"]
    assert found["largest_bytes"] == found["bytes"] == found["logs"][0]["bytes"], "not even the size of others"
    assert lab.get_json("/logs/one", token, name="topics/orders.eu")[0] == 200
    for name in ("topics/secret", "topics/nothing", "jobs", "queues", "logs/lamina.audit"):
        assert lab.get_json("/logs/one", token, name=name)[0] == 403, name
    lab.login(token)
    page = lab.page("/log")[1]
    assert "orders.eu" in page and "secret" not in page and "jobs" not in text_of(page)
    assert "/act/logs." not in lab.page("/log/one", name="topics/orders.eu")[1], "no button that it may not press"


def test_only_admins_of_a_log_may_do_something_to_it(lab: HttpLab) -> None:
    fill_topic(lab, "orders", 3)
    reader = lab.user("ann", "*:write")
    admin = lab.user("bob", "topics:admin:orders")
    for action in ("rotate", "clean", "compact", "verify", "measure", "stop"):
        for body in ({"name": "jobs"}, {"name": "topics/orders"}, {"name": "jobs", "dry_run": True}):
            assert lab.post_json(f"/logs/{action}", body, reader)[0] == 403, (action, body)
        assert lab.post_json(f"/logs/{action}", {"name": "jobs"}, admin)[0] == 403
        assert lab.post_json(f"/logs/{action}", {"name": "topics/other"}, admin)[0] == 403
    for action in ("rotate", "clean", "verify", "measure"):
        assert done(lab, action, "topics/orders", admin)


# -- small parts -------------------------------------------------------------------------------------------------------


def test_neighbours_are_added_up_and_nothing_is_lost() -> None:
    sizes = list(range(1, 1001))
    assert len(together(sizes, 80)) <= 80 and sum(together(sizes, 80)) == sum(sizes)
    assert together([1, 2], 80) == [1, 2]


def test_a_log_that_grows_is_seen_to_grow_without_listing_its_folder_again(lab: HttpLab) -> None:
    fill_topic(lab, "orders", 1)
    size = {row["name"]: row["bytes"] for row in listed(lab)["logs"]}["topics/orders"]
    fill_topic(lab, "orders", 1)

    def has_grown() -> bool:
        from lamina.server.http.ops.logs_desk import desk_of

        desk_of(lab.inside).sizes.forget()
        now = {row["name"]: row["bytes"] for row in listed(lab)["logs"]}["topics/orders"]
        return bool(now > size) and now == sum(
            each for name, each in on_disk(lab.folder / "topics" / "orders").items() if name.endswith(".dat")
        )

    assert until(has_grown)
    assert os.listdir(lab.folder / "topics" / "orders")
