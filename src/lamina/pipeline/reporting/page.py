"""The page: one file of HTML with its style in it. It asks for nothing else, from anywhere, and runs no script."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from lamina.pipeline import places
from lamina.pipeline.reporting.disk import Disk
from lamina.pipeline.reporting.drawing import Drawing, cards, show_number, table
from lamina.pipeline.reporting.plots import text
from lamina.pipeline.reporting.scales import show_moment, show_seconds, show_size
from lamina.pipeline.reporting.sections import Section, disk_of
from lamina.pipeline.reporting.style import STYLE
from lamina.pipeline.reporting.tally import LogFacts

_MOST_LOGS: Final = 20
_KINDS: Final = {
    places.JOBS: "jobs",
    places.TOPIC: "topic",
    places.GROUPS: "groups of a topic",
    places.QUEUES: "queues",
    places.JOURNAL: "queues",
    places.STORE: "store",
    places.PLAIN: "plain log",
}
_SAFE: Final = "default-src 'none'; style-src 'unsafe-inline'"


def page(data: str, drawing: Drawing, disk: Disk, sections: Sequence[Section], now_ns: int) -> str:
    """The whole report."""
    facts = drawing.facts
    links = "".join(f'<a href="#{section.name}">{text(section.title)}</a>' for section in sections)
    body = "".join(
        f'<section id="{section.name}"><h2>{text(section.title)}</h2>'
        + (f"<p class=note>{text(section.note)}</p>" if section.note else "")
        + f"{section.body}</section>"
        for section in sections
    )
    asked = [
        f"{word} {show_moment(moment)} UTC"
        for word, moment in (("from", facts.times.since), ("before", facts.times.until))
        if moment is not None
    ]
    range_ = f"{show_moment(facts.first_ns)} to {show_moment(facts.last_ns)} UTC" if facts.last_ns else "no records"
    only = f" (only what is {' and '.join(asked)})" if asked else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_SAFE}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><meta name="generator" content="lamina">'
        f"<title>Lamina report: {text(data)}</title><style>{STYLE}</style></head><body>"
        f"<header><h1>Lamina report</h1><p><b>{text(data)}</b></p>"
        f"<p>{text(range_)}{text(only)}, in steps of {text(drawing.each)}</p>"
        f'<nav><a href="#overview">Overview</a>{links}</nav></header><main>'
        f'<section id="overview"><h2>Overview</h2>{_overview(drawing, disk)}</section>{body}</main>'
        f"<footer>Made {text(show_moment(now_ns))} UTC from the files of the logs. All times are UTC. Hover over a "
        "plot for its numbers. Quantiles are right to about six percent.</footer></body></html>\n"
    )


def _overview(drawing: Drawing, disk: Disk) -> str:
    facts = drawing.facts
    logs = facts.tally.logs
    records = sum(log.records for log in logs.values())
    length = (facts.last_ns - facts.first_ns) / 10**9
    figures = [
        ("records", show_number(records), f"{show_size(sum(log.bytes for log in logs.values()))} of payload"),
        ("logs", show_number(len(facts.logs)), ""),
        ("time", show_seconds(length) if length else "–", "from the first to the last record"),
        ("rate", f"{_rate(records / length)}/s" if length >= 1 else "–", "records, on average"),
        ("disk", show_size(disk.total), f"{sum(disk.files.values()):,} files"),
    ]
    damage = _damage(drawing)
    return damage + cards(figures) + _logs(drawing) + disk_of(drawing, disk)


def _rate(value: float) -> str:
    return show_number(value) if value >= 10 else f"{value:.2g}"


def _damage(drawing: Drawing) -> str:
    tally = drawing.tally
    if not tally.damages:
        return ""
    rows: list[list[object]] = [[one.log, one.file, one.position, one.reason] for one in tally.damage]
    count = "One place" if tally.damages == 1 else f"{tally.damages:,} places"
    listed = table(("log", "file", "byte ", "what is wrong"), rows)
    return (
        f"<div class=damage><p><b>{count} cannot be read.</b> What is there is not counted. "
        f"<code>lamina log verify</code> tells what can be done.</p>{listed}</div>"
    )


def _logs(drawing: Drawing) -> str:
    """Each log, or each kind of them if they are many."""
    facts = drawing.facts
    kinds: dict[str, str] = {"queues/messages": _KINDS[places.JOURNAL]}
    names: dict[str, str] = {"queues/messages": "messages"}
    for place in facts.logs:
        kinds[place.path], names[place.path] = _KINDS[place.kind], place.name
    are_many = len(facts.logs) > _MOST_LOGS
    rows: dict[tuple[str, str], LogFacts] = {}
    counts: dict[tuple[str, str], int] = {}
    for path in dict.fromkeys([*(place.path for place in facts.logs), *facts.tally.logs]):
        kind = kinds.get(path, path)
        key = (kind, "" if are_many else names.get(path, path))
        found = facts.tally.logs.get(path, LogFacts())
        rows.setdefault(key, LogFacts()).add(found.records, found.bytes, found.first_ns, found.last_ns)
        counts[key] = counts.get(key, 0) + 1
    cells: list[list[object]] = [
        [kind, f"{counts[kind, name]:,} logs" if are_many else name, one.records, show_size(one.bytes), *_times(one)]
        for (kind, name), one in rows.items()
    ]
    return table(("kind", "name", "records ", "payload ", "first", "last"), cells)


def _times(one: LogFacts) -> tuple[str, str]:
    first, last = (None if moment is None else show_moment(moment) for moment in (one.first_ns, one.last_ns))
    return first or "", last or ""
