"""A real Redis as a process, to hold Lamina to.

It is gone when the ``with`` ends, however that ends, and also when the test run itself is killed.
"""

from __future__ import annotations

import ctypes
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path

HOST = "127.0.0.1"
PROGRAM = shutil.which("redis-server")
MISSING = "redis-server is not installed"
START_S = 30.0
_DIE_WITH_PARENT = 1
_LIBC = ctypes.CDLL(None)


class RedisPeer:
    """``redis-server`` on a port that was free, keeping nothing unless ``flags`` say so."""

    def __init__(self, *flags: object) -> None:
        """``flags`` as on its command line: ``"--appendonly", "yes"``. Later ones win over those given here."""
        self._flags = [str(flag) for flag in flags]

    def __enter__(self) -> RedisPeer:
        assert PROGRAM is not None, MISSING
        self._folder = tempfile.TemporaryDirectory(prefix="redis-peer-")
        self._said = tempfile.TemporaryFile()
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        """Another process may take the port between its choice and its use: then once more."""
        for _ in range(5):
            self.port = _free_port()
            words = ["--port", self.port, "--bind", HOST, "--dir", self._folder.name, "--save", "", "--daemonize", "no"]
            self._process = subprocess.Popen(
                [str(PROGRAM), *map(str, words), *self._flags],
                stdin=subprocess.DEVNULL,
                stdout=self._said,
                stderr=self._said,
                preexec_fn=lambda: _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL),
            )
            if self._answers():
                return
            self.kill()
        raise AssertionError(f"redis-server did not start: {self.complaints()}")

    def _answers(self) -> bool:
        end = time.monotonic() + START_S
        while self.is_alive and time.monotonic() < end:
            with suppress(OSError), socket.create_connection((HOST, self.port), timeout=START_S) as client:
                client.sendall(b"PING\r\n")
                if client.recv(7) == b"+PONG\r\n" and self.is_alive:
                    return True
            time.sleep(0.01)
        return False

    def __exit__(self, *problem: object) -> None:
        if hasattr(self, "_process"):
            self.kill()
        self._said.close()
        self._folder.cleanup()

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

    def stop(self, within: float = START_S) -> None:
        """In order."""
        self._process.terminate()
        self._process.wait(within)

    def complaints(self) -> str:
        """All it wrote so far."""
        self._said.seek(0)
        return self._said.read().decode(errors="replace")

    def rss(self) -> int:
        """Bytes of memory it has now."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError("the server is gone")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])
