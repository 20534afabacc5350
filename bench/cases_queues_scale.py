"""A million queues in the store journal: their start, memory, open files, and sending to some of them."""

from __future__ import annotations

import json
import os
import random
import statistics
import time
from collections import Counter
from typing import Any

from bench.queue_driver import ID_SIZE, MESSAGE_SIZE, OK, acknowledge, get, send
from bench.queue_folder import KEY, rid_of, sid_of
from bench.queues_child import ask
from bench.runner import Case, Context, Result
from bench.topic_servers import Server, Wire, Wrong, command, lamina
from lamina.engines.queues import ids
from lamina.engines.queues.options import QueueOptions

QUEUES = 1_000_000
FEW = 1000
ACTIVE = 10_000
SENDS = 30_000
WAITING = 100  # messages that are sent and not yet received
START_S = 5.0
BYTES_OF_QUEUE = 1500.0
HANDLES = 64 + 3 * QueueOptions().most_open
AT_ONCE = 100
JOURNAL = ("--queues", "journal", "--queue", "dump_every_s=0", "--queue", "expire_every_s=0")

Figures = dict[str, Any]


def journals(context: Context) -> dict[str, Figures]:
    """A server without queues, with a few, and with all of them. Done once."""
    if "queue journals" not in context.kept:
        with lamina(context.fresh("queues"), "interval", *JOURNAL) as server:
            empty = server.memory_mib()
            found = {"empty": {"start s": server.ready_s, "MiB": empty, "files": _open_files(server)}}
        for name, queues in (("few", FEW), ("all", context.scaled(QUEUES, FEW))):
            found[name] = _serve_journals(context, queues, empty)
        context.kept["queue journals"] = json.dumps(found)
    kept: dict[str, Figures] = json.loads(context.kept["queue journals"])
    return kept


def _serve_journals(context: Context, queues: int, empty_mib: float) -> Figures:
    folder = context.fresh("queues")
    ask("fill", folder, str(queues), "0")
    with lamina(folder, "interval", *JOURNAL) as server:
        memory = server.memory_mib()
        found: Figures = {"queues": queues, "start s": server.ready_s, "MiB": memory}
        found["B/queue"] = (memory - empty_mib) * (1 << 20) / queues
        found |= _use(server, queues, context.scaled(ACTIVE, 100), context.scaled(SENDS, 500))
        found["MiB after"] = server.memory_mib()
    context.fresh("queues")
    return found


def _use(server: Server, queues: int, active: int, sends: int) -> Figures:
    """Send to queues that are chosen at random, and receive from others to which was sent before."""
    chance = random.Random(queues)
    numbers = chance.sample(range(queues), min(active, queues))
    pairs = {number: (ids.wire(rid_of(number)), ids.wire(sid_of(number))) for number in numbers}
    with Wire(server.address) as wire:
        _show_keys(wire, [id for pair in pairs.values() for id in pair])
        first = [_send(wire, pairs[number][1], number) for number in numbers]
        for number in numbers:
            _receive(wire, pairs[number][0], left=0)
        times, files, waiting = list[float](), 0, Counter[int]()
        for turn in range(sends):
            number = chance.choice(numbers)
            times.append(_send(wire, pairs[number][1], number))
            waiting[number] += 1
            if turn >= WAITING:
                number = next(iter(waiting))
                waiting[number] -= 1
                _receive(wire, pairs[number][0], waiting[number])
                if not waiting[number]:
                    del waiting[number]
            if turn % AT_ONCE == 0:
                files = max(files, _open_files(server))
    return {
        "active": len(numbers),
        "files": files,
        "send p50 ms": statistics.median(times) * 1000,
        "send p99 ms": statistics.quantiles(times, n=100)[-1] * 1000,
        "first send p99 ms": statistics.quantiles(first, n=100)[-1] * 1000,
    }


def _show_keys(wire: Wire, all_ids: list[bytes]) -> None:
    for start in range(0, len(all_ids), AT_ONCE):
        some = all_ids[start : start + AT_ONCE]
        answer = bytes(wire.take(b"".join(command("Q.AUTH", id, KEY) for id in some), len(OK) * len(some)))
        if answer != OK * len(some):
            raise Wrong(f"a key was not taken: {answer[:200]!r}")


def _send(wire: Wire, sid: bytes, number: int) -> float:
    """Seconds until it was answered. Raises: Wrong."""
    request = send(sid, number)
    started = time.perf_counter()
    answer = bytes(wire.take(request, ID_SIZE))
    seconds = time.perf_counter() - started
    if answer[:1] != b"$":
        raise Wrong(f"a message was answered {answer!r}")
    return seconds


def _receive(wire: Wire, rid: bytes, left: int) -> None:
    """Get the head and acknowledge it; ``left`` messages remain. Raises: Wrong."""
    head = bytes(wire.take(get(rid), MESSAGE_SIZE))
    answer = bytes(wire.take(acknowledge(rid, head[4 : 4 + ID_SIZE]), MESSAGE_SIZE if left else len(OK)))
    if head[:1] != b"*" or answer[:1] != (b"*" if left else b"+"):
        raise Wrong(f"a queue with {left + 1} messages answered {head!r}, and then {answer!r}")


def _open_files(server: Server) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


def _case(name: str, unit: str, what: str, figure: str, limit: float | None, bar: float) -> Case:
    """``limit``: what the figure may be; None: the same with a few queues."""

    def run(context: Context) -> Result:
        found = journals(context)
        return Result(found["all"][figure], found["few"][figure] if limit is None else limit, found)

    return Case(name, unit, f"a million queues, store journal: {what}", run, bar, less_is_better=True)


_USE = f"sends to, and receives from, {ACTIVE} of them at random over one connection"

CASES = [
    _case(
        "queues_scale_start",
        "s",
        "from exec until the first answer, Python's own start included; base: what it may take",
        "start s",
        START_S,
        1.0,
    ),
    _case(
        "queues_scale_memory",
        "B/queue",
        "resident memory after the start without that of a server that has none; all have both keys and no message; "
        "base: what it may take",
        "B/queue",
        BYTES_OF_QUEUE,
        1.0,
    ),
    _case(
        "queues_scale_files",
        "files",
        f"the most that the server had open while a client {_USE}; base: three for each of most_open, and {64} others",
        "files",
        HANDLES,
        1.0,
    ),
    _case(
        "queues_scale_send",
        "ms",
        f"99th percentile of the answer to a Q.SEND of 100 B, synced every second, while a client {_USE}; base: the "
        f"same with {FEW} queues in all. Not included: the first message of each queue, which makes its folder",
        "send p99 ms",
        None,
        0.33,
    ),
]
