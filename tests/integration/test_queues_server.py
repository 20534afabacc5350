"""Queues of a real server: dumps while clients work, pushes in both versions of RESP, and what is never told."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
import redis

from integration.lamina_server import LaminaServer
from integration.resp_wire import OK, Error, Push, Wire

STORES = ("memory", "journal")
DUMP_LINE = re.compile(
    r"INFO lamina\.queues: dump (\d+): (\d+) queues, (\d+) messages, (\d+) expired left out, (\d+) bytes, "
    r"paused [\d.]+ s, took [\d.]+ s, removed (.+)"
)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def store_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "queues").iterdir() if re.search(r"\.(log|dump|saving)$", path.name))


def test_l31_hourly_dump(tmp_path: Path) -> None:
    """With an interval of a fifth of a second: one dump and one log are left, and a line tells of each dump."""
    flags = ("--queue", "dump_every_s=0.2", "--sync", "os", "--history-s", "0")
    with LaminaServer(tmp_path, *flags) as server:
        with Wire(server.port) as wire:
            _, sid = wire.ask("Q.NEW")
            dumps: set[str] = set()
            end = time.monotonic() + 60
            while len(dumps) < 4 and time.monotonic() < end:  # the line comes a moment behind the file
                wire.ask("Q.SEND", sid, "x")
                dumps |= {name for name in store_files(tmp_path) if name.endswith(".dump")}
                time.sleep(0.01)
            # Between two dumps: one that the stop cuts short leaves what the next start's dump removes.
            while not is_as_after_a_dump(left := store_files(tmp_path)) and time.monotonic() < end:
                time.sleep(0.01)
        server.stop()
        told = DUMP_LINE.findall(server.complaints())
    assert len(dumps) >= 3
    numbers = [int(line[0]) for line in told]
    assert len(numbers) >= 3 and numbers == sorted(set(numbers))
    assert all(line[1] == "1" for line in told)
    assert is_as_after_a_dump(left), left


def is_as_after_a_dump(names: list[str]) -> bool:
    return [re.sub(r"\d+", "N", name) for name in names] == ["smp-server-store-N.dump", "smp-server-store-N.log"]


def test_l33_commands_wait_none_fail(tmp_path: Path) -> None:
    with LaminaServer(tmp_path, "--sync", "os", "--queue", "quota=1000000") as server:
        with Wire(server.port) as wire:
            rid, sid = wire.ask("Q.NEW")
            for _ in range(20):
                wire.ask_all([("Q.SEND", sid, "x" * 100)] * 500)
        is_over = threading.Event()
        waits: list[float] = []
        failed: list[object] = []

        def work() -> None:
            with Wire(server.port) as client:
                while not is_over.is_set():
                    begun = time.monotonic()
                    answer = client.ask("Q.SEND", sid, "y")
                    waits.append(time.monotonic() - begun)
                    if isinstance(answer, Error):
                        failed.append(answer)

        worker = threading.Thread(target=work)
        worker.start()
        with Wire(server.port) as wire:
            report = json.loads(wire.ask("L.DUMP", "queues"))
        is_over.set()
        worker.join()
        with Wire(server.port) as wire:
            info = dict(zip(*[iter(wire.ask("Q.INFO", rid))] * 2, strict=True))
    assert not failed
    assert max(waits) < 2  # what the seed allows; how long it is, the benchmark queues_dump tells
    assert report["queues"] == 1 and report["messages"] >= 10_000
    assert info[b"size"] == 10_000 + len(waits)


def test_q27_concurrent_senders_over_sockets(tmp_path: Path, store: str) -> None:
    with (
        LaminaServer(tmp_path, "--queues", store, "--sync", "os") as server,
        Wire(server.port) as inbox,
        Wire(server.port) as one,
        Wire(server.port) as other,
    ):
        rid, sid = inbox.ask("Q.NEW")
        for number in range(50):
            for sender, body in ((one, f"a{number}"), (other, f"b{number}")):
                sender.send("Q.SEND", sid, body)
            assert len({one.read(), other.read()}) == 2
            first = inbox.ask("Q.GET", rid)
            second = inbox.ask("Q.ACK", rid, first[0])
            assert inbox.ask("Q.ACK", rid, second[0]) == OK
            assert {first[3], second[3]} == {b"a%d" % number, b"b%d" % number}


def test_a_subscriber_is_pushed_to_in_both_versions(tmp_path: Path, store: str) -> None:
    with LaminaServer(tmp_path, "--queues", store) as server, Wire(server.port) as two, Wire(server.port) as three:
        three.ask("HELLO", 3)
        rid, sid = two.ask("Q.NEW", "KEY", "k")
        assert two.ask("Q.SUB", rid) == OK
        (first, second) = two.ask_all([("Q.SEND", sid, "m1"), ("Q.SEND", sid, "m2")]), two.read()
        pushed = [value for value in (*first, second) if isinstance(value, list)]
        assert len(pushed) == 1 and pushed[0][0] == b"q.msg" and pushed[0][5] == b"m1"
        assert three.ask("Q.SUB", rid).startswith(b"AUTH ")
        assert three.ask("Q.AUTH", rid, "k") == OK
        assert three.ask("Q.SUB", rid) == OK
        message = three.read()
        assert isinstance(message, Push) and message[:2] == [b"q.msg", rid] and message[5] == b"m1"
        assert two.read() == [b"q.end", rid]
        assert three.ask("Q.ACK", rid, message[2])[3] == b"m2"


def test_get_can_wait_for_a_message(tmp_path: Path, store: str) -> None:
    with LaminaServer(tmp_path, "--queues", store) as server, Wire(server.port) as inbox, Wire(server.port) as sender:
        rid, sid = inbox.ask("Q.NEW")
        inbox.send("Q.GET", rid, "BLOCK", 0)
        sender.ask("Q.SEND", sid, "at last")
        message = inbox.read()
        assert message[3] == b"at last"
        assert inbox.ask("Q.ACK", rid, message[0]) == OK
        assert inbox.ask("Q.GET", rid, "BLOCK", 10) is None
        inbox.send("Q.GET", rid, "BLOCK", 0)
        assert sender.ask("Q.DEL", rid) == OK
        assert inbox.read().startswith(b"AUTH ")


def test_redis_py_uses_queues(tmp_path: Path, store: str) -> None:
    with LaminaServer(tmp_path, "--queues", store) as server:
        client = redis.Redis(port=server.port, protocol=2)
        rid, sid = client.execute_command("Q.NEW")
        client.execute_command("Q.SEND", sid, "hello", "FLAGS", "urgent", "TTL", 60)
        with client.client() as one:
            message = one.execute_command("Q.GET", rid)
            assert message[2:] == [b"urgent", b"hello"]
            assert one.execute_command("Q.ACK", rid, message[0]) in (b"OK", "OK", True)
        assert client.execute_command("Q.DEL", rid) in (b"OK", "OK", True)
        with pytest.raises(redis.ResponseError, match="AUTH"):
            client.execute_command("Q.SEND", sid, "x")
        client.close()


def test_what_is_secret_is_in_no_line_and_no_error(tmp_path: Path, store: str) -> None:
    """Keys, ids and bodies are in no line of the log and in no error; what was deleted or expired is in no file."""
    body, gone, key = "a body nobody may see", "a body that goes", "a key nobody may see"
    flags = ("--queues", store, "--sync", "os", "--queue", "expire_every_s=0.2", "--queue", "idle_s=0.2")
    flags = (*flags, "--history-s", "0")
    errors: list[bytes] = []
    secrets = {body.encode(), gone.encode(), key.encode()}
    for _ in range(2):
        with LaminaServer(tmp_path, *flags) as server:
            with Wire(server.port) as wire:
                rid, sid = wire.ask("Q.NEW", "KEY", key, "SKEY", key)
                secrets |= {rid, sid}
                with Wire(server.port) as stranger:
                    for words in (("Q.GET", rid), ("Q.SEND", sid, body), ("Q.AUTH", rid, "wrong"), ("Q.DEL", rid)):
                        errors.append(stranger.ask(*words))
                assert wire.ask("Q.AUTH", sid, key) == OK
                secrets.add(wire.ask("Q.SEND", sid, gone, "TTL", 1))
                expired = time.monotonic() + 30
                while wire.ask("Q.INFO", rid)[5] and time.monotonic() < expired:
                    time.sleep(0.1)
                assert wire.ask("Q.INFO", rid)[5] == 0
                errors += [wire.ask("Q.ACK", rid, sid), wire.ask("Q.SEND", sid, body * 10_000)]
                wire.ask("Q.SEND", sid, gone)
                assert wire.ask("Q.DEL", rid) == OK
                wire.ask("L.DUMP", "queues")
            server.stop()
            told = server.complaints().encode()
        for secret in secrets:
            assert secret not in told
            assert not any(secret in error for error in errors)
        assert all(isinstance(error, Error) for error in errors)
        kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert gone.encode() not in kept and key.encode() not in kept


@pytest.mark.parametrize("sync", ["os", "always"])
def test_what_is_sent_to_a_subscriber_that_said_quit_disturbs_nobody(tmp_path: Path, store: str, sync: str) -> None:
    with LaminaServer(tmp_path, "--queues", store, "--sync", sync) as server:
        with Wire(server.port) as quitting, Wire(server.port, timeout=10) as sender, Wire(server.port) as other:
            rid, sid = quitting.ask("Q.NEW", "SUB")
            other_rid, other_sid = other.ask("Q.NEW", "SUB")
            assert quitting.ask("QUIT") == OK
            # The client does not hang up: the server waits a while for that, and has nothing more to say meanwhile.
            ids = [sender.ask("Q.SEND", sid, body) for body in ("first", "second")]
            sent = sender.ask("Q.SEND", other_sid, "for another")
            assert other.read()[:3] == [b"q.msg", other_rid, sent]
            message = sender.ask("Q.GET", rid)
            assert (message[0], message[3]) == (ids[0], b"first")
            assert quitting.rest() == b""
        server.stop()
        assert "Traceback" not in server.complaints()
