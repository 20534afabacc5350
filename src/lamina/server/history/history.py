"""History: figures of the server over time, from memory, and from its log after a restart."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from lamina.clock import Clock, SystemClock
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.folders import folder_name
from lamina.log.teardown import Teardown
from lamina.server.history.counters import NAME as COUNTERS
from lamina.server.history.counters import KeptCounters
from lamina.server.history.keeping import KeptLog
from lamina.server.history.rings import Feed, Ring
from lamina.server.history.rows import Row, RowWriter, is_counter, read_rows
from lamina.units import MIB

NAME: Final = "lamina.history"
EVERY_S: Final = 10
"""Seconds from one record to the next."""
_DAYS: Final = 14
_MOST_BYTES: Final = 64 * MIB
_MOST_RESTARTS: Final = 1000
_SHED_EVERY: Final = 360  # records
_FIRST_S: Final = 3600 + 900  # what is loaded first: the hour that is shown first, and until names are found
_AT_ONCE: Final = 64  # rows that are read before others get the lock, and the processor
_BREATHS: Final = 2.0  # it rests so many times as long as it worked

# What is kept: steps of how many seconds, how many of them, and how many of them are one point of a picture.
_RINGS: Final = {"1h": (EVERY_S, 360, 1), "24h": (60, 1440, 4), "14d": (600, 2016, 6)}
# What is shown: of which ring, and how many of its points.
_SHOWN: Final = {"15m": ("1h", 90), "1h": ("1h", 360), "24h": ("24h", 360), "14d": ("14d", 336)}
RANGES: Final = tuple(_SHOWN)
"""Times that ``series`` can be asked for."""


@dataclass(frozen=True, slots=True)
class Series:
    """Figures, one each ``step_s`` seconds from ``start_s`` on; None: not known. Of counters: how fast they grew."""

    start_s: int
    step_s: int
    values: dict[str, list[float | None]]
    restarts: list[int]
    """Unix times at which the server started."""


class History:
    """Threads: safe from any."""

    def __init__(
        self,
        data: str | None,
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        threaded: bool = True,
        most_bytes: int = _MOST_BYTES,
        segment_bytes: int = 1 * MIB,
    ) -> None:
        """Opens the logs in the folder ``data``; None: what is noted is gone with the process. It never fails.

        What is in the log is not read yet: ``load`` does that.
        """
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._rings = {name: Ring(step_s, size) for name, (step_s, size, _) in _RINGS.items()}
        self._feed = Feed(list(self._rings.values()))
        self._restarts: list[int] = []
        self._recent: deque[tuple[float, Mapping[str, float]]] = deque(maxlen=2)
        self._rows = RowWriter()
        self._written_at: float | None = None
        self._noted = 0
        self._version = 0
        self._last_s = 0.0
        self._began_ns = self._clock.now_ns()
        self.is_loaded = data is None
        """All that the log had is in memory."""
        self._log: KeptLog | None = None
        self._counters: KeptCounters | None = None
        self._committer: Committer | None = None
        if data is not None:
            self._committer = committer = Committer() if threaded else None
            disk = RealFiles() if files is None else files

            def kept(name: str, most_s: float | None = None) -> KeptLog:
                folder = join(join(data, "logs"), folder_name(name.encode()))
                return KeptLog(
                    folder,
                    disk,
                    self._clock,
                    committer,
                    most_bytes=most_bytes,
                    most_s=most_s,
                    segment_bytes=segment_bytes,
                )

            with Teardown("the history of the server") as teardown:
                teardown.later(self.close)
                self._log = kept(NAME, _DAYS * 86400.0)
                self._counters = KeptCounters(kept(COUNTERS))
                teardown.cancel()

    # -- noting ------------------------------------------------------------------------------------------------------

    def sample(self, figures: Mapping[str, float]) -> None:
        """Note the figures of now. Durability: written, and synced within a second, if the disk lets it."""
        moment, elapsed = self._clock.now_ns(), self._clock.monotonic()
        figures = dict(figures)
        with self._lock:
            before = self._recent[-1][0] if self._recent else None
            row = Row(moment / 1e9, 0.0 if before is None else elapsed - before, list(figures), list(figures.values()))
            self._feed.add(row)
            if before is None:
                self._restarts.append(int(row.time_s))
            self._recent.append((elapsed, figures))
            self._last_s = row.time_s
            self._version += 1
        with self._writing:
            self._write(figures, elapsed)

    def _write(self, figures: Mapping[str, float], elapsed: float) -> None:
        if self._log is None:
            return
        # Behind a record that was refused stands the one before it: so does its time.
        after_s = 0.0 if self._written_at is None else max(elapsed - self._written_at, 0.001)
        if self._log.append(self._rows.payload(after_s, figures)):
            self._written_at = elapsed
        else:
            self._rows.refused()
        if self._noted % _SHED_EVERY == 0:
            self._log.shed()
        self._noted += 1

    def note(self, counters: Mapping[str, float]) -> None:
        """Keep the counters of /metrics. Durability: written: a killed process does not take them back."""
        if self._counters is not None:
            self._counters.note(counters)

    def last_counters(self) -> dict[str, float]:
        """The newest that were noted, by the server before this one if none were yet."""
        return {} if self._counters is None else self._counters.newest

    # -- reading it anew ---------------------------------------------------------------------------------------------

    def load(self, should_stop: Callable[[], bool] = lambda: False) -> None:
        """Fill the memory from the log, the newest first, a little at a time. Call it once, from a thread of its own.

        Asked to stop, it does so soon.
        """
        if self._log is None:
            return
        now_ns = self._began_ns
        newest = self._load(now_ns - _FIRST_S * 10**9, now_ns, should_stop)
        # The row where the two meet is read twice: what it gained is known the second time only.
        self._load(now_ns - _DAYS * 86400 * 10**9, min(newest + 10**9, now_ns), should_stop)
        with self._lock:
            self._restarts = sorted(set(self._restarts))[-_MOST_RESTARTS:]
            self._version += 1
        self.is_loaded = not should_stop()

    def _load(self, since_ns: int, until_ns: int, should_stop: Callable[[], bool]) -> int:
        """Rows between two moments. Returns when the first that was found is of: until there names are not known."""
        assert self._log is not None
        feed = Feed(list(self._rings.values()))
        pause = threading.Event()
        first_ns, rows = until_ns, list[Row]()
        began = time.monotonic()
        for row in read_rows(self._log.records(since_ns, until_ns)):
            first_ns = min(first_ns, round(row.time_s * 1e9))
            rows.append(row)
            if len(rows) >= _AT_ONCE:
                if should_stop():
                    return first_ns
                self._take(feed, rows)
                rows.clear()
                pause.wait(_BREATHS * (time.monotonic() - began))  # others have something to do as well
                began = time.monotonic()
        self._take(feed, rows)
        return first_ns

    def _take(self, feed: Feed, rows: Iterable[Row]) -> None:
        now_s = self._clock.now_ns() / 1e9
        with self._lock:
            for row in rows:
                feed.add(row, now_s)
                if not row.after_s:
                    self._restarts.append(int(row.time_s))
            self._version += 1

    # -- asking ------------------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Another one when there is something new to show."""
        return self._version

    @property
    def names(self) -> list[str]:
        """Figures that there are."""
        with self._lock:
            return self._rings["1h"].names

    def series(self, names: Iterable[str], range: str) -> Series:
        """Figures over ``15m``, ``1h``, ``24h`` or ``14d`` up to now. Raises: KeyError for another range."""
        kept, count = _SHOWN[range]
        step_s, _, group = _RINGS[kept]
        ring = self._rings[kept]
        now_s = self._clock.now_ns() / 1e9
        with self._lock:
            last_s = self._last_s if 0 <= now_s - self._last_s < 2.5 * EVERY_S else now_s
            last = int(last_s // step_s)
            last += group - 1 - last % group  # groups begin at round times, so that they stay what they are
            values = {name: ring.read(name, last, count, group) for name in names}
            restarts = list(self._restarts)
        start_s = (last - count * group + 1) * step_s
        return Series(start_s, step_s * group, values, [moment for moment in restarts if moment >= start_s])

    def peak(self, name: str) -> float:
        """The highest that is remembered; of a counter the most that it gained in 10 minutes. 0: nothing is."""
        with self._lock:
            return self._rings["14d"].peak(name)

    def rates(self, figures: Mapping[str, float]) -> dict[str, float]:
        """How fast counters grow, from the sample before last to the ``figures`` of now. Those not known are left out.

        None is known before the first sample is a few seconds old.
        """
        now = self._clock.monotonic()
        with self._lock:
            before = next(((at, kept) for at, kept in self._recent if now - at >= 1.0), None)
        if before is None:
            return {}
        at, kept = before
        return {
            name: (value - kept[name]) / (now - at)
            for name, value in figures.items()
            if is_counter(name) and name in kept and value >= kept[name]
        }

    def close(self) -> None:
        """Durability: what was noted is synced, if the disk lets it."""
        with Teardown("the history of the server") as teardown:
            for one in (self._log, self._counters):
                if one is not None:
                    teardown.step(one.close)
            if self._committer is not None:
                teardown.step(self._committer.stop)
