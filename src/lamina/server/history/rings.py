"""Figures in memory, by resolution: a ring has a slot for each of the newest so many steps of time.

Of what goes up and down a slot has the highest figure (of free room the lowest): so a peak is never lost in a coarse
one. Of a counter it has what was gained in it and in how many seconds: so a restart in between costs nothing but
itself. Rows may be added in any order.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from math import nan
from typing import Final

from lamina.server.history.rows import Row, is_counter

_MOST_NAMES: Final = 256
_LOWEST: Final = frozenset({"disk.free"})


class Ring:
    """``size`` slots of ``step_s`` seconds. Threads: one at a time."""

    def __init__(self, step_s: int, size: int) -> None:
        self.step_s, self.size = step_s, size
        self._numbers = array("q", [-1]) * size  # which step each slot has
        self._columns: dict[str, tuple[array[float], array[float]]] = {}

    def slot(self, time_s: float) -> int:
        """Where a moment belongs, made ready for it; -1: it is too long ago."""
        number = int(time_s // self.step_s)
        slot = number % self.size
        held = self._numbers[slot]
        if held > number:
            return -1
        if held < number:
            self._numbers[slot] = number
            for values, seconds in self._columns.values():
                values[slot], seconds[slot] = nan, 0.0
        return slot

    def column(self, name: str) -> tuple[array[float], array[float]] | None:
        """What is kept of a figure: it, and of a counter the seconds in which it was gained. None: too many names."""
        found = self._columns.get(name)
        if found is None and len(self._columns) < _MOST_NAMES:
            found = self._columns[name] = array("d", [nan]) * self.size, array("d", [0.0]) * self.size
        return found

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def peak(self, name: str) -> float:
        """The highest figure of all slots, 0 if there is none."""
        column = self._columns.get(name)
        return 0.0 if column is None else max((value for value in column[0] if value == value), default=0.0)

    def read(self, name: str, last: int, count: int, group: int = 1) -> list[float | None]:
        """Of ``count`` groups of steps, the last of which ends with the step ``last``. Counters: gained a second."""
        column = self._columns.get(name)
        if column is None:
            return [None] * count
        values, seconds = column
        is_gain, is_low = is_counter(name), name in _LOWEST
        numbers, size = self._numbers, self.size
        found: list[float | None] = []
        first = last - count * group + 1
        for start in range(first, last + 1, group):
            taken: float | None = None
            spent = 0.0
            for number in range(start, start + group):
                slot = number % size
                value = values[slot]
                if numbers[slot] != number or value != value:
                    continue
                spent += seconds[slot]
                if taken is None:
                    taken = value
                elif is_gain:
                    taken += value
                elif value < taken if is_low else value > taken:
                    taken = value
            if taken is not None and is_gain:
                taken = taken / spent if spent > 0 else None
            found.append(taken)
        return found


class Feed:
    """Puts rows that follow each other into rings: of counters what was gained since the row before."""

    def __init__(self, rings: Sequence[Ring]) -> None:
        self._rings = rings
        self._before: Row | None = None
        self._names: Sequence[str] = ()
        self._others: list[list[_Cell]] = []
        self._counters: list[list[_Cell]] = []

    def add(self, row: Row, now_s: float | None = None) -> None:
        """``now_s``: nobody will ask a ring for what is older than it holds then."""
        if row.names is not self._names:
            self._use(row.names)
        before, self._before = self._before, row
        has_gained = row.after_s > 0 and before is not None and before.names is row.names
        for ring, others, counters in zip(self._rings, self._others, self._counters, strict=True):
            if now_s is not None and row.time_s < now_s - ring.step_s * ring.size:
                continue
            slot = ring.slot(row.time_s)
            if slot < 0:
                continue
            for at, is_low, values, _ in others:
                value, held = row.values[at], values[slot]
                if value is not None and (held != held or (value < held if is_low else value > held)):
                    values[slot] = value
            if has_gained and before is not None:
                _gain(counters, slot, row, before)

    def _use(self, names: Sequence[str]) -> None:
        """Find the columns of these once for many rows."""
        before = self._before
        if before is not None:  # what it had of them, in their order
            known = dict(zip(before.names, before.values, strict=True))
            self._before = before._replace(names=names, values=[known.get(name) for name in names])
        self._names, self._others, self._counters = names, [], []
        for ring in self._rings:
            cells: tuple[list[_Cell], list[_Cell]] = [], []
            for at, name in enumerate(names):
                column = ring.column(name)
                if column is not None:
                    cells[is_counter(name)].append((at, name in _LOWEST, *column))
            self._others.append(cells[0])
            self._counters.append(cells[1])


_Cell = tuple[int, bool, "array[float]", "array[float]"]


def _gain(counters: Sequence[_Cell], slot: int, row: Row, before: Row) -> None:
    for at, _, values, seconds in counters:
        value, earlier = row.values[at], before.values[at]
        # One that went back began anew: how much it gained is not known.
        if value is not None and earlier is not None and value >= earlier:
            held = values[slot]
            values[slot] = value - earlier if held != held else held + value - earlier
            seconds[slot] += row.after_s
