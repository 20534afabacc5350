"""Compaction of the store on Spark: two cores of this machine, beside one process that does the same."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.runner import Case, Context, Result, Skipped
from bench.topic_servers import Wrong

MB_S = 150.0
ENTRIES, KEYS = 8_000_000, 800_000
CHANNELS = 4
EACH = 100  # puts of a session
VALUE = b"x" * 100


def compacting(context: Context) -> Result:
    if importlib.util.find_spec("pyspark") is None:
        raise Skipped("pyspark is not installed")
    entries, keys = context.scaled(ENTRIES, 4000), context.scaled(KEYS, 400)
    context.need_room(entries * 170 * 2)
    folder, other = context.fresh("store"), context.fresh("other")
    _ask("fill", folder, str(entries), str(keys))
    shutil.copytree(folder, other)
    found, alone = _ask("spark", folder), _ask("alone", other)
    if found["entries read"] != entries or found["crc"] != alone["crc"]:
        raise Wrong(f"{entries} entries of {keys} keys: on Spark {found}, in one process {alone}")
    context.fresh("store")
    context.fresh("other")
    extra = {**found, "one process MB/s": alone["MB/s"], "of one process": found["MB/s"] / alone["MB/s"]}
    return Result(found["MB/s"], MB_S, extra)


CASES = [
    Case(
        "spark_compact",
        "MB/s",
        "compacting 1.3 GB, eight million entries of 800 000 keys in four channels, on local[2], from the request to "
        "the commit; base: what it must reach. The bytes are seen to be those of one process, whose figure is beside "
        "it. Not included: starting Spark, opening the store",
        compacting,
        bar=1.0,
    )
]


# -- in a fresh process ----------------------------------------------------------------------------------------------


def _ask(*words: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.cases_spark_compact", *words], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: ended with {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _fill(folder: str, entries: str, keys: str) -> dict[str, float]:
    import random

    from lamina.engines.store.engine import StoreEngine
    from lamina.engines.store.options import StoreOptions

    chosen, most = random.Random(7), int(keys)
    with StoreEngine.open(folder, options=StoreOptions(epoch_ms=0)) as engine:
        channels = [engine.channel(number) for number in range(CHANNELS)]
        for start in range(0, int(entries), EACH):
            with channels[start // EACH % CHANNELS].begin() as session:
                count = min(EACH, int(entries) - start)
                session.put_many(1, [(b"key%013d" % chosen.randrange(most), VALUE) for _ in range(count)])
            if start % (1000 * EACH) == 0:
                engine.switch_epoch()
    return {}


class _Watched:
    """A runner, and the most memory that a task has seen its process take."""

    def __init__(self, runner: Any) -> None:
        self._runner, self.name = runner, runner.name
        self.peak_mib = 0.0

    def map(
        self,
        function: Callable[[Any], Any],
        tasks: Sequence[Any],
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> list[Any]:
        def run(task: Any) -> tuple[Any, float]:
            result = function(task)
            return result, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024

        found = self._runner.map(run, tasks, progress)
        self.peak_mib = max([self.peak_mib, *(peak for _, peak in found)])
        return [result for result, _ in found]


def _spark(folder: str) -> dict[str, float]:
    from lamina.pipeline.compaction import IS_COMPILED
    from lamina.pipeline.compaction.distributed import compact_with
    from lamina.pipeline.running import SparkRunner
    from lamina.pipeline.starting.session import session

    spark = session(master="local[2]")
    spark.sparkContext.parallelize(range(2), 2).map(lambda number: number).collect()  # the workers are there now
    runner = _Watched(SparkRunner(spark))
    found = _timed(folder, compact_with(runner))
    spark.stop()
    return {**found, "peak MiB of a task": runner.peak_mib, "is_compiled": IS_COMPILED}


def _alone(folder: str) -> dict[str, float]:
    return _timed(folder)


def _timed(folder: str, compact: Any = None) -> dict[str, float]:
    from lamina.engines.store.api import Store
    from lamina.engines.store.options import StoreOptions
    from lamina.log import kernel

    with Store.open(folder, options=StoreOptions(compact_dead_ratio=0)) as store:
        started = time.perf_counter()
        report = store.compact(**({} if compact is None else {"compact": compact}))
        seconds = time.perf_counter() - started
        crc = 0
        for part in store.engine.catalog.parts:
            with open(os.path.join(folder, part.name), "rb") as file:
                crc = kernel.crc32c(file.read(), crc)
    return {
        "MB/s": report.bytes_before / seconds / 1e6,
        "seconds": seconds,
        "entries read": report.entries_read,
        "entries live": report.entries_live,
        "crc": crc,
    }


_ORDERS: dict[str, Callable[..., dict[str, float]]] = {"fill": _fill, "spark": _spark, "alone": _alone}

if __name__ == "__main__":
    print(json.dumps(_ORDERS[sys.argv[1]](*sys.argv[2:])), flush=True)
