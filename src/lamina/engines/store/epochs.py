"""Which epoch becomes durable, and when. Numbers only: no disk, no threads.

An epoch is over when the next one was switched to and every session of it, and of those before, has ended:

    upper    the last epoch that is over:  min(current - 1, epoch of the oldest open session - 1)
    record   the last one of those in which somebody wrote: what the epoch file has to say

Callers are told ``upper``, rising, and only after ``record`` is on the disk. Epochs in which nobody wrote are told, and
not recorded one by one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from lamina.errors import BadEntry


@dataclass(slots=True)
class ChannelState:
    """Where a channel is."""

    current: int | None = None
    """Epoch of the open session."""
    finished: int = 0
    """Epoch of the last one that ended; 0: none has."""


_FARTHEST: Final = 1 << 62  # far from where numbers of 64 bits end: others have to follow whatever somebody asks for


class Due(NamedTuple):
    """What may be told, and what has to be on the disk before."""

    upper: int
    record: int


class EpochCounter:
    """Threads: the caller's lock."""

    def __init__(self, last: int) -> None:
        """``last``: the largest epoch there ever was, durable or void."""
        self.current = last + 1
        self.informed = self.recorded = last
        self.channels: dict[int, ChannelState] = {}
        self._written: set[int] = set()  # epochs above the recorded one in which a session ended that left something

    def add_channel(self, number: int) -> ChannelState:
        return self.channels.setdefault(number, ChannelState())

    def begin(self, number: int) -> int:
        """A session begins; returns its epoch."""
        state = self.channels[number]
        assert state.current is None
        state.current = self.current
        return self.current

    def end(self, number: int, *, wrote: bool) -> None:
        """It ended; ``wrote``: and left something."""
        state = self.channels[number]
        assert state.current is not None
        if wrote:
            state.finished = state.current
            self.wrote(state.current)
        state.current = None

    def wrote(self, epoch: int) -> None:
        """A session of this epoch, which is not over, left something."""
        self._written.add(epoch)

    def check(self, epoch: int) -> None:
        """Raises: BadEntry if ``switch`` cannot be to this one."""
        if type(epoch) is not int:
            raise BadEntry(f"{epoch!r} is no epoch", hint="give a whole number")
        if not self.current <= epoch <= max(_FARTHEST, self.current + 1):
            hint = "epochs rise" if epoch < self.current else f"ask for {_FARTHEST} at most"
            raise BadEntry(f"epoch {epoch} cannot follow epoch {self.current}", hint=hint)

    def switch(self, epoch: int) -> None:
        self.check(epoch)
        self.current = epoch

    def open_sessions(self) -> list[int]:
        """Channels that are in one."""
        return [number for number, state in self.channels.items() if state.current is not None]

    def due(self) -> Due | None:
        """None: nothing is new."""
        running = [state.current for state in self.channels.values() if state.current is not None]
        upper = min([self.current, *running]) - 1
        record = max([self.recorded, *(epoch for epoch in self._written if epoch <= upper)])
        return Due(upper, record) if upper > self.informed or record > self.recorded else None

    def is_recorded(self, epoch: int) -> None:
        """The epoch file says so now."""
        self.recorded = max(self.recorded, epoch)
        self._written = {each for each in self._written if each > epoch}

    def is_informed(self, epoch: int) -> None:
        self.informed = max(self.informed, epoch)

    def skip(self, epoch: int) -> None:
        """Epochs up to this one will never be durable: they are void."""
        self.is_recorded(epoch)
        self.is_informed(epoch)

    def is_waiting(self) -> bool:
        """Something was written that is not durable."""
        return bool(self._written)
