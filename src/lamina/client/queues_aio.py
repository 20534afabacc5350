"""The queues of a server for coroutines: the methods of ``RemoteQueues`` and ``RemoteQueue``, awaited. No thread waits.

async with lm.queue(rid, key).aio.subscribe() as messages:
    async for message in messages:
        await handle(message.body)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from datetime import timedelta
from typing import Any, NoReturn, TypeVar

from lamina.client import queue_talks as talks
from lamina.client.lines_aio import AsyncLines, AsyncRespClient
from lamina.client.queue_listening import Connect, Course, HangUp, Hear, Listening, Say, Step
from lamina.client.queue_talks import Hand
from lamina.client.queues import no_sizes
from lamina.engines.queues import views
from lamina.engines.queues.dumping import DumpReport
from lamina.engines.queues.seat import Ended
from lamina.engines.queues.views import Key, NewQueue, QueueInfo, QueueMessage, QueueStats, Seconds
from lamina.errors import LaminaError

T = TypeVar("T")


class AsyncRemoteQueues:
    """``queues.aio``."""

    def __init__(self, lines: AsyncLines) -> None:
        self._lines = lines

    def __repr__(self) -> str:
        return f"<AsyncRemoteQueues {self._lines.endpoint}>"

    async def create(
        self,
        key: Key | None = None,
        sender_key: Key | None = None,
        ttl: int | timedelta | None = None,
        *,
        password: Key | None = None,
    ) -> NewQueue:
        given = views.to_key(key), views.to_key(sender_key), views.to_ttl(ttl), views.to_key(password)
        return await self._lines.do(talks.create(*given))

    def queue(self, id: str, key: Key | None = None) -> AsyncRemoteQueue:
        return AsyncRemoteQueue(self._lines, Hand(id, key))

    async def dump(self) -> DumpReport | None:
        return await self._lines.do(talks.dump())

    async def stats(self) -> QueueStats:
        return await self._lines.do(talks.stats())

    async def sizes(self) -> NoReturn:
        raise no_sizes()


class AsyncRemoteQueue:
    """``queue.aio``."""

    def __init__(self, lines: AsyncLines, hand: Hand) -> None:
        self._lines, self._hand = lines, hand

    def __repr__(self) -> str:
        return "<AsyncRemoteQueue>"

    async def send(self, body: bytes, *, flags: bytes = b"", ttl: int | timedelta | None = None) -> str:
        """Cancelled, it may be sent or not."""
        given = views.to_body("body", body), views.to_body("flags", flags), views.to_ttl(ttl)
        return await self._lines.do(talks.send(self._hand, *given))

    async def receive(self, timeout: Seconds | None = 0.0) -> QueueMessage | None:
        """Cancelling loses nothing: the message stays the next one."""
        return await self._lines.do(talks.receive(self._hand, views.to_timeout(timeout), time.monotonic))

    async def ack(self, message: QueueMessage | str) -> QueueMessage | None:
        """Cancelled, it may be done or not: receive again to see."""
        return await self._lines.do(talks.acknowledge(self._hand, message))

    def subscribe(self, *, timeout: Seconds | None = None) -> AsyncRemoteSubscription:
        """It begins with ``async with``, or when the first message is asked for."""
        return AsyncRemoteSubscription(self._lines, self._hand, timeout=views.to_timeout(timeout))

    async def info(self) -> QueueInfo:
        return await self._lines.do(talks.info(self._hand))

    async def secure(self, sender_key: Key) -> None:
        await self._lines.do(talks.secure(self._hand, talks.sender_key_of(sender_key)))

    async def suspend(self) -> None:
        await self._lines.do(talks.suspend(self._hand))

    async def delete(self) -> None:
        await self._lines.do(talks.delete(self._hand))


class AsyncRemoteSubscription(AsyncIterator[QueueMessage]):
    """``RemoteSubscription`` for coroutines. One at a time iterates. Cancelling loses no message: the next call gives
    it."""

    def __init__(self, lines: AsyncLines, hand: Hand, *, timeout: float | None) -> None:
        self._lines = lines
        self._listening = Listening(hand, lines.endpoint, timeout, time.monotonic)
        self._turn = asyncio.Lock()
        self._told = asyncio.Event()
        self._stack = AsyncExitStack()
        self._line: AsyncRespClient | None = None

    @property
    def ended(self) -> Ended | None:
        """As ``Subscription.ended``."""
        return self._listening.ended

    def __aiter__(self) -> AsyncRemoteSubscription:
        self._listening.keep()
        return self

    async def __anext__(self) -> QueueMessage:
        async with self._turn:
            try:
                await self._begin()
                message = await self._go(self._listening.next())
            finally:
                if self._listening.is_closed:
                    await self._end()
        if message is None:
            raise StopAsyncIteration
        return message

    async def ack(self, message: QueueMessage | str) -> None:
        async with self._turn:
            await self._begin()
            await self._go(self._listening.ack(message))

    async def close(self) -> None:
        self._listening.is_closed = True
        self._told.set()
        if self._turn.locked():
            if self._line is not None:
                self._line.close()  # who waits is told, and cleans up
            return
        async with self._turn:
            if self._line is not None:
                with suppress(LaminaError):  # the server sees that we are gone, too
                    await self._go(self._listening.leave())
            await self._end()

    async def __aenter__(self) -> AsyncRemoteSubscription:
        async with self._turn:
            await self._begin()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()

    async def _begin(self) -> None:
        if self._line is None and not self._listening.is_closed:
            self._line = await self._stack.enter_async_context(self._lines.line())
            try:
                await self._go(self._listening.begin())
            except BaseException:
                await self._end()
                raise

    async def _end(self) -> None:
        if self._line is not None:
            self._line.close()  # first: nobody else may use a connection that has subscribed
            self._line = None
        await self._stack.aclose()

    async def _go(self, course: Course[T]) -> T:
        try:
            step = next(course)
            while True:
                try:
                    heard = await self._take(step)
                except BaseException as problem:
                    step = course.throw(problem)
                else:
                    step = course.send(heard)
        except StopIteration as end:
            result: T = end.value
            return result

    async def _take(self, step: Step) -> Any:
        line = self._line
        assert line is not None
        if isinstance(step, Connect):
            await line.connect()
        elif isinstance(step, Say):
            await line.say(*step.commands)
        elif isinstance(step, Hear):
            return await line.hear(step.seconds)
        elif isinstance(step, HangUp):
            line.close()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(step.seconds):
                    await self._told.wait()
        return None
