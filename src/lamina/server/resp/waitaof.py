"""WAITAOF: have what this client was told made safe against a power cut, whatever the policy."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from weakref import ref

from lamina.engines import loops
from lamina.engines.logged import Logged
from lamina.errors import LaminaError
from lamina.log.writer import Log
from lamina.server.resp.dispatch import Handler, text_of
from lamina.server.resp.group_words import integer
from lamina.server.resp.replies import encode
from lamina.server.resp.session import Args, Refusal, Session, Wait


def waitaof(session: Session, args: Args) -> bytes | Wait:
    """WAITAOF local replicas timeout. There are no replicas: who waits for some waits until the time is up."""
    local, replicas = integer(args[1]), integer(args[2])
    if not 0 <= local <= 1:
        raise Refusal("ERR value is out of range, value must between 0 and 1")
    if replicas < 0:
        raise Refusal("ERR value is out of range, must be positive")
    timeout_ms = integer(args[3], b"ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise Refusal("ERR timeout is negative")
    marks = {engine: position for known, position in session.seen.items() if (engine := known()) is not None}
    if any(not isinstance(engine.log, Log) for engine in marks):
        loops.must_wait()  # journals of queues are written by whoever asks

    def answer() -> bytes:
        are_synced = [_is_synced(session, *mark) for mark in marks.items()]  # all are asked: one may never be
        return encode([int(all(are_synced)), 0], session.version)

    if session.is_in_exec or (not replicas and (not local or answer().startswith(b"*2\r\n:1"))):
        return answer()

    async def happens() -> None:
        with suppress(LaminaError):  # ``answer`` finds it, too
            await asyncio.gather(*(_synced(*mark) for mark in marks.items()))

    def attempt() -> bytes | None:
        return None if replicas else answer()

    return Wait((), timeout_ms / 1000 if timeout_ms else None, attempt, answer, happens)


def _is_synced(session: Session, engine: Logged, position: int) -> bool:
    """Raises: Refusal when it never will be; the next who asks is not told again."""
    try:
        engine.push()
        return engine.has_synced(position)
    except LaminaError as error:
        session.seen.pop(ref(engine), None)
        raise Refusal(text_of(error)) from error


async def _synced(engine: Logged, position: int) -> None:
    await engine.synced(position)


COMMANDS: dict[bytes, Handler] = {b"waitaof": waitaof}
