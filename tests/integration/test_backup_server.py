"""Backups and restores beside a real server: what it reported at a time, and nothing that it acknowledged missing."""

from __future__ import annotations

import json
import os
import re
import select
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import redis

import lamina
from integration.lamina_server import LaminaServer
from integration.workq_server import HOST, LAMINA, START_S, Client, add
from lamina.clock import ManualClock
from lamina.engines.topics import ids
from lamina.log.files.real import RealFiles
from lamina.pipeline.backing.checking import verify
from lamina.pipeline.backing.place import Backup
from lamina.pipeline.backing.restoring import restore

JOBS = 8


class BothDoors(LaminaServer):
    """``lamina serve`` with both doors."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "--workq", f"{HOST}:0", "--http", "off", "--sync", "os", "--segment-bytes", 65536)

    def __enter__(self) -> BothDoors:
        super().__enter__()
        return self

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        said, end = b"", time.monotonic() + START_S
        while (left := end - time.monotonic()) > 0 and select.select([self._process.stdout], [], [], left)[0]:
            said += (more := os.read(self._process.stdout.fileno(), 4096))
            found = [re.search(rf"{door} on {re.escape(HOST)}:(\d+)".encode(), said) for door in ("resp", "workq")]
            if found[0] and found[1] and b"\n" in said:
                self.workq_port = int(found[1][1])
                return int(found[0][1])
            if not more:
                break
        raise AssertionError(f"the server did not start: {said!r} {self.complaints()}")


def command(*words: object) -> dict[str, Any]:
    done = subprocess.run([str(LAMINA), *map(str, words), "--json"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def reported(server: BothDoors, queues: list[tuple[bytes, bytes]]) -> dict[str, Any]:
    """All that it says, through its doors."""
    found: dict[str, Any] = {}
    with Client(server.workq_port) as jobs:
        found["jobs"] = [jobs.inspect_job(number) for number in range(JOBS)]
    with redis.Redis(port=server.port) as client:
        found["entries"] = client.xrange("orders")
        info = client.xinfo_stream("orders")
        found["stream"] = {name: info[name] for name in ("length", "last-generated-id", "entries-added")}
        found["groups"] = client.xinfo_groups("orders")
        pending = client.xpending_range("orders", "g", "-", "+", 1000)
        found["pending"] = [(one["message_id"], one["consumer"], one["times_delivered"]) for one in pending]
        found["store"] = client.execute_command("S.SCAN", 1, "COUNT", 10_000)
        found["queues"] = [client.execute_command("Q.INFO", rid) for rid, _ in queues]
        found["heads"] = [client.execute_command("Q.GET", rid) for rid, _ in queues]
    return found


def change(server: BothDoors, queues: list[tuple[bytes, bytes]], start: int) -> None:
    with Client(server.workq_port) as jobs, redis.Redis(port=server.port) as client:
        for number in range(start, start + JOBS // 2):
            assert jobs.ask(add(number, payload=b"%d" % number)) == b"+OK"
        assert jobs.complete(int(jobs.lease()), b"done") == b"+OK"
        assert int(jobs.lease()) > 0  # and it stays leased
        for number in range(start, start + 5):
            client.xadd("orders", {"n": number})
            client.execute_command("S.WRITE", 1, "PUT", f"key{number}", f"value{number}")
            for _, sid in queues:
                client.execute_command("Q.SEND", sid, f"message{number}")
        if start == 0:
            client.xgroup_create("orders", "g", 0)
        for _, entries in client.xreadgroup("g", "c", {"orders": ">"}, count=4):
            client.xack("orders", "g", entries[0][0])
        client.execute_command("S.WRITE", 1, "DEL", f"key{start}")
        rid = queues[0][0]
        client.execute_command("Q.ACK", rid, client.execute_command("Q.GET", rid)[0])


def test_restored_at_a_time_it_is_what_the_server_reported_then(tmp_path: Path) -> None:
    data, moments = tmp_path / "data", []
    with BothDoors(data) as server:
        with redis.Redis(port=server.port) as client:
            queues = [tuple(client.execute_command("Q.NEW")) for _ in range(2)]
        for start in range(0, JOBS, JOBS // 2):
            change(server, queues, start)
            moments.append((time.time_ns(), reported(server, queues)))  # nothing goes on meanwhile
        for number, (at, _) in enumerate(moments):
            restore(str(data), str(tmp_path / str(number)), as_of=at)
        made = command("backup", data, "--to", tmp_path / "backup", "--verify")
        restore(str(tmp_path / "backup"), str(tmp_path / "backed-up"))
        assert made["is_verified"] and made["notes"] == []
    for name, (_, then) in [*enumerate(moments), ("backed-up", moments[-1])]:
        with BothDoors(tmp_path / str(name)) as server:
            found = reported(server, queues)
            assert {key: found[key] for key in then} == then, name


def test_a_backup_beside_a_writing_server_is_a_prefix_of_each_log_and_lacks_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    data, acknowledged, is_done = tmp_path / "data", {"jobs": 0, "entries": 0, "store": 0}, threading.Event()

    def write_jobs(port: int) -> None:
        with Client(port) as client:
            while not is_done.is_set():
                assert client.ask(add(acknowledged["jobs"], payload=bytes(300))) == b"+OK"
                acknowledged["jobs"] += 1

    def write_others(port: int) -> None:
        with redis.Redis(port=port) as client:
            dumped = time.monotonic()
            while not is_done.is_set():
                client.xadd("orders", {"n": acknowledged["entries"], "more": bytes(300)})
                acknowledged["entries"] += 1
                if acknowledged["entries"] % 20 == 0:
                    client.execute_command("S.WRITE", 1, "PUT", b"%08d" % acknowledged["store"], bytes(100))
                    acknowledged["store"] += 1
                if time.monotonic() - dumped > 2:
                    dumped = time.monotonic()
                    client.execute_command("S.ROTATE")
                    client.execute_command("L.DUMP", "queues")

    with BothDoors(data) as server:
        threads = [
            threading.Thread(target=write_jobs, args=[server.workq_port]),
            threading.Thread(target=write_others, args=[server.port]),
        ]
        for thread in threads:
            thread.start()
        try:
            told: list[tuple[dict[str, int], dict[str, Any]]] = []
            while len(told) < 2:
                if min(acknowledged.values()) < 20 * (1 + len(told)):
                    time.sleep(0.01)
                    continue
                before = dict(acknowledged)
                told.append((before, command("backup", data, "--to", tmp_path / "backup")))
        finally:
            is_done.set()
            for thread in threads:
                thread.join()
    (_, first), (_, second) = told
    assert 0 < second["copied_bytes"] < second["bytes"]
    kept = first["copied_bytes"] + second["copied_bytes"]
    assert kept == sum(each.stat().st_size for each in (tmp_path / "backup" / "contents").iterdir())
    assert verify(Backup(RealFiles(), str(tmp_path / "backup"))).is_whole
    for before, made in told:
        to = tmp_path / made["generation"]
        restore(str(tmp_path / "backup"), str(to), generation=made["generation"])
        with lamina.open(to, clock=ManualClock(made["moment_ns"])) as opened:
            jobs = {job.id for job in opened.jobs.list("q", limit=10**6)}
            numbers = sorted(int(id.partition("-")[0], 16) for id in jobs)
            topic = opened.topic("orders").find()
            assert topic is not None
            entries = [int(dict(zip(fields[::2], fields[1::2], strict=True))[b"n"]) for _, fields in every(topic)]
            keys = [int(one.key) for one in opened.store.snapshot().scan(1)]
        for name, found in (("jobs", numbers), ("entries", entries), ("store", keys)):
            assert found == list(range(len(found))), name  # a prefix
            assert len(found) >= before[name], name


def every(topic: Any) -> Any:
    return topic.read(ids.FIRST, count=10**6)[0]
