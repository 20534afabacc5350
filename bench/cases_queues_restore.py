"""Restoring queues: how fast a dump of a million becomes the state again, and the memory that takes."""

from __future__ import annotations

import statistics

from bench.queues_child import ask
from bench.runner import Case, Context, Result
from bench.topic_servers import Wrong

QUEUES = 1_000_000
EACH = 2  # messages
RESTORES = 3
RECORDS_S = 300_000.0


def restoring(context: Context) -> Result:
    queues = context.scaled(QUEUES, 1000)
    folder = context.fresh("queues")
    written = ask("fill", folder, str(queues), str(EACH))
    found = [ask("restore", folder) for _ in range(RESTORES if context.scale >= 1 else 1)]
    context.fresh("queues")
    if any(one["queues"] != queues or one["messages"] != queues * EACH for one in found):
        raise Wrong(f"{queues} queues were written, restored were {found}")
    seconds = statistics.median(one["seconds"] for one in found)
    extra = {
        **{key: written[key] for key in ("records", "bytes", "queues", "messages")},
        "seconds": seconds,
        "s/GB": seconds / written["bytes"] * 1e9,
        "peak MiB": max(one["peak MiB"] for one in found),
        "growth MiB": max(one["growth MiB"] for one in found),
        "compiled": bool(found[0]["is_compiled"]),
    }
    return Result(written["records"] / seconds, RECORDS_S, extra)


CASES = [
    Case(
        "queues_restore",
        "records/s",
        "restoring a dump of a million queues with two million messages of 100 B in a fresh process, median; base: "
        "what it must reach. Beside it seconds for each GB, and the most memory. Not included: starting Python",
        restoring,
        bar=1.0,
    ),
]
