"""Sizes and times as people write them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lamina.errors import BadOption
from lamina.units import parse_bytes, parse_time, show_bytes, show_time

# -- sizes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 0),
        ("67108864", 67108864),
        ("7B", 7),
        ("64KiB", 65536),
        ("64MiB", 67108864),
        ("2GiB", 2**31),
        ("64KB", 64_000),
        ("64MB", 64_000_000),
        ("2GB", 2_000_000_000),
        ("64 MiB", 67108864),
        (" 64MiB ", 67108864),
        ("64mib", 67108864),
        ("64MIB", 67108864),
    ],
)
def test_a_size_is_read_as_people_write_it(text: str, count: int) -> None:
    assert parse_bytes(text) == count


@pytest.mark.parametrize(
    "text", ["", " ", "MiB", "-1", "+1", "1.5MiB", "1e6", "64 M i B", "64XB", "64TiB", "64MiB.", "0x10", "1_000"]
)
def test_what_is_no_size_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption, match="is not a size"):
        parse_bytes(text)


@pytest.mark.parametrize("text", ["1K\u0131B", "1M\u0130B"], ids=["dotless i", "dotted I"])
def test_a_unit_in_letters_that_only_fold_to_ours_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption):
        parse_bytes(text)


def test_a_size_of_thousands_of_digits_is_a_bad_option() -> None:
    with pytest.raises(BadOption):
        parse_bytes("9" * 5000)


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (67108864, "64.0 MiB"),
        (2**30, "1.0 GiB"),
        (2**40, "1.0 TiB"),
        (2**50, "1024.0 TiB"),
    ],
)
def test_a_size_is_shown_in_the_largest_fitting_unit(count: int, text: str) -> None:
    assert show_bytes(count) == text


# -- times ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "time_ns"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01 00:00:00Z", 0),
        ("1970-01-01T00:00:00", 0),
        ("2026-11-15T06:26:40.499Z", 1_794_724_000_499_000_000),
        ("2026-11-15T06:26:40,499Z", 1_794_724_000_499_000_000),
        ("2026-11-15T06:26:40.000000001Z", 1_794_724_000_000_000_001),
        ("2026-11-15T07:26:40+01:00", 1_794_724_000_000_000_000),
        ("2026-11-15T00:56:40-05:30", 1_794_724_000_000_000_000),
        ("1969-12-31T23:59:59.5Z", -500_000_000),
        ("1794724000499000000", 1_794_724_000_499_000_000),
        ("0", 0),
        (" 0 ", 0),
    ],
)
def test_a_moment_is_read_as_people_write_it(text: str, time_ns: int) -> None:
    assert parse_time(text) == time_ns


@pytest.mark.parametrize(
    ("text", "seconds"), [("-5m", 300), ("-1s", 1), ("-2h", 7200), ("-1d", 86400), ("-1500ms", 1.5), ("-0s", 0)]
)
def test_a_time_ago_counts_back_from_now(text: str, seconds: float) -> None:
    ago = int(seconds * 10**9)
    earliest = time.time_ns() - ago
    assert earliest <= parse_time(text) <= time.time_ns() - ago


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "yesterday",
        "-5",
        "-m",
        "5m",
        "-5w",
        "1.5",
        "2026-13-15T06:17:00Z",
        "2026-02-30T06:17:00Z",
        "2026-11-15T25:17:00Z",
        "2026-11-15T06:17:60Z",
        "2026-11-15T06:17:00.Z",
        "2026-11-15T06:17:00.1234567890Z",
        "2026-11-15T06:17:00+99:00",
        "2026-11-15T06:17:00 Z",
        "2026-11-15T06:17:00Z\nx",
        "0000-01-01T00:00:00Z",
    ],
    ids=ascii,
)
def test_what_is_no_time_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption, match="is not a time"):
        parse_time(text)


@pytest.mark.parametrize("text", ["9" * 5000, f"-{'9' * 5000}s"], ids=["moment", "ago"])
def test_a_time_of_thousands_of_digits_is_a_bad_option(text: str) -> None:
    with pytest.raises(BadOption):
        parse_time(text)


def test_a_time_is_shown_with_all_its_nanoseconds() -> None:
    assert show_time(1_794_724_000_499_000_000) == "2026-11-15T06:26:40.499000000Z"


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_shown_time_is_read_back(time_ns: int) -> None:
    assert parse_time(show_time(time_ns)) == time_ns


@given(st.text())
def test_any_text_is_a_time_or_a_bad_option(text: str) -> None:
    try:
        assert isinstance(parse_time(text), int)
    except BadOption as error:
        assert error.hint


@given(st.text())
def test_any_text_is_a_size_or_a_bad_option(text: str) -> None:
    try:
        assert isinstance(parse_bytes(text), int)
    except BadOption as error:
        assert error.hint
