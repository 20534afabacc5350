"""Positions of changes, and which of them the disk refused."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from lamina.errors import LaminaError

_MOST: Final = 10_000  # that are remembered for those who ask about a position


class Refusals:
    """Threads: the store's lock guards what changes it."""

    def __init__(self) -> None:
        self._errors: OrderedDict[int, LaminaError] = OrderedDict()
        self._first = self._last = 0
        """Between these were those that are not known one by one any more: all there count as refused."""
        self._error: LaminaError | None = None
        self._is_new = False

    def add(self, positions: list[int], error: LaminaError) -> None:
        for position in positions:
            self._errors[position] = error
        while len(self._errors) > _MOST:
            position, self._error = self._errors.popitem(last=False)
            self._first = min(self._first or position, position)
            self._last = max(self._last, position)
        self._is_new = True

    def add_all(self, first: int, last: int, error: LaminaError) -> None:
        """From ``first`` to ``last``: which of them it concerns is not known."""
        self._first, self._last, self._error = min(self._first or first, first), max(self._last, last), error
        self._is_new = True

    def happened(self) -> bool:
        """Something was refused since the last look."""
        is_new, self._is_new = self._is_new, False
        return is_new

    def check(self, position: int) -> None:
        """Raises: why the change at ``position`` was refused."""
        error = self._errors.get(position)
        if error is None and self._first <= position <= self._last:
            error = self._error  # too much may be refused, never too little
        if error is not None:
            raise error

    def newest(self) -> int:
        """Position of the newest, 0 if there is none."""
        return next(reversed(self._errors), 0)
