"""Queues over HTTP: seen by powerless handles, browsed without taking, purged by age, moved without loss, ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from http_lab import Acted, HttpLab
from lamina.engines.queues import ids, tending_served
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.handles import Handles
from lamina.engines.queues.looking import look_at_served
from lamina.engines.queues.message import Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.errors import BadOption, DiskError, NotThere
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, Sync, interval
from lamina.testing import ManualClock, MemoryFiles, PowerLoss

STORES = ["memory", "journal"]
FOLDER = "/queues"


@pytest.fixture(params=STORES)
def lab(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[HttpLab]:
    settings: dict[str, Any] = {"queues.quota": "10", "queues.max_file_messages": "16"}
    with HttpLab(tmp_path, queues=request.param, **settings) as lab:
        yield lab


class Made:
    """A queue that a client made."""

    def __init__(self, lab: HttpLab, *words: str) -> None:
        self.lab = lab
        self.rid, self.sid = (word.decode() for word in lab.redis("Q.NEW", *words))
        rid = ids.parse(self.rid.encode())
        assert rid is not None
        self.handle = ids.handle(rid)

    def send(self, *bodies: str | bytes) -> None:
        for body in bodies:
            self.lab.redis("Q.SEND", self.sid, body)

    def bodies(self) -> list[str]:
        found = get(self.lab, f"/queues/{self.handle}/messages", limit=1000)
        return [each["body"]["text"] for each in found["messages"] if not each["is_quota"]]


def get(lab: HttpLab, path: str, **query: object) -> Any:
    status, found = lab.get_json(path, None, **query)
    assert status == 200, found
    return found


def post(lab: HttpLab, path: str, body: object = None) -> Any:
    status, found = lab.post_json(path, body)
    assert status == 200, found
    return found


def act(lab: HttpLab, operation: str, fields: Mapping[str, object] | None = None) -> Acted:
    """Press a button and confirm; then the browser has seen what was done."""
    acted = lab.act(operation, fields)
    lab.cookies.pop("lamina_told", None)
    return acted


# -- looking -----------------------------------------------------------------------------------------------------------


def test_the_deepest_come_first_and_all_can_be_paged_through(lab: HttpLab) -> None:
    made = [Made(lab) for _ in range(7)]
    for number, queue in enumerate(made):
        queue.send(*map(str, range(number)))
    found = get(lab, "/queues", limit=3)
    assert [each["handle"] for each in found["queues"]] == [each.handle for each in reversed(made[4:])]
    assert [each["messages"] for each in found["queues"]] == [6, 5, 4]
    assert (found["total"], found["messages"], found["quota"]) == (7, 21, 10)

    pages, after = [], ""
    while True:
        page = get(lab, "/queues", order="handle", limit=3, after=after)
        pages.append([each["handle"] for each in page["queues"]])
        after = page["next"]
        if not after:
            break
    assert list(map(len, pages)) == [3, 3, 1]
    assert [handle for page in pages for handle in page] == sorted(each.handle for each in made)
    wanted = made[2].handle
    assert [each["handle"] for each in get(lab, "/queues", prefix=wanted[:5])["queues"]] == [wanted]


def test_what_is_known_of_one_queue(lab: HttpLab) -> None:
    queue = Made(lab, "SKEY", "secret", "TTL", "60")
    lab.redis("Q.SEND", queue.sid, "ab", "FLAGS", "T", "KEY", "secret")
    lab.redis("Q.SUB", queue.rid)
    found = get(lab, f"/queues/{queue.handle[:8]}")
    assert found["handle"] == queue.handle
    assert (found["messages"], found["bytes"], found["quota"], found["ttl_s"]) == (1, 2, 10, 60)
    assert found["has_subscriber"] and found["is_in_hand"] and found["is_secured"]
    assert not found["is_suspended"] and not found["is_closed"]
    assert found["oldest_s"] == found["newest_s"] and found["oldest_age_s"] >= 0
    assert found["created_s"] % 86_400 == 0


def test_browsing_takes_nothing_and_goes_on_where_it_was(lab: HttpLab) -> None:
    queue = Made(lab)
    queue.send(*(f"m{number}" for number in range(6)))
    before = lab.redis("Q.INFO", queue.rid)
    first = get(lab, f"/queues/{queue.handle}/messages", limit=2)
    assert [each["body"]["text"] for each in first["messages"]] == ["m0", "m1"]
    assert lab.redis("Q.INFO", queue.rid) == before
    for body in (b"m0", b"m1", b"m2"):  # the recipient goes on meanwhile, beyond the page
        got = lab.redis("Q.GET", queue.rid)
        assert got[3] == body
        lab.redis("Q.ACK", queue.rid, got[0])
    second = get(lab, f"/queues/{queue.handle}/messages", limit=2, after=first["next"])
    assert [each["body"]["text"] for each in second["messages"]] == ["m3", "m4"]
    assert [each["number"] for each in second["messages"]] == [1, 2]
    lab.redis("Q.ACK", queue.rid, lab.redis("Q.GET", queue.rid)[0])  # and a mark that moved is found again
    third = get(lab, f"/queues/{queue.handle}/messages", limit=2, after=second["next"])
    assert [each["body"]["text"] for each in third["messages"]] == ["m5"] and not third["next"]


def test_bodies_are_cut_binary_is_base_64_and_the_mark_of_the_quota_is_none(lab: HttpLab) -> None:
    queue = Made(lab)
    queue.send("x" * 5000, b"\xff\x00", *("y" * 8))
    lab.redis("Q.SEND", queue.sid, "one too many")
    long, binary, *_, mark = get(lab, f"/queues/{queue.handle}/messages", body_bytes=10)["messages"]
    assert (long["body"]["text"], long["body"]["size"], long["body"]["is_cut"]) == ("x" * 10, 5000, True)
    assert (binary["body"]["text"], binary["body"]["base64"]) == (None, "/wA=")
    assert mark["is_quota"] and mark["body"] is None
    facts = get(lab, f"/queues/{queue.handle}")
    assert facts["messages"] == 10 and facts["is_closed"]


# -- acting ------------------------------------------------------------------------------------------------------------


def test_purging_drops_what_is_older_from_the_head_and_stays_so(lab: HttpLab) -> None:
    queue = Made(lab)
    queue.send("a", "b", "c")
    plan = post(lab, f"/queues/{queue.handle}/purge", {"older_than": "1h", "dry_run": True})
    assert plan["count"] == 0
    assert post(lab, f"/queues/{queue.handle}/purge", {"older_than": "1h"})["count"] == 0
    assert queue.bodies() == ["a", "b", "c"]
    plan = post(lab, f"/queues/{queue.handle}/purge", {"older_than": "0", "dry_run": True})
    assert plan["count"] == 3 and "3 messages" in plan["will"]
    assert queue.bodies() == ["a", "b", "c"], "a plan changes nothing"
    acted = act(lab, "queues.purge", {"handle": queue.handle, "older_than": "0"})
    assert acted.status == 200 and "dropped 3 messages" in acted.did
    queue.send("d")
    lab.restart()
    assert queue.bodies() == ["d"]


def test_a_subscriber_goes_on_behind_a_purge(lab: HttpLab) -> None:
    queue = Made(lab)
    queue.send("a", "b")
    lab.redis("Q.SUB", queue.rid)
    pushed = lab.wire.read()
    post(lab, f"/queues/{queue.handle}/purge", {"older_than": "0"})
    queue.send("c")
    following = lab.redis("Q.ACK", queue.rid, pushed[2])
    assert following[3] == b"c", "its acknowledgement brings what is next, as when a message expires"


def test_moved_messages_come_to_who_waits_for_them(lab: HttpLab) -> None:
    source, target = Made(lab), Made(lab)
    source.send("a", "b", "c")
    lab.redis("Q.SUB", target.rid)
    plan = post(lab, f"/queues/{source.handle}/move", {"to": target.handle, "limit": 2, "dry_run": True})
    assert plan["count"] == 2 and any("room for 10" in line for line in plan["details"])
    acted = act(lab, "queues.move", {"handle": source.handle, "to": target.handle, "limit": 2})
    assert "moved 2 messages" in acted.did
    assert lab.wire.read()[5] == b"a", "the subscriber of the other queue is told"
    assert (source.bodies(), target.bodies()) == (["c"], ["a", "b"])
    lab.restart()
    assert (source.bodies(), target.bodies()) == (["c"], ["a", "b"])


def test_no_more_is_moved_than_there_is_room_for(lab: HttpLab) -> None:
    source, target, off = Made(lab), Made(lab), Made(lab)
    source.send(*map(str, range(6)))
    target.send(*(["x"] * 7))
    plan = post(lab, f"/queues/{source.handle}/move", {"to": target.handle, "dry_run": True})
    assert plan["count"] == 3 and any("3 of the 6" in line for line in plan["details"])
    assert post(lab, f"/queues/{source.handle}/move", {"to": target.handle})["count"] == 3
    assert source.bodies() == ["3", "4", "5"]
    for is_dry in (True, False):
        status, told = lab.post_json(f"/queues/{source.handle}/move", {"to": target.handle, "dry_run": is_dry})
        assert status == 400 and "quota of 10" in told["error"]["message"]
    lab.redis("Q.OFF", off.rid)
    status, told = lab.post_json(f"/queues/{source.handle}/move", {"to": off.handle})
    assert status == 400 and "suspended" in told["error"]["message"]
    status, told = lab.post_json(f"/queues/{source.handle}/move", {"to": source.handle})
    assert status == 400 and "same queue" in told["error"]["message"]
    assert source.bodies() == ["3", "4", "5"]


def test_suspended_deleted_and_dumped(lab: HttpLab) -> None:
    queue, other = Made(lab), Made(lab)
    queue.send("a")
    other.send("b")
    assert "no way back" in act(lab, "queues.suspend", {"handle": queue.handle}).plan
    assert "AUTH" in str(lab.redis("Q.SEND", queue.sid, "c"))
    assert get(lab, f"/queues/{queue.handle}")["is_suspended"]
    assert post(lab, f"/queues/{queue.handle}/suspend", {"dry_run": True})["count"] == 0
    lab.redis("Q.SUB", queue.rid)
    assert lab.wire.read()[5] == b"a"
    acted = act(lab, "queues.delete", {"handle": queue.handle})
    assert "with it 1 message" in acted.plan and "deleted" in acted.did
    assert lab.wire.read()[0] == b"q.del", "its subscriber is told"
    assert lab.get_json(f"/queues/{queue.handle}")[0] == 404
    assert "1 queues" in act(lab, "queues.dump").did
    lab.restart()
    assert get(lab, "/queues")["total"] == 1 and other.bodies() == ["b"]


# -- refusals and secrets ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/queues/aaaaaaaaaaaaaaaa", None, 404),
        ("/queues/NOT-A-HANDLE", None, 400),
        ("/queues?limit=0", None, 400),
        ("/queues?limit=1001", None, 400),
        ("/queues?order=size", None, 400),
        ("/queues?after=%00", None, 400),
        ("/queues/{handle}/messages?after=1.zz", None, 400),
        ("/queues/{handle}/messages?after=999999999.0123456789ab", None, 200),
        ("/queues/{handle}/messages?body_bytes=-1", None, 400),
        ("/queues/{handle}/purge", {}, 400),
        ("/queues/{handle}/purge", {"older_than": "soon"}, 400),
        ("/queues/{handle}/purge", {"older_than": "-1s"}, 400),
        ("/queues/aaaaaaaaaaaaaaaa/purge", {"older_than": "1h"}, 404),
        ("/queues/{handle}/move", {"to": "aaaaaaaaaaaaaaaa"}, 404),
        ("/queues/{handle}/move", {"to": "a"}, 400),
        ("/queues/{handle}/move", {"to": "aaaaaaaaaaaaaaaa", "limit": 0}, 400),
        ("/queues/aaaaaaaaaaaaaaaa/delete", {}, 404),
        ("/queues/{handle}/delete", {"why": 1}, 400),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, path: str, body: object, status: int) -> None:
    with HttpLab(tmp_path) as lab:
        path = path.replace("{handle}", Made(lab).handle)
        found = lab.get_json(path) if body is None else lab.post_json(path, body)
        assert found[0] == status, found
        assert get(lab, "/queues")["total"] == 1


def test_only_who_may_see_all_queues_does(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        queue = Made(lab)
        queue.send("a")
        admin, user = lab.user("ann", "queues:admin"), lab.user("bob", "queues:write", "jobs:admin")
        assert lab.get_json("/queues", admin)[0] == 200
        paths = ["/queues", f"/queues/{queue.handle}", f"/queues/{queue.handle}/messages"]
        assert {lab.get_json(path, user)[0] for path in paths} == {403}
        for action in ("purge", "move", "suspend", "delete"):
            body = {"purge": {"older_than": "0"}, "move": {"to": queue.handle}}.get(action, {})
            for is_dry in (True, False):
                path = f"/queues/{queue.handle}/{action}"
                assert lab.post_json(path, {**body, "dry_run": is_dry}, user)[0] == 403
        assert lab.post_json("/queues/dump", {}, user)[0] == 403
        assert lab.get_json(f"/queues/{queue.handle}", admin)[1]["messages"] == 1


def test_no_id_or_key_is_in_any_answer_page_or_record(lab: HttpLab) -> None:
    queue = Made(lab, "KEY", "key-of-the-recipient")
    other = Made(lab, "SKEY", "key-of-the-senders")
    queue.send("<script>alert(1)</script>", "b")
    message_id = lab.redis("Q.GET", queue.rid)[0].decode()
    seen: list[str] = []

    def look(path: str) -> None:
        seen.append(lab.request("GET", path, headers={"accept": "text/html"}).text)

    for base in ("", "/api/v1"):
        for path in ("/queues", "/queues?order=handle", "/queues?prefix=a"):
            look(base + path)
    for path in ("/queues/one?handle={}", "/api/v1/queues/{}", "/api/v1/queues/{}/messages?limit=1"):
        for name in (queue.handle, other.handle, queue.rid, queue.sid, "aaaaaaaaaaaaaaaa"):
            look(path.format(name))
    for name in (queue.handle, queue.rid):  # also where somebody gives an id by mistake
        for action in ("suspend", "delete"):
            seen.append(str(lab.post_json(f"/queues/{name}/{action}", {"dry_run": True})))
        seen.append(str(lab.post_json(f"/queues/{name}/move", {"to": queue.sid})))
        seen.append(str(act(lab, "queues.move", {"handle": name, "to": other.handle, "limit": 1})))
    seen.append(str(act(lab, "queues.delete", {"handle": queue.handle})))
    seen += map(str, lab.entries())
    for pages in (lab.page("/audit")[1], lab.page("/queues")[1]):
        seen.append(pages)
    everything = "\n".join(seen)
    assert queue.handle in everything and "queues.delete" in everything
    for secret in (queue.rid, queue.sid, other.rid, other.sid, message_id):
        raw = ids.parse(secret.encode())
        assert raw is not None
        for form in (secret, raw.hex(), repr(raw)[2:-1]):
            assert form not in everything
    assert "key-of-the" not in everything and "<script>alert(1)" not in lab.page("/queues")[1]


# -- pages -------------------------------------------------------------------------------------------------------------


def test_pages_show_queues_and_what_waits_as_text(lab: HttpLab) -> None:
    status, page, _ = lab.page("/queues")
    assert status == 200 and "Q.NEW" in page, "an empty page says what to do"
    queue = Made(lab)
    queue.send("<script>alert(1)</script>", *map(str, range(4)))
    assert f"/queues/one?handle={queue.handle}" in lab.page("/queues")[1]
    status, page, _ = lab.page("/queues/one", handle=queue.handle, limit=2)
    assert status == 200 and "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert "after=" in page and 'action="/act/queues.purge"' in page
    assert lab.page("/queues/one", handle="aaaaaaaaaaaaaaaa")[0] == 404
    with lab.stream(f"/live/queues/one?handle={queue.handle}") as events:
        live = next(event for event in events if event.startswith("event: live"))
    assert "&lt;script&gt;alert(1)" in live and "form_token" not in live


# -- without a door: exact ages, crashes, a failing disk, many queues --------------------------------------------------


def open_queues(files: MemoryFiles, store: str, clock: ManualClock | None = None, sync: Sync = ALWAYS) -> QueueEngine:
    return open_engine(
        FOLDER,
        options=QueueOptions(store=store, quota=10, max_file_messages=16),
        log=LogOptions(sync=sync),
        files=files,
        clock=clock or ManualClock(),
        threaded=False,
    )


def bodies(engine: QueueEngine, queue: Queue) -> list[bytes | None]:
    return [message.body for message in look_at_served(engine).messages(engine.state.queues[queue.rid])]


@pytest.mark.parametrize("store", STORES)
def test_the_age_of_a_purge_is_exact(store: str) -> None:
    clock = ManualClock()
    engine = open_queues(MemoryFiles(), store, clock)
    queue, _ = engine.create()
    for body in (b"a", b"b", b"c"):
        engine.keeper.settle(engine.send(queue, body)[1])
        clock.advance(10)
    now = engine.now()
    times = [message.ts for message in look_at_served(engine).messages(queue)]
    assert [now - each for each in times] == [30, 20, 10]
    assert tending_served.old_ones(engine, queue, times[0]) == 0, "one that is just so old stays"
    assert tending_served.old_ones(engine, queue, times[0] + 1) == 1
    purged = tending_served.purge(engine, queue, times[2])
    assert (purged.messages, purged.left) == (2, 1)
    assert bodies(engine, queue) == [b"c"]
    engine.close()


def two_queues(files: MemoryFiles, store: str, sync: Sync) -> tuple[Queue, Queue]:
    """One with three messages, and one with none; synced."""
    engine = open_queues(files, store, sync=sync)
    (source, _), (target, _) = engine.create(), engine.create()
    for body in (b"a", b"b", b"c"):
        engine.send(source, body)
    engine.close()
    return source, target


def messages_in(engine: QueueEngine, queue: Queue) -> list[bytes | None]:
    """Without the marks of what a power cut took, where it may."""
    return [body for body in bodies(engine, queue) if body is not None]


@pytest.mark.parametrize("sync", [ALWAYS, interval(1000)], ids=str)
@pytest.mark.parametrize("store", STORES)
def test_a_power_cut_during_a_move_loses_nothing_and_doing_it_again_ends_it(store: str, sync: Sync) -> None:
    files = MemoryFiles()
    source, target = two_queues(files, store, sync)
    disk = PowerLoss({path: bytes(content.data) for path, content in files.names.items()})
    engine = open_queues(disk, store, sync=sync)
    tending_served.move(engine, engine.state.queues[source.rid], engine.state.queues[target.rid], 2)
    seen: set[tuple[int, int]] = set()
    for state in disk.states(per_point=20):
        again = open_queues(state.files, store, sync=sync)
        left, there = messages_in(again, source), messages_in(again, target)
        assert {*left, *there} == {b"a", b"b", b"c"}, state
        seen.add((len(left), len(there)))
        tending_served.move(again, again.state.queues[source.rid], again.state.queues[target.rid], len(left) - 1)
        assert (messages_in(again, source), messages_in(again, target)) == ([b"c"], [b"a", b"b"]), state
        again.close()
    assert {(3, 0), (3, 2), (1, 2)} <= seen, "before, in between and behind it"


@pytest.mark.parametrize("store", STORES)
def test_a_move_that_fails_between_its_steps_leaves_all_in_both(store: str) -> None:
    files = MemoryFiles()
    first, second = two_queues(files, store, ALWAYS)
    engine = open_queues(files, store)
    source, target = engine.state.queues[first.rid], engine.state.queues[second.rid]

    def fail(step: str) -> None:
        assert step == "added"
        raise DiskError("the disk is gone")

    with pytest.raises(DiskError):
        tending_served.move(engine, source, target, 2, step=fail)
    assert bodies(engine, source) == [b"a", b"b", b"c"] and bodies(engine, target) == [b"a", b"b"]
    moved = tending_served.move(engine, source, target, 2)
    assert (moved.messages, moved.were_there) == (2, 2)
    assert bodies(engine, source) == [b"c"] and bodies(engine, target) == [b"a", b"b"]
    engine.close()


@pytest.mark.parametrize("store", STORES)
def test_what_is_received_while_it_is_moved_is_not_taken_twice(store: str) -> None:
    files = MemoryFiles()
    first, second = two_queues(files, store, ALWAYS)
    engine = open_queues(files, store)
    source, target = engine.state.queues[first.rid], engine.state.queues[second.rid]

    def receive(step: str) -> None:
        head = engine.head(source)
        if step == "added" and head is not None:
            engine.keeper.settle(engine.acknowledge(source, head.id))

    tending_served.move(engine, source, target, 2, step=receive)
    assert bodies(engine, source) == [b"c"], "what was behind those that were moved stays"
    engine.close()


def test_a_move_that_fails_over_http_is_told_and_audited(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = Made(lab), Made(lab)
    source.send("a", "b")
    lab.redis("Q.SUB", target.rid)

    def fail(*args: object) -> None:
        raise DiskError("the disk is gone")

    with monkeypatch.context() as patched:
        patched.setattr(tending_served, "_remove", fail)
        status, told = lab.post_json(f"/queues/{source.handle}/move", {"to": target.handle})
    assert status >= 500 and told["error"]["code"] == "disk_error"
    assert lab.wire.read()[5] == b"a", "what came is there for its recipient all the same"
    assert [(entry.action, entry.outcome) for entry in lab.entries()[:2]] == [
        ("queues.move", "disk_error"),
        ("queues.move", "begun"),
    ]
    assert (source.bodies(), target.bodies()) == (["a", "b"], ["a", "b"])
    assert post(lab, f"/queues/{source.handle}/move", {"to": target.handle})["count"] == 2
    assert (source.bodies(), target.bodies()) == ([], ["a", "b"])


def test_handles_follow_queues_as_they_come_and_go() -> None:
    engine = open_queues(MemoryFiles(), "memory")
    handles = Handles(engine)
    assert handles.page("", "", 10) == ([], "")
    made = [engine.create()[0] for _ in range(3000)]

    def walked(prefix: str = "") -> list[str]:
        found, after = [], ""
        while True:
            page, after = handles.page(prefix, after, 700)
            found += [handle for handle, _ in page]
            if not after:
                return found

    assert walked() == sorted(ids.handle(queue.rid) for queue in made)
    for queue in made[:2500]:
        engine.delete(queue)
    made = made[2500:] + [engine.create()[0] for _ in range(5)]
    wanted = sorted(ids.handle(queue.rid) for queue in made)
    assert walked() == wanted
    first = wanted[0][0]
    assert walked(first) == [handle for handle in wanted if handle.startswith(first)]
    assert handles.find(ids.handle(made[7].rid)[:12]).rid == made[7].rid
    with pytest.raises(BadOption, match="more than one"):
        handles.find(first)
    for wrong in ("", "2222222222222222", "zzzzzzzzzzzzzzzz", "\u00fc"):
        with pytest.raises(NotThere):
            handles.find(wrong)
    engine.send(made[3], b"x")
    engine.send(made[3], b"x")
    engine.send(made[9], b"x")
    deepest, ranking = handles.deepest(2)
    assert [queue.rid for _, queue in deepest] == [made[3].rid, made[9].rid]
    assert ranking.messages == 3
    engine.close()


def test_looking_at_queues_that_nobody_used_opens_none() -> None:
    files = MemoryFiles()
    source, _ = two_queues(files, "journal", ALWAYS)
    engine = open_queues(files, "journal")
    deepest, ranking = Handles(engine).deepest(10)
    assert len(deepest) == 2 and ranking.unknown == 2
    assert look_at_served(engine).view(engine.state.queues[source.rid]).waiting == 3
    assert engine.keeper.open_count == 0
    engine.close()
