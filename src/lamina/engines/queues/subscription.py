"""A subscription to a queue inside your process: its messages one by one, each until it is acknowledged.

with box.subscribe() as messages:
    for message in messages:                    # waits for more
        handle(message.body)                    # asking for the next one acknowledges this one
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial

from lamina.engines.queues.held import Held
from lamina.engines.queues.message import Message
from lamina.engines.queues.seat import Ended, Seat
from lamina.engines.queues.views import QueueMessage, shown
from lamina.errors import StorageError


class Subscription(Iterator[QueueMessage]):
    """Open it with ``queue.subscribe``. Threads: one iterates; ``close`` is safe from any.

    Asking for the next message acknowledges the one before. One that was left by an exception, or by ``break``, is not
    acknowledged, and comes again; so it does when iterating begins anew.
    """

    def __init__(self, held: Held, *, timeout: float | None) -> None:
        """Use ``queue.subscribe``."""
        self._held = held
        self._timeout = timeout
        self._told = threading.Event()
        self._is_closed = False
        self._seat = Seat(held, self._told.set)
        self._seat.take()

    @property
    def ended(self) -> Ended | None:
        """Why there is nothing more: "taken over" by a newer subscription, or the queue was "deleted". None: neither;
        it goes on, was closed, or nothing came in time."""
        return self._seat.ended

    def __iter__(self) -> Subscription:
        """What was in hand was left without the next being asked for: it comes again."""
        self._seat.keep()
        return self

    def __next__(self) -> QueueMessage:
        """The next message; waits for it. The one before is acknowledged, as safely as the policy promises.

        Raises: StorageError; then it may not be acknowledged: asking again tries that again, iterating anew gives it
            again. LogClosed if the data folder was closed.
        """
        folder, told, seat = self._held.folder, self._told, self._seat
        end = None if self._timeout is None else folder.clock.monotonic() + self._timeout
        is_over = False
        with folder.sleepers.waking(self._held.id or b"", told.set):
            while True:
                told.clear()
                folder.check_open()
                message = None if self._is_closed else self._next()
                if message is not None and seat.hand_over(message):
                    return shown(message)
                if self._is_closed or is_over or seat.ended is not None:
                    raise StopIteration
                left = None if end is None else max(end - folder.clock.monotonic(), 0)
                is_over = not told.wait(left)

    def _next(self) -> Message | None:
        turn = self._seat.begin()
        try:
            return self._held.see(partial(self._seat.next, turn))
        except StorageError:
            self._seat.put_back(turn)
            raise

    def ack(self, message: QueueMessage | str) -> None:
        """It is done with, before the next one is asked for. Returns when that is as safe as the policy promises.

        Raises: NoMessage if it is not what was given here last; QueueRefused; StorageError, then it is not
            acknowledged.
        """
        turn, position = self._seat.turn, self._seat.ack(message)
        try:
            self._held.engine.keeper.settle(position)
        except StorageError:
            self._seat.put_back(turn)
            raise

    def close(self) -> None:
        """Stop; who waits for a message is told. What was not acknowledged goes to whoever receives next."""
        self._is_closed = True
        self._seat.leave()
        self._told.set()

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()
