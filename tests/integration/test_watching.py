"""A real server, watched: health, ``lamina top`` and ``lamina doctor`` as programs beside it."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from integration.workq_server import HOST, LAMINA, START_S, Server, add

_DOORS = re.compile(rf"(workq|resp|http) on {re.escape(HOST)}:(\d+)")


class WatchedServer(Server):
    """``lamina serve`` with all its doors on ports that were free."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        doors = [word for door in ("--workq", "--resp", "--http") for word in (door, f"{HOST}:0")]
        self._words = [str(LAMINA), "serve", "--data", str(folder), "--sync", "os", *doors]
        self.ports: dict[str, int] = {}

    def __enter__(self) -> WatchedServer:
        super().__enter__()
        return self

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        said, end = b"", time.monotonic() + START_S
        while len(self.ports) < 3 and (left := end - time.monotonic()) > 0:
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            more = os.read(self._process.stdout.fileno(), 4096)
            said += more
            lines = said.decode(errors="replace").rpartition("\n")[0]
            self.ports = {door: int(port) for door, port in _DOORS.findall(lines)}
            if not more:
                break
        assert len(self.ports) == 3, f"the server did not start: {said!r} {self.complaints()}"
        return self.ports["workq"]


def run(*words: object, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "lamina", *map(str, words)], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def said(*words: object, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json", code=code))
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("watched") / "data"


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[WatchedServer]:
    with WatchedServer(folder) as server:
        yield server


def test_a_server_is_watched_from_its_first_job_to_its_end(server: WatchedServer, folder: Path) -> None:
    door = f"{HOST}:{server.ports['http']}"
    health = said("health", "--http", door)
    assert health["is_well"] and health["phase"] == "ready"
    assert health["engines"].keys() == {"jobs", "topics", "queues", "store"}

    with server.client() as client:
        for number in range(3):
            assert client.ask(add(number)) == b"+OK"
        assert client.lease() == b""
    with redis.Redis(port=server.ports["resp"]) as client:
        client.xgroup_create("orders", "billing", id="0", mkstream=True)
        for number in range(20):
            client.xadd("orders", {"number": number})
        client.execute_command("S.WRITE", 1, "PUT", "key", "value")

    doors = ("--resp", f"{HOST}:{server.ports['resp']}", "--workq", f"{HOST}:{server.ports['workq']}")
    top = said("top", *doors, "--once", "--every", "100ms")
    assert top["server"]["phase"] == "ready" and top["server"]["commands_per_s"] is not None
    (queue,) = top["jobs"]["by_queue"]
    assert (queue["name"], queue["ready"], queue["leased"]) == ("q", 2, 1)
    (topic,) = top["topics"]["by_topic"]
    assert (topic["name"], topic["length"], topic["groups"][0]["lag"]) == ("orders", 20, 20)
    assert top["store"]["epoch"] > 0 and top["queues"]["queues"] == 0
    assert top["disk"]["free_bytes"] > 0 and top["disk"]["by_engine"].keys() == {"jobs", "topics", "queues", "store"}
    table = run("top", *doors, "--once", "--every", "100ms")
    assert "orders" in table and "billing" in table
    workq_alone = said("top", "--resp", "off", "--workq", doors[3], "--once", "--every", "100ms")
    assert workq_alone["jobs"]["by_queue"] == [{"name": "q", "ready": 2, "scheduled": 0}]

    doctor = json.loads(
        subprocess.run(
            [sys.executable, "-m", "lamina", "doctor", "--data", str(folder), "--deep", "--json"],
            capture_output=True,
            check=False,
            timeout=120,
        ).stdout
    )
    about = {finding["about"]: finding for finding in doctor["findings"]}
    assert str(server.pid) in about["in use"]["text"]
    assert [one for one in doctor["findings"] if one["level"] == "problem" and one["about"] != "disk"] == []

    server.stop()
    assert said("health", "--http", door, code=1)["error"]["code"] == "disconnected"
    assert said("top", *doors, "--once", code=1)["error"]["code"] == "disconnected"
