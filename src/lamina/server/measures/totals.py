"""Counters that go on: over a restart, and whoever has a value of its own at the moment.

Engines count from their start. Here what they count is followed: each time the difference to the last look is added to
a total, and totals begin where those of the last run ended (``continue_from``).

Of thousands of names only the busiest have a total of their own. What others do is added to one total of all others,
when it happens: it never falls when one of them becomes busy, and a name that loses its place takes nothing along.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from time import monotonic
from typing import Final

from lamina.server.measures.families import MOST_NAMES, OTHER, Metric

_HALF_LIFE_S: Final = 3600.0  # traffic of an hour ago counts half
_A_LITTLE: Final = 1e-9  # who had a place in the last run is before who never had one


def key_of(name: str, labels: Sequence[str], values: Sequence[str]) -> str:
    """``name{label="value"}``, as Prometheus writes it."""
    if not labels:
        return name
    return name + "{" + ",".join(f'{one}="{_escaped(value)}"' for one, value in zip(labels, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


class Totals:
    """Not locked."""

    def __init__(self) -> None:
        self.by_key: dict[str, float] = {}
        self._raw: dict[str, float] = {}

    def continue_from(self, before: Mapping[str, float]) -> None:
        """Begin where another run ended."""
        for key, value in before.items():
            self.by_key[key] = self.by_key.get(key, 0.0) + value

    def follow(self, key: str, raw: float) -> float:
        """The total, now that the engine has counted up to ``raw``; one that is smaller than before began anew."""
        before = self._raw.get(key, 0.0)
        self._raw[key] = raw
        return self.add(key, raw - before if raw >= before else raw)

    def add(self, key: str, more: float) -> float:
        total = self.by_key[key] = self.by_key.get(key, 0.0) + more
        return total


class Busiest:
    """Which names of one kind have totals of their own, and those of all. Not locked."""

    def __init__(self, totals: Totals, metrics: Sequence[Metric], *, most: int = MOST_NAMES) -> None:
        """Each metric has one label, the name. The first two are the traffic that counts."""
        self.names: list[str] = []
        """Those that have totals of their own, the busiest first."""
        self._totals, self._metrics, self._most = totals, metrics, most
        self._raw: dict[str, Sequence[float]] = {}
        self._traffic: dict[str, float] = {}
        self._looked_at = monotonic()

    def follow(self, rows: Mapping[str, Sequence[float]]) -> None:
        """``rows``: what was counted of each name since the start, one number for each metric."""
        self._fade()
        changes: dict[str, list[float]] = {}
        prefix = self._metrics[0].name + "{"
        had_place = {key for key in self._totals.by_key if key.startswith(prefix)}
        for name, raw in rows.items():
            before = self._raw.get(name)
            if before is None:
                changes[name] = list(raw)
                self._traffic[name] = sum(raw[:2])
                if had_place and self._key(0, name) in had_place:
                    self._traffic[name] += _A_LITTLE
            elif before != raw:
                more = [now - then if now >= then else now for now, then in zip(raw, before, strict=True)]
                changes[name] = more
                self._traffic[name] += sum(more[:2])
            self._raw[name] = raw
        for name in self._raw.keys() - rows.keys():
            del self._raw[name], self._traffic[name]
        self._choose()
        own = set(self.names)
        for name in own & changes.keys():
            self._add(name, changes[name])
        others = [more for name, more in changes.items() if name not in own]
        if others:
            self._add(OTHER, [sum(column) for column in zip(*others, strict=True)])
        self._forget(own)

    def _add(self, name: str, more: Sequence[float]) -> None:
        for at, value in enumerate(more):
            if value:
                self._totals.add(self._key(at, name), value)

    def values(self, at: int) -> dict[str, float]:
        """The totals of one of the metrics."""
        found = {name: self._totals.by_key.get(self._key(at, name), 0.0) for name in self.names}
        other = self._totals.by_key.get(self._key(at, OTHER))
        if other is not None:
            found[OTHER] = other
        return found

    def _key(self, at: int, name: str) -> str:
        return key_of(self._metrics[at].name, self._metrics[at].labels, (name,))

    def _fade(self) -> None:
        now = monotonic()
        factor = 0.5 ** ((now - self._looked_at) / _HALF_LIFE_S)
        self._looked_at = now
        self._traffic = {name: traffic * factor for name, traffic in self._traffic.items()}

    def _choose(self) -> None:
        ranked = heapq.nsmallest(self._most, ((-traffic, name) for name, traffic in self._traffic.items()))
        self.names = [name for _, name in ranked]

    def _forget(self, own: set[str]) -> None:
        """Totals of names that lost their place, if they are many, the smallest first: those of the last run, which the
        busiest had, may come again."""
        for metric in self._metrics:
            prefix = metric.name + "{"
            keys = [key for key in self._totals.by_key if key.startswith(prefix)]
            too_many = len(keys) - 2 * self._most - 1
            if too_many > 0:
                kept = {key_of(metric.name, metric.labels, (name,)) for name in (*own, OTHER)}
                lost = [key for key in keys if key not in kept]
                for key in heapq.nsmallest(too_many, lost, key=self._totals.by_key.__getitem__):
                    del self._totals.by_key[key]
