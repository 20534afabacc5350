"""The jobs engine by itself: replay, memory per job, and the start after a long history."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from bench import rivals
from bench.runner import Case, Context, Result

REPLAYED = 300_000
WAITING = 1_000_000
FINISHED = 1_000_000
ALIVE = 10_000
FLOOR = 500_000  # records a second
LIMIT = 1000  # bytes a job
ROUNDS = 5


def _start(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-m", "bench.jobs_child", *words], stdout=subprocess.PIPE, text=True)


def _ask(*words: str) -> dict[str, float]:
    child = _start(*words)
    said, _ = child.communicate()
    if child.returncode:
        raise RuntimeError(f"{' '.join(words)}: ended with {child.returncode}")
    answer: dict[str, float] = json.loads(said.splitlines()[-1])
    return answer


def replay(context: Context) -> Result:
    folder = context.fresh("jobs")
    _ask("fill", folder, str(context.scaled(REPLAYED // 3, 1000)))
    found = [_ask("replay", folder) for _ in range(ROUNDS)]
    rates = [one["records"] / one["replay_s"] for one in found]
    scans = [one["records"] / max(one["scan_s"], 1e-9) for one in found]
    extra = {
        "records": int(found[0]["records"]),
        "of the bare scan": statistics.median(rates) / statistics.median(scans),
        "compiled": bool(found[0]["is_compiled"]),
    }
    return Result(statistics.median(rates), FLOOR, extra)


def memory(context: Context) -> Result:
    count = context.scaled(WAITING, 10_000)
    found = _ask("memory", context.fresh("jobs"), str(count))
    return Result(found["bytes_per_job"], LIMIT, {"jobs": count, "compiled": bool(found["is_compiled"])})


def restart(context: Context) -> Result:
    """Both bounds are measured the same way: a real server, from its start to its line."""
    count, alive = context.scaled(FINISHED, 2000), context.scaled(ALIVE, 100)
    empty, live, after = context.fresh("empty"), context.fresh("live"), context.fresh("after")
    _history(live, 0, alive)
    _history(after, count, alive)
    seconds: dict[str, list[float]] = {empty: [], live: [], after: []}
    for _ in range(ROUNDS):
        for folder, found in seconds.items():
            started = time.perf_counter()
            with rivals.workq_server(folder, "os"):
                found.append(time.perf_counter() - started)
    of_empty, of_live, ours = (statistics.median(found) * 1000 for found in seconds.values())
    extra = {"empty ms": of_empty, "live set only ms": of_live, "finished": count, "alive": alive}
    return Result(ours, 2 * of_empty + max(of_live - of_empty, 0), extra)


def _history(folder: str, count: int, alive: int) -> None:
    child = _start("history", folder, str(count), str(alive))
    try:
        assert child.stdout is not None
        if child.stdout.readline() != "done\n":
            raise RuntimeError("the history did not get to its end")
    finally:
        child.kill()
        child.communicate()


CASES = [
    Case(
        "jobs_replay",
        "records/s",
        "JobEngine.open of a log of add, start-attempt and complete records, processor time of one core, median of 5; "
        "base: what it must reach. 'of the bare scan' is the ratio to scanning and checking the same files. Not "
        "included: starting Python, its imports",
        replay,
        bar=1.0,
    ),
    Case(
        "jobs_memory",
        "B/job",
        "growth of resident memory per waiting job of 100 B at a million jobs; base: what it may take. Not included: "
        "Python itself, the log's buffers of the operating system",
        memory,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "jobs_restart",
        "ms",
        "start of a real server until it listens, after a million jobs were completed and expired, ten thousand are "
        "alive, and the one before was killed; base: twice the start on an empty folder plus the live set. Python's "
        "own start is in all of them",
        restart,
        bar=1.0,
        less_is_better=True,
    ),
]
