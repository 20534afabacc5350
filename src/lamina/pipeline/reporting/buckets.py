"""Steps of time: each bucket is the number of steps since 1970, so that all tasks mean the same by it."""

from __future__ import annotations

from typing import Final

SECOND: Final = 10**9
_MOST: Final = 150
"""A plot with more steps shows less."""
_DAY: Final = 86400 * SECOND
WIDTHS: Final = (
    *(SECOND // 100, SECOND // 20, SECOND // 10, SECOND // 2, SECOND, 2 * SECOND, 10 * SECOND, 30 * SECOND),
    *(60 * SECOND, 300 * SECOND, 900 * SECOND, 3600 * SECOND, 3 * 3600 * SECOND, 6 * 3600 * SECOND),
    *(_DAY, 7 * _DAY, 28 * _DAY, 364 * _DAY),
)
"""Each is a multiple of the one before: narrow steps can be put together to wide ones."""


def choose_width(first_ns: int, last_ns: int) -> int:
    """The narrowest step with which a plot of this time has few enough of them."""
    return next((width for width in WIDTHS if (last_ns - first_ns) // width < _MOST), WIDTHS[-1])


def show_width(width: int) -> str:
    """300 seconds → ``5 minutes``."""
    for unit, size in (("day", _DAY), ("hour", 3600 * SECOND), ("minute", 60 * SECOND), ("second", SECOND)):
        if width >= size and width % size == 0:
            count = width // size
            return unit if count == 1 else f"{count} {unit}s"
    return f"{width / 10**6:g} ms"
