"""Queues over the wire: messages moved against lists of Redis under the same load; senders for each sync."""

from __future__ import annotations

import statistics

from bench.cases_topics_wire import bare_sync_us, in_turn
from bench.job_driver import Pace
from bench.queue_driver import PIPELINED, Lane, ListLane, QueueLane, SendLane, drive, new_queue
from bench.queue_folder import sends_and_syncs
from bench.rivals import Address
from bench.runner import Case, Context, Result
from bench.topic_servers import Wire, Wrong, find_redis, lamina, redis

CONNECTIONS = 50
MOVED = {"memory": 400_000, "journal": 100_000}
SENDERS = 64
SENT = 64_000  # by all of them together
ROUNDS = 5
SYNCS = 10


def move(address: Address, lanes: list[Lane], turns: int) -> Pace:
    """Messages a second from their sender to an acknowledgement. Raises: Wrong if any was not what was sent."""
    pace = Pace(commands=len(lanes) * turns * PIPELINED)
    drive(address, lanes, pace)
    return pace


def throughput(context: Context, store: str) -> Result:
    find_redis()
    turns = context.scaled(MOVED[store] // CONNECTIONS // PIPELINED, 5)
    busy: tuple[list[float], list[float]] = ([], [])

    def ours() -> float:
        with lamina(context.fresh("lamina"), "interval", "--queues", store) as server:
            with Wire(server.address) as wire:
                queues = [new_queue(wire) for _ in range(CONNECTIONS)]
            move(server.address, [QueueLane(ids, n * PIPELINED, 1) for n, ids in enumerate(queues)], 1)
            pace = move(server.address, [QueueLane(ids, n * PIPELINED, turns) for n, ids in enumerate(queues)], turns)
        busy[0].append(pace.busy)
        return pace.rate

    def base() -> float:
        with redis(context.fresh("redis"), "interval") as server:
            move(server.address, [ListLane(b"q%d" % n, n * PIPELINED, 1) for n in range(CONNECTIONS)], 1)
            lanes: list[Lane] = [ListLane(b"q%d" % n, n * PIPELINED, turns) for n in range(CONNECTIONS)]
            pace = move(server.address, lanes, turns)
        busy[1].append(pace.busy)
        return pace.rate

    result = in_turn(context, ours, base, ROUNDS)
    extra = {
        "messages in a round": turns * CONNECTIONS * PIPELINED,
        "driver busy": statistics.median(busy[0]),
        "base driver busy": statistics.median(busy[1]),
    }
    return Result(result.ours, result.base, {**result.extra, **extra})


def always(context: Context) -> Result:
    turns = context.scaled(SENT // SENDERS, 5)
    per_sync, rates, syncs_us = list[float](), list[float](), list[float]()
    for _ in range(ROUNDS if context.scale >= 1 else 1):
        folder = context.fresh("lamina")
        with lamina(folder, "always", "--queues", "memory", "--queue", f"quota={turns + 1}") as server:
            with Wire(server.address) as wire:
                queues = [new_queue(wire) for _ in range(SENDERS)]
            pace = Pace(commands=SENDERS * turns)
            drive(server.address, [SendLane(ids, n, turns) for n, ids in enumerate(queues)], pace)
        sends, syncs = sends_and_syncs(folder)
        if sends != SENDERS * turns:
            raise Wrong(f"{SENDERS * turns} messages were sent and the log has {sends}")
        per_sync.append(sends / syncs)
        rates.append(pace.rate)
        syncs_us.append(bare_sync_us(context, SYNCS))
    context.fresh("lamina")
    extra = {
        "messages/s": statistics.median(rates),
        "rounds": per_sync,
        "bare fdatasync us": statistics.median(syncs_us),
    }
    return Result(statistics.median(per_sync), 1.0, extra)


def _case(name: str, store: str, bar: float | None) -> Case:
    what = (
        f"messages of 100 B sent, received and acknowledged, store {store}, synced every second: {CONNECTIONS} "
        f"connections, each with a queue of its own, {PIPELINED} Q.SEND at once, then a Q.GET with {PIPELINED} Q.ACK "
        "that are answered with the next message; every one is checked. Base: Redis with appendfsync everysec, "
        f"{PIPELINED} LPUSH, then {PIPELINED} RPOP, by the same driver in turn with ours. The median of the ratios, "
        "and the figures of that round. Not included: making the queues, a first turn that makes their files"
    )
    return Case(name, "messages/s", what, lambda context: throughput(context, store), bar)


CASES = [
    _case("queues_throughput", "memory", 0.3),
    _case("queues_throughput_journal", "journal", None),
    Case(
        "queues_always_64",
        "sends/sync",
        f"messages of 100 B per physical sync, store memory, each synced before its answer, {SENDERS} connections that "
        "each wait for every answer; syncs are counted by the marks that the writer leaves in the log. Base: one each. "
        "Not included: making the queues",
        always,
        bar=20.0,
    ),
]
