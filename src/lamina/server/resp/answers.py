"""Answers go out when what they say is as safe as the policy promises, for many logs at once.

In each turn of the loop connections report that they have something to say; behind the turn the records of all of them
are written, log by log, and those answers go out that rest on nothing more. The others wait for the commit thread, each
connection's in order. An answer that rests on a record which the disk refused becomes an error.

Answers that rest on an engine without a log of the usual kind (the store, journals of queues) wait in a lane of their
own: what these do takes longer than a sync, and clients of topics have no part in it.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable
from time import perf_counter
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from lamina.engines.logged import Logged
from lamina.errors import LaminaError
from lamina.log.sync import Level
from lamina.log.writer import Log
from lamina.server.resp import replies
from lamina.server.resp.dispatch import text_of
from lamina.server.resp.runs import Added
from lamina.server.resp.session import Mark

if TYPE_CHECKING:
    from lamina.server.resp.door import Connection

_QUICK_S: Final = 0.001  # a sync for which the loop may stand still
_LONGEST_GATHERING_S: Final = 0.002
_LONGEST_S: Final = 0.001  # of letting answers out, before others have their turn
_MOST_SYNCS_S: Final = 0.002  # what syncs of one flush may take: of many logs, the commit thread syncs the others

_UNKNOWN: Final = b"ERR internal error: whether it was done is not known, see the log of the server"

logger = logging.getLogger("lamina.resp")

Needs = dict[Logged, int]
"""How far each log has to be."""


class Pushed(tuple[Mark, ...]):
    """What a push rests on: if that is refused, nothing is said, for nothing was asked."""

    __slots__ = ()


Rest = list[Mark] | Added | Pushed
"""What an answer rests on; or the run of which it holds all answers."""
_Held = tuple["Connection", list[bytes], list[Rest], Needs, int]
"""The last: how many doubts there had been before the answers were made. If there are more, each is checked."""


class _Lane:
    """Answers that are held, in order, and the task that lets them out."""

    def __init__(self) -> None:
        self.held: deque[_Held] = deque()
        self.release: asyncio.Task[None] | None = None


class Answers:
    """Of all connections of a door."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._speaking: dict[Connection, None] = {}
        self._is_scheduled = False
        self._lane, self._late = _Lane(), _Lane()
        self._held = self._lane.held
        self._in_late: dict[Connection, int] = {}  # how many of the turns a connection has held are in the late lane
        self._sync_s = 0.0  # what a sync takes, about; if that is long, the commit thread syncs and the loop goes on
        self._syncing_s = 0.0  # what those of this flush took, about
        self._has_synced = False  # this thread, in this flush
        self._crowd = 0  # clients that were answered behind the last such sync
        self._heard_at = self._begun = 0.0  # the last who has something to say, and the first
        # Of each engine, when its answers were last known to be true. One that nobody else has may go.
        self._rebuilds: WeakKeyDictionary[Logged, int] = WeakKeyDictionary()
        self._doubts = 0  # how often a rebuild was noticed
        self._doubts_before = 0  # as of the last flush: what is said now was made since

    def flush_soon(self, connection: Connection | None = None) -> None:
        """Behind this turn of the loop, write and answer."""
        if connection is not None:
            self._speaking[connection] = None
        if self._crowd > 1:
            self._heard_at = self._loop.time()
        if not self._is_scheduled:
            self._is_scheduled, self._begun = True, self._heard_at
            self._loop.call_soon(self._flush_or_gather)

    def _flush_or_gather(self) -> None:
        """Those who were answered behind one sync come back one by one: one for the first would hold up the others.

        So they are waited for, as long as one comes behind the other in less time than a sync takes.
        """
        if len(self._speaking) < self._crowd:
            now = self._loop.time()
            if now - self._heard_at < self._sync_s and now - self._begun < _LONGEST_GATHERING_S:
                self._loop.call_soon(self._flush_or_gather)
                return
        self._flush()

    def _flush(self) -> None:
        self._is_scheduled = self._has_synced = False
        self._syncing_s = 0.0
        speaking, self._speaking = self._speaking, {}
        dirty = {engine: None for connection in speaking for engine in connection.needs}
        unsafe = {engine for engine in dirty if not self._is_safe(engine)}
        self._crowd = len(speaking) if self._has_synced else 0
        self._notice_rebuilds(dirty)
        doubts, self._doubts_before = self._doubts_before, self._doubts
        must_check = doubts != self._doubts
        for connection in speaking:
            needs = connection.needs
            if needs:
                connection.needs = {}
            if not connection.held and (not needs or not (must_check or _need(needs, unsafe))):
                self._send(connection, connection.taken()[0])
            else:
                lane = self._lane_of(connection, needs, unsafe)
                connection.held += 1
                lane.held.append((connection, *connection.taken(), needs, doubts))
        for lane in (self._lane, self._late):
            if lane.held and lane.release is None:
                lane.release = self._loop.create_task(self._release_held(lane))

    def _lane_of(self, connection: Connection, needs: Needs, unsafe: set[Logged]) -> _Lane:
        """Where its answers wait: behind those of it that do already, so that they stay in order."""
        late = self._in_late.get(connection, 0)
        if connection.held and not late:
            return self._lane
        if late or any(engine in unsafe and not isinstance(engine.log, Log) for engine in needs):
            self._in_late[connection] = late + 1
            return self._late
        return self._lane

    def _is_safe(self, engine: Logged) -> bool:
        """All it has is as safe as promised, once its records were written, where that takes no time."""
        try:
            return self._write(engine)
        except Exception:  # out of memory, say: none of the answers may be dropped, or sent unchecked
            return False

    def _write(self, engine: Logged) -> bool:
        if not engine.try_push():
            return False
        log = engine.log
        if not isinstance(log, Log):
            return engine.is_kept()
        if log.failure is not None or log.is_broken_off:
            return False
        if log.options.sync.level is not Level.SYNCED:
            if log.position > log.written and log.stats.measured.write_s <= _QUICK_S:
                log.try_round()
            return log.position <= log.written
        if log.position > log.synced and not self._held:
            self._sync_here(log)
        return log.position <= log.synced

    def _sync_here(self, log: Log) -> None:
        """On a quick disk a sync costs less than having another thread do it: then this one does.

        How quick it lately was is known by all syncs. Of a slow disk those are the commit thread's, which finds out
        that it is quick again.
        """
        measured = log.stats.measured
        self._sync_s = measured.sync_s
        if max(measured.sync_s, measured.write_s) > _QUICK_S or self._syncing_s > _MOST_SYNCS_S:
            return
        if log.try_round(may_sync=True):
            self._has_synced = True
            self._syncing_s += measured.sync_s

    def _notice_rebuilds(self, engines: Iterable[Logged]) -> None:
        """Records were refused since the last look: answers may have been made from a state that has them.

        All that was made and has not gone out is in doubt then, also what is held: a later record of the same log may
        get through before the earlier one is looked at.
        """
        for engine in engines:
            if engine.rebuilds and engine.rebuilds != self._rebuilds.get(engine, 0):
                self._rebuilds[engine] = engine.rebuilds
                self._doubts += 1

    def _send(self, connection: Connection, out: list[bytes]) -> None:
        transport = connection.transport
        if transport is None:
            return
        if out and not connection._is_leaving:  # nothing goes behind the end that a client was told
            data = b"".join(out) if len(out) > 1 else out[0]
            if data:
                transport.write(data)
                if connection.is_clogged:
                    connection.door.output.note(connection)
        if connection.stream is not None and not connection.held and not connection.out:
            connection.stream.was_sent(out)
        if connection.is_done() and not connection.out and not connection.held:
            connection.leave()

    # -- by the commit thread ------------------------------------------------------------------------------------

    async def _release_held(self, lane: _Lane) -> None:
        """Send what is held, in order, as the logs come along."""
        try:
            while lane.held:
                count = len(lane.held)
                needs: Needs = {}
                for held in lane.held:
                    for engine, position in held[3].items():
                        needs[engine] = max(position, needs.get(engine, 0))
                done = await asyncio.gather(
                    *(engine.settled(position) for engine, position in needs.items()), return_exceptions=True
                )
                self._notice_rebuilds(needs)
                must_check = any(result is not None for result in done)
                begun = perf_counter()
                for _ in range(count):
                    connection, out, marks, _, doubts = lane.held.popleft()
                    if must_check or doubts != self._doubts:
                        out = [await _checked(*answer) for answer in zip(out, marks, strict=True)]
                    connection.held -= 1
                    if lane is self._late:
                        self._leave_late(connection)
                    self._send(connection, out)
                    connection.go_on()
                    if perf_counter() - begun > _LONGEST_S:
                        await asyncio.sleep(0)
                        begun = perf_counter()
        finally:
            lane.release = None

    def _leave_late(self, connection: Connection) -> None:
        left = self._in_late.pop(connection) - 1
        if left:
            self._in_late[connection] = left

    async def all_settled(self) -> None:
        """Everything that was said so far has gone out."""
        self._flush()
        while releases := [lane.release for lane in (self._lane, self._late) if lane.release is not None]:
            await asyncio.wait(releases)


def _need(needs: Needs, unsafe: set[Logged]) -> bool:
    """Something of it is not safe yet."""
    if not unsafe:
        return False
    for engine, position in needs.items():
        if engine in unsafe:
            log = engine.log
            if not isinstance(log, Log) or log.failure is not None or log.is_broken_off:
                return True
            if position > (log.synced if log.options.sync.level is Level.SYNCED else log.written):
                return True
    return False


async def _checked(reply: bytes, marks: Rest) -> bytes:
    """The reply if its records are in the logs, else why one is not. Who wants no answer gets none in any case."""
    if not reply:
        return reply
    if isinstance(marks, Added):
        return b"".join([await _checked(*answer) for answer in marks.answers()])
    for engine, position in marks:
        try:
            await engine.reached(position)
        except Exception as error:
            if isinstance(marks, Pushed):
                return b""
            if not isinstance(error, LaminaError):  # a mistake of ours: those behind it are answered all the same
                logger.exception("an answer is not known to be true")
            return replies.error(text_of(error) if isinstance(error, LaminaError) else _UNKNOWN)
    return reply
