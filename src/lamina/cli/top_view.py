"""How ``lamina top`` looks: a line about the server, then one small table for each engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lamina.cli.top_facts import Facts
from lamina.units import show_bytes, show_duration

_ROWS = 12  # of one table on a terminal that tells no height
_LEAST_ROWS = 3
_OTHER_LINES = 22  # headings, lines between, and what has one line


def view(facts: Facts, where: str, *, height: int | None = None, problem: str = "") -> RenderableType:
    """Everything, to be printed. ``height``: lines of the terminal; tables are cut to fit."""
    jobs, topics = facts.get("jobs"), facts.get("topics")
    rows = _ROWS if height is None else max((height - _OTHER_LINES) // 2, _LEAST_ROWS)
    parts: list[RenderableType] = [_head(facts, where)]
    if problem:
        parts.append(Text(problem, style="bold red"))
    if facts.get("disk"):
        parts.append(_disk(facts["disk"]))
    if jobs is not None:
        parts += [Text(), _jobs(jobs, rows)]
    if topics is not None:
        parts += [Text(), _topics(topics, rows)]
    for line in (_queues(facts.get("queues")), _store(facts.get("store"))):
        if line is not None:
            parts += [Text(), line]
    return Group(*parts)


def _head(facts: Facts, where: str) -> Text:
    server = facts.get("server")
    line = Text.assemble(("lamina top", "bold"), f"  {where}")
    if server is None:
        return line
    phase = server["phase"]
    line.append(f"  {phase}", style="green" if phase == "ready" and not server["problems"] else "bold red")
    words = [
        f"up {show_duration(server['uptime_s'] or 0)}",
        f"{_count(server['connections'])} connections ({_count(server['waiting'])} wait)",
        f"{_rate(server['commands_per_s'])} commands/s",
        f"cpu {_rate(server['cpu_percent'])} %",
        f"memory {_bytes(server['memory_bytes'])}",
    ]
    line.append("\n" + "   ".join(words))
    if server["problems"]:
        line.append(f"\n{server['problems']}", style="bold red")
    return line


def _disk(disk: Facts) -> Text:
    free, total = disk["free_bytes"], disk["total_bytes"]
    words = [f"disk {_bytes(disk['written_per_s'])}/s written"]
    if free is not None and total:
        words.append(f"{_bytes(free)} of {_bytes(total)} free")
    words += [f"{name} {_bytes(size)}" for name, size in disk["by_engine"].items()]
    line = Text("   ".join(words))
    if disk["is_full"]:
        line.append("   FULL: nothing new is taken", style="bold red")
    return line


def _jobs(jobs: Facts, rows: int) -> RenderableType:
    queues = jobs["by_queue"]
    title = f"jobs  {_count(jobs['jobs'])} in {_count(jobs['queues'])} queues"
    if jobs.get("changes_per_s") is not None:
        title += f", {_rate(jobs['changes_per_s'])} changes/s, {_bytes(jobs['bytes_per_s'])}/s"
    if jobs.get("evicted"):
        title += f", {_count(jobs['evicted'])} expired"
    columns = ("queue", "ready ", "scheduled ", "leased ", "failed ", "completed ", "oldest ready ")
    lines = [
        (
            queue["name"] + (" (paused)" if queue.get("is_paused") else ""),
            *(_count(queue.get(state)) for state in ("ready", "scheduled", "leased", "failed", "completed")),
            "-" if queue.get("oldest_s") is None else show_duration(queue["oldest_s"]),
        )
        for queue in queues
    ]
    return _table(title, columns, lines, rows)


def _topics(topics: Facts, rows: int) -> RenderableType:
    title = f"topics  {_count(topics['topics'])}, {_count(topics['open'])} in use"
    title += f", {_rate(topics['added_per_s'])} messages/s, {_bytes(topics['bytes_per_s'])}/s"
    lines = []
    for topic in topics["by_topic"]:
        groups = topic["groups"]
        worst = max(groups, key=lambda group: group["lag"] or 0, default=None)
        lines.append(
            (
                topic["name"],
                _count(topic["length"]),
                _rate(topic["per_s"]),
                _count(len(groups)),
                "-" if worst is None else _count(worst["lag"]),
                "-" if worst is None else _count(sum(group["pending"] or 0 for group in groups)),
                "" if worst is None else worst["name"],
            )
        )
    columns = ("topic", "messages ", "per second ", "groups ", "most behind ", "pending ", "the group")
    return _table(title, columns, lines, rows)


def _queues(queues: Facts | None) -> Text | None:
    if queues is None:
        return None
    words = [
        f"{_count(queues['queues'])} ({queues['store']})",
        f"{_count(queues['messages'])} messages wait",
        f"{_count(queues['subscribers'])} subscribers",
        f"{_rate(queues['changes_per_s'])} changes/s",
        f"{_count(queues['expired'])} expired",
    ]
    return Text.assemble(("queues  ", "bold"), "   ".join(words))


def _store(store: Facts | None) -> Text | None:
    if store is None:
        return None
    words = [
        f"epoch {_count(store['epoch'])} (durable {_count(store['durable_epoch'])})",
        f"{_rate(store['epochs_per_s'])} epochs/s",
        f"{_count(store['files'])} files, {_count(store['parts'])} compacted",
        f"{_count(store['channels'])} channels",
    ]
    if store["refusals"]:
        words.append(f"{_count(store['refusals'])} refused")
    return Text.assemble(("store  ", "bold"), "   ".join(words))


def _table(title: str, columns: Sequence[str], lines: Sequence[Sequence[str]], rows: int) -> RenderableType:
    """Columns whose name ends in a blank are numbers, set to the right."""
    if not lines:
        return Text(title, style="bold")
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(name.strip(), justify="right" if name.endswith(" ") else "left", no_wrap=True)
    for line in lines[:rows]:
        table.add_row(*(Text(_printable(cell)) for cell in line))
    parts: list[RenderableType] = [Text(title, style="bold"), table]
    if len(lines) > rows:
        parts.append(Text(f"and {len(lines) - rows} more", style="dim"))
    return Group(*parts)


def _printable(text: str) -> str:
    # Names come from clients: no control characters on somebody's terminal.
    return "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text)


def _count(number: Any) -> str:
    return "-" if number is None else f"{number:,}"


def _rate(number: float | None) -> str:
    if number is None:
        return "-"
    return f"{number:,.0f}" if number >= 10 else f"{number:.1f}"


def _bytes(number: float | None) -> str:
    return "-" if number is None else show_bytes(int(number))
