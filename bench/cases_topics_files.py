"""Topics that are in files: pages and single entries of a topic of 2 GB, over the wire."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from contextlib import suppress

from bench.cases_topics_wire import in_turn
from bench.runner import Case, Context, Result, Skipped
from bench.topic_entries import id_of, shown
from bench.topic_servers import TOPIC, Server, Wire, Wrong, command, find_redis, lamina, redis
from lamina.engines.topics.tail import MOST_BYTES
from lamina.log.folders import folder_name

TOTAL = 2_000_000_000
LEAST = 4 * MOST_BYTES  # bytes of the smallest topic
OF_REDIS = 8  # the part of the entries that Redis gets: it needs memory for them all
PAGE = 1000
WALKED = 300_000
SINGLES = 20_000
BIG = "a topic of 2 GB of entries of 100 B, files in the page cache"


def _child(*words: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.topics_child", *words], stdout=subprocess.PIPE, text=True, check=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def big_topic(context: Context) -> tuple[str, int]:
    """A data folder and how many entries its topic has, made when first asked for. Nothing of it is in a tail."""
    if "topics" not in context.kept:
        total = context.scaled(TOTAL, LEAST)
        context.need_room(total)
        context.say(f"making a topic of {total / 1e9:.1f} GB")
        folder = context.fresh("topics")
        made = _child("fill", os.path.join(folder, "topics", folder_name(TOPIC)), str(total))
        context.kept["topics"] = json.dumps([folder, int(made["entries"])])
    folder, entries = json.loads(context.kept["topics"])
    return folder, entries


def redis_topic(context: Context) -> tuple[str, int]:
    """The folder of a Redis with the first of the same entries, and how many. Raises: Skipped."""
    find_redis()
    if "redis topics" not in context.kept:
        entries = max(big_topic(context)[1] // OF_REDIS, 2 * PAGE)
        folder = context.fresh("redis-topics")
        _child("append_only_file", folder, str(entries))
        context.kept["redis topics"] = json.dumps([folder, entries])
    folder, entries = json.loads(context.kept["redis topics"])
    return folder, entries


# -- reading ---------------------------------------------------------------------------------------------------------


def xread(context: Context) -> Result:
    redis_folder, there = redis_topic(context)
    walked = min(WALKED, there) // PAGE * PAGE
    pages = [_page(first) for first in range(0, walked, PAGE)]
    # One walk by each to see that every byte is right; it also brings the files into the page cache.
    with lamina(big_topic(context)[0], "interval") as ours, redis(redis_folder, "interval") as base:
        for server in (ours, base):
            with Wire(server.address) as wire:
                for request, expected in pages:
                    if wire.take(request, len(expected)) != expected:
                        raise Wrong(f"{request!r} was answered with other entries than were added")
        asked = [(request, len(expected)) for request, expected in pages]
        result = in_turn(context, lambda: walk(ours, asked), lambda: walk(base, asked))
    return Result(result.ours, result.base, {**result.extra, "entries": walked})


def _page(first: int) -> tuple[bytes, bytes]:
    """What is asked and what has to be answered."""
    request = command("XREAD", "COUNT", str(PAGE), "STREAMS", TOPIC, id_of(first - 1))
    entries = b"".join(map(shown, range(first, first + PAGE)))
    return request, b"*1\r\n*2\r\n$1\r\n%b\r\n*%d\r\n" % (TOPIC, PAGE) + entries


def walk(server: Server, pages: list[tuple[bytes, int]]) -> float:
    """Entries a second of one client that takes page after page."""
    with Wire(server.address) as wire:
        started = time.perf_counter()
        for request, size in pages:
            wire.take(request, size)
        seconds = time.perf_counter() - started
    return len(pages) * PAGE / seconds


def xrange_one(context: Context) -> Result:
    folder, entries = big_topic(context)
    count = context.scaled(SINGLES, 500)
    with lamina(folder, "interval") as server:
        times = _singles(server, entries, count)
    extra = {"median": statistics.median(times), "worst": times[-1], "entries": entries, "asked": count}
    extra["slower than 1 ms"] = sum(each > 1 for each in times)
    with suppress(Skipped):  # only to compare with
        redis_folder, fewer = redis_topic(context)
        with redis(redis_folder, "interval") as server:
            theirs = _singles(server, fewer, count)
        extra |= {"redis entries": fewer, "redis median": statistics.median(theirs), "redis p99": _p99(theirs)}
    return Result(_p99(times), 1.0, extra)


def _singles(server: Server, entries: int, count: int) -> list[float]:
    """Milliseconds until an entry is there, of random ones, sorted. Raises: Wrong if it is another."""
    some, times = random.Random(4), []
    with Wire(server.address) as wire:
        for _ in range(count):
            number = some.randrange(entries)
            request, expected = command("XRANGE", TOPIC, id_of(number), id_of(number)), b"*1\r\n" + shown(number)
            started = time.perf_counter()
            answer = wire.take(request, len(expected))
            times.append((time.perf_counter() - started) * 1000)
            if answer != expected:
                raise Wrong(f"{request!r} was answered {bytes(answer)!r}")
    return sorted(times)


def _p99(times: list[float]) -> float:
    return times[max(len(times) * 99 // 100 - 1, 0)]


CASES = [
    Case(
        "topics_xread_files",
        "entries/s",
        "XREAD COUNT 1000 of 100 B by one client that walks through old entries, which are in files in the page cache "
        "and not in the server's memory; base: Redis, which has them in memory. Every byte was checked before; the "
        "client only takes as many as must come. The median of the ratios. Not included: starting the servers",
        xread,
        bar=0.5,
    ),
    Case(
        "topics_xrange_one_2GB",
        "ms",
        f"p99 of XRANGE of one entry at random ids of {BIG}, from the server's start on, every answer checked; base: "
        f"what it may take. Redis is in the JSON, with 1/{OF_REDIS} of the entries",
        xrange_one,
        bar=1.0,
        less_is_better=True,
    ),
]
