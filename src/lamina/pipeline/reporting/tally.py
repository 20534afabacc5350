"""Numbers that add up in whatever order they come: what a task returns, and what all of them are together.

Of times that are measured (how long a job waited) only a histogram is kept, eight steps for each doubling: quantiles
are right to about six percent. Of what waits, only how many come and go in a step of time, and since when the oldest
does of those that stay from one step to another: so the memory depends on the steps and the names, not the records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

OPEN: Final = 1 << 62
"""A bucket that never comes: what waits is still there."""
OTHERS: Final = "(others)"
_MOST_NAMES: Final = 50_000
_MOST_DAMAGE: Final = 50

Series = dict[int, int]
"""A number for each bucket that has one."""


class Damage(NamedTuple):
    """A place that cannot be read."""

    log: str
    file: str
    position: int
    reason: str


@dataclass(slots=True)
class LogFacts:
    """What is known of one log, or of several."""

    records: int = 0
    bytes: int = 0
    """Of their payloads."""
    first_ns: int | None = None
    last_ns: int | None = None

    def add(self, records: int, size: int, first_ns: int | None, last_ns: int | None) -> None:
        self.records += records
        self.bytes += size
        if first_ns is not None:
            self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        if last_ns is not None:
            self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)


@dataclass(slots=True)
class Tally:
    """All that was counted. Keys are words such as ``jobs.added``."""

    width: int
    floor: int | None = None
    """All that was before counts as in this bucket: it is not shown, but was there."""
    series: dict[str, Series] = field(default_factory=dict)
    highest: dict[str, Series] = field(default_factory=dict)
    """The largest number of each bucket."""
    names: dict[str, dict[str, int]] = field(default_factory=dict)
    """A number for each name, to tell the largest."""
    latencies: dict[str, dict[int, Series]] = field(default_factory=dict)
    """For each bucket a histogram."""
    oldest: dict[str, dict[tuple[int, int], int]] = field(default_factory=dict)
    """Of what waits from one bucket to another: since when the oldest does."""
    logs: dict[str, LogFacts] = field(default_factory=dict)
    damage: list[Damage] = field(default_factory=list)
    damages: int = 0

    def bucket(self, time_ns: int) -> int:
        found = time_ns // self.width
        return found if self.floor is None or found > self.floor else self.floor

    def count(self, name: str, bucket: int, number: int = 1) -> None:
        series = self.series.setdefault(name, {})
        series[bucket] = series.get(bucket, 0) + number

    def reach(self, name: str, bucket: int, number: int) -> None:
        series = self.highest.setdefault(name, {})
        series[bucket] = max(series.get(bucket, number), number)

    def name(self, measure: str, name: str, number: int = 1) -> None:
        names = self.names.setdefault(measure, {})
        names[name] = names.get(name, 0) + number

    def latency(self, name: str, end_ns: int, length_ns: int) -> None:
        """Something that ended then took so long."""
        step = step_of(length_ns)
        histogram = self.latencies.setdefault(name, {}).setdefault(self.bucket(end_ns), {})
        histogram[step] = histogram.get(step, 0) + 1

    def span(self, name: str, start_ns: int, end_ns: int | None) -> None:
        """Something was waiting from one time to another; None: it still is."""
        if end_ns is not None and end_ns <= start_ns:
            return
        first = self.bucket(start_ns)
        last = OPEN if end_ns is None else self.bucket(end_ns)
        if first >= last:
            return
        self.count(name, first)
        if last != OPEN:
            self.count(name, last, -1)
        oldest = self.oldest.setdefault(name, {})
        oldest[first, last] = min(oldest.get((first, last), start_ns), start_ns)

    def log(self, path: str) -> LogFacts:
        return self.logs.setdefault(path, LogFacts())

    def hurt(self, damage: Damage) -> None:
        self.damages += 1
        if len(self.damage) < _MOST_DAMAGE:
            self.damage.append(damage)

    def take(self, other: Tally) -> None:
        """Add what another task has found."""
        for name, series in other.series.items():
            for bucket, number in series.items():
                self.count(name, bucket, number)
        for name, series in other.highest.items():
            for bucket, number in series.items():
                self.reach(name, bucket, number)
        for measure, names in other.names.items():
            for name, number in names.items():
                self.name(measure, name, number)
            self.names[measure] = _largest(self.names[measure])
        for name, histograms in other.latencies.items():
            mine = self.latencies.setdefault(name, {})
            for bucket, histogram in histograms.items():
                mine[bucket] = together([mine.get(bucket, {}), histogram])
        for name, spans in other.oldest.items():
            known = self.oldest.setdefault(name, {})
            for pair, since in spans.items():
                known[pair] = min(known.get(pair, since), since)
        for path, facts in other.logs.items():
            self.log(path).add(facts.records, facts.bytes, facts.first_ns, facts.last_ns)
        damages = self.damages + other.damages
        for damage in other.damage:
            self.hurt(damage)
        self.damages = damages

    def widened(self, width: int) -> Tally:
        """The same in wider steps, of which each is several of the narrow ones."""
        factor = width // self.width

        def wide(bucket: int) -> int:
            return bucket if bucket == OPEN else bucket // factor

        made = Tally(width, None if self.floor is None else wide(self.floor), names=self.names, logs=self.logs)
        made.damage, made.damages = self.damage, self.damages
        for name, series in self.series.items():
            for bucket, number in series.items():
                made.count(name, wide(bucket), number)
        for name, series in self.highest.items():
            for bucket, number in series.items():
                made.reach(name, wide(bucket), number)
        for name, histograms in self.latencies.items():
            mine = made.latencies.setdefault(name, {})
            for bucket, histogram in histograms.items():
                mine[wide(bucket)] = together([mine.get(wide(bucket), {}), histogram])
        for name, spans in self.oldest.items():
            known = made.oldest.setdefault(name, {})
            for (first, last), since in spans.items():
                pair = (wide(first), wide(last))
                if pair[0] < pair[1]:
                    known[pair] = min(known.get(pair, since), since)
        return made


def _largest(names: dict[str, int]) -> dict[str, int]:
    """All of them, or the larger half if they are too many, with the others as one."""
    if len(names) <= _MOST_NAMES:
        return names
    ordered = sorted(names.items(), key=lambda pair: (pair[0] != OTHERS, -pair[1], pair[0]))
    kept = dict(ordered[: _MOST_NAMES // 2])
    kept[OTHERS] = kept.get(OTHERS, 0) + sum(number for _, number in ordered[_MOST_NAMES // 2 :])
    return kept


# -- histograms ------------------------------------------------------------------------------------------------------


def step_of(length_ns: int) -> int:
    """The step of the histogram that a length of time is in; whole numbers, the same on every machine."""
    micros = max(length_ns // 1000, 0)
    if micros < 16:
        return micros
    bits = micros.bit_length()
    return bits << 3 | micros >> bits - 4 & 7


def middle_of(step: int) -> float:
    """Seconds: the middle of the step."""
    if step < 16:
        return (step + 0.5) / 10**6
    bits, part = step >> 3, step & 7
    return ((8 + part) + 0.5) * 2.0 ** (bits - 4) / 10**6


def together(histograms: Sequence[Mapping[int, int]]) -> Series:
    found: Series = {}
    for histogram in histograms:
        for step, number in histogram.items():
            found[step] = found.get(step, 0) + number
    return found


def quantile(histogram: Mapping[int, int], share: float) -> float | None:
    """Seconds within which this share of all was done; None if there was nothing."""
    left = share * sum(histogram.values())
    for step in sorted(histogram):
        left -= histogram[step]
        if left <= 0:
            return middle_of(step)
    return None
