"""Answers that are too large to be made at once: counted first, then read and sent a piece at a time.

An answer begins with how many entries it has, so a thread counts them while it reads past them. Then a piece is read
when the client has taken the one before: who does not read takes no more memory than a piece.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

from lamina.engines.logged import Logged
from lamina.errors import LaminaError
from lamina.server.resp import replies
from lamina.server.resp.dispatch import text_of
from lamina.server.resp.entry_replies import show_all
from lamina.server.resp.session import Large
from lamina.units import KIB, MIB

if TYPE_CHECKING:
    from lamina.server.resp.door import Connection

_PIECE: Final = 256 * KIB
_COUNTED: Final = MIB  # between two looks whether somebody still wants it
# Keys of workers that no topic can have: either is done for one client at a time, as many threads at once would leave
# little of the processor to the loop.
_COUNTING: Final = (b"\0counting",)
_READING: Final = (b"\0reading",)

logger = logging.getLogger("lamina.resp")


class LargeReply:
    """One that is being made. Until it is over, its connection runs no command and says nothing else."""

    def __init__(self, connection: Connection, large: Large) -> None:
        self._connection, self._topic, self._walk = connection, large.topic, large.walk
        self._is_given_up = self._is_reading = self._is_begun = False
        self._count = 0
        self._head: bytes | None = None
        """Once it is said: what it begins with."""
        self.behind: list[tuple[bytes, Logged, int]] = []
        """Pushes that came in between."""
        connection.stream, connection.cancel, connection.session.is_waiting = self, self._cancel, True
        connection.door.workers.run(_COUNTING, partial(self._walk.count, _COUNTED, self._is_over), self._counted)

    @property
    def has_begun(self) -> bool:
        return self._head is not None

    def _is_over(self) -> bool:
        return self._is_given_up

    def _cancel(self) -> bool:
        """Who is still there gets all of it."""
        connection = self._connection
        self._is_given_up = connection.transport is None
        if self._is_given_up:
            connection.stream = None  # the two would keep each other in memory
        return self._is_given_up

    def _counted(self, count: int | None, problem: BaseException | None) -> None:
        connection = self._connection
        if connection.transport is None:
            return
        if problem is not None or count is None:
            reply = replies.error(text_of(problem)) if isinstance(problem, LaminaError) else None
            connection.answer(reply or connection._broken([connection.session.last_command], problem))
            self._end()
            return
        connection.session.rest_on(self._topic, self._walk.position)
        self._count, self._head = count, b"*%d\r\n" % count
        connection.answer(self._head)
        connection.answers.flush_soon(connection)

    def was_sent(self, out: list[bytes]) -> None:
        """All that was said went out, ``out`` as the last."""
        if self._head is None or self._is_begun:
            return
        if out and out[-1] is self._head:
            self._go_on()
        else:  # it became an error, or the client wants no answers
            self._end()

    def go_on(self) -> None:
        """The client took what it was sent."""
        if self._is_begun and not self._is_reading:
            self._go_on()

    def _go_on(self) -> None:
        self._is_begun = self._is_reading = True
        self._connection.door.workers.run(_READING, self._read, self._have)

    def _read(self) -> bytes:
        """In a thread."""
        records: list[bytes] = []
        while not records and not self._walk.is_over and not self._is_given_up:
            records = self._walk.next(_PIECE)
        head = b"*%d\r\n" % len(records)
        return show_all(records)[len(head) :]

    def _have(self, piece: bytes | None, problem: BaseException | None) -> None:
        self._is_reading = False
        connection = self._connection
        transport = connection.transport
        if transport is None or transport.is_closing():
            return
        walk = self._walk
        is_wrong = walk.given != self._count if walk.is_over else walk.given > self._count
        if problem is not None or piece is None or is_wrong:
            # The client was told how many there are, and there is no way to tell it now that some are missing.
            why = problem or f"{walk.given} entries of {self._count} were found"
            logger.warning("an answer of %s is cut off: %s", self._topic.folder, why)
            transport.abort()
            return
        transport.write(piece)
        if connection.is_clogged:
            connection.door.output.note(connection)
        if walk.is_over:
            self._end()
        elif not connection.is_clogged:
            self._go_on()

    def _end(self) -> None:
        connection = self._connection
        connection.stream = connection.cancel = None
        connection.session.is_waiting = False
        for pushed in self.behind:
            connection.push(*pushed)
        connection.answers.flush_soon(connection)
