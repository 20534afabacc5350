"""Charts: axes that can be read, gaps that are gaps, and names that stay text."""

from __future__ import annotations

import re
import xml.etree.ElementTree as Tree
from html import unescape
from itertools import pairwise

import pytest

from lamina.server.http.console.charts import HEIGHT, Line, line_chart
from lamina.server.http.console.scales import Unit, scale, show, spread, time_ticks

START = 1_700_000_000


def _parsed(figure: str) -> Tree.Element:
    """It is well formed, as HTML and as XML."""
    return Tree.fromstring(figure)  # noqa: S314 - our own


def _paths(figure: str) -> list[str]:
    return [path.attrib["d"] for path in _parsed(figure).iter("path") if "line" in path.attrib["class"].split()]


def test_a_chart_has_axes_a_label_for_each_line_and_a_table() -> None:
    figure = line_chart(
        "chart-a",
        "Came in",
        [Line("jobs", [0, 50, 100]), Line("topics", [10, 20, 30])],
        start_s=START,
        step_s=60,
        unit="rate",
        note="a second",
    )

    root = _parsed(figure)
    assert root.attrib == {"id": "chart-a", "class": "chart"}
    texts = [text.text for text in root.iter("text")]
    assert "100/s" in texts and "0" in texts
    assert [text.text for text in root.iter("text") if "end" in text.attrib["class"]] == ["jobs", "topics"]
    cells = [cell.text for cell in root.iter("td")]
    assert cells[:3] == ["2023-11-14 22:15:20", "100/s", "30/s"]
    assert len(cells) == 9
    box = next(each for each in root.iter("div") if each.attrib["class"] == "plot")
    assert box.attrib["tabindex"] == "0"
    assert "jobs: 100/s at the end, between 0 and 100/s" in box.attrib["aria-label"]


def test_a_gap_is_a_gap_and_a_lonely_value_is_a_point() -> None:
    figure = line_chart("a", "t", [Line("x", [1, 2, None, 4, None, None, 2, 2])], start_s=START, step_s=10)

    (path,) = _paths(figure)
    full = HEIGHT * 10
    assert path.startswith(f"M0 {full - full // 4}l1 ")
    assert path.count("M") == 3
    assert "M3 0h.001" in path  # the highest, alone
    assert path.endswith("h1")
    assert 'data-values="1,2,,4,,,2,2"' in figure


def test_a_line_is_where_its_values_are() -> None:
    figure = line_chart("a", "t", [Line("x", [0, 50, 100])], start_s=START, step_s=10)

    assert _paths(figure) == [f"M0 {HEIGHT * 10}l1 -750l1 -750"]
    assert f'viewBox="0 0 2 {HEIGHT * 10}"' in figure


def test_names_titles_and_marks_are_text_whatever_is_in_them() -> None:
    evil = '<script>alert("1")</script>&\'" onload=x'
    figure = line_chart(
        'chart"><b>',
        evil,
        [Line(evil, [1, 2]), Line("other\nname", [2, 3])],
        start_s=START,
        step_s=10,
        note=evil,
        marks=[(START, evil)],
    )

    assert "<script" not in figure and "<b>" not in figure
    root = _parsed(figure)
    drawn = {"svg", "line", "text", "path", "g", "title", "circle"}
    around = {"figure", "figcaption", "small", "div", "details", "summary", "table", "thead", "tbody", "tr", "th", "td"}
    assert {element.tag for element in root.iter()} <= drawn | around
    assert evil in [text.text for text in root.iter("text") if "end" in text.attrib["class"]]
    names = unescape(re.findall('data-names="(.*?)"', figure, re.S)[0])
    assert names.split("\n") == [evil, "other name"]


def test_no_style_and_no_handler_is_written_into_it() -> None:
    figure = line_chart("a", "t", [Line("x", [1, 2])], start_s=START, step_s=10, marks=[(START + 5, "restart")])

    for element in _parsed(figure).iter():
        assert not [name for name in element.attrib if name == "style" or name.startswith("on")]


@pytest.mark.parametrize("lines", [[], [Line("x", [])], [Line("x", [None, None])], [Line("x", [5])]])
def test_nothing_to_show_is_said(lines: list[Line]) -> None:
    figure = line_chart("a", "t", lines, start_s=START, step_s=10, empty="none yet")

    assert "none yet" in figure and "<svg" not in figure


def test_only_marks_within_the_time_are_drawn() -> None:
    marks = [(START - 1, "before"), (START + 10, "within"), (START + 21, "after")]
    figure = line_chart("a", "t", [Line("x", [1, 2, 3])], start_s=START, step_s=10, marks=marks)

    assert [title.text for title in _parsed(figure).iter("title")] == ["within"]
    assert 'x1="50.00%"' in figure


@pytest.mark.parametrize("values", [[0, 0], [1e-9, 2e-9], [1e15, 3e15], [0.0, 1e300], [-5, 5]])
@pytest.mark.parametrize("unit", ["count", "rate", "seconds", "bytes", "percent"])
def test_any_size_of_values_can_be_drawn(values: list[float], unit: Unit) -> None:
    figure = line_chart("a", "t", [Line("x", values)], start_s=START, step_s=10, unit=unit)

    assert "nan" not in figure and "inf" not in figure
    assert _paths(figure)


@pytest.mark.parametrize(
    ("highest", "unit", "labels"),
    [
        (0, "count", ["0", "1", "2", "3", "4"]),
        (3, "count", ["0", "1", "2", "3"]),
        (97, "rate", ["0", "50/s", "100/s"]),
        (5300, "rate", ["0", "2k/s", "4k/s", "6k/s"]),
        (0.0034, "seconds", ["0", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (110, "seconds", ["0", "30 s", "1 min", "1.5 min", "2 min"]),
        (7000, "seconds", ["0", "30 min", "1 h", "1.5 h", "2 h"]),
        (3e5, "seconds", ["0", "1 d", "2 d", "3 d", "4 d"]),
        (3 << 20, "bytes", ["0", "1 MiB", "2 MiB", "3 MiB"]),
        (100, "percent", ["0 %", "50 %", "100 %"]),
    ],
)
def test_ticks_are_round_in_their_unit(highest: float, unit: Unit, labels: list[str]) -> None:
    made = scale(highest, unit)

    assert [made.label(tick).replace("\u202f", " ") for tick in made.ticks] == labels
    assert made.top >= highest


def test_times_are_round_and_in_utc() -> None:
    midnight = 1_699_920_000
    hour = [label for _, label in time_ticks(midnight - 1800, midnight + 1800)]
    assert hour == ["23:30", "23:40", "23:50", "14 Nov", "00:10", "00:20", "00:30"]
    assert [label for _, label in time_ticks(midnight, midnight + 60)][:2] == ["14 Nov", "00:00:10"]
    two_weeks = time_ticks(midnight, midnight + 14 * 86400)
    assert [label for _, label in two_weeks][:2] == ["15 Nov", "17 Nov"] and len(two_weeks) == 7
    assert 2 <= len(time_ticks(0, 10**9)) <= 8


def test_labels_do_not_cover_each_other() -> None:
    found = spread([100, 101, 99, 5], 13, 6, 154)

    places = sorted(found)
    assert all(later - earlier >= 13 for earlier, later in pairwise(places))
    assert found[2] < found[0] < found[1]
    assert min(found) >= 5.9 and max(found) <= 154
    crowded = spread([200, 200], 13, 6, 154)
    assert crowded == [141, 154] or crowded == [154, 141]


def test_numbers_have_three_figures() -> None:
    assert [show(value, "count") for value in (0, 0.25, 12, 999, 1234, 12_345, 999_999, 3.4e6, None)] == [
        *("0", "0.25", "12", "999", "1.23k", "12.3k", "1M", "3.4M", "–")
    ]
    assert show(0.00025, "seconds") == "250\u202fµs"
    assert show(1536, "bytes") == "1.5\u202fKiB"
