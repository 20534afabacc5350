"""How the time of jobs over the history grows with the history: 1x, 4x and 16x of it."""

from __future__ import annotations

import os
import statistics
import time

from bench.cases_spark import fill
from bench.runner import Case, Context, Result

TIMES = (1, 4, 16)
MEGABYTES = 20
INCREMENTS = 9


def export_growth(context: Context) -> Result:
    """Median seconds of an export of a little more, behind a history that was exported before."""
    from lamina.pipeline.jobs.export import export

    found = {}
    for times in TIMES:
        folder = context.fresh("data")
        size = context.scaled(MEGABYTES * times, times) * 10**6
        context.need_room(2 * size)
        more = os.path.join(folder, "topics", "orders")
        fill(more, size)
        lake = context.fresh("lake")
        export(folder, lake, view="topic", engine="local")
        taken = []
        for number in range(INCREMENTS if context.scale >= 1 else 2):
            context.say(f"history {times}x, increment {number + 1} ...")
            fill(more, size // times // 10)
            started = time.perf_counter()
            report = export(folder, lake, view="topic", engine="local")
            taken.append(time.perf_counter() - started)
            assert report.rows > 0
        found[times] = statistics.median(taken)
        context.fresh("data")
        context.fresh("lake")
    return _growth(found)


def _growth(found: dict[int, float]) -> Result:
    extra = {f"{times}x s": seconds for times, seconds in found.items()}
    return Result(found[TIMES[-1]], found[TIMES[0]], extra)


CASES = [
    Case(
        "export_growth",
        "s",
        "an increment of 2 MB exported behind a history of 320 MB; base: behind 20 MB",
        export_growth,
        0.67,
        less_is_better=True,
    ),
]
