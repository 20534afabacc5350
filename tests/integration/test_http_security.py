"""The HTTP door against those who mean ill: forged requests, foreign names, tokens that may only read or are over."""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from http_lab import HttpLab
from integration.console_samples import SAMPLES, address_of, changing
from integration.console_server import Browser, ConsoleServer, Filled, fill, record_runs, until
from integration.crawling import walk
from integration.secured_server import make_users
from integration.workq_server import HOST, LAMINA, START_S
from lamina.server.http.console.pages import all_pages
from lamina.server.http.ops import all_operations
from lamina.server.security import users
from lamina.server.security.rights import Right

ANYWHERE = "0.0.0.0"  # noqa: S104
CHANGING = [operation.name for operation in changing()]

OF_NO_NAME = ("store.switch_epoch",)
"""Who may write anything of a store may end an epoch, as every writer does by waiting."""


@pytest.fixture(scope="module")
def filled_lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpLab, Filled]]:
    with HttpLab(tmp_path_factory.mktemp("lab")) as lab:
        with lab.remote() as lm:
            filled = fill(lm)
        record_runs(lab.folder)
        yield lab, filled


# -- forgery -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", CHANGING)
def test_what_another_page_sends_is_refused(filled_lab: tuple[HttpLab, Filled], name: str) -> None:
    """Where nobody has to log in, too: a page somewhere else must not reach a server on this machine."""
    lab, filled = filled_lab
    operation = all_operations()[name]
    before = len(lab.entries())
    fields = {**SAMPLES[name](filled), "form_token": lab.form_token()}
    for headers in (
        {"origin": "http://elsewhere.example"},
        {"origin": "null"},
        {"origin": f"https://{lab.host}.elsewhere.example"},
        {"origin": f"http://{HOST}:1"},
        {"sec_fetch_site": "cross-site"},
        {"sec_fetch_site": "same-site"},
    ):
        for path in (f"/act/{name}", f"/act/{name}?sure=1"):
            answer = lab.post_form(path, fields, **headers)
            assert answer.status == 403 and "forged" in answer.text, (path, headers)
    for token in ("", "guessed", lab.form_token()[:-1]):
        assert lab.post_form(f"/act/{name}?sure=1", {**fields, "form_token": token}).status == 403
    path, body = address_of(operation, SAMPLES[name](filled))
    data = json.dumps(body).encode()
    for sent, status in (
        ({"content-type": "application/json", "origin": "http://elsewhere.example"}, 403),
        ({"content-type": "application/json", "sec-fetch-site": "cross-site"}, 403),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
        ({"content-type": "multipart/form-data; boundary=x"}, 415),
        ({}, 415 if data else 200),
    ):
        assert lab.request(operation.method, path, data, sent).status == status, sent
    assert len(lab.entries()) == before, "nothing of it was begun"


def test_a_form_of_another_session_is_refused(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        theirs = lab.form_token()
        lab.cookies.clear()
        assert lab.form_token() != theirs
        for name in CHANGING:
            assert lab.post_form(f"/act/{name}", {"form_token": theirs}).status == 403
        lab.cookies.clear()
        assert lab.post_form("/act/none", {"form_token": theirs}).status == 403
        assert lab.post_form("/logout", {"form_token": theirs}).status == 403


def test_the_way_back_never_leads_elsewhere(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        token = lab.user("ann", "*:admin")
        for back in (
            "//elsewhere.example",
            "https://elsewhere.example",
            "/\\elsewhere.example",
            "javascript:1",
            "\n/x",
        ):
            answer = lab.post_form("/login", {"token": token, "back": back})
            assert (answer.status, answer.headers["location"]) == (303, "/"), back


# -- tokens ------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[HttpLab, Filled, str]]:
    """With a user who may read everything, and nothing else."""
    with HttpLab(tmp_path_factory.mktemp("guarded")) as lab:
        admin = lab.user("root", "*:admin")
        with lab.remote("root", admin) as lm:
            filled = fill(lm)
        record_runs(lab.folder)
        yield lab, filled, lab.user("reader", "*:read")


@pytest.mark.parametrize("name", CHANGING)
def test_a_read_only_token_changes_nothing(guarded: tuple[HttpLab, Filled, str], name: str) -> None:
    lab, filled, token = guarded
    operation = all_operations()[name]
    before = lab.entries()
    fields = SAMPLES[name](filled)
    path, body = address_of(operation, fields)
    for asked in (body, {**body, "dry_run": True}, {}):
        status, found = lab.post_json(path, asked, token=token)
        assert (status, found["error"]["code"]) == (403, "not_allowed"), asked
    assert lab.login(token) == 303
    acted = lab.act(name, fields)
    assert acted.status == 403 and "reader may not" in acted.did
    sure = {**fields, "form_token": lab.form_token(), "back": "/"}
    assert lab.post_form(f"/act/{name}?sure=1", sure).status == 403
    assert lab.entries() == before, "refused before it was begun"


def test_a_read_only_token_sees_every_page(guarded: tuple[HttpLab, Filled, str]) -> None:
    lab, _, token = guarded
    assert lab.login(token) == 303

    def look(at: str) -> tuple[int, str, str]:
        status, html, headers = lab.page(at)
        return status, headers.get("content-type", ""), html

    walked = walk(look, most=60, of_a_kind=2)
    assert walked.broken == [] and len(walked.pages) >= len(all_pages())


def test_rights_for_some_names_end_there(guarded: tuple[HttpLab, Filled, str]) -> None:
    """One who may do all to what does not exist is refused what does."""
    lab, filled, _ = guarded
    engines = ("jobs", "topics", "queues", "store")
    token = lab.user("narrow", *(f"{engine}:admin:nothing-here" for engine in engines))
    before = lab.entries()
    for operation in changing():
        if operation.name in OF_NO_NAME:
            continue
        path, body = address_of(operation, SAMPLES[operation.name](filled))
        for asked in (body, {**body, "dry_run": True}):
            status, found = lab.post_json(path, asked, token=token)
            assert status in (403, 404), (operation.name, found)
    assert all(entry.outcome != "done" for entry in lab.entries()[: len(lab.entries()) - len(before)])


def test_without_a_token_nothing_is_told(guarded: tuple[HttpLab, Filled, str]) -> None:
    lab, filled, _ = guarded
    lab.cookies.clear()
    for wrong in (
        {},
        {"authorization": "Bearer x"},
        {"authorization": "Basic cmVhZGVyOng="},
        {"cookie": "lamina_session=x"},
    ):
        for path in ("/api/v1/audit", "/api/v1/none", "/metrics", "/live/audit", "/none"):
            assert lab.request("GET", path, headers=wrong).status == 401, path
        for operation in all_operations().values():
            path, _ = address_of(operation, SAMPLES[operation.name](filled) if operation.changes else {})
            assert lab.request(operation.method, path, headers=wrong).status == 401, path
        for page in all_pages():
            answer = lab.request(
                "GET", re.sub(r"{\w+(:path)?}", "x", page.path), headers={**wrong, "accept": "text/html"}
            )
            assert answer.status == 303 and answer.headers["location"].startswith("/login?back=")


def test_a_session_ends_with_its_token(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        first = lab.user("ann", "*:admin")
        assert lab.login(first) == 303 and lab.page("/settings")[0] == 200
        second = lab.user("ann", "*:admin")  # another token
        assert "Log in" in lab.page("/settings")[1]
        assert lab.get_json("/settings", token=first)[0] == 401
        assert lab.login(second) == 303 and lab.page("/settings")[0] == 200
        lab.user("ann", "*:admin", expires_ns=1)
        assert "Log in" in lab.page("/settings")[1]
        assert lab.login(second) == 401


def test_other_rights_hold_at_once(tmp_path: Path) -> None:
    with HttpLab(tmp_path) as lab:
        token = lab.user("ann", "*:admin")
        assert lab.login(token) == 303 and lab.page("/settings")[0] == 200
        with users.changing(str(lab.folder)) as known:
            known["ann"] = dataclasses.replace(known["ann"], rights=(Right.parse("jobs:read"),))
        lab.read_users()
        assert lab.page("/settings")[0] == 403 and lab.get_json("/settings", token=token)[0] == 403


# -- names and addresses ---------------------------------------------------------------------------------------------


def test_a_name_that_was_made_to_lead_here_is_not_answered(tmp_path: Path) -> None:
    """DNS rebinding: the page of somebody else asks "its own" server, which is this one."""
    with HttpLab(tmp_path) as lab:
        for host in (
            "elsewhere.example",
            "elsewhere.example:9980",
            "localhost.elsewhere.example",
            "",
            "127.0.0.1.example",
        ):
            lab.host = host
            for path in ("/", "/api/v1/settings", "/metrics", "/live/settings"):
                assert lab.request("GET", path).status == 421, (host, path)
            sent = {"content-type": "application/json", "origin": f"http://{host}"}
            assert lab.request("POST", "/api/v1/none", b"{}", sent).status == 421
        for host in ("127.0.0.1:9980", "localhost:9980", "[::1]:9980", "lamina.localhost"):
            lab.host = host
            assert lab.request("GET", "/api/v1/settings").status == 200, host


def test_nothing_is_served_beyond_this_machine_without_a_token(tmp_path: Path) -> None:
    words = ["serve", "--data", tmp_path / "open", "--resp", f"{HOST}:0", "--workq", "off", "--http", f"{ANYWHERE}:0"]
    ended = subprocess.run(
        [str(LAMINA), *map(str, words)], capture_output=True, text=True, timeout=START_S, check=False
    )
    assert ended.returncode == 2 and "http" in ended.stderr, ended.stderr

    make_users(tmp_path / "closed", ann="*:admin", reader="*:read")
    with ConsoleServer(tmp_path / "closed", "--insecure", host=ANYWHERE) as server:
        outside = _own_address()
        assert server.ask("GET", "/healthz", host=outside).status == 200
        for path in ("/", "/api/v1/settings", "/metrics", "/live/settings", "/api/v1/openapi.json"):
            assert server.ask("GET", path, host=outside).status == 401, path
        sent = {"authorization": "Bearer ann"}
        assert server.ask("GET", "/api/v1/settings", headers=sent, host=outside).status == 200


def _own_address() -> str:
    """One that is not of loopback, if there is one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return HOST


def test_a_session_ends_with_its_token_at_sighup(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    make_users(folder, ann="*:admin", bob="*:read")
    with ConsoleServer(folder) as server:
        ann, bob = Browser(server), Browser(server)
        assert ann.login("ann").status == bob.login("bob").status == 303
        assert ann.get("/settings").status == bob.get("/settings").status == 200
        make_users(folder, ann="*:admin")
        os.kill(server.pid, signal.SIGHUP)
        until(lambda: bob.get("/settings").status == 303, "bob is sent away")
        assert ann.get("/settings").status == 200
        assert server.get("/api/v1/settings", "bob").status == 401
