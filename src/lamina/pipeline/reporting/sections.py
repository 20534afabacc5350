"""The sections of the report: which pictures and tables there are of what was found. What is not there is left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from lamina.pipeline.reporting import jobs, messages
from lamina.pipeline.reporting.counting import BETWEEN
from lamina.pipeline.reporting.disk import STATES, Disk
from lamina.pipeline.reporting.drawing import TOP, Drawing, cards, show_number, table
from lamina.pipeline.reporting.plots import Line
from lamina.pipeline.reporting.scales import show_count, show_moment, show_seconds, show_size


@dataclass(frozen=True, slots=True)
class Section:
    """One part of the page."""

    name: str
    title: str
    body: str
    note: str = ""


def sections(drawing: Drawing, disk: Disk) -> list[Section]:
    """Those that have something to show, in the order of the page."""
    makers: tuple[Callable[[Drawing, Disk], Section | None], ...] = (_jobs, _topics, _groups, _queues, _store, _plain)
    found = [make(drawing, disk) for make in makers]
    return [section for section in found if section is not None]


def _grid(*figures: str) -> str:
    return f"<div class=grid>{''.join(figures)}</div>"


def _rate(part: int, whole: int) -> str:
    return f"{100 * part / whole:.2g} % of those that ended" if whole else ""


def _jobs(drawing: Drawing, disk: Disk) -> Section | None:
    if not drawing.has("jobs.added", "jobs.started", "jobs.completed", "jobs.failed", jobs.WAITING):
        return None
    plots, steps, each = drawing.plots, drawing.steps, drawing.each
    waiting, running = drawing.levels(jobs.WAITING), drawing.levels(jobs.RUNNING)
    ages = drawing.ages(jobs.WAITING)
    completed, failed = drawing.total("jobs.completed"), drawing.total("jobs.failed")
    figures = [
        ("added", show_number(drawing.total("jobs.added")), ""),
        ("completed", show_number(completed), ""),
        ("failed for good", show_number(failed), _rate(failed, completed + failed)),
        ("retries", show_number(drawing.total("jobs.retries")), f"{drawing.total('jobs.timeouts'):,} timeouts"),
        ("waiting at last", show_number(waiting[-1] or 0), f"the oldest for {show_seconds(ages[-1] or 0)}"),
        drawing.latency("wait, the median", "jobs.wait"),
        drawing.latency("run, the median", "jobs.run"),
    ]
    done = drawing.lines_of(("jobs.added", "added", 1), ("jobs.completed", "completed", 2))
    last = drawing.counts(jobs.LAST_TIMEOUTS)
    timeouts = [(all_ or 0) - (last_ or 0) for all_, last_ in zip(drawing.counts("jobs.timeouts"), last, strict=True)]
    ends = [
        *drawing.lines_of(("jobs.retries", "failed, to be tried again", 3)),
        *([Line("ran out of time, to be tried again", timeouts, 5)] if any(timeouts) else []),
        *drawing.lines_of(("jobs.failed", "failed for good", 4), ("jobs.expired", "expired", 6)),
    ]
    depth = [Line("running", running, 2), Line("waiting", waiting, 1)]
    body = cards(figures) + _grid(
        plots.lines(f"Added and completed, per {each}", steps, done),
        plots.bars(f"Failures and retries, per {each}", steps, ends),
        drawing.latencies("Wait: from added (or due) to the first start", "jobs.wait"),
        drawing.latencies("Run: from the start of an attempt to its end", "jobs.run"),
        plots.bars("Depth: jobs that wait or run", steps, depth),
        plots.lines("Age of the oldest job that waits", steps, [Line("age", ages, 3)], show_seconds),
        plots.ranking("Queues with the most jobs", drawing.top("jobs.added"), 1),
        plots.ranking("Queues with the most failures", _failures(drawing), 4),
    )
    return Section("jobs", "Jobs", body, "Jobs that were over and have been cleaned away are not counted.")


def _failures(drawing: Drawing) -> list[tuple[str, float]]:
    together: dict[str, float] = {}
    for measure in ("jobs.failed", "jobs.retries", "jobs.timeouts"):
        for name, number in drawing.tally.names.get(measure, {}).items():
            together[name] = together.get(name, 0) + number
    return sorted(together.items(), key=lambda pair: (-pair[1], pair[0]))[:TOP]


def _ranking(drawing: Drawing, title: str, measure: str, color: int) -> str:
    top = drawing.top(measure)
    return drawing.plots.ranking(title, top, color) if top else ""


def _topics(drawing: Drawing, disk: Disk) -> Section | None:
    if not drawing.has("topics.published", "topics.gone", "topics.trimmed"):
        return None
    plots, steps, each = drawing.plots, drawing.steps, drawing.each
    figures = [
        ("published", show_number(drawing.total("topics.published")), "messages that are still there"),
        ("bytes", show_size(drawing.total("topics.bytes")), ""),
        ("topics", show_number(len(drawing.tally.names.get("topics.published", {}))), "with messages in this time"),
    ]
    body = cards(figures) + _grid(
        plots.bars(
            f"Messages published, per {each}", steps, [Line("published", drawing.counts("topics.published"), 1)]
        ),
        plots.bars(
            f"Bytes published, per {each}", steps, [Line("bytes", drawing.counts("topics.bytes"), 2)], show_size
        ),
        plots.ranking("Topics with the most messages", drawing.top("topics.published"), 1),
        plots.ranking("Topics with the most bytes", drawing.top("topics.bytes"), 2, show_size),
    )
    return Section("topics", "Topics", body, "What retention has let go is not counted.")


def _groups(drawing: Drawing, disk: Disk) -> Section | None:
    names = drawing.tally.names
    if not drawing.has("groups.delivered", "groups.acked", "groups.claimed") and "groups.consumers" not in names:
        return None
    plots, steps, each = drawing.plots, drawing.steps, drawing.each
    lines = drawing.lines_of(("groups.delivered", "delivered", 1), ("groups.acked", "acknowledged", 2))
    again = [Line("claimed", drawing.counts("groups.claimed"), 3)]
    measures = ("delivered", "acked", "claimed", "pending", "lag", "consumers")
    order = {name: number for number, (name, _) in enumerate(drawing.top("groups.delivered", 10**6))}
    every = sorted({name for measure in measures for name in names.get(f"groups.{measure}", {})})
    every.sort(key=lambda name: order.get(name, len(order)))
    rows: list[list[object]] = [
        [*name.split(BETWEEN, 1), *(names.get(f"groups.{measure}", {}).get(name) for measure in measures)]
        for name in every[: 2 * TOP]
    ]
    heads = ("topic", "group", "delivered ", "acknowledged ", "claimed ", "pending now ", "lag now ", "consumers ")
    body = _grid(
        plots.lines(f"Delivered and acknowledged, per {each}", steps, lines),
        plots.bars(f"Taken over from another consumer, per {each}", steps, again),
    ) + table(heads, rows)
    more = f"The {2 * TOP} with the most deliveries of {len(every):,} groups." if len(every) > 2 * TOP else ""
    return Section("groups", "Groups of topics", body, more)


def _queues(drawing: Drawing, disk: Disk) -> Section | None:
    if not drawing.has("queues.sent", "queues.acked", "queues.expired", "queues.created", messages.WAITING):
        return None
    plots, steps, each = drawing.plots, drawing.steps, drawing.each
    waiting, ages = drawing.levels(messages.WAITING), drawing.ages(messages.WAITING)
    is_depth_known = drawing.has(messages.WAITING) or not drawing.has(messages.IN_JOURNALS)
    figures = [
        ("sent", show_number(drawing.total("queues.sent")), show_size(drawing.total("queues.bytes"))),
        ("acknowledged", show_number(drawing.total("queues.acked")), ""),
        ("expired", show_number(drawing.total("queues.expired")), ""),
        ("met the quota", show_number(drawing.total("queues.quota")), ""),
        ("waiting at last", show_number(waiting[-1] or 0), f"the oldest for {show_seconds(ages[-1] or 0)}"),
        drawing.latency("delivery, the median", "queues.wait"),
    ]
    if not is_depth_known:
        figures = figures[:1]
    sent = drawing.lines_of(("queues.sent", "sent", 1), ("queues.acked", "acknowledged", 2))
    ends = drawing.lines_of(("queues.expired", "expired", 6), ("queues.quota", "met the quota", 4))
    pictures = [
        plots.lines(f"Sent and acknowledged, per {each}", steps, sent) if sent else "",
        plots.bars(f"Expired, or refused by the quota, per {each}", steps, ends) if sent or ends else "",
        *(_depth(drawing, waiting, ages) if is_depth_known else ()),
        drawing.latencies("Delivery: from sent to acknowledged", "queues.wait") if drawing.has("queues.wait") else "",
        _ranking(drawing, "Queues with the most messages", "queues.sent", 1),
        _ranking(drawing, "Queues with the most waiting at last", messages.WAITING, 3),
    ]
    body = cards(figures) + _grid(*pictures)
    note = "Queues are shown by their handles, as lamina queues does. What went before the last dump is not counted."
    if drawing.has(messages.IN_JOURNALS):
        note += " Of queues in journals only messages that are still on the disk are counted, not what became of them."
    return Section("queues", "Queues", body, note)


def _depth(drawing: Drawing, waiting: list[float | None], ages: list[float | None]) -> tuple[str, str]:
    plots, steps = drawing.plots, drawing.steps
    return (
        plots.bars("Depth: messages that wait", steps, [Line("waiting", waiting, 1)]),
        plots.lines("Age of the oldest message that waits", steps, [Line("age", ages, 3)], show_seconds),
    )


def _store(drawing: Drawing, disk: Disk) -> Section | None:
    if not drawing.has("store.puts", "store.removes", "store.cleared", "store.other"):
        return None
    plots, steps, each = drawing.plots, drawing.steps, drawing.each
    entries = drawing.lines_of(
        ("store.puts", "puts", 1),
        ("store.removes", "removes", 4),
        ("store.cleared", "clears", 6),
        ("store.other", "storages", 5),
    )
    epochs = drawing.rises("store.epoch", "store.lowest")
    catalog = disk.catalog
    live = sum(part.entries for part in catalog.parts) if catalog is not None else 0
    figures = [
        ("puts", show_number(drawing.total("store.puts")), "that are in its files"),
        ("removes", show_number(drawing.total("store.removes")), ""),
        ("bytes", show_size(drawing.total("store.bytes")), ""),
        ("epochs", show_number(sum(value or 0 for value in epochs)), "that wrote something"),
    ]
    if catalog is not None and catalog.generation:
        when = f"generation {catalog.generation}, {show_moment(catalog.time_ns)}"
        figures.append(("in compacted parts", show_number(live), when))
    top = [(f"storage {name}", number) for name, number in drawing.top("store.entries")]
    top_bytes = [(f"storage {name}", number) for name, number in drawing.top("store.bytes")]
    share = [sum(disk.bytes.get(("store", state), 0) for state in states) for states, _, _ in _SHARES]
    body = cards(figures) + _grid(
        plots.stack(
            "What its files hold", [("store", share)], [(label, color) for _, label, color in _SHARES], show_size
        ),
        plots.bars(f"Entries, per {each}", steps, entries),
        plots.bars(f"Bytes, per {each}", steps, [Line("bytes", drawing.counts("store.bytes"), 2)], show_size),
        plots.bars(f"Epochs, per {each}", steps, [Line("epochs", epochs, 5)], show_count),
        plots.ranking("Storages with the most entries", top, 1),
        plots.ranking("Storages with the most bytes", top_bytes, 2, show_size),
    )
    return Section(
        "store", "Store", body, "What compaction has left out, because something newer replaced it, is not counted."
    )


_SHARES: Final = (
    (("compacted",), "live when it was compacted", 2),
    (("active", "sealed"), "written since, live or replaced", 1),
    (("merged",), "dead: merged, to be removed by lamina store gc", 11),
)


def _plain(drawing: Drawing, disk: Disk) -> Section | None:
    if not drawing.has("logs.records"):
        return None
    plots, steps, each = drawing.plots, drawing.steps, drawing.each
    body = _grid(
        plots.bars(f"Records, per {each}", steps, [Line("records", drawing.counts("logs.records"), 1)]),
        plots.bars(f"Bytes, per {each}", steps, [Line("bytes", drawing.counts("logs.bytes"), 2)], show_size),
        plots.ranking("Logs with the most records", drawing.top("logs.records"), 1),
    )
    return Section("logs", "Plain logs", body)


def disk_of(drawing: Drawing, disk: Disk) -> str:
    """The disk by state: a picture and a table."""
    used = [state for state in STATES if disk.of_state(state)]
    rows = [(part, [disk.bytes.get((part, state), 0) for state in STATES]) for part in disk.parts]
    picture = drawing.plots.stack("Disk by state", rows, list(STATES.values()), show_size)
    heads = ("", *(f"{part} " for part in disk.parts), *(["together "] if len(rows) > 1 else []))
    cells: list[list[object]] = []
    for state in used:
        sizes = [disk.bytes.get((part, state), 0) for part in disk.parts]
        cells.append([STATES[state][0], *map(_bytes, sizes), *([_bytes(sum(sizes))] if len(rows) > 1 else [])])
    whole = [show_size(sum(sizes)) for _, sizes in rows]
    cells.append(["together", *whole, *([show_size(disk.total)] if len(rows) > 1 else [])])
    return f"<div class=grid>{picture}</div>" + table(heads, cells)


def _bytes(size: int) -> str:
    return show_size(size) if size else ""
