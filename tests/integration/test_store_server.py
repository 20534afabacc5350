"""``lamina serve`` with its store, as a real process: Redis clients, kills, restarts, damage, and a slow reader."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.backoff import NoBackoff
from redis.retry import Retry

import lamina
from integration.lamina_server import LaminaServer
from integration.resp_wire import HOST, Wire, packed
from integration.workq_server import LAMINA
from lamina.errors import LogLocked
from waiting import wait_until

MIB = 1 << 20


@pytest.fixture
def server(tmp_path: Path) -> Iterator[LaminaServer]:
    with LaminaServer(tmp_path / "data") as running:
        yield running


@pytest.fixture
def client(server: LaminaServer) -> Iterator[Any]:
    with redis.Redis(port=server.port) as made:
        yield made


def once(server: LaminaServer) -> Any:
    """A client that tries nothing twice: what it is not answered may be there or not."""
    return redis.Redis(port=server.port, retry=Retry(NoBackoff(), 0))


def scanned(client: Any, storage: int, *more: object) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    start: Any = b""
    while start is not None:
        start, flat = client.execute_command("S.SCAN", storage, "FROM", start, *more)
        found |= zip(flat[::2], flat[1::2], strict=True)
    return found


def facts(answer: Any) -> dict[bytes, Any]:
    """A map, as clients of either version get it."""
    return answer if isinstance(answer, dict) else dict(zip(answer[::2], answer[1::2], strict=True))


def refuses(folder: Path, *flags: str) -> str:
    """What a server says that does not start."""
    words = [str(LAMINA), "serve", "--data", str(folder), "--workq", "off", "--resp", f"{HOST}:0", *flags]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode != 0
    return str(done.stderr)


# -- room, and the recent past -----------------------------------------------------------------------------------------


def size_of(folder: Path) -> int:
    """Bytes of all its files; those that go meanwhile have none."""
    size = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):
            size += path.stat().st_size if path.is_file() else 0
    return size


def overwrite(client: Any, rounds: int) -> None:
    """1.5 MB of values, again and again."""
    for number in range(rounds):
        pairs = [word for key in range(150) for word in ("PUT", b"%d" % key, bytes([number]) * 10_000)]
        client.execute_command("S.WRITE", 1, *pairs)


def test_written_a_hundred_times_it_shrinks_by_itself(tmp_path: Path) -> None:
    with LaminaServer(tmp_path, "--history-s", "0") as server, redis.Redis(port=server.port) as client:
        overwrite(client, 60)
    with LaminaServer(tmp_path, "--history-s", "0") as server, redis.Redis(port=server.port) as client:
        overwrite(client, 40)
        wait_until(lambda: size_of(tmp_path / "store") <= 2.5 * 1_500_000)
        assert scanned(client, 1) == {b"%d" % key: bytes([39]) * 10_000 for key in range(150)}


def test_reads_as_of_the_last_hour_are_possible_though_it_compacts_by_itself(tmp_path: Path) -> None:
    with LaminaServer(tmp_path) as server, redis.Redis(port=server.port) as client:
        first = client.execute_command("S.WRITE", 1, "PUT", "0", "before", "PUT", "k", "v")
        overwrite(client, 10)
        wait_until(lambda: (tmp_path / "store" / "compaction_catalog.0").exists())
        client.execute_command("S.COMPACT")
        assert client.execute_command("S.GET", 1, "0", "ASOF", first) == b"before"
        client.execute_command("S.WRITE", 1, "DEL", "k")
    with LaminaServer(tmp_path) as server, redis.Redis(port=server.port) as client:
        assert client.execute_command("S.GET", 1, "0", "ASOF", first) == b"before"
        assert client.execute_command("S.GET", 1, "k", "ASOF", first) == b"v"
        wait_until(lambda: client.info("disk")["disk_history_bytes"] > 0)
        client.execute_command("S.COMPACT")
        client.execute_command("S.COMPACT", "CLEAN")
        with pytest.raises(redis.ResponseError, match="reach back"):
            client.execute_command("S.GET", 1, "k", "ASOF", first)
        assert client.info("disk")["disk_history_bytes"] == 0


# -- clients -----------------------------------------------------------------------------------------------------------


def test_a_redis_client_writes_reads_and_goes_through(client: Any) -> None:
    do = client.execute_command
    first = do("S.WRITE", 1, "PUT", "a", "1", "PUT", "b", b"\0\xff")
    second = do("S.WRITE", 1, "PUT", "a", "2", "DEL", "b")
    assert second > first >= 1
    assert (do("S.GET", 1, "a"), do("S.GET", 1, "b"), do("S.GET", 1, "a", "ASOF", first)) == (b"2", None, b"1")
    assert do("S.SCAN", 1) == [None, [b"a", b"2"]]
    assert do("S.STORAGES") == [[b"1", 1]]
    assert facts(do("S.EPOCH"))[b"durable"] >= second
    assert do("S.ROTATE")[0] >= second
    assert facts(do("S.COMPACT", "CLEAN"))[b"entries-live"] == 1
    with pytest.raises(redis.ResponseError, match=r"^TOOOLD"):
        do("S.GET", 1, "a", "ASOF", first)
    assert do("COMMAND", "INFO", "s.write")["s.write"]["arity"] == -3


def test_a_client_of_the_third_version_gets_maps(server: LaminaServer) -> None:
    with redis.Redis(port=server.port, protocol=3) as client:
        client.execute_command("S.WRITE", 1, "PUT", "a", "1")
        assert client.execute_command("S.EPOCH").keys() == {b"current", b"durable", b"compacted", b"generation"}
        report = client.execute_command("S.COMPACT")
        assert report[b"entries-live"] == 1 and isinstance(report[b"seconds"], float)


def test_a_pipeline_is_answered_in_order_and_sees_its_own_writes(client: Any) -> None:
    with client.pipeline(transaction=False) as pipeline:
        for number in range(300):
            pipeline.execute_command("S.WRITE", 1, "PUT", f"k{number}", number)
            pipeline.execute_command("S.GET", 1, f"k{number}")
        answers = pipeline.execute()
    assert answers[::2] == sorted(answers[::2])
    assert answers[1::2] == [b"%d" % number for number in range(300)]


def test_a_transaction_of_a_redis_client(client: Any) -> None:
    with client.pipeline(transaction=True) as pipeline:
        pipeline.execute_command("S.WRITE", 1, "PUT", "a", "1")
        pipeline.execute_command("S.WRITE", 2, "PUT", "b", "2")
        pipeline.xadd("topic", {"f": "v"})
        epoch, *_ = pipeline.execute()
    assert epoch >= 1
    assert (client.execute_command("S.GET", 1, "a"), client.execute_command("S.GET", 2, "b")) == (b"1", b"2")


def test_many_asyncio_clients_at_once(server: LaminaServer) -> None:
    async def work() -> None:
        made: Any = redis.asyncio.Redis(port=server.port, max_connections=20)
        async with made as client:

            async def write(number: int) -> None:
                for at in range(20):
                    await client.execute_command("S.WRITE", number, "PUT", f"{at}", f"{number}-{at}")
                    assert await client.execute_command("S.GET", number, f"{at}") == f"{number}-{at}".encode()

            await asyncio.gather(*(write(number) for number in range(20)))
            assert await client.execute_command("S.STORAGES") == [[b"%d" % each, 20] for each in range(20)]

    asyncio.run(work())


def test_two_clients_see_each_other_s_answered_writes(server: LaminaServer) -> None:
    with redis.Redis(port=server.port) as one, redis.Redis(port=server.port) as other:
        for number in range(100):
            one.execute_command("S.WRITE", 1, "PUT", "a", number)
            assert other.execute_command("S.GET", 1, "a") == b"%d" % number


def test_what_cannot_be_is_refused_and_the_connection_goes_on(server: LaminaServer) -> None:
    with Wire(server.port) as wire:
        for words in (
            ("S.WRITE",),
            ("S.WRITE", "x", "PUT", "a", "1"),
            ("S.WRITE", "1", "PUT"),
            ("S.GET", "1"),
            ("S.GET", "1", "a", "ASOF", "yesterday"),
            ("S.GET", "1", "a", "ASOF", "99999999"),
            ("S.SCAN", "1", "COUNT", "many"),
            ("S.COMPACT", "please"),
            ("S.ROTATE", "1"),
            ("S.NOPE",),
        ):
            assert wire.ask(*words).startswith(b"ERR "), words
        assert wire.ask("S.STORAGES") == []


def test_a_client_that_says_no_more_is_answered(server: LaminaServer) -> None:
    with socket.create_connection((HOST, server.port)) as raw:
        raw.sendall(b"S.WRITE 1 PUT a 1\r\nS.SCAN 1\r\nS.GET 1 a ASOF 1\r\nS.STORAGES\r\n")
        raw.shutdown(socket.SHUT_WR)
        got = b""
        while more := raw.recv(4096):
            got += more
    scan, value, storages = (
        b"*2\r\n$-1\r\n*2\r\n$1\r\na\r\n$1\r\n1\r\n",
        b"$1\r\n1\r\n",
        b"*1\r\n*2\r\n$1\r\n1\r\n:1\r\n",
    )
    assert got == b":1\r\n" + scan + value + storages


# -- over kills and restarts -------------------------------------------------------------------------------------------


def test_what_was_answered_is_there_after_a_kill(tmp_path: Path) -> None:
    answered: dict[bytes, bytes] = {}
    asked: set[bytes] = set()
    last_epoch = 0
    for round in range(3):
        with LaminaServer(tmp_path / "data") as server, once(server) as client:
            found = scanned(client, 1)
            assert answered.items() <= found.items()
            assert found.keys() <= asked
            assert facts(client.execute_command("S.EPOCH"))[b"durable"] >= last_epoch
            killer = threading.Timer(0.7, server.kill)
            killer.start()
            number = 0
            with pytest.raises(redis.ConnectionError):
                while True:
                    keys = [b"%d-%d-%d" % (round, number, at) for at in range(10)]
                    asked.update(keys)
                    with client.pipeline(transaction=False) as pipeline:
                        for key in keys:
                            pipeline.execute_command("S.WRITE", 1, "PUT", key, b"value of " + key)
                        last_epoch = pipeline.execute()[-1]
                    answered |= {key: b"value of " + key for key in keys}
                    number += 1
                    if number % 20 == 10:
                        client.execute_command("S.ROTATE" if round else "S.COMPACT")
            killer.join()
    assert len(answered) > 100


def test_a_stop_in_order_keeps_also_what_nobody_waited_for(tmp_path: Path) -> None:
    with LaminaServer(tmp_path / "data", "--store-option", "epoch_ms=3600000") as server:
        with redis.Redis(port=server.port) as client:
            client.execute_command("S.WRITE", 1, "PUT", "a", "1", "NOWAIT")
        assert server.stop() < 10
    with lamina.open(tmp_path / "data") as data:
        assert data.store.get(1, b"a") == b"1"


def test_a_server_stops_soon_while_it_compacts(tmp_path: Path) -> None:
    with LaminaServer(tmp_path / "data") as server:
        with redis.Redis(port=server.port) as client:
            for number in range(20):
                with client.pipeline(transaction=False) as pipeline:
                    for at in range(200):
                        pipeline.execute_command("S.WRITE", 1, "PUT", f"{number}-{at}", "x" * 1000)
                    pipeline.execute()
        with socket.create_connection((HOST, server.port)) as raw:
            raw.sendall(packed(("S.COMPACT",)))
            time.sleep(0.1)
            assert server.stop() < 10
    with lamina.open(tmp_path / "data") as data:
        assert sum(1 for _ in data.store.scan(1)) == 4000


def test_the_folder_is_made_by_the_first_command_and_then_taken(server: LaminaServer, tmp_path: Path) -> None:
    folder = tmp_path / "data" / "store"
    assert not folder.exists()
    with redis.Redis(port=server.port) as client:
        client.xadd("topic", {"f": "v"})
        assert not folder.exists()
        assert client.execute_command("S.GET", 1, "a") is None
        assert folder.exists()
    with lamina.open(tmp_path / "data") as data, pytest.raises(LogLocked):
        _ = data.store


# -- while much is done ------------------------------------------------------------------------------------------------


def test_compactions_while_others_write(server: LaminaServer) -> None:
    stop = threading.Event()
    written: dict[bytes, bytes] = {}
    problems: list[BaseException] = []

    def write() -> None:
        try:
            with redis.Redis(port=server.port) as client:
                number = 0
                while not stop.is_set():
                    with client.pipeline(transaction=False) as pipeline:
                        for at in range(20):
                            key, value = b"%d" % (at % 10), b"%d" % number
                            pipeline.execute_command("S.WRITE", 1, "PUT", key, value)
                            written[key] = value
                            number += 1
                        pipeline.execute()
        except BaseException as problem:
            problems.append(problem)

    writer = threading.Thread(target=write)
    writer.start()
    generations = []
    with redis.Redis(port=server.port) as client:
        for _ in range(5):
            time.sleep(0.2)
            generations.append(facts(client.execute_command("S.COMPACT", "CLEAN"))[b"generation"])
        stop.set()
        writer.join()
        assert not problems
        assert generations == [1, 2, 3, 4, 5]
        assert scanned(client, 1) == written
    assert len(written) == 10


def test_a_client_that_does_not_read_its_scans_holds_up_nobody(server: LaminaServer) -> None:
    with redis.Redis(port=server.port) as client:
        for number in range(32):
            client.execute_command("S.WRITE", 1, "PUT", f"{number:02d}", b"x" * (MIB // 8))
        with socket.create_connection((HOST, server.port)) as slow:
            before = server.rss()
            slow.sendall(packed(("S.SCAN", "1")) * 200)
            for number in range(50):
                client.execute_command("S.WRITE", 2, "PUT", "a", number)
                assert client.execute_command("S.GET", 2, "a") == b"%d" % number
            assert server.rss() - before < 64 * MIB
            slow.settimeout(30)
            got = 0
            while got < 3 * 4 * MIB:
                got += len(slow.recv(MIB))


def test_a_long_scan_of_one_client_leaves_room_for_others(server: LaminaServer) -> None:
    with redis.Redis(port=server.port) as client, redis.Redis(port=server.port) as other:
        for start in range(0, 20_000, 500):
            words: list[object] = ["S.WRITE", 1]
            for number in range(start, start + 500):
                words += ["PUT", f"{number:06d}", "x" * 50]
            client.execute_command(*words)
        found: dict[bytes, bytes] = {}
        reader = threading.Thread(target=lambda: found.update(scanned(other, 1, "COUNT", 10_000)))
        reader.start()
        slowest = 0.0
        while reader.is_alive():
            begun = time.monotonic()
            client.ping()
            slowest = max(slowest, time.monotonic() - begun)
        reader.join()
        assert len(found) == 20_000
        assert slowest < 1


# -- settings ----------------------------------------------------------------------------------------------------------


def test_a_store_that_is_switched_off_is_not_made(tmp_path: Path) -> None:
    with LaminaServer(tmp_path / "data", "--store", "off") as server, Wire(server.port) as wire:
        assert wire.ask("S.GET", 1, "a") == b"ERR the store is switched off (lamina serve --store)"
    assert not (tmp_path / "data" / "store").exists()


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("epoch_ms=0", "no write would become durable"),
        ("epoch_ms=-1", "cannot be"),
        ("epochs=5", "no setting of the store has that name"),
        ("memory_bytes=much", "memory_bytes=much: cannot be: 'much' is not a size"),
        ("part_bytes=1", "part_bytes=1: cannot be"),
    ],
)
def test_a_setting_that_cannot_be_stops_the_server(tmp_path: Path, option: str, said: str) -> None:
    complaint = refuses(tmp_path, "--store-option", option)
    assert any(each in complaint for each in said.split("|")), complaint


def test_a_store_that_is_damaged_stops_the_server(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as data:
        data.store.put(1, b"a", b"1")
        data.store.compact()
    catalog = tmp_path / "store" / "compaction_catalog"
    catalog.write_bytes(catalog.read_bytes().replace(b"generation 1", b"generation 7"))
    assert "compaction_catalog" in refuses(tmp_path)
    with LaminaServer(tmp_path, "--store", "off") as server, Wire(server.port) as wire:
        assert wire.ask("PING") == b"PONG"


def test_a_store_that_another_process_has_stops_the_server(tmp_path: Path) -> None:
    with lamina.open(tmp_path) as data:
        data.store.put(1, b"a", b"1")
        assert "store" in refuses(tmp_path)
