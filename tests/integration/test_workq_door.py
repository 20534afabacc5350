"""The workq door under abuse, as a real process: misuse harms no other client, not the server, not what it keeps."""

from __future__ import annotations

import asyncio
import errno
import json
import random
import re
import resource
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from integration.workq_server import HOST, LAMINA, MIB, Client, Server, add, job_id, raw_id
from lamina.engines.jobs.engine import JobEngine
from lamina.log import Log, LogOptions
from lamina.log.formats import JOBS
from lamina.log.sync import ALWAYS, OS, Sync, interval
from lamina.server.workq.door import WorkqDoor
from lamina.testing import FaultyFiles, MemoryFiles

ROOT = Path(__file__).parents[2]
SOON_S = 2.0
"""Within this a client that does nothing wrong is served, whatever the others do."""
MOST_GROWTH = 64 * MIB


@pytest.fixture
def server() -> Iterator[Server]:
    """Keeps its jobs in memory. It must be alive at the end, and have nothing to complain of."""
    with Server() as server:
        yield server
        assert server.is_alive
        assert server.complaints() == ""


@pytest.fixture(scope="module")
def sturdy() -> Iterator[Server]:
    """One for all that leaves nothing behind."""
    with Server() as server:
        yield server
        assert server.complaints() == ""


def check_served(server: Server, number: int = 9_999_999) -> None:
    """Somebody new is served, and at once."""
    started = time.monotonic()
    with server.client() as client:
        assert client.ask(add(number, "canary", b"sing")) == b"+OK"
        assert client.lease("canary") == b"sing"
        assert client.complete(number, b"done") == b"+OK"
        assert client.ask(b"delete %b\r\n" % job_id(number).encode()) == b"+OK"
    assert time.monotonic() - started < SOON_S


def reset(client: Client) -> None:
    """Leave without a farewell."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def active_clients(client: Client) -> int:
    client.send(b"inspect server\r\n")
    assert client.line() == b"+OK 1"
    return int(client.facts()["active-clients"])


def until(is_so: Callable[[], bool], seconds: float = 5 * SOON_S) -> None:
    end = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


# -- bytes ---------------------------------------------------------------------------------------------------------

STORY = b"".join(
    (
        add(1, payload=b"a\r\nb"),
        add(2, "r", b"\r\n\r\n"),
        add(1),
        b"schedule %b s 1000 60000 2099-01-01T00:00:00Z 3\r\n\r\n\n\r\n" % job_id(3).encode(),
        b"add %b q 1000 60000 30 -a=\r\ndelete 00000001-0000-4000-8000\r\n\r\n" % job_id(4).encode(),
        b"lease q r 5\r\ninspect queue q\r\nlease nobody 3\r\nhello\r\n\r\n",
        b"inspect job %b\r\n" % job_id(2).encode(),
        b"complete %b 2\r\nok\r\nresult %b 0\r\n" % (job_id(1).encode(), job_id(1).encode()),
        b"run %b f 1000 4 1\r\nx\r\n" % job_id(5).encode(),
        b"inspect jobs r 0 10\r\ninspect scheduled-jobs s 0 10\r\n",
        *(b"delete %b\r\n" % job_id(number).encode() for number in (1, 2, 3, 4)),
    )
)
"""Leaves nothing behind, so it can be told again."""


def tell(server: Server, pieces: Iterator[bytes]) -> bytes:
    with server.client() as client:
        for piece in pieces:
            client.send(piece)
        client.end()
        return re.sub(rb"created \S+", b"created", client.rest())


def cut(data: bytes, places: list[int]) -> Iterator[bytes]:
    for start, end in zip([0, *places], [*places, len(data)], strict=True):
        yield data[start:end]


def test_any_split_of_the_bytes_gives_the_same_answers(server: Server) -> None:
    whole = tell(server, iter([STORY]))
    assert whole.count(b"\r\n") > 60
    assert tell(server, (STORY[at : at + 1] for at in range(len(STORY)))) == whole
    chance = random.Random(5)
    for _ in range(25):
        places = sorted(chance.sample(range(1, len(STORY)), chance.choice([1, 2, 9, 60])))
        assert tell(server, cut(STORY, places)) == whole


def test_twenty_thousand_adds_in_one_stream_are_all_answered_in_order(server: Server) -> None:
    count = 20_000
    commands = [add(number, payload=b"%d" % number) for number in range(count)]
    for number in range(0, count, 10):
        commands[number] = add(1) if number else commands[number]
    with server.client() as client:
        sender = threading.Thread(target=client.send, args=(b"".join(commands),))
        sender.start()
        answers = [client.line() for _ in range(count)]
        sender.join()
        wrong = [number for number, answer in enumerate(answers) if answer != b"+OK"]
        assert wrong == list(range(10, count, 10))
        assert {answers[number] for number in wrong} == {b"-CLIENT-ERROR Duplicate job"}
        assert client.ready_count() == count - len(wrong)


def test_commands_behind_one_that_waits_wait_and_are_answered_in_order(server: Server) -> None:
    count = 12_000  # more than are read ahead
    with server.client() as waiting, server.client() as other:
        sender = threading.Thread(
            target=waiting.send,
            args=(b"lease nobody 1500\r\n" + b"".join(add(number) for number in range(count)),),
        )
        sender.start()
        time.sleep(0.3)
        assert other.ask(b"inspect queue q\r\n") == b"-NOT-FOUND"
        assert waiting.line() == b"-TIMEOUT"
        assert {waiting.line() for _ in range(count)} == {b"+OK"}
        sender.join()
        assert other.ready_count() == count


def test_half_commands_and_clients_that_leave_harm_nobody(server: Server) -> None:
    chance = random.Random(1)
    with server.client() as watcher:
        for turn in range(200):
            client = server.client()
            client.send(STORY[: chance.randrange(len(STORY))])
            reset(client) if turn % 2 else client.close()
        until(lambda: active_clients(watcher) == 1)
    check_served(server)


@pytest.mark.parametrize(
    "junk",
    [
        b"x" * (2 * MIB),
        b"\0" * (2 * MIB),
        b"add " + b" " * (2 * MIB),
        b"lease " + b"a " * MIB,
        b"-a=1 " * (MIB // 4),
        b"\n",
        b"inspect queue q\n",
        bytes(range(256)) * 100,
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        b"add %b q 1 1 99999999999999999999\r\n" % job_id(1).encode(),
    ],
    ids=["letters", "zeros", "blanks", "names", "flags", "LF", "no CR", "binary", "TLS", "size"],
)
def test_what_is_no_command_ends_its_own_connection_only(sturdy: Server, junk: bytes) -> None:
    before = sturdy.rss()
    for _ in range(5):
        with sturdy.client() as client, suppress(ConnectionError):
            client.send(junk)
            client.end()
            answer = client.rest()
            assert answer in (b"", b"-CLIENT-ERROR Invalid payload size\r\n") or b"Unknown command" in answer
    check_served(sturdy)
    assert sturdy.rss() - before < MOST_GROWTH


def test_the_longest_line_is_still_read_and_one_byte_more_is_not(sturdy: Server) -> None:
    for size, answer in ((1_058_572, b"-CLIENT-ERROR Unknown command"), (1_058_577, b"")):
        with sturdy.client() as client:
            with suppress(ConnectionError):
                client.send(b"x" * size + b"\r\n")
            with suppress(ConnectionError):
                assert client.line() == answer


def test_the_largest_payload_goes_in_and_out(server: Server) -> None:
    payload = random.Random(3).randbytes(MIB)
    with server.client() as client:
        assert client.ask(add(1, payload=payload)) == b"+OK"
        assert client.lease() == payload
        assert client.complete(1, payload) == b"+OK"
        assert client.result(1) == (1, payload)
        assert client.ask(add(2, payload=payload + b"x")) == b"-CLIENT-ERROR Invalid payload size"


# -- those who leave -----------------------------------------------------------------------------------------------


def test_a_worker_that_breaks_off_while_it_waits_gets_no_job(server: Server) -> None:
    gone, stays = server.client(), server.client()
    gone.send(b"lease a q 60000\r\n")
    time.sleep(0.1)
    stays.send(b"lease q 60000\r\n")
    time.sleep(0.1)
    reset(gone)
    time.sleep(0.1)
    with server.client() as client:
        assert client.ask(add(1, payload=b"work")) == b"+OK"
    assert stays.leased() == b"work"
    stays.close()


def test_a_worker_that_leaves_while_it_waits_gets_no_job(server: Server) -> None:
    with server.client() as stays:
        gone = server.client()
        gone.send(b"lease a q 60000\r\n")
        time.sleep(0.1)
        stays.send(b"lease q 3000\r\n")
        time.sleep(0.1)
        gone.close()
        time.sleep(0.1)
        with server.client() as client:
            assert client.ask(add(1, payload=b"work")) == b"+OK"
        assert stays.leased() == b"work"


@pytest.mark.parametrize("leave", [reset, Client.close])
def test_the_job_of_a_runner_that_left_is_gone(server: Server, leave: Callable[[Client], None]) -> None:
    runner = server.client()
    runner.send(b"run %b q 60000 60000 4\r\nwork\r\n" % job_id(1).encode())
    with server.client() as client:
        until(lambda: client.inspect_job(1) != {})
        leave(runner)
        time.sleep(0.2)
        assert client.lease("q") == b"-TIMEOUT"
        assert client.inspect_job(1) == {}


@pytest.mark.parametrize("leave", [reset, Client.close])
def test_those_who_wait_for_a_result_and_leave_are_not_missed(server: Server, leave: Callable[[Client], None]) -> None:
    with server.client() as client:
        assert client.ask(add(1)) == b"+OK"
        waiting = [server.client() for _ in range(20)]
        for one in waiting:
            one.send(b"result %b 60000\r\n" % job_id(1).encode())
        time.sleep(0.1)
        for one in waiting[::2]:
            leave(one)
        time.sleep(0.1)
        assert client.complete(1, b"r") == b"+OK"
        assert [one.told() for one in waiting[1::2]] == [(1, b"r")] * 10
        for one in waiting[1::2]:
            one.close()
        until(lambda: active_clients(client) == 1)


def test_a_job_that_is_deleted_while_its_runner_waits_harms_nobody(server: Server) -> None:
    """It ended the real server."""
    with server.client() as runner, server.client() as client:
        runner.send(b"run %b q 200 100 0\r\n\r\n" % job_id(1).encode())
        until(lambda: client.inspect_job(1) != {})
        assert client.ask(b"delete %b\r\n" % job_id(1).encode()) == b"+OK"
        assert runner.line() == b"-TIMEOUT"
        assert client.ask(b"delete urn:uuid:12345678-1234-4234-8234\r\n") == b"-CLIENT-ERROR Invalid ID"


def test_no_job_may_have_an_id_of_the_log(server: Server) -> None:
    with server.client() as client:
        for kind in (b"00", b"01", b"FF"):
            id = b"6c616d6a-6f62-4000-8000-0000000000" + kind
            for line in (
                b"add %b q 1000 1000 2",
                b"run %b q 1000 1000 2",
                b"schedule %b q 1000 1000 2099-01-01T00:00:00Z 2",
            ):
                assert client.ask(line % id + b"\r\nhi\r\n") == b"-CLIENT-ERROR Reserved ID"
            for line in (b"complete %b 0\r\n\r\n", b"delete %b\r\n", b"result %b 0\r\n", b"inspect job %b\r\n"):
                assert client.ask(line % id) == b"-NOT-FOUND"
        assert client.ask(b"inspect queues 0 10\r\n") == b"+OK 0"


def test_a_client_that_ends_its_side_still_gets_all_answers(server: Server) -> None:
    with server.client() as client:
        client.send(b"".join(add(number) for number in range(1000)) + b"lease nobody 300\r\ninspect queue q\r\n")
        client.end()
        expected = b"+OK\r\n" * 1000 + b"-TIMEOUT\r\n+OK 1\r\nq 2\r\nready-len 1000\r\nscheduled-len 0\r\n"
        assert client.rest() == expected


@pytest.mark.parametrize("end", [b"", b"add no size\r\n"], ids=["ended", "refused"])
def test_all_answers_that_wait_for_the_disk_go_out_before_the_end(tmp_path: Path, end: bytes) -> None:
    with Server(tmp_path, "-cmdlog-sync", "always") as server:
        for turn in range(10):
            with server.client() as client:
                for number in range(turn * 100, turn * 100 + 40):
                    client.send(add(number))
                client.send(end)
                if not end:
                    client.end()
                assert client.rest().count(b"+OK\r\n") == 40


# -- many, and those who do not read -------------------------------------------------------------------------------


def test_five_thousand_idle_connections_disturb_nobody(server: Server) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 5000 + 500
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))
    count = min(5000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 500)
    before, idle = server.rss(), []
    try:
        with Server(files=count + 300) as server, server.client() as client:
            before = server.rss()
            for number in range(count):
                idle.append(socket.create_connection((HOST, server.port), 10))
                if number % 50 == 49:  # a burst larger than the backlog would wait a second
                    until(lambda: active_clients(client) > len(idle))
            idle[17].sendall(b"lease q 60000\r\n")
            times = []
            for number in range(300):
                started = time.monotonic()
                assert client.ask(add(number, "work", b"x")) == b"+OK"
                assert client.lease("work") == b"x"
                assert client.complete(number) == b"+OK"
                times.append(time.monotonic() - started)
            assert max(times) < SOON_S / 2
            assert client.ask(add(1000)) == b"+OK"
            assert idle[17].recv(100).startswith(b"+OK 1")
            assert server.rss() - before < MOST_GROWTH
            for one in idle:
                one.close()
            until(lambda: active_clients(client) == 1)
    finally:
        for one in idle:
            one.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_more_connections_than_allowed_are_told_so(tmp_path: Path) -> None:
    with Server(tmp_path, "--max-connections", 3, command="serve") as server:
        clients = [server.client() for _ in range(3)]
        assert [client.ask(add(number)) for number, client in enumerate(clients)] == [b"+OK"] * 3
        with server.client() as refused:
            assert refused.rest() == b"-SERVER-ERROR Too many connections\r\n"
        clients.pop().close()
        time.sleep(0.2)
        check_served(server)
        for client in clients:
            client.close()


def test_out_of_file_handles_the_server_waits_and_goes_on() -> None:
    with Server(files=64) as server, server.client() as client:
        assert client.ask(add(1)) == b"+OK"
        crowd = [socket.create_connection((HOST, server.port), 5) for _ in range(120)]
        time.sleep(0.2)
        used = server.cpu_s()
        time.sleep(0.5)
        assert server.cpu_s() - used < 0.25
        assert client.ask(add(2)) == b"+OK"
        for one in crowd:
            one.close()
        until(lambda: active_clients(client) == 1)
        check_served(server)
        assert len(server.complaints().splitlines()) < 50


def test_clients_leave_the_log_its_file_handles(tmp_path: Path) -> None:
    with Server(tmp_path, files=64) as server, server.client() as client:
        crowd = [socket.create_connection((HOST, server.port), 5) for _ in range(120)]
        time.sleep(0.2)
        assert client.ask(add(1)) == b"+OK"  # the first file of the log is made now
        assert "32 connections at most, not 10000: only 64 file handles" in server.complaints()
        for one in crowd:
            one.close()


def stuff(client: Client, data: bytes, times: int) -> int:
    """Send and never read, as long as the server takes it. Returns how often all of it went."""
    client.socket.settimeout(0.5)
    for turn in range(times):
        try:
            client.send(data)
        except (TimeoutError, ConnectionError):
            return turn
    return times


class Canary(threading.Thread):
    """Asks for little and notes how long it waited at most."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self._client = server.client()
        self._is_over = threading.Event()
        self.worst_s = 0.0

    def __enter__(self) -> Canary:
        self.start()
        return self

    def run(self) -> None:
        with self._client as client:
            while not self._is_over.wait(0.01):
                started = time.monotonic()
                assert client.ask(b"inspect queue nobody\r\n") == b"-NOT-FOUND"
                self.worst_s = max(self.worst_s, time.monotonic() - started)

    def __exit__(self, *problem: object) -> None:
        self._is_over.set()
        self.join()


@pytest.mark.parametrize(
    "command",
    [
        b"inspect server\r\n",
        b"lease q 0\r\n",
        b"nonsense\r\n",
        b"lease x 86400000\r\n",
        b"inspect job %b\r\n" % job_id(1).encode(),
    ],
    ids=["inspect server", "lease", "refused", "lease that waits", "inspect job"],
)
def test_a_client_that_never_reads_costs_little_and_disturbs_nobody(server: Server, command: bytes) -> None:
    with server.client() as client:
        assert client.ask(add(1, payload=b"x" * 10_000)) == b"+OK"
    before = server.rss()
    with server.client(room=4096) as deaf, Canary(server) as canary:
        stuff(deaf, command * (32_000 // len(command)), 150)
        check_served(server)
        assert server.rss() - before < MOST_GROWTH
    assert canary.worst_s < SOON_S / 2


class Flood(threading.Thread):
    """A client that sends adds as fast as they are taken, and reads every answer."""

    def __init__(self, server: Server, number: int) -> None:
        super().__init__()
        self._client = server.client()
        self._number = number
        self._is_over = threading.Event()
        self.answered = 0

    def run(self) -> None:
        reader = threading.Thread(target=self._read)
        reader.start()
        with suppress(OSError):
            for first in range(self._number * 10**7, (self._number + 1) * 10**7, 200):
                if self._is_over.is_set():
                    break
                self._client.send(b"".join(add(number, "flood") for number in range(first, first + 200)))
            self._client.end()
        reader.join()
        self._client.close()

    def _read(self) -> None:
        with suppress(OSError):
            while data := self._client.socket.recv(1 << 16):
                self.answered += data.count(b"+OK\r\n")

    def stop(self) -> None:
        self._is_over.set()
        with suppress(OSError):  # it may have ended by itself
            self._client.socket.settimeout(0.2)
        self.join()


def test_a_client_that_sends_without_a_pause_disturbs_nobody(server: Server) -> None:
    with Canary(server) as canary:
        flood = Flood(server, 1)
        flood.start()
        time.sleep(1.5)
        flood.stop()
    assert flood.answered > 1000
    assert canary.worst_s < SOON_S / 2


@pytest.mark.parametrize("policy", ["os", "always"])
def test_clients_that_send_without_a_pause_do_not_hold_up_the_stop(tmp_path: Path, policy: str) -> None:
    with Server(tmp_path, "-cmdlog-sync", policy) as server:
        floods = [Flood(server, number) for number in range(3)]
        for flood in floods:
            flood.start()
        time.sleep(0.5)
        try:
            assert server.stop(within=3) < SOON_S
        finally:
            server.kill()
            for flood in floods:
                flood.stop()
    assert was_clean(tmp_path)


def test_large_answers_that_nobody_reads_cost_little(server: Server) -> None:
    with server.client() as client:
        for number in range(100):
            assert client.ask(add(number, payload=b"x" * 1000)) == b"+OK"
        before = server.rss()
        with server.client(room=4096) as deaf:
            stuff(deaf, b"inspect jobs q 0 100\r\n" * 1000, 1)
            time.sleep(0.2)
            check_served(server)
            assert server.rss() - before < MOST_GROWTH


def test_large_commands_behind_one_that_waits_cost_little(server: Server) -> None:
    before = server.rss()
    with server.client() as client:
        client.send(b"lease nobody 60000\r\n")
        stuff(client, add(1, payload=b"x" * MIB), 150)
        check_served(server)
        assert server.rss() - before < MOST_GROWTH


def test_a_client_that_reads_late_gets_everything(server: Server) -> None:
    count = 3000
    with server.client() as client, server.client(room=4096) as slow:
        assert client.ask(add(1, payload=b"x" * 1000)) == b"+OK"
        sender = threading.Thread(target=slow.send, args=(b"inspect job %b\r\n" % job_id(1).encode() * count,))
        sender.start()
        time.sleep(0.5)
        for _ in range(count):
            assert slow.line() == b"+OK 1"
            assert slow.facts()["payload"] == b"x" * 1000
        sender.join()


# -- the end, and the next beginning -------------------------------------------------------------------------------


def was_clean(folder: Path) -> bool:
    with Log.open(str(folder), format=JOBS) as log:
        return log.report.was_clean


@pytest.mark.parametrize("command", ["workq-server", "serve"])
def test_a_signal_stops_the_server_in_order(tmp_path: Path, command: str) -> None:
    folder = tmp_path / "jobs"
    with Server(folder if command == "workq-server" else tmp_path, command=command) as server:
        clients = [server.client() for _ in range(30)]
        for number, client in enumerate(clients[:10]):
            runs = b"run %b r 1000 60000 0\r\n\r\n" % job_id(90_000 + number).encode()
            client.send(runs if number % 2 else b"lease q 60000\r\n")
        busy = clients[-1]
        busy.send(b"".join(add(number, "z") for number in range(5000)))
        assert busy.line() == b"+OK"
        assert server.stop() < SOON_S
        answered = 1 + busy.rest().count(b"+OK\r\n")
        assert [client.rest() for client in clients[:29]] == [b""] * 29
        assert server.complaints() == ""
        for client in clients:
            client.close()
    assert was_clean(folder)
    engine = JobEngine.open(str(folder), threaded=False)
    found = {id for id, job in engine.state.jobs.items() if job.queue.name == "z"}
    engine.close()
    assert found >= {raw_id(number) for number in range(answered)}


def test_a_client_that_does_not_read_does_not_hold_up_the_stop(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        with server.client() as client:
            assert client.ask(add(1, payload=b"x" * 2000)) == b"+OK"
        with server.client(room=4096) as deaf:
            stuff(deaf, b"inspect job %b\r\n" % job_id(1).encode() * 300, 20)
            assert server.stop() < SOON_S
    assert was_clean(tmp_path)


def test_files_may_be_as_small_as_those_of_workq(tmp_path: Path) -> None:
    """Where a file has that many bytes already when it is made, workq makes files without end."""
    for size in (15, 1):
        folder = tmp_path / str(size)
        with Server(folder, "-cmdlog-seg-size", size) as server, server.client() as client:
            for number in range(3):
                assert client.ask(add(number)) == b"+OK"
            assert server.stop() < SOON_S
        assert 3 <= len(list(folder.glob("*.log"))) <= 5, "a record in each, and what an orderly stop writes"
        with Server(folder, "-cmdlog-seg-size", size) as server, server.client() as client:
            assert [client.complete(number, b"r") for number in range(3)] == [b"+OK"] * 3


@pytest.mark.parametrize("policy", ["os", "interval", "always"])
def test_a_killed_server_keeps_everything_it_answered(tmp_path: Path, policy: str) -> None:
    flags = ("-cmdlog-sync", policy, "-cmdlog-seg-size", 20_000, "-cmdlog-clean-int", 50)
    told: dict[int, bytes] = {}
    for turn in range(2):
        with Server(tmp_path, *flags) as server, server.client() as client:
            for number, result in told.items():
                assert client.result(number) == ((1, result) if result else b"-TIMEOUT")
            first = 1000 * turn
            client.send(b"".join(add(number, payload=b"p%d" % number) for number in range(first, first + 400)))
            for number in range(first, first + 400):
                assert client.line() == b"+OK"
                told[number] = b""
            for number in range(first, first + 100):
                assert client.complete(number, b"r%d" % number) == b"+OK"
                told[number] = b"r%d" % number
            client.send(b"".join(add(number, "lost") for number in range(10_000, 12_000)))
            client.line()
            server.kill()
    with Server(tmp_path, *flags) as server, server.client() as client:
        for number, result in told.items():
            assert client.inspect_job(number)["payload"] == b"p%d" % number
            assert client.result(number) == ((1, result) if result else b"-TIMEOUT")


def test_deadlines_go_on_while_the_server_is_dead(tmp_path: Path) -> None:
    with Server(tmp_path) as server, server.client() as client:
        assert client.ask(add(1, ttr=700)) == b"+OK"
        assert client.ask(add(2, "short", ttl=700)) == b"+OK"
        assert client.lease("q") == b""
        server.kill()
    time.sleep(0.8)
    with Server(tmp_path) as server, server.client() as client:
        assert client.lease("q") == b""
        assert client.inspect_job(1)["attempts"] == b"2"
        assert client.inspect_job(2) == {}


# -- a disk that fails ---------------------------------------------------------------------------------------------


class DoorOnFaultyDisk(threading.Thread):
    """The door in this process: only so can its disk be told to fail."""

    def __init__(self, sync: Sync) -> None:
        super().__init__()
        self.files = FaultyFiles(MemoryFiles())
        self._engine = JobEngine.open("jobs", files=self.files, options=LogOptions(sync=sync))
        self._is_open, self._loop = threading.Event(), asyncio.new_event_loop()
        self.port = 0

    def __enter__(self) -> DoorOnFaultyDisk:
        self.start()
        assert self._is_open.wait(SOON_S)
        return self

    def run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self) -> None:
        door, self._is_over = WorkqDoor(self._engine), asyncio.Event()
        listener = await self._loop.create_server(door, HOST, 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._is_open.set()
        await self._is_over.wait()
        listener.close()
        await door.close()

    def __exit__(self, *problem: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self.join()
        self.files.heal()
        self._engine.close()


every_policy = pytest.mark.parametrize("sync", [OS, interval(50), ALWAYS], ids=str)
FULL = b"-SERVER-ERROR Disk full, nothing was changed, try again"
FAILED = b"-SERVER-ERROR Read-only mode triggered by cmdlog circuit breaker"


@every_policy
def test_a_full_disk_refuses_changes_answers_questions_and_lets_go_on(sync: Sync) -> None:
    with DoorOnFaultyDisk(sync) as server, Client(server.port) as client, Client(server.port) as worker:
        assert client.ask(add(1)) == b"+OK"
        assert client.ask(add(2, "slow", ttr=200)) == b"+OK"
        assert client.lease("slow") == b""
        worker.send(b"lease w 9000\r\n")
        server.files.fail("append", error=errno.ENOSPC, times=1 << 30)
        client.send(b"".join(add(number) for number in range(3, 50)))
        assert {client.line() for _ in range(3, 50)} == {FULL}
        assert [client.complete(1), client.lease("q"), client.ask(add(50, "w"))] == [FULL] * 3
        assert (client.inspect_job(1)["state"], client.inspect_job(3), client.ready_count()) == (b"0", {}, 1)
        assert client.result(1, 20) == b"-TIMEOUT"
        time.sleep(0.3)
        assert client.inspect_job(2)["state"] == b"4"
        server.files.heal()
        assert client.ask(add(3)) == b"+OK"
        assert client.complete(1, b"r") == b"+OK"
        until(lambda: client.inspect_job(2)["state"] == b"3")
        assert client.ask(add(60, "w", b"work")) == b"+OK"
        assert worker.leased() == b"work"


@pytest.mark.parametrize("sync", [interval(50), ALWAYS], ids=str)
def test_a_failed_sync_refuses_changes_and_answers_questions(sync: Sync) -> None:
    with DoorOnFaultyDisk(sync) as server, Client(server.port) as client, Client(server.port) as worker:
        assert client.ask(add(1)) == b"+OK"
        worker.send(b"lease w 500\r\n")
        server.files.fail("sync", error=errno.EIO, times=1 << 30)
        answer = client.ask(add(2))
        assert answer == (FAILED if sync is ALWAYS else b"+OK")
        time.sleep(0.2)
        assert [client.ask(add(3)), client.complete(1), client.lease("q")] == [FAILED] * 3
        assert (client.inspect_job(1)["state"], client.inspect_job(3)) == (b"0", {})
        assert client.result(1, 20) == b"-TIMEOUT"
        assert active_clients(client) == 2
        assert worker.line() in (b"-TIMEOUT", FAILED)


# -- flags ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dashes", ["-", "--"])
@pytest.mark.parametrize("joined", [False, True], ids=["two words", "one word"])
def test_the_flags_of_workq_are_taken(tmp_path: Path, dashes: str, joined: bool) -> None:
    flags = {"cmdlog-path": tmp_path / "jobs", "cmdlog-sync": "always", "cmdlog-sync-int": 0}
    flags |= {"cmdlog-seg-size": 300, "cmdlog-clean-int": 60_000}
    pairs = [(f"{dashes}{name}", str(value)) for name, value in flags.items()]
    words = ["=".join(pair) for pair in pairs] if joined else [word for pair in pairs for word in pair]
    with Server(None, *words) as server, server.client() as client:
        for number in range(20):
            assert client.ask(add(number)) == b"+OK"
    segments = sorted(path.name for path in (tmp_path / "jobs").glob("*.log"))
    assert len(segments) > 3
    assert segments[0] == "000000001.log"


def refused(*words: object) -> tuple[int, list[str]]:
    """How a server that does not start ends, and the lines it says."""
    done = subprocess.run([LAMINA, *map(str, words)], capture_output=True, text=True, timeout=30)
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr.splitlines()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-cmdlog-sync", "never"], "Invalid cmdlog-sync policy: never"),
        (["-cmdlog-sync-int", "0"], "-cmdlog-sync-int of 0"),
        (["-cmdlog-clean-int", "0"], "-cmdlog-clean-int of 0"),
        (["-cmdlog-seg-size", "-5"], "segment size of -5"),
        (["-cmdlog-seg-size", "much"], "'much' is not a valid integer"),
        (["-listen", "nowhere"], "'nowhere' is no address"),
        (["-listen", "127.0.0.1:99999"], "'127.0.0.1:99999' is no address"),
        (["--nonsense", "1"], "--nonsense"),
        (["more"], "more"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_flag_that_cannot_be_is_named(flags: list[str], says: str) -> None:
    code, lines = refused("workq-server", *flags)
    assert code == 2
    assert [line for line in lines if "rror" in line and says in line], lines


def test_other_machines_are_not_served_without_being_told_to(tmp_path: Path) -> None:
    code, lines = refused("serve", "--data", tmp_path, "--workq", "0.0.0.0:0")
    assert code == 2
    assert "open to other machines" in lines[0]


def test_workq_server_does_not_serve_other_machines_either() -> None:
    done = subprocess.run([LAMINA, "workq-server", "-listen", "0.0.0.0:0"], capture_output=True, timeout=2)
    assert done.returncode == 2


def test_a_second_server_on_the_same_folder_is_refused(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        code, lines = refused("workq-server", "-listen", "127.0.0.1:0", "-cmdlog-path", tmp_path)
        assert code == 1
        assert "log_locked" in lines[0]
        assert str(server.pid) in " ".join(lines)
        check_served(server)
    with Server(tmp_path) as server:
        check_served(server)


def test_a_port_in_use_is_refused(tmp_path: Path) -> None:
    with Server() as server:
        code, lines = refused("workq-server", "-listen", f"127.0.0.1:{server.port}", "-cmdlog-path", tmp_path)
        assert code == 1
        assert f"127.0.0.1:{server.port}" in lines[0]
        assert "ddress already in use" in lines[0]
        check_served(server)
    assert was_clean(tmp_path)


# -- anything ------------------------------------------------------------------------------------------------------


def test_three_thousand_random_inputs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench.fuzz_door", "3000", "--seed", "3", "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    summary = json.loads(done.stdout)
    assert (done.returncode, summary["problems"]) == (0, [])
    assert (summary["inputs"], summary["canary_asked"] > 100) == (3000, True)
