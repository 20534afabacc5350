"""``/metrics``: what there is to measure, as Prometheus reads it."""

from __future__ import annotations

from starlette.routing import BaseRoute

from lamina.server.http.serving import Serving


def routes(serving: Serving) -> list[BaseRoute]:
    """The one route."""
    return []
