"""Pages of jobs: their queues, the jobs of one, one job with its timeline, dead letters, and what a search found."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, NamedTuple

import msgspec

from lamina.errors import JobNotFound
from lamina.server.http.console.page import Page
from lamina.server.http.names import Shown
from lamina.server.http.operations import After, Asks, Limit, Name, Place
from lamina.server.http.ops import jobs
from lamina.server.http.ops.jobs_looking import Id
from lamina.server.http.ops.jobs_search import Milliseconds
from lamina.server.http.ops.jobs_shown import JobState, queue_name
from lamina.server.http.ops.jobs_story import Event
from lamina.units import show_duration

_READ: Final = ("jobs", "read")
_STATES: Final = ("ready", "scheduled", "leased", "completed", "failed")
_WIDTH: Final = 1000.0  # of the drawing of a timeline
_LEAST: Final = 14.0  # of one span in it: what was short is seen, too
_OVER: Final = ("completed", "failed", "gone")


def _now(place: Place) -> int:
    return place.is_there(place.inside.jobs).clock.now_ns()


def _rights(place: Place, queue: str) -> dict[str, object]:
    """What of its buttons to show."""
    name = queue_name(queue)
    return {"may_write": place.may("jobs", "write", name), "may_admin": place.may("jobs", "admin", name)}


# -- queues ------------------------------------------------------------------------------------------------------------


async def _queues(place: Place, asked: jobs.QueuesAsks) -> Mapping[str, object]:
    found = await jobs.QUEUES.do(place, asked)
    return {"found": found, "may_add": place.user.may_some("jobs", "write")}


class QueuePage(Asks, frozen=True, kw_only=True):
    """Which jobs of which queue."""

    name: Name
    state: JobState = "ready"
    after: After = ""
    limit: Limit = 50


async def _queue(place: Place, asked: QueuePage) -> Mapping[str, object]:
    row = await jobs.QUEUE.do(place, jobs.QueueAsks(queue=asked.name))
    page = await jobs.LIST.do(
        place, jobs.ListAsks(queue=asked.name, state=asked.state, after=asked.after, limit=asked.limit)
    )
    tabs = [(state, getattr(row, state)) for state in _STATES]
    return {"row": row, "found": page, "tabs": tabs, "now_ns": _now(place), **_rights(place, asked.name)}


# -- one job -----------------------------------------------------------------------------------------------------------


class OnePage(Asks, frozen=True, kw_only=True):
    """Which job."""

    id: Id
    edit: bool = False
    """With the form open."""
    most_ms: Milliseconds = 150
    """How long to look for its records."""


class Span(NamedTuple):
    """A part of the drawing: how long a job was what."""

    x: float
    width: float
    state: str
    told: str


class Edited(NamedTuple):
    """What the form starts with."""

    text: str
    encoding: str


async def _one(place: Place, asked: OnePage) -> Mapping[str, object]:
    story = await jobs.TIMELINE.do(place, jobs.TimelineAsks(id=asked.id, most_ms=asked.most_ms))
    try:
        job = await jobs.ONE.do(place, jobs.OneAsks(id=asked.id))
    except JobNotFound:
        if not story.events:
            raise
        job = None
    queue = story.queue if job is None else job.queue
    now_ns = _now(place)
    shown: dict[str, object] = {"job": job, "story": story, "queue": queue, "now_ns": now_ns, "brief": brief}
    shown["spans"] = spans(story.events, now_ns if job is not None and job.state not in _OVER else None)
    shown["edited"] = None if job is None or job.state != "failed" else editable(job.payload)
    return {**shown, **({"may_write": False, "may_admin": False} if queue is None else _rights(place, queue))}


def spans(events: Sequence[Event], now_ns: int | None) -> list[Span]:
    """From each event to the next; of a job that is not over, also from the last one up to now."""
    ends = [*(event.time_ns for event in events[1:]), now_ns][: len(events)]
    lasting = [
        (event.state, max(end - event.time_ns, 0) / 1e9)
        for event, end in zip(events, ends, strict=True)
        if end is not None and event.state not in ("completed", "gone")
    ]
    total = sum(seconds for _, seconds in lasting)
    room = _WIDTH - _LEAST * len(lasting)
    if not lasting or room <= 0:
        return []
    made, x = list[Span](), 0.0
    for state, seconds in lasting:
        width = _LEAST + (room * seconds / total if total else room / len(lasting))
        made.append(Span(round(x, 1), round(width, 1), state, f"{state} for {brief(seconds)}"))
        x += width
    return made


def brief(seconds: float) -> str:
    """As ``show_duration``, also of what is over at once."""
    return show_duration(seconds) if seconds >= 0.001 else "less than 1ms"


def editable(payload: Shown) -> Edited | None:
    """What a form can hold without changing it: text without characters that a browser would change, or base 64."""
    if payload.is_cut:
        return None
    if payload.text is not None and all(letter.isprintable() or letter in "\n\t" for letter in payload.text):
        return Edited(payload.text, "text")
    if payload.base64 is not None:
        return Edited(payload.base64, "base64")
    return Edited(base64.b64encode((payload.text or "").encode()).decode(), "base64")


# -- dead letters, and searching ---------------------------------------------------------------------------------------


class DeadPage(Asks, frozen=True, kw_only=True):
    """Of which queue."""

    name: Name
    error: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    after: After = ""
    most_ms: Milliseconds = 150


async def _dead(place: Place, asked: DeadPage) -> Mapping[str, object]:
    wanted = jobs.DeadAsks(
        queue=asked.name,
        error=asked.error,
        after=asked.after,
        examples=20 if asked.error else 3,
        most_ms=asked.most_ms,
    )
    found = await jobs.DEAD.do(place, wanted)
    return {"found": found, "now_ns": _now(place), "still": True, **_rights(place, asked.name)}


class FindPage(Asks, frozen=True, kw_only=True):
    """What to search for."""

    text: Annotated[str, msgspec.Meta(max_length=1000)] = ""
    queue: Annotated[str, msgspec.Meta(max_length=4096)] = ""
    state: JobState | Literal[""] = ""
    after: After = ""
    most_ms: Milliseconds = 150


async def _find(place: Place, asked: FindPage) -> Mapping[str, object]:
    found = None
    if asked.text:
        wanted = jobs.SearchAsks(
            text=asked.text,
            queue=asked.queue or None,
            state=asked.state or None,
            after=asked.after,
            most_ms=asked.most_ms,
        )
        found = await jobs.SEARCH.do(place, wanted)
    return {"found": found, "now_ns": _now(place), "still": True}


PAGES: Final[tuple[Page, ...]] = (
    Page(
        path="/jobs",
        section="jobs",
        template="jobs/queues.html",
        asks=jobs.QueuesAsks,
        shows=_queues,
        right=_READ,
    ),
    Page(path="/jobs/queue", section="jobs", template="jobs/queue.html", asks=QueuePage, shows=_queue, right=_READ),
    Page(path="/jobs/one", section="jobs", template="jobs/one.html", asks=OnePage, shows=_one, right=_READ),
    Page(path="/jobs/dead", section="jobs", template="jobs/dead.html", asks=DeadPage, shows=_dead, right=_READ),
    Page(path="/jobs/find", section="jobs", template="jobs/find.html", asks=FindPage, shows=_find, right=_READ),
)
