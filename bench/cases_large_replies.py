"""Clients that ask for a large topic and never read the answer: how much memory that takes, and what others wait."""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import ExitStack
from typing import Any

from bench.aggressor import Client
from bench.bystander import CAP_S, PING_S, Bystander, spread
from bench.runner import Case, Context, Result, Skipped
from bench.topic_servers import TOPIC, Server, Wrong, command, lamina, redis

CLIENTS = 100
OF_REDIS = 10
"""Clients of Redis, which builds each answer in memory."""
BODY = 100_000
ENTRIES = 2000
WATCH_S = 6.0
MOST_MIB = 256.0
STOP_MIB = 1024.0
"""Over what it had before: then it is ended, for the machine has others to serve."""
LIMIT_MS = 5.0

_ASK = command("XRANGE", TOPIC, "-", "+")
_LAST = b"all-of-it-was-answered"


def never_read(context: Context) -> dict[str, Any]:
    """Done once for both cases."""
    if "large replies" not in context.kept:
        with lamina(context.fresh("lamina"), "interval", "--http", "off", "--log-level", "warning") as server:
            found = {"lamina": _never_read(context, server, CLIENTS)}
        context.fresh("lamina")
        try:
            with redis(context.fresh("redis"), "interval") as server:
                found["redis"] = _never_read(context, server, OF_REDIS, stop_mib=4 * STOP_MIB)
        except Skipped:
            pass
        context.fresh("redis")
        context.kept["large replies"] = json.dumps(found)
    kept: dict[str, Any] = json.loads(context.kept["large replies"])
    return kept


def _never_read(context: Context, server: Server, clients: int, stop_mib: float = STOP_MIB) -> dict[str, Any]:
    part = min(context.scale * 10, 1.0)
    entries = context.scaled(ENTRIES, 20)
    with Client(server.address[1]) as to:
        for _ in range(entries):
            to.say(command("XADD", TOPIC, "*", "f", os.urandom(BODY)))
    before = most = memory_mib(server)
    asked, is_stopped = 0, False
    with ExitStack() as stack, Bystander(server.address[1]) as bystander:
        time.sleep(0.5 * part)
        started = time.monotonic()
        while asked < clients or time.monotonic() < started + WATCH_S * part:
            if asked < clients:
                stack.enter_context(_one_that_asks(server))
                asked += 1
            time.sleep(0.02)
            most = max(most, memory_mib(server))
            if most - before > stop_mib:
                is_stopped = True
                server.process.kill()
                break
        ended = time.monotonic()
        if not is_stopped:
            _read_all(server, entries)
        seconds = time.monotonic() - ended
        found = bystander.end()
    figures = {
        "over idle MiB": most - before,
        "before MiB": before,
        "asked": asked,
        "stopped": is_stopped,
        "ping": spread(found["ping"], started, ended, PING_S),
        "idle": spread(found["ping"], 0, started, PING_S),
        "late": spread(found["late"], started, ended),
    }
    return figures if is_stopped else {**figures, "seconds to read one": seconds}


def memory_mib(server: Server) -> float:
    """What the server takes of the machine: pages that others map, too, count for a part."""
    with open(f"/proc/{server.process.pid}/smaps_rollup") as said:
        return next(int(line.split()[1]) / 1024 for line in said if line.startswith("Pss:"))


def _one_that_asks(server: Server) -> socket.socket:
    to = socket.socket()
    to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # before it connects: then the window is small, too
    to.connect(server.address)
    to.sendall(_ASK)
    return to


def _read_all(server: Server, entries: int) -> None:
    """One that reads gets everything. Raises: Wrong."""
    head, found = b"*%d\r\n" % entries, 0
    with socket.create_connection(server.address, timeout=CAP_S) as to:
        to.sendall(_ASK + command("ECHO", _LAST))
        came = last = b""
        while not last.endswith(b"%b\r\n" % _LAST):
            came = to.recv(1 << 20)
            if not came or (not found and not came.startswith(head[: len(came)])):
                raise Wrong(f"a client that reads was answered {came[:100]!r}")
            found += len(came)
            last = (last + came)[-len(_LAST) - 2 :]
    if found < entries * BODY:
        raise Wrong(f"a client that reads got {found} bytes of {entries} entries of {BODY}")


def memory(context: Context) -> Result:
    found = never_read(context)
    return Result(found["lamina"]["over idle MiB"], MOST_MIB, {**found, "note": _note(found)})


def ping(context: Context) -> Result:
    found = never_read(context)
    allowed = max(LIMIT_MS, 2 * found["redis"]["ping"]["p99"]) if "redis" in found else LIMIT_MS
    return Result(found["lamina"]["ping"]["p99"], allowed, {"note": _note(found)})


def _note(found: dict[str, Any]) -> str:
    def of(side: str) -> str:
        it = found[side]
        p50, p99, most = (it["ping"][part] for part in ("p50", "p99", "max"))
        end = "ended there" if it["stopped"] else f"one that reads took {it['seconds to read one']:.1f} s"
        return f"{side}: {it['asked']} asked, ping {p50:.2f}/{p99:.0f}/{most:.0f}, {it['over idle MiB']:.0f} MiB, {end}"

    return "; ".join(of(side) for side in found)


_LOAD = (
    f"{CLIENTS} clients ask for a topic of 200 MB with one XRANGE and never read, for {WATCH_S:.0f} s; the server is "
    f"killed when it has taken {STOP_MIB:.0f} MiB"
)

CASES = [
    Case(
        "large_replies_memory",
        "MiB",
        f"memory (Pss) over what the server had before, while {_LOAD}. Base: what it may take. Afterwards one client "
        "reads all of it",
        memory,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "large_replies_ping",
        "ms",
        f"p99 of PING of another client, each {PING_S * 1000:.0f} ms, while {_LOAD}. Base: what it may be, "
        f"{LIMIT_MS:.0f} ms or twice that of Redis with {OF_REDIS} such clients, which builds each answer in memory",
        ping,
        bar=1.0,
        less_is_better=True,
    ),
]
