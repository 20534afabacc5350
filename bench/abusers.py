"""What a hostile or broken client does to a server, one way each. ``bench.abuse`` measures what others feel of it.

Each takes the ports of a server and an event that says when it is over, and goes on until then.
"""

from __future__ import annotations

import os
import random
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

HOST: Final = "127.0.0.1"
_RESET: Final = struct.pack("ii", 1, 0)


@dataclass(frozen=True, slots=True)
class Target:
    """A server."""

    workq: int
    resp: int
    http: int
    size: float = 1.0
    """1: the whole abuse; less: a sample of it."""

    def many(self, count: int) -> int:
        return max(int(count * self.size), 2)


Abuse = Callable[[Target, threading.Event], None]


def connected(port: int) -> socket.socket:
    made = socket.create_connection((HOST, port), 10)
    made.settimeout(5)
    return made


def _hold(sockets: list[socket.socket], over: threading.Event) -> None:
    over.wait()
    for each in sockets:
        each.close()


def _connect_many(port: int, count: int, over: threading.Event) -> list[socket.socket]:
    made: list[socket.socket] = []
    while len(made) < count and not over.is_set():
        try:
            made.append(connected(port))
        except OSError:
            time.sleep(0.05)
            count -= 1
        if len(made) % 50 == 0:
            time.sleep(0.01)
    return made


def idle_connections(target: Target, over: threading.Event) -> None:
    """Thousands that connect and say nothing, on both doors."""
    each = target.many(4000)
    _hold(_connect_many(target.resp, each, over) + _connect_many(target.workq, each, over), over)


def connection_storm(target: Target, over: threading.Event) -> None:
    """Connect and hang up, without a pause for breath."""
    while not over.is_set():
        for port in (target.resp, target.workq):
            with suppress(OSError):
                connected(port).close()
        time.sleep(0.001)


def _drip(port: int, text: bytes, target: Target, over: threading.Event) -> None:
    """A byte at a time, on many connections."""
    sockets = _connect_many(port, target.many(300), over)
    at = 0
    while not over.is_set():
        for each in sockets:
            with suppress(OSError):
                each.send(text[at % len(text) : at % len(text) + 1])
        at += 1
        over.wait(0.5)
    _hold(sockets, over)


def slow_resp(target: Target, over: threading.Event) -> None:
    """Commands that come a byte at a time."""
    _drip(target.resp, b"*1\r\n$4\r\nPING\r\n", target, over)


def slow_workq(target: Target, over: threading.Event) -> None:
    """The same on the workq door."""
    _drip(target.workq, b"inspect server\r\n", target, over)


def slow_http(target: Target, over: threading.Event) -> None:
    """Headers without an end."""
    _drip(target.http, b"GET /healthz HTTP/1.1\r\nx: y\r\n" + b"a: b\r\n" * 1000, target, over)


def _announce(port: int, head: bytes, target: Target, over: threading.Event) -> None:
    """A frame that is said to be huge, and some of it."""
    while not over.is_set():
        with suppress(OSError), connected(port) as made:
            made.sendall(head)
            for _ in range(target.many(64)):
                if over.is_set():
                    break
                made.sendall(b"x" * 65536)
        time.sleep(0.01)


def huge_bulk(target: Target, over: threading.Event) -> None:
    """ "This value has 4 GB"."""
    _announce(target.resp, b"*3\r\n$4\r\nXADD\r\n$1\r\na\r\n$4294967295\r\n", target, over)


def huge_count(target: Target, over: threading.Event) -> None:
    """ "This command has a thousand million words"."""
    _announce(target.resp, b"*1000000000\r\n", target, over)


def huge_payload(target: Target, over: threading.Event) -> None:
    """ "This job has 4 GB"."""
    id = b"61a444a0-6128-41c0-8078-cc757d3bd2d8"
    _announce(target.workq, b"add " + id + b" q 1000 1000 4294967295\r\n", target, over)


def endless_line(target: Target, over: threading.Event) -> None:
    """A line without an end, on the workq door."""
    _announce(target.workq, b"add ", target, over)


def noise(target: Target, over: threading.Event) -> None:
    """Bytes by chance, on both doors."""
    source = random.Random(7)
    while not over.is_set():
        for port in (target.resp, target.workq):
            with suppress(OSError), connected(port) as made:
                made.sendall(source.randbytes(target.many(4096)))
                made.recv(4096)
        time.sleep(0.005)


def _never_reads(port: int, command: bytes, target: Target, over: threading.Event, pause_s: float = 0.02) -> None:
    """Asks for much, and does not read the answers."""
    sockets = _connect_many(port, target.many(20), over)
    for each in sockets:
        each.setblocking(False)
    while not over.is_set():
        for each in sockets:
            with suppress(OSError):
                each.send(command * 50)
        over.wait(pause_s)
    _hold(sockets, over)


def never_reads_resp(target: Target, over: threading.Event) -> None:
    """Asks for a whole topic again and again, and does not read it."""
    with connected(target.resp) as made:
        body = b"v" * 1000
        for _ in range(target.many(500)):
            made.sendall(b"*5\r\n$4\r\nXADD\r\n$3\r\nbig\r\n$1\r\n*\r\n$1\r\nf\r\n$1000\r\n" + body + b"\r\n")
            made.recv(100)
            if over.is_set():
                break
    _never_reads(target.resp, b"*4\r\n$6\r\nXRANGE\r\n$3\r\nbig\r\n$1\r\n-\r\n$1\r\n+\r\n", target, over)


def never_reads_workq(target: Target, over: threading.Event) -> None:
    """The same with what the workq door has to tell."""
    _never_reads(target.workq, b"inspect server\r\n", target, over)


def flood_workq(target: Target, over: threading.Event) -> None:
    """The same without a pause."""
    _never_reads(target.workq, b"inspect server\r\n", target, over, pause_s=0)


def resets(target: Target, over: threading.Event) -> None:
    """Gone in the middle of a command, without a goodbye."""
    parts = {
        target.resp: b"*3\r\n$4\r\nXADD\r\n$1\r\na",
        target.workq: b"add 61a444a0-6128-41c0-8078-cc757d3bd2d8 q 10",
    }
    while not over.is_set():
        for port, part in parts.items():
            with suppress(OSError):
                made = connected(port)
                made.sendall(part)
                made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                made.close()
        time.sleep(0.002)


def endless_pipeline(target: Target, over: threading.Event) -> None:
    """Commands without a pause on one connection; the answers are read."""
    with connected(target.resp) as made:
        threading.Thread(target=_drain, args=(made, over), daemon=True).start()
        while not over.is_set():
            with suppress(OSError):
                made.sendall(b"*1\r\n$4\r\nPING\r\n" * target.many(1000))


def waiters(target: Target, over: threading.Event) -> None:
    """Hundreds that wait for a topic and for a job that never come."""
    read = b"*6\r\n$5\r\nXREAD\r\n$5\r\nBLOCK\r\n$1\r\n0\r\n$7\r\nSTREAMS\r\n$5\r\nnever\r\n$1\r\n$\r\n"
    sockets = []
    for port, command in ((target.resp, read), (target.workq, b"lease never 600000\r\n")):
        for each in _connect_many(port, target.many(1000), over):
            with suppress(OSError):
                each.sendall(command)
            sockets.append(each)
    _hold(sockets, over)


def no_handles(target: Target, over: threading.Event) -> None:
    """More connections than the server may have files open (it is started with few for this)."""
    _hold(_connect_many(target.resp, target.many(3000), over), over)


def _drain(made: socket.socket, over: threading.Event) -> None:
    while not over.is_set():
        with suppress(TimeoutError):
            try:
                if not made.recv(1 << 16):
                    return
            except OSError:
                return


ALL: Final[dict[str, Abuse]] = {
    each.__name__: each
    for each in (
        idle_connections,
        connection_storm,
        slow_resp,
        slow_workq,
        slow_http,
        huge_bulk,
        huge_count,
        huge_payload,
        endless_line,
        noise,
        never_reads_resp,
        never_reads_workq,
        flood_workq,
        resets,
        endless_pipeline,
        waiters,
        no_handles,
    )
}


def main(name: str, workq: int, resp: int, http: int, size: float) -> None:
    """Until standard input ends: then whoever started it is done, or gone."""
    over = threading.Event()

    def wait() -> None:
        os.read(0, 1)
        over.set()

    threading.Thread(target=wait, daemon=True).start()
    ALL[name](Target(workq, resp, http, size), over)


if __name__ == "__main__":
    import resource
    import sys

    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    case, workq, resp, http, size = sys.argv[1:]
    main(case, int(workq), int(resp), int(http), float(size))
