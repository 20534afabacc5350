"""The history of a server: what its vital figures were, over two weeks, also across restarts.

    sampler.py      a thread that takes the figures every 10 seconds
    history.py      History: writes each to a log of its own, ``<data>/logs/lamina.history``, and answers from memory
    rings.py        the memory: an hour by 10 seconds, a day by minutes, two weeks by 10 minutes
    rows.py         a record of that log
    counters.py     the newest counters of /metrics, ``<data>/logs/lamina.counters``, so that they go on after a restart
    keeping.py      such a log: bounded, and never a reason for a server to stop

At the start the memory is filled from the log, in the background.
"""

from __future__ import annotations

from lamina.server.history.history import RANGES as RANGES
from lamina.server.history.history import History as History
from lamina.server.history.history import Series as Series
from lamina.server.history.sampler import Sampler as Sampler
