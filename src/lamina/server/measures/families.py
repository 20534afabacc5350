"""A metric: its name, what it means, and its values by labels."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from lamina.log.measured import Spread

Kind = Literal["counter", "gauge", "histogram"]
MOST_NAMES: Final = 50
"""Names of queues or topics that have values of their own, by traffic; the rest is summed under ``OTHER``."""
OTHER: Final = "(other)"


@dataclass(frozen=True, slots=True)
class Metric:
    """What is the same at every scrape."""

    name: str
    """Ends with its unit, and of a counter with ``_total``."""
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()


@dataclass(slots=True)
class Family:
    """A metric and its values now."""

    metric: Metric
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    """Of a counter or a gauge: by the values of its labels."""
    spreads: dict[tuple[str, ...], Spread] = field(default_factory=dict)
    """Of a histogram."""

    def put(self, value: float, *labels: str) -> None:
        """Values of the same labels add up."""
        assert len(labels) == len(self.metric.labels)
        self.values[labels] = self.values.get(labels, 0.0) + value

    def spread(self, spread: Spread, *labels: str) -> None:
        assert len(labels) == len(self.metric.labels)
        self.spreads[labels] = spread
