"""Operations on runs of the pipeline: other processes do the work, and leave a record of it beside the data."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from lamina import runs
from lamina.clock import SystemClock
from lamina.errors import NotThere, StorageError
from lamina.runs import Run
from lamina.server.http.operations import After, AnyOperation, Asks, Gives, Limit, Operation, Place

_CLOCK: Final = SystemClock()
_LONG_ENOUGH: Final = 1.0  # percent: before that a rate says nothing

Id = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]
Word = Annotated[str, msgspec.Meta(max_length=20)]


class RunsAsks(Asks, frozen=True, kw_only=True):
    """Which runs."""

    limit: Limit = 50
    after: After = ""
    kind: Word = ""
    """Only those of this kind, such as ``export``."""
    state: Word = ""
    """Only those that are ``running``, ``done``, ``failed`` or ``lost``."""


class RunAsks(Asks, frozen=True, kw_only=True):
    """Which run."""

    id: Id


class ShownRun(Gives, frozen=True, kw_only=True):
    """One run."""

    id: str
    kind: str
    """``asof``, ``audit``, ``backup``, ``clean``, ``compact``, ``dump``, ``export`` or ``report``."""
    state: str
    """``running``, ``done``, ``failed``, or ``lost``: its process is gone without saying how it ended."""
    started_ns: int
    updated_ns: int
    ended_ns: int | None = None
    seconds: float
    """It took, or has taken so far."""
    percent: float | None = None
    estimate_s: float | None = None
    """Left, at the rate so far."""
    step: str = ""
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    """What it was asked; never a secret."""
    counts: dict[str, Any] = msgspec.field(default_factory=dict)
    """What it said of itself at the end."""
    read_bytes: int | None = None
    written_bytes: int | None = None
    error: str = ""
    """The code of the error that ended it."""
    told: str = ""
    report: str = ""
    """The path of the page that it made."""
    has_page: bool = False
    """A copy of that page is kept, and can be had with ``pipeline.page``."""
    pid: int
    version: str = ""


class RunsPage(Gives, frozen=True, kw_only=True):
    """Runs, the newest first."""

    runs: list[ShownRun]
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is no more."""
    kept: int
    """Records that there are, of all kinds."""
    unreadable: int = 0
    """Records of this page that cannot be read, for lack of rights or because they are broken."""


class RunPage(Gives, frozen=True, kw_only=True):
    """The page that a run made."""

    id: str
    name: str
    """To save it under."""
    html: str


async def _runs(place: Place, asked: RunsAsks) -> RunsPage:
    place.check("admin", "read")
    data = place.inside.data
    return RunsPage(runs=[], kept=0) if data is None else await place.in_thread(_list, data, asked)


def _list(data: str, asked: RunsAsks) -> RunsPage:
    ids, now = runs.ids(data), _CLOCK.now_ns()
    found: list[ShownRun] = []
    unreadable, next = 0, ""
    for id in ids:
        if (asked.after and id >= asked.after) or (asked.kind and id.split("-")[1] != asked.kind):
            continue
        if len(found) == asked.limit:
            next = found[-1].id
            break
        try:
            one = runs.read(data, id, now)
        except NotThere:
            continue  # it went meanwhile
        except StorageError:
            unreadable += 1
            continue
        if not asked.state or one.state == asked.state:
            found.append(_shown(data, one, now))
    return RunsPage(runs=found, next=next, kept=len(ids), unreadable=unreadable)


async def _run(place: Place, asked: RunAsks) -> ShownRun:
    place.check("admin", "read")
    data = _data(place)
    now = _CLOCK.now_ns()
    return await place.in_thread(lambda: _shown(data, runs.read(data, asked.id, now), now))


async def _page(place: Place, asked: RunAsks) -> RunPage:
    place.check("admin", "read")
    data = _data(place)
    content = await place.in_thread(runs.page, data, asked.id)
    return RunPage(id=asked.id, name=f"lamina-{asked.id}{runs.PAGE}", html=content.decode("utf-8", "replace"))


def _data(place: Place) -> str:
    if place.inside.data is None:
        raise NotThere("this server has no data folder, so nothing runs over it", hint="start it with --data")
    return place.inside.data


def _shown(data: str, run: Run, now_ns: int) -> ShownRun:
    until = run.ended_ns or (now_ns if run.state == runs.RUNNING else run.updated_ns)
    seconds = max(0, until - run.started_ns) / 1e9
    left = None
    if run.state == runs.RUNNING and run.percent is not None and run.percent >= _LONG_ENOUGH:
        left = round(seconds * (100.0 - run.percent) / run.percent, 1)
    given = msgspec.structs.asdict(run)
    process = given.pop("process")
    return ShownRun(
        **given,
        seconds=round(seconds, 3),
        estimate_s=left,
        has_page=runs.has_page(data, run.id),
        pid=process.pid,
    )


RUNS: Final = Operation(
    name="pipeline.runs",
    method="GET",
    path="/pipeline/runs",
    summary="Runs of the pipeline and backups of this data folder, the newest first",
    right=("admin", "read"),
    asks=RunsAsks,
    gives=RunsPage,
    do=_runs,
    errors=("disk_error",),
)
RUN: Final = Operation(
    name="pipeline.run",
    method="GET",
    path="/pipeline/runs/{id}",
    summary="One run: how far it is, or how it ended",
    right=("admin", "read"),
    asks=RunAsks,
    gives=ShownRun,
    do=_run,
    errors=("disk_error", "storage"),
)
PAGE: Final = Operation(
    name="pipeline.page",
    method="GET",
    path="/pipeline/runs/{id}/page",
    summary="The page that a run of lamina pipeline report made",
    right=("admin", "read"),
    asks=RunAsks,
    gives=RunPage,
    do=_page,
    errors=("disk_error",),
)
OPERATIONS: Final[tuple[AnyOperation, ...]] = (RUNS, RUN, PAGE)
