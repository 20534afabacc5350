"""A log of 4 GiB: opening it after an orderly stop and after kill -9, and reading it as of a time."""

from __future__ import annotations

import random
import statistics
import time
from array import array
from bisect import bisect_left

from bench.cases_scan import make_log
from bench.runner import GIB, Case, Context, Result, ask_child, start_child
from lamina.log import OS, Log, LogOptions, Reader
from lamina.units import MIB

PAYLOAD = 1024
TOTAL = 4 * GIB
NEWEST = 48 * MIB  # what the killed writer had written since it started
ROUNDS = 5
SEEKS = 200


def big_log(context: Context) -> str:
    """The folder of the log, made when first asked for."""
    if "big" not in context.kept:
        total = context.scaled(TOTAL)
        context.need_room(total)
        context.say(f"making a log of {total / GIB:.1f} GiB")
        folder = context.fresh("big")
        make_log(folder, PAYLOAD, total)
        context.kept["big"] = folder
    return context.kept["big"]


def open_clean(context: Context) -> Result:
    folder = big_log(context)
    with Log.open(folder, options=LogOptions(sync=OS)) as log:  # another case may have left it unclean
        log.append_many([bytes(PAYLOAD)] * 1000)
    found = [ask_child("open", folder) for _ in range(ROUNDS)]
    if not all(one["was_clean"] for one in found):
        raise RuntimeError("the log was closed in order and found unclean")
    times = [one["open_ms"] for one in found]
    return Result(statistics.median(times), 50.0, {"worst": max(times)})


def open_killed(context: Context, policy: str) -> Result:
    folder = big_log(context)
    found = []
    for _ in range(ROUNDS):
        writer = start_child("write", folder, policy, str(context.scaled(NEWEST)))
        assert writer.stdout is not None
        if writer.stdout.readline() != "acknowledged\n":
            raise RuntimeError("the writer did not get to its acknowledgement")
        writer.kill()
        writer.communicate()
        found.append(ask_child("open", folder))
    if any(one["was_clean"] for one in found):
        raise RuntimeError("the writer was killed and the log found clean")
    ours, base = (statistics.median(one[key] for one in found) for key in ("open_ms", "scan_ms"))
    return Result(ours, base, {"newest_MiB": found[-1]["newest_bytes"] / MIB})


def as_of(context: Context) -> Result:
    folder = big_log(context)
    times = array("q")
    for _, batch in Reader(folder).batches():
        times.extend(at for at, size in zip(batch.times, batch.lengths, strict=True) if size == PAYLOAD)
    some = random.Random(4)  # half of them between records, half exactly at one
    targets = [some.randint(times[0], times[-1]) for _ in range(SEEKS // 2)]
    targets += [times[some.randrange(len(times))] for _ in range(SEEKS // 2)]
    some.shuffle(targets)

    reader = Reader(folder)
    first_ms = _seek(reader, times[len(times) // 2], times)
    seeks = sorted(_seek(reader, target, times) for target in targets)
    extra = {"median": statistics.median(seeks), "worst": seeks[-1], "first": first_ms}
    return Result(seeks[len(seeks) * 99 // 100 - 1], 5.0, extra)


def _seek(reader: Reader, target: int, times: array[int]) -> float:
    """Milliseconds until the first record at or after ``target`` is there. Raises: RuntimeError if it is another."""
    started = time.perf_counter()
    record = next(iter(reader.read(since=target)))
    took = time.perf_counter() - started
    if record.time_ns != times[bisect_left(times, target)]:
        raise RuntimeError(f"as of {target} gave the record of {record.time_ns}")
    return took * 1000


_KILLED = (
    "Log.open in a fresh process of a 4 GiB log whose writer was killed after an acknowledgement, the newest segment "
    "48 MiB; base: scanning that segment with FileScan just before. "
)

CASES = [
    Case(
        "open_clean_4GB",
        "ms",
        "Log.open in a fresh process after an orderly close, files in the page cache; base: what it may take. "
        "Not included: starting Python, its imports",
        open_clean,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "open_killed_4GB",
        "ms",
        _KILLED + "Policy always, so all was synced. Not included: starting Python, its imports",
        lambda context: open_killed(context, "always"),
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "open_killed_os_4GB",
        "ms",
        _KILLED + "Policy os: opening also syncs what never was, which the disk decides. Not included: imports",
        lambda context: open_killed(context, "os"),
        less_is_better=True,
    ),
    Case(
        "asof_4GB",
        "ms",
        "p99 over 200 random as-of reads until the first record is there, after one first read, files in the page "
        "cache, every answer checked; base: what it may take. Not included: making the reader, the first read",
        as_of,
        bar=1.0,
        less_is_better=True,
    ),
]
