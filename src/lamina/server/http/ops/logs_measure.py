"""Finding out what of a log is alive, and who keeps the rest: in one thread for all logs, bounded, remembered.

Some of it means reading whole files. So it is done when somebody looks, again only when fifty times as long has passed
as it took, and of a large log only the oldest part, until somebody asks for all of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lamina.errors import LaminaError
from lamina.server.http.ops.logs_model import Holder, Segment
from lamina.units import MIB

logger = logging.getLogger("lamina.server")

AUTO_BYTES: Final = 128 * MIB
"""Read without being asked for."""
_LEAST_S: Final = 3.0
_TIMES: Final = 50
_WORK_S: Final = 0.003
_REST_S: Final = 0.006
_BURST_S: Final = 0.06  # without a rest: who waits for a small log sees all of it at once
_KEPT: Final = 200  # logs
_MOST_WAITING: Final = 16  # each in a thread; more are measured when somebody looks again
_OLD_NS: Final = 10 * 10**9  # then it is worth a moment to wait for what is new


class Share(NamedTuple):
    """Of one file. Together they are its size."""

    live: int
    dead: int
    pinned: int
    by: tuple[str, ...] = ()
    note: str = ""


@dataclass(slots=True)
class Measured:
    """Of one log."""

    shares: dict[str, Share] = field(default_factory=dict)
    holders: list[Holder] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    """Of files that have no share."""
    rows: list[Segment] = field(default_factory=list)
    """Of a log whose files are not listed each time: these stand for them, the largest first."""
    bytes: int = 0
    """Of all of these, and of those that are left out."""
    answer: str = ""
    is_partial: bool = False
    at_ns: int = 0
    problem: str = ""


class Pace:
    """Given to who measures: how much may be read, and when to let others have the processor."""

    def __init__(self, most_bytes: int | None, told: Callable[[int, int], None] | None = None) -> None:
        self._left = most_bytes
        self._told = told
        self._worked = time.monotonic() + _BURST_S
        self.was_cut = False

    def may_read(self, size: int) -> bool:
        """Whether a file of so many bytes may still be read; False: it stays unknown."""
        if self._left is None:
            return True
        if size > self._left:
            self.was_cut = True
            return False
        self._left -= size
        return True

    def step(self, done: int = 0, total: int = 0) -> None:
        """Between two small pieces of work. Raises: Stopped if it was given up."""
        if self._told is not None:
            self._told(done, total)
        elif time.monotonic() - self._worked > _WORK_S:
            time.sleep(_REST_S)
            self._worked = time.monotonic()


Measure = Callable[[Pace], Measured]


@dataclass(slots=True)
class _One:
    found: Measured | None = None
    next_at: float = 0.0
    is_waiting: bool = False
    done: threading.Event = field(default_factory=threading.Event)


class Measures:
    """Of one server. Threads: any; one at a time measures."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, _One] = {}
        self._turn = threading.Lock()

    def ask(self, log: str, measure: Measure, wait_s: float = 0.15) -> tuple[Measured | None, bool]:
        """What was found last, and whether it is being found out anew. Waits a moment if nothing new is known."""
        with self._lock:
            one = self._known.get(log)
            if one is None:
                one = self._known[log] = _One()
                self._drop_old()
            waiting = sum(each.is_waiting for each in self._known.values())
            if not one.is_waiting and time.monotonic() >= one.next_at and waiting < _MOST_WAITING:
                one.is_waiting = True
                one.done.clear()
                threading.Thread(
                    target=self._run, args=(one, measure, Pace(AUTO_BYTES)), name="lamina-http-measure", daemon=True
                ).start()
        is_old = one.found is None or time.time_ns() - one.found.at_ns > _OLD_NS
        one.done.wait(wait_s if is_old else wait_s / 4)
        return one.found, one.is_waiting

    def take(self, log: str, measure: Measure, told: Callable[[int, int], None]) -> Measured:
        """Measure all of it now, for who waits for it. Raises: what measuring does; Stopped."""
        with self._turn:
            began = time.monotonic()
            found = measure(Pace(None, told))
            found.at_ns = time.time_ns()
        with self._lock:
            one = self._known.setdefault(log, _One())
            one.found, one.next_at = found, time.monotonic() + max(60.0, _TIMES * (time.monotonic() - began))
        return found

    def known(self, log: str) -> Measured | None:
        one = self._known.get(log)
        return None if one is None else one.found

    def forget(self, log: str) -> None:
        """Something was done to the log: what is known is shown until it is known anew."""
        one = self._known.get(log)
        if one is not None:
            one.next_at = 0.0

    def _run(self, one: _One, measure: Measure, pace: Pace) -> None:
        with self._turn:
            began = time.monotonic()
            try:
                found = measure(pace)
                found.is_partial |= pace.was_cut
            except (LaminaError, OSError) as error:
                found = Measured(problem=str(error))
            except Exception as error:
                logger.exception("a log could not be measured")
                found = Measured(problem=f"{type(error).__name__}: {error}")
            finally:
                found.at_ns = time.time_ns()
                now = time.monotonic()
                with self._lock:
                    one.found = _joined(one.found, found)
                    one.is_waiting, one.next_at = False, now + max(_LEAST_S, _TIMES * (now - began))
                one.done.set()

    def _drop_old(self) -> None:
        for log in list(self._known):
            if len(self._known) <= _KEPT:
                return
            if not self._known[log].is_waiting:
                del self._known[log]


def _joined(before: Measured | None, found: Measured) -> Measured:
    """A look that failed does not make unknown what was known."""
    if before is None or not found.problem:
        return found
    before.problem = found.problem
    return before


def apply(segments: list[Segment], found: Measured | None) -> list[Segment]:
    """The segments with what was found; a file that has changed since stays unknown."""
    import msgspec

    if found is None:
        return segments
    told: list[Segment] = []
    for one in segments:
        share = found.shares.get(one.file)
        if share is not None and share.live + share.dead + share.pinned == one.bytes:
            one = msgspec.structs.replace(
                one,
                live_bytes=share.live,
                dead_bytes=share.dead,
                pinned_bytes=share.pinned,
                pinned_by=list(share.by) if share.pinned else [],
                note=share.note or one.note,
            )
        elif one.file in found.notes:
            one = msgspec.structs.replace(one, note=found.notes[one.file])
        told.append(one)
    return told
