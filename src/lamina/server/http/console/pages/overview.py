"""The first page: how the server is, and how it was."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

from markupsafe import Markup

from lamina.server.history import History, Series
from lamina.server.http.console.charts import Line, line_chart
from lamina.server.http.console.page import Page
from lamina.server.http.console.scales import Unit, show
from lamina.server.http.operations import Asks, Place
from lamina.server.http.ops import overview
from lamina.server.inside import Inside
from lamina.units import show_duration

_COLOURS: Final = {"jobs": "one", "topics": "two", "queues": "three", "store": "four"}


@dataclass(frozen=True, slots=True)
class _Chart:
    id: str
    title: str
    note: str
    unit: Unit
    lines: Mapping[str, str]
    """Name of a figure, and what its line is called; empty: as the engine."""


_CHARTS: Final = (
    _Chart("chart-came", "Came in", "records a second", "rate", dict.fromkeys(overview.TRAFFIC, "")),
    _Chart(
        "chart-went",
        "Went out",
        "completed, delivered, acknowledged a second",
        "rate",
        dict.fromkeys(("jobs.completed", "topics.delivered", "queues.acknowledged"), ""),
    ),
    _Chart(
        "chart-waiting",
        "Waiting",
        "ready jobs, unread entries, messages",
        "count",
        dict.fromkeys(("jobs.ready", "topics.lag", "queues.messages"), ""),
    ),
    _Chart(
        "chart-oldest",
        "Oldest that waits",
        "age",
        "seconds",
        dict.fromkeys(("jobs.oldest_s", "topics.lag_s", "queues.oldest_s"), ""),
    ),
    _Chart(
        "chart-sync",
        "Sync to disk",
        "99 of 100 take less",
        "seconds",
        dict.fromkeys((f"{engine}.sync_p99_s" for engine in overview.ENGINES), ""),
    ),
    _Chart(
        "chart-bytes",
        "Written to logs",
        "bytes a second",
        "bytes",
        dict.fromkeys((f"{engine}.bytes" for engine in overview.ENGINES), ""),
    ),
    _Chart("chart-failed", "Failures of jobs", "a second", "rate", {"jobs.failed": "failed"}),
    _Chart(
        "chart-disk",
        "Size on disk",
        "with the room kept for a full disk",
        "bytes",
        dict.fromkeys((f"{engine}.disk_bytes" for engine in overview.ENGINES), ""),
    ),
)
_FIGURES: Final = tuple(name for chart in _CHARTS for name in chart.lines)

# Charts change when something was noted: drawn once, they are shown to all who look until then.
_drawn: WeakKeyDictionary[History, dict[str, tuple[int, list[Markup]]]] = WeakKeyDictionary()


class OverviewAsks(Asks, frozen=True, kw_only=True):
    """Of which time."""

    range: overview.Range = "1h"


async def _overview(place: Place, asked: OverviewAsks) -> Mapping[str, object]:
    now = await overview.NOW.do(place, Asks())
    history = place.inside.history
    charts: list[Markup] = []
    if history is not None and now.has_traffic:
        kept = _kept(history, asked.range)
        charts = await place.in_thread(_draw, history, asked.range) if kept is None else kept
    return {
        "now": now,
        "rows": [_row(engine) for engine in now.engines],
        "charts": charts,
        "is_loading": history is not None and not history.is_loaded,
        "ranges": (("15m", "15 minutes"), ("1h", "Hour"), ("24h", "Day"), ("14d", "Two weeks")),
        "free": show(now.disk_free_bytes, "bytes"),
        "written": show(_sum(engine.written_bytes_per_s for engine in now.engines), "bytes"),
        "failing": show(now.failed_per_s, "rate"),
        "firsts": [] if now.has_traffic else _first_steps(place.inside),
    }


def _row(engine: overview.EngineNow) -> dict[str, str]:
    return {
        "name": engine.name,
        "came": show(engine.came_per_s, "rate"),
        "went": show(engine.went_per_s, "rate"),
        "waiting": _waiting(engine),
        "at_least": _at_least(engine),
        "oldest": "–" if not engine.waiting or engine.oldest_s is None else show_duration(engine.oldest_s),
        "written": "–" if engine.written_bytes_per_s is None else show(engine.written_bytes_per_s, "bytes") + "/s",
        "sync": show(engine.sync_p99_s or None, "seconds"),
        "unsynced": show(engine.unsynced_s or None, "seconds"),
        "size": show(engine.disk_bytes, "bytes"),
    }


def _waiting(engine: overview.EngineNow) -> str:
    """To the last one: who looks at a queue that does not drain counts."""
    if engine.waiting is None:
        return "–"
    return ("≥ " if engine.is_at_least else "") + f"{round(engine.waiting):,}".replace(",", "\u202f")


def _at_least(engine: overview.EngineNow) -> str:
    """Why more may wait; empty: that is all."""
    if not engine.is_at_least:
        return ""
    many = f"{engine.unknown:,}".replace(",", "\u202f") if engine.unknown else "some"
    things = engine.name if engine.unknown != 1 else engine.name.removesuffix("s")
    return f"At least: what waits in {many} {things} is not known yet; it is being looked at"


def _sum(rates: Iterable[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


def _kept(history: History, range: str) -> list[Markup] | None:
    version, charts = _drawn.get(history, {}).get(range, (-1, None))
    return charts if version == history.version else None


def _draw(history: History, range: str) -> list[Markup]:
    version = history.version
    found = history.series(_FIGURES, range)
    charts = [_chart(chart, found) for chart in _CHARTS]
    _drawn.setdefault(history, {})[range] = version, charts
    return charts


def _chart(chart: _Chart, found: Series) -> Markup:
    lines = []
    for name, called in chart.lines.items():
        engine = name.partition(".")[0]
        values = found.values[name]
        if any(value is not None for value in values):
            lines.append(Line(called or engine, values, _COLOURS[engine]))
    return line_chart(
        chart.id,
        chart.title,
        lines,
        start_s=found.start_s,
        step_s=found.step_s,
        unit=chart.unit,
        note=chart.note,
        marks=[(moment, "the server started") for moment in found.restarts],
    )


def _first_steps(inside: Inside) -> list[tuple[str, str]]:
    """What to do with a server that nobody has used."""
    config = None if inside.config is None else inside.config()
    found = []
    resp = None if config is None else config.address("resp")
    if resp is not None and not resp.path:
        found.append(("Add to a topic", f"redis-cli -p {resp.port} XADD orders '*' item tea"))
        found.append(("Write to the store", f"redis-cli -p {resp.port} S.WRITE 1 PUT tea 41"))
    workq = None if config is None else config.address("workq")
    if workq is not None and not workq.path:
        found.append(("Add a job", f"lamina jobs add mail hello --server {workq.host}:{workq.port}"))
    return found


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/",
        section="overview",
        template="overview/overview.html",
        asks=OverviewAsks,
        shows=_overview,
        right=("admin", "read"),
    ),
)
