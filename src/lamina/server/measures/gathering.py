"""One collection of all metrics: values come in as engines have them, and are counted on from the last run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from lamina.log.measured import Spread
from lamina.server.measures.families import Family, Metric
from lamina.server.measures.names import METRICS
from lamina.server.measures.totals import Totals, key_of


class Gathering:
    """Of one scrape."""

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._families: dict[str, Family] = {metric.name: Family(metric) for metric in METRICS}

    def families(self) -> list[Family]:
        """Those that have a value."""
        return [family for family in self._families.values() if family.values or family.spreads]

    def family(self, metric: Metric) -> Family:
        return self._families[metric.name]

    def gauge(self, metric: Metric, value: float, *labels: str) -> None:
        assert metric.kind == "gauge"
        self.family(metric).put(value, *labels)

    def counter(self, metric: Metric, raw: float, *labels: str) -> None:
        """``raw``: what was counted since the start."""
        assert metric.kind == "counter"
        self.total(metric, self._totals.follow(key_of(metric.name, metric.labels, labels), raw), *labels)

    def total(self, metric: Metric, total: float, *labels: str) -> None:
        """A counter that is followed already."""
        self.family(metric).values[labels] = total

    def histogram(
        self, metric: Metric, bounds: Sequence[float], counts: Sequence[int], total: float, *labels: str
    ) -> None:
        """``counts``: of each bound alone, since the start; behind them those above all."""
        assert metric.kind == "histogram"
        name, follow = metric.name, self._totals.follow
        shown = [*(show_bound(bound) for bound in bounds), "+Inf"]
        # Cumulative as they are shown: then the one of +Inf is the count of all, and is not kept twice.
        buckets = [
            follow(key_of(f"{name}_bucket", (*metric.labels, "le"), (*labels, bound)), float(count))
            for bound, count in zip(shown, accumulate(counts), strict=True)
        ]
        spread = Spread(bounds)
        spread.counts = [max(int(up_to - before), 0) for up_to, before in zip(buckets, [0.0, *buckets], strict=False)]
        spread.total = follow(key_of(f"{name}_sum", metric.labels, labels), total)
        self.family(metric).spread(spread, *labels)


def show_bound(bound: float) -> str:
    """As Prometheus writes a number."""
    return repr(float(bound))
