"""The queues of a server, spoken to as if they were in the process: ``lamina.connect(url).queues``.

    rid, sid = lm.queues.create(key="what the recipient knows")
    lm.queue(sid).send(b"hello")
    box = lm.queue(rid, key="what the recipient knows")
    message = box.receive(timeout=10)
    box.ack(message)

Methods, arguments, results and errors are those of ``lamina.open(folder).queues``; every call may also raise
Disconnected. What may be asked twice is asked again when the connection breaks: receiving, acknowledging, looking. A
message whose answer was lost is not sent again: Disconnected says that nobody knows whether it was.
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lamina.client import queue_talks as talks
from lamina.client.lines import Lines
from lamina.client.lines_aio import AsyncLines
from lamina.client.queue_listening import Connect, Course, HangUp, Hear, Listening, Say, Step
from lamina.client.queue_talks import Hand
from lamina.engines.queues import views
from lamina.engines.queues.dumping import DumpReport
from lamina.engines.queues.seat import Ended
from lamina.engines.queues.views import Key, NewQueue, QueueInfo, QueueMessage, QueueStats, Seconds
from lamina.errors import LaminaError

if TYPE_CHECKING:
    from lamina.client.queues_aio import AsyncRemoteQueue, AsyncRemoteQueues

T = TypeVar("T")


class RemoteQueues:
    """All queues of a server."""

    def __init__(self, lines: Lines, async_lines: AsyncLines) -> None:
        """Use ``lamina.connect(url).queues``."""
        self._lines, self._async_lines = lines, async_lines

    def __repr__(self) -> str:
        return f"<RemoteQueues {self._lines.endpoint}>"

    @property
    def aio(self) -> AsyncRemoteQueues:
        """The same for coroutines."""
        from lamina.client.queues_aio import AsyncRemoteQueues

        return AsyncRemoteQueues(self._async_lines)

    def create(
        self,
        key: Key | None = None,
        sender_key: Key | None = None,
        ttl: int | timedelta | None = None,
        *,
        password: Key | None = None,
    ) -> NewQueue:
        """As ``Queues.create``. ``password``: what the server wants to be told by who makes one, if it does.

        Raises: BadOption; QueueRefused for a wrong password; DiskFull, StorageError; Disconnected, then there may be
            one that nobody knows of.
        """
        given = views.to_key(key), views.to_key(sender_key), views.to_ttl(ttl), views.to_key(password)
        return self._lines.do(talks.create(*given))

    def queue(self, id: str, key: Key | None = None) -> RemoteQueue:
        """As ``Queues.queue``: nothing is asked yet."""
        return RemoteQueue(self._lines, self._async_lines, Hand(id, key))

    def dump(self) -> DumpReport | None:
        """As ``Queues.dump``."""
        return self._lines.do(talks.dump())

    @property
    def count(self) -> int:
        """How many queues there are."""
        return self.stats().queues

    def stats(self) -> QueueStats:
        """As ``Queues.stats``."""
        return self._lines.do(talks.stats())

    def sizes(self) -> NoReturn:
        """A server tells nobody how full the queues of others are. Raises: BadOption."""
        raise no_sizes()


def no_sizes() -> LaminaError:
    return talks.only_inside("how full each queue is", '"lamina queues ls --data DIR" shows it beside a server')


class RemoteQueue:
    """One end of a queue, by its id; ``HeldQueue`` over the wire."""

    def __init__(self, lines: Lines, async_lines: AsyncLines, hand: Hand) -> None:
        """Use ``lamina.connect(url).queue(id, key)``."""
        self._lines, self._async_lines, self._hand = lines, async_lines, hand

    def __repr__(self) -> str:
        return "<RemoteQueue>"  # its id is half of what one needs to use it

    @property
    def aio(self) -> AsyncRemoteQueue:
        """The same for coroutines."""
        from lamina.client.queues_aio import AsyncRemoteQueue

        return AsyncRemoteQueue(self._async_lines, self._hand)

    def send(self, body: bytes, *, flags: bytes = b"", ttl: int | timedelta | None = None) -> str:
        """As ``HeldQueue.send``. Raises also: Disconnected; with ``sent`` true in its facts it may have been sent."""
        given = views.to_body("body", body), views.to_body("flags", flags), views.to_ttl(ttl)
        return self._lines.do(talks.send(self._hand, *given))

    def receive(self, timeout: Seconds | None = 0.0) -> QueueMessage | None:
        """As ``HeldQueue.receive``. It stays the next one until it is acknowledged, also over a restart."""
        return self._lines.do(talks.receive(self._hand, views.to_timeout(timeout), time.monotonic))

    def ack(self, message: QueueMessage | str) -> QueueMessage | None:
        """As ``HeldQueue.ack``."""
        return self._lines.do(talks.acknowledge(self._hand, message))

    def subscribe(self, *, timeout: Seconds | None = None) -> RemoteSubscription:
        """As ``HeldQueue.subscribe``, over a connection of its own. Raises: QueueRefused; StorageError."""
        return RemoteSubscription(self._lines, self._hand, timeout=views.to_timeout(timeout))

    def info(self) -> QueueInfo:
        """As ``HeldQueue.info``."""
        return self._lines.do(talks.info(self._hand))

    def secure(self, sender_key: Key) -> None:
        """As ``HeldQueue.secure``."""
        self._lines.do(talks.secure(self._hand, talks.sender_key_of(sender_key)))

    def suspend(self) -> None:
        """As ``HeldQueue.suspend``."""
        self._lines.do(talks.suspend(self._hand))

    def delete(self) -> None:
        """As ``HeldQueue.delete``. Raises also: Disconnected; then it may be deleted."""
        self._lines.do(talks.delete(self._hand))


class RemoteSubscription(Iterator[QueueMessage]):
    """``Subscription`` over the wire. Threads: one iterates; ``close`` is safe from any.

    When the connection breaks it subscribes anew, for as long as it waits for a message and for the ``retry_s`` of the
    connection at least; who subscribed meanwhile is taken over from.
    """

    def __init__(self, lines: Lines, hand: Hand, *, timeout: float | None) -> None:
        """Use ``queue.subscribe``."""
        self._listening = Listening(hand, lines.endpoint, timeout, time.monotonic)
        self._turn = threading.Lock()
        self._told = threading.Event()
        self._stack = ExitStack()
        self._line = self._stack.enter_context(lines.line())
        try:
            self._go(self._listening.begin())
        except BaseException:
            self._end()
            raise

    @property
    def ended(self) -> Ended | None:
        """As ``Subscription.ended``."""
        return self._listening.ended

    def __iter__(self) -> RemoteSubscription:
        self._listening.keep()
        return self

    def __next__(self) -> QueueMessage:
        """As ``Subscription.__next__``. Raises also: Disconnected; asking again tries again."""
        with self._turn:
            try:
                message = self._go(self._listening.next())
            finally:
                if self._listening.is_closed:
                    self._end()
        if message is None:
            raise StopIteration
        return message

    def ack(self, message: QueueMessage | str) -> None:
        """As ``Subscription.ack``."""
        with self._turn:
            self._go(self._listening.ack(message))

    def close(self) -> None:
        """As ``Subscription.close``."""
        self._listening.is_closed = True
        self._told.set()
        if not self._turn.acquire(blocking=False):
            self._line.shut()  # who waits is told, and cleans up
            return
        try:
            with suppress(LaminaError):  # the server sees that we are gone, too
                self._go(self._listening.leave())
            self._end()
        finally:
            self._turn.release()

    def __enter__(self) -> RemoteSubscription:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def _end(self) -> None:
        self._line.close()  # first: nobody else may use a connection that has subscribed
        self._stack.close()

    def _go(self, course: Course[T]) -> T:
        try:
            step = next(course)
            while True:
                try:
                    heard = self._take(step)
                except BaseException as problem:
                    step = course.throw(problem)
                else:
                    step = course.send(heard)
        except StopIteration as end:
            result: T = end.value
            return result

    def _take(self, step: Step) -> Any:
        line = self._line
        if isinstance(step, Connect):
            line.connect()
        elif isinstance(step, Say):
            line.say(*step.commands)
        elif isinstance(step, Hear):
            return line.hear(step.seconds)
        elif isinstance(step, HangUp):
            line.close()
        else:
            self._told.wait(step.seconds)
        return None
