"""docs/formats/consumers.md is right to the byte."""

from __future__ import annotations

import re
from pathlib import Path

from lamina.log.consumer_file import Consumer, decode, encode, file_name
from lamina.log.consumers import GRACE_NS
from lamina.units import parse_time

PAGE = (Path(__file__).resolve().parents[2] / "docs/formats/consumers.md").read_text()
MOMENT = parse_time("2026-11-15T06:17:00.123456789Z")
DAY = 86400 * 10**9


def test_the_worked_example_is_right() -> None:
    (block,) = (block for block in re.findall(r"```\n(.*?)```", PAGE, re.DOTALL) if block.startswith("6c6d"))
    lines = [re.split(r" {2,}", line) for line in block.splitlines()]
    data = bytes.fromhex("".join(line[0] for line in lines))
    consumer = Consumer("nightly export", MOMENT, {}, MOMENT + 9, MOMENT + 7 * DAY)
    assert data == encode(consumer)
    assert decode(data) == consumer
    shown = "".join(line[1] for line in lines[2:-1])
    assert shown.encode() in data, "what stands beside the hex is what it says"


def test_the_names_and_times_on_the_page_are_right() -> None:
    assert f"jobs/consumers/{file_name('nightly export')}\n" in PAGE
    assert GRACE_NS == 7 * DAY and "a week after" in PAGE
