"""Reading a whole log with every checksum checked, against read(2) of the same bytes; and the memory it takes."""

from __future__ import annotations

import os
import time

from bench.cases_append import make_payloads
from bench.runner import GIB, Case, Context, Result, ask_child, interleave
from lamina.log import OS, Log, LogOptions, Reader
from lamina.units import MIB

BUFFER = 256 << 10
MOST_GROWTH_MIB = 64


def make_log(folder: str, payload_size: int, total: int) -> int:
    """Fill a new log with at least ``total`` bytes and close it in order. Returns the number of records."""
    payloads = make_payloads(payload_size, 1000)
    with Log.open(folder, options=LogOptions(sync=OS)) as log:
        while log.stats.bytes < total:
            log.append_many(payloads)
        return log.stats.records


def run_ours(folder: str) -> tuple[float, int]:
    """Bytes a second through the reader, and how many records it gave."""
    records = bytes = 0
    started = time.perf_counter()
    for _, batch in Reader(folder).batches():
        records += len(batch.times)
        bytes += batch.end - batch.base
    return bytes / (time.perf_counter() - started), records


def run_base(paths: list[str]) -> float:
    """Bytes a second of plain reads into one buffer."""
    buffer = memoryview(bytearray(BUFFER))
    bytes = 0
    started = time.perf_counter()
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        at = 0
        while count := os.preadv(handle, [buffer], at):
            at += count
        os.close(handle)
        bytes += at
    return bytes / (time.perf_counter() - started)


def compare_scan(context: Context) -> Result:
    folder = context.fresh("scan")
    expected = make_log(folder, 200, context.scaled(512 * MIB))
    paths = [os.path.join(folder, name.name) for name in Reader(folder).segments()]
    size = sum(map(os.path.getsize, paths))
    run_base(paths)
    if run_ours(folder)[1] < expected:
        raise RuntimeError("the scan gave fewer records than were appended")
    ours, base = interleave(lambda: run_ours(folder)[0], lambda: run_base(paths), 7 if context.scale >= 1 else 2)
    context.fresh("scan")
    return Result(ours / 1e6, base / 1e6, {"records/s": expected * ours / size})


def measure_memory(context: Context) -> Result:
    total = context.scaled(4 * GIB)
    context.need_room(total)
    folder = context.fresh("scan")
    expected = make_log(folder, 200, total)
    found = ask_child("scan", folder)
    context.fresh("scan")
    if found["records"] < expected:
        raise RuntimeError("the scan gave fewer records than were appended")
    return Result(found["growth_mib"], MOST_GROWTH_MIB, {"records": expected})


CASES = [
    Case(
        "scan_200B",
        "MB/s",
        "Reader.batches over a log of 200 B payloads (512 MiB) in the page cache, every CRC checked, columns made; "
        "base: preadv of the same files into one 256 KiB buffer. Not included: making Python objects of records",
        compare_scan,
        bar=0.3,
    ),
    Case(
        "scan_200B_memory",
        "MiB",
        "growth of resident memory (peak during it, less what there was before) while a fresh process scans a 4 GiB "
        "log of 200 B payloads; base: what it may grow by. Not included: the interpreter and its imports",
        measure_memory,
        bar=1.0,
        less_is_better=True,
    ),
]
