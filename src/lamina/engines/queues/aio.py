"""Queues for coroutines: the methods of ``Queues`` and ``HeldQueue``, awaited.

    async with box.aio.subscribe() as messages:
        async for message in messages:
            await handle(message.body)

None blocks the loop (off_loop.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING

from lamina.engines.queues import ids, off_loop, views
from lamina.engines.queues.dumping import DumpReport
from lamina.engines.queues.held import Held, id_of
from lamina.engines.queues.message import Message
from lamina.engines.queues.off_loop import Done
from lamina.engines.queues.seat import Ended, Seat
from lamina.engines.queues.views import Key, NewQueue, QueueInfo, QueueMessage, QueueStats, Seconds, shown
from lamina.errors import QuotaMet, StorageError

if TYPE_CHECKING:
    from lamina.engines.queues.api import HeldQueue, Queues


class AsyncQueues:
    """``queues.aio``."""

    def __init__(self, queues: Queues) -> None:
        self._queues = queues

    async def create(
        self, key: Key | None = None, sender_key: Key | None = None, ttl: int | timedelta | None = None
    ) -> NewQueue:
        queues, engine = self._queues, self._queues.engine
        queues.check_open()
        given = views.to_key(key), views.to_key(sender_key), views.to_ttl(ttl)

        def work() -> Done[NewQueue]:
            queue, position = engine.create(*given)
            return NewQueue(ids.show(queue.rid), ids.show(queue.sid)), position

        if engine.keeper is engine:
            return await off_loop.settled(engine, work)
        return await asyncio.to_thread(queues.create, key, sender_key, ttl)

    def queue(self, id: str, key: Key | None = None) -> AsyncQueue:
        return self._queues.queue(id, key).aio

    async def dump(self) -> DumpReport | None:
        return await asyncio.to_thread(self._queues.dump)

    async def stats(self) -> QueueStats:
        return await asyncio.to_thread(self._queues.stats)

    async def sizes(self) -> dict[str, int]:
        return await asyncio.to_thread(self._queues.sizes)


class AsyncQueue:
    """``queue.aio``."""

    def __init__(self, queue: HeldQueue) -> None:
        self._queue = queue
        self._held: Held = queue.held
        self._engine = queue.folder.engine

    def __repr__(self) -> str:
        return "<AsyncQueue>"

    async def send(self, body: bytes, *, flags: bytes = b"", ttl: int | timedelta | None = None) -> str:
        given = views.to_body("body", body), views.to_body("flags", flags), views.to_ttl(ttl)

        def work() -> Done[str | QuotaMet]:
            try:
                id, position = self._held.send(*given)
            except QuotaMet as problem:
                return problem, problem.position  # the mark for the recipient is waited for, too
            return ids.show(id), position

        sent = await off_loop.settled(self._engine, work)
        if isinstance(sent, QuotaMet):
            raise sent
        return sent

    async def receive(self, timeout: Seconds | None = 0.0) -> QueueMessage | None:
        """Cancelling loses nothing: the message stays the next one."""
        seconds = views.to_timeout(timeout)
        if seconds == 0:
            return await self._look()
        loop, told = asyncio.get_running_loop(), asyncio.Event()
        clock, is_over = self._queue.folder.clock, False
        end = None if seconds is None else clock.monotonic() + seconds
        with self._queue.folder.sleepers.waking(self._held.id or b"", lambda: off_loop.wake(loop, told)):
            while True:
                told.clear()
                message = await self._look()
                if message is not None or is_over:
                    return message
                is_over = not await off_loop.wait(told, None if end is None else end - clock.monotonic())

    async def _look(self) -> QueueMessage | None:
        message = await off_loop.seen(self._held, self._held.look)
        return None if message is None else shown(message)

    async def ack(self, message: QueueMessage | str) -> QueueMessage | None:
        """Cancelled, it may be done or not: receive again to see."""
        held, rebuilds = self._held, self._held.rebuilds

        def work() -> Done[Message | None]:
            following, position = held.ack(held.receiver, message)
            return following, position

        try:
            following = await off_loop.settled(self._engine, work)
        except StorageError:
            await asyncio.to_thread(held.give_back, held.receiver, id_of(message))
            raise
        if held.rebuilds != rebuilds:
            return await self._look()
        return None if following is None else shown(following)

    def subscribe(self, *, timeout: Seconds | None = None) -> AsyncSubscription:
        """It begins with ``async with``, or when the first message is asked for."""
        return AsyncSubscription(self._held, timeout=views.to_timeout(timeout))

    async def info(self) -> QueueInfo:
        return await asyncio.to_thread(self._queue.info)

    async def secure(self, sender_key: Key) -> None:
        await asyncio.to_thread(self._queue.secure, sender_key)

    async def suspend(self) -> None:
        await asyncio.to_thread(self._queue.suspend)

    async def delete(self) -> None:
        await asyncio.to_thread(self._queue.delete)


class AsyncSubscription(AsyncIterator[QueueMessage]):
    """``Subscription`` for coroutines. One at a time iterates. Cancelling loses no message: the next call gives it."""

    def __init__(self, held: Held, *, timeout: float | None) -> None:
        self._held = held
        self._timeout = timeout
        self._told = asyncio.Event()
        self._is_closed = False
        self._seat: Seat | None = None

    @property
    def ended(self) -> Ended | None:
        """As ``Subscription.ended``."""
        return None if self._seat is None else self._seat.ended

    def __aiter__(self) -> AsyncSubscription:
        if self._seat is not None:
            self._seat.keep()
        return self

    async def __anext__(self) -> QueueMessage:
        folder, told, loop = self._held.folder, self._told, asyncio.get_running_loop()
        seat = await self._sit_down()
        end = None if self._timeout is None else folder.clock.monotonic() + self._timeout
        is_over = False
        with folder.sleepers.waking(self._held.id or b"", lambda: off_loop.wake(loop, told)):
            while True:
                told.clear()
                folder.check_open()
                message = None if self._is_closed else await self._next(seat)
                if message is not None and seat.hand_over(message):
                    return shown(message)
                if self._is_closed or is_over or seat.ended is not None:
                    raise StopAsyncIteration
                is_over = not await off_loop.wait(told, None if end is None else end - folder.clock.monotonic())

    async def _next(self, seat: Seat) -> Message | None:
        turn = seat.begin()
        try:
            return await off_loop.seen(self._held, partial(seat.next, turn))
        except StorageError:
            await asyncio.to_thread(seat.put_back, turn)
            raise

    async def _sit_down(self) -> Seat:
        if self._seat is None:
            loop, told = asyncio.get_running_loop(), self._told
            seat = Seat(self._held, lambda: off_loop.wake(loop, told))
            try:
                await off_loop.step(self._held.engine, seat.take)
            except asyncio.CancelledError:  # a thread may yet take it
                loop.run_in_executor(None, seat.leave)
                raise
            self._seat = seat
        return self._seat

    async def ack(self, message: QueueMessage | str) -> None:
        seat = await self._sit_down()
        turn = seat.turn
        try:
            await off_loop.settled(self._held.engine, lambda: (None, seat.ack(message)))
        except StorageError:
            await asyncio.to_thread(seat.put_back, turn)
            raise

    async def close(self) -> None:
        self._is_closed = True
        if self._seat is not None:
            await off_loop.step(self._held.engine, self._seat.leave)
        self._told.set()

    async def __aenter__(self) -> AsyncSubscription:
        await self._sit_down()
        return self

    async def __aexit__(self, *problem: object) -> None:
        await self.close()
