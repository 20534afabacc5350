"""Pages and operations about the server itself: runs of the pipeline, recovery, settings, users, audit, health."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from http_lab import HttpLab, text_of
from integration.workq_server import add
from lamina import runs
from lamina.cli.tree import lamina as tree
from lamina.errors import LogFailed
from lamina.log.segment import ActiveSegment
from lamina.log.sync import Level
from lamina.log.writer import Log
from lamina.pipeline.recording import Recording
from lamina.server import aside
from lamina.server.http.console.page import render
from lamina.server.http.ops import pipeline
from lamina.server.http.ops.server_audit import together
from lamina.server.life import Life

MARKUP = '<script>alert("x")</script>'


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as lab:
        yield lab


def shown(lab: HttpLab, path: str, **query: object) -> str:
    status, html, _ = lab.page(path, **query)
    assert status == 200, text_of(html)
    return text_of(html)


# -- runs of the pipeline ----------------------------------------------------------------------------------------------


def test_a_page_without_runs_says_what_to_try(lab: HttpLab) -> None:
    said = shown(lab, "/pipeline")
    assert "Nothing has run yet" in said
    assert f"lamina pipeline audit --data {lab.folder}" in said
    assert lab.get_json("/pipeline/runs") == (200, {"runs": [], "next": "", "kept": 0, "unreadable": 0})


def test_runs_of_real_commands_beside_the_server_are_shown(lab: HttpLab, tmp_path: Path) -> None:
    lab.redis("XADD", "orders", "*", "item", "tea")
    lab.workq.ask(add(1, "mail", b"hello"))
    for words in (("pipeline", "audit", "--data"), ("pipeline", "report", "--to", tmp_path / "r.html", "--data")):
        assert CliRunner().invoke(tree, [*map(str, words), str(lab.folder)]).exit_code == 0
    assert CliRunner().invoke(tree, ["pipeline", "clean", "--data", str(lab.folder)]).exit_code != 0
    said = shown(lab, "/pipeline")
    assert "clean failed log_locked" in said and "nothing is violated" in said and "save the page" in said
    _, found = lab.get_json("/pipeline/runs")
    assert [(run["kind"], run["state"]) for run in found["runs"]] == [
        ("clean", "failed"),
        ("report", "done"),
        ("audit", "done"),
    ]
    report = found["runs"][1]
    assert lab.get_json(f"/pipeline/runs/{report['id']}") == (200, report)
    assert report["has_page"] and "process" not in report
    said = shown(lab, "/pipeline/run", id=report["id"])
    assert "It made a page with plots" in said and str(tmp_path / "r.html") in said


def test_the_page_of_a_report_is_saved_and_never_shown(lab: HttpLab) -> None:
    with Recording(str(lab.folder), "report") as run:
        pass
    page = Path(runs.folder_of(str(lab.folder)), run.run.id + ".html")
    page.write_text(MARKUP)
    answer = lab.request("GET", f"/pipeline/page?id={run.run.id}", headers={"accept": "text/html"})
    assert (answer.status, answer.text) == (200, MARKUP)
    assert answer.headers["content-disposition"].startswith("attachment; ")
    assert answer.headers["content-security-policy"].startswith("sandbox")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert lab.get_json(f"/pipeline/runs/{run.run.id}/page")[1]["html"] == MARKUP
    page.unlink()
    assert lab.request("GET", f"/pipeline/page?id={run.run.id}").status == 404


def test_a_run_that_goes_on_is_shown_with_its_progress_live(lab: HttpLab) -> None:
    with Recording(str(lab.folder), "export", step="exporting") as run:
        run.progress(0, 200)
        with lab.stream("/live/pipeline") as events:
            run.progress(50, 200)
            said = next(event for event in events if "exporting" in event and "25.0 %" in event)
        assert "event: live" in said
        _, found = lab.get_json(f"/pipeline/runs/{run.run.id}")
        assert (found["state"], found["percent"]) == ("running", 25.0) and found["estimate_s"] is not None
    assert "exporting" not in shown(lab, "/pipeline")


def test_runs_are_paged_and_chosen_by_kind_and_state(lab: HttpLab) -> None:
    made = []
    for number, kind in enumerate(("clean", "audit", "clean", "audit", "clean")):
        with Recording(str(lab.folder), kind, now_ns=lambda at=number: 10**18 + at * 10**9) as run:  # type: ignore[misc]
            pass
        made.append(run.run.id)
    got: list[str] = []
    after = ""
    for _ in range(3):
        _, page = lab.get_json("/pipeline/runs", limit=2, after=after)
        got += [run["id"] for run in page["runs"]]
        after = page["next"]
    assert (got, after) == (made[::-1], "")
    assert [run["kind"] for run in lab.get_json("/pipeline/runs", kind="audit")[1]["runs"]] == ["audit"] * 2
    assert lab.get_json("/pipeline/runs", state="lost")[1]["runs"] == []
    assert "No run is like that; 5 are kept" in shown(lab, "/pipeline", state="lost")
    assert 'rel="next"' in lab.page("/pipeline", limit=2)[1]


def test_what_a_record_holds_is_shown_as_text_and_a_broken_one_is_counted(lab: HttpLab) -> None:
    with Recording(str(lab.folder), "export", arguments={"to": MARKUP}) as run:
        pass
    folder = Path(runs.folder_of(str(lab.folder)))
    failed = msgspec.structs.replace(run.run, state="failed", error=MARKUP, told=MARKUP, counts={MARKUP: MARKUP})
    (folder / f"{run.run.id}.json").write_bytes(msgspec.json.encode(failed))
    (folder / f"{runs.new_id('clean', 10**18)}.json").write_bytes(b"\xff not JSON")
    (folder / "unrelated.json").write_bytes(b"{}")
    for path in ("/pipeline", f"/pipeline/run?id={run.run.id}"):
        html = lab.page(path)[1]
        assert "<script>alert" not in html and "&lt;script&gt;" in html
    assert "1 records cannot be read" in shown(lab, "/pipeline")
    _, found = lab.get_json("/pipeline/runs")
    assert (len(found["runs"]), found["unreadable"], found["kept"]) == (1, 1, 2)


@pytest.mark.parametrize("kind", ["asof", "audit", "backup", "clean", "compact", "dump", "export", "report", "later"])
@pytest.mark.parametrize("value", ["many", [1], {"a": 1}, None, -1, 1.5, 10**30, True])
def test_a_record_with_strange_counts_is_shown_all_the_same(tmp_path: Path, kind: str, value: object) -> None:
    with Recording(str(tmp_path), kind) as run:
        pass
    names = ("violations", "logs", "dropped", "kept", "rows", "files", "bytes", "now_ns", "is_dry_run", "generation")
    strange = msgspec.structs.replace(run.run, state="done", counts=dict.fromkeys(names, value))
    now = run.run.started_ns
    found = pipeline._shown(str(tmp_path), strange, now)
    listed = pipeline.RunsPage(runs=[found], kept=1)
    values: dict[str, Any] = {"running": [], "last_page": None, "asked": pipeline.RunsAsks(), "visit": None}
    assert kind in render("pipeline/runs.html", {"found": listed, **values}, "live")
    assert "dropped" in render("pipeline/run.html", {"run": found, "visit": None}, "live")


def test_a_record_with_a_time_that_cannot_be_is_unreadable(lab: HttpLab) -> None:
    with Recording(str(lab.folder), "clean") as run:
        pass
    path = Path(runs.folder_of(str(lab.folder)), run.run.id + ".json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "started_ns": 10**30}))
    assert lab.get_json("/pipeline/runs")[1]["unreadable"] == 1


@pytest.mark.parametrize("id", ["nothing", "../../users", "x" * 100, "20261116T183340.535Z-clean-03d4446e"])
def test_a_run_that_is_not_there_is_told_so(lab: HttpLab, id: str) -> None:
    (lab.folder / "users.json.html").write_text("secret")
    for path in (f"/api/v1/pipeline/runs/{id}", f"/pipeline/run?id={id}", f"/pipeline/page?id={id}"):
        answer = lab.request("GET", path)
        assert answer.status == 404 and "secret" not in answer.text


def test_absurd_paging_of_runs_is_refused(lab: HttpLab) -> None:
    for asked in ({"limit": 0}, {"limit": 10**30}, {"limit": "many"}, {"after": "x" * 9000}, {"kind": "x" * 99}):
        status, found = lab.get_json("/pipeline/runs", **asked)
        assert (status, found["error"]["code"]) == (400, "bad_option")


# -- recovery ----------------------------------------------------------------------------------------------------------


def test_recovery_says_what_was_loaded_and_what_was_cut(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        assert lab.workq.ask(add(1, "mail", b"hello"))
    newest = max((tmp_path / "data" / "jobs").glob("*.log"))
    with newest.open("ab") as file:
        file.write(b"half a record")
    (tmp_path / "data" / "jobs" / "notes.txt").write_text("mine")
    aside._known.clear()
    with HttpLab(tmp_path) as lab:
        status, found = lab.get_json("/recovery")
        assert (status, found["phase"], found["is_ready"], found["problems"]) == (200, "ready", True, [])
        jobs = next(one for one in found["engines"] if one["name"] == "jobs")
        assert jobs["what"].startswith("1 job in 1 queue") and jobs["files"] and jobs["total_bytes"]
        assert {"what": "notes.txt", "reason": "not a file of this log, left alone"} in jobs["left_out"]
        assert any("13 bytes" in one["what"] and "torn tail" in one["reason"] for one in jobs["left_out"])
        (kept,) = found["kept_aside"]
        assert kept["path"].startswith(f"jobs/{newest.name}.torn-")
        assert (kept["what"], kept["bytes"]) == ("a torn tail", 13)
        said = shown(lab, "/recovery")
        assert "1 job in 1 queue" in said and "notes.txt not a file of this log" in said and "13 B 1 file" in said


def test_a_clean_start_says_that_nothing_was_left_out(lab: HttpLab) -> None:
    aside._known.clear()
    said = shown(lab, "/recovery")
    assert "Health well" in said and "Nothing was left out" in said and "No torn tail and no damage" in said


def test_a_problem_turns_the_pages_and_health_red_with_the_reason(lab: HttpLab) -> None:
    lab.life.problem("jobs disk", "the disk is full")
    assert "jobs disk : the disk is full" in shown(lab, "/recovery")
    _, found = lab.get_json("/recovery")
    assert (found["is_ready"], found["needs_restart"]) == (False, "")
    assert lab.request("GET", "/readyz").status == 503 and lab.request("GET", "/healthz").status == 200
    lab.life.watch("jobs", lambda: "a sync failed", needs_restart=True)
    assert "only a new start helps" in shown(lab, "/recovery")
    answer = lab.request("GET", "/healthz")
    assert (answer.status, answer.json()["reason"]) == (503, "jobs: a sync failed")
    lab.life.solved("jobs disk")
    assert json.loads(lab.request("GET", "/readyz").body)["problems"] == {"jobs": "a sync failed"}


def test_a_log_whose_disk_fails_turns_health_red(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    assert lab.inside.topics is not None
    lab.redis("XADD", "orders", "*", "item", "tea")

    def fail(segment: ActiveSegment) -> None:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as broken, pytest.raises(LogFailed):
        broken.setattr(ActiveSegment, "sync", fail)
        ((_, topic),) = lab.inside.topics.opened()
        assert isinstance(topic.log, Log)
        topic.log.append(b"x", until=Level.SYNCED)
    answer = lab.request("GET", "/healthz")
    assert answer.status == 503 and "cannot sync the file" in answer.json()["reason"]
    assert lab.request("GET", "/readyz").status == 503
    said = shown(lab, "/recovery")
    assert "only a new start helps" in said and "cannot sync the file" in said


def test_what_was_kept_aside_is_bounded_and_says_when_it_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        (tmp_path / "topics" / f"t{number}").mkdir(parents=True)
        (tmp_path / "topics" / f"t{number}" / "0.log.torn-20261116T000000.000000000Z").write_bytes(b"x" * number)
    (tmp_path / "pipeline").mkdir()
    (tmp_path / "pipeline" / "a.broken-1").write_bytes(b"")
    found = aside.look(str(tmp_path))
    assert (len(found.files), found.is_cut) == (6, False)
    monkeypatch.setattr(aside, "_MOST_FOLDERS", 4)
    found = aside.look(str(tmp_path))
    assert found.is_cut and len(found.files) == 2
    monkeypatch.setattr(aside, "_MOST_FILES", 1)
    assert len(aside.look(str(tmp_path)).files) == 1
    assert aside.look(str(tmp_path / "missing")).files == []


def test_while_it_restores_the_page_says_how_far_it_is(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life()
    monkeypatch.setattr(lab.inside, "life", life)
    with life.restoring("jobs") as told:
        told(250, 1000)
        _, found = lab.get_json("/recovery")
        assert (found["phase"], found["percent"], found["engines"][0]["percent"]) == ("restoring", 25.0, 25.0)
        said = shown(lab, "/recovery")
        assert "restoring" in said and "25.0 %" in said
    with pytest.raises(RuntimeError), life.restoring("store"):
        raise RuntimeError("no such catalog")
    assert "store: RuntimeError: no such catalog" in shown(lab, "/recovery")


# -- settings, users, audit --------------------------------------------------------------------------------------------


def test_settings_are_grouped_found_and_show_no_secret(tmp_path: Path) -> None:
    secret: dict[str, Any] = {"queues.password": "hunter2"}
    with HttpLab(tmp_path, **secret) as lab:
        _, found = lab.get_json("/settings")
        of = {one["key"]: one for one in found["settings"]}
        assert of["queues.password"]["is_set"] is True and of["queues.password"]["value"] is None
        assert of["jobs.sync"]["origin"] == "flag jobs.sync" and of["jobs.sync"]["variable"] == "LAMINA_JOBS_SYNC"
        assert of["server.max_connections"]["reload"] and not of["jobs.sync"]["reload"]
        _, some = lab.get_json("/settings", find="RESERVE", changed="true")
        assert [one["key"] for one in some["settings"]] == ["server.reserve_bytes"]
        html = lab.page("/settings")[1]
        assert "hunter2" not in html + json.dumps(found) and "set, not shown" in html
        assert '<h2 id="section-jobs">jobs</h2>' in html and '<span class="badge origin-flag">flag</span>' in html
        assert "No setting is like that" in shown(lab, "/settings", find=MARKUP)
        assert "<script>alert" not in lab.page("/settings", find=MARKUP)[1]


def test_users_are_shown_with_rights_and_expiry_but_nothing_of_their_token(lab: HttpLab) -> None:
    assert "Nobody has to log in" in shown(lab, "/users")
    old = lab.user("old", "topics:read:logs.*", expires_ns=1)
    token = lab.user("ann", "admin:read", "jobs:write:mail.*")
    status, found = lab.get_json("/users", token)
    assert status == 200 and found["is_login_needed"]
    ann, gone = (next(one for one in found["users"] if one["name"] == name) for name in ("ann", "old"))
    assert (ann["rights"], ann["expires_ns"]) == (["admin:read", "jobs:write:mail.*"], None)
    assert gone["is_expired"]
    lab.login(token)
    html = lab.page("/users")[1]
    kept = json.loads((lab.folder / "users.json").read_text())
    for secret in (token, old, *(user["token_sha256"] for user in kept["users"])):
        assert secret not in html + json.dumps(found)


@pytest.mark.parametrize("path", ["/recovery", "/settings", "/users", "/audit", "/pipeline/runs"])
def test_who_may_not_look_at_the_server_is_refused(lab: HttpLab, path: str) -> None:
    token = lab.user("bob", "jobs:admin", "topics:admin", "queues:admin", "store:admin")
    assert lab.get_json(path, token)[0] == 403
    lab.login(token)
    assert lab.page(path.removesuffix("/runs"))[0] == 403
    assert lab.request("GET", "/api/v1" + path).status == 401


def test_the_audit_log_is_shown_as_actions_and_can_be_searched(lab: HttpLab) -> None:
    for number in range(3):
        begun = lab.audit.begin("ann", "127.0.0.1", "jobs.redrive", f"mail {MARKUP}", {"limit": number + 1})
        lab.audit.end(begun, "done", f"put {number} back")
    refused = lab.audit.begin("bob", "127.0.0.1", "topics.trim", "orders", {})
    lab.audit.end(refused, "not_allowed")
    lab.audit.begin("bob", "127.0.0.1", "topics.delete", "orders", {})
    changes = together(lab.entries())
    assert [(one.entry.action, one.entry.outcome) for one in changes] == [
        ("topics.delete", "begun"),
        ("topics.trim", "not_allowed"),
        *[("jobs.redrive", "done")] * 3,
    ]
    assert [one.is_open for one in changes] == [True, False, False, False, False]
    assert changes[1].seconds is not None and changes[0].seconds is None
    html = lab.page("/audit")[1]
    assert html.count("<code>jobs.redrive</code>") == 3 and "<script>alert" not in html
    assert "no end is written yet" in html
    _, found = lab.get_json("/audit", user="bob", action="topics.t")
    assert {one["outcome"] for one in found["entries"]} == {"begun", "not_allowed"}
    assert "No change like that" in shown(lab, "/audit", user="eve")
    got, before = [], None
    while True:
        asked: dict[str, object] = {"limit": 2} if before is None else {"limit": 2, "before_ns": before}
        _, page = lab.get_json("/audit", **asked)  # type: ignore[arg-type]
        got += [one["time_ns"] for one in page["entries"]]
        before = page["next_before_ns"]
        if before is None:
            break
    assert got == [one.time_ns for one in lab.entries()] and len(got) == 9


def test_an_audit_question_looks_at_so_many_records_and_goes_on_from_there(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        lab.audit.begin("ann" if number else "bob", "", "jobs.pause", str(number), {})
    monkeypatch.setattr("lamina.server.http.ops.server_audit._MOST_LOOKED_AT", 4)
    _, first = lab.get_json("/audit", user="bob")
    assert first["entries"] == [] and first["next_before_ns"] is not None
    _, second = lab.get_json("/audit", user="bob", before_ns=first["next_before_ns"])
    assert [one["user"] for one in second["entries"]] == ["bob"]
