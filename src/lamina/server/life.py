"""Where a server is in its life, for whoever asks from outside: starting, restoring, ready, stopping or failed.

One thread starts the server and tells; any other thread (the health door) asks. While engines restore, each says how
many bytes of how many it has been through: from that come the percent and an estimate of the seconds left. When one is
open it leaves a report: what was restored, from how many files, how long it took, and what was left out and why.

A server that is ready can still be of no use: a log that failed, a disk that is full. Such a thing is a problem. It is
told (``problem``, ``solved``) or asked for (``watch``) whenever somebody looks, so that nothing has to be polled. Some
problems end by themselves (a full disk) and only make it not ready; others need a new start (a log that failed): then
it is not alive either, and whoever watches over processes may start another one.

Reasons name files, and files name topics. Who may not know these is told what kind of thing is broken, and no more.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lamina.clock import Clock, SystemClock
from lamina.errors import LaminaError
from lamina.units import show_bytes, show_duration

logger = logging.getLogger("lamina.server")

STARTING: Final = "starting"
RESTORING: Final = "restoring"
READY: Final = "ready"
STOPPING: Final = "stopping"
FAILED: Final = "failed"
WAITING: Final = "waiting"  # of an engine whose turn has not come

_MOST_KEPT = 100  # lines of a report that are kept; the rest is counted
_MOST_SHOWN: Final = 4000  # characters of a line of INFO
_LONG_ENOUGH_S = 0.2  # before that a rate says nothing
_UNTOLD: Final = "the console and the log of the server say what, to who may know"
_NOT_WRITTEN: Final = f"something of it cannot be written any more; {_UNTOLD}"
_NOT_OPENED: Final = f"it could not be opened; {_UNTOLD}"
_NOT_KNOWN: Final = f"something is wrong with it; {_UNTOLD}"
_NOT_STARTED: Final = f"something could not be opened; {_UNTOLD}"


class _Problem(NamedTuple):
    """Something that is broken."""

    reason: str
    needs_restart: bool
    is_found_out: bool = False
    """By asking, which failed: nobody chose the words."""

    def told(self, knows_names: bool) -> str:
        if knows_names:
            return self.reason
        if self.needs_restart:
            return _NOT_WRITTEN
        return _NOT_KNOWN if self.is_found_out else self.reason


@dataclass(slots=True)
class Report:
    """What opening one engine found and did."""

    what: str = ""
    """In words, such as ``12 304 jobs``."""
    files: int = 0
    records: int = 0
    seconds: float = 0.0
    left_out: list[tuple[str, str]] = field(default_factory=list)
    """What was ignored, cut off or quarantined, and why."""
    warnings: list[str] = field(default_factory=list)
    not_shown: int = 0
    """Lines that were too many to keep."""

    def as_dict(self) -> dict[str, object]:
        """As plain values."""
        return {
            "what": self.what,
            "files": self.files,
            "records": self.records,
            "seconds": round(self.seconds, 3),
            "left_out": [{"what": what, "reason": reason} for what, reason in self.left_out],
            "warnings": list(self.warnings),
            "not_shown": self.not_shown,
        }


class Restoring:
    """One engine while it opens. Calling it says how far it is: this is the ``progress`` of what opens engines.

    Threads: told by one, asked by any.
    """

    __slots__ = ("_moved", "engine", "phase", "reason", "report", "started")

    def __init__(self, engine: str, total: int = 0) -> None:
        self.engine = engine
        self.phase = WAITING
        self.reason = ""
        self.report = Report()
        self.started = 0.0
        self._moved = (0, total)

    def __call__(self, done: int, total: int) -> None:
        """``done`` bytes of ``total`` are through."""
        self._moved = (done, total)  # one assignment: who asks never sees half of it

    def restored(self, what: str = "", *, files: int = 0, records: int = 0) -> None:
        """Say what is there now, such as ``12 jobs``. Numbers of several calls add up."""
        self.report.what = f"{self.report.what}, {what}" if self.report.what and what else what or self.report.what
        self.report.files += files
        self.report.records += records

    def leave_out(self, what: str, reason: str) -> None:
        """Say what was ignored, cut off or quarantined."""
        if len(self.report.left_out) < _MOST_KEPT:
            self.report.left_out.append((what, reason))
        else:
            self.report.not_shown += 1

    def warn(self, text: str) -> None:
        """Say what an operator should know."""
        if len(self.report.warnings) < _MOST_KEPT:
            self.report.warnings.append(text)
        else:
            self.report.not_shown += 1

    @property
    def moved(self) -> tuple[int, int]:
        """Bytes done and in all. What is open is done."""
        done, total = self._moved
        return (total if self.phase == READY else min(done, total)), total

    def lines(self) -> list[str]:
        """The report as lines of text."""
        if self.phase != READY:
            return [f"{self.engine}: {self.phase}{f': {self.reason}' if self.reason else ''}"]
        report = self.report
        size = self._moved[1]
        of = f" from {report.files} file{'s' if report.files != 1 else ''}" if report.files else ""
        of += f", {show_bytes(size)}" if size else ""
        first = f"{self.engine}: {report.what or 'open'}{of}, in {show_duration(report.seconds)}"
        rest = [f"{self.engine}: left out {what}: {reason}" for what, reason in report.left_out]
        rest += [f"{self.engine}: {warning}" for warning in report.warnings]
        if report.not_shown:
            rest.append(f"{self.engine}: and {report.not_shown} more of these")
        return [first, *rest]

    def as_dict(self, now: float, *, with_report: bool = True, with_names: bool = True) -> dict[str, object]:
        """As plain values."""
        done, total = self.moved
        shown: dict[str, object] = {
            "phase": self.phase,
            "done_bytes": done,
            "total_bytes": total,
            "percent": 100.0 if self.phase == READY else _percent(done, total),
            "estimate_s": _estimate(done, total, now - self.started) if self.phase == RESTORING else None,
        }
        if self.reason:
            shown["reason"] = self.reason if with_names else _NOT_OPENED
        if self.phase == READY and with_report:
            shown["report"] = self.report.as_dict()
        return shown


class Life:
    """The life of one server.

    Threads: safe from any thread; asking never waits for what is being opened.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = SystemClock() if clock is None else clock
        self._lock = threading.Lock()
        self._phase = STARTING
        self._reason = ""
        self._since_ns = self._clock.now_ns()
        self._engines: dict[str, Restoring] = {}
        self._restoring_from = 0.0
        self._best_percent = 0.0
        self._problems: dict[str, _Problem] = {}
        self._logged: set[str] = set()
        self._watched: dict[str, tuple[Callable[[], str | None], bool]] = {}
        self._damage: dict[str, Callable[[], list[str]]] = {}
        self.sections: dict[bytes, tuple[bytes, Callable[[Any], dict[str, object]]]] = {b"life": (b"Life", self._shown)}
        """More sections of INFO (resp/info_sections.py): who opens an engine that another door serves adds one."""

    # Telling.

    def expect(self, engine: str, total_bytes: int = 0) -> None:
        """Say that this engine will be restored, and from how much: then the percent is one of all engines."""
        with self._lock:
            self._engines.setdefault(engine, Restoring(engine, total_bytes))

    @contextmanager
    def restoring(self, engine: str) -> Iterator[Restoring]:
        """While an engine opens; gives what has to be told. An error that comes out of it makes the server failed."""
        with self._lock:
            one = self._engines.setdefault(engine, Restoring(engine))
            one.phase, one.reason, one.started = RESTORING, "", self._clock.monotonic()
            if self._phase == STARTING:
                self._enter(RESTORING)
                self._restoring_from = one.started
        try:
            yield one
        except BaseException as error:
            with self._lock:
                one.phase, one.reason = FAILED, _say(error)
            self.failed(f"{engine}: {one.reason}")
            raise
        with self._lock:
            one.report.seconds = self._clock.monotonic() - one.started
            one.phase = READY

    def ready(self) -> None:
        """The doors are open. Nothing changes when it is stopping already."""
        with self._lock:
            if self._phase in (STARTING, RESTORING):
                self._enter(READY)

    def stopping(self, reason: str = "") -> None:
        """The doors close; what is being done is brought to its end."""
        with self._lock:
            if self._phase != FAILED:
                self._enter(STOPPING, reason)

    def failed(self, reason: str) -> None:
        """It cannot go on. The first reason stays."""
        with self._lock:
            if self._phase != FAILED:
                self._enter(FAILED, reason)

    def problem(self, name: str, reason: str, *, needs_restart: bool = False) -> None:
        """Something is broken until it is ``solved``, such as ``("jobs", "the log failed: ...")``.

        The reason of one that may end by itself is for everybody who asks: it must name nothing.
        """
        with self._lock:
            self._problems[name] = _Problem(reason, needs_restart)

    def solved(self, name: str) -> None:
        """Take a problem back; nothing happens when there is none."""
        with self._lock:
            self._problems.pop(name, None)

    def watch(self, name: str, ask: Callable[[], str | None], *, needs_restart: bool = False) -> None:
        """Call ``ask`` whenever somebody looks: it says what is broken, or None. It must be quick and wait for nothing;
        the thread is that of who looks. Who may know what it says: as with ``problem``.
        """
        with self._lock:
            self._watched[name] = ask, needs_restart

    def tell_damage(self, name: str, ask: Callable[[], list[str]]) -> None:
        """Call ``ask`` whenever somebody looks: it says what was found that is not as it was written, with its place.

        Clients are served all the same: it is shown beside the problems, and does not make the server unready. It must
        be quick. Who may not know names is told how much it is.
        """
        with self._lock:
            self._damage[name] = ask

    def _enter(self, phase: str, reason: str = "") -> None:
        self._phase, self._reason, self._since_ns = phase, reason, self._clock.now_ns()

    # Asking.

    @property
    def phase(self) -> str:
        """``starting``, ``restoring``, ``ready``, ``stopping`` or ``failed``."""
        return self._phase

    @property
    def reason(self) -> str:
        """Why it failed or stops; empty else."""
        return self._reason

    @property
    def since_ns(self) -> int:
        """When the phase began, wall time."""
        return self._since_ns

    @property
    def problems(self) -> dict[str, str]:
        """What is broken now, by name."""
        return {name: one.reason for name, one in self._all_problems().items()}

    @property
    def needs_restart(self) -> str:
        """Why this process is of no use any more; empty if it is."""
        return self.why_restart()

    def why_restart(self, *, with_names: bool = True) -> str:
        """The same; without names: for who may not know what topics and files are called."""
        if self._phase == FAILED:
            return self._reason if with_names else _NOT_STARTED
        found = self._all_problems().items()
        return "; ".join(f"{name}: {one.told(with_names)}" for name, one in found if one.needs_restart)

    def _all_problems(self) -> dict[str, _Problem]:
        with self._lock:
            problems, watched = dict(self._problems), list(self._watched.items())
        for name, (ask, needs_restart) in watched:
            try:
                reason, is_found_out = ask(), False
            except Exception as error:
                # What cannot even be asked is not well; and who looks must get an answer.
                reason, is_found_out = _say(error), True
            if reason:
                problems[name] = _Problem(reason, needs_restart, is_found_out)
        self._log_new(problems)
        return problems

    @property
    def damage(self) -> dict[str, list[str]]:
        """What was found that is not as it was written, by name; only those with any."""
        with self._lock:
            asked = list(self._damage.items())
        return {name: found for name, ask in asked if (found := ask())}

    def _log_new(self, problems: dict[str, _Problem]) -> None:
        """Each once while it lasts: the log has the reason that not everybody is told."""
        with self._lock:
            new = [name for name in problems if name not in self._logged]
            self._logged = set(problems)
        for name in new:
            logger.warning("%s: %s", name, problems[name].reason)

    @property
    def is_ready(self) -> bool:
        """The doors are open and nothing is broken."""
        return self._phase == READY and not self.problems

    @property
    def percent(self) -> float:
        """Of what has to be restored; 100 when it is ready. It never goes back."""
        if self._phase in (READY, STOPPING):
            return 100.0
        with self._lock:
            moved = [one.moved for one in self._engines.values()]
            percent = _percent(sum(done for done, _ in moved), sum(total for _, total in moved))
            self._best_percent = max(self._best_percent, percent)
            return self._best_percent

    @property
    def estimate_s(self) -> float | None:
        """Seconds until all is restored at the rate so far; None while that is not known, and when nothing is left."""
        if self._phase != RESTORING:
            return None
        with self._lock:
            moved = [one.moved for one in self._engines.values()]
            past = self._clock.monotonic() - self._restoring_from
        return _estimate(sum(done for done, _ in moved), sum(total for _, total in moved), past)

    @property
    def report(self) -> list[str]:
        """What was restored, as lines of text, engine by engine."""
        with self._lock:
            engines = list(self._engines.values())
        return [line for one in engines for line in one.lines()]

    def _shown(self, session: object) -> dict[str, object]:
        user = getattr(session, "user", None)
        if user is not None and not user.may("admin", "read", ""):
            return {"phase": self._phase}  # problems name files
        problems = "; ".join(f"{name}: {reason}" for name, reason in self.problems.items())
        damage = "; ".join(f"{name}: {line}" for name, found in self.damage.items() for line in found)
        return {
            "phase": self._phase,
            "problems": " ".join(problems.split()),
            "damage": " ".join(damage.split())[:_MOST_SHOWN],
        }

    def as_dict(self, *, with_reports: bool = True, with_names: bool = True) -> dict[str, object]:
        """All of it as plain values; no secret, no payload is in it. Reports name files, and so do reasons: without
        names they say less.
        """
        now = self._clock.monotonic()
        problems, percent, estimate = self._all_problems(), self.percent, self.estimate_s
        damage = self.damage
        with_these = {"with_report": with_reports, "with_names": with_names}
        with self._lock:
            shown: dict[str, object] = {
                "phase": self._phase,
                "since_ms": self._since_ns // 1_000_000,
                "percent": percent,
                "estimate_s": estimate,
                "engines": {name: one.as_dict(now, **with_these) for name, one in self._engines.items()},
                "problems": {name: one.told(with_names) for name, one in problems.items()},
                "damage": {
                    name: found if with_names else [f"{len(found)} places; {_UNTOLD}"] for name, found in damage.items()
                },
            }
            if self._reason:
                shown["reason"] = self._reason if with_names or self._phase != FAILED else _NOT_STARTED
        return shown


def _percent(done: int, total: int) -> float:
    return round(min(100.0 * done / total, 100.0), 1) if total else 0.0


def _estimate(done: int, total: int, past: float) -> float | None:
    if not done or not total or past < _LONG_ENOUGH_S:
        return None
    return round(past * (total - done) / done, 1)


def _say(error: BaseException) -> str:
    return str(error) if isinstance(error, LaminaError) else f"{type(error).__name__}: {error}"
