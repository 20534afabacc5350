"""Dumps of queues while they are used: how long a command waits at most, with 1/16, 1/4 and all of a million queues."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from typing import Any

from bench.queue_traffic import Traffic
from bench.queues_child import ask
from bench.runner import Case, Context, Result
from bench.topic_servers import Wrong, command, lamina

QUEUES = 1_000_000
EACH = 2  # messages
SIZES = (1, 4, 16)  # sixteenths of it
LEAST = 1600
BYTES = 600 << 20  # on disk, about, of the largest dump
ROUNDS = 5
WARM_UP_S = 1.0
LONGEST_MS = 100.0

Figures = dict[str, Any]


def dumps(context: Context) -> dict[str, Figures]:
    """What was found for each size. Done once."""
    if "queue dumps" not in context.kept:
        context.need_room(int(BYTES * min(context.scale, 1)))
        found = {f"{size}x": _dumps_of(context, context.scaled(QUEUES, LEAST) * size // 16) for size in SIZES}
        context.kept["queue dumps"] = json.dumps(found)
    kept: dict[str, Figures] = json.loads(context.kept["queue dumps"])
    return kept


def _dumps_of(context: Context, queues: int) -> Figures:
    folder = context.fresh("queues")
    written = ask("fill", folder, str(queues), str(EACH))
    waits, places, quiet, pauses, seconds, commands = (list[float]() for _ in range(6))
    flags = ("--queues", "memory", "--queue", "dump_every_s=0", "--queue", "expire_every_s=0")
    is_full = context.scale >= 1
    with lamina(folder, "interval", *flags) as server, Traffic(server.address) as traffic:
        traffic.alone(WARM_UP_S if is_full else 0.05)
        for _ in range(ROUNDS if is_full else 1):
            during, answer = traffic.beside(command("L.DUMP", "queues"))
            report = json.loads(answer.partition(b"\r\n")[2])
            if report["queues"] < queues or report["messages"] < queues * EACH:
                raise Wrong(f"of {queues} queues with {queues * EACH} messages the dump says {report}")
            waits.append(max(during) * 1000)
            places.append(during.index(max(during)) / len(during))
            quiet.append(max(traffic.alone(report["seconds"])) * 1000)
            pauses.append(report["pause"] * 1000)
            seconds.append(report["seconds"])
            commands.append(len(during) / report["seconds"])
    context.fresh("queues")
    return {
        "queues": queues,
        "messages": queues * EACH,
        "bytes": written["bytes"],
        "longest wait ms": _spread(waits),
        "worst wait at": places[waits.index(max(waits))],
        "without a dump ms": _spread(quiet),
        "pause ms": _spread(pauses),
        "dump s": _spread(seconds),
        "commands/s": statistics.median(commands),
    }


def _spread(found: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(found), "worst": max(found)}


def wait(context: Context) -> Result:
    found = dumps(context)
    return Result(found["16x"]["longest wait ms"]["worst"], LONGEST_MS, found)


def growth(context: Context) -> Result:
    found = dumps(context)
    most, least = (found[size]["longest wait ms"] for size in ("16x", "1x"))
    extra = {f"{size} without a dump ms": found[size]["without a dump ms"]["median"] for size in found}
    extra |= {"4x ms": found["4x"]["longest wait ms"]["median"], "ratio of the worst": least["worst"] / most["worst"]}
    return Result(most["median"], least["median"], extra)


def pause(context: Context) -> Result:
    found = dumps(context)
    of_each = {size: found[size]["pause ms"] for size in found}
    return Result(of_each["16x"]["worst"], LONGEST_MS, of_each)


def duration(context: Context) -> Result:
    found = dumps(context)
    of_each = {size: found[size]["dump s"] for size in found}
    return Result(of_each["16x"]["median"], 16 * of_each["1x"]["median"], of_each)


_LOAD = (
    "a real server, store memory, synced every second; eight connections send, get and acknowledge, a command every "
    f"millisecond in all, while another says L.DUMP queues; {ROUNDS} rounds"
)

CASES = [
    Case(
        "queues_dump_wait",
        "ms",
        "the longest that any command waited while a dump of a million queues with two million messages of 100 B was "
        f"written: {_LOAD}, the worst. Beside it, for 1/16, 1/4 and all of them, the median and the worst of the "
        "waits, of those in as long a time without a dump, of the pause that the dump reports and of its length; and "
        "where in the dump the worst wait was (0: at its start, 1: at its end). Base: what it may be",
        wait,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "queues_dump_growth",
        "ms",
        "the same, median of the rounds; base: with 1/16 of the queues. A longer time has a longer longest wait by "
        f"itself: beside it those in as long a time without a dump. {_LOAD}",
        growth,
        bar=0.5,
        less_is_better=True,
    ),
    Case(
        "queues_dump_pause",
        "ms",
        "the pause that those dumps report, the worst of the largest; base: what a command may wait",
        pause,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "queues_dump_length",
        "s",
        "how long the largest of those dumps took, median; base: sixteen times the smallest",
        duration,
        less_is_better=True,
    ),
]
