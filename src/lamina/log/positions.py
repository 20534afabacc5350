"""How far a log has come: positions, which are the times of records."""

from __future__ import annotations

import threading
from typing import NewType

from lamina.errors import LaminaError, StorageError
from lamina.log.index import Index
from lamina.log.options import LogOptions
from lamina.log.refused import Refused
from lamina.log.sync import Level

Position = NewType("Position", int)
"""Where a record is in its log: its time, in nanoseconds since 1970."""


LEVEL_OR_NONE = (Level, type(None))


class Positions:
    """What a log has appended, written and synced. Numbers only: reading one needs no lock."""

    def __init__(self, options: LogOptions, newest: Index) -> None:
        self.options = options
        self._last_stamp = newest.last
        self._last_position = self._written = self._synced = newest.last_data
        self._state = threading.Lock()
        self._refused = Refused()
        self._broken_off: LaminaError | None = None

    @property
    def position(self) -> Position:
        """Of the newest record appended, on disk or not."""
        return Position(self._last_position)

    @property
    def next_position(self) -> Position:
        """The first that ``append_at`` may be given."""
        return Position(self._last_stamp + 2)

    @property
    def written(self) -> Position:
        return Position(self._written)

    @property
    def synced(self) -> Position:
        return Position(self._synced)

    @property
    def readable_position(self) -> Position:
        """Of the newest record that readers may see: one that is as safe as the policy promises."""
        return Position(self._position_of(self.options.sync.level))

    @property
    def is_broken_off(self) -> bool:
        """Records were refused, and nothing more is taken by ``append_at`` until its engine says ``go_on``."""
        return self._broken_off is not None

    @property
    def broken_off(self) -> LaminaError | None:
        """Why, then."""
        return self._broken_off

    def break_off(self, first: int, last: int, error: BaseException) -> None:
        """These records are not in the log, and what comes later may build on them."""
        with self._state:
            self._break_off(first, last, error)

    def _break_off(self, first: int, last: int, error: BaseException) -> None:
        """Holds ``_state``."""
        if self._refused.find(first) is None:
            problem = error if isinstance(error, LaminaError) else StorageError(f"not handed over: {error!r}")
            self._refused.add(first, last, problem, self._written)
            self._broken_off = problem

    def go_on(self) -> None:
        """The engine has taken back what was refused."""
        self._broken_off = None

    def _level(self, level: Level | None) -> Level:
        if not isinstance(level, LEVEL_OR_NONE):
            raise TypeError(f"{level!r} is no Level; give Level.WRITTEN or Level.SYNCED")
        return self.options.sync.level if level is None else level

    def _has_surely_reached(self, position: int, level: Level) -> bool:
        """Without the lock: both positions only ever grow, and a refusal is noted before they pass it."""
        return position <= (self._synced if level is Level.SYNCED else self._written) and not self._refused

    def _position_of(self, level: Level) -> int:
        return self._synced if level is Level.SYNCED else self._written
