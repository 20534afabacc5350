"""What is left of a topic: one entry of a queue, a few pending ones of many, the newest; each command beside Redis."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from bench.aggressor import Client
from bench.bystander_data import SPARSE, SPARSE_STEP, entries_of, ids, server_on
from bench.cases_topics_wire import in_turn
from bench.runner import Case, Context, Result
from bench.topic_entries import id_of
from bench.topic_servers import TOPIC, Wrong, command, commands_a_second

ROUNDS = 9
REQUESTS = 50_000
TIMES_REDIS = 3.0
_POLICY = "interval"

Make = Callable[[Context, int], bytes]
"""A command, by the number of the round."""

USUAL: Mapping[str, Make] = {
    "ping": lambda context, turn: command("PING"),
    "xrange": lambda context, turn: command("XRANGE", TOPIC, "-", "+"),
    "xrange_one": lambda context, turn: command("XRANGE", TOPIC, "-", "+", "COUNT", "1"),
    "xread_one": lambda context, turn: command("XREAD", "COUNT", "1", "STREAMS", TOPIC, "0"),
    "xinfo": lambda context, turn: command("XINFO", "STREAM", TOPIC),
    "xgroup_create": lambda context, turn: command("XGROUP", "CREATE", TOPIC, f"g{turn}", "0"),
    "xreadgroup": lambda context, turn: command(
        "XREADGROUP", "GROUP", f"g{turn}", "c", "COUNT", "1", "STREAMS", TOPIC, ">"
    ),
    "xtrim": lambda context, turn: command("XTRIM", TOPIC, "MINID", "5"),
}
PENDING: Mapping[str, Make] = {
    "ping": lambda context, turn: command("PING"),
    "xreadgroup": lambda context, turn: command("XREADGROUP", "GROUP", "g", "c", "STREAMS", TOPIC, "0"),
    "xautoclaim": lambda context, turn: command("XAUTOCLAIM", TOPIC, "g", "c", "0", "0", "COUNT", "1000"),
    "xclaim": lambda context, turn: command("XCLAIM", TOPIC, "g", "c", "0", *_pending(context)[:1000]),
    "xpending": lambda context, turn: command("XPENDING", TOPIC, "g", "-", "+", "1000"),
}


def _pending(context: Context) -> list[bytes]:
    return ids(0, int(entries_of(context) * SPARSE), SPARSE_STEP)


def times(context: Context, data: str, commands: Mapping[str, Make]) -> dict[str, dict[str, Any]]:
    """Milliseconds of each command, of both, done once for all cases of the same data."""
    key = f"times of {data}"
    if key not in context.kept:
        found: dict[str, dict[str, Any]] = {name: {} for name in commands}
        for side, is_redis in (("ours", False), ("redis", True)):
            with server_on(context, data, _POLICY, is_redis=is_redis) as server:
                for name, each in _times(context, server.address[1], commands).items():
                    found[name][side] = {"median": statistics.median(each), "first": each[0], "worst": max(each)}
        context.kept[key] = json.dumps(found)
    kept: dict[str, dict[str, Any]] = json.loads(context.kept[key])
    return kept


def _times(context: Context, port: int, commands: Mapping[str, Make]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {name: [] for name in commands}
    with Client(port) as to:
        for turn in range(ROUNDS if context.scale >= 1 else 2):
            for name, make in commands.items():
                request = make(context, turn)
                started = time.perf_counter()
                to.say(request)
                found[name].append((time.perf_counter() - started) * 1000)
        if to.errors:
            raise Wrong(f"an answer was {to.error!r}")
    return found


def one(context: Context, data: str, commands: Mapping[str, Make], name: str) -> Result:
    found = times(context, data, commands)
    of_it, ping = found[name], found["ping"]
    extra: dict[str, Any] = {
        "first": of_it["ours"]["first"],
        "worst": of_it["ours"]["worst"],
        "redis first": of_it["redis"]["first"],
        "ping": ping["ours"]["median"],
        "redis ping": ping["redis"]["median"],
    }
    extra["note"] = f"first {extra['first']:.2f}, PING {extra['ping']:.2f}; Redis PING {extra['redis ping']:.2f}"
    return Result(of_it["ours"]["median"], of_it["redis"]["median"], extra)


def rate(context: Context, *words: str) -> Result:
    """Commands a second of 50 clients that send 16 at a time."""
    requests = context.scaled(REQUESTS, 1000)
    with ExitStack() as stack:
        ours, base = (
            stack.enter_context(server_on(context, "stream", _POLICY, is_redis=is_redis)) for is_redis in (False, True)
        )
        return in_turn(
            context,
            lambda: commands_a_second(ours, requests, 16, *words),
            lambda: commands_a_second(base, requests, 16, *words),
            3,
        )


def _one(data: str, prefix: str, commands: Mapping[str, Make], name: str, what: str) -> Case:
    return Case(
        f"{prefix}_{name}",
        "ms",
        f"{name.upper()} with its answer, the median; {what}; base: Redis. 'ping' is what PING takes",
        lambda context: one(context, data, commands, name),
        bar=round(1 / TIMES_REDIS, 2),
        less_is_better=True,
    )


_DONE = "600 000 entries were added, delivered, acknowledged and deleted, and one is left"
_SPARSE = "300 000 entries were delivered, and all but 3000 far apart acknowledged"
_LOAD = (
    "a second by redis-benchmark -c 50 -P 16, on a topic of a million entries; base: Redis. The median of the ratios"
)
_TOPIC = TOPIC.decode()

CASES = [
    *(_one("done", "usual_queue", USUAL, name, _DONE) for name in USUAL if name != "ping"),
    *(_one("sparse", "sparse_pending", PENDING, name, _SPARSE) for name in PENDING if name != "ping"),
    Case(
        "topics_xrevrange_newest",
        "commands/s",
        f"XREVRANGE + - COUNT 1 {_LOAD}",
        lambda context: rate(context, "XREVRANGE", _TOPIC, "+", "-", "COUNT", "1"),
    ),
    Case(
        "topics_xrange_oldest_ten",
        "commands/s",
        f"XRANGE - + COUNT 10, which is in files, {_LOAD}",
        lambda context: rate(context, "XRANGE", _TOPIC, "-", "+", "COUNT", "10"),
    ),
    Case(
        "topics_xread_newest_ten",
        "commands/s",
        f"XREAD COUNT 10 of the newest ten, {_LOAD}",
        lambda context: rate(
            context, "XREAD", "COUNT", "10", "STREAMS", _TOPIC, id_of(entries_of(context) - 11).decode()
        ),
    ),
]
