"""The store over HTTP: entries now and as they were, epochs and files, compactions, and what is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from http_lab import Acted, HttpLab
from lamina.engines.store.api import Store
from lamina.engines.store.compaction_worker import compact_elsewhere
from lamina.engines.store.compactions import Progress
from lamina.errors import Stopped
from lamina.server.http.ops import store_place

PATIENCE_S = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as lab:
        yield lab


def get(lab: HttpLab, path: str, **query: object) -> Any:
    status, found = lab.get_json(path, None, **query)
    assert status == 200, found
    return found


def post(lab: HttpLab, path: str, body: object = None) -> Any:
    status, found = lab.post_json(path, body)
    assert status == 200, found
    return found


def put(lab: HttpLab, storage: int, **pairs: str) -> None:
    for key, value in pairs.items():
        assert isinstance(lab.redis("S.WRITE", str(storage), "PUT", key, value), int)


def value(lab: HttpLab, key: str, storage: int = 1, **query: object) -> str | None:
    entry = get(lab, "/store/key", storage=storage, key=key, **query)["entry"]
    return None if entry is None else entry["value"]["text"]


def store_of(lab: HttpLab) -> Store:
    store = lab.inside.find_store()
    assert store is not None
    return store


def act(lab: HttpLab, operation: str, fields: Mapping[str, object] | None = None) -> Acted:
    """Press a button and confirm; then the browser has seen what was done."""
    acted = lab.act(operation, fields)
    lab.cookies.pop("lamina_told", None)
    return acted


# -- before its first use ----------------------------------------------------------------------------------------------


def test_a_store_that_was_never_used_says_so_and_is_made_by_a_put(lab: HttpLab) -> None:
    assert get(lab, "/store")["is_open"] is False and get(lab, "/store/compactions")["is_open"] is False
    for path in ("/store/scan?storage=1", "/store/key?storage=1&key=a", "/store/files"):
        status, told = lab.get_json(path)
        assert status == 404 and "never used" in told["error"]["message"]
    for path in ("/store", "/store/scan?storage=1", "/store/key?storage=1&key=a", "/store/compactions"):
        status, page, _ = lab.page(path)
        assert status == 200 and "S.WRITE 1 PUT" in page, path
    for action in ("rotate", "compact", "clean", "switch_epoch", "cancel"):
        assert lab.post_json(f"/store/{action}", {})[0] == 404
    plan = post(lab, "/store/put", {"storage": 1, "key": "a", "value": "v", "dry_run": True})
    assert "make the store" in plan["will"] and not (lab.folder / "store").exists()
    acted = act(lab, "store.put", {"storage": 1, "key": "a", "value": "one\r\ntwo", "newlines": "lf"})
    assert acted.status == 200 and "durable with epoch" in acted.did
    assert lab.redis("S.GET", "1", "a") == b"one\ntwo", "clients of the other door see it"
    lab.restart()
    assert value(lab, "a") == "one\ntwo"


# -- entries -----------------------------------------------------------------------------------------------------------


def test_storages_are_counted_and_those_one_may_not_read_left_out(lab: HttpLab) -> None:
    put(lab, 1, a="12", b="3")
    put(lab, 7, x="y")
    lab.redis("S.WRITE", "9", "ADD")
    found = get(lab, "/store")["storages"]
    assert [(one["storage"], one["keys"], one["bytes"], one["is_all"], one["is_added"]) for one in found] == [
        (1, 2, 5, True, False),
        (7, 1, 2, True, False),
        (9, 0, 0, True, True),
    ]
    token = lab.user("ann", "store:read:7")
    assert [one["storage"] for one in lab.get_json("/store", token)[1]["storages"]] == [7]
    assert lab.get_json("/store/scan", token, storage=7)[0] == 200
    assert lab.get_json("/store/scan", token, storage=1)[0] == 403
    assert lab.get_json("/store/key", token, storage=1, key="a")[0] == 403
    for is_dry in (True, False):
        body = {"storage": 7, "key": "x", "value": "z", "dry_run": is_dry}
        assert lab.post_json("/store/put", body, token)[0] == 403
        del body["value"]
        assert lab.post_json("/store/remove", body, token)[0] == 403
        for action in ("switch_epoch", "rotate", "compact", "clean", "cancel"):
            assert lab.post_json(f"/store/{action}", {"dry_run": is_dry}, token)[0] == 403
    writer = lab.user("bob", "store:write:7")
    assert lab.post_json("/store/put", {"storage": 7, "key": "x", "value": "z"}, writer)[0] == 200
    assert lab.post_json("/store/put", {"storage": 1, "key": "x", "value": "z"}, writer)[0] == 403
    assert lab.post_json("/store/rotate", {}, writer)[0] == 403


def test_more_keys_than_can_be_counted_in_a_moment_are_told_so(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.redis("S.WRITE", "1", *(word for number in range(600) for word in ("PUT", f"k{number:03}", "v")))
    monkeypatch.setattr(store_place, "_COUNT_S", 0.0)
    lab.redis("S.WRITE", "0", "ADD")
    counts = store_place._count(store_of(lab))
    assert all(not one.is_all for one in counts if one.storage == 1)
    monkeypatch.undo()
    assert [one.keys for one in store_place._count(store_of(lab)) if one.storage == 1] == [600]


def test_a_scan_pages_by_key_within_a_prefix_or_a_range(lab: HttpLab) -> None:
    put(lab, 3, **{f"k{number}": "v" * number for number in range(5)}, j="before", l="behind")
    keys, after = [], ""
    while True:
        page = get(lab, "/store/scan", storage=3, prefix="k", limit=2, after=after)
        keys += [entry["key"] for entry in page["entries"]]
        after = page["next"]
        if not after:
            break
    assert keys == ["k0", "k1", "k2", "k3", "k4"]

    def scanned(**query: object) -> list[str]:
        return [entry["key"] for entry in get(lab, "/store/scan", storage=3, **query)["entries"]]

    assert scanned(start="k3") == ["k3", "k4", "l"]
    assert scanned(start="k1", end="k3") == ["k1", "k2"]
    assert scanned(start="k3", end="k1") == [] and scanned(prefix="zz") == []
    assert scanned(prefix="k", end="k2") == ["k0", "k1"]
    lab.redis("S.WRITE", "3", "PUT", b"\xff\xff\x00", b"\x00\xff", "PUT", "big", "b" * 100_000)
    assert scanned(prefix="hex:ffff") == ["hex:ffff00"] == scanned(prefix="hex:ff")
    entry = get(lab, "/store/scan", storage=3, prefix="big", value_bytes=10)["entries"][0]
    assert entry["value"] == {"size": 100_000, "text": "b" * 10, "base64": None, "is_cut": True}
    assert get(lab, "/store/key", storage=3, key="hex:ffff00")["entry"]["value"]["base64"] == "AP8="


def test_a_key_as_of_an_epoch_or_a_time_is_what_it_was(lab: HttpLab) -> None:
    was: dict[int, str | None] = {}
    moments: list[tuple[int, str | None]] = []

    def note(now: str | None) -> None:
        was[store_of(lab).last_epoch] = now
        moments.append((time.time_ns(), now))

    put(lab, 1, other="x")
    note(None)
    for number in range(4):
        put(lab, 1, k=f"v{number}")
        note(f"v{number}")
        if number == 1:
            assert "merged" in post(lab, "/store/compact", {"wait": True})["did"]
    post(lab, "/store/remove", {"storage": 1, "key": "k"})
    note(None)
    for epoch, expected in was.items():
        assert value(lab, "k", as_of=epoch) == expected
        shown = get(lab, "/store/scan", storage=1, prefix="k", as_of=epoch)
        assert [entry["value"]["text"] for entry in shown["entries"]] == ([] if expected is None else [expected])
        assert shown["epoch"] == epoch
    for time_ns, expected in moments:
        assert value(lab, "k", as_of=f"{time_ns}ns") == expected
    assert value(lab, "k", as_of="-1d") is None and value(lab, "k") is None
    lab.restart()
    assert {epoch: value(lab, "k", as_of=epoch) for epoch in was} == was


def test_what_files_do_not_reach_back_to_is_told_with_how_far_they_do(lab: HttpLab) -> None:
    put(lab, 1, k="old")
    post(lab, "/store/compact", {"wait": True})
    put(lab, 1, k="new")
    post(lab, "/store/compact", {"wait": True})
    old = {"keep_epoch": store_of(lab).last_epoch}
    plan = post(lab, "/store/clean", {"dry_run": True, **old})
    assert plan["count"] >= 3 and "no longer be read" in plan["warning"] and plan["details"]
    assert value(lab, "k", as_of=1) == "old", "a plan changes nothing"
    done = post(lab, "/store/clean", old)
    assert done["count"] == plan["count"]
    status, told = lab.get_json("/store/key", storage=1, key="k", as_of=1)
    oldest = get(lab, "/store")["oldest_epoch"]
    assert (status, told["error"]["code"], told["error"]["oldest_epoch"]) == (410, "too_old", oldest)
    for path in ("/store/key?storage=1&key=k&as_of=1", "/store/scan?storage=1&as_of=-1h"):
        status, page, _ = lab.page(path)
        assert status == 200 and f"As of epoch {oldest}" in page
    assert value(lab, "k", as_of=oldest) == "new"


def test_a_view_of_the_past_is_kept_for_a_while_and_let_go(lab: HttpLab) -> None:
    put(lab, 1, k="v")
    past = store_place.past_of(store_of(lab))
    for _ in range(3):
        assert value(lab, "k", as_of=1) == "v"
    assert len(past._views) == 1
    for epoch in (0, 1):
        value(lab, "k", as_of=epoch)
    assert len(past._views) == 2
    past.forget()
    assert not past._views and value(lab, "k", as_of=1) == "v"


# -- epochs, files, compactions ----------------------------------------------------------------------------------------


def test_actions_say_what_they_will_do_and_do_it(lab: HttpLab) -> None:
    put(lab, 1, a="v1")
    plan = post(lab, "/store/put", {"storage": 1, "key": "a", "value": "v2", "dry_run": True})
    assert plan["warning"] and value(lab, "a") == "v1"
    post(lab, "/store/put", {"storage": 1, "key": "hex:00", "value": "00ff", "encoding": "hex"})
    assert lab.redis("S.GET", "1", b"\x00") == b"\x00\xff"
    assert "holds nothing" in post(lab, "/store/remove", {"storage": 1, "key": "zz", "dry_run": True})["will"]
    acted = act(lab, "store.remove", {"storage": 1, "key": "a"})
    assert "holds 2 B" in acted.plan and "took the key" in acted.did and value(lab, "a") is None
    before = get(lab, "/store")["epoch"]
    assert f"end epoch {before}" in act(lab, "store.switch_epoch").plan
    assert get(lab, "/store")["last_epoch"] >= before
    assert "rotated" in act(lab, "store.rotate").did
    kinds = {file["kind"] for file in get(lab, "/store/files")["files"]}
    assert {"rotated", "epochs", "catalog"} <= kinds
    entries = [entry for entry in lab.entries() if entry.action.startswith("store.")]
    assert {entry.outcome for entry in entries} == {"begun", "done"}
    assert "00ff" not in str(entries) and "4 characters" in str(entries), "no payload is in the audit log"


def test_a_compaction_runs_in_the_background_and_is_remembered(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lab, 1, **{f"k{number}": "v" for number in range(20)})
    store = store_of(lab)
    may_go_on, real = threading.Event(), store.compact

    def compact() -> object:
        def write(files: Any, task: Any, progress: Progress, stopper: Any) -> Any:
            progress(1, 4)
            assert may_go_on.wait(PATIENCE_S)
            return compact_elsewhere(files, task, progress, stopper)

        return real(compact=write)

    monkeypatch.setattr(store, "compact", compact)
    assert "began" in act(lab, "store.compact").did
    end = time.monotonic() + PATIENCE_S
    while (running := get(lab, "/store/compactions")["running"]) is None or not running["total"]:
        assert time.monotonic() < end
    assert (running["done"], running["total"]) == (1, 4)
    assert "25 %" in lab.page("/store/compactions")[1] and "25 %" in lab.page("/store")[1]
    assert "going on" in post(lab, "/store/compact", {"dry_run": True})["will"]
    assert post(lab, "/store/compact")["count"] == 0
    status, told = lab.post_json("/store/clean", {})
    assert status == 503 and "going on" in told["error"]["message"]
    may_go_on.set()
    while not (runs := get(lab, "/store/compactions")["runs"]):
        assert time.monotonic() < end
    assert (runs[0]["outcome"], runs[0]["entries_live"], runs[0]["files"]) == ("done", 20, 1)
    assert runs[0]["seconds"] > 0 and runs[0]["bytes_before"] > 0
    monkeypatch.undo()
    assert "no file is new" in post(lab, "/store/compact", {"wait": True})["did"]
    assert [run["outcome"] for run in get(lab, "/store/compactions")["runs"]] == ["nothing to do", "done"]
    lab.restart()
    found = get(lab, "/store/compactions")
    assert not found["runs"] and [one["generation"] for one in found["generations"]] == [1], "what is on disk stays"


def test_a_compaction_that_is_given_up_is_told_so(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    put(lab, 1, a="v")
    store = store_of(lab)
    assert "no compaction" in post(lab, "/store/cancel", {"dry_run": True})["will"]
    assert post(lab, "/store/cancel")["count"] == 0
    real = store.compact

    def compact() -> object:
        def write(files: Any, task: Any, progress: Progress, stopper: Any) -> Any:
            end = time.monotonic() + PATIENCE_S
            while not stopper.is_stopped and time.monotonic() < end:
                time.sleep(0.01)
            raise Stopped("the compaction was given up")

        return real(compact=write)

    monkeypatch.setattr(store, "compact", compact)
    post(lab, "/store/compact")
    end = time.monotonic() + PATIENCE_S
    while not lab.post_json("/store/cancel", {})[1].get("count"):
        assert time.monotonic() < end
    while not (runs := get(lab, "/store/compactions")["runs"]):
        assert time.monotonic() < end
    assert runs[0]["outcome"] == "stopped" and "given up" in runs[0]["error"]
    assert "given up" in lab.page("/store/compactions")[1]


# -- refusals and pages ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "body", "status", "says"),
    [
        ("/store/scan", None, 400, "storage"),
        ("/store/scan?storage=-1", None, 400, "storage"),
        ("/store/scan?storage=18446744073709551616", None, 400, "no storage"),
        ("/store/scan?storage=18446744073709551615", None, 200, ""),
        ("/store/scan?storage=x", None, 400, "storage"),
        ("/store/scan?storage=1&prefix=hex:0", None, 400, "no name"),
        ("/store/scan?storage=1&limit=1001", None, 400, "limit"),
        ("/store/scan?storage=1&as_of=soon", None, 400, "neither an epoch nor a time"),
        ("/store/scan?storage=1&as_of=99999999999999999999", None, 400, "not durable yet"),
        ("/store/scan?storage=1&as_of=2999-01-01", None, 400, "yet to come"),
        ("/store/scan?storage=1&as_of=99999999999999999999ms", None, 400, "yet to come"),
        ("/store/scan?storage=1&as_of=0000-00-00T00:00:00Z", None, 400, "neither"),
        ("/store/key?storage=1", None, 400, "key"),
        ("/store/key?storage=1&key=a&value_bytes=9999999", None, 400, "value_bytes"),
        ("/store/put", {"storage": 1, "value": "x"}, 400, "key"),
        ("/store/put", {"storage": 1, "key": "a", "value": "xyz", "encoding": "hex"}, 400, "not hex"),
        ("/store/put", {"storage": 1, "key": "a", "value": "xyz", "encoding": "base64"}, 400, "not base64"),
        ("/store/put", {"storage": 1 << 64, "key": "a", "value": "x"}, 400, "no storage"),
        ("/store/remove", {"storage": 1, "key": "hex:zz"}, 400, "no name"),
        ("/store/clean", {"keep_epoch": 1 << 40}, 400, "not durable yet"),
    ],
)
def test_what_cannot_be_is_refused(lab: HttpLab, path: str, body: object, status: int, says: str) -> None:
    put(lab, 1, a="v")
    found = lab.get_json(path) if body is None else lab.post_json(path, body)
    assert found[0] == status, found
    assert says in str(found[1])
    assert value(lab, "a") == "v"


def test_pages_show_values_as_text_and_the_past_stands_still(lab: HttpLab) -> None:
    markup = "<script>alert(1)</script>"
    put(lab, 1, a="first", **{markup: markup})
    put(lab, 1, a="second")
    status, page, _ = lab.page("/store")
    assert status == 200 and "/store/scan?storage=1" in page and 'action="/act/store.compact"' in page
    status, page, _ = lab.page("/store/scan", storage=1)
    assert status == 200 and "&lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert "data-still" in page and "key=%3Cscript%3E" in page
    status, page, _ = lab.page("/store/key", storage=1, key="a")
    assert status == 200 and "second" in page and "data-still" in page
    before = get(lab, "/store/key", storage=1, key="a")["entry"]["version"].partition(".")[0]
    assert f"as_of={int(before) - 1}" in page, "it leads to what was there before"
    assert "first" in lab.page("/store/key", storage=1, key="a", as_of=int(before) - 1)[1]
    assert lab.page("/store/key", storage=1, key=markup)[0] == 200
    with lab.stream("/live/store") as events:
        assert "storages" in next(event for event in events if event.startswith("event: live"))
    reader = lab.user("ann", "store:read:1")
    lab.login(reader)
    for path in ("/store", "/store/scan?storage=1", "/store/key?storage=1&key=a"):
        status, page, _ = lab.page(path)
        assert status == 200 and "/act/" not in page, "who may change nothing is offered nothing"
        assert "/store/compactions" not in page and "Kind" not in page, "nor what tells of all storages"
    assert lab.page("/store/compactions")[0] == 403
