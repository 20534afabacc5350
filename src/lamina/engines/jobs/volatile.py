"""A log that keeps nothing: jobs without persistence, as workq runs without ``-cmdlog-path``."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.errors import LaminaError
from lamina.log.options import LogOptions
from lamina.log.positions import Position
from lamina.log.sync import OS


class VolatileLog:
    """What the engine needs of a log. Every position is reached at once: there is nothing to wait for."""

    options = LogOptions(sync=OS)
    failure: LaminaError | None = None
    is_broken_off = False

    def __init__(self) -> None:
        self.position = self.written = self.synced = Position(0)

    @property
    def next_position(self) -> Position:
        return Position(self.position + 2)

    def append_at(self, first: Position, payloads: Sequence[bytes]) -> None:
        self.position = self.written = self.synced = Position(first + len(payloads) - 1)

    def close(self) -> None:
        return
