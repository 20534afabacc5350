"""What happened to topics since the start: of those that are open they know it, of those that were closed it is kept.

A topic may be closed and opened again, deleted, and made again under the same name: its counts go on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic

_MOST: Final = 1000  # names; what happened to others is counted together
OTHERS: Final = b""
"""No topic has this name."""


class Counted(NamedTuple):
    """Entries, and how often groups were written anew."""

    added: int = 0
    read: int = 0
    delivered: int = 0
    redelivered: int = 0
    compactions: int = 0
    compacted_bytes: int = 0

    @classmethod
    def of(cls, topic: Topic) -> Counted:
        """Since it was opened."""
        groups = topic.opened_groups
        if groups is None:
            return cls(topic.counts.added, topic.counts.read)
        return cls(
            topic.counts.added,
            topic.counts.read,
            groups.delivered,
            groups.redelivered,
            groups.compactions,
            groups.compacted_bytes,
        )

    def plus(self, other: Counted) -> Counted:
        return Counted(*map(sum, zip(self, other, strict=True)))

    def minus(self, other: Counted) -> Counted:
        return Counted(*(mine - its for mine, its in zip(self, other, strict=True)))


class Past:
    """Of topics that were closed. Not locked: that of the topics guards it."""

    def __init__(self) -> None:
        self.by_name: dict[bytes, Counted] = {}

    def take(self, name: bytes, counted: Counted) -> None:
        """It happened to one that is not open any more."""
        if counted != Counted():
            if name not in self.by_name and len(self.by_name) >= _MOST:
                name = OTHERS
            self.by_name[name] = self.by_name.get(name, Counted()).plus(counted)
