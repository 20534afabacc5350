"""A server on a topic of 2 GB: how soon it answers after a start, and what memory it takes."""

from __future__ import annotations

import json
import statistics
import threading
import time

from bench.cases_topics_files import BIG, LEAST, OF_REDIS, PAGE, TOTAL, big_topic, redis_topic
from bench.cases_topics_wire import publish
from bench.runner import Case, Context, Result
from bench.topic_servers import TOPIC, Server, Wire, Wrong, find_redis, lamina, redis, redis_benchmark
from lamina.client.resp import RespClient

STARTS = 5
NEWEST = 100_000  # entries that a server had taken before it was killed
READY_MS = 1000.0
MEMORY_MIB = 200.0
PUBLISHED_VALUE = 1000
PAUSE_S = 0.05  # of the slow reader, between two pages


def starts(context: Context) -> dict[str, float]:
    """Medians of several starts on the topic, in turn after an orderly stop and after a kill. Done once."""
    if "topic starts" not in context.kept:
        folder, entries = big_topic(context)
        stopped, killed, memory = list[float](), list[float](), list[float]()
        for _ in range(STARTS if context.scale >= 1 else 1):
            for times in (stopped, killed):
                with lamina(folder, "interval") as server, Wire(server.address) as wire:
                    asked = time.perf_counter()
                    wire.add(b"first")
                    times.append((server.ready_s + time.perf_counter() - asked) * 1000)
                    memory.append(server.memory_mib())
                    if server.length < entries:
                        raise Wrong(f"{entries} entries were added, there are {server.length}")
                    entries = server.length + 1
                    if times is killed:
                        server.stop()
                    else:
                        publish(server.address, context.scaled(NEWEST, 1000))
                        entries += context.scaled(NEWEST, 1000)
        found = {"stopped ms": statistics.median(stopped), "killed ms": statistics.median(killed)}
        context.kept["topic starts"] = json.dumps(found | {"MiB": max(memory), "entries": entries})
    kept: dict[str, float] = json.loads(context.kept["topic starts"])
    return kept


def restart(context: Context) -> Result:
    found = starts(context)
    return Result(max(found["stopped ms"], found["killed ms"]), READY_MS, found)


def restart_memory(context: Context) -> Result:
    found = starts(context)
    return Result(found["MiB"], MEMORY_MIB, found)


def restart_redis(context: Context) -> Result:
    redis_folder, fewer = redis_topic(context)
    entries = big_topic(context)[1]
    found = starts(context)
    with redis(context.fresh("redis"), "interval") as server:
        empty = server.ready_s * 1000
    with redis(redis_folder, "interval") as server:
        if server.length != fewer:
            raise Wrong(f"Redis has {server.length} entries and not {fewer}")
        measured, memory = server.ready_s * 1000, server.memory_mib()
    extra = {"redis entries": fewer, "redis ms": measured, "redis empty ms": empty, "redis MiB": memory}
    theirs = empty + max(measured - empty, 0) * entries / fewer
    extra["ratio after a kill"] = theirs / found["killed ms"]
    return Result(found["stopped ms"], theirs, found | extra)


# -- memory -----------------------------------------------------------------------------------------------------------


def memory(context: Context) -> Result:
    find_redis("redis-benchmark")
    total = context.scaled(TOTAL, LEAST)
    context.need_room(total)
    with lamina(context.fresh("lamina"), "interval") as server:
        with _SlowReader(server) as reader:
            rate = redis_benchmark(server, total // PUBLISHED_VALUE, 16, PUBLISHED_VALUE)
        most = server.memory_mib("VmHWM")
        extra = {"now": server.memory_mib(), "entries/s": rate, "pages read": reader.pages}
    context.fresh("lamina")
    if not reader.came_to_its_end:
        raise Wrong(f"the slow reader got no further than page {reader.pages}")
    return Result(most, MEMORY_MIB, extra)


class _SlowReader:
    """Reads a topic from its start with pauses, in a thread, while the block runs."""

    def __init__(self, server: Server) -> None:
        self.pages = 0
        self.came_to_its_end = False
        """Without an error."""
        self._client = RespClient(*server.address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> _SlowReader:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._client.close()

    def _read(self) -> None:
        last_id = b"0-0"
        while not self._is_over.wait(PAUSE_S):
            found = self._client.ask("XREAD", "COUNT", PAGE, "STREAMS", TOPIC, last_id)
            if found:
                last_id = found[0][1][-1][0]
                self.pages += 1
        self.came_to_its_end = True


_STARTED = (
    f"lamina serve on {BIG}, from exec until XLEN and the first XADD are answered, Python's own start included; median "
    "of several starts"
)

CASES = [
    Case(
        "topics_restart_2GB",
        "ms",
        f"{_STARTED} after an orderly stop, or of those after kill -9 behind {NEWEST} new entries if that is more; "
        "base: what it may take",
        restart,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "topics_restart_2GB_memory",
        "MiB",
        "resident memory of the server after such starts, the largest; base: what it may take. The page cache is the "
        "system's and not counted",
        restart_memory,
        bar=1.0,
        less_is_better=True,
    ),
    Case(
        "topics_restart_2GB_redis",
        "ms",
        f"{_STARTED} after an orderly stop; base: Redis from exec until XLEN is answered, with an append-only file of "
        f"1/{OF_REDIS} of the same entries; what that took longer than an empty one is taken {OF_REDIS} times",
        restart_redis,
        bar=50.0,
        less_is_better=True,
    ),
    Case(
        "topics_memory_2GB",
        "MiB",
        f"the most resident memory of a server while 2 GB in entries of {PUBLISHED_VALUE} B are published by "
        "redis-benchmark -c 50 -P 16 and one reader follows slowly from the start; base: what it may take",
        memory,
        bar=1.0,
        less_is_better=True,
    ),
]
