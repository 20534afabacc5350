"""A client of any door: bytes in, commands run in order, answers out when they may go, and limits on all of it.

Every whole command that arrived is run at once. A command that waits holds up those behind it on its own connection
only. A client that does not read its answers is not read from; one that sends without end gets its turn like others
(turns.py), and one that is being sent away is read slowly.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from time import perf_counter
from typing import Any, Protocol, cast

from lamina.engines import loops
from lamina.server.output import Output
from lamina.server.refusals import TOO_MANY, Refusals
from lamina.server.turns import SHARE_S, Turns

MOST_UNREAD = 1 << 20  # bytes behind a command that waits; a client that sends more is not read until it goes on
_MOST_PER_TURN = 1 << 16  # bytes of a client that are taken before others have their turn
_PIECE = 1 << 13  # bytes that are read at once: of the smallest commands about as many as are run
_LITTLE = 1 << 9  # bytes of a client that never wait for others
_MOST_COMMANDS = 500  # of a client that are run before others have their turn
_LOOK_EACH = 15  # commands, or one: how often the clock is looked at
_MOST_HELD = 8  # turns of a client whose answers wait for the disk
_LINGER_S = 2.0  # how long a client that is being closed may take to see it
_BREATH_S = 0.01  # between two pieces that are read from it meanwhile
_MINUS = 45  # how an answer begins that refuses something
_MOST_UNSENT = 1 << 20  # bytes of answers that are made before some are handed over


class Flusher(Protocol):
    """Whoever sends answers once they are true."""

    def flush_soon(self, connection: Any = None) -> None: ...


class Door(Protocol):
    """What the clients of a door share."""

    loop: asyncio.AbstractEventLoop
    max_connections: int
    is_closed: bool
    turns: Turns
    refusals: Refusals
    output: Output
    accepted: int
    """Connections, since the door was opened."""

    @property
    def connections(self) -> set[Any]: ...

    @property
    def answers(self) -> Flusher: ...


class Client:
    """One connection. A door's own kind says how bytes become commands and what a command does.

    It has the methods of asyncio.Protocol without being one: the compiled twin could not have that as its base.
    """

    def __init__(self, door: Door, too_many: bytes) -> None:
        """``too_many`` is what a client is told when there are more than the door takes."""
        self.door: Any = door
        self.answers = door.answers
        self.turns = door.turns
        self.thread = loops.this_thread()
        self.is_in_line = False
        self._too_many = too_many
        self.backlog: deque[Any] = deque()
        self.cancel: Callable[[], bool] | None = None
        """Gives up the command that waits, None if none does. False if its answer is under way."""
        self.is_closing = False
        self.has_ended = self.is_stopped = False
        self.is_clogged = False
        self.is_paused = False
        self.is_tls = False
        self.transport: asyncio.Transport | None = None
        # Answers that were not handed over to the transport yet, and what each rests on.
        self.out: list[bytes] = []
        self.rests: list[Any] = []
        self.unsent = 0  # bytes of them
        self.held: Any = 0  # turns whose answers wait for the disk
        self.unread = bytearray()  # what came while commands had to wait
        self.most_unread = MOST_UNREAD
        self.turn_bytes = 0  # that came in this turn
        self._is_leaving = False
        self._linger: asyncio.TimerHandle | None = None

    # -- for each kind of client -------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """Put the commands that are whole with ``data`` into the backlog."""
        raise NotImplementedError

    def feed_end(self) -> None:
        """No more will come."""

    def run(self, command: Any) -> None:
        """Do it, and ``say`` its answer, now or (``cancel``) later."""
        raise NotImplementedError

    def gave_up(self) -> None:
        """The client said that no more comes from it while a command waited: answer that."""

    # -- the socket --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport = cast(asyncio.Transport, transport)
        self.is_tls = transport.get_extra_info("sslcontext") is not None
        if self.door.is_closed:  # it was being let in, or agreed on a key, when the door closed
            self._turn_away(transport)
            return
        if len(self.door.connections) >= self.door.max_connections:
            self.door.refusals.note(TOO_MANY)
            transport.write(self._too_many)
            self._turn_away(transport)
            return
        self.door.connections.add(self)
        self.door.accepted += 1
        keep_alive(transport)

    def _turn_away(self, transport: asyncio.Transport) -> None:
        """Close. With TLS, what came along with the end of the handshake is handed over meanwhile: it is not run."""
        self._is_leaving = True
        transport.close()

    def data_received(self, data: bytes) -> None:
        if self._is_leaving:
            self._breathe()
            return
        self.turn_bytes += len(data)
        must_wait = self.is_in_line or (len(data) > _LITTLE and self.turns.spent >= SHARE_S)
        if must_wait or self.unread or self.backlog or self.cancel is not None or len(data) > _PIECE:
            self.unread += data
        else:
            self.feed(data)
        if must_wait:
            self.turns.wait(self)
            self._read_or_not()
        else:
            self.work()

    def eof_received(self) -> bool:
        """No more will come. Whether the client still reads cannot be told, so it gets its answers, but no job.

        With TLS a connection cannot be half closed: it is over.
        """
        self.is_closing = self.has_ended = True
        if self._is_leaving:
            return False
        if self.give_up():
            self.gave_up()
        self.work()
        return not self.is_tls

    def connection_lost(self, problem: Exception | None) -> None:
        self.door.connections.discard(self)
        self.transport = None
        self.door.output.note(self)
        if self._linger is not None:
            self._linger.cancel()
        self._throw_away()
        self.give_up()

    def pause_writing(self) -> None:
        """The client does not read its answers: run none of its commands until it does."""
        self.is_clogged = True
        self.door.output.note(self)
        self._read_or_not()

    def resume_writing(self) -> None:
        self.is_clogged = False
        self.door.output.note(self)
        self.work()

    def stop(self) -> None:
        """Run no more commands; what was run is still answered."""
        self._throw_away()
        self.is_closing = self.is_stopped = True
        self.give_up()
        self._read_or_not()

    def leave(self) -> None:
        """Close behind the last answer. What still comes is read away: closing on it would take the answer along."""
        if self.transport is None or self._is_leaving:
            return
        if self.has_ended or self.is_tls:  # with TLS closing waits for what is to be sent, and reads away what comes
            self.transport.close()
            return
        self._is_leaving = True
        try:
            self.transport.write_eof()
        except OSError:  # it is gone: whoever is answered behind it must not have to do with that
            self.hang_up()
            return
        self._read_or_not()
        self._linger = self.door.loop.call_later(_LINGER_S, self.hang_up)

    def _breathe(self) -> None:
        """Reading away what nobody wants must not keep the server busy."""
        if self.transport is not None and not self.is_paused and not self.transport.is_closing():
            self.is_paused = True
            self.transport.pause_reading()
            self.door.loop.call_later(_BREATH_S, self._read_or_not)

    def hang_up(self) -> None:
        self.give_up()
        if self.transport is not None:
            self.transport.close()

    def give_up(self) -> bool:
        """False if nothing waits, or its answer is under way: then those behind it still have to wait for that."""
        if self.cancel is None or not self.cancel():
            return False
        self.cancel = None
        return True

    def _read_or_not(self) -> None:
        has_too_much = len(self.unread) > self.most_unread or self.turn_bytes > _MOST_PER_TURN
        wants_pause = (self.is_clogged or self.is_stopped or has_too_much) and not self._is_leaving
        if self.transport is not None and wants_pause != self.is_paused and not self.transport.is_closing():
            self.is_paused = wants_pause
            self.transport.pause_reading() if wants_pause else self.transport.resume_reading()

    # -- commands ----------------------------------------------------------------------------------------------------

    def work(self) -> None:
        """Run what can be run, as long as its share of the time lasts."""
        backlog, done, begun = self.backlog, 0, perf_counter()
        was = self.thread.begin_at_once()
        try:
            while self.cancel is None and not self.is_clogged and (backlog or self._read()):
                if len(self.out) >= _MOST_COMMANDS or self.unsent >= _MOST_UNSENT:
                    break  # ``taken`` goes on
                if self.held >= _MOST_HELD:
                    break  # who lets them out goes on
                if done & _LOOK_EACH == _LOOK_EACH and self.out and perf_counter() - begun > SHARE_S:
                    break  # as above
                self.thread.begin_command()
                self.run(backlog.popleft())
                done += 1
        finally:
            self.thread.end_at_once(was)
        self.turns.spent += perf_counter() - begun
        if self.out or self.turn_bytes > _MOST_PER_TURN or self.is_done():
            self.answers.flush_soon(self)
        self._read_or_not()

    def go_on(self) -> None:
        """Answers were let out that had to wait: run what was kept back behind them."""
        if self.backlog or self.unread:
            self.turns.come(self)

    def _read(self) -> bool:
        """Get commands from what came, a piece at a time: a small command takes much more room when it is read."""
        while self.unread and not self.backlog:
            data = bytes(self.unread[:_PIECE])
            del self.unread[:_PIECE]
            self.feed(data)
        if self.has_ended and not self.backlog:
            self.feed_end()
        return bool(self.backlog)

    def _throw_away(self) -> None:
        self.backlog.clear()
        self.unread.clear()

    def say(self, reply: bytes, rest: Any = 0) -> None:
        """Answer, once the log has come to what the answer rests on: a position here."""
        self.out.append(reply)
        self.rests.append(rest)
        self.unsent += len(reply)
        if reply and reply[0] == _MINUS:
            self.door.refusals.said(reply)

    def taken(self) -> tuple[list[bytes], list[Any]]:
        """What there is to say, taken over by the caller."""
        said = self.out, self.rests
        self.out, self.rests, self.unsent, self.turn_bytes = [], [], 0, 0
        self._read_or_not()
        if (self.backlog or self.unread) and self.cancel is None:
            self.turns.wait(self)
        return said

    def is_done(self) -> bool:
        return self.is_closing and not self.backlog and not self.unread and self.cancel is None


def keep_alive(transport: asyncio.Transport) -> None:
    """Notice within minutes that the machine of a client is gone: a worker that waits there must not get a job."""
    to = transport.get_extra_info("socket")
    if to is None or to.family not in (socket.AF_INET, socket.AF_INET6):
        return
    to.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if hasattr(socket, "TCP_KEEPIDLE"):  # Linux
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60)
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 20)
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        to.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 120_000)
