"""Line charts, drawn by the server as SVG: ``line_chart`` gives a whole <figure>, to be put into a template as it is.

    charts.line_chart(
        "chart-rates",                                  id of the figure, the same at each rendering
        "Records added",                                what it shows
        [Line("jobs", values), Line("topics", more)],   a value each ``step_s``, None where there is none: a gap
        start_s=1794725200, step_s=10,                  unix time of the first value
        unit="rate",                                    scales.Unit: count, rate, seconds, bytes, percent
        note="a second",                                small, behind the title
        marks=[(1794725300, "restart")],                moments that are marked
    )

The SVG is the plot alone and is as wide as there is room; letters keep their size, for what is drawn to scale is in an
inner SVG and what is written is not. The text around the plot stands in the padding of the box (style.css, ``.plot``).
Colours are classes. Values for the hover (static/charts.js) are in ``data-`` attributes of the box; the same values,
thinned, are in a table for those who cannot see or have no scripts. The page has to load the script, in its foot:
``{% block foot %}<script src="/static/charts.js" defer></script>{% endblock %}``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from markupsafe import Markup, escape

from lamina.server.http.console.scales import Scale, Unit, scale, show, spread, time_ticks

HEIGHT: Final = 150
"""Of the plot, in pixels."""
_FINE: Final = 10  # steps of the inner drawing in a pixel of the height
_COLOURS: Final = ("one", "two", "three", "four")
_ROWS: Final = 12  # of the table
_LABEL: Final = 13.0  # pixels from one label to the next
_MOST_MARKS: Final = 50


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart."""

    name: str
    values: Sequence[float | None]
    colour: str = ""
    """``one`` to ``four``; empty: by its place."""


def line_chart(
    id: str,
    title: str,
    lines: Sequence[Line],
    *,
    start_s: int,
    step_s: int,
    unit: Unit = "count",
    note: str = "",
    marks: Iterable[tuple[int, str]] = (),
    empty: str = "Nothing was recorded in this time.",
) -> Markup:
    """A figure. All lines have a value each ``step_s`` seconds from ``start_s`` on; up to four are told apart.

    With a single line the area below it is filled. ``empty`` is said where there is no value at all.
    """
    count = max((len(line.values) for line in lines), default=0)
    known = [value for line in lines for value in line.values if value is not None]
    caption = Markup("<figcaption>{}{}</figcaption>").format(
        title, Markup(" <small>{}</small>").format(note) if note else ""
    )
    if not known or count < 2:
        return Markup('<figure id="{}" class="chart">{}<p class="faint none">{}</p></figure>').format(
            id, caption, empty
        )
    named = [(line, line.colour or _COLOURS[at % len(_COLOURS)]) for at, line in enumerate(lines)]
    axis = scale(max(known), unit)
    end_s = start_s + (count - 1) * step_s
    data = {
        "start": start_s,
        "step": step_s,
        "count": count,
        "unit": unit,
        "top": f"{axis.top:.10g}",
        "names": "\n".join(line.name.replace("\n", " ") for line in lines),
        "colours": " ".join(colour for _, colour in named),
        "values": ";".join(_packed(line.values) for line in lines),
    }
    box = Markup(" ").join(Markup('data-{}="{}"').format(name, value) for name, value in data.items())
    drawn = "".join(_drawn(line.values, colour, axis, is_filled=len(lines) == 1) for line, colour in named)
    svg = (
        f'<svg class="lines" height="{HEIGHT}" aria-hidden="true" focusable="false">{_across(axis)}'
        f"{_down(start_s, end_s)}"
        f'<svg width="100%" height="{HEIGHT}" viewBox="0 0 {count - 1} {HEIGHT * _FINE}" preserveAspectRatio="none">'
        f"{drawn}</svg>{_marked(marks, start_s, end_s)}{_ends(named, axis)}</svg>"
    )
    told = _told(title, lines, unit)
    return Markup(
        '<figure id="{id}" class="chart">{caption}'
        '<div class="plot" tabindex="0" role="group" aria-label="{told}" {box}>{svg}</div>'
        '<details id="{id}-values"><summary>Values</summary>{table}</details></figure>'
    ).format(
        id=id,
        caption=caption,
        told=told,
        box=box,
        svg=Markup(svg),  # noqa: S704 - numbers, and names that were escaped
        table=_table(lines, start_s, step_s, count, unit),
    )


# -- the drawing -------------------------------------------------------------------------------------------------------


def _drawn(values: Sequence[float | None], colour: str, axis: Scale, *, is_filled: bool) -> str:
    """A line with its gaps. A value that stands alone between gaps is a point."""
    full = HEIGHT * _FINE
    factor = full / axis.top
    paths: list[str] = []
    areas: list[str] = []
    place, count = 0, len(values)
    while place < count:
        if values[place] is None:
            place += 1
            continue
        first = place
        heights: list[int] = []
        while place < count and (value := values[place]) is not None:
            heights.append(full - min(max(round(value * factor), 0), full))
            place += 1
        path = f"M{first} {heights[0]}" + (_steps(heights) or "h.001")
        paths.append(path)
        if is_filled and len(heights) > 1:
            areas.append(f"{path}V{full}H{first}Z")
    area = f'<path class="area {colour}" d="{"".join(areas)}"/>' if areas else ""
    return f'{area}<path class="line {colour}" vector-effect="non-scaling-stroke" d="{"".join(paths)}"/>'


def _steps(heights: Sequence[int]) -> str:
    """From each height to the next; where it stays the same, in one stroke."""
    steps: list[str] = []
    level, flat = heights[0], 0
    for height in heights[1:]:
        if height == level:
            flat += 1
            continue
        if flat:
            steps.append(f"h{flat}")
            flat = 0
        steps.append(f"l1 {height - level}")
        level = height
    if flat:
        steps.append(f"h{flat}")
    return "".join(steps)


def _across(axis: Scale) -> str:
    """A thin line at each tick of the height, with its label on the left."""
    drawn = []
    for tick in axis.ticks:
        y = HEIGHT * (1 - tick / axis.top)
        kind = "base" if tick == 0 else "grid"
        drawn.append(
            f'<line class="{kind}" x1="0" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text class="left" x="0" dx="-6" y="{y + 4:.1f}">{escape(axis.label(tick))}</text>'
        )
    return "".join(drawn)


def _down(start_s: int, end_s: int) -> str:
    """Times below; where there is little room every second one is hidden."""
    drawn = []
    for number, (moment, label) in enumerate(time_ticks(start_s, end_s)):
        at = _across_at(moment, start_s, end_s)
        drawn.append(
            f'<line class="tick" x1="{at}" x2="{at}" y1="{HEIGHT}" y2="{HEIGHT + 4}"/>'
            f'<text class="below{" second" if number % 2 else ""}" x="{at}" y="{HEIGHT + 17}">{escape(label)}</text>'
        )
    return "".join(drawn)


def _across_at(moment: float, start_s: int, end_s: int) -> str:
    return f"{100 * (moment - start_s) / max(end_s - start_s, 1):.2f}%"


def _marked(marks: Iterable[tuple[int, str]], start_s: int, end_s: int) -> str:
    within = [(moment, label) for moment, label in marks if start_s <= moment <= end_s][-_MOST_MARKS:]
    return "".join(
        f'<g class="mark"><title>{escape(label)}</title>'
        f'<line x1="{at}" x2="{at}" y1="0" y2="{HEIGHT}"/><circle cx="{at}" cy="0" r="2.5"/></g>'
        for at, label in ((_across_at(moment, start_s, end_s), label) for moment, label in within)
    )


def _ends(named: Sequence[tuple[Line, str]], axis: Scale) -> str:
    """The name of each line where it ends, on the right. A single line needs none: the title says what it is."""
    if len(named) < 2:
        return ""
    last = [next((value for value in reversed(line.values) if value is not None), 0.0) for line, _ in named]
    heights = [HEIGHT * (1 - min(max(value / axis.top, 0.0), 1.0)) + 4 for value in last]
    return "".join(
        f'<text class="end {colour}" x="100%" dx="7" y="{y:.1f}">{escape(line.name)}</text>'
        for (line, colour), y in zip(named, spread(heights, _LABEL, 6.0, HEIGHT + 4.0), strict=True)
    )


# -- for those who do not see it ---------------------------------------------------------------------------------------


def _packed(values: Iterable[float | None]) -> str:
    """Four figures each; nothing where there is no value."""
    return ",".join(["" if value is None else "0" if not value else f"{value:.4g}" for value in values])


def _told(title: str, lines: Sequence[Line], unit: Unit) -> str:
    """The chart in words."""
    told = [f"{title}, over time, UTC"]
    for line in lines:
        known = [value for value in line.values if value is not None]
        if known:
            least, most = show(min(known), unit), show(max(known), unit)
            told.append(f"{line.name}: {show(known[-1], unit)} at the end, between {least} and {most}")
        else:
            told.append(f"{line.name}: no values")
    return ". ".join(told) + ". Arrow keys read single values."


def _table(lines: Sequence[Line], start_s: int, step_s: int, count: int, unit: Unit) -> Markup:
    """A dozen rows, the newest first."""
    every = max(-(-count // _ROWS), 1)
    head = Markup("").join(Markup('<th class="number">{}</th>').format(line.name) for line in lines)
    rows = []
    for place in range(count - 1, -1, -every):
        moment = datetime.fromtimestamp(start_s + place * step_s, UTC)
        cells = "".join(
            f'<td class="number">{escape(show(line.values[place] if place < len(line.values) else None, unit))}</td>'
            for line in lines
        )
        rows.append(f"<tr><td>{moment:%Y-%m-%d %H:%M:%S}</td>{cells}</tr>")
    return Markup(
        '<div class="table"><table><thead><tr><th>Time, UTC</th>{}</tr></thead><tbody>{}</tbody></table></div>'
    ).format(head, Markup("".join(rows)))  # noqa: S704 - numbers only
