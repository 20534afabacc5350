"""The connections of ``lines.Lines`` for coroutines: no thread, each loop has its own.

A coroutine that is cancelled in the middle of a talk closes its connection: what is left there would be taken for the
next reply, and the server gives up what waits for a client that is gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Final, TypeVar

from lamina.client.endpoint import Endpoint, has_unasked
from lamina.client.forking import leave_alone, tell_after_fork
from lamina.client.loops import abandon_closed, hang_up
from lamina.client.refusals import NoReply, new_reader, understood, welcome
from lamina.client.resp import CHUNK
from lamina.client.talking import Ask, Patience, Reply, Talk, Word, encode
from lamina.errors import Disconnected, LaminaError, WireError

if TYPE_CHECKING:
    import hiredis

T = TypeVar("T")

_MOST_IDLE: Final = 8


class AsyncRespClient:
    """One connection to one server; ``RespClient`` for coroutines."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._reader: hiredis.Reader | None = None
        self._is_shut = False

    @property
    def is_connected(self) -> bool:
        return self._stream is not None

    def close(self) -> None:
        """Hang up. The next command would connect anew."""
        if self._stream is not None:
            self._stream[1].close()
        self._stream = self._reader = None

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

    async def ask_all(self, commands: Sequence[Sequence[Word]], *, wait: float = 0) -> list[Reply]:
        """As ``RespClient.ask_all``."""
        if not commands:
            return []
        await self.connect()
        return await self._exchange(commands, wait)

    async def say(self, *commands: Sequence[Word]) -> None:
        """As ``RespClient.say``."""
        try:
            async with asyncio.timeout(self.endpoint.timeout):
                _, writer = self._made()
                writer.write(encode(commands))
                await writer.drain()
        except BaseException as error:
            self._is_broken(error)
            raise

    async def hear(self, seconds: float) -> Reply | None:
        """As ``RespClient.hear``. Cancelling loses nothing: what has come is heard by the next call."""
        try:
            async with asyncio.timeout(seconds):
                return await self._reply()
        except TimeoutError:
            return None
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            self._is_broken(error)
            raise

    async def connect(self) -> None:
        """As ``RespClient.connect``."""
        self._check_open()
        if self._stream is not None and not has_unasked(self._stream[0]):
            return
        self.close()
        reader = new_reader()
        self._stream = await self.endpoint.open()
        self._reader = reader
        self._check_open()  # it may have been shut meanwhile
        if self.endpoint.token:
            who = () if self.endpoint.user is None else (self.endpoint.user,)
            try:
                (reply,) = await self._exchange([("AUTH", *who, self.endpoint.token)], 0)
            except Disconnected as problem:
                raise self.endpoint.at_the_door(problem) from problem
            if isinstance(reply, LaminaError):
                self.close()
                raise reply

    def _check_open(self) -> None:
        if self._is_shut:
            self.close()
            raise self.endpoint.closed()

    async def _exchange(self, commands: Sequence[Sequence[Word]], wait: float) -> list[Reply]:
        try:
            async with asyncio.timeout(wait + self.endpoint.timeout):
                _, writer = self._made()
                writer.write(encode(commands))
                await writer.drain()
                return [welcome(understood(await self._reply(), command)) for command in commands]
        except BaseException as error:
            self._is_broken(error)
            raise

    def _is_broken(self, error: BaseException) -> None:
        """As ``RespClient._is_broken``; cancelled in the middle, too."""
        self.close()
        if isinstance(error, OSError):
            raise self.endpoint.broken(error) from error
        if isinstance(error, NoReply):
            hint = "check the address: is it a RESP server that listens there?"
            raise WireError(f"{self.endpoint}: no reply of a RESP server: {error}"[:200], hint=hint) from error

    def _made(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._stream is None:  # by another coroutine
            raise ConnectionError("the connection was closed")
        return self._stream

    async def _reply(self) -> Reply:
        self._made()
        reader = self._reader
        assert reader is not None
        while (reply := reader.gets()) is False:
            data = await self._made()[0].read(CHUNK)
            if not data:
                raise ConnectionError("the server hung up")
            reader.feed(data)
        return reply


class AsyncLines:
    """The connections of all loops. Each method is for the running loop, but for ``close``."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._idle: dict[asyncio.AbstractEventLoop, list[AsyncRespClient]] = {}
        self._busy: dict[asyncio.AbstractEventLoop, set[AsyncRespClient]] = {}
        self._is_closed = False
        tell_after_fork(self)

    def forked(self) -> None:
        """See forking.py."""
        leave_alone(self._idle, self._busy)
        self._idle, self._busy = {}, {}

    def _forget_closed_loops(self) -> None:
        abandon_closed(self._idle, self._busy)

    async def do(self, talk: Talk[T]) -> T:
        """What the talk returns. Raises: what it does; Disconnected, WireError; LogClosed."""
        async with self.line() as line:
            return await hold(talk, line)

    @asynccontextmanager
    async def line(self) -> AsyncIterator[AsyncRespClient]:
        """One connection for as long as the block lasts, such as for a subscription. Raises: LogClosed."""
        if self._is_closed:
            raise self.endpoint.closed()
        loop = asyncio.get_running_loop()
        if loop not in self._idle:
            self._forget_closed_loops()
        idle, busy = self._idle.setdefault(loop, []), self._busy.setdefault(loop, set())
        line = idle.pop() if idle else AsyncRespClient(self.endpoint)
        busy.add(line)
        is_fine = False
        try:
            yield line
            is_fine = True
        finally:
            busy.discard(line)
            if is_fine and line.is_connected and not self._is_closed and len(idle) < _MOST_IDLE:
                idle.append(line)
            else:
                line.close()

    async def closed(self) -> None:
        """Hang up on all lines of the running loop, and wait until that is done."""
        self._is_closed = True
        loop = asyncio.get_running_loop()
        for line in [*self._idle.pop(loop, ()), *self._busy.pop(loop, ())]:
            await line.closed()
        self.close()

    def close(self) -> None:
        """Hang up on all lines, soon. From any thread."""
        self._is_closed = True
        self._forget_closed_loops()
        for loop in [*self._idle]:
            if not loop.is_closed():
                with suppress(RuntimeError):  # it was closed in this moment
                    loop.call_soon_threadsafe(self._close_those_of, loop)

    def _close_those_of(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in [*self._idle.pop(loop, ()), *self._busy.pop(loop, ())]:
            line.shut()


async def hold(talk: Talk[T], line: AsyncRespClient) -> T:
    """As ``lines.hold``."""
    try:
        asked = next(talk)
        while True:
            try:
                replies = await _ask(line, asked)
            except BaseException as problem:
                asked = talk.throw(problem)
            else:
                asked = talk.send(replies)
    except StopIteration as end:
        result: T = end.value
        return result


async def _ask(line: AsyncRespClient, asked: Ask) -> list[Reply]:
    patience = Patience(line.endpoint, time.monotonic)
    while True:
        try:
            return await line.ask_all(asked.commands, wait=asked.wait)
        except Disconnected as problem:
            await asyncio.sleep(patience.pause_before_next(asked, problem))
