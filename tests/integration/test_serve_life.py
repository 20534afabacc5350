"""The life of ``lamina serve``: it starts without configuration, says what it restored, reloads, stops in order, and
refuses in one line what it cannot serve, leaving all as it was."""

from __future__ import annotations

import ctypes
import json
import os
import re
import select
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

import pytest
import redis

import lamina
from integration.secured_server import certificates
from integration.workq_server import HOST, LAMINA, START_S, Client, Server, add, job_id
from lamina.cli.demo_server import Server as DemoServer
from lamina.engines.store.api import Store

_DOOR = re.compile(r"(workq|resp|http) on (unix:[^,]+|[\d.]+:\d+)")
_EXIT_ERROR, _EXIT_USAGE = 1, 2


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files with certificates and keys, by name."""
    return certificates(tmp_path_factory.mktemp("certificates"))


class Serving(Server):
    """``lamina serve`` with these words and nothing else, in the folder ``cwd``."""

    def __init__(self, cwd: Path, *words: object) -> None:
        super().__init__()
        self._words = [str(LAMINA), "serve", *map(str, words)]
        self._cwd = cwd
        self.said = ""
        self.doors: dict[str, str] = {}

    def __enter__(self) -> Self:
        """A process from its beginning on: what is around it is what these tests are about."""
        self._said = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._words,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._said,
            preexec_fn=_end_with_the_tests,
        )
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wait_for_port(self) -> int:
        self.wait_until(lambda: "workq on" in self.said or "resp on" in self.said)
        self.doors = dict(_DOOR.findall(self.said))
        return self.port_of("workq") if "workq" in self.doors else 0

    def port_of(self, door: str) -> int:
        return int(self.doors[door].rpartition(":")[2])

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Something was said on standard output, or (``complaints``) on standard error."""
        assert self._process.stdout is not None
        end = time.monotonic() + START_S
        while not is_so():
            assert time.monotonic() < end, f"{self.said} {self.complaints()}"
            if select.select([self._process.stdout], [], [], 0.05)[0]:
                more = os.read(self._process.stdout.fileno(), 4096)
                assert more or is_so(), f"it ended: {self.said} {self.complaints()}"
                self.said += more.decode()

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def rest(self) -> str:
        """All that it said, once it has ended."""
        assert self._process.stdout is not None
        self._process.wait(START_S)
        self.said += self._process.stdout.read().decode()
        return self.said


def _end_with_the_tests() -> None:
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # also when they are killed


FREE = ("--workq", f"{HOST}:0", "--resp", f"{HOST}:0")


def refused(*words: object) -> tuple[int, str]:
    """Exit code, and what was said: an error and what to do, no traceback."""
    done = subprocess.run([LAMINA, "serve", *map(str, words)], capture_output=True, text=True, timeout=START_S)
    assert done.stdout == "" and "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines[0].startswith("error ") and len(lines) <= 2, done.stderr
    return done.returncode, done.stderr


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every name in a folder with what is in it."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


# -- starting and stopping -----------------------------------------------------------------------------------------


def test_it_needs_no_configuration_and_says_what_it_restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for door in ("WORKQ", "RESP", "HTTP"):
        monkeypatch.setenv(f"LAMINA_{door}_LISTEN", f"{HOST}:0")
    with Serving(tmp_path) as server:
        assert set(server.doors) == {"workq", "resp", "http"}
        with server.client() as client:
            assert client.ask(add(1)) == b"+OK"
        health = subprocess.run([LAMINA, "health", "--http", server.doors["http"]], capture_output=True)
        assert health.returncode == 0, health.stderr
        server.stop()
        assert re.search(r"lamina: stopped \(SIGTERM\) in ", server.rest())
        assert server.complaints().count("\n") <= 2, "one dump at the stop, and perhaps a line about file handles"
    data = tmp_path / "lamina-data"
    assert json.loads((data / "lamina.json").read_text()) == {"format": 2}
    for path in (data, *data.rglob("*")):
        assert not path.stat().st_mode & 0o077, f"{path} is open to others"
    with Serving(tmp_path, "--http", "off") as server:
        server.wait_until(lambda: "lamina: store:" in server.said)
        assert re.search(r"lamina: jobs: 1 job in 1 queue \(.*\) from \d files?.*, in ", server.said)
        assert re.search(r"lamina: queues: 0 queues, 0 messages from \d files?", server.said)
        server.signal(signal.SIGINT)
        assert "stopped (SIGINT)" in server.rest()


def test_what_a_crash_left_is_told_with_file_and_reason(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with lamina.open(data) as opened:
        opened.jobs.add("q", b"x")
    newest = max((data / "jobs").glob("*.log"))
    with newest.open("ab") as file:
        file.write(b"\x01\x02\x03")
    with Serving(tmp_path, "--data", data, *FREE) as server:
        server.wait_until(lambda: "left out" in server.said)
        assert re.search(rf"jobs: left out 3 bytes of {newest.name}: a torn tail \(.*\); kept as ", server.said)
        server.stop()
    with lamina.open(data) as opened:
        log = opened.jobs.engine.log
        assert isinstance(log, lamina.Log) and log.report.was_clean, "an orderly stop closes the log as such"


def test_a_lease_goes_on_over_an_orderly_restart(tmp_path: Path) -> None:
    """docs/decisions/0015-product.md says why: the worker is alive, and the job would be done twice."""
    with Serving(tmp_path, *FREE) as server, server.client() as worker:
        assert worker.ask(add(1, payload=b"work")) == b"+OK"
        assert worker.lease() == b"work"
        with server.client() as waiter:
            waiter.send(b"lease other 60000\r\n")
            server.stop()
            assert waiter.line() == b"", "who waits for a job is hung up on"
    with Serving(tmp_path, *FREE) as server, server.client() as worker:
        assert worker.lease(wait=1) == b"-TIMEOUT", "nobody else gets it"
        assert worker.inspect_job(1)["attempts"] == b"1"
        assert worker.complete(1, b"done") == b"+OK"


_WITH_A_MISTAKE = """
import sys
from lamina.cli.main import main
from lamina.log.tail import Tail

def close_in_order(self, last_stamp, **how):
    if self._folder.endswith(("topics/broken", "topics/worse")):
        raise OverflowError("int too large to convert")
    original(self, last_stamp, **how)

original, Tail.close_in_order = Tail.close_in_order, close_in_order
main()
"""


def test_one_topic_that_cannot_be_closed_is_told_in_a_line_and_all_else_is_closed_in_order(tmp_path: Path) -> None:
    data, topics = tmp_path / "data", ("broken", "whole", "worse")
    server = Serving(tmp_path, "--data", data, *FREE)
    server._words = [sys.executable, "-c", _WITH_A_MISTAKE, *server._words[1:]]
    with server, server.client() as worker:
        assert worker.ask(add(1)) == b"+OK"
        with redis.Redis(HOST, server.port_of("resp")) as client:
            for name in topics:
                client.xadd(name, {"f": "v"})
        server.signal(signal.SIGTERM)
        assert "lamina: stopped (SIGTERM) in " in server.rest()
        assert server._process.wait(START_S) == _EXIT_ERROR
        told = server.complaints()
    assert "Traceback" not in told
    for name in ("broken", "worse"):
        (line,) = [line for line in told.splitlines() if f"topics/{name}" in line]
        assert "int too large to convert" in line
    assert len([line for line in told.splitlines() if line.startswith("error storage: ")]) == 1
    with lamina.open(data) as opened:
        assert opened.jobs.engine.log.report.was_clean  # type: ignore[union-attr]
        for name in topics:
            topic = opened.topics.engine.get_or_make(name.encode())
            assert topic.log.report.was_clean is (name == "whole")  # type: ignore[union-attr]
            assert topic.state.length == 1


def test_systemd_is_told_when_it_is_ready_reloads_and_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.settimeout(START_S)
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        with Serving(tmp_path, *FREE) as server:
            assert systemd.recv(1000) == b"STATUS=restoring"
            assert systemd.recv(1000).startswith(b"READY=1\n")
            server.signal(signal.SIGHUP)
            assert re.match(rb"RELOADING=1\nMONOTONIC_USEC=\d+$", systemd.recv(1000))
            assert systemd.recv(1000) == b"READY=1"
            server.stop()
            assert systemd.recv(1000).startswith(b"STOPPING=1\n")


@pytest.mark.parametrize(("times", "code"), [(1, 0), (2, 128 + signal.SIGTERM)])
def test_a_second_signal_stops_at_once(times: int, code: int) -> None:
    """Here the loop is one that would take for ever to stop."""
    script = (
        "import asyncio, sys\n"
        "from lamina.server.signals import Signals\n"
        "async def run():\n"
        "    stop = asyncio.Event()\n"
        "    signals.on_loop(stop.set, lambda: None)\n"
        "    print('ready', flush=True)\n"
        "    await stop.wait()\n"
        "    print('stopping', flush=True)\n"
        f"    await asyncio.sleep({60 if times == 2 else 0})\n"
        "signals = Signals()\n"
        "with signals.taken():\n"
        "    asyncio.run(run())\n"
        "sys.exit(signals.name != 'SIGTERM')\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        for _ in range(times):
            process.stdout.readline()
            process.terminate()
        assert process.wait(START_S) == code


def test_a_reload_that_comes_too_late_kills_nobody(tmp_path: Path) -> None:
    with Serving(tmp_path, *FREE) as server:
        server.signal(signal.SIGTERM)
        with suppress(ProcessLookupError):
            while server.is_alive:
                server.signal(signal.SIGHUP)
        assert "stopped (SIGTERM)" in server.rest() and server.stop() >= 0


def test_a_signal_while_it_restores_gives_that_up() -> None:
    script = (
        "import time\n"
        "from lamina.server.signals import Signals, StopAsked\n"
        "signals = Signals()\n"
        "with signals.taken():\n"
        "    try:\n"
        "        print('restoring', flush=True)\n"
        "        time.sleep(60)\n"
        "    except StopAsked:\n"
        "        print(signals.name, signals.wants_reload, flush=True)\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGHUP)
        process.terminate()
        assert process.stdout.readline() == b"SIGTERM True\n"
        assert process.wait(START_S) == 0


# -- reloading -----------------------------------------------------------------------------------------------------


def test_a_reload_changes_what_can_change_and_tells_what_cannot(tmp_path: Path) -> None:
    config = tmp_path / "lamina.toml"
    with Serving(tmp_path, *FREE) as server, redis.Redis(port=server.port_of("resp")) as client:
        before = client.config_get("maxclients")
        assert client.config_get("timeout") == {"timeout": "0"}

        def reload(text: str, told: str) -> None:
            config.write_text(text)
            server.signal(signal.SIGHUP)
            server.wait_until(lambda: told in server.complaints())

        reload(
            "[server]\nmax_conections = 5", "reload: nothing was changed: lamina.toml, line 2: [server] max_conections"
        )
        assert client.config_get("maxclients") == before
        reload(
            "[server]\nmax_connections = 7\nidle_s = 300\n[topics.retain]\n'a' = 'length:1'\n[jobs]\nsync = 'os'",
            "[jobs] sync 'interval' -> 'os' needs a restart",
        )
        assert (client.config_get("maxclients"), client.config_get("timeout")) == (
            {"maxclients": "7"},
            {"timeout": "300"},
        )
        assert "[topics] retain {} -> {'a': 'length:1'}" in server.complaints()
        reload("[server]\nlog_level = 'error'\nidle_s = 0", "idle_s 300 -> 0")
        assert client.config_get("timeout") == {"timeout": "0"}


def test_a_new_certificate_is_shown_after_a_reload(tmp_path: Path, pem: dict[str, Path]) -> None:
    cert, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    shutil.copy(pem["cert"], cert)
    shutil.copy(pem["key"], key)

    def shown(port: int) -> str:
        return ssl.get_server_certificate((HOST, port)).strip()

    with Serving(tmp_path, *FREE, "--tls-cert", cert, "--tls-key", key) as server:
        for door in ("workq", "resp"):
            assert shown(server.port_of(door)) == cert.read_text().strip()
        shutil.copy(pem["other"], cert)  # whose key is another one
        server.signal(signal.SIGHUP)
        server.wait_until(lambda: "nothing was changed: tls_key" in server.complaints())
        assert shown(server.port) == pem["cert"].read_text().strip()
        shutil.copy(pem["other-key"], key)
        server.signal(signal.SIGHUP)
        server.wait_until(lambda: "reload: no setting changed" in server.complaints())
        assert shown(server.port) == pem["other"].read_text().strip()


# -- addresses -----------------------------------------------------------------------------------------------------


def test_a_socket_in_the_file_system_is_for_its_owner_and_gone_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "resp.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))  # of a server that was killed
    words = ("--workq", "off", "--resp", f"unix:{path}")
    with Serving(tmp_path, *words) as server:
        assert path.stat().st_mode & 0o777 == 0o600
        assert redis.Redis(unix_socket_path=str(path)).ping()
        code, said = refused(*words, "--data", tmp_path / "other")
        assert code == _EXIT_ERROR and f"unix:{path}: cannot listen: a server listens there" in said
        assert redis.Redis(unix_socket_path=str(path)).ping(), "the one that is there goes on"
        server.stop()
    assert not path.exists()
    path.write_text("kept")
    code, said = refused(*words)
    assert code == _EXIT_USAGE and "there is a file that is no socket" in said
    assert path.read_text() == "kept"


@contextmanager
def a_port_in_use() -> Iterator[str]:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        yield f"{HOST}:{taken.getsockname()[1]}"


@pytest.mark.parametrize("door", ["workq", "resp", "http"])
def test_a_port_in_use_is_told_before_a_file_is_touched(tmp_path: Path, door: str) -> None:
    with a_port_in_use() as taken:
        code, said = refused("--data", tmp_path / "data", *FREE, f"--{door}", taken)
    assert code == _EXIT_ERROR and f"{taken}: cannot listen: Address already in use" in said
    assert not (tmp_path / "data").exists()


def test_a_health_door_that_nobody_asked_for_may_be_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAMINA_HTTP_LISTEN", raising=False)
    with socket.socket() as taken:
        try:
            taken.bind((HOST, 9980))
            taken.listen()
        except OSError:
            pass  # somebody has it: as good
        with Serving(tmp_path, *FREE) as server:
            assert "http" not in server.doors
            assert "no HTTP door: 127.0.0.1:9980: cannot listen" in server.complaints()


# -- what is refused -----------------------------------------------------------------------------------------------


def test_what_is_wrong_is_told_in_one_line_and_nothing_is_changed(tmp_path: Path, pem: dict[str, Path]) -> None:
    newer = tmp_path / "newer"
    with lamina.open(newer) as data:
        data.jobs.add("q", b"x")
    (newer / "lamina.json").write_text('{"format": 3}')
    (tmp_path / "file").write_text("x")
    (tmp_path / "typo.toml").write_text("[jobs]\nsegment_byte = 5\n")
    (tmp_path / "bad.pem").write_text("bad")
    for smp in ("smp", "mixed/queues"):
        (tmp_path / smp).mkdir(parents=True)
        (tmp_path / smp / "smp-server-store.log").write_text("CREATE rid=a rk=b rdh=c sid=d sk=\n")
    before = tree(tmp_path)
    at = ("--data", tmp_path / "new")
    cert, key = pem["cert"], pem["key"]
    for code, said, words in (
        (_EXIT_ERROR, "a data folder of version 3, this program knows version 2", ("--data", newer)),
        (_EXIT_ERROR, "found a file of an SMP server", ("--data", tmp_path / "smp")),
        (
            _EXIT_ERROR,
            "queues/smp-server-store.log, byte 0: expected a folder of lamina",
            ("--data", tmp_path / "mixed"),
        ),
        (_EXIT_USAGE, "file is a file; the data folder has to be a folder", ("--data", tmp_path / "file")),
        (_EXIT_ERROR, "/proc/lamina/data: cannot make the folder", ("--data", "/proc/lamina/data")),
        (
            _EXIT_USAGE,
            "line 2: [jobs] segment_byte is no setting; did you mean",
            (*at, "--config", tmp_path / "typo.toml"),
        ),
        (_EXIT_USAGE, "no.toml: there is no such file", (*at, "--config", tmp_path / "no.toml")),
        (_EXIT_USAGE, "there is no certificate in it", (*at, "--tls-cert", tmp_path / "bad.pem", "--tls-key", key)),
        (_EXIT_USAGE, "tls_cert is set and tls_key is not", (*at, "--tls-cert", cert)),
        (_EXIT_USAGE, "--password: cannot be; give a text", (*at, "--password", "")),
        (_EXIT_USAGE, "there is no authentication", (*at, "--resp", "0.0.0.0:0")),
        (_EXIT_USAGE, "in the clear", (*at, "--resp", "0.0.0.0:0", "--password", "x")),
    ):
        assert (found := refused(*FREE, *words))[0] == code and said in found[1], found
    assert tree(tmp_path) == before


def test_a_folder_that_another_server_has_is_left_alone(tmp_path: Path) -> None:
    with Serving(tmp_path, "--data", "data", *FREE) as server, Client(server.port) as client:
        assert client.ask(add(1)) == b"+OK"
        before = tree(tmp_path)
        code, said = refused("--data", tmp_path / "data", *FREE)
        assert code == _EXIT_ERROR and f"process {server.pid}" in said and "is writing here" in said
        assert tree(tmp_path).keys() == before.keys()
        assert client.inspect_job(1)["name"] == b"q", job_id(1)


def test_a_folder_of_which_another_process_has_a_part_is_left_alone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with lamina.open(data) as had:
        had.jobs.add("q", b"x")
    with Store.open(str(data / "store")):
        before = tree(tmp_path)
        code, said = refused("--data", data, *FREE)
        assert code == _EXIT_ERROR and f"{data}/store: process {os.getpid()} is writing here" in said
        assert tree(tmp_path) == before


def test_a_start_that_fails_writes_no_dump(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with Serving(tmp_path, "--data", data, *FREE) as server, redis.Redis(port=server.port_of("resp")) as client:
        client.execute_command("S.WRITE", "1", "PUT", "k", "v")
        client.execute_command("Q.NEW")
        server.kill()
    (catalog,) = (data / "store").glob("compaction_catalog*")
    catalog.write_bytes(b"no catalog")
    dumps = sorted((data / "queues").glob("*.dump"))
    code, said = refused("--data", data, *FREE)
    assert code != 0 and "store" in said
    assert sorted((data / "queues").glob("*.dump")) == dumps


@pytest.mark.parametrize(("said", "state"), [("off", "leased"), ("on", "ready")])
def test_jobs_that_are_worked_on_are_given_back_at_a_stop_where_that_is_wanted(
    tmp_path: Path, said: str, state: str
) -> None:
    with DemoServer(tmp_path / "data", "--return-leases", said) as server:
        with server.client() as lm:
            id = lm.jobs.add("mail", b"x", ttl=600)
            (leased,) = lm.jobs.lease_many("mail", most=1)
            assert leased.id == id
        server.stop()
        server.start()
        with server.client() as lm:
            assert lm.jobs.show(id).state == state
        server.stop()
