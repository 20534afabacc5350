"""``/metrics``: what there is to measure, as Prometheus reads it: text 0.0.4, or OpenMetrics for who asks for that.

Counters are noted in the history before they are shown: after a kill they go on from there, and none ever goes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from lamina.server import measures
from lamina.server.http.serving import Serving
from lamina.server.inside import Inside
from lamina.server.measures.families import Family
from lamina.server.measures.gathering import show_bound

PATH: Final = "/metrics"
_OPEN: Final = "application/openmetrics-text"


def routes(serving: Serving) -> list[BaseRoute]:
    """The one route."""
    measures.of(serving.inside).count_http(serving.access.refusals)

    async def show(request: Request) -> Response:
        serving.place(request.scope["visit"]).check("admin", "read")
        is_open = wants_openmetrics(request.headers.get("accept", ""))
        text = await asyncio.to_thread(_collect, serving.inside, is_open=is_open)
        kind = openmetrics.CONTENT_TYPE_LATEST if is_open else CONTENT_TYPE_PLAIN_0_0_4
        return Response(text, headers={"content-type": kind})

    return [Route(PATH, show, methods=["GET"])]


def _collect(inside: Inside, *, is_open: bool) -> bytes:
    measured = measures.of(inside)
    history = inside.history
    families, counters = measured.collect()
    if history is not None:
        history.note(counters)
    return render(families, is_open=is_open)


def wants_openmetrics(accept: str) -> bool:
    """Whether a header ``Accept`` lists it."""
    for each in accept.split(","):
        kind, *options = (part.strip().lower() for part in each.split(";"))
        if kind == _OPEN:
            return not any(option.replace(" ", "") in ("q=0", "q=0.0") for option in options)
    return False


def render(families: Sequence[Family], *, is_open: bool = False) -> bytes:
    """As text."""
    shown = _Shown(families)
    if is_open:
        text: bytes = openmetrics.generate_latest(shown)  # type: ignore[no-untyped-call]
        return text
    return generate_latest(shown)


class _Shown(Collector):
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def collect(self) -> Iterator[Metric]:
        return map(_family, self._families)


def _family(family: Family) -> Metric:
    metric = family.metric
    if metric.kind == "histogram":
        histogram = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for labels, spread in family.spreads.items():
            bounds = [*map(show_bound, spread.bounds), "+Inf"]
            buckets = list(zip(bounds, map(float, spread.cumulative()), strict=True))
            histogram.add_metric(labels, buckets, spread.total)
        return histogram
    made = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    plain = made(metric.name, metric.help, labels=metric.labels)
    for labels, value in family.values.items():
        plain.add_metric(labels, value)
    return plain
