"""What every engine does with its log: the state is ahead of it by what is pending, and no answer is.

When the disk refuses a record, the state has already taken it: it is then built again from the log, and until a record
gets through each is written before it is applied (journal.py).
"""

from __future__ import annotations

import asyncio
from functools import partial

from lamina.clock import Clock
from lamina.engines import loops
from lamina.engines.journal import Journal, KeepsNothing, take_back
from lamina.engines.lock import Lock
from lamina.errors import DiskFull, LaminaError, LogClosed, StorageError
from lamina.log.positions import Position
from lamina.log.reserve import Reserve
from lamina.log.sync import Level
from lamina.log.teardown import Teardown
from lamina.log.writer import Log

_AGAIN_S = 0.5  # how often who is refused for want of room looks whether there is some


def check_room(reserve: Reserve | None, size: int) -> None:
    """Before ``size`` bytes of new work are taken. Whatever ends work, or makes room, goes on without asking.

    Raises: DiskFull, and nothing was changed; MustWait on a loop, when somebody has to look at the disk first.
    """
    if reserve is None or reserve.takes(size):
        return
    if reserve.fits(size):
        loops.must_wait()
        reserve.look()
    elif not loops.is_at_once():
        reserve.look(at_most_every_s=_AGAIN_S)
    if not reserve.fits(size):
        raise DiskFull(
            "the disk is full: nothing new is taken",
            hint="make room; reading, ends of work and cleaning go on, and new work by itself",
        )


class Logged:
    """The part of an engine that faces the log. Threads: every method is safe from any thread."""

    def __init__(self, log: Log | KeepsNothing, clock: Clock) -> None:
        self.log = log
        self.clock = clock
        self.lock = Lock()
        self.journal = Journal(log, clock)
        self.refusal: StorageError | None = None
        """The log refused records that the state has, and a loop found out: whoever may wait takes them back."""
        self.unready: StorageError | None = None
        """A record was tried for a loop, and is refused as well."""
        self.reserve: Reserve | None = None
        """Says whether new work is taken, and keeps room for what has to go on when the disk is full."""
        self.rebuilds = 0
        """How often the state was built anew: what was answered from an older one may not be so."""

    def rebuild(self) -> None:
        """Build the state from what the log has. Raises: what reading it does."""
        raise NotImplementedError

    def was_rebuilt(self) -> None:
        """The state is another one: whoever waits may be served by it."""

    def newest_position(self) -> int:
        """Of the newest record that the state has taken; 0: it is as the log has it."""
        return self.journal.newest

    def _append(self, record: bytes, before: bytes | None = None) -> int:
        position = self._put(record, before)
        loops.has_changed()
        return position

    def _put(self, record: bytes, before: bytes | None = None) -> int:
        """For who puts many, and says itself that something has changed."""
        if self.refusal is not None:
            if loops.is_at_once():  # a command may have changed something by now
                raise self.refusal.with_traceback(None)
            self.push()
        elif self.journal.is_careful:
            if self.unready is not None and loops.is_at_once():
                error, self.unready = self.unready, None
                raise error.with_traceback(None)
            loops.must_wait()
        try:
            return self.journal.append(record, before)
        except StorageError as error:
            if loops.is_at_once():
                self.refusal = error
            else:
                self.undo_refused(error)
            raise

    def push(self) -> None:
        """Give the log what is pending. Raises: StorageError; then the state is what the log has."""
        with self.lock:
            if self.refusal is None:
                try:
                    self.journal.push()
                    return
                except StorageError as error:
                    self.refusal = error
            loops.must_wait()
            refusal, self.refusal = self.refusal, None
            self.undo_refused(refusal)
            raise refusal.with_traceback(None)

    def try_push(self) -> bool:
        """The same for a loop. False if that has to wait: somebody has the engine, or the log refuses records."""
        if not self.lock.acquire(False):
            return False
        try:
            if self.refusal is None:
                self.journal.push()
        except StorageError as error:
            self.refusal = error
        finally:
            self.lock.release()
        return self.refusal is None

    def settle(self, position: int) -> None:
        """Wait until what was done up to ``position`` is as safe as the policy promises.

        Raises: the disk's error; then it was not done.
        """
        self.push()
        if position and isinstance(self.log, Log):
            try:
                self.log.wait(Position(position))
            except LaminaError as error:
                self.undo_refused(error)
                raise

    async def settled(self, position: int) -> None:
        """``settle`` for coroutines."""
        if not self.try_push():
            await asyncio.to_thread(self.push)
        if position and isinstance(self.log, Log):
            refused: LaminaError | None = None
            try:
                await self.log.reached(Position(position))
            except LaminaError as error:
                refused = error  # a compiled coroutine must not wait while it handles an error: test_architecture.py
            if refused is not None:
                await asyncio.to_thread(self.undo_refused, refused)
                raise refused

    async def reached(self, position: int) -> None:
        """Wait for no more than that the log has ``position``. Raises: the error that kept it out."""
        if isinstance(self.log, Log):
            await self.log.reached(Position(position))

    def has_synced(self, position: int) -> bool:
        """What was done up to ``position`` survives a power cut. Raises: the error that kept it out."""
        return not isinstance(self.log, Log) or self.log.has_reached(Position(position), Level.SYNCED)

    async def synced(self, position: int) -> None:
        """Wait for that, whatever the policy. Raises: the error that kept it out."""
        if isinstance(self.log, Log):
            await self.log.reached(Position(position), Level.SYNCED)

    def is_kept(self) -> bool:
        """For who has no log, or not yet: all that was pushed is as safe as promised."""
        return True

    def handed_over(self) -> Position:
        """Give the log all that the state has, without waiting for the disk. Returns up to where that is.

        Raises: StorageError if some of it was refused.
        """
        with self.lock:
            self.push()
            return Position(self.journal.newest) if self.journal.newest else self.log.written

    def all_written(self) -> Position:
        """Up to where the log has all that the state had. Raises: the error that kept some of it out."""
        self.push()
        if isinstance(self.log, Log):
            self.log.run_round(may_sync=False)
            error = self.log.broken_off
            if error is not None:
                self.undo_refused(error)
                raise error.with_traceback(None)
        return self.log.written

    def close_log(self, teardown: Teardown, *, with_mark: bool = True) -> None:
        """Steps of closing: write and sync everything, and let the log go. What kept records out of it is raised."""
        if not isinstance(self.log, Log) or not isinstance(self.log.failure, LogClosed):
            teardown.step(self.all_written)
            teardown.step(partial(self.log.close, with_mark=with_mark) if isinstance(self.log, Log) else self.log.close)

    def undo_refused(self, error: LaminaError) -> None:
        """Records were refused that the state already has: build it again from what the log has."""
        if isinstance(error, LogClosed) or not isinstance(self.log, Log):
            return
        with self.lock:
            if take_back(self.journal, self.log, self.rebuild):
                self.rebuilds += 1
                self.was_rebuilt()
