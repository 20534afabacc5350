"""Axes: round numbers to put beside a plot, and how people write them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from math import ceil, floor, log10
from typing import Final

from lamina.units import KIB

_SECOND: Final = 10**9
_TIME_STEPS: Final = (
    *(0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 3 * 3600),
    *(6 * 3600, 12 * 3600, 86400, 2 * 86400, 7 * 86400, 14 * 86400, 28 * 86400, 91 * 86400, 364 * 86400),
)
_LENGTHS: Final = (
    *(1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0, 10.0, 60.0, 600.0, 3600.0, 6 * 3600.0),
    *(86400.0, 10 * 86400.0, 100 * 86400.0, 1000 * 86400.0, 10_000 * 86400.0),
)
"""About as far from each other as decades are."""
_DAY: Final = 86400 * _SECOND


@dataclass(frozen=True, slots=True)
class Scale:
    """An axis from ``low`` to ``high`` with labels at round numbers."""

    low: float
    high: float
    ticks: Sequence[float]
    is_logarithmic: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high one."""
        if self.is_logarithmic:
            low, high = log10(self.low), log10(self.high)
            return (log10(min(max(value, self.low), self.high)) - low) / (high - low)
        return (value - self.low) / (self.high - self.low)


def linear(highest: float, *, base: int = 10, is_whole: bool = True) -> Scale:
    """From zero on; in steps that are round with this base (1024 for bytes)."""
    highest = max(highest, 1.0 if is_whole else 1e-6)
    if base == KIB:
        unit = 1.0
        while highest / unit >= KIB:
            unit *= KIB
        step = max(_round_step(highest / unit / 4) * unit, 1.0)
    else:
        step = _round_step(highest / 4)
        step = max(float(ceil(step)) if step < 10 else step, 1.0) if is_whole else step
    count = ceil(highest / step - 1e-9)
    return Scale(0, step * count, [step * number for number in range(count + 1)])


def logarithmic(values: Sequence[float]) -> Scale:
    """Round lengths of time around all of them."""
    least, most = min(values, default=0.001), max(values, default=0.001)
    low = max(at for at, length in enumerate(_LENGTHS) if length <= least or at == 0)
    high = next((at for at, length in enumerate(_LENGTHS) if length >= most and at > low), len(_LENGTHS) - 1)
    every = 1 + (high - low) // 7
    return Scale(_LENGTHS[low], _LENGTHS[high], _LENGTHS[low : high + 1 : every], is_logarithmic=True)


def seconds(longest: float) -> Scale:
    """From zero on, in steps that are round to people who read clocks."""
    if longest < 1:
        return linear(longest, is_whole=False)
    step = next((step for step in _TIME_STEPS if longest / step <= 5), 364 * 86400.0)
    count = ceil(longest / step - 1e-9)
    return Scale(0, step * count, [step * number for number in range(count + 1)])


def _round_step(about: float) -> float:
    power = 10.0 ** floor(log10(about))
    return next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= about * 0.999)


# -- time ------------------------------------------------------------------------------------------------------------


def time_ticks(first_ns: int, last_ns: int, most: int = 6) -> list[tuple[int, str]]:
    """Moments and their labels, in UTC."""
    length = max(last_ns - first_ns, 1)
    found = next((step for step in _TIME_STEPS if length / (step * _SECOND) <= most), _TIME_STEPS[-1])
    step = round(found * _SECOND)
    while length / step > most:
        step *= 2
    ticks = range(-(-first_ns // step) * step, last_ns + 1, step)
    label = _label_of(step, length)
    return [(tick, label(_moment(tick))) for tick in ticks]


def _label_of(step: int, length: int) -> Callable[[datetime], str]:
    if step % _DAY == 0:
        return lambda moment: f"{moment:%b} {moment.day}" if length < 300 * _DAY else f"{moment:%Y-%m}"
    if step < _SECOND:
        return lambda moment: f"{moment:%H:%M:%S}.{moment.microsecond // 10_000:02d}"
    clock = "%H:%M" if step % (60 * _SECOND) == 0 else "%H:%M:%S"
    if length <= _DAY:
        return lambda moment: f"{moment:{clock}}"
    return lambda moment: f"{moment:%b} {moment.day} {moment:{clock}}"


def _moment(time_ns: int) -> datetime:
    return datetime.fromtimestamp(time_ns // _SECOND, UTC).replace(microsecond=time_ns % _SECOND // 1000)


def show_moment(time_ns: int, width: int = _SECOND) -> str:
    """For people: as exact as steps of this width need."""
    moment = _moment(time_ns)
    if width % _DAY == 0:
        return f"{moment:%Y-%m-%d}"
    if width % (60 * _SECOND) == 0:
        return f"{moment:%Y-%m-%d %H:%M}"
    if width % _SECOND == 0:
        return f"{moment:%Y-%m-%d %H:%M:%S}"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03d}"


# -- numbers as text -------------------------------------------------------------------------------------------------


def show_count(value: float) -> str:
    """1234567 → ``1.23M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:.3g}{unit}"
    return f"{value:,.0f}" if value == int(value) else f"{value:.3g}"


def show_size(value: float) -> str:
    """67108864 → ``64 MiB``."""
    for unit, power in (("TiB", 4), ("GiB", 3), ("MiB", 2), ("KiB", 1)):
        if abs(value) >= KIB**power:
            return (
                f"{value / KIB**power:.3g} {unit}" if value < 1000 * KIB**power else f"{value / KIB**power:.0f} {unit}"
            )
    return f"{value:.0f} B"


def show_seconds(value: float) -> str:
    """0.0021 → ``2.1 ms``; 5400 → ``1.5 h``."""
    if value <= 0:
        return "0 s"
    for unit, size in (("d", 86400.0), ("h", 3600.0), ("min", 60.0), ("s", 1.0), ("ms", 1e-3)):
        if value >= size * 0.9995:
            digits = 2 if size <= 1 else 3
            return f"{value / size:.{digits}g} {unit}" if value / size < 10 else f"{value / size:,.0f} {unit}"
    return f"{value * 1e6:.2g} µs" if value < 1e-5 else f"{value * 1e6:.0f} µs"
