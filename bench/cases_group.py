"""Group commit: how many appends one physical sync serves when several appenders wait for theirs."""

from __future__ import annotations

import asyncio
import statistics
import threading
import time
from collections.abc import Callable

from bench.cases_append import encode, make_payloads, opened, run_base
from bench.runner import Case, Context, Result
from lamina.log import ALWAYS, Level, Log

APPENDS = {1: 1000, 8: 4000, 64: 16000}  # in all, of 100 B each
ROUNDS = 5


def by_threads(log: Log, payload: bytes, appenders: int, each: int) -> float:
    """Seconds until every thread has appended ``each`` records, waiting for the sync of every one."""
    ready = threading.Barrier(appenders + 1)

    def append() -> None:
        ready.wait()
        for _ in range(each):
            log.append(payload, until=Level.SYNCED)

    threads = [threading.Thread(target=append) for _ in range(appenders)]
    for thread in threads:
        thread.start()
    ready.wait()
    started = time.perf_counter()
    for thread in threads:
        thread.join()
    return time.perf_counter() - started


def by_coroutines(log: Log, payload: bytes, appenders: int, each: int) -> float:
    """The same by coroutines of one loop."""

    async def append() -> None:
        for _ in range(each):
            await log.reached(log.append(payload))

    async def all() -> float:
        started = time.perf_counter()
        await asyncio.gather(*(append() for _ in range(appenders)))
        return time.perf_counter() - started

    return asyncio.run(all())


Way = Callable[[Log, bytes, int, int], float]


def compare(context: Context, way: Way, appenders: int) -> Result:
    payloads = make_payloads(100, 1)
    chunk = encode(payloads)
    each = context.scaled(APPENDS[appenders], 2 * appenders) // appenders
    per_sync, rates, base_rates = [], [], []
    for _ in range(ROUNDS if context.scale >= 1 else 1):
        with opened(context.fresh("group"), ALWAYS, payloads) as log:
            calls, syncs = log.stats.calls, log.stats.syncs
            seconds = way(log, payloads[0], appenders, each)
            per_sync.append((log.stats.calls - calls) / (log.stats.syncs - syncs))
            rates.append(appenders * each / seconds)
        base_rates.append(run_base(context, ALWAYS, chunk, 1, context.scaled(400, 5)))
    context.fresh("group")
    rate, base_rate = statistics.median(rates), statistics.median(base_rates)
    extra = {"appends/s": rate, "base appends/s": base_rate, "speedup": rate / base_rate}
    return Result(statistics.median(per_sync), 1.0, extra)


def _case(name: str, way: Way, who: str, appenders: int, bar: float | None = None) -> Case:
    what = (
        f"appends of 100 B per physical sync, policy always, {appenders} {who} that each wait for every append; "
        "base: one append per sync. Beside it appends/s, and those of a bare write+fdatasync loop. "
        "Not included: starting the appenders, opening, close"
    )
    return Case(name, "appends/sync", what, lambda context: compare(context, way, appenders), bar)


CASES = [
    _case("group_commit_1", by_threads, "thread", 1),
    _case("group_commit_8", by_threads, "threads", 8),
    _case("group_commit_64", by_threads, "threads", 64, bar=20.0),
    _case("group_commit_async_64", by_coroutines, "coroutines", 64),
]
