"""Commands of the server itself that Redis does not have: ``L.WHY``, ``L.DUMP``, ``L.QUEUES``."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from lamina.engines import loops
from lamina.engines.queues import views
from lamina.errors import LaminaError
from lamina.server.resp import replies
from lamina.server.resp.dispatch import Handler
from lamina.server.resp.queue_commands import queues_of
from lamina.server.resp.session import Args, Refusal, Session, Wait


def why(session: Session, args: Args) -> bytes | Wait:
    """L.WHY key [limits]: why a topic is as large as it is, as JSON. Without limits those the server has for it count.

    Files may have to be looked at, so another thread does it.
    """
    if len(args) > 3:
        raise Refusal("ERR syntax error")
    topic, tell = session.topics.get(args[1]), session.house.why
    if topic is None or tell is None:
        return replies.null(session.version)
    if session.is_in_exec:
        raise Refusal("ERR L.WHY is not allowed inside a transaction")
    limits = args[2].decode(errors="replace") if len(args) > 2 else None
    return _elsewhere(session, partial(tell, args[1], topic, limits))


def dump(session: Session, args: Args) -> bytes | Wait:
    """L.DUMP queues: write a dump of the queues now; what was done, as JSON. Nil if one is being written."""
    make = session.house.dump
    if args[1].lower() != b"queues" or make is None:
        raise Refusal("ERR there is nothing of that name to dump, only queues (lamina serve --queues)")
    if session.is_in_exec:
        raise Refusal("ERR L.DUMP is not allowed inside a transaction")
    return _elsewhere(session, make)


def queues(session: Session, args: Args) -> bytes:
    """L.QUEUES: how many queues and messages there are, and how many expired, as JSON. Of none of them alone."""
    engine = queues_of(session).engine
    loops.must_wait()  # all of them are counted
    with engine.lock:
        found = views.stats(engine)
    return replies.bulk(json.dumps(asdict(found)).encode())


def _elsewhere(session: Session, work: Callable[[], Any]) -> Wait:
    """Have another thread do what takes long; the answer is its report, as JSON, or nil."""
    found: list[bytes | LaminaError] = []

    async def happens() -> None:
        try:
            report = await asyncio.to_thread(work)
            text = None if report is None else json.dumps(asdict(report)).encode()
            found.append(replies.null(session.version) if text is None else replies.bulk(text))
        except LaminaError as problem:
            found.append(problem)

    def attempt() -> bytes | None:
        answer = found[0] if found else None
        if isinstance(answer, LaminaError):
            raise answer
        return answer

    return Wait((), None, attempt, replies.null(session.version), happens)


COMMANDS: dict[bytes, Handler] = {b"l.why": why, b"l.dump": dump, b"l.queues": queues}
