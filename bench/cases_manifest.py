"""The manifest of a log: reading one of 100,000 files whole, and what adding to it costs when a file is sealed."""

from __future__ import annotations

import os
import time

from bench.runner import Case, Context, Result
from lamina.log import LogOptions, manifest
from lamina.log.files.real import RealFiles
from lamina.log.formats import PLAIN
from lamina.log.index import State
from lamina.log.manifest import Facts
from lamina.log.sync import OS
from lamina.log.writer import Log

FILES = 100_000
MOST_S = 0.5
PAYLOAD = b"x" * 1000
SEGMENTS = 40


def _facts(number: int) -> Facts:
    time_ns = 1_700_000_000 * 10**9 + number
    return Facts(f"{number:09d}.log", PLAIN.magic, State.SEALED, 64 << 20, 10**6, time_ns, time_ns, time_ns, number)


def read(context: Context) -> Result:
    """Reading it whole, of so many files, from a folder with nothing else in it."""
    count = context.scaled(FILES, 1000)
    folder = context.fresh("manifest")
    os.makedirs(folder)
    manifest.write(RealFiles(), folder, [_facts(number) for number in range(1, count + 1)])
    taken = []
    for _ in range(5):
        begun = time.perf_counter()
        known = manifest.load(RealFiles(), folder)
        taken.append(time.perf_counter() - begun)
        assert known is not None and len(known.files) == count
    context.fresh("manifest")
    return Result(min(taken), MOST_S * count / FILES, {"files": count})


def sealing(context: Context) -> Result:
    """Writing without syncs through files of 4 MiB, with a manifest and, as the base, without one."""
    kept_for = manifest.KEPT_FOR
    ours: list[float] = []
    base: list[float] = []
    for _ in range(5):
        ours.append(_rate(context))
        manifest.KEPT_FOR = frozenset()  # type: ignore[misc]
        base.append(_rate(context))
        manifest.KEPT_FOR = kept_for  # type: ignore[misc]
    return Result(max(ours), max(base))


def _rate(context: Context) -> float:
    folder = context.fresh("log")
    log = Log.open(folder, options=LogOptions(segment_bytes=4 << 20, sync=OS))
    count = context.scaled(SEGMENTS, 2) * 4000
    begun = time.perf_counter()
    for _ in range(count // 1000):
        log.append_many([PAYLOAD] * 1000)
    log.wait(log.position)
    rate = count / (time.perf_counter() - begun)
    log.close()
    context.fresh("log")
    return rate


CASES = [
    Case("manifest_read", "s", str(read.__doc__), read, bar=1.0, less_is_better=True),
    Case("manifest_sealing", "appends/s", str(sealing.__doc__), sealing, bar=0.9),
]
