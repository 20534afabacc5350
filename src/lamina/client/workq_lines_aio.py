"""The connections of ``WorkqLines`` for coroutines: no thread, each loop has its own.

A coroutine that is cancelled in the middle closes its connection: what is left there would be taken for the next
answer, and a server gives up what waits for a client that is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, TypeVar

from lamina.client.endpoint import Endpoint, has_unasked
from lamina.client.forking import leave_alone, tell_after_fork
from lamina.client.jobs_asking import Asked, Rest, Talk
from lamina.client.loops import abandon_closed, hang_up
from lamina.client.wire import (
    LINE,
    Command,
    Reading,
    has_to_log_in,
    login,
    login_refused,
    no_answer,
    reading,
    welcome,
    whole,
)
from lamina.client.workq_lines import MOST_QUICK
from lamina.errors import Disconnected, LaminaError, LogClosed

T = TypeVar("T")


class AsyncWorkqLine:
    """``WorkqLine`` on a loop."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._is_shut = False

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    def close(self) -> None:
        if self._stream is not None:
            self._stream[1].close()
        self._stream = None

    def shut(self) -> None:
        """Hang up for good."""
        self._is_shut = True
        self.close()

    def abandon(self) -> None:
        """See loops.py."""
        if self._stream is not None:
            hang_up(self._stream[1])
        self._stream = None

    async def closed(self) -> None:
        """Hang up for good, and wait until that is done."""
        stream = self._stream
        self.shut()
        if stream is not None:
            with suppress(OSError):
                await stream[1].wait_closed()

    def drop_if_stale(self) -> None:
        """As ``WorkqLine``."""
        if self._stream is not None and (self._stream[1].is_closing() or has_unasked(self._stream[0])):
            self.close()

    async def ask(self, commands: Sequence[Command]) -> list[Any]:
        """As ``WorkqLine``."""
        if self._stream is None:
            await self._connect()
        answers = await self._exchange(commands)
        if any(map(has_to_log_in, answers)):  # it was sent away: the next command logs in anew
            self.close()
        return answers

    async def _connect(self) -> None:
        endpoint = self.endpoint
        who = None if endpoint.token is None else login(endpoint.user, endpoint.token)
        self._stream = await endpoint.open()
        if self._is_shut:  # meanwhile
            self.close()
            raise endpoint.closed()
        if who is not None:
            try:
                (answer,) = await self._exchange([who])
            except Disconnected as problem:
                raise endpoint.at_the_door(problem) from problem
            if isinstance(answer, LaminaError):
                self.close()
                raise login_refused(answer)

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        assert self._stream is not None
        reader, writer = self._stream
        try:
            async with asyncio.timeout(sum(command.wait_s for command in commands) + self.endpoint.timeout):
                writer.write(b"".join([command.encode() for command in commands]))
                # A server that has too many connections says so before it hangs up; that is read instead.
                with suppress(BrokenPipeError, ConnectionResetError):
                    await writer.drain()
                return [welcome(await _read(reader, reading(command))) for command in commands]
        except OSError as error:
            self.close()
            raise self.endpoint.broken(error) from error
        except ValueError as error:
            self.close()
            raise no_answer(self.endpoint, error) from error
        except BaseException:  # cancelled in the middle
            self.close()
            raise


async def _read(reader: asyncio.StreamReader, answer: Reading[T]) -> T:
    try:
        size = next(answer)
        while True:
            try:
                data = await (reader.readline() if size == LINE else reader.readexactly(size + 2))
            except asyncio.IncompleteReadError:
                raise ConnectionError("the server hung up") from None
            size = answer.send(whole(data))
    except StopIteration as end:
        value: T = end.value
        return value


class AsyncWorkqLines:
    """The connections of all loops. Each method is for the running loop, but for ``close``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: dict[asyncio.AbstractEventLoop, list[AsyncWorkqLine]] = {}
        self._busy: dict[asyncio.AbstractEventLoop, set[AsyncWorkqLine]] = {}
        self._turns: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}
        self._is_closed = False
        tell_after_fork(self)

    def forked(self) -> None:
        """See forking.py."""
        leave_alone(self._idle, self._busy)
        self._idle, self._busy = {}, {}

    def _forget_closed_loops(self) -> None:
        abandon_closed(self._idle, self._busy)
        for loop in [*self._turns]:
            if loop.is_closed():
                self._turns.pop(loop, None)

    async def do(self, talk: Talk[T]) -> T:
        """What the talk returns. Raises: what it does; Disconnected, WireError; LogClosed."""
        try:
            step = next(talk)
            while True:
                try:
                    answers = await self._perform(step)
                except LaminaError as problem:
                    step = talk.throw(problem)
                else:
                    step = talk.send(answers)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _perform(self, step: Asked | Rest) -> list[Any]:
        if isinstance(step, Rest):
            await asyncio.sleep(step.seconds)
            return []
        if step.waits:
            return await self._ask(step)
        async with self._turns.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MOST_QUICK)):
            return await self._ask(step)

    async def _ask(self, step: Asked) -> list[Any]:
        self._check_open()
        loop = asyncio.get_running_loop()
        if loop not in self._idle:
            self._forget_closed_loops()
        idle, busy = self._idle.setdefault(loop, []), self._busy.setdefault(loop, set())
        line = idle.pop() if idle else AsyncWorkqLine(self.endpoint)
        busy.add(line)
        try:
            line.drop_if_stale()
            return await line.ask(step.commands)
        except Disconnected:
            self._check_open()  # it was closed by us: that is the reason
            raise
        finally:
            busy.discard(line)
            if line.is_connected and not self._is_closed and len(idle) < MOST_QUICK:
                idle.append(line)
            else:
                line.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise LogClosed("the jobs are closed", hint="connect again")

    async def closed(self) -> None:
        """Hang up on all connections of the running loop, and wait until that is done."""
        self.close()
        loop = asyncio.get_running_loop()
        for line in [*self._idle.pop(loop, ()), *self._busy.pop(loop, ())]:
            await line.closed()

    def close(self) -> None:
        """Hang up, soon. From any thread. Who waits gets LogClosed."""
        self._is_closed = True
        self._forget_closed_loops()
        for loop in [*self._idle]:
            if not loop.is_closed():
                with suppress(RuntimeError):  # it was closed in this moment
                    loop.call_soon_threadsafe(self._close_those_of, loop)

    def _close_those_of(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in [*self._idle.pop(loop, ()), *self._busy.pop(loop, ())]:
            line.shut()
