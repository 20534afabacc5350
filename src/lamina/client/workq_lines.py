"""Connections to the workq door of one server, held ready for whoever talks.

Commands that wait by themselves (a lease, a result, a run) have a connection each, as many as there are; all others
take turns on a few, which are kept.
Threads: safe from any thread.
"""

from __future__ import annotations

import threading
import time
from typing import Any, Final, TypeVar

from lamina.client.endpoint import Endpoint
from lamina.client.forking import tell_after_fork
from lamina.client.jobs_asking import Asked, Rest, Talk
from lamina.client.workq_line import WorkqLine
from lamina.errors import Disconnected, LaminaError, LogClosed

T = TypeVar("T")

MOST_QUICK: Final = 16


class WorkqLines:
    """The connections of one object."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(MOST_QUICK)
        self._idle: list[WorkqLine] = []
        self._busy: set[WorkqLine] = set()
        self._is_closed = False
        tell_after_fork(self)

    def forked(self) -> None:
        """See forking.py."""
        self._lock, self._turns = threading.Lock(), threading.Semaphore(MOST_QUICK)
        for line in (*self._idle, *self._busy):
            line.close()
        self._idle, self._busy = [], set()

    def do(self, talk: Talk[T]) -> T:
        """What the talk returns. Raises: what it does; Disconnected, WireError; LogClosed."""
        try:
            step = next(talk)
            while True:
                try:
                    answers = self._perform(step)
                except LaminaError as problem:
                    step = talk.throw(problem)
                else:
                    step = talk.send(answers)
        except StopIteration as end:
            value: T = end.value
            return value

    def _perform(self, step: Asked | Rest) -> list[Any]:
        if isinstance(step, Rest):
            time.sleep(step.seconds)
            return []
        if step.waits:
            return self._ask(step)
        with self._turns:
            return self._ask(step)

    def _ask(self, step: Asked) -> list[Any]:
        with self._lock:
            self._check_open()
            line = self._idle.pop() if self._idle else WorkqLine(self.endpoint)
            self._busy.add(line)
        try:
            line.drop_if_stale()
            return line.ask(step.commands)
        except Disconnected:
            self._check_open()  # it was closed by us: that is the reason
            raise
        finally:
            with self._lock:
                self._busy.discard(line)
                is_kept = line.is_connected and not self._is_closed and len(self._idle) < MOST_QUICK
                if is_kept:
                    self._idle.append(line)
            if not is_kept:
                line.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed("the jobs are closed", hint="connect again")

    def close(self) -> None:
        """Hang up, also on those who wait: they get LogClosed."""
        with self._lock:
            self._is_closed = True
            for line in self._idle:
                line.close()
            self._idle.clear()
            for line in self._busy:
                line.shut()
