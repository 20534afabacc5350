"""Positions that never made it into the log."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import DiskError, DiskFull
from lamina.log.refused import MOST_RANGES, Refused

FULL, BROKEN = DiskFull("full"), DiskError("broken")


def two_ranges() -> Refused:
    refused = Refused()
    refused.add(10, 20, FULL)
    refused.add(30, 30, BROKEN)
    return refused


def many_ranges(count: int) -> Refused:
    """Ranges 0 to 4, 10 to 14, 20 to 24 and so on."""
    refused = Refused()
    for number in range(count):
        refused.add(number * 10, number * 10 + 4, FULL)
    return refused


def test_nothing_is_refused_at_first() -> None:
    assert Refused().find(5) is None


def test_a_position_inside_a_range_finds_its_error() -> None:
    assert two_ranges().find(15) is FULL


def test_the_first_position_of_a_range_is_in_it() -> None:
    assert two_ranges().find(10) is FULL


def test_the_last_position_of_a_range_is_in_it() -> None:
    assert two_ranges().find(20) is FULL


def test_a_range_of_one_position_is_found() -> None:
    assert two_ranges().find(30) is BROKEN


def test_a_position_before_all_ranges_is_not_refused() -> None:
    assert two_ranges().find(9) is None


def test_a_position_between_ranges_is_not_refused() -> None:
    assert two_ranges().find(21) is None


def test_a_position_behind_all_ranges_is_not_refused() -> None:
    assert two_ranges().find(31) is None


def test_up_to_the_limit_ranges_stay_apart() -> None:
    assert many_ranges(MOST_RANGES).find(5) is None


def test_past_the_limit_the_two_oldest_are_joined() -> None:
    assert many_ranges(MOST_RANGES + 1).find(5) is FULL


def test_past_the_limit_the_newer_ranges_stay_apart() -> None:
    assert many_ranges(MOST_RANGES + 1).find(15) is None


@given(st.integers(0, MOST_RANGES + 9), st.integers(0, 4))
def test_past_the_limit_every_refused_position_is_still_refused(number: int, inside: int) -> None:
    assert CROWDED.find(number * 10 + inside) is FULL


def test_past_the_limit_nothing_newer_than_the_last_range_is_refused() -> None:
    assert CROWDED.find((MOST_RANGES + 9) * 10 + 5) is None


CROWDED = many_ranges(MOST_RANGES + 10)
