"""A session that joins an epoch only when it is whole: while it is being made it holds nobody up.

Its entries are packed with a version that cannot be (codec.MOST), and stamped with those of its epoch at the end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lamina.engines.store import packing
from lamina.engines.store.channel import Channel, Session
from lamina.engines.store.codec import MOST
from lamina.engines.store.entries import Entries
from lamina.errors import BadEntry

if TYPE_CHECKING:
    from lamina.engines.store.engine import StoreEngine


class Draft(Entries):
    """Entries that become durable together. ``epoch`` is known when it has ended. Threads: one at a time."""

    def __init__(self, store: StoreEngine) -> None:
        """Use ``store.session``."""
        super().__init__(store, 0)
        self._unstamped = 0
        self._lowest = MOST  # of the major versions that were chosen

    def _next_versions(self, count: int) -> tuple[int, int]:
        self._unstamped += count
        return MOST, 0

    def _check_version(self, version: tuple[int, int]) -> None:
        self._store.check_version(version, self._store.epoch)
        self._lowest = min(self._lowest, version[0])

    def give_up(self) -> None:
        """Nothing of it will be there."""
        self._is_open = False

    def join(self, channel: Channel) -> Session | None:
        """Become a session of the present epoch: end that. None if there is nothing in it.

        Raises: BadEntry if a version that was chosen has become too old; LogClosed, StorageError.
        """
        self._is_open = False
        if self._packed.length == 1:
            self.epoch = self._store.last_epoch
            return None
        session = channel.begin()
        try:
            self.epoch = session.epoch
            if self._lowest <= self._store.floor < session.epoch:
                floor = self._store.floor
                raise BadEntry(
                    f"major version {self._lowest} is too old: everything up to epoch {floor} was compacted",
                    hint=f"give one above {floor}",
                )
            versions = self._store.versions
            major, minor = packing.stamp(self._packed, session.epoch, *versions.take(session.epoch, self._unstamped))
            versions.note(major, max(minor - 1, 0))
            session.adopt(self._packed, self.size, grows=self.grows)
        except BaseException:
            session.abort()
            raise
        return session
