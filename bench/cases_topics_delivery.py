"""How long a message takes to those who wait for it, beside Redis: one message every 5 ms, in milliseconds, p99."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from bench.cases_topics_wire import in_turn
from bench.runner import Case, Context, Result
from bench.topic_servers import TOPIC, Server, Wire, Wrong, command, find_redis, lamina, redis

READERS = (1, 10, 100)
KINDS = ("xread", "xreadgroup")
POLICIES = ("interval", "always")
MESSAGES = 400
EVERY_S = 0.005
ROUNDS = 3
TIMES_REDIS = 3.0


def delivery(context: Context, kind: str, readers: int, policy: str) -> Result:
    find_redis()
    messages = context.scaled(MESSAGES, 20)
    middles: dict[str, list[float]] = {"ours": [], "base": []}

    def run(side: str, server: Server) -> float:
        found = _delivered(server, kind, readers, messages)
        middles[side].append(found["p50"])
        return found["p99"]

    def ours() -> float:
        with lamina(context.fresh("lamina"), policy) as server:
            return run("ours", server)

    def base() -> float:
        with redis(context.fresh("redis"), policy) as server:
            return run("base", server)

    result = in_turn(context, ours, base, ROUNDS)
    p50, redis_p50 = (sorted(each)[len(each) // 2] for each in middles.values())
    note = f"p50 {p50:.2f}, Redis {redis_p50:.2f}"
    return Result(result.ours, result.base, {**result.extra, "p50": p50, "redis p50": redis_p50, "note": note})


def _delivered(server: Server, kind: str, readers: int, messages: int) -> dict[str, float]:
    """p50 and p99 of all deliveries in milliseconds. Raises: Wrong if one is missing."""
    host, port = server.address
    with Wire(server.address) as wire:
        wire.add(b"0", "1-1")
        for number in range(readers):
            wire.take(command("XGROUP", "CREATE", TOPIC, f"g{number}", "$"), len(b"+OK\r\n"))
    words = ["await_deliveries", host, str(port), kind, str(readers), str(messages)]
    child = subprocess.Popen([sys.executable, "-m", "bench.topics_child", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        if child.stdout.readline() != "waiting\n":
            raise RuntimeError("the readers did not get to waiting")
        with Wire(server.address) as wire:
            due = time.monotonic()
            for _ in range(messages):
                time.sleep(max(due - time.monotonic(), 0))
                due = max(due + EVERY_S, time.monotonic())
                wire.add(b"%d" % time.monotonic_ns())
        said, _ = child.communicate()
    finally:
        child.kill()
        child.wait()
    if child.returncode:
        raise Wrong(f"the readers ended with {child.returncode}")
    found: dict[str, float] = json.loads(said)
    return found


def _case(kind: str, readers: int, policy: str) -> Case:
    waits = "XREAD BLOCK" if kind == "xread" else "XREADGROUP BLOCK, each in a group of its own"
    return Case(
        f"topics_delivery_{kind}_{readers}_{policy}",
        "ms",
        f"from sending XADD to when a reader has the entry, p99 of all deliveries of {MESSAGES} messages, one "
        f"every {EVERY_S * 1000:.0f} ms, to {readers} that wait in {waits}; {policy}; base: Redis. The median of the "
        "ratios",
        lambda context: delivery(context, kind, readers, policy),
        bar=round(1 / TIMES_REDIS, 2),
        less_is_better=True,
    )


CASES = [_case(kind, readers, policy) for kind in KINDS for readers in READERS for policy in POLICIES]
