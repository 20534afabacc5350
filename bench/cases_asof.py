"""Going back to a time: what it costs as history grows, before the time and after it."""

from __future__ import annotations

import os
import time

from bench.runner import Case, Context, Result
from bench.topic_servers import Wrong
from lamina.clock import ManualClock
from lamina.log import LogOptions, Reader
from lamina.log.sync import OS
from lamina.log.writer import Log
from lamina.pipeline.jobs.asof import as_of

RECORDS = 200_000
PAYLOAD = b"x" * 100
START = 1_700_000_000 * 10**9


def growing(context: Context) -> Result:
    """Restoring a plain log: to the end of histories of 1x, 4x and 16x, and to the first sixteenth of the longest."""
    count = context.scaled(RECORDS, 1000)
    context.need_room(count * 16 * 130 * 3)
    extra: dict[str, float] = {}
    moments: dict[int, int] = {}
    data = context.fresh("data")
    clock = ManualClock(START)
    written = 0
    for times in (1, 4, 16):
        log = Log.open(f"{data}/logs/x", clock=clock, options=LogOptions(segment_bytes=8 << 20, sync=OS))
        while written < count * times:
            clock.advance(0.001)
            log.append_many([PAYLOAD] * 100)
            written += 100
        log.close()
        clock.advance(1)
        moments[times] = clock.now_ns()
        clock.advance(1)
        extra[f"{times}x s"] = _restore(context, data, moments[times], written)
    extra["1x of 16x s"] = _restore(context, data, moments[1], count)
    context.fresh("data")
    return Result(extra["1x of 16x s"], extra["1x s"] * 4, extra)


def _restore(context: Context, data: str, moment: int, expected: int) -> float:
    to = os.path.join(context.fresh("then"), "data")
    start = time.perf_counter()
    as_of(data, moment, restore=to)
    taken = time.perf_counter() - start
    found = sum(1 for _ in Reader(f"{to}/logs/x").read())
    if found != expected:
        raise Wrong(f"{found} records were restored, not {expected}")
    context.fresh("then")
    return taken


CASES = [
    Case(
        "asof_growth",
        "s",
        "restoring a log of 200 000 records as of its end, as of the end of four and of sixteen times as much, and as "
        "of the end of the first in the longest: its cost is that of the history up to the time. Ours: the last; base: "
        "four times what the first took",
        growing,
        bar=1.0,
        less_is_better=True,
    )
]
