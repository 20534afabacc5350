"""What a client that wants little waits while another one sends all it can: one case for each family and disk.

Each case has a server of its own, on a copy of data that was made once, and the same of Redis. First nobody but the
bystander is there: that is the control. Then the aggressor begins.
"""

from __future__ import annotations

import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from bench.bystander import ADD_S, CAP_S, PING_S, Bystander, spread
from bench.bystander_data import entries_of, server_on
from bench.families import FAMILIES, Family
from bench.runner import Case, Context, Result, Skipped
from bench.topic_servers import Server, Wrong

IDLE_S: Final = 1.0
LOAD_S: Final = 2.0
SLOW_MS: Final = 20.0
LIMIT_MS: Final = 5.0
OF_REDIS: Final = 2.0

Figures = dict[str, Any]


def waits(context: Context, name: str, sync_ms: float) -> Result:
    family = FAMILIES[name]
    ours = _beside(context, name, family, sync_ms, is_redis=False)
    theirs: Figures | None = None
    missing = "it has none of these"
    if family.in_redis:
        try:
            theirs = _beside(context, name, family, sync_ms, is_redis=True)
        except Skipped as why:
            missing = str(why)
    allowed = max(LIMIT_MS, OF_REDIS * theirs["ping"]["p99"]) if theirs else LIMIT_MS
    extra = {"lamina": ours, "redis": theirs, "note": _note(ours, theirs, missing)}
    return Result(ours["ping"]["p99"], allowed, extra)


def _note(ours: Figures, theirs: Figures | None, missing: str) -> str:
    """What the table has no room for: p50/p99/max of each."""

    def three(found: dict[str, float]) -> str:
        return "/".join(
            f"{found[part]:.2f}" if found[part] < 10 else f"{found[part]:.0f}" for part in ("p50", "p99", "max")
        )

    parts = [f"ping {three(ours['ping'])}, idle {three(ours['idle'])}, late {three(ours['late'])}"]
    parts += [f"add {three(ours['add'])}, {ours['commands']} commands, longest {ours['longest ms']:.0f}"]
    if theirs:
        parts += [f"Redis {three(theirs['ping'])}, idle {three(theirs['idle'])}, late {three(theirs['late'])}"]
        parts += [f"add {three(theirs['add'])}, {theirs['commands']} commands, longest {theirs['longest ms']:.0f}"]
    else:
        parts += [f"no Redis: {missing}"]
    if said := ours["error"] or (theirs or {}).get("error"):
        parts += [f"an answer: {said}"]
    return "; ".join(parts)


# -- one server --------------------------------------------------------------------------------------------------------


def _beside(context: Context, name: str, family: Family, sync_ms: float, *, is_redis: bool) -> Figures:
    """Waits of the bystander in milliseconds: ``idle``, then while the family is sent, with what that was."""
    sync = "interval" if is_redis else "always"
    with server_on(context, family.data, sync, family.flags, sync_ms=sync_ms, is_redis=is_redis) as server:
        return _measured(context, server, name)


def _measured(context: Context, server: Server, name: str) -> Figures:
    part = min(max(context.scale * 10, 0.1), 1.0)
    with _aggressor(server, name, entries_of(context)) as aggressor, Bystander(server.address[1]) as bystander:
        begin = time.monotonic()
        time.sleep(IDLE_S * part)
        assert aggressor.stdin is not None
        start = time.monotonic()
        aggressor.stdin.write("go\n")
        aggressor.stdin.flush()
        select.select([aggressor.stdout], [], [], LOAD_S * part)  # it may have nothing more to send before
        said, _ = aggressor.communicate(timeout=2 * CAP_S)
        found = bystander.end()
        sent = json.loads(said)
    if sent["problem"]:
        raise Wrong(f"{name}: {sent['problem']}")
    end = sent.pop("ended")
    return {
        "idle": spread(found["ping"], begin, start, PING_S),
        "ping": spread(found["ping"], start, end, PING_S),
        "idle add": spread(found["add"], begin, start, ADD_S),
        "add": spread(found["add"], start, end, ADD_S),
        "late": spread(found["late"], start, end),
        "control": spread(found["control"], start, end),
        "seconds": end - start,
        **sent,
    }


@contextmanager
def _aggressor(server: Server, name: str, entries: int) -> Iterator[subprocess.Popen[str]]:
    words = [name, str(server.address[1]), str(server.workq or 0), str(entries)]
    command = [sys.executable, "-m", "bench.aggressor", *words]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise RuntimeError(f"the aggressor for {name} did not start")
        yield process
    finally:
        process.kill()
        process.wait()


# -- all of them -------------------------------------------------------------------------------------------------------


def _case(name: str, sync_ms: float) -> Case:
    family = FAMILIES[name]
    disk = f", with a disk whose syncs take {sync_ms:.0f} ms longer" if sync_ms else ""
    what = (
        f"p99 of PING of another client, each {PING_S * 1000:.0f} ms, while {family.connections} send: {family.what}"
        f"{disk}. Base: what it may be, {LIMIT_MS:.0f} ms or {OF_REDIS:.0f} times that of Redis"
    )
    return Case(
        f"bystander_{name}{'_slow_disk' if sync_ms else ''}",
        "ms",
        what,
        lambda context: waits(context, name, sync_ms),
        bar=1.0,
        less_is_better=True,
    )


CASES = [_case(name, sync_ms) for sync_ms in (0.0, SLOW_MS) for name in FAMILIES]
