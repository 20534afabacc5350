"""Talks that give work. No job is dropped silently: when a connection breaks it is sent again under the same id.

A server that has the job already refuses the second one, which then counts as done. When ``retry_s`` is over the error
names the jobs that nobody acknowledged; sent again later under the same id, each is still added once.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, Final

from lamina.client import jobs_reading as read
from lamina.client.jobs_asking import Asking, Talk, ask, fine, words
from lamina.client.wire import Command, nothing
from lamina.engines.jobs.api import DAY_S, Seconds, job_fields, run_fields, to_ms
from lamina.engines.jobs.views import JobResult, JobView, show_id
from lamina.errors import Disconnected, DuplicateJob, JobNotFound, LaminaError
from lamina.units import show_time

_MOST_AHEAD: Final = 256
_BYTES_AHEAD: Final = 1 << 20
_MOST_NAMED: Final = 1000  # of the ids in an error


class Giving(Asking):
    """``add`` and ``run``."""

    def add(self, name: str, payload: bytes, options: dict[str, Any]) -> Talk[str]:
        id, command = add_command(name, payload, options)
        try:
            ((value, is_second),) = yield from ask(self._endpoint, command, may_repeat=True)
        except Disconnected as problem:
            raise _unacknowledged(problem, [id]) from problem
        if not (is_second and isinstance(value, DuplicateJob) and (yield from self._is_ours(id, name, payload))):
            fine(value)
        return id

    def _is_ours(self, id: str, name: str, payload: bytes) -> Talk[bool]:
        """The first try was done. Else somebody has the unique key, or had given a job this id."""
        try:
            view: JobView = (yield from self._ask(words("inspect view", id), reader=read.job_views))[0]
        except JobNotFound:
            return False
        return (view.name, view.payload) == (name, payload)

    def add_many(self, name: str, payloads: Iterable[bytes], options: dict[str, Any]) -> Talk[list[str]]:
        """Raises: as ``add``, with ``added`` in the facts: the ids of all that were, so that nobody adds them again."""
        done: list[str] = []
        try:
            if options.get("id") or options.get("unique"):  # only one of them can be: none may be sent ahead
                for payload in payloads:
                    done.append((yield from self.add(name, payload, options)))
            else:
                yield from self._add_all(name, payloads, options, done)
        except LaminaError as problem:
            problem.facts["added"] = done
            raise
        return done

    def _add_all(self, name: str, payloads: Iterable[bytes], options: dict[str, Any], done: list[str]) -> Talk[None]:
        """``done`` is added to."""
        ahead: dict[str, Command] = {}
        size = 0
        given = iter(payloads)
        while True:
            try:
                payload = next(given)
                id, command = add_command(name, payload, options)
            except StopIteration:
                yield from self._add_ahead(ahead, done)
                return
            except BaseException:  # a payload that cannot be: those before it are added all the same
                yield from self._add_ahead(ahead, done)
                raise
            ahead[id] = command
            size += len(payload)
            if len(ahead) >= _MOST_AHEAD or size >= _BYTES_AHEAD:
                sent, ahead, size = ahead, {}, 0
                yield from self._add_ahead(sent, done)

    def _add_ahead(self, commands: dict[str, Command], done: list[str]) -> Talk[None]:
        if not commands:
            return
        try:
            outcomes = yield from ask(self._endpoint, *commands.values(), may_repeat=True)
        except Disconnected as problem:
            raise _unacknowledged(problem, list(commands)) from problem
        refused: LaminaError | None = None
        for id, (value, is_second) in zip(commands, outcomes, strict=True):
            is_ours = is_second and isinstance(value, DuplicateJob)  # the id is of our making: it is this very job
            if isinstance(value, LaminaError) and not is_ours:
                refused = refused or value
            else:
                done.append(id)
        if refused is not None:
            raise refused

    def run(self, name: str, payload: bytes, timeout: Seconds, ttr: Seconds, priority: int) -> Talk[JobResult | None]:
        """Sent once: a server forgets such a job when its caller is gone, but a worker may have begun it."""
        id, _, ttr_ms, _, _ = run_fields(name, payload, ttr, priority)
        wait_ms = to_ms("timeout", timeout, 0, DAY_S)
        flags = [f"-priority={priority}"] if priority else []
        line = words("run", show_id(id), name, ttr_ms, wait_ms, len(payload), *flags)
        wait_s = (wait_ms + DAY_S * 1000) / 1000  # whoever works on it when the time is up is waited for, too
        try:
            result: JobResult | None = yield from self._ask(
                line, payload, reader=read.result, wait_s=wait_s, may_repeat=False
            )
        except JobNotFound:  # somebody deleted it
            return None
        return result


def add_command(name: str, payload: bytes, options: dict[str, Any]) -> tuple[str, Command]:
    """The id of the job, and what adds it. Raises: BadJob."""
    fields = job_fields(name, payload, time.time_ns(), **options)
    id, _, ttr, ttl, _, priority, max_attempts, max_fails, at, unique, backoff = fields
    flags = {"priority": priority, "max-attempts": max_attempts, "max-fails": max_fails}
    given = [f"-{key}={value}" for key, value in {**flags, "unique": unique, "backoff": backoff}.items() if value]
    head = ["add" if at is None else "schedule", show_id(id), name, ttr, ttl, *([] if at is None else [show_time(at)])]
    # The size behind the flags is the last argument all the same; the quick way of the server wants it before them.
    return show_id(id), Command(words(*head, len(payload), *given), payload, 0, nothing)


def _unacknowledged(problem: Disconnected, ids: list[str]) -> Disconnected:
    """The same, saying what nobody knows about."""
    what = f"job {ids[0]} was" if len(ids) == 1 else f"{len(ids)} jobs, {ids[0]} the first, were"
    hint = "whether it was added is not known: add it again with the same id, which does no harm"
    facts = {**problem.facts, "unacknowledged": ids[:_MOST_NAMED]}
    return Disconnected(f"{problem.message}; {what} not acknowledged", hint=hint, **facts)
