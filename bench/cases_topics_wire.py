"""Topics over the wire: XADD against Redis under the same load, and a publisher whose topic has many subscribers."""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

from bench.cases_append import make_payloads, opened
from bench.job_driver import Pace, Reply, drive
from bench.rivals import Address
from bench.runner import Case, Context, Result, interleave
from bench.topic_entries import VALUE, value
from bench.topic_servers import TOPIC, Server, Wire, Wrong, command, find_redis, lamina, redis, redis_benchmark
from lamina.log import ALWAYS, Level

REQUESTS = {("interval", 16): 400_000, ("interval", 1): 100_000, ("always", 16): 100_000, ("always", 1): 20_000}
BARS = {("interval", 16): 1.0, ("interval", 1): 0.7, ("always", 16): 2.0, ("always", 1): 1.5}
ROUNDS = 7  # odd: one of them has the median ratio
SUBSCRIBERS = 200
PUBLISHED = 10_000
SYNC_BYTES = 4096
SYNCS = 50  # in a round

ADDED = Reply(re.compile(rb"\$\d+\r\n\d+-\d+\r\n"), b"$15\r\n1700000000000-0\r\n")


def in_turn(context: Context, ours: Callable[[], float], base: Callable[[], float], rounds: int = ROUNDS) -> Result:
    """Measure both in turn, and give the figures of the round whose ratio is the median of all."""
    found: tuple[list[float], list[float]] = ([], [])

    def kept(side: int, measure: Callable[[], float]) -> float:
        found[side].append(measure())
        return found[side][-1]

    interleave(lambda: kept(0, ours), lambda: kept(1, base), rounds if context.scale >= 1 else 1)
    ratios = [one / other for one, other in zip(*found, strict=True)]
    middle = ratios.index(statistics.median_low(ratios))
    extra = {"ratios": ratios, "ours rounds": found[0], "base rounds": found[1]}
    return Result(found[0][middle], found[1][middle], extra)


# -- XADD ------------------------------------------------------------------------------------------------------------


def xadd(context: Context, policy: str, pipelined: int) -> Result:
    find_redis()
    find_redis("redis-benchmark")
    requests = context.scaled(REQUESTS[policy, pipelined], 1000)
    syncs: list[float] = []

    def run(server: Server) -> float:
        with Wire(server.address) as wire:
            wire.add(b"first")  # its files are made now
        syncs.append(bare_sync_us(context, SYNCS // 5))
        return redis_benchmark(server, requests, pipelined, VALUE)

    def ours() -> float:
        with lamina(context.fresh("lamina"), policy) as server:
            return run(server)

    def base() -> float:
        with redis(context.fresh("redis"), policy) as server:
            return run(server)

    result = in_turn(context, ours, base)
    return Result(result.ours, result.base, {**result.extra, "bare fdatasync us": statistics.median(syncs)})


def bare_sync_us(context: Context, count: int) -> float:
    """Median microseconds of an append of 4 KiB with its fdatasync."""
    os.makedirs(folder := context.fresh("base"))
    handle = os.open(os.path.join(folder, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    chunk, times = os.urandom(SYNC_BYTES), []
    for _ in range(count + 1):
        started = time.perf_counter()
        os.write(handle, chunk)
        os.fdatasync(handle)
        times.append(time.perf_counter() - started)
    os.close(handle)
    return statistics.median(times[1:]) * 1e6


def sync_cost(context: Context) -> Result:
    syncs = context.scaled(SYNCS, 5)

    def ours() -> float:
        times, [payload] = [], make_payloads(SYNC_BYTES, 1)
        with opened(context.fresh("ours"), ALWAYS, [payload]) as log:
            for _ in range(syncs):
                started = time.perf_counter()
                log.append_many([payload], until=Level.SYNCED)
                times.append(time.perf_counter() - started)
        return statistics.median(times) * 1e6

    result = in_turn(context, ours, lambda: bare_sync_us(context, syncs))
    return Result(result.ours, result.base, {"syncs in a round": syncs})


# -- fan-out ---------------------------------------------------------------------------------------------------------


def fan_out(context: Context) -> Result:
    entries = context.scaled(PUBLISHED, 500)
    delivered: list[float] = []

    def ours() -> float:
        with lamina(context.fresh("lamina"), "interval") as server:
            rate, seconds = _publish_to_subscribers(server, entries)
        delivered.append(entries * SUBSCRIBERS / seconds)
        return rate

    def base() -> float:
        with lamina(context.fresh("lamina"), "interval") as server:
            with Wire(server.address) as wire:
                wire.add(value(0), "1-1")
            return publish(server.address, entries)

    result = in_turn(context, ours, base)
    extra = {"subscribers": SUBSCRIBERS, "entries": entries, "deliveries/s": statistics.median(delivered)}
    return Result(result.ours, result.base, {**result.extra, **extra})


def _publish_to_subscribers(server: Server, entries: int) -> tuple[float, float]:
    """Entries a second of the publisher, and the seconds until all subscribers had them all."""
    with Wire(server.address) as wire:
        wire.add(value(0), "1-1")
    host, port = server.address
    words = ["subscribe", host, str(port), str(SUBSCRIBERS), str(entries), "1-1"]
    child = subprocess.Popen([sys.executable, "-m", "bench.topics_child", *words], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        if child.stdout.readline() != "waiting\n":
            raise RuntimeError("the subscribers did not get to waiting")
        started = time.perf_counter()
        rate = publish(server.address, entries)
        said, _ = child.communicate()
        seconds = time.perf_counter() - started
    finally:
        child.kill()
        child.wait()
    if child.returncode or json.loads(said)["entries"] != entries * SUBSCRIBERS:
        raise Wrong(f"the subscribers ended with {child.returncode} and said {said!r}")
    return rate, seconds


def publish(address: Address, entries: int) -> float:
    """Entries a second over one connection with 16 commands in flight. Raises: Wrong if one was not added."""
    requests = [command("XADD", TOPIC, "*", "f", value(number)) for number in range(entries)]
    pace = Pace()
    with socket.create_connection(address, timeout=10) as to:
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        to.setblocking(False)
        [answers] = drive([to], [requests], ADDED, pace)
    if len(ADDED.pattern.findall(answers)) != entries:
        raise Wrong(f"of {entries} entries some were not added; the last answers: {answers[-200:]!r}")
    return pace.rate


_POLICIES = {
    "interval": "synced every second, base appendfsync everysec",
    "always": "each synced before its answer, base appendfsync always",
}


def _case(policy: str, pipelined: int) -> Case:
    what = (
        f"XADD of 100 B by redis-benchmark -c 50 -P {pipelined}, {_POLICIES[policy]}; base: Redis under the same load, "
        "on the same disk. The median of the ratios of several rounds, and the figures of that round. 'bare fdatasync "
        "us' is what a sync costs here. Not included: starting the server, the first entry"
    )
    bar = BARS[policy, pipelined]
    return Case(f"topics_xadd_{policy}_P{pipelined}", "entries/s", what, lambda c: xadd(c, policy, pipelined), bar)


CASES = [
    Case(
        "topics_sync_cost",
        "us",
        "an append of 4 KiB to a log that is synced each time; base: write and fdatasync. Where this costs next to "
        "nothing, there is nothing to gain in topics_xadd_always by syncing for many at once. Not included: the first",
        sync_cost,
        less_is_better=True,
    ),
    *(_case(*each) for each in REQUESTS),
    Case(
        "topics_fan_out_200",
        "entries/s",
        f"XADD of {PUBLISHED} entries of 100 B over one connection with 16 in flight, while 200 others wait in XREAD "
        "BLOCK and get them all (counted, and the last of each answer checked); base: the same with no subscriber. The "
        "median of the ratios. Not included: what is delivered behind the last answer to the publisher",
        fan_out,
        bar=0.8,
    ),
]
