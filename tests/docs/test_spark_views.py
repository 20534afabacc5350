"""Every view and every column is in the reference, as the program has it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

from lamina.pipeline import views

DOCUMENT = Path(__file__).resolve().parents[2] / "docs/reference/spark-views.md"


def sections() -> dict[str, str]:
    parts = re.split(r"^## `(\w+)`$", DOCUMENT.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_views_are_those_of_the_program_in_its_order() -> None:
    assert list(sections()) == list(views.VIEWS)


@pytest.mark.parametrize("name", views.VIEWS)
def test_the_columns_of_a_view_are_those_of_the_program(name: str) -> None:
    view, section = views.VIEWS[name], sections()[name]
    assert section.strip().startswith("State." if view.is_state else "Event view.")
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [f"| `{column.name}` | {column.type} | {column.meaning} |" for column in view.columns]


def test_every_state_says_how_far_back_it_reaches() -> None:
    told = re.findall(r"^\| (`.*?`) \|", DOCUMENT.read_text().split("## `records`")[0], flags=re.MULTILINE)
    names = [name for cell in told for name in re.findall(r"`([\w*]+)`", cell)]
    for name, view in views.VIEWS.items():
        assert not view.is_state or name in names or ("group_*" in names and name.startswith("group_"))
