"""Servers of topics as processes of their own: Lamina's RESP door, or Redis with its append-only file.

What they keep stays in its folder when they end, so that they can be started on it again.
"""

from __future__ import annotations

import csv
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from bench import rivals, slow_disk
from bench.rivals import HOST, Address
from bench.runner import Skipped

TOPIC = b"s"
START_SECONDS = 600.0  # Redis reads all of its file first
STALL_SECONDS = 60
_EVERY_SECONDS = 0.002  # how often one that is still loading is asked
_REDIS_SYNCS = {"interval": "everysec", "always": "always", "os": "no"}


def find_redis(program: str = "redis-server") -> str:
    """Raises: Skipped if it is not installed."""
    path = shutil.which(program)
    if path is None:
        raise Skipped(f"needs {program} (Debian: apt install redis-server redis-tools)")
    return path


class Server:
    """One that answers."""

    def __init__(
        self, process: subprocess.Popen[bytes], address: Address, started: float, workq: int | None = None
    ) -> None:
        self.address = address
        self.workq = workq
        """The port of its workq door, if it has one."""
        self.process = process
        with Wire(address) as wire:
            self.length = wire.number("XLEN", TOPIC)
        self.ready_s = time.perf_counter() - started
        """From its exec until it answered with the length of its topic."""

    def memory_mib(self, which: str = "VmRSS") -> float:
        """What it has now; ``VmHWM``: the most it ever had."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(which))

    def stop(self) -> None:
        """In order."""
        self.process.terminate()
        self.process.wait(STALL_SECONDS)


@contextmanager
def lamina(folder: str, sync: str, *flags: str, sync_ms: float = 0) -> Iterator[Server]:
    """``lamina serve`` on the data folder ``folder``, without jobs unless ``flags`` say where they are served.

    ``sync_ms``: its disk takes so much longer for a sync than it does.
    """
    program = [os.path.join(os.path.dirname(sys.executable), "lamina")]
    if sync_ms:
        program = [sys.executable, "-m", "bench.slow_disk", str(sync_ms)]
    words = [*program, "serve", "--data", folder, "--resp", f"{HOST}:0", "--workq", "off", "--sync", sync, *flags]
    with _serving(words, folder) as (process, started):
        assert process.stdout is not None
        line = ""
        if select.select([process.stdout], [], [], START_SECONDS)[0]:
            line = process.stdout.readline().decode()
        ports = {door: int(port) for door, port in re.findall(rf"(resp|workq) on {re.escape(HOST)}:(\d+)", line)}
        if "resp" not in ports:
            raise RuntimeError(f"the server did not come up; it said: {line!r}")
        yield Server(process, (HOST, ports["resp"]), started, ports.get("workq"))


@contextmanager
def redis(folder: str, sync: str, sync_ms: float = 0) -> Iterator[Server]:
    """The real one with the policy that is nearest to ``sync``. It never rewrites its file, which would slow it.

    Raises: Skipped if it is not installed, or with ``sync_ms`` if there is no C compiler.
    """
    address = HOST, rivals._free_port()
    words = [find_redis(), "--bind", HOST, "--port", str(address[1]), "--dir", folder, "--save", ""]
    words += ["--appendonly", "yes", "--appendfsync", _REDIS_SYNCS[sync], "--auto-aof-rewrite-percentage", "0"]
    words += ["--loglevel", "warning"]
    os.makedirs(folder, mode=0o700, exist_ok=True)
    environment = slow_disk.environment(folder, sync_ms) if sync_ms else None
    with _serving(words, folder, environment) as (process, started):
        _wait_until_it_answers(process, address)
        yield Server(process, address, started)


@contextmanager
def _serving(
    words: list[str], folder: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], float]]:
    """Run a server while the block runs, then kill it with all its children. Gives when it was started."""
    os.makedirs(folder, mode=0o700, exist_ok=True)
    started = time.perf_counter()
    process = subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env=environment,
        start_new_session=True,
        preexec_fn=rivals._die_with_parent,
    )
    try:
        yield process, started
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def _wait_until_it_answers(process: subprocess.Popen[bytes], address: Address) -> None:
    """Raises: RuntimeError if the server ended or is not ready after a good while."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with suppress(OSError, Wrong), Wire(address) as wire:
            wire.number("XLEN", TOPIC)
            if process.poll() is None:  # else somebody else has the port
                return
        time.sleep(_EVERY_SECONDS)
    raise RuntimeError("the server did not come up")


class Wrong(RuntimeError):
    """An answer that is not what it has to be."""


class Wire:
    """One connection that waits for each answer, and takes it without looking into it."""

    def __init__(self, address: Address) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # Python's own timeout would make the socket one that does not wait, and MSG_WAITALL nothing.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", STALL_SECONDS, 0))
        self._room = memoryview(bytearray(1 << 20))

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *problem: object) -> None:
        self.socket.close()

    def take(self, request: bytes, size: int) -> memoryview:
        """Send a request whose answer has ``size`` bytes. What is returned is good until the next call."""
        self.socket.sendall(request)
        got = self.socket.recv_into(self._room, size, socket.MSG_WAITALL)
        if got != size:
            raise Wrong(f"an answer of {size} bytes was expected, {got} came: {bytes(self._room[: min(got, 200)])!r}")
        return self._room[:size]

    def number(self, *words: str | bytes) -> int:
        """The answer to a command that is answered with a number."""
        return int(self._line(b":", *words))

    def add(self, value: bytes, id: str = "*") -> bytes:
        """Add an entry. Returns its id."""
        size = int(self._line(b"$", "XADD", TOPIC, id, "f", value))
        return bytes(self.take(b"", size + 2)[:size])

    def _line(self, kind: bytes, *words: str | bytes) -> bytes:
        self.socket.sendall(command(*words))
        line = b""
        while not line.endswith(b"\r\n"):
            more = self.socket.recv(1)
            if not more:
                raise Wrong("the server hung up")
            line += more
        if line[:1] != kind:
            raise Wrong(f"{words[0]!r} was answered {line!r}")
        return line[1:-2]


def command(*words: str | bytes) -> bytes:
    """A command as it goes over the wire."""
    raw = [word.encode() if isinstance(word, str) else word for word in words]
    return b"*%d\r\n" % len(raw) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in raw)


def redis_benchmark(server: Server, requests: int, pipelined: int, size: int) -> float:
    """XADD a second of ``redis-benchmark`` with 50 clients. Raises: Wrong unless every entry is there afterwards."""
    with Wire(server.address) as wire:
        before = wire.number("XLEN", TOPIC)
        rate = commands_a_second(server, requests, pipelined, "XADD", TOPIC.decode(), "*", "f", "v" * size)
        added = wire.number("XLEN", TOPIC) - before
    # It sends whole pipelines, so a few more than asked for.
    if not requests <= added <= requests + 50 * pipelined:
        raise Wrong(f"{requests} entries were sent and {added} are there")
    return rate


def commands_a_second(server: Server, requests: int, pipelined: int, *words: str) -> float:
    """What ``redis-benchmark`` reaches with one command and 50 clients. It does not look at the answers."""
    program = [find_redis("redis-benchmark"), "-h", HOST, "-p", str(server.address[1]), "-c", "50"]
    program += ["-P", str(pipelined), "-n", str(requests), "--csv", *words]
    done = subprocess.run(program, capture_output=True, text=True, check=True)
    *_, figures = csv.reader(done.stdout.splitlines())
    return float(figures[1])
