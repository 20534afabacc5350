"""A real server as a process, and a client that speaks to it in plain bytes.

The server is gone when the ``with`` ends, however that ends, and also when the test run itself is killed.
"""

from __future__ import annotations

import ctypes
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from prefork import Process

HOST = "127.0.0.1"
LAMINA = Path(sys.executable).with_name("lamina")
START_S = 30.0
STOP_S = 30.0
MIB = 1 << 20
_LIBC = ctypes.CDLL(None)
_DIE_WITH_PARENT = 1


def job_id(number: int) -> str:
    """A version 4 id."""
    return f"{number:08x}-0000-4000-8000-{number:012x}"


def raw_id(number: int) -> bytes:
    return bytes.fromhex(job_id(number).replace("-", ""))


def add(number: int, queue: str = "q", payload: bytes = b"", *, ttr: int = 60_000, ttl: int = 600_000) -> bytes:
    return b"add %b %b %d %d %d\r\n%b\r\n" % (job_id(number).encode(), queue.encode(), ttr, ttl, len(payload), payload)


class Server:
    """``lamina workq-server`` (or ``lamina serve``) on a port that was free."""

    def __init__(
        self, folder: Path | None = None, *flags: object, command: str = "workq-server", files: int | None = None
    ) -> None:
        """``files``: how many file handles the process may have."""
        words = [command, *(("--listen",) if command == "workq-server" else ("--resp", "off", "--workq")), f"{HOST}:0"]
        if folder is not None:
            words += ["--cmdlog-path" if command == "workq-server" else "--data", str(folder)]
        self._words = [str(LAMINA), *words, *map(str, flags)]
        self._files = files
        self._env = dict(os.environ)

    def __enter__(self) -> Server:
        self._said = tempfile.TemporaryFile()
        self._process: Process | subprocess.Popen[bytes] = Process(
            self._words[1:], stderr=self._said, files=self._files, env=self._env
        )
        try:
            self.port = self._wait_for_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _prepare(self) -> None:
        _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        if self._files is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._files, self._files))

    def _wait_for_port(self) -> int:
        assert self._process.stdout is not None
        ready, _, _ = select.select([self._process.stdout], [], [], START_S)
        line = self._process.stdout.readline().decode() if ready else ""
        if f"{HOST}:" not in line:
            raise AssertionError(f"the server did not start: {line!r} {self.complaints()}")
        return int(line.split(f"{HOST}:")[1].split(",")[0])

    def __exit__(self, *problem: object) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._said.close()

    # -- its life ------------------------------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        if self.is_alive:
            self._process.kill()
        self._process.wait()

    def stop(self, within: float = STOP_S) -> float:
        """In order. Returns the seconds it took."""
        started = time.monotonic()
        self._process.terminate()
        assert self._process.wait(within) == 0, self.complaints()
        return time.monotonic() - started

    def complaints(self) -> str:
        """What it wrote to standard error so far."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def rss(self) -> int:
        """Bytes of memory it has now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the server is gone")

    def cpu_s(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / 100

    def client(self, *, room: int | None = None) -> Client:
        return Client(self.port, room=room)


class Client:
    """One connection. Every wait has an end."""

    def __init__(self, port: int, *, timeout: float = 20, room: int | None = None) -> None:
        """``room``: a small receive buffer, for a client that does not read."""
        self.socket = socket.socket()
        if room is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room)
        self.socket.settimeout(timeout)
        self.socket.connect((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def end(self) -> None:
        """Say that nothing more is sent, and go on reading."""
        try:
            self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:  # the server hung up first; Linux says "not connected" then
            raise ConnectionResetError(*error.args) from error

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        assert len(data) == size, f"the server hung up after {data!r}"
        return data

    def line(self) -> bytes:
        """Without its end; empty if the server hung up."""
        return self._file.readline().removesuffix(b"\r\n")

    def rest(self) -> bytes:
        """All up to the end of the connection, however it ends."""
        found = b""
        with suppress(ConnectionError):
            while more := self._file.read1():
                found += more
        return found

    def ask(self, command: bytes) -> bytes:
        """The one line that answers it."""
        self.send(command)
        return self.line()

    def lease(self, names: str = "q", wait: int = 0) -> bytes:
        """The payload of the next job, or the line that says why there is none."""
        self.send(b"lease %b %d\r\n" % (names.encode(), wait))
        return self.leased()

    def leased(self) -> bytes:
        first = self.line()
        if first != b"+OK 1":
            return first
        size = int(self.line().split()[3])
        return self.read(size + 2)[:-2]

    def result(self, number: int, wait: int = 0) -> tuple[int, bytes] | bytes:
        """Whether it is a success, and the result; or the line that says why there is none."""
        self.send(b"result %b %d\r\n" % (job_id(number).encode(), wait))
        return self.told()

    def told(self) -> tuple[int, bytes] | bytes:
        first = self.line()
        if first != b"+OK 1":
            return first
        _, success, size = self.line().split()
        return int(success), self.read(int(size) + 2)[:-2]

    def complete(self, number: int, result: bytes = b"") -> bytes:
        return self.ask(b"complete %b %d\r\n%b\r\n" % (job_id(number).encode(), len(result), result))

    def inspect_job(self, number: int) -> dict[str, bytes]:
        """Its facts by name; empty if there is no such job."""
        self.send(b"inspect job %b\r\n" % job_id(number).encode())
        return self.facts() if self.line() == b"+OK 1" else {}

    def facts(self) -> dict[str, bytes]:
        _, count = self.line().split()
        found: dict[str, bytes] = {}
        for _ in range(int(count)):
            if "payload-size" in found and "payload" not in found:
                assert self.read(len(b"payload ")) == b"payload "
                found["payload"] = self.read(int(found["payload-size"]) + 2)[:-2]
            else:
                key, _, value = self.line().partition(b" ")
                found[key.decode()] = value
        return found

    def ready_count(self, queue: str = "q") -> int:
        self.send(b"inspect queue %b\r\n" % queue.encode())
        assert self.line() == b"+OK 1"
        return int(self.facts()["ready-len"])
