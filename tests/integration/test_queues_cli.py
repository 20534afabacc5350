"""``lamina queues``, run as a program, beside a real server and on the folder that one has left."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import prefork
from integration.lamina_server import LaminaServer
from integration.redis_peer import HOST
from lamina.client.resp import RespClient
from lamina.engines.queues import ids
from lamina.engines.queues.migrating import migrate
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import DAY_S, QueueOptions
from lamina.testing import ManualClock

LAMINA = [sys.executable, "-m", "lamina"]
STORES = ["memory", "journal"]
Done = subprocess.CompletedProcess[str]


def run(*arguments: object) -> Done:
    return prefork.run_text("queues", *arguments)


def lines(done: Done) -> list[dict[str, Any]]:
    """What was printed as JSON."""
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


class Made:
    """A queue, with its ids."""

    def __init__(self, client: RespClient, *words: str) -> None:
        self.client = client
        self.rid, self.sid = client.ask("Q.NEW", *words)
        pairs = client.ask("Q.INFO", self.rid)
        self.handle = dict(zip(pairs[::2], pairs[1::2], strict=True))[b"handle"].decode()

    def send(self, *bodies: str | bytes) -> None:
        for body in bodies:
            self.client.ask("Q.SEND", self.sid, body)


class Folder:
    """A data folder that was filled ten days ago, one message a day."""

    def __init__(self, data: Path, store: str) -> None:
        self.data, self.store = data, store
        clock = ManualClock(time.time_ns() - 21 * DAY_S // 2 * 10**9)  # and a half, to be sure of the day
        engine = open_engine(str(data / "queues"), options=QueueOptions(store=store), clock=clock, threaded=False)
        self.orders, self.letters = (engine.create()[0] for _ in range(2))
        for number in range(5):
            engine.send(self.orders, b"order %d" % number)
            clock.advance(DAY_S)
        engine.send(self.letters, b"dear")
        engine.close()
        self.orders_handle, self.letters_handle = ids.handle(self.orders.rid), ids.handle(self.letters.rid)

    def run(self, verb: str, *arguments: object) -> Done:
        return run(verb, "--data", self.data, *arguments)

    def json(self, verb: str, *arguments: object) -> list[dict[str, Any]]:
        return lines(self.run(verb, "--json", *arguments))

    def bodies(self, handle: str) -> list[str]:
        return [base64.b64decode(one["body_base64"]).decode() for one in self.json("browse", handle)]


@pytest.fixture(params=STORES)
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return Folder(tmp_path / "data", request.param)


@pytest.fixture(scope="module", params=STORES)
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    data = tmp_path_factory.mktemp("served")
    with LaminaServer(data, "--queues", request.param, "--queue", "quota=3") as server:
        yield data, server.port


class TestBesideAServer:
    def test_queues_and_messages_are_seen_and_neither_ids_nor_keys(self, served: tuple[Path, int]) -> None:
        data, port = served
        with RespClient(HOST, port) as client:
            queue = Made(client, "KEY", "the-key", "SKEY", "the-sender-key")
            client.ask("Q.AUTH", queue.sid, "the-sender-key")
            client.ask("Q.SEND", queue.sid, b"\xff\x00", "FLAGS", "T", "TTL", 60)
            queue.send("plain")
            facts = {one["handle"]: one for one in lines(run("ls", "--data", data, "--json", "--limit", 1000))}
            ours = facts[queue.handle]
            assert (ours["waiting"], ours["is_secured"], ours["status"], ours["is_closed"]) == (
                2,
                True,
                "active",
                False,
            )
            (info,) = lines(run("info", queue.handle[:10], "--data", data, "--json"))
            assert (info["handle"], info["bytes"]) == (queue.handle, 7)
            first, second = lines(run("browse", queue.handle, "--data", data, "--json"))
            assert base64.b64decode(first["body_base64"]) == b"\xff\x00"
            assert (base64.b64decode(first["flags_base64"]), first["ttl_s"], first["size"]) == (b"T", 60, 2)
            assert (second["body_base64"], second["is_quota"]) == (base64.b64encode(b"plain").decode(), False)
            shown = "".join(
                run(*words, "--data", data).stdout + run(*words, "--data", data, "--json").stdout
                for words in (("ls",), ("info", queue.handle), ("browse", queue.handle))
            )
            message_id = client.ask("Q.GET", queue.rid)[0].decode()
            for secret in (queue.rid.decode(), queue.sid.decode(), message_id, "the-key", "the-sender-key"):
                assert secret not in shown
            assert "0xff00" in shown
            assert "plain" in shown

    def test_browsing_consumes_nothing(self, served: tuple[Path, int]) -> None:
        data, port = served
        with RespClient(HOST, port) as client:
            queue = Made(client)
            queue.send("one", "two")
            for _ in range(2):
                human = run("browse", queue.handle, "--data", data, "--limit", 1)
                assert "one" in human.stdout
                assert "1 more: --limit 2" in human.stdout
            assert client.ask("Q.GET", queue.rid)[3] == b"one"

    def test_where_a_sender_met_the_quota_is_seen(self, served: tuple[Path, int]) -> None:
        data, port = served
        with RespClient(HOST, port) as client:
            queue = Made(client)
            queue.send("1", "2", "3")
            assert isinstance(client.ask_all([("Q.SEND", queue.sid, "4")])[0], Exception)
            (info,) = lines(run("info", queue.handle, "--data", data, "--json"))
            assert (info["waiting"], info["is_closed"]) == (3, True)
            assert "here a sender met the quota" in run("browse", queue.handle, "--data", data).stdout

    def test_a_dump_is_written_by_the_server(self, served: tuple[Path, int]) -> None:
        data, port = served
        (report,) = lines(run("dump", "--server", f"{HOST}:{port}", "--json"))
        assert (data / "queues" / f"smp-server-store-{report['number']}.dump").stat().st_size == report["bytes"]
        assert "dump" in run("dump", "--server", f"{HOST}:{port}").stdout

    @pytest.mark.parametrize(
        "words",
        [("purge", "--older-than", "0", "--yes"), ("move", "{0}", "{1}"), ("migrate", "--to", "memory"), ("dump",)],
    )
    def test_what_changes_queues_says_that_the_server_has_them(
        self, served: tuple[Path, int], words: tuple[str, ...]
    ) -> None:
        data, port = served
        with RespClient(HOST, port) as client:
            ends = [Made(client).handle for _ in range(2)]
        done = run(*(word.format(*ends) for word in words), "--data", data)
        assert done.returncode == 1
        assert "log_locked" in done.stderr
        assert "a server has it open" in done.stderr

    def test_what_a_purge_would_do_is_told_all_the_same(self, served: tuple[Path, int]) -> None:
        data, port = served
        with RespClient(HOST, port) as client:
            queue = Made(client)
            queue.send("one")
            (facts,) = lines(run("purge", queue.handle, "--older-than", "1h", "--dry-run", "--data", data, "--json"))
            assert facts == {"queues": [], "is_done": False}
            assert client.ask("Q.GET", queue.rid)[3] == b"one"


class TestAlone:
    def test_ls_is_sorted_and_cut(self, folder: Folder) -> None:
        assert [one["waiting"] for one in folder.json("ls")] == [5, 1]
        handles = [one["handle"] for one in folder.json("ls", "--sort", "handle")]
        assert handles == sorted(handles)
        assert folder.json("ls", "--sort", "oldest")[0]["handle"] == folder.orders_handle
        assert len(folder.json("ls", "--limit", 1)) == 1
        assert "1 more: --limit 2" in folder.run("ls", "--limit", 1).stdout

    def test_purge_drops_what_is_old_enough(self, folder: Folder) -> None:
        (facts,) = folder.json("purge", "--older-than", "30d", "--yes")
        assert facts == {"queues": [], "is_done": True}
        (facts,) = folder.json("purge", "--older-than", "7d", "--dry-run")
        gone = {"handle": folder.orders_handle, "messages": 4, "left": 1}
        assert facts == {"queues": [gone], "is_done": False}
        assert len(folder.bodies(folder.orders_handle)) == 5
        (facts,) = folder.json("purge", "--older-than", "7d", "--yes")
        assert facts == {"queues": [gone], "is_done": True}
        assert folder.bodies(folder.orders_handle) == ["order 4"]
        assert (
            "1 message of 1 queue went"
            in folder.run("purge", folder.orders_handle, "--older-than", "0", "--yes").stdout
        )
        assert folder.bodies(folder.letters_handle) == ["dear"]

    def test_move_brings_messages_to_another_queue(self, folder: Folder) -> None:
        orders, letters = folder.orders_handle, folder.letters_handle
        refused = folder.run("move", orders, letters, "--quota", 5)
        assert (refused.returncode, "its quota is 5" in refused.stderr) == (2, True)
        (facts,) = folder.json("move", orders[:12], letters)
        assert facts == {"from_handle": orders, "to_handle": letters, "messages": 5, "were_there": 0, "is_done": True}
        assert folder.bodies(letters) == ["dear", *(f"order {number}" for number in range(5))]
        assert folder.bodies(orders) == []
        with LaminaServer(folder.data, "--queues", folder.store) as server, RespClient(HOST, server.port) as client:
            assert client.ask("Q.GET", ids.wire(folder.letters.rid))[3] == b"dear"

    def test_a_dump_without_a_server_leaves_one_to_read(self, folder: Folder) -> None:
        (report,) = folder.json("dump")
        assert report["messages"] == (6 if folder.store == "memory" else 0)
        names = [path.name for path in (folder.data / "queues").glob("*.dump")]
        assert names == [f"smp-server-store-{report['number']}.dump"]
        assert len(folder.bodies(folder.orders_handle)) == 5

    def test_migrate_to_the_other_store_and_serve_from_there(self, folder: Folder) -> None:
        to = "journal" if folder.store == "memory" else "memory"
        (report,) = folder.json("migrate", "--to", to)
        assert report["before"] == report["after"]
        assert (report["after"]["queues"], report["after"]["messages"]) == (2, 6)
        assert len(folder.bodies(folder.orders_handle)) == 5
        with LaminaServer(folder.data, "--queues", to) as server, RespClient(HOST, server.port) as client:
            rid = ids.wire(folder.orders.rid)
            for number in range(5):
                message = client.ask("Q.GET", rid)
                assert message[3] == b"order %d" % number
                client.ask("Q.ACK", rid, message[0])
            assert client.ask("Q.GET", rid) is None
        assert "nothing to do" in folder.run("migrate", "--to", to).stdout

    def test_while_a_migration_is_broken_off_everything_says_so(self, folder: Folder) -> None:
        to = "journal" if folder.store == "memory" else "memory"

        def stop(name: str) -> None:
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            migrate(str(folder.data / "queues"), to, step=stop)
        for words in (("ls",), ("purge", "--older-than", "7d")):
            done = folder.run(*words)
            assert (done.returncode, "is under way" in done.stderr) == (2, True)
            assert f"lamina queues migrate --to {to}" in done.stderr
        serve = ["serve", "--data", folder.data, "--resp", f"{HOST}:0", "--workq", "off", "--queues", to]
        served = subprocess.run([*LAMINA, *map(str, serve)], capture_output=True, text=True, check=False, timeout=120)
        assert (served.returncode, "is under way" in served.stderr) == (2, True)
        assert "has come to its end" in folder.run("migrate", "--to", to).stdout
        assert len(folder.bodies(folder.orders_handle)) == 5


class TestMistakes:
    @pytest.mark.parametrize("verb", [("ls",), ("migrate", "--to", "journal"), ("purge", "--older-than", "1d")])
    def test_a_folder_without_queues_is_told_and_none_is_made(self, tmp_path: Path, verb: tuple[str, ...]) -> None:
        done = run(*verb, "--data", tmp_path)
        assert (done.returncode, "holds no queues" in done.stderr) == (2, True)
        assert list(tmp_path.iterdir()) == []
        done = run(*verb, "--data", tmp_path / "nowhere")
        assert (done.returncode, "disk_error" in done.stderr) == (1, True)

    def test_the_folder_of_the_queues_itself_is_told(self, folder: Folder) -> None:
        done = run("ls", "--data", folder.data / "queues")
        assert (done.returncode, "give the folder above it" in done.stderr) == (2, True)

    def test_a_handle_that_no_queue_has(self, folder: Folder) -> None:
        done = folder.run("info", "nobody")
        assert (done.returncode, "no queue has the handle" in done.stderr) == (2, True)

    def test_a_server_that_is_not_there(self) -> None:
        done = run("dump", "--server", f"{HOST}:1")
        assert (done.returncode, "disconnected" in done.stderr) == (1, True)

    def test_damage_ends_with_its_own_exit_code_unless_it_is_forced(self, folder: Folder) -> None:
        path = min((folder.data / "queues").glob("smp-server-store-*.*"), key=lambda each: -each.stat().st_size)
        data = bytearray(path.read_bytes())
        data[70] ^= 1
        path.write_bytes(bytes(data))
        done = folder.run("ls")
        assert done.returncode == 6
        assert "corruption" in done.stderr
        assert "warning" in folder.run("ls", "--force").stderr
