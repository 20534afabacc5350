"""Operations on the server as a whole: how it is now, and how it was over time."""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from lamina._version import VERSION
from lamina.clock import SystemClock
from lamina.errors import BadOption
from lamina.server import measures
from lamina.server.http.operations import AnyOperation, Asks, Gives, Operation, Place
from lamina.server.inside import Inside
from lamina.server.measures import vitals

Range = Literal["15m", "1h", "24h", "14d"]
ENGINES: Final = ("jobs", "topics", "queues", "store")
# Of each engine: what comes in, what goes out, how much waits, and how long the oldest of it does.
_FIGURES: Final = {
    "jobs": ("added", "completed", "ready", "oldest_s"),
    "topics": ("added", "delivered", "lag", "lag_s"),
    "queues": ("sent", "acknowledged", "messages", "oldest_s"),
    "store": ("written", None, None, None),
}
TRAFFIC: Final = ("jobs.added", "topics.added", "queues.sent", "store.written")
"""Counters of what clients send."""
_PRESENT: Final = ("jobs.ready", "jobs.scheduled", "jobs.working", "jobs.dead", "topics.lag", "queues.messages")


class EngineNow(msgspec.Struct, frozen=True, kw_only=True):
    """One engine. None: it has no such thing, or it is not known yet."""

    name: str
    came_per_s: float | None = None
    """Jobs added, entries added, messages sent, entries written, a second."""
    went_per_s: float | None = None
    """Jobs completed, entries delivered, messages acknowledged, a second."""
    waiting: float | None = None
    """Jobs that are ready, entries that groups have yet to read, messages."""
    oldest_s: float | None = None
    """How long the oldest of them has been waiting."""
    is_at_least: bool = False
    """More may wait, and longer: not all topics and queues were looked at since the start."""
    unknown: int = 0
    """So many were not."""
    written_bytes_per_s: float | None = None
    sync_p99_s: float | None = None
    """Of a hundred syncs of its log all but the slowest took less, lately."""
    unsynced_s: float | None = None
    """How long the oldest bytes that are not synced have been waiting for that."""
    disk_bytes: float | None = None


class Now(Gives, frozen=True, kw_only=True):
    """How the server is."""

    version: str
    phase: str
    """``starting``, ``restoring``, ``ready``, ``stopping`` or ``failed``."""
    since_ns: int
    """When the phase began."""
    seconds: float
    """For how long."""
    percent: float
    """Of what has to be restored."""
    problems: dict[str, str]
    """What is broken, by name; empty: nothing."""
    connections: int
    disk_free_bytes: int | None
    history_bytes: int
    """What stays on the disk only so that the recent past can be read."""
    engines: list[EngineNow]
    """Those that are open."""
    failed_per_s: float | None
    """Jobs that failed, a second."""
    dead_jobs: int
    """Jobs that failed for good."""
    has_traffic: bool
    """Something was sent, or is there."""
    figures: dict[str, float]
    """All that is measured, as it is now."""
    rates: dict[str, float]
    """How fast those of them grow that only grow, a second, in the last 10 to 20 seconds."""


async def _now(place: Place, asked: Asks) -> Now:
    place.check("admin", "read")
    return await place.in_thread(_look, place)


def _look(place: Place) -> Now:
    inside, life = place.inside, place.inside.life
    figures = vitals(inside)
    history = inside.history
    rates = {} if history is None else history.rates(figures)
    free = figures.get("disk.free")
    is_used = any(figures.get(name, 0) > 0 for name in (*TRAFFIC, *_PRESENT))
    return Now(
        version=VERSION,
        phase=life.phase,
        since_ns=life.since_ns,
        seconds=round(max(SystemClock().now_ns() - life.since_ns, 0) / 1e9, 3),
        percent=life.percent,
        problems=life.problems,
        connections=int(figures.get("connections", 0)),
        disk_free_bytes=None if free is None else int(free),
        history_bytes=inside.past.bytes,
        engines=[
            _engine(name, figures, rates, inside)
            for name in ENGINES
            if any(each in figures for each in (f"{name}.appends", f"{name}.{_FIGURES[name][0]}"))
        ],
        failed_per_s=rates.get("jobs.failed"),
        dead_jobs=int(figures.get("jobs.dead", 0)),
        has_traffic=is_used or (history is not None and any(history.peak(name) > 0 for name in TRAFFIC)),
        figures=figures,
        rates=rates,
    )


def _unknown(name: str, inside: Inside) -> int:
    """Topics or queues that nobody has used since the start, nor were they looked at yet (server/looking.py)."""
    look = measures.of(inside).look
    seen = look.topics() if name == "topics" else look.queues() if name == "queues" else None
    return (seen.unknown or 0) if seen is not None else 0


def _engine(name: str, figures: dict[str, float], rates: dict[str, float], inside: Inside) -> EngineNow:
    unknown = _unknown(name, inside)
    came, went, waiting, oldest = (each and f"{name}.{each}" for each in _FIGURES[name])
    return EngineNow(
        name=name,
        came_per_s=rates.get(came or ""),
        went_per_s=rates.get(went or ""),
        waiting=figures.get(waiting or ""),
        oldest_s=figures.get(oldest or ""),
        is_at_least=unknown > 0,
        unknown=unknown,
        written_bytes_per_s=rates.get(f"{name}.bytes"),
        sync_p99_s=figures.get(f"{name}.sync_p99_s"),
        unsynced_s=figures.get(f"{name}.unsynced_s"),
        disk_bytes=figures.get(f"{name}.disk_bytes"),
    )


class HistoryAsks(Asks, frozen=True, kw_only=True):
    """Which figures, of which time."""

    range: Range = "1h"
    """Up to now: by 10 seconds (``15m``, ``1h``), by 4 minutes or by hours."""
    names: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    """Such as ``jobs.added,jobs.ready``; empty: all."""


class Past(Gives, frozen=True, kw_only=True):
    """Figures over time."""

    start_s: int
    """Unix time of the first of each."""
    step_s: int
    """From one to the next."""
    values: dict[str, list[float | None]]
    """None: not known. Of those that only grow: how fast, a second. Of others: the highest in the step."""
    restarts: list[int]
    """Unix times at which the server started."""
    is_loaded: bool
    """False: what was before the last start is still being read."""


async def _history(place: Place, asked: HistoryAsks) -> Past:
    place.check("admin", "read")
    history = place.is_there(place.inside.history)
    known = history.names
    wanted = [name.strip() for name in asked.names.split(",") if name.strip()] or known
    for name in wanted:
        if name not in known:
            hint = f"there are {', '.join(known)}" if known else "none was recorded yet; try again in 10 seconds"
            raise BadOption(f"names: there is no figure {name[:80]!r}", hint=hint)
    found = await place.in_thread(history.series, wanted, asked.range)
    return Past(
        start_s=found.start_s,
        step_s=found.step_s,
        values=found.values,
        restarts=found.restarts,
        is_loaded=history.is_loaded,
    )


NOW: Final = Operation(
    name="overview.now",
    method="GET",
    path="/overview",
    summary="How the server is now",
    right=("admin", "read"),
    asks=Asks,
    gives=Now,
    do=_now,
)
HISTORY: Final = Operation(
    name="overview.history",
    method="GET",
    path="/overview/history",
    summary="How the server was, over 15 minutes, an hour, a day or two weeks",
    right=("admin", "read"),
    asks=HistoryAsks,
    gives=Past,
    do=_history,
)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (NOW, HISTORY)
