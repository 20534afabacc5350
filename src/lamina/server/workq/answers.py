"""Answers go out when what they say is as safe as the policy promises, those of many connections after one write.

In each turn of the loop connections report that they have something to say; behind the turn one round writes the
records of all. Under ``always``, or when the commit thread is at the disk, that thread does it and the loop goes on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from lamina.engines.jobs.core import State
from lamina.engines.jobs.engine import JobEngine
from lamina.errors import LaminaError
from lamina.log.positions import Position
from lamina.log.sync import Level
from lamina.log.writer import Log
from lamina.server.workq import replies

if TYPE_CHECKING:
    from lamina.server.workq.door import Connection

_QUICK_S = 0.001  # a write for which the loop may stand still

_Held = tuple["Connection", list[bytes], list[int]]


class Answers:
    """Of all connections of a door."""

    def __init__(self, engine: JobEngine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._log = engine.log if isinstance(engine.log, Log) else None
        self._waits_for_sync = self._log is not None and self._log.options.sync.level is Level.SYNCED
        self._speaking: dict[Connection, None] = {}
        self._is_scheduled = False
        self._held: deque[tuple[int, State | None, list[_Held]]] = deque()
        """Turns whose records the commit thread has to write, oldest first."""
        self._release: asyncio.Task[None] | None = None
        self._state = engine.state  # another one means that records were refused

    def flush_soon(self, connection: Connection | None = None) -> None:
        """Behind this turn of the loop, write and answer."""
        if connection is not None:
            self._speaking[connection] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        speaking, self._speaking = self._speaking, {}
        log = self._log
        is_pushed = self._push()
        state, self._state = self._state, self._engine.state
        is_sure = is_pushed and state is self._state
        if not is_sure or (log is not None and (log.failure is not None or log.is_broken_off)):
            # Some of what is to be said may not be so: every answer is held against the log.
            self._hold(log.position if log is not None else 0, None, speaking)
            return
        if log is not None and log.position > (log.synced if self._waits_for_sync else log.written):
            is_quick = log.stats.measured.write_s <= _QUICK_S
            if self._waits_for_sync or self._held or not is_quick or not log.try_round():
                self._hold(log.position, state, speaking)
                return
            if log.position > log.written:  # refused, or somebody appended meanwhile
                self._hold(log.position, state, speaking)
                return
        elif self._held:
            self._hold(0, state, speaking)
            return
        for connection in speaking:
            self._send(connection, connection.taken()[0])

    def _push(self) -> bool:
        """False if the log has refused what is new."""
        try:
            return self._engine.try_push()
        except Exception:  # out of memory, say: none of the answers may be dropped, or sent unchecked
            return False

    def _send(self, connection: Connection, out: list[bytes]) -> None:
        transport = connection.transport
        if transport is None:
            return
        if out:
            transport.write(b"".join(out) if len(out) > 1 else out[0])
            if connection.is_clogged:
                connection.door.output.note(connection)
        if connection.is_done() and not connection.out and not connection.held:
            connection.leave()

    # -- by the commit thread ------------------------------------------------------------------------------------

    def _hold(self, position: int, state: State | None, speaking: dict[Connection, None]) -> None:
        """Answers made on ``state`` wait for ``position``; without a state they are held against the log."""
        turn: list[_Held] = []
        for connection in speaking:
            turn.append((connection, *connection.taken()))
            connection.held += 1
        self._held.append((position, state, turn))
        if self._release is None:
            self._release = self._loop.create_task(self._release_held())

    async def _release_held(self) -> None:
        """Send what is held, in order, as the log comes along."""
        try:
            while self._held:
                position = max(turn[0] for turn in self._held)
                is_sure = True
                try:
                    await self._engine.settled(position)
                except Exception:  # whatever it was, each answer finds out for itself
                    is_sure = False
                while self._held and self._held[0][0] <= position:
                    _, state, turn = self._held.popleft()
                    for connection, out, positions in turn:
                        connection.held -= 1
                        if is_sure and state is self._engine.state:
                            self._send(connection, out)
                        else:
                            await self._hand_over()
                            answers = zip(out, positions, strict=True)
                            self._send(connection, [await self._checked(*answer) for answer in answers])
                        connection.go_on()
        finally:
            self._release = None

    async def _hand_over(self) -> None:
        """Have the log know of every record: somebody had the engine when it was to be told, and may have it still."""
        if not self._push():
            with suppress(Exception):  # each answer finds out for itself
                await asyncio.to_thread(self._engine.push)

    async def _checked(self, reply: bytes, position: int) -> bytes:
        """The reply if its record is in the log, else why it is not."""
        if position and self._log is not None:
            try:
                await self._log.reached(Position(position))
            except LaminaError as error:
                return replies.error(error)
        return reply

    async def all_settled(self) -> None:
        """Everything that was said so far has gone out."""
        self._flush()
        while self._release is not None:
            await asyncio.wait([self._release])
