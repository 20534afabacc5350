"""A client that wants little, and what it waits: ``python -m bench.bystander PORT``, or without a port its control.

It sends PING on one connection and adds an entry to a topic of its own on another, each at a steady pace, until its
input is closed; then it writes what it found as JSON. The control only sleeps at the same pace: how late it wakes up is
what the machine is to blame for. This imports little, for it must not want much of the machine itself.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from typing import Final

PING_S: Final = 0.004
ADD_S: Final = 0.02
CAP_S: Final = 20.0
"""How long it waits for an answer at the end. One that has not come by then counts as if it came then."""

_PING: Final = b"*1\r\n$4\r\nPING\r\n"
_ADD: Final = b"*5\r\n$4\r\nXADD\r\n$9\r\nbystander\r\n$1\r\n*\r\n$1\r\nf\r\n$1\r\nv\r\n"

Sample = tuple[float, float]
"""When a command was sent (CLOCK_MONOTONIC, the same in all processes), and the seconds until its answer."""


class _Beat:
    """One connection, one command at a time."""

    def __init__(self, port: int, request: bytes, every: float) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._request, self._every = request, every
        self.due = time.monotonic()
        self.waits_since: float | None = None
        self.found: list[Sample] = []

    def ask(self, now: float) -> None:
        self.waits_since = now
        self.due = max(self.due + self._every, now)
        self.socket.sendall(self._request)

    def take(self) -> bool:
        """False if the server has hung up."""
        came = self.socket.recv(256)
        if came and came[:1] not in b"+$":
            raise RuntimeError(f"the bystander was answered {came!r}")
        if came.endswith(b"\r\n") or not came:
            self.over(time.monotonic())
        return bool(came)

    def over(self, now: float) -> None:
        if self.waits_since is not None:
            self.found.append((self.waits_since, now - self.waits_since))
        self.waits_since = None


def measure(port: int) -> dict[str, list[Sample]]:
    """Until the input is closed and all is answered, or the server hangs up."""
    ping, add = beats = _Beat(port, _PING, PING_S), _Beat(port, _ADD, ADD_S)
    late: list[Sample] = []
    end: float | None = None
    print("ready", flush=True)
    while end is None or any(beat.waits_since is not None for beat in beats):
        now = time.monotonic()
        if end is not None and now >= end:
            break
        for beat in beats:
            if end is None and beat.waits_since is None and beat.due <= now:
                beat.ask(now)
        dues = [beat.due for beat in beats if beat.waits_since is None and end is None]
        due = min(dues) if dues else now + CAP_S
        watched = [beat.socket for beat in beats if beat.waits_since is not None]
        ready, _, _ = select.select([*watched, *([sys.stdin] if end is None else [])], [], [], max(due - now, 0))
        if not ready and dues:
            late.append((due, time.monotonic() - due))
        for beat in beats:
            if beat.socket in ready and not beat.take():
                end = now
        if sys.stdin in ready:
            end = time.monotonic() + CAP_S
    for beat in beats:
        beat.over(time.monotonic())
    return {"ping": ping.found, "add": add.found, "late": late}


def sleep() -> dict[str, list[Sample]]:
    """The control: the same pace, and nobody to talk to."""
    late: list[Sample] = []
    due = time.monotonic()
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], max(due - time.monotonic(), 0))[0]:
        now = time.monotonic()
        late.append((due, now - due))
        due = max(due + PING_S, now)
    return {"late": late}


class Bystander:
    """One in a process of its own, and its control in another, while the ``with`` runs."""

    def __init__(self, port: int) -> None:
        self._words = ((str(port),), ())

    def __enter__(self) -> Bystander:
        self._processes = [_started(words) for words in self._words]
        for process in self._processes:
            assert process.stdout is not None
            if process.stdout.readline() != "ready\n":
                self.__exit__()
                raise RuntimeError("the bystander did not start")
        return self

    def __exit__(self, *problem: object) -> None:
        for process in self._processes:
            process.kill()
            process.wait()

    def end(self) -> dict[str, list[Sample]]:
        """What it found: ``ping``, ``add`` and how ``late`` it was itself, beside the ``control``."""
        found: list[dict[str, list[Sample]]] = []
        for process in self._processes:
            said, _ = process.communicate("", timeout=2 * CAP_S)
            if process.returncode:
                raise RuntimeError("the bystander failed")
            found.append(json.loads(said))
        return {**found[0], "control": found[1]["late"]}


def _started(words: Sequence[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-S", os.path.abspath(__file__), *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def spread(samples: Iterable[Sample], begin: float, end: float, every: float = 0.0) -> dict[str, float]:
    """p50, p99 and the longest wait in milliseconds, of what was sent from ``begin`` to ``end``.

    ``every``: the pace. What was not sent because an answer did not come is counted as if it had been, and had waited
    for the same moment: else a server that stands still for a second is asked once in it, and a p99 does not see it.
    """
    waits: list[float] = []
    for at, wait in samples:
        if begin <= at < end:
            waits.append(wait)
            while every and (at := at + every) < end and (wait := wait - every) > 0:
                waits.append(wait)
    if not waits:
        return {"p50": 0.0, "p99": 0.0, "max": 0.0, "count": 0}
    waits.sort()
    p50, p99 = (waits[len(waits) * part // 100] for part in (50, 99))
    return {"p50": p50 * 1000, "p99": p99 * 1000, "max": waits[-1] * 1000, "count": len(waits)}


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1])) if len(sys.argv) > 1 else sleep()))
