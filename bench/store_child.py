"""What cases of the store do in a fresh process: ``python -m bench.store_child ORDER ...``; it answers with JSON."""

from __future__ import annotations

import json
import os
import random
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable

from lamina.engines.store import IS_COMPILED
from lamina.engines.store.api import Store
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.options import StoreOptions
from lamina.log.files.real import RealFiles
from lamina.log.scan import FileScan

VALUE = b"x" * 100
EACH = 100  # puts of a session
_FEW = 100_000  # keys of a writer
ALONE = StoreOptions(compact_dead_ratio=0)
"""Nothing goes on but what is measured."""


def fill(folder: str, entries: str, keys: str) -> dict[str, float]:
    """A store with so many entries of so many keys, in the files of two channels."""
    chosen = random.Random(7)
    most = int(keys)
    with StoreEngine.open(folder, options=StoreOptions(epoch_ms=0)) as engine:
        channels = [engine.channel(0), engine.channel(1)]
        for start in range(0, int(entries), EACH):
            with channels[start // EACH % 2].begin() as session:
                count = min(EACH, int(entries) - start)
                session.put_many(1, [(b"key%013d" % chosen.randrange(most), VALUE) for _ in range(count)])
            if start % (1000 * EACH) == 0:
                engine.switch_epoch()
    return {}


def write(folder: str, seconds: str) -> dict[str, float]:
    with Store.open(folder, options=ALONE) as store:
        found = _write(store, float(seconds))
        engine = store.engine
        logs = [log for channel in engine.channels.values() if (log := channel.log) is not None]
        found["bytes"] = sum(log.stats.bytes for log in logs)
        found["syncs"] = sum(log.stats.syncs for log in [*logs, engine.epoch_log.log] if log is not None)
    return {**found, "is_compiled": IS_COMPILED}


def _write(store: Store, seconds: float) -> dict[str, float]:
    """Two threads write for so long, and wait until all of it is durable."""
    puts = [0, 0]
    first = store.last_epoch

    def run(number: int) -> None:
        channel = store.channel(number)
        pairs = [(b"key%013d" % (number * _FEW + key), VALUE) for key in range(_FEW)]
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            start = puts[number] % _FEW
            with channel.begin() as session:
                session.put_many(1, pairs[start : start + EACH])
            puts[number] += EACH
        store.wait_durable(session.epoch)

    threads = [threading.Thread(target=run, args=(number,)) for number in (0, 1)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = time.perf_counter() - started
    total = sum(puts)
    return {"puts": total, "seconds": taken, "puts/s": total / taken, "epochs": store.last_epoch - first}


def opened(folder: str) -> dict[str, float]:
    """How fast a store is opened, beside a bare scan of the same files."""
    files = RealFiles()
    started = time.perf_counter()
    for name in os.listdir(folder):
        if name.startswith("pwal_") and not name.endswith(".index"):
            file = files.open(os.path.join(folder, name))
            for _ in FileScan(file):
                pass
            file.close()
    scanned = time.perf_counter() - started
    started = time.perf_counter()
    engine = StoreEngine.open(folder, options=StoreOptions(epoch_ms=0, memory_bytes=1 << 40))
    seconds = time.perf_counter() - started
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    found = {"entries": engine.entries_read, "seconds": seconds, "scan seconds": scanned, "peak MiB": peak}
    engine.close()
    return {**found, "is_compiled": IS_COMPILED}


def compacted(folder: str) -> dict[str, float]:
    """How long a compaction takes, and the memory of the process that does it."""
    with Store.open(folder, options=ALONE) as store:
        started = time.perf_counter()
        report = store.compact()
        seconds = time.perf_counter() - started
    return {
        "seconds": seconds,
        "entries read": report.entries_read,
        "entries live": report.entries_live,
        "bytes before": report.bytes_before,
        "bytes after": report.bytes_after,
        "peak MiB": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024,
        "is_compiled": IS_COMPILED,
    }


def write_meanwhile(folder: str, seconds: str) -> dict[str, float]:
    """Writing while a compaction is going on, and without one."""
    with Store.open(folder, options=ALONE) as store:
        is_over = threading.Event()

        def compact() -> None:
            store.compact()
            is_over.set()

        thread = threading.Thread(target=compact)
        thread.start()
        rates = []
        while not is_over.is_set():
            found = _write(store, min(float(seconds), 0.5))
            if not is_over.is_set():  # the compaction was going on all the time
                rates.append(found["puts/s"])
        thread.join()
        without = [_write(store, min(float(seconds), 0.5))["puts/s"] for _ in range(max(len(rates), 1))]
    during = sum(rates) / len(rates) if rates else found["puts/s"]
    return {"during puts/s": during, "without puts/s": sum(without) / len(without), "rounds": len(rates)}


ORDERS: dict[str, Callable[..., dict[str, float]]] = {
    "fill": fill,
    "write": write,
    "open": opened,
    "compact": compacted,
    "write_meanwhile": write_meanwhile,
}


def ask(*words: str) -> dict[str, float]:
    """Have an order done by a fresh process. Returns what it found."""
    done = subprocess.run([sys.executable, "-m", "bench.store_child", *words], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: ended with {done.returncode}")
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


if __name__ == "__main__":
    print(json.dumps(ORDERS[sys.argv[1]](*sys.argv[2:])), flush=True)
