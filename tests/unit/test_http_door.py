"""The HTTP door: a real one on a free port, about a life that the test leads."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from integration.secured_server import certificates
from lamina.cli.health import ask, health
from lamina.errors import BadOption, Disconnected, DiskError, MissingExtra, WireError
from lamina.server.http import door as doors
from lamina.server.http import visitor
from lamina.server.http.access import Access
from lamina.server.http.app import Site
from lamina.server.http.door import HttpDoor
from lamina.server.life import Life
from lamina.server.security.gate import Gate
from lamina.server.security.tls import server_context

HOST = "127.0.0.1"
RIGHT = "right"


@pytest.fixture
def life() -> Life:
    return Life()


@pytest.fixture
def door(life: Life) -> Iterator[HttpDoor]:
    with HttpDoor(life, HOST, 0) as door:
        yield door


def get(door: HttpDoor, path: str, **headers: str) -> tuple[int, dict[str, Any]]:
    connection = HTTPConnection(HOST, door.port, timeout=30)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def test_ready_is_said_with_phase_and_percent_from_start_to_stop(life: Life, door: HttpDoor) -> None:
    assert get(door, "/readyz")[0] == 503
    with life.restoring("jobs") as told:  # the engine is being opened for as long as this block
        told(250, 1000)
        status, said = get(door, "/readyz")
        assert (status, said["phase"], said["percent"]) == (503, "restoring", 25.0)
        assert said["engines"]["jobs"]["done_bytes"] == 250
        status, said = get(door, "/healthz")
        assert (status, said["phase"], said["percent"]) == (200, "restoring", 25.0), "one that restores is alive"
        assert "estimate_s" in said
    life.ready()
    status, said = get(door, "/readyz")
    assert (status, said["is_ready"], said["percent"]) == (200, True, 100.0)
    assert "report" not in said["engines"]["jobs"]
    life.stopping()
    status, said = get(door, "/readyz")
    assert (status, said["phase"]) == (503, "stopping")
    assert get(door, "/healthz")[0] == 200


def test_a_problem_that_ends_by_itself_is_not_ready_but_alive(life: Life, door: HttpDoor) -> None:
    life.ready()
    life.problem("jobs disk", "the disk is full")
    status, said = get(door, "/readyz")
    assert (status, said["problems"]) == (503, {"jobs disk": "the disk is full"})
    assert get(door, "/healthz")[0] == 200


def test_a_log_that_failed_is_not_alive_with_the_reason(life: Life, door: HttpDoor) -> None:
    life.ready()
    life.watch("jobs", lambda: "a sync failed", needs_restart=True)
    status, said = get(door, "/healthz")
    assert (status, said["reason"]) == (503, "jobs: a sync failed")
    assert get(door, "/readyz")[0] == 503


def test_what_is_not_there_is_refused_as_json(door: HttpDoor) -> None:
    status, said = get(door, "/nothing")
    assert (status, said["error"]["code"]) == (404, "not_found")


def test_a_port_in_use_is_told_where_the_door_is_made(life: Life, door: HttpDoor) -> None:
    with pytest.raises(DiskError, match=f"{HOST}:{door.port}: cannot listen: Address already in use"):
        HttpDoor(life, HOST, door.port)


def test_an_address_that_is_none_is_told(life: Life) -> None:
    with pytest.raises(BadOption, match="there is no such address"):
        HttpDoor(life, "no such host.", 0)


def test_without_its_packages_it_says_what_to_install(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doors, "is_installed", lambda: False)
    with pytest.raises(MissingExtra) as refused:
        HttpDoor(life, HOST, 0)
    assert refused.value.hint == 'pip install "lamina[server]"'


def test_closing_lets_go_of_the_port_and_the_thread(life: Life) -> None:
    before = threading.active_count()
    with HttpDoor(life, HOST, 0) as door, socket.create_connection((HOST, door.port), 30) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.recv(100).startswith(b"HTTP/1.1 200")  # and it stays connected
    assert threading.active_count() == before
    with HttpDoor(life, HOST, door.port) as again:
        assert get(again, "/healthz")[0] == 200
    again.close()  # twice is fine


def test_a_door_in_the_file_system_is_for_its_owner(life: Life, tmp_path: Path) -> None:
    path = tmp_path / "http.sock"
    with HttpDoor(life, unix=str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert ask(f"unix:{path}", "/healthz", 30)[0] == 200
        with pytest.raises(DiskError, match="a server listens there"):
            HttpDoor(life, unix=str(path))
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as left:  # of one that was killed
        left.bind(str(path))
    with HttpDoor(life, unix=str(path)):
        assert ask(f"unix:{path}", "/healthz", 30)[0] == 200


def test_nothing_but_a_socket_of_its_own_is_removed(life: Life, tmp_path: Path) -> None:
    precious, path = tmp_path / "precious", tmp_path / "s"
    precious.write_text("data")
    with pytest.raises(BadOption, match="there is a file that is no socket"):
        HttpDoor(life, unix=str(precious))
    assert precious.read_text() == "data"
    first = HttpDoor(life, unix=str(path)).start()
    path.unlink()
    with HttpDoor(life, unix=str(path)):
        first.close()
        assert ask(f"unix:{path}", "/healthz", 30)[0] == 200, "the socket of another server stays"


def test_health_asks_the_door_of_the_settings(life: Life, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pem = certificates(tmp_path)
    tls = server_context(str(pem["cert"]), str(pem["key"]))
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("LAMINA_") and name != "LAMINA_PURE"]:
        monkeypatch.delenv(name)
    life.ready()
    run = CliRunner()
    with HttpDoor(life, HOST, 0, tls=tls) as door:
        (tmp_path / "lamina.toml").write_text(
            f'[server]\ntls_cert = "{pem["cert"]}"\ntls_key = "{pem["key"]}"\n[http]\nlisten = "0.0.0.0:{door.port}"\n'
        )
        result = run.invoke(health, ["--live"], standalone_mode=False)
        assert (result.return_value, result.output) == (0, "alive, ready\n"), "as in a container"
    with HttpDoor(life, unix=str(tmp_path / "s")):
        monkeypatch.setenv("LAMINA_HTTP_LISTEN", f"unix:{tmp_path / 's'}")
        assert run.invoke(health, [], standalone_mode=False).return_value == 0
    monkeypatch.setenv("LAMINA_HTTP_LISTEN", "off")
    with pytest.raises(BadOption, match="switched off"):
        run.invoke(health, [], standalone_mode=False, catch_exceptions=False)


def test_other_routes_are_for_those_with_a_token_and_health_is_for_all(life: Life) -> None:
    async def secret(request: Request) -> Response:
        return JSONResponse({"it": "is here"})

    async def broken(request: Request) -> Response:
        raise DiskError("nothing to see", hint="look elsewhere")

    routes = [Route("/api/it", secret), Route("/api/broken", broken)]
    access = Access(Gate(password=RIGHT))
    with HttpDoor(life, HOST, 0, site=lambda: Site(routes, access)) as door:
        assert get(door, "/healthz")[0] == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic right"}):
            assert get(door, "/api/it", **headers)[0] == 401
            assert get(door, "/nothing", **headers)[0] == 401, "who may not come in does not learn what is there"
        assert get(door, "/api/it", Authorization="Bearer right") == (200, {"it": "is here"})
        assert get(door, "/api/broken", Authorization="Bearer right")[0] == 500
        assert get(door, "/nothing", Authorization="Bearer right")[0] == 404


def test_silent_connections_keep_nobody_from_asking(life: Life) -> None:
    with HttpDoor(life, HOST, 0, max_connections=2) as door:
        crowd = [socket.create_connection((HOST, door.port), 30) for _ in range(5)]
        for _ in range(3):
            assert get(door, "/healthz")[0] == 200
        for each in crowd[:3]:
            with suppress(ConnectionResetError):
                assert each.recv(10) == b"", "it had to make room"
        for each in crowd:
            each.close()


def test_one_connection_too_many_is_closed_while_the_others_are_asking(life: Life) -> None:
    asked_for, answer = threading.Semaphore(0), threading.Event()

    async def slow(request: Request) -> Response:
        asked_for.release()
        await asyncio.to_thread(answer.wait, 60)
        return JSONResponse({"it": "is here"})

    with HttpDoor(life, HOST, 0, max_connections=2, site=lambda: Site([Route("/slow", slow)])) as door:
        held = [HTTPConnection(HOST, door.port, timeout=60) for _ in range(2)]
        for each in held:
            each.request("GET", "/slow")
            assert asked_for.acquire(timeout=60)
        with socket.create_connection((HOST, door.port), 30) as late, suppress(ConnectionResetError):
            assert late.recv(10) == b""
        answer.set()
        for each in held:
            assert each.getresponse().status == 200
            each.close()


def test_headers_that_never_end_are_refused(door: HttpDoor) -> None:
    with socket.create_connection((HOST, door.port), 30) as client:
        client.sendall(b"GET /healthz HTTP/1.1\r\nX: " + b"a" * 70_000)
        assert client.recv(1000).startswith(b"HTTP/1.1 400")
    assert get(door, "/healthz")[0] == 200


def test_who_asks_for_nothing_is_hung_up_on(life: Life, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visitor, "LOOK_S", 0.05)
    with HttpDoor(life, HOST, 0) as door, socket.create_connection((HOST, door.port), 30) as client:
        client.sendall(b"GET /healthz HT")
        with pytest.raises(ConnectionResetError):
            while client.recv(10):
                pass
            raise ConnectionResetError  # closed in order will do
        assert get(door, "/healthz")[0] == 200


def test_health_ends_with_0_or_1(life: Life, door: HttpDoor) -> None:
    run = CliRunner()
    where = ["--http", f"{HOST}:{door.port}"]
    with life.restoring("jobs") as told:
        told(1, 4)
        result = run.invoke(health, where, standalone_mode=False)
        assert result.return_value == 1
        assert result.output.startswith("not ready, restoring, 25.0 %")
        assert run.invoke(health, [*where, "--live"], standalone_mode=False).return_value == 0
    life.ready()
    assert run.invoke(health, where, standalone_mode=False).return_value == 0
    assert run.invoke(health, ["--url", f"http://{HOST}:{door.port}"], standalone_mode=False).return_value == 0
    life.failed("the disk is gone")
    result = run.invoke(health, [*where, "--live", "--json"], standalone_mode=False)
    assert result.return_value == 1
    assert json.loads(result.output)["reason"] == "the disk is gone"


def test_health_says_what_is_wrong_with_an_address() -> None:
    with pytest.raises(BadOption, match="no address"):
        ask("ftp://somewhere", "/readyz", 1)
    with pytest.raises(BadOption, match="no address"):
        ask("here:there", "/readyz", 1)
    with socket.create_server((HOST, 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Disconnected, match="cannot ask"):
        ask(f"{HOST}:{port}", "/readyz", 5)


def test_health_knows_an_answer_that_is_none() -> None:
    with socket.create_server((HOST, 0)) as other:

        def answer() -> None:
            client, _ = other.accept()
            with client:
                client.recv(1000)
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")

        thread = threading.Thread(target=answer)
        thread.start()
        with pytest.raises(WireError, match="no answer of a lamina server"):
            ask(f"{HOST}:{other.getsockname()[1]}", "/readyz", 30)
        thread.join(30)
