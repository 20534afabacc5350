"""Axes that a person can read: round ticks in the unit of what is shown, and times of day in UTC."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from lamina.units import GIB, KIB, MIB

Unit = Literal["count", "rate", "seconds", "bytes", "percent"]
"""Things; things a second; seconds (shown as ms, s, min, h or d); bytes; parts of a hundred."""

_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_LONG_STEPS: Final = (
    *(15, 30),
    *(each * _MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR for each in (1, 2, 3, 6, 12)),
    *(each * _DAY for each in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)),
)
_TIME_STEPS: Final = (
    *(10, 15, 30),
    *(each * _MINUTE for each in (1, 2, 5, 10, 15, 30)),
    *(each * _HOUR for each in (1, 2, 3, 4, 6, 12)),
    *(each * _DAY for each in (1, 2, 7, 14)),
)
_THIN: Final = "\u202f"


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 to ``top``, with a tick every ``step``."""

    top: float
    step: float
    unit: Unit

    @property
    def ticks(self) -> list[float]:
        return [place * self.step for place in range(round(self.top / self.step) + 1)]

    def label(self, value: float) -> str:
        """Of a tick."""
        return SHOW[self.unit](value)


def scale(highest: float, unit: Unit, most: int = 4) -> Scale:
    """That holds ``highest``, with at most ``most`` steps."""
    if not highest > 0 or math.isinf(highest):
        highest = _LEAST[unit]
    step = _step(highest / most, unit)
    return Scale(step * math.ceil(highest / step * (1 - 1e-9)), step, unit)


_LEAST: Final[dict[Unit, float]] = {"count": 4.0, "rate": 4.0, "seconds": 0.004, "bytes": 4.0 * KIB, "percent": 100.0}
"""The top of an axis where all is 0."""


def _step(least: float, unit: Unit) -> float:
    """The smallest round step that is not below ``least``."""
    if unit == "seconds" and least > 12:
        return next((float(step) for step in _LONG_STEPS if step >= least), _decimal(least / _DAY) * _DAY)
    if unit == "bytes":
        return float(2 ** max(math.ceil(math.log2(least)), 0))
    step = _decimal(least)
    return max(step, 1.0) if unit == "count" else step


def _decimal(least: float) -> float:
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


def time_ticks(start_s: int, end_s: int, most: int = 7) -> list[tuple[int, str]]:
    """Round moments between two, in UTC, each with its label: a time of day, or the day where one begins."""
    wanted = max(end_s - start_s, 1) / most
    step = next((each for each in _TIME_STEPS if each >= wanted), _TIME_STEPS[-1])
    step = max(step, math.ceil(wanted / _DAY) * _DAY) if wanted > _TIME_STEPS[-1] else step
    first = -(-start_s // step) * step
    return [(moment, time_label(moment, step)) for moment in range(first, end_s + 1, step)]


def time_label(moment_s: int, step_s: int) -> str:
    """``18:30``; ``18:30:10`` where steps are shorter than a minute; ``16 Nov`` for the beginning of a day."""
    moment = datetime.fromtimestamp(moment_s, UTC)
    if moment_s % _DAY == 0:
        return f"{moment.day} {moment:%b}"
    return f"{moment:%H:%M:%S}" if step_s < _MINUTE else f"{moment:%H:%M}"


# -- numbers with their unit -------------------------------------------------------------------------------------------


def show_number(value: float) -> str:
    """Three figures are enough: ``0.25``, ``12``, ``1.2k``, ``3.4M``."""
    size = abs(value)
    for factor, sign in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if size >= factor * 0.9995:
            return _figures(value / factor) + sign
    return _figures(value)


def _figures(value: float) -> str:
    size = abs(value)
    if size >= 100 or value == round(value):
        return f"{value:.0f}"
    digits = 1 if size >= 10 else 2 if size >= 0.1 else 3
    return f"{value:.{digits}f}".rstrip("0").rstrip(".")


def show_seconds(value: float) -> str:
    """``250 µs``, ``12 ms``, ``1.5 s``, ``3 min``, ``2.5 h``, ``4 d``."""
    size = abs(value)
    for factor, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "min"), (1.0, "s"), (1e-3, "ms")):
        if size >= factor * 0.9995:
            return f"{_figures(value / factor)}{_THIN}{name}"
    return "0" if not size else f"{_figures(value / 1e-6)}{_THIN}µs"


def show_size(value: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    size = abs(value)
    for factor, name in ((GIB * KIB, "TiB"), (GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= factor * 0.9995:
            return f"{_figures(value / factor)}{_THIN}{name}"
    return f"{_figures(value)}{_THIN}B" if value else "0"


SHOW: Final[dict[Unit, Callable[[float], str]]] = {
    "count": show_number,
    "rate": lambda value: f"{show_number(value)}/s" if value else "0",
    "seconds": show_seconds,
    "bytes": show_size,
    "percent": lambda value: f"{_figures(value)}{_THIN}%",
}
"""A number of that unit as text."""


def show(value: float | None, unit: Unit) -> str:
    """A number that may not be known."""
    return "–" if value is None else SHOW[unit](value)


def spread(places: Sequence[float], room: float, least: float, most: float) -> list[float]:
    """Places for labels, close to those given, at least ``room`` apart and between ``least`` and ``most``."""
    order = sorted(range(len(places)), key=lambda at: places[at])
    found = list(places)
    lowest = least
    for at in order:
        found[at] = lowest = max(found[at], lowest)
        lowest += room
    highest = most
    for at in reversed(order):
        found[at] = highest = min(found[at], highest)
        highest -= room
    return found
