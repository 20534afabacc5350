"""Browsers that come in great numbers, leave in the middle, read nothing, and ask for rows of a mebibyte."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from integration.console_samples import address_of, changing
from integration.console_server import PATIENCE_S, Browser, ConsoleServer, fill, record_runs, until
from integration.crawling import walk
from integration.workq_server import HOST
from lamina.server.http.console.live import MOST_LOOKING
from lamina.server.http.console.pages import all_pages
from lamina.server.http.visitor import MOST


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConsoleServer]:
    with ConsoleServer(tmp_path_factory.mktemp("server") / "data") as server:
        with server.remote() as lm:
            fill(lm)
        record_runs(server.folder)
        yield server


def _open_stream(server: ConsoleServer, path: str) -> socket.socket:
    line = socket.create_connection((HOST, server.http), PATIENCE_S)
    line.sendall(f"GET {path} HTTP/1.1\r\nHost: {HOST}:{server.http}\r\n\r\n".encode())
    return line


def _first(line: socket.socket) -> bytes:
    try:
        return line.recv(15)
    except OSError:
        return b""


def _handles(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def test_browsers_that_go_away_leave_nothing_behind(server: ConsoleServer) -> None:
    """More than may be live at a time, again and again: each is noticed and let go of."""
    live = [f"/live{page.path}" for page in all_pages() if "{" not in page.path]

    def come_and_go() -> None:
        lines = [_open_stream(server, live[number % len(live)]) for number in range(MOST_LOOKING)]
        assert all(_first(line).startswith(b"HTTP/1.1 ") for line in lines)
        for number, line in enumerate(lines):
            if number % 2:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # reset instead of an end
            line.close()

    come_and_go()
    until(lambda: _is_live(server), "there is room again")
    handles, memory = _handles(server.pid), server.rss()
    for _ in range(8):
        come_and_go()
        until(lambda: _is_live(server), "there is room again")
    until(lambda: _handles(server.pid) <= handles + 3, "all sockets are closed")
    assert server.rss() - memory < 48 << 20


def _is_live(server: ConsoleServer) -> bool:
    with _open_stream(server, "/live/audit") as line:
        return _first(line) == b"HTTP/1.1 200 OK"


def test_three_hundred_streams_do_not_keep_others_out(server: ConsoleServer) -> None:
    memory = server.rss()
    with ExitStack() as opened:
        lines = [opened.enter_context(_open_stream(server, "/live/audit")) for _ in range(300)]
        began = [_first(line) for line in lines]
        assert began.count(b"HTTP/1.1 200 OK") == MOST_LOOKING
        assert began.count(b"HTTP/1.1 503 Se") + began.count(b"") >= 300 - MOST_LOOKING - MOST
        assert server.get("/healthz").status == 200
        assert server.get("/audit").status == 200
        assert server.rss() - memory < 64 << 20
    until(lambda: _is_live(server), "there is room again")


def test_a_browser_that_does_not_read_is_not_waited_for(server: ConsoleServer) -> None:
    """Its page is large, and it reads nothing of it: the server keeps no more than a few pieces for it."""
    memory = server.rss()
    with ExitStack() as opened:
        for _ in range(20):
            line = socket.socket()
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.settimeout(PATIENCE_S)
            line.connect((HOST, server.http))
            line.sendall(f"GET /live/jobs HTTP/1.1\r\nHost: {HOST}\r\n\r\n".encode())
            opened.enter_context(line)
        with server.remote() as lm:
            for number in range(50):
                lm.jobs.add("more", b"%d" % number)
        assert server.get("/healthz").status == 200
        assert server.rss() - memory < 64 << 20


def test_a_row_of_a_mebibyte_makes_no_page_of_a_mebibyte(server: ConsoleServer) -> None:
    browser = Browser(server)
    memory = server.rss()

    def look(at: str) -> tuple[int, str, str]:
        got = browser.get(at)
        assert len(got.body) < 512 << 10, at
        return got.status, got.headers.get("content-type", ""), got.text

    walked = walk(look, most=60, of_a_kind=2)
    assert walked.broken == []
    assert server.rss() - memory < 96 << 20


def test_a_body_that_takes_long_to_read_holds_nobody_up(server: ConsoleServer) -> None:
    """The guard of the server's loops says so (loop_guard.py)."""
    browser = Browser(server)
    assert browser.post("/login", {"token": "\x80" * 300_000}).status == 401
    path, _ = address_of(changing()[0], {})
    for body in (b'{"x": [' + b"[]," * 600_000 + b"0]}", b'{"x": [' + b'"",' * 600_000 + b"0]}"):
        got = server.ask("POST", path, body, {"content-type": "application/json"})
        assert (got.status, got.json()["error"]["code"]) == (400, "bad_option")


def test_a_body_that_is_too_large_is_refused(server: ConsoleServer) -> None:
    for operation in changing()[:3]:
        path, _ = address_of(operation, {})
        got = server.ask("POST", path, b" " * (3 << 20), {"content-type": "application/json"})
        assert (got.status, got.json()["error"]["code"]) == (413, "too_large")
