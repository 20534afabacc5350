"""The store: writing through channels, opening, compacting, and writing meanwhile."""

from __future__ import annotations

import json
import os
import statistics
import time

from bench.runner import Case, Context, Result, interleave
from bench.store_child import ask
from bench.topic_servers import Wrong

SECONDS = 2.0
ROUNDS = 5
ENTRIES = 2_000_000
KEYS = 500_000
OPEN_ENTRIES_S = 1_000_000.0
COMPACT_ENTRIES_S = 500_000.0
MOST_MIB = 512.0


def write(context: Context) -> Result:
    """Two threads with a channel each; the base writes the same bytes to two files with as many syncs."""
    seconds = SECONDS if context.scale >= 1 else 0.2
    runs: list[dict[str, float]] = []

    def ours() -> float:
        runs.append(ask("write", context.fresh("store"), str(seconds)))
        context.fresh("store")
        return runs[-1]["puts/s"]

    def base() -> float:
        if not runs:
            ours()
        return raw_writes(context, runs[-1])

    found = interleave(ours, base, ROUNDS if context.scale >= 1 else 1, statistics.median)
    last = runs[-1]
    extra = {"syncs": last["syncs"], "epochs": last["epochs"], "MB/s": last["bytes"] / last["seconds"] / 1e6}
    return Result(*found, {**extra, "compiled": bool(last["is_compiled"])})


def raw_writes(context: Context, run: dict[str, float]) -> float:
    """Puts a second that plain write(2) and fdatasync(2) would make of the same bytes."""
    folder = context.fresh("base")
    os.makedirs(folder)
    sessions, syncs = int(run["puts"]) // 100, max(int(run["syncs"]), 1)
    chunk = os.urandom(int(run["bytes"]) // sessions)
    handles = [os.open(os.path.join(folder, str(number)), os.O_WRONLY | os.O_CREAT | os.O_APPEND) for number in (0, 1)]
    started = time.perf_counter()
    done = 0
    for number in range(sessions):
        os.write(handles[number % 2], chunk)
        if (number + 1) * syncs // sessions > done:
            os.fdatasync(handles[done % 2])
            done += 1
    seconds = time.perf_counter() - started
    for handle in handles:
        os.close(handle)
    context.fresh("base")
    return sessions * 100 / seconds


def opening(context: Context) -> Result:
    entries, keys = context.scaled(ENTRIES, 2000), context.scaled(KEYS, 500)
    folder = context.fresh("store")
    ask("fill", folder, str(entries), str(keys))
    found = [ask("open", folder) for _ in range(3 if context.scale >= 1 else 1)]
    context.fresh("store")
    if any(one["entries"] != entries for one in found):
        raise Wrong(f"{entries} entries were written, opening read {[one['entries'] for one in found]}")
    best = min(found, key=lambda one: one["seconds"])
    extra = {
        "of a bare scan": best["scan seconds"] / best["seconds"],
        "peak MiB": best["peak MiB"],
        "compiled": bool(best["is_compiled"]),
    }
    return Result(entries / best["seconds"], OPEN_ENTRIES_S, extra)


def compacted(context: Context) -> dict[str, float]:
    """Done once for the two cases that ask."""
    if "store compacted" in context.kept:
        known: dict[str, float] = json.loads(context.kept["store compacted"])
        return known
    entries, keys = context.scaled(10_000_000, 2000), context.scaled(1_000_000, 200)
    folder = context.fresh("store")
    context.need_room(entries * 170)
    ask("fill", folder, str(entries), str(keys))
    found = ask("compact", folder)
    context.fresh("store")
    if found["entries read"] != entries or found["entries live"] > keys:
        raise Wrong(f"{entries} entries of {keys} keys were written: {found}")
    context.kept["store compacted"] = json.dumps(found)
    return found


def compacting(context: Context) -> Result:
    found = compacted(context)
    return Result(found["entries read"] / found["seconds"], COMPACT_ENTRIES_S, found)


def compacting_memory(context: Context) -> Result:
    found = compacted(context)
    return Result(found["peak MiB"], MOST_MIB, found)


def writing_meanwhile(context: Context) -> Result:
    """Puts a second during a compaction that goes on elsewhere, and right after it without one."""
    entries, keys = context.scaled(4_000_000, 2000), context.scaled(1_000_000, 200)
    folder = context.fresh("store")
    context.need_room(entries * 170 * 2)
    ask("fill", folder, str(entries), str(keys))
    found = ask("write_meanwhile", folder, "3" if context.scale >= 1 else "0.2")
    context.fresh("store")
    return Result(found["during puts/s"], found["without puts/s"], found)


CASES = [
    Case(
        "store_write",
        "puts/s",
        "two threads, a channel each, sessions of 100 puts of 100 B, epochs of 40 ms, median; base: the same bytes in "
        "plain writes of a session each to two files, and as many syncs",
        write,
        bar=0.6,
    ),
    Case(
        "store_open",
        "entries/s",
        "opening a store whose two million entries of 500 000 keys are in files of channels, best of three; base: what "
        "it must reach. Beside it the ratio to a bare scan of the same files. Not included: starting Python",
        opening,
        bar=1.0,
    ),
    Case(
        "store_compact",
        "entries/s",
        "compacting ten million entries of a million keys, from the request to the commit; base: what it must reach",
        compacting,
        bar=1.0,
    ),
    Case(
        "store_compact_memory",
        "MiB",
        "the most memory that the process which compacts takes; base: what it may",
        compacting_memory,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "store_write_meanwhile",
        "puts/s",
        "puts while four million entries are compacted in another process; base: the same store without a compaction",
        writing_meanwhile,
        bar=0.7,
    ),
]
