"""Records on their way from the state, which has taken them, to the log.

They are handed over many at once, so the engine chooses their positions. Not locked: the engine's lock guards it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Protocol

from lamina.clock import Clock
from lamina.errors import StorageError
from lamina.log.positions import Position
from lamina.log.sync import Level
from lamina.log.writer import Log

MOST = 1000  # records that are handed over at once
_LONGEST_NS = 1_000_000  # and for how long they may gather: their positions are times


class KeepsNothing(Protocol):
    """A log that keeps nothing: every position is reached at once."""

    position: Position
    written: Position

    @property
    def next_position(self) -> Position: ...

    def append_at(self, first: Position, payloads: Sequence[bytes]) -> None: ...

    def close(self) -> None: ...


class Journal:
    """What is pending, from ``first`` on, nanosecond by nanosecond."""

    def __init__(self, log: Log | KeepsNothing, clock: Clock) -> None:
        self.log = log
        self.clock = clock
        self.pending: list[bytes] = []
        self.first = 0
        self._free = 0  # no position from here on was ever given to a record
        self.newest = 0
        """Position of the newest record that the state has taken since it was built."""
        self.is_careful = False
        """A record was refused: until one gets through, each is written before its change is made."""

    def append(self, record: bytes, before: bytes | None = None) -> int:
        """Put a record behind the others. Returns its position. Raises: StorageError; then it is not in the log.

        ``before`` goes right in front of it: a power cut in between leaves what means nothing by itself.
        """
        pending = self.pending
        if not pending:
            self.first = max(self.clock.now_ns(), self.log.next_position, self._free)
        if before is not None:
            pending.append(before)
        pending.append(record)
        position = self.first + len(pending) - 1
        if self.is_careful:
            self.push()
            if isinstance(self.log, Log):
                self.log.wait(Position(position), Level.WRITTEN)
            self.is_careful = False
        elif len(pending) >= MOST:
            self.push()
        self.newest = position
        return position

    def push(self) -> None:
        """Give the log what is pending. Raises: LogFailed, LogClosed; then it is lost."""
        if self.pending:
            pending, self.pending = self.pending, []
            self._free = self.first + len(pending) + 1
            try:
                self.log.append_at(Position(self.first), pending)
            except BaseException as error:  # out of memory, interrupted: the state has them all the same
                if isinstance(self.log, Log):
                    self.log.break_off(self.first, self.first + len(pending) - 1, error)
                raise

    def leave(self, positions: int) -> int:
        """Give so many positions to no record, for records that are put there later. Returns the first of them.

        Nothing is pending.
        """
        start = max(self.log.next_position, self._free)
        self._free = start + positions
        return start

    def is_old(self, now_ns: int) -> bool:
        """What is pending has gathered for so long that who comes next should have another time."""
        return now_ns > self.first + _LONGEST_NS


def take_back(journal: Journal, log: Log, rebuild: Callable[[], None]) -> bool:
    """After a refusal, have the state built from what the log has. False if it has nothing that was refused.

    Holds the engine's lock. Raises: what reading the log does; then it takes no more.
    """
    if journal.is_careful:
        log.go_on()  # what was refused was not applied
        return False
    # Nothing may be under way while the log is read: what was appended is in it, or refused.
    with suppress(StorageError):
        journal.push()
    log.run_round()
    if not log.is_broken_off and log.failure is None:
        return False
    rebuild()
    log.go_on()
    journal.newest, journal.is_careful = 0, True
    return True
