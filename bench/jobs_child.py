"""What is measured of the jobs engine in a fresh process: ``python -m bench.jobs_child ORDER ...``, one JSON line."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
import time
from collections.abc import Callable

from lamina.engines.jobs import IS_COMPILED
from lamina.engines.jobs.engine import JobEngine
from lamina.engines.jobs.upkeep import Upkeep
from lamina.log import OS, LogOptions, Reader

PAYLOAD = os.urandom(100)
OPTIONS = LogOptions(sync=OS)
HOUR_MS = 3_600_000


def new_id() -> bytes:
    id = bytearray(os.urandom(16))
    id[6], id[8] = id[6] & 0x0F | 0x40, id[8] & 0x3F | 0x80
    return bytes(id)


def _memory() -> int:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


def memory(folder: str, count: str) -> dict[str, float]:
    """Bytes of memory per waiting job."""
    with_jobs = JobEngine.open(folder, options=OPTIONS)
    gc.collect()
    before = _memory()
    for number in range(int(count)):
        with_jobs.add(new_id(), "bench", 60_000, HOUR_MS, PAYLOAD[8:] + number.to_bytes(8, "big"))
    with_jobs.settle(with_jobs.log.position)
    gc.collect()
    grown = _memory() - before
    with_jobs.close()
    return {"bytes_per_job": grown / int(count), "is_compiled": IS_COMPILED}


def fill(folder: str, count: str) -> dict[str, float]:
    """A log of jobs that were added, leased and completed, for the replay."""
    engine = JobEngine.open(folder, options=OPTIONS)
    for _ in range(int(count)):
        engine.add(new_id(), "bench", 60_000, HOUR_MS, PAYLOAD)
    while jobs := engine.lease(["bench"], 1000)[0]:
        for job in jobs:
            engine.complete(job.id, b"")
    engine.close()
    return {}


def replay(folder: str) -> dict[str, float]:
    """How fast the log becomes the state again, beside a scan of the same files that only checks them."""
    started = time.process_time()
    records = sum(len(batch.times) for _, batch in Reader(folder).batches())
    scanned = time.process_time()
    engine = JobEngine.open(folder, options=OPTIONS)
    replayed = time.process_time()
    jobs = len(engine.state.jobs)
    engine.close()
    return {
        "records": records,
        "jobs": jobs,
        "scan_s": scanned - started,
        "replay_s": replayed - scanned,
        "is_compiled": IS_COMPILED,
    }


def history(folder: str, count: str, live: str) -> dict[str, float]:
    """Complete and expire jobs, leave some alive, and wait to be killed."""
    engine = JobEngine.open(folder, options=OPTIONS)
    upkeep = Upkeep(engine)
    upkeep.start()
    for _ in range(int(live)):
        engine.add(new_id(), "alive", 60_000, HOUR_MS, PAYLOAD)
    for _ in range(int(count) // 1000):
        for _ in range(1000):
            engine.add(new_id(), "bench", 60_000, 100, PAYLOAD)
        for job in engine.lease(["bench"], 1000)[0]:
            engine.complete(job.id, b"done")
        engine.tick()
    while len(engine.state.jobs) > int(live):
        time.sleep(0.05)
        engine.tick()
    engine.settle(engine.log.position)
    time.sleep(1.5)  # the upkeep has had its chance
    sys.stdout.write("done\n")
    sys.stdout.flush()
    signal.pause()
    return {}


ORDERS: dict[str, Callable[..., dict[str, float]]] = {
    "memory": memory,
    "fill": fill,
    "replay": replay,
    "history": history,
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(ORDERS[sys.argv[1]](*sys.argv[2:])) + "\n")
