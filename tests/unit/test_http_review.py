"""The HTTP door under attack: hosts and headers that lie, bodies that never end, readers that never read, rights that
go while somebody looks, and names that are nobody's business.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.routing import Route

from http_lab import HttpLab
from integration.workq_server import add
from lamina.errors import DiskFull
from lamina.server.audit import Audit
from lamina.server.http import access, app, visitor
from lamina.server.http.console import live
from lamina.server.http.door import HttpDoor
from lamina.server.http.operations import MOST_AT_ONCE, Place, Turns
from lamina.server.http.ops import logs_measure
from lamina.server.life import Life
from lamina.server.security.rights import Right
from lamina.server.security.users import EVERYBODY

LONG_S = 60.0


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[HttpLab]:
    with HttpLab(tmp_path) as lab:
        yield lab


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


# -- hosts and headers -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", [{}, bearer("anything"), {"authorization": "bearer"}], ids=["none", "token", "empty"])
def test_a_name_that_leads_here_opens_nothing_whatever_is_sent_along(lab: HttpLab, sent: dict[str, str]) -> None:
    led = {"host": "evil.example", "origin": "http://evil.example", **sent}
    assert lab.request("GET", "/api/v1/settings", headers=led).status == 421
    body = {**led, "content-type": "application/json"}
    assert lab.request("POST", "/api/v1/jobs/queues/mail/add", b'{"payload":"x"}', body).status == 421
    assert lab.entries() == []


@pytest.mark.parametrize("host", ["[", "[::1", "[x]:80", "a]b["])
def test_what_is_no_host_is_refused_with_or_without_users(lab: HttpLab, host: str) -> None:
    for token in ("", lab.user("ann", "*:admin")):
        for accept in ("*/*", "text/html"):
            sent = {"host": host, "accept": accept, **(bearer(token) if token else {})}
            assert lab.request("GET", "/settings", headers=sent).status in (400, 421)


@pytest.mark.parametrize("origin", ["http://[", "null", "", "http://", "://", "127.0.0.1:9980", "http://evil.example"])
def test_an_origin_that_is_none_is_another_page(lab: HttpLab, origin: str) -> None:
    sent = {"origin": origin, "content-type": "application/json"}
    answer = lab.request("POST", "/api/v1/jobs/queues/mail/pause", b"{}", sent)
    assert (answer.status, answer.json()["error"]["code"]) == (403, "forged")
    assert lab.request("POST", "/login", b"", {"origin": origin}).status == 403


# -- connections -------------------------------------------------------------------------------------------------------


def ask(port: int, head: str, body: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), LONG_S)
    connection.sendall(f"{head}\r\nHost: 127.0.0.1\r\n".encode() + b"\r\n" * (not body) + body)
    return connection


def is_hung_up(connection: socket.socket) -> bool:
    """In the end."""
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    return True


SLOW_BODY = b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\na"


async def takes_a_body(request: Any) -> Any:
    from starlette.responses import Response

    return Response(await request.body())


def test_bodies_that_never_end_keep_nobody_out(monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    monkeypatch.setattr(visitor, "LOOK_S", 0.2)
    routes = [Route("/login", takes_a_body, methods=["POST"])]
    with HttpDoor(Life(), port=0, site=lambda: app.Site(routes), max_connections=8) as door, ExitStack() as opened:
        slow = [opened.enter_context(ask(door.port, "POST /login HTTP/1.1", SLOW_BODY)) for _ in range(30)]
        with ask(door.port, "GET /healthz HTTP/1.1") as watching:
            assert watching.recv(100).startswith(b"HTTP/1.1 200")
        assert all(map(is_hung_up, slow))
    assert caplog.records == [], "one who went away is no mistake of ours"


def test_one_who_reads_nothing_is_hung_up_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitor, "LOOK_S", 0.2)
    ended = threading.Event()

    async def huge(request: Any) -> Any:
        from starlette.responses import StreamingResponse

        async def pieces() -> Any:
            try:
                while True:
                    yield b"x" * (1 << 16)
                    await asyncio.sleep(0)
            finally:
                ended.set()

        return StreamingResponse(pieces())

    with (
        HttpDoor(Life(), port=0, site=lambda: app.Site([Route("/huge", huge)])) as door,
        ask(door.port, "GET /huge HTTP/1.1"),
    ):
        assert ended.wait(LONG_S)


def test_one_who_reads_slowly_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitor, "LOOK_S", 0.05)
    looks = threading.Semaphore(0)
    look = visitor.Visitor._look_again

    def noted(self: visitor.Visitor) -> None:
        look(self)
        looks.release()

    monkeypatch.setattr(visitor.Visitor, "_look_again", noted)

    async def quiet(request: Any) -> Any:
        from starlette.responses import StreamingResponse

        async def pieces() -> Any:
            yield b"first"
            await asyncio.to_thread(lambda: [looks.acquire(timeout=LONG_S) for _ in range(5)])
            yield b"last"

        return StreamingResponse(pieces())

    with (
        HttpDoor(Life(), port=0, site=lambda: app.Site([Route("/quiet", quiet)])) as door,
        ask(door.port, "GET /quiet HTTP/1.1") as waiting,
    ):
        found = b""
        while b"last" not in found:
            piece = waiting.recv(1 << 16)
            assert piece, "it was hung up on while it waited for us"
            found += piece


# -- mistakes of ours --------------------------------------------------------------------------------------------------


def test_a_mistake_is_told_once_in_the_log_and_looks_like_any_answer(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: object) -> None:
        raise RuntimeError("a secret")

    monkeypatch.setattr(type(lab.life), "since_ns", property(fail))
    for path, accept in (("/api/v1/overview", "*/*"), ("/", "text/html")):
        caplog.clear()
        answer = lab.request("GET", path, headers={"accept": accept})
        assert answer.status == 500 and b"secret" not in answer.body
        assert "default-src 'none'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        assert [record.levelno for record in caplog.records] == [logging.ERROR]
        assert "a secret" in caplog.text


# -- sessions ----------------------------------------------------------------------------------------------------------


def test_a_program_with_a_token_gets_no_session(lab: HttpLab) -> None:
    token = lab.user("ann", "*:admin")
    answer = lab.request("GET", "/settings", headers={**bearer(token), "accept": "text/html"})
    assert answer.status == 200 and "set-cookie" not in answer.headers


def test_who_logs_in_again_and_again_logs_out_nobody_else(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "MOST_SESSIONS", 10)
    monkeypatch.setattr(access, "MOST_OF_ONE", 4)
    ann, bob = lab.user("ann", "*:admin"), lab.user("bob", "jobs:read:x")
    lab.login(ann)
    cookies = dict(lab.cookies)
    for _ in range(20):
        lab.cookies.clear()
        assert lab.login(bob) == 303
    assert lab.page("/jobs")[0] == 200
    lab.cookies = cookies
    assert lab.request("GET", "/settings", with_cookies=True).status == 200


# -- streams -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "by"),
    [
        ("other rights", "token"),
        ("other rights", "cookie"),
        ("another token", "token"),
        ("another token", "cookie"),
        ("logged out", "cookie"),
    ],
)
def test_a_live_page_follows_the_rights_of_who_looks(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch, how: str, by: str
) -> None:
    monkeypatch.setattr(live, "EVERY_S", 0.05)
    monkeypatch.setattr(live, "_STEP_S", 0.01)
    for number, queue in enumerate(("mail", "secret")):
        lab.workq.ask(add(number, queue))
    token = lab.user("ann", "jobs:read:mail", "jobs:read:secret")
    sent = bearer(token)
    if by == "cookie":
        assert lab.login(token) == 303
        sent = {"cookie": f"{access.COOKIE}={lab.cookies[access.COOKIE]}"}
    with lab.stream("/live/jobs", sent) as events:
        assert "secret" in next(one for one in events if one.startswith("event: live"))
        if how == "other rights":
            known = lab.gate.user("ann")
            assert known is not None
            lab.gate._users = {"ann": replace(known, rights=(Right.parse("jobs:read:mail"),))}
            assert "secret" not in next(one for one in events if one.startswith("event: live"))
        else:
            if how == "another token":
                lab.user("ann", "jobs:read:mail")
            else:
                lab.post_form("/logout", {"form_token": lab.form_token()})
            assert any(one.startswith("event: gone") for one in events)
            assert list(events) == []


def test_a_line_of_an_event_ends_where_a_browser_ends_it() -> None:
    assert live.event("x", "a\u2028b\x85c\x0cd\re\r\nf") == "event: x\ndata: a\u2028b\x85c\x0cd\ndata: e\ndata: f\n\n"
    assert live.event("x", "") == "event: x\ndata: \n\n"


def test_a_tail_is_json_whatever_letters_a_message_has(lab: HttpLab) -> None:
    odd = "a\u2028b\u2029c\x85d\x0b\x1ce\r\nf"
    lab.redis("XADD", "mail", "*", "f", odd.encode())
    with lab.stream("/live/tail?name=mail") as events:
        rows = next(one for one in events if "event: rows" in one)
    (data,) = [line.removeprefix("data: ") for line in re.split("\r\n|\r|\n", rows) if line.startswith("data: ")]
    assert msgspec.json.decode(data)["rows"][0]["fields"][0]["value"]["text"] == odd


# -- who asks for much -------------------------------------------------------------------------------------------------


def test_slow_questions_of_one_keep_no_other_waiting(lab: HttpLab) -> None:
    lab.user("bob", "jobs:read")
    bob = lab.gate.user("bob")
    assert bob is not None

    async def crowd() -> int:
        turns, go_on, begun = Turns(), threading.Event(), 0
        slow = Place(lab.inside, EVERYBODY, turns=turns)

        def wait() -> None:
            nonlocal begun
            begun += 1
            go_on.wait(LONG_S)

        asked = [asyncio.create_task(slow.in_thread(wait)) for _ in range(40)]
        try:
            # On a pool with room for one more, as that of the door has.
            assert await Place(lab.inside, bob, turns=turns).in_thread(lambda: "quick") == "quick"
        finally:
            most = begun
            go_on.set()
            await asyncio.gather(*asked)
        assert begun == 40
        return most

    async def with_pool() -> int:
        from concurrent.futures import ThreadPoolExecutor

        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(MOST_AT_ONCE + 1))
        return await asyncio.wait_for(crowd(), LONG_S)

    assert asyncio.run(with_pool()) <= MOST_AT_ONCE


def test_few_logs_are_measured_at_a_time() -> None:
    measures, go_on = logs_measure.Measures(), threading.Event()

    def measure(pace: logs_measure.Pace) -> logs_measure.Measured:
        go_on.wait(LONG_S)
        return logs_measure.Measured(answer="done")

    before = threading.active_count()
    try:
        waiting = [measures.ask(f"topics/{number}", measure, wait_s=0)[1] for number in range(100)]
        assert threading.active_count() - before <= 20 and sum(waiting) < 20
    finally:
        go_on.set()
    found = None
    while found is None:  # one that was left out has its turn when somebody looks again
        found = measures.ask("topics/99", measure, wait_s=1.0)[0]
    assert found.answer == "done"
    for thread in threading.enumerate():
        if thread.name == "lamina-http-measure":
            thread.join(LONG_S)


def test_patterns_of_strangers_are_not_remembered_and_fit_as_file_names_do(lab: HttpLab) -> None:
    import fnmatch

    names = ["Mail.a", "mail.b", "other[1]", "x" * 60]
    for name in names:
        lab.redis("XADD", name, "*", "f", "v")
    kept: Any = fnmatch._compile_pattern  # type: ignore[attr-defined]
    before = kept.cache_info().currsize
    for pattern in ("mail.*", "MAIL.?", "*[[]1]", "[", "*x*x*x*x*x*x*x*x*x*y", "[!a-z]*", "*" * 400):
        status, found = lab.get_json("/topics", search=pattern)
        assert status == 200
        wanted = [name for name in sorted(names) if _fits(name, pattern)]
        assert [one["name"] for one in found["topics"]] == wanted, pattern
    assert kept.cache_info().currsize == before


def _fits(name: str, pattern: str) -> bool:
    from fnmatch import translate

    return re.match(translate(pattern.lower()), name.lower()) is not None


# -- names and sums of others ------------------------------------------------------------------------------------------


def test_no_page_of_jobs_ends_at_a_name_that_is_not_for_who_asks(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    from lamina.server.http.ops import jobs_looking

    monkeypatch.setattr(jobs_looking, "_MOST_NAMES", 10)
    for number in range(600):
        lab.workq.ask(add(number, f"secret.{number}"))
    lab.workq.ask(add(600, "zebra"))
    token = lab.user("ann", "jobs:read:zebra")
    for path, query in (("/jobs/queues", {}), ("/jobs/search", {"text": "no such thing", "most_ms": 1})):
        after, seen = "", ""
        for _ in range(100):
            status, found = lab.get_json(path, token, after=after, **query)
            assert status == 200
            seen += repr(found)
            if not (after := found["next"]):
                break
        assert not after and "secret" not in seen
    assert "zebra" in repr(lab.get_json("/jobs/queues", token)[1])


def test_sums_and_files_of_the_store_are_for_who_may_read_all_of_it(lab: HttpLab) -> None:
    lab.redis("S.WRITE", 7, "PUT", "a", "b")
    lab.redis("S.WRITE", 8, "PUT", "a", "b" * 1000)
    one, all_of_it = lab.user("ann", "store:read:7"), lab.user("bob", "store:read")
    for path in ("/store/files", "/store/compactions"):
        assert lab.get_json(path, one)[0] == 403
        assert lab.get_json(path, all_of_it)[0] == 200
    figures = ("part_bytes", "logged_bytes", "memory_bytes")
    found = lab.get_json("/store", one)[1]
    assert [each["storage"] for each in found["storages"]] == [7]
    assert [found[name] for name in figures] == [None, None, None]
    assert None not in [lab.get_json("/store", all_of_it)[1][name] for name in figures]


def test_what_is_wrong_with_the_server_is_for_who_looks_after_it(lab: HttpLab) -> None:
    lab.redis("XADD", "mail", "*", "f", "v")
    lab.life.problem("topics", "secret.topic: the log failed", needs_restart=True)
    assert "secret.topic" in lab.page("/topics")[1], "nobody has to log in here: everybody may know"
    reader, keeper = lab.user("ann", "topics:read:mail"), lab.user("bob", "admin:read", "topics:read")
    for token, knows in ((reader, False), (keeper, True)):
        answer = lab.request("GET", "/topics", headers=bearer(token))
        assert answer.status == 200 and "<strong>topics</strong>" in answer.text
        assert ("secret.topic" in answer.text) == knows
    with lab.stream("/live/topics", bearer(reader)) as events:
        state = next(one for one in events if one.startswith("event: state"))
    assert "topics" in state and "secret" not in state


def test_journals_are_for_who_looks_after_queues(tmp_path: Path) -> None:
    with HttpLab(tmp_path, queues="journal") as lab:
        reader, keeper = lab.user("ann", "queues:read"), lab.user("bob", "queues:admin")
        assert lab.get_json("/logs/one", reader, name="queues/messages")[0] == 403
        assert lab.get_json("/logs/one", keeper, name="queues/messages")[0] == 200
        assert lab.get_json("/logs/one", reader, name="queues")[0] == 200


# -- the audit log -----------------------------------------------------------------------------------------------------


def test_an_action_that_was_done_is_told_so_though_the_audit_log_is_full_since(
    lab: HttpLab, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Audit, begun: object, outcome: str, told: str = "") -> None:
        raise DiskFull("no room", hint="make some")

    monkeypatch.setattr(Audit, "end", full)
    assert lab.post_json("/jobs/queues/mail/add", {"payload": "x"})[0] == 200
    assert lab.post_json("/jobs/queues/none/resume")[1]["error"]["code"] == "job_not_found"
    assert [(one.action, one.outcome) for one in lab.entries()] == [("jobs.resume", "begun"), ("jobs.add", "begun")]
    assert caplog.text.count("not in the audit log") == 2


def test_nothing_is_done_that_cannot_be_written_down(lab: HttpLab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Audit, *given: object) -> None:
        raise DiskFull("no room", hint="make some")

    monkeypatch.setattr(Audit, "begin", full)
    status, found = lab.post_json("/jobs/queues/mail/add", {"payload": "x"})
    assert (status, found["error"]["code"]) == (503, "disk_full")
    assert lab.inside.jobs is not None and not lab.inside.jobs.state.jobs
