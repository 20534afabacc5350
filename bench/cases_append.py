"""Appending: records of two sizes, in batches of three sizes, under each policy, against plain write(2)."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.runner import Case, Context, Result, interleave
from lamina.log import ALWAYS, OS, Level, Log, LogOptions, Sync, interval, kernel
from lamina.log.formats import HEADER, PLAIN
from lamina.units import MIB

PAYLOADS = {"100B": 100, "1KiB": 1024}
BATCHES = (1, 10, 1000)
# Short, so that many syncs fall into a run; the default of a log is a second.
POLICIES = {"os": OS, "interval": interval(20), "always": ALWAYS}
BARS = {"append_100B_x1000_os": 0.5, "append_100B_x1_always": 0.7}

RUN_BYTES = 48 * MIB  # less than a segment: a run has no rotation in it
RUN_CALLS = 100_000  # small batches are measured on fewer bytes
SYNCED_CALLS = {1: 100, 10: 100, 1000: 20}  # in a run where each is synced
SYNCED_ROUNDS = 36  # many short ones: the disk changes its speed by the second, and both sides should see it alike

Payloads = list[bytes]


def make_payloads(size: int, count: int) -> Payloads:
    """Different ones, of bytes that nothing could compress."""
    return [os.urandom(size) for _ in range(count)]


def encode(payloads: Payloads) -> bytes:
    """The bytes that the log writes for one call."""
    return kernel.encode_many(time.time_ns(), payloads)


@contextmanager
def opened(folder: str, policy: Sync, warm_up: Payloads) -> Iterator[Log]:
    """A log whose first file is there already, so that making it is not measured."""
    with Log.open(folder, options=LogOptions(sync=policy)) as log:
        log.append_many(warm_up, until=Level.SYNCED)
        yield log


def run_ours(context: Context, policy: Sync, payloads: Payloads, calls: int) -> float:
    """Records a second through the log."""
    with opened(context.fresh("ours"), policy, payloads) as log:
        started = time.perf_counter()
        if policy is ALWAYS:
            for _ in range(calls):
                log.append_many(payloads, until=Level.SYNCED)
        else:
            for _ in range(calls):
                position = log.append_many(payloads)
            log.wait(position, Level.WRITTEN)
        seconds = time.perf_counter() - started
    context.fresh("ours")
    return calls * len(payloads) / seconds


def run_base(context: Context, policy: Sync, chunk: bytes, records: int, calls: int, sync_every: int = 0) -> float:
    """Records a second of the same bytes with os.write, synced as the policy does (and behind each ``sync_every``)."""
    path = context.fresh("base")
    os.makedirs(path)
    handle = os.open(os.path.join(path, "log"), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, PLAIN.header + chunk)
    os.fdatasync(handle)
    started = time.perf_counter()
    if policy is ALWAYS:
        for _ in range(calls):
            os.write(handle, chunk)
            os.fdatasync(handle)
    elif policy.interval_ms is not None:
        due = started + policy.interval_ms / 1000
        for _ in range(calls):
            os.write(handle, chunk)
            if time.perf_counter() >= due:
                os.fdatasync(handle)
                due = time.perf_counter() + policy.interval_ms / 1000
    else:
        unsynced = 0
        for _ in range(calls):
            unsynced += os.write(handle, chunk)
            if sync_every and unsynced >= sync_every:
                os.fdatasync(handle)
                unsynced = 0
    seconds = time.perf_counter() - started
    os.close(handle)
    context.fresh("base")
    return calls * records / seconds


def compare(context: Context, policy: Sync, size: int, batch: int) -> Result:
    payloads = make_payloads(size, batch)
    chunk = encode(payloads)
    if policy is ALWAYS:
        calls, rounds = context.scaled(SYNCED_CALLS[batch], 5), SYNCED_ROUNDS
    else:
        calls, rounds = context.scaled(min(RUN_BYTES // len(chunk), RUN_CALLS), 5), 7
    ours, base = interleave(
        lambda: run_ours(context, policy, payloads, calls),
        lambda: run_base(context, policy, chunk, batch, calls),
        rounds if context.scale >= 1 else 2,
        max if policy is OS else statistics.median,
    )
    return Result(ours, base, {"calls": calls, "MB/s": ours / batch * len(chunk) / 1e6})


def compare_rotating(context: Context) -> Result:
    """Eight segments long: every full one is synced before the next is used, so the base syncs as often."""
    payloads = make_payloads(100, 1000)
    chunk = encode(payloads)
    segment = LogOptions().segment_bytes
    calls = context.scaled(8 * segment // len(chunk), 5)
    ours, base = interleave(
        lambda: run_ours(context, OS, payloads, calls),
        lambda: run_base(context, OS, chunk, 1000, calls, sync_every=segment - HEADER.size),
        3 if context.scale >= 1 else 1,
        statistics.median,
    )
    return Result(ours, base, {"calls": calls, "MB/s": ours / 1000 * len(chunk) / 1e6})


def _case(size_name: str, batch: int, policy_name: str) -> Case:
    name = f"append_{size_name}_x{batch}_{policy_name}"
    policy, size = POLICIES[policy_name], PAYLOADS[size_name]
    until = "each call synced" if policy is ALWAYS else "until the last is written"
    synced = {"os": "", "interval": ", fdatasync every 20 ms", "always": ", fdatasync after each"}[policy_name]
    what = (
        f"append_many of {batch} x {size_name}, one thread, {until}; base: os.write of the same bytes in equal "
        f"chunks{synced}. Not included: making payloads, opening, the first file, rotation, close"
    )
    return Case(name, "records/s", what, lambda context: compare(context, policy, size, batch), BARS.get(name))


CASES = [_case(size, batch, policy) for policy in POLICIES for size in PAYLOADS for batch in BATCHES]
CASES.append(
    Case(
        "append_100B_x1000_os_rotating",
        "records/s",
        "as append_100B_x1000_os, through eight segments, each synced when full; base: os.write to one file, "
        "fdatasync after as many bytes. Not included: making payloads, opening, close",
        compare_rotating,
    )
)
