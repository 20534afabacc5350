"""A server with 100,000 topics: making them, a start, a scan over their names, a stop, and what an idle one costs."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable

from bench.runner import Case, Context, Result
from bench.topic_servers import Server, Wrong, lamina
from lamina.client.resp import RespClient

MANY = 100_000
FEW = 1000
AT_ONCE = 1000  # XADDs to different names that one connection sends ahead
TIMES = 3.0  # of what as many topics would take at the pace of a few
MEMORY_KB = 2.0


def make(server: Server, count: int) -> float:
    """Seconds."""
    began = time.perf_counter()
    with RespClient(*server.address) as client:
        for at in range(0, count, AT_ONCE):
            names = range(at, min(at + AT_ONCE, count))
            replies = client.ask_all([("XADD", f"many-{name}", "*", "f", "v") for name in names])
            if any(not isinstance(reply, bytes) for reply in replies):
                raise Wrong("a topic could not be made")
    return time.perf_counter() - began


def scan(server: Server, count: int) -> float:
    """Seconds for the names of all, a thousand at a time."""
    began, cursor, found = time.perf_counter(), b"0", 0
    with RespClient(*server.address) as client:
        while True:
            cursor, names = client.ask("SCAN", cursor, "COUNT", "1000")
            found += len(names)
            if cursor == b"0":
                break
    if found != count:
        raise Wrong(f"{count} topics were made, {found} are shown")
    return time.perf_counter() - began


def stop(server: Server) -> float:
    """Seconds."""
    began = time.perf_counter()
    server.stop()
    return time.perf_counter() - began


def measured(context: Context, count: int) -> dict[str, float]:
    """All of it, of so many topics. Done once."""
    key = f"{count} topics"
    if key not in context.kept:
        folder = context.fresh(f"topics_{count}")
        with lamina(folder, "interval") as server:
            empty_start, empty = server.ready_s, server.memory_mib()
            found = {"make": make(server, count), "empty start": empty_start}
            found["handles"] = len(os.listdir(f"/proc/{server.process.pid}/fd"))
            found["stop after"] = stop(server)
        with lamina(folder, "interval") as server:
            found["start"], found["scan"] = server.ready_s, scan(server, count)
            found["memory"] = (server.memory_mib() - empty) * 1024 / count
            found["stop"] = stop(server)
        context.fresh(f"topics_{count}")
        context.kept[key] = json.dumps(found)
    kept: dict[str, float] = json.loads(context.kept[key])
    return kept


def compared(what: str) -> Callable[[Context], Result]:
    """What many take, with what a few take, times as many, times what it may be more."""

    def run(context: Context) -> Result:
        count = context.scaled(MANY, 2 * FEW)
        many, few = measured(context, count), measured(context, FEW)
        allowed = few[what] * 1000 * count / FEW * TIMES
        return Result(many[what] * 1000, allowed, {"topics": count, f"{FEW} ms": few[what] * 1000})

    return run


def memory(context: Context) -> Result:
    count = context.scaled(MANY, 2 * FEW)
    return Result(measured(context, count)["memory"], MEMORY_KB, {"topics": count})


def handles(context: Context) -> Result:
    from lamina.engines.topics.open_topics import MOST_HANDLES

    count = context.scaled(MANY, 2 * FEW)
    found = measured(context, count)
    return Result(found["handles"], MOST_HANDLES + 1000, {"topics": count})


_BASE = f"base: that of {FEW} topics, taken as many times as there are more, three times over"

CASES = [
    *(
        Case(
            f"topics_many_{what.replace(' ', '_')}",
            "ms",
            f"{MANY} topics: {text}; {_BASE}",
            compared(what),
            bar=1.0,
            less_is_better=True,
        )
        for what, text in (
            ("make", f"XADD to new names, {AT_ONCE} sent ahead by one connection, synced each second"),
            ("start", "from exec until a command is answered, Python's own start included"),
            ("scan", "SCAN over all names after the start, a thousand at a time"),
            ("stop", "an orderly stop, after the scan"),
            ("stop after", "an orderly stop right after they were made"),
        )
    ),
    Case(
        "topics_many_memory",
        "kB",
        f"resident memory for each of {MANY} topics after a start and a scan; base: what it may take",
        memory,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "topics_many_handles",
        "handles",
        f"of the server when {MANY} topics were made; base: the share of the topics, and a thousand for all else",
        handles,
        bar=1.0,
        less_is_better=True,
    ),
]
