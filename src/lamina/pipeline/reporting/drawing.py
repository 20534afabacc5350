"""From what was counted to what a plot shows: numbers for each step of time, and the largest by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from lamina.pipeline.reporting.buckets import SECOND, show_width
from lamina.pipeline.reporting.facts import Facts
from lamina.pipeline.reporting.plots import Line, Plots, Steps, text
from lamina.pipeline.reporting.scales import show_count, show_seconds
from lamina.pipeline.reporting.tally import OTHERS, quantile, together

TOP: Final = 10
_SHARES: Final = ((0.5, "median", 1), (0.95, "95 %", 3), (0.99, "99 %", 4))


class Drawing:
    """All series of a page, over the same steps."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.tally = facts.tally
        self.plots = Plots()
        self.steps = Steps(facts.first * self.tally.width, self.tally.width, len(facts.buckets))
        self.each = show_width(self.tally.width)
        """Of a step, for titles."""

    # -- numbers -----------------------------------------------------------------------------------------------------

    def total(self, name: str) -> int:
        series = self.tally.series.get(name, {})
        return sum(series.get(bucket, 0) for bucket in self.facts.buckets)

    def counts(self, name: str) -> list[float | None]:
        """What happened in each step."""
        series = self.tally.series.get(name, {})
        return [series.get(bucket, 0) for bucket in self.facts.buckets]

    def levels(self, name: str) -> list[float | None]:
        """How many there were at the end of each step."""
        series = self.tally.series.get(name, {})
        level = sum(number for bucket, number in series.items() if bucket < self.facts.first)
        found: list[float | None] = []
        for bucket in self.facts.buckets:
            level += series.get(bucket, 0)
            found.append(level)
        return found

    def ages(self, name: str) -> list[float | None]:
        """How long the oldest had been waiting at the end of each step, in seconds."""
        first, last = self.facts.first, self.facts.last
        since: list[int | None] = [None] * len(self.facts.buckets)
        for (begin, end), oldest in sorted(self.tally.oldest.get(name, {}).items(), key=lambda pair: pair[1]):
            for bucket in range(max(begin, first), min(end, last + 1)):
                if since[bucket - first] is None:
                    since[bucket - first] = oldest
        ends = [min((bucket + 1) * self.tally.width, self.facts.last_ns) for bucket in self.facts.buckets]
        return [0 if oldest is None else max(end - oldest, 0) / SECOND for end, oldest in zip(ends, since, strict=True)]

    def rises(self, name: str, lowest: str) -> list[float | None]:
        """By how much a number that only grows has grown in each step."""
        highest, low = self.tally.highest.get(name, {}), self.tally.highest.get(lowest, {})
        found: list[float | None] = []
        before: int | None = None
        for bucket in self.facts.buckets:
            if bucket not in highest:
                found.append(0)
                continue
            start = -low[bucket] - 1 if before is None else before
            found.append(max(highest[bucket] - start, 0))
            before = max(highest[bucket], start)
        return found

    def quantiles(self, name: str) -> list[Line]:
        histograms = self.tally.latencies.get(name, {})
        return [
            Line(label, [quantile(histograms.get(bucket, {}), share) for bucket in self.facts.buckets], color)
            for share, label, color in _SHARES
        ]

    def latency(self, what: str, name: str) -> tuple[str, str, str]:
        """A card: the median over the whole time, and what is above it."""
        whole = together(list(self.tally.latencies.get(name, {}).values()))
        median, *others = (quantile(whole, share) for share, _, _ in _SHARES)
        if median is None:
            return what, "–", ""
        above = zip(_SHARES[1:], others, strict=True)
        remark = ", ".join(f"{label}: {show_seconds(value)}" for (_, label, _), value in above if value is not None)
        return what, show_seconds(median), remark

    def has(self, *names: str) -> bool:
        return any(self.tally.series.get(name) or self.tally.latencies.get(name) for name in names)

    def top(self, measure: str, count: int = TOP) -> list[tuple[str, float]]:
        names: Mapping[str, int] = self.tally.names.get(measure, {})
        known = [(name, float(number)) for name, number in names.items() if number and name != OTHERS]
        return sorted(known, key=lambda pair: (-pair[1], pair[0]))[:count]

    # -- pictures ----------------------------------------------------------------------------------------------------

    def lines_of(self, *series: tuple[str, str, int]) -> list[Line]:
        """Each a name, a label and a colour; those that are nothing but zero are left out."""
        found = [Line(label, self.counts(name), color) for name, label, color in series]
        return [line for line in found if any(line.values)]

    def latencies(self, title: str, name: str) -> str:
        return self.plots.lines(title, self.steps, self.quantiles(name), show_seconds, is_logarithmic=True)


def table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Heads that end in a blank are of numbers, set to the right. All cells are escaped."""
    if not rows:
        return ""
    kinds = [' class="n"' if head.endswith(" ") else "" for head in heads]
    top = "".join(f'<th scope="col"{kind}>{text(head.strip())}</th>' for head, kind in zip(heads, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{kind}>{text(_cell(cell))}</td>" for cell, kind in zip(row, kinds, strict=True)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: object) -> str:
    return f"{cell:,}" if isinstance(cell, int) else "" if cell is None else str(cell)


def cards(figures: Sequence[tuple[str, str, str]]) -> str:
    """Large figures: what, how much, and a remark."""
    items = "".join(
        f"<div><dt>{text(what)}</dt><dd>{text(value)}</dd><dd class=remark>{text(remark)}</dd></div>"
        for what, value, remark in figures
    )
    return f"<dl class=cards>{items}</dl>"


def show_number(value: float) -> str:
    return f"{value:,.0f}" if value < 10**6 else show_count(value)
