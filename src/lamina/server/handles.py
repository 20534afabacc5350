"""What one process may have of its machine: file handles, and how the interpreter spends its time."""

from __future__ import annotations

import gc
import resource
import sys


def connections(wanted: int, doors: int, own: int) -> int:
    """For each door as many as file handles allow: those of the logs must not run out because clients took them all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = wanted * doors + own
    if soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    allowed = max(min(wanted, (soft - min(own, soft // 2)) // doors), 1)
    if allowed < wanted:
        why = f"only {soft} file handles are allowed (ulimit -n)"
        sys.stderr.write(f"lamina: {allowed} connections at most, not {wanted}: {why}\n")
    return allowed


def spare_the_collector() -> None:
    """Jobs are millions of objects without cycles: looking through them for garbage would stop the server for nothing.

    Threads: the upkeep's thread yields often, so that the loop never waits long for the interpreter.
    """
    gc.freeze()
    gc.set_threshold(50_000, 50, 1000)
    sys.setswitchinterval(0.0005)
