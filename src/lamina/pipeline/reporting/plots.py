"""Pictures of numbers, as SVG that stands in a page of HTML: lines, stacked bars over time, and bars by name.

Colours are classes (page.py): the page decides, for light, dark and paper. Hovering over a step shows its numbers; for
who does not see the picture there is a title and a description. All text is escaped here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import count
from typing import Final

from lamina.pipeline.reporting.scales import (
    Scale,
    linear,
    logarithmic,
    seconds,
    show_count,
    show_moment,
    show_seconds,
    show_size,
    time_ticks,
)
from lamina.units import KIB

_WIDTH: Final = 560
_HEIGHT: Final = 230
_LEFT: Final = 62
_RIGHT: Final = 14
_TOP: Final = 12
_BOTTOM: Final = 28
_MOST_CHARACTERS: Final = 34

Show = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Line:
    """One series: a number for each step, None where there is none."""

    label: str
    values: Sequence[float | None]
    color: int


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of time that all series of a plot have."""

    first_ns: int
    width: int
    count: int

    @property
    def end_ns(self) -> int:
        return self.first_ns + self.width * self.count

    def show(self, number: int) -> str:
        return f"{show_moment(self.first_ns + number * self.width, self.width)} UTC"


class Plots:
    """Makes the pictures of one page: each has a number, which its title is found by."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def bars(self, title: str, steps: Steps, lines: Sequence[Line], show: Show = show_count) -> str:
        """Stacked, a bar for each step."""
        totals = [sum(line.values[at] or 0 for line in lines) for at in range(steps.count)]
        if not any(totals):
            return self._empty(title)
        scale = _scale(max(totals), show)
        wide = (_WIDTH - _LEFT - _RIGHT) / steps.count
        gap = min(wide * 0.15, 1.5)
        shapes = []
        bottoms = [0.0] * steps.count
        for line in lines:
            path = []
            for at, value in enumerate(line.values):
                if value:
                    low, high = _y(scale, bottoms[at]), _y(scale, bottoms[at] + value)
                    x = _LEFT + at * wide
                    path.append(f"M{x + gap / 2:.1f} {low:.1f}V{high:.1f}H{x + wide - gap / 2:.1f}V{low:.1f}Z")
                    bottoms[at] += value
            if path:
                shapes.append(f'<path class="f{line.color}" d="{"".join(path)}"/>')
        return self._plot(title, steps, lines, scale, shapes, show, totals if len(lines) > 1 else None)

    def lines(
        self, title: str, steps: Steps, lines: Sequence[Line], show: Show = show_count, *, is_logarithmic: bool = False
    ) -> str:
        """One line for each series; the area below the only one is filled."""
        known = [value for line in lines for value in line.values if value is not None]
        if not any(known):
            return self._empty(title)
        scale = logarithmic([value for value in known if value > 0]) if is_logarithmic else _scale(max(known), show)
        wide = (_WIDTH - _LEFT - _RIGHT) / steps.count
        shapes = []
        for line in lines:
            for run in _runs(line.values):
                points = [(_LEFT + (at + 0.5) * wide, _y(scale, value)) for at, value in run]
                path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
                if len(lines) == 1 and len(points) > 1 and not is_logarithmic:
                    floor = _HEIGHT - _BOTTOM
                    area = f"{path}L{points[-1][0]:.1f} {floor}L{points[0][0]:.1f} {floor}Z"
                    shapes.append(f'<path class="f{line.color} area" d="{area}"/>')
                if len(points) == 1:
                    shapes.append(
                        f'<circle class="f{line.color}" cx="{points[0][0]:.1f}" cy="{points[0][1]:.1f}" r="2.2"/>'
                    )
                else:
                    shapes.append(f'<path class="s{line.color}" d="{path}"/>')
        return self._plot(title, steps, lines, scale, shapes, show, None)

    def ranking(self, title: str, rows: Sequence[tuple[str, float]], color: int, show: Show = show_count) -> str:
        """Bars by name, the largest first."""
        if not rows:
            return self._empty(title)
        row, top = 21, 4
        height = max(len(rows) * row + top + 4, 60)
        left, right = 210, 76
        most = max(value for _, value in rows) or 1
        shapes = []
        for at, (name, value) in enumerate(rows):
            y = top + at * row
            long = max((_WIDTH - left - right) * value / most, 1)
            shown = shorten(name)
            shapes.append(
                f"<g><title>{text(name)}: {text(show(value))}</title>"
                f'<text class="name" x="{left - 8}" y="{y + 14}" text-anchor="end">{text(shown)}</text>'
                f'<rect class="f{color}" x="{left}" y="{y + 3}" width="{long:.1f}" height="{row - 7}" rx="2"/>'
                f'<text x="{left + long + 6:.1f}" y="{y + 14}">{text(show(value))}</text></g>'
            )
        about = ", ".join(f"{name} {show(value)}" for name, value in rows[:3])
        return self._figure(title, f"The largest: {about}.", height, shapes, "")

    def stack(
        self, title: str, rows: Sequence[tuple[str, Sequence[float]]], parts: Sequence[tuple[str, int]], show: Show
    ) -> str:
        """A bar for each row, made of parts that all rows have in common: labels and colours. As wide as the page."""
        most = max((sum(values) for _, values in rows), default=0)
        if not most:
            return self._empty(title)
        width, row, left, right = 2 * _WIDTH, 30, 90, 90
        shapes = []
        for at, (name, values) in enumerate(rows):
            x, y = float(left), 4 + at * row
            shapes.append(
                f'<text class="name" x="{left - 10}" y="{y + 18}" text-anchor="end">{text(shorten(name))}</text>'
            )
            for (label, color), value in zip(parts, values, strict=True):
                long = (width - left - right) * value / most
                if value:
                    shapes.append(
                        f'<rect class="f{color}" x="{x:.1f}" y="{y + 3}" '
                        f'width="{max(long, 0.7):.1f}" height="{row - 9}">'
                        f"<title>{text(name)}, {text(label)}: {text(show(value))}</title></rect>"
                    )
                x += long
            shapes.append(f'<text x="{x + 8:.1f}" y="{y + 18}">{text(show(sum(values)))}</text>')
        used = [Line(part[0], (), part[1]) for at, part in enumerate(parts) if any(values[at] for _, values in rows)]
        about = ", ".join(f"{name} {show(sum(values))}" for name, values in rows)
        return self._figure(title, about, len(rows) * row + 8, shapes, _legend(used), width)

    # -- what all have -----------------------------------------------------------------------------------------------

    def _plot(
        self,
        title: str,
        steps: Steps,
        lines: Sequence[Line],
        scale: Scale,
        shapes: Sequence[str],
        show: Show,
        totals: Sequence[float] | None,
    ) -> str:
        parts = [*_axes(steps, scale, show), *shapes, *_hovers(steps, lines, show, totals)]
        tops = [(line.label, [value for value in line.values if value is not None]) for line in lines]
        about = "; ".join(
            f"{label}: at most {show(max(values))}, at last {show(values[-1])}" for label, values in tops if values
        )
        about = f"From {steps.show(0)} to {steps.show(steps.count - 1)}. {about}."
        return self._figure(title, about, _HEIGHT, parts, _legend(lines) if len(lines) > 1 else "")

    def _figure(
        self, title: str, about: str, height: float, shapes: Sequence[str], legend: str, width: int = _WIDTH
    ) -> str:
        number = next(self._numbers)
        wide = ' class="wide"' if width > _WIDTH else ""
        return (
            f"<figure{wide}><figcaption>{text(title)}</figcaption>{legend}"
            f'<svg viewBox="0 0 {width} {height:.0f}" role="img" '
            f'aria-labelledby="t{number} d{number}"><title id="t{number}">{text(title)}</title>'
            f'<desc id="d{number}">{text(about)}</desc>{"".join(shapes)}</svg></figure>'
        )

    def _empty(self, title: str) -> str:
        words = f'<text class="none" x="{_WIDTH / 2}" y="34" text-anchor="middle">nothing in this time</text>'
        return self._figure(title, "Nothing in this time.", 60, [words], "")


def text(value: object) -> str:
    """For HTML and SVG. What comes from the disk may hold anything: characters that do not show are replaced."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in str(value))
    return escape(shown)


def shorten(name: str) -> str:
    return name if len(name) <= _MOST_CHARACTERS else f"{name[: _MOST_CHARACTERS - 1]}…"


def _scale(highest: float, show: Show) -> Scale:
    if show is show_seconds:
        return seconds(highest)
    return linear(highest, base=KIB if show is show_size else 10)


def _y(scale: Scale, value: float) -> float:
    return _HEIGHT - _BOTTOM - scale.place(value) * (_HEIGHT - _TOP - _BOTTOM)


def _runs(values: Sequence[float | None]) -> list[list[tuple[int, float]]]:
    """Neighbours that there are numbers for."""
    runs: list[list[tuple[int, float]]] = []
    was_known = False
    for at, value in enumerate(values):
        if value is not None:
            if not was_known:
                runs.append([])
            runs[-1].append((at, value))
        was_known = value is not None
    return runs


def _axes(steps: Steps, scale: Scale, show: Show) -> list[str]:
    right, floor = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    parts = []
    for tick in scale.ticks:
        y = _y(scale, tick)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{_LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">{text(show(tick))}</text>')
    for moment, label in time_ticks(steps.first_ns, steps.end_ns):
        x = _LEFT + (moment - steps.first_ns) / (steps.end_ns - steps.first_ns) * (right - _LEFT)
        parts.append(f'<line class="tick" x1="{x:.1f}" x2="{x:.1f}" y1="{floor}" y2="{floor + 4}"/>')
        anchor = "start" if x < _LEFT + 20 else "end" if x > right - 20 else "middle"
        parts.append(f'<text x="{x:.1f}" y="{floor + 17}" text-anchor="{anchor}">{text(label)}</text>')
    return [*parts, f'<line class="axis" x1="{_LEFT}" x2="{right}" y1="{floor}" y2="{floor}"/>']


def _hovers(steps: Steps, lines: Sequence[Line], show: Show, totals: Sequence[float] | None) -> list[str]:
    """Over each step with numbers something unseen that tells them."""
    wide = (_WIDTH - _LEFT - _RIGHT) / steps.count
    parts = []
    for at in range(steps.count):
        values = [(line.label, line.values[at]) for line in lines]
        told = [f"{label}: {show(value)}" for label, value in values if value]
        if not told:
            continue
        if totals is not None:
            told.append(f"together: {show(totals[at])}")
        words = "\n".join(text(part) for part in (steps.show(at), *told))
        parts.append(
            f'<rect class="hover" x="{_LEFT + at * wide:.1f}" y="{_TOP}" width="{wide:.1f}" '
            f'height="{_HEIGHT - _TOP - _BOTTOM}"><title>{words}</title></rect>'
        )
    return parts


def _legend(lines: Sequence[Line]) -> str:
    items = "".join(f'<li><i class="b{line.color}"></i>{text(line.label)}</li>' for line in lines)
    return f'<ul class="legend">{items}</ul>'
