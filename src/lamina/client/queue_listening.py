"""A subscription to a queue of a server, without a socket: what to say, what to make of what comes, when to begin anew.

Messages are pushed: one, and the next when it was acknowledged. A *course* is a generator that yields steps: connect,
say, hear, hang up, pause. ``queues.RemoteSubscription`` takes them over a socket, ``queues_aio`` on a loop.

When the connection breaks it connects and subscribes again. The message in hand comes again then, and is passed over:
it is acknowledged when the next one is asked for, wherever it was given (``ANYWHERE``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias, TypeVar

from lamina.client.endpoint import Endpoint
from lamina.client.queue_talks import WAIT_S, Hand, id_of, message_of, next_of
from lamina.client.refusals import understood
from lamina.client.talking import Ask, Patience, Reply, Word, fine
from lamina.engines.queues.seat import DELETED, TAKEN_OVER, Ended
from lamina.engines.queues.views import QueueMessage
from lamina.errors import Disconnected, LogClosed, NoMessage, QueueRefused

T = TypeVar("T")

_MESSAGE, _END, _DELETED = b"q.msg", b"q.end", b"q.del"
LONG_PAUSE_S: Final = 1.0
_AGAIN: Final = Ask((), may_repeat=True)


@dataclass(frozen=True, slots=True)
class Connect:
    """If it is not connected."""


@dataclass(frozen=True, slots=True)
class Say:
    commands: Sequence[Sequence[Word]]


@dataclass(frozen=True, slots=True)
class Hear:
    """The answer is what came, or None if nothing did in so many seconds."""

    seconds: float


@dataclass(frozen=True, slots=True)
class HangUp:
    """What else would come means nothing any more."""


@dataclass(frozen=True, slots=True)
class Pause:
    seconds: float


Step: TypeAlias = Connect | Say | Hear | HangUp | Pause
Course: TypeAlias = Generator[Step, Any, T]


class Listening:
    """One subscription. One course at a time."""

    def __init__(self, hand: Hand, endpoint: Endpoint, timeout: float | None, now: Callable[[], float]) -> None:
        self._hand, self._endpoint, self._timeout, self._now = hand, endpoint, timeout, now
        self.ended: Ended | None = None
        self.is_closed = False
        self._was_on = self._is_on = False
        """Subscribed: ever, and on this connection."""
        self._in_hand: QueueMessage | None = None
        """It was given, and is acknowledged when the next one is asked for."""
        self._waiting: QueueMessage | None = None
        """It came, and is given next."""
        self._must_look = False
        """What was in hand may come again."""
        self._patience: Patience | None = None
        """Since the connection broke."""

    # -- courses -----------------------------------------------------------------------------------------------------

    def begin(self) -> Course[None]:
        """Subscribe. Raises: QueueRefused, StorageError; Disconnected."""
        yield from self._in_spite_of_breaks(self._subscribe)

    def next(self) -> Course[QueueMessage | None]:
        """What is next, once what was in hand is acknowledged; None: nothing more, or not in time.

        Raises: StorageError, and it stays in hand; Disconnected.
        """
        end = math.inf if self._timeout is None else self._now() + self._timeout
        return (yield from self._in_spite_of_breaks(lambda: self._next(end), end))

    def ack(self, given: QueueMessage | str) -> Course[None]:
        """Raises: NoMessage, also when it was closed; QueueRefused, StorageError; Disconnected."""
        if self.is_closed:
            raise NoMessage
        yield from self._in_spite_of_breaks(lambda: self._ack(id_of(given)))

    def leave(self) -> Course[None]:
        """Tell the server, which would see it anyhow."""
        if self._is_on and self.ended is None:
            self._is_on = False
            yield from self._ask(("Q.UNSUB", self._hand.id, *self._hand.shown))
        yield HangUp()

    def keep(self) -> None:
        """What is in hand is not done with: the server is asked anew what is next."""
        if self._in_hand is not None:
            self._in_hand, self._must_look = None, True

    # -- parts of them -----------------------------------------------------------------------------------------------

    def _in_spite_of_breaks(self, work: Callable[[], Course[T]], until: float = 0.0) -> Course[T | None]:
        """Try again for as long as a message is waited for, and for ``retry_s`` at least. None: it was closed."""
        while True:
            try:
                return (yield from work())
            except (Disconnected, LogClosed) as problem:
                self._is_on = False
                yield HangUp()
                if self.is_closed:
                    return None
                if not isinstance(problem, Disconnected):
                    raise
                self._patience = self._patience or Patience(self._endpoint, self._now)
                try:
                    pause = self._patience.pause_before_next(_AGAIN, problem)
                except Disconnected:
                    if self._now() >= until:
                        raise
                    pause = LONG_PAUSE_S
                yield Pause(pause)

    def _is_over(self) -> bool:
        return self.is_closed or self.ended is not None

    def _next(self, end: float) -> Course[QueueMessage | None]:
        while not self._is_over():
            if not self._is_on:
                yield from self._subscribe()
            if self._in_hand is not None:
                yield from self._put_down()
            elif self._must_look:
                yield from self._look()
            if self._is_over():
                break
            if self._waiting is not None:
                self._in_hand, self._waiting = self._waiting, None
                return self._in_hand
            came = yield Hear(min(max(end - self._now(), 0.0), WAIT_S))
            if came is not None:
                self._take(came)
            elif self._now() >= end:
                break
            else:
                yield from self._ask(("PING",))  # is the server still there?
        return None

    def _subscribe(self) -> Course[None]:
        """What is next has come when this is over: PONG comes behind it."""
        yield Connect()
        self._waiting = None
        try:
            yield from self._ask(("Q.SUB", self._hand.id, *self._hand.shown), ("PING",))
        except QueueRefused:
            if not self._was_on:
                raise
            self.ended = DELETED  # while we were away: nothing else takes a queue from its recipient
            return
        self._is_on = self._was_on = True

    def _look(self) -> Course[None]:
        """Not by subscribing: somebody may have taken over, and that has to be heard first."""
        (reply,) = yield from self._ask(("Q.GET", self._hand.id, "ANYWHERE", *self._hand.shown))
        self._must_look, self._waiting = False, None if reply is None else message_of(reply)

    def _ack(self, id: str) -> Course[None]:
        if not self._is_on and self.ended is None:
            yield from self._subscribe()
        if self._in_hand is not None and self._in_hand.id == id and self.ended is None:
            yield from self._put_down()
            return
        (reply,) = yield from self._ask(("Q.ACK", self._hand.id, id, *self._hand.shown))
        self._waiting = next_of(reply)

    def _put_down(self) -> Course[None]:
        """Acknowledge what is in hand."""
        assert self._in_hand is not None
        (reply,) = yield from self._ask(("Q.ACK", self._hand.id, self._in_hand.id, "ANYWHERE", *self._hand.shown))
        self._in_hand, self._waiting = None, next_of(reply)  # later than what was pushed before
        self._must_look = False

    def _ask(self, *commands: Sequence[Word]) -> Course[list[Reply]]:
        """Their answers; what is pushed between them is taken. Raises: the first refusal; Disconnected."""
        try:
            yield Say(commands)
            answers: list[Reply] = []
            while len(answers) < len(commands):
                came = yield Hear(self._endpoint.timeout)
                if came is None:
                    raise self._endpoint.broken(TimeoutError())
                if not self._take(came):
                    answers.append(understood(came, commands[len(answers)]))
        except GeneratorExit:
            raise
        except BaseException:  # an answer that is still to come would be taken for another one
            self._is_on = False
            yield HangUp()
            raise
        self._patience = None
        return [fine(answer) for answer in answers]

    def _take(self, came: Reply) -> bool:
        """Whether it was pushed."""
        what = came[0] if isinstance(came, list) and came else None
        if what == _MESSAGE:
            message = message_of(came[2:])
            if self._in_hand is None or self._in_hand.id != message.id:
                self._waiting = message
        elif what == _END:
            self.ended = TAKEN_OVER
        elif what == _DELETED:
            self.ended = DELETED
        else:
            return False
        return True
