"""What is measured in a fresh process: ``python -m bench.child ORDER FOLDER ...``, which answers with one JSON line."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable

from bench.cases_append import POLICIES, make_payloads
from lamina.log import Level, Log, LogOptions, Reader
from lamina.log.files.real import RealFiles
from lamina.log.scan import HEADER_SIZE, FileScan


def _memory_mib(which: str) -> float:
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(which))


def scan(folder: str) -> dict[str, float]:
    """How much memory reading the whole log takes."""
    before = _memory_mib("VmRSS")
    records = sum(len(batch.times) for _, batch in Reader(folder).batches())
    return {"records": records, "growth_mib": max(_memory_mib("VmHWM") - before, 0.01)}


def open_log(folder: str) -> dict[str, float]:
    """How long opening takes, beside the scan of the newest segment and its sync."""
    newest = Reader(folder).segments()[-1].name
    file = RealFiles().open(os.path.join(folder, newest))
    started = time.perf_counter()
    records = sum(len(batch.times) for batch in FileScan(file, HEADER_SIZE))
    scanned = time.perf_counter()
    size = file.size()
    file.close()

    opening = time.perf_counter()
    log = Log.open(folder)
    opened = time.perf_counter()
    was_clean = log.report.was_clean
    log.close()
    return {
        "open_ms": (opened - opening) * 1000,
        "scan_ms": (scanned - started) * 1000,
        "newest_bytes": size,
        "newest_records": records,
        "was_clean": was_clean,
    }


def write_until_killed(folder: str, policy: str, total: str) -> dict[str, float]:
    """Append, say that it was acknowledged, and wait for the end."""
    log = Log.open(folder, options=LogOptions(sync=POLICIES[policy]))
    payloads = make_payloads(1024, 1000)
    position = log.append_many(payloads)
    while log.stats.bytes < int(total):
        position = log.append_many(payloads)
    log.wait(position, POLICIES[policy].level)
    assert log.synced == position or POLICIES[policy].level is Level.WRITTEN
    print("acknowledged", flush=True)
    signal.pause()
    return {}


ORDERS: dict[str, Callable[..., dict[str, float]]] = {
    "scan": scan,
    "open": open_log,
    "write": write_until_killed,
}

if __name__ == "__main__":
    print(json.dumps(ORDERS[sys.argv[1]](*sys.argv[2:])))
