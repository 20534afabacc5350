"""Which positions never made it into the log, so that nobody who asks later is told that they did."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from lamina.errors import LaminaError

MOST_RANGES: Final = 4096


class Refused:
    """Ranges of positions, oldest first.

    Bounded: past the limit the two oldest are joined, which may refuse too much, never too little.
    """

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._errors: list[LaminaError] = []

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, first: int, last: int, error: LaminaError, written: int = -1) -> None:
        """Ranges are added in rising order. One behind which nothing was ``written`` is made longer instead."""
        if self._lasts and 0 <= written < self._lasts[-1]:
            self._lasts[-1], self._errors[-1] = last, error
            return
        self._firsts.append(first)
        self._lasts.append(last)
        self._errors.append(error)
        if len(self._firsts) > MOST_RANGES:
            del self._firsts[1], self._lasts[0], self._errors[0]

    def find(self, position: int) -> LaminaError | None:
        place = bisect_right(self._firsts, position) - 1
        if place >= 0 and position <= self._lasts[place]:
            return self._errors[place]
        return None
