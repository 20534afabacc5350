"""What there is to measure of a server: a few numbers for history (``vitals``), all for ``/metrics`` (``Measures``)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from lamina.server.measures.measures import Measures
from lamina.server.measures.vitals import COUNTERS, gather

if TYPE_CHECKING:
    from lamina.server.inside import Inside

_making = threading.Lock()

__all__ = ("COUNTERS", "Measures", "of", "vitals")


def of(inside: Inside) -> Measures:
    """The measures of a server; there is one."""
    with _making:
        if inside.measures is None:
            inside.measures = Measures(inside)
        return inside.measures


def vitals(inside: Inside) -> dict[str, float]:
    """How the server is now. Names say the unit: ``_s`` seconds, ``bytes`` bytes, else a number of things.

    An engine that is not open has none. Those in ``COUNTERS`` only grow, and begin anew with the server.
    Threads: any; it takes some milliseconds, less if asked for often.
    """
    return gather(inside, of(inside).look)
