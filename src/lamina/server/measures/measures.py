"""All that is measured of one server: collected when somebody asks, cheap enough to be asked for often.

No lock of an engine is held for longer than it takes to look at some of its queues; what has thousands of parts is
looked at bit by bit, or from counts that are kept anyway.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from lamina.server.life import RESTORING, STARTING, STOPPING
from lamina.server.measures.families import Family
from lamina.server.measures.gathering import Gathering
from lamina.server.measures.look import Look
from lamina.server.measures.totals import Totals

if TYPE_CHECKING:
    from lamina.server.inside import Inside
    from lamina.server.refusals import Refusals


class Measures:
    """Of one server (``measures.of``). Threads: every method is safe from any thread."""

    def __init__(self, inside: Inside) -> None:
        from lamina.server.measures.of_engines import OfEngines
        from lamina.server.measures.of_logs import OfLogs
        from lamina.server.measures.of_server import OfServer

        self.look = Look(inside)
        self._inside = inside
        self._lock = threading.Lock()
        self._totals = Totals()
        self._of_server = OfServer(inside)
        self._of_logs = OfLogs(inside, self.look)
        self._of_engines = OfEngines(inside, self.look, self._totals)

    def count_http(self, refusals: Refusals) -> None:
        """What the HTTP door refuses is counted here."""
        self._of_server.http = refusals

    def families(self) -> list[Family]:
        """All metrics that have a value now.

        Until the engines are restored there are no counters: those of the last run are not known yet, and what began
        at 0 would look like traffic when they are. At the end there are none once nobody keeps them: the next run would
        begin with less.
        """
        return self.collect()[0]

    def collect(self) -> tuple[list[Family], dict[str, float]]:
        """``families`` and ``counters`` of one moment: what the first show, the others keep."""
        with self._lock:
            into = Gathering(self._totals)
            self._of_server.gather(into)
            self._of_logs.gather(into)
            self._of_engines.gather(into)
            phase = self._inside.life.phase
            is_early, is_late = phase in (STARTING, RESTORING), phase == STOPPING and self._inside.history is None
            has_counters = not is_early and not is_late
            families = [each for each in into.families() if each.metric.kind == "gauge" or has_counters]
            return families, dict(self._totals.by_key)

    def counters(self) -> dict[str, float]:
        """All counters as they are now, histograms too, by ``name{labels}``: give it to ``continue_from``."""
        return self.collect()[1]

    def continue_from(self, before: Mapping[str, float]) -> None:
        """Counters go on from where those of the last run ended. Call it once, before somebody looks."""
        with self._lock:
            self._totals.continue_from(before)
