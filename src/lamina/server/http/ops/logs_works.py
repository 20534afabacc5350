"""Work that takes long: one at a time for a log, in a thread of its own, with how far it is and how it ended.

Who asks for more of it meanwhile is refused. What ended is told until the same is done again, or the server stops.
What whoever began it was not told in the answer is in the audit log as well, where it stays: how it ended, by the same
user.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from lamina.errors import Busy, LaminaError, NotThere, Stopped
from lamina.server.audit import Audit, Entry
from lamina.server.http.ops.logs_model import Damage, Work
from lamina.server.http.ops.logs_names import MESSAGES

logger = logging.getLogger("lamina.server")

MOST: Final = 4
"""At the same time, of all logs."""
SOON_S: Final = 1.0
"""What is done by then was in the answer, which waits a little longer (logs.py), and so in the audit log."""
_KEPT: Final = 500
_WORK_S: Final = 0.004
_REST_S: Final = 0.004


@dataclass(slots=True)
class Running:
    """One piece of work, for who does it. Threads: its own writes, any reads."""

    log: str
    action: str
    by: str
    cancel: Callable[[], object] | None = None
    """How to give it up; None: it looks at ``is_asked_to_stop`` now and then, or cannot be given up."""
    can_stop: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(6))
    started_ns: int = field(default_factory=time.time_ns)
    ended_ns: int | None = None
    done: int = 0
    total: int = 0
    outcome: str = "running"
    told: str = ""
    damage: list[Damage] = field(default_factory=list)
    is_asked_to_stop: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    _rested: float = field(default_factory=time.monotonic)

    def progress(self, done: int, total: int) -> None:
        """So far. Lets others have the processor now and then. Raises: Stopped if it was given up."""
        self.done, self.total = done, total
        if self.is_asked_to_stop:
            raise Stopped("it was given up", hint="ask again")
        if time.monotonic() - self._rested > _WORK_S:
            time.sleep(_REST_S)
            self._rested = time.monotonic()

    def shown(self) -> Work:
        is_running = self.ended_ns is None
        percent = min(round(100 * self.done / self.total, 1), 100.0) if self.total and is_running else None
        return Work(
            id=self.id,
            log=self.log,
            action=self.action,
            by=self.by,
            started_ns=self.started_ns,
            ended_ns=self.ended_ns,
            percent=percent,
            outcome=self.outcome,
            told=self.told,
            can_stop=is_running and self.can_stop,
            damage=list(self.damage),
        )


class Works:
    """Of one server. Threads: any."""

    def __init__(self, audit: Callable[[], Audit | None] | None = None) -> None:
        """``audit`` gives the audit log, or None when there is none any more; None: ends are not written down."""
        self._audit = audit
        self._lock = threading.Lock()
        self._all: dict[tuple[str, str], Running] = {}
        """By log and action: what runs, or how it ended the last time; the newest last."""

    def begin(self, work: Running, act: Callable[[Running], str]) -> Running:
        """Have ``act`` done; it returns what is told of it. Raises: Busy."""
        with self._lock:
            self._check_free(work.log)
            if sum(one.ended_ns is None for one in self._all.values()) >= MOST:
                raise Busy(f"{MOST} logs are being worked on already", hint="wait until one of them is done")
            self._all.pop((work.log, work.action), None)
            self._all[work.log, work.action] = work
            while len(self._all) > _KEPT:
                old = next((key for key, one in self._all.items() if one.ended_ns is not None), None)
                if old is None:
                    break
                del self._all[old]
        threading.Thread(target=self._run, args=(work, act), name=f"lamina-http-{work.action}", daemon=True).start()
        return work

    def _run(self, work: Running, act: Callable[[Running], str]) -> None:
        began = time.monotonic()
        outcome, told = "error", ""
        try:
            outcome, told = "done", act(work)
        except LaminaError as error:
            outcome, told = "stopped" if isinstance(error, Stopped) else error.code, str(error)
        except Exception as error:  # a mistake of ours, or of the disk: told, not lost with the thread
            logger.exception("%s of %s failed", work.action, work.log)
            outcome, told = "error", f"{type(error).__name__}: {error}"
        finally:
            ended_ns = time.time_ns()
            if work.log == MESSAGES and outcome not in ("done", "stopped"):
                told = ""  # to nobody, for the answer is in the audit log, too: paths of journals are ids of queues
            self._write_down(work, outcome, told, time.monotonic() - began)
            work.outcome, work.told, work.ended_ns = outcome, told, ended_ns
            work.over.set()

    def _write_down(self, work: Running, outcome: str, told: str, seconds: float) -> None:
        """Before anybody is told. Durability: synced; where that cannot be, the log of the server says it instead."""
        if self._audit is None or (outcome == "done" and seconds < SOON_S):
            return
        ended = Entry(
            time_ns=0,  # when it is written
            number=0,  # no request is going on: it was answered when this began
            user=work.by,
            address="",
            action=f"logs.{work.action}",
            target=work.log,
            asked={"work": work.id, "seconds": round(seconds, 1)},
        )
        try:
            audit = self._audit()
            if audit is not None:
                audit.end(ended, outcome, told)
                return
            why = "it is closed"
        except Exception as error:  # the work has ended all the same, and whoever waits for that is told
            why = str(error)
        by_whom = f"{ended.action} of {work.log}, which {work.by} began, ended ({outcome}: {told})"
        logger.warning("%s, which is not in the audit log: %s", by_whom, why)

    def check_free(self, log: str) -> None:
        """Raises: Busy if something is going on in the log."""
        with self._lock:
            self._check_free(log)

    def _check_free(self, log: str) -> None:
        for one in self._all.values():
            if one.log == log and one.ended_ns is None:
                raise Busy(
                    f"{one.by} began to {one.action} {log} before, and it is not done yet",
                    hint="wait for it, or stop it first",
                )

    def of(self, log: str) -> list[Running]:
        """The newest first."""
        with self._lock:
            return [one for one in reversed(self._all.values()) if one.log == log]

    def running(self) -> list[Running]:
        with self._lock:
            return [one for one in self._all.values() if one.ended_ns is None]

    def stop(self, log: str) -> Running:
        """Ask what is going on in the log to end. Raises: NotThere; Busy if it cannot be given up."""
        work = next((one for one in self.of(log) if one.ended_ns is None), None)
        if work is None:
            raise NotThere(f"nothing is going on in {log}", hint="it may have ended just now")
        if not work.can_stop:
            raise Busy(f"it cannot be given up: {work.action} {log}", hint="wait until it is done")
        work.is_asked_to_stop = True
        if work.cancel is not None:
            work.cancel()
        return work
