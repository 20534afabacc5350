"""A server with its console, and the load on it while the console is looked at.

The load is one process that writes topics and passes jobs through (added, leased, completed) in turns, as fast as the
server answers; what it did stands in a counter that others can read at any time. Requests are built beforehand as far
as that goes: it must cost less than the server does.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_uint64
from itertools import count
from pathlib import Path
from typing import Any, Final

from lamina.cli.demo_server import HOST, Server, free_ports

BATCH: Final = 200
PAYLOAD: Final = b"x" * 100
TABS: Final = ("/", "/log", "/jobs", "/topics", "/queues")
_TOPICS: Final = 8
_STALL_S: Final = 60.0


class Console(Server):
    """``lamina serve`` with all its doors."""

    def __init__(self, data: Path, *flags: str, sync: str | None = "os") -> None:
        (self.http,) = free_ports(1)
        policy = () if sync is None else ("--sync", sync)
        super().__init__(data, "--http", f"{HOST}:{self.http}", *flags, sync=policy)

    def cpu_s(self) -> float:
        """Processor time it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Load:
    """Running until the block ends; ``done`` counts commands that were answered."""

    def __init__(self, server: Server, pause_s: float = 0.0) -> None:
        """``pause_s``: between two batches, for a load that is less than all the server can take."""
        self._done = multiprocessing.Value(c_uint64, 0)
        words = (server.resp, server.workq, self._done, pause_s)
        self._process = multiprocessing.get_context("fork").Process(target=_drive, args=words, daemon=True)

    @property
    def done(self) -> int:
        return int(self._done.value)

    def __enter__(self) -> Load:
        self._process.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._process.kill()
        self._process.join()

    def rate(self, seconds: float) -> float:
        """Commands a second from now on. Raises: RuntimeError if it has come to a stand."""
        began, before = time.monotonic(), self.done
        time.sleep(seconds)
        rate = (self.done - before) / (time.monotonic() - began)
        if not rate or not self._process.is_alive():
            raise RuntimeError("the server does not answer the load")
        return rate


def _drive(resp: int, workq: int, done: Any, pause_s: float) -> None:
    topics, jobs = _Line(resp), _Line(workq)
    batches = [
        pack(*(("XADD", f"load.{(part + one) % _TOPICS}", "*", "body", PAYLOAD) for one in range(BATCH)))
        for part in range(_TOPICS)
    ]
    added = f" load 60000 600000 {len(PAYLOAD)}\r\n".encode() + PAYLOAD + b"\r\n"
    for round in count(int(time.time()) << 12):
        topics.ask(batches[round % _TOPICS], BATCH * 2)  # $22, the id
        done.value += BATCH
        if pause_s:
            time.sleep(pause_s)
        ids = [b"%08x-0000-4000-8000-%012x" % (round & 0xFFFFFFFF, one) for one in range(BATCH)]
        jobs.ask(b"".join(b"add " + id + added for id in ids), BATCH)
        jobs.ask(b"lease load 1000\r\n" * BATCH, BATCH * 3)
        jobs.ask(b"".join(b"complete " + id + b" 0\r\n\r\n" for id in ids), BATCH)
        done.value += 3 * BATCH
        if pause_s:
            time.sleep(pause_s)


class _Line:
    """A connection on which many commands are sent before an answer is waited for."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection((HOST, port), _STALL_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, data: bytes, lines: int) -> None:
        """Until so many lines have come. Raises: RuntimeError for a refusal."""
        self._socket.sendall(data)
        while lines > 0:
            found = self._socket.recv(1 << 17)
            if not found or found[:1] == b"-":
                raise RuntimeError(f"the server refused the load: {found[:200]!r}")
            lines -= found.count(b"\r\n")


def pack(*commands: tuple[bytes | str, ...]) -> bytes:
    """As the RESP door reads them."""
    parts = []
    for words in commands:
        parts.append(b"*%d\r\n" % len(words))
        for word in words:
            data = word.encode() if isinstance(word, str) else word
            parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


@contextmanager
def tabs(port: int, paths: tuple[str, ...] = TABS) -> Iterator[Any]:
    """Live pages, open as in as many tabs of a browser, read by one process. Gives how many bytes came."""
    came = multiprocessing.Value(c_uint64, 0)
    process = multiprocessing.get_context("fork").Process(target=_follow, args=(port, paths, came), daemon=True)
    process.start()
    try:
        yield came
        if not process.is_alive():
            raise RuntimeError("the live pages ended")
    finally:
        process.kill()
        process.join()


def _follow(port: int, paths: tuple[str, ...], came: Any) -> None:
    import selectors

    chosen = selectors.DefaultSelector()
    for path in paths:
        line = socket.create_connection((HOST, port), _STALL_S)
        line.sendall(f"GET /live{path} HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode())
        first = line.recv(1 << 16)
        if not first.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(f"{path} is not live: {first[:200]!r}")
        chosen.register(line, selectors.EVENT_READ, path)
    while True:
        for key, _ in chosen.select():
            found = key.fileobj.recv(1 << 18)  # type: ignore[union-attr]
            if not found:
                raise RuntimeError(f"{key.data} is live no more")
            came.value += len(found)


def links(html: str) -> set[str]:
    """Where a page leads, within the console."""
    from html import unescape

    found = {unescape(each).partition("#")[0] for each in re.findall(r'<a\b[^>]*\bhref="(/[^"]*)"', html)}
    return {each for each in found if not each.startswith(("/api/", "/metrics", "/static/"))}


@contextmanager
def quiet_end() -> Iterator[None]:
    """An interrupt ends a benchmark without a traceback."""
    with suppress(KeyboardInterrupt):
        yield
