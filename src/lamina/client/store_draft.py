"""A session for the store of a server: collected here, sent as one command (``S.WRITE``), so all of it or nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from lamina.client.queue_talks import only_inside
from lamina.client.talking import Word
from lamina.engines.store.codec import MOST
from lamina.engines.store.entries import LARGEST
from lamina.errors import BadEntry
from lamina.units import MIB

MOST_BYTES: Final = 71 * MIB
"""Of one session: a command has 72 MiB at most."""
_MOST_WORDS: Final = 1_000_000  # of a command, which may have a few more
_AROUND: Final = 24  # bytes of a word beside its own
_CHOSEN: Final = "a version of one's own choice"


class RemoteDraft:
    """Entries that become durable together. ``epoch`` is known when it has ended. Threads: one at a time."""

    def __init__(self) -> None:
        """Use ``store.session``."""
        self.epoch = 0
        """The epoch it belongs to: what it wrote is durable when that is."""
        self.size = 0
        """Bytes of the command, about."""
        self._words: list[Word] = []
        self._storage: int | None = None
        self._is_open = True

    def put(self, storage: int, key: bytes, value: bytes, *, version: tuple[int, int] | None = None) -> None:
        """Give a key a value. Raises: BadEntry, and nothing was taken; BadOption for a version."""
        self.put_many(storage, [(key, value)], version=version)

    def put_many(
        self, storage: int, pairs: Iterable[tuple[bytes, bytes]], *, version: tuple[int, int] | None = None
    ) -> None:
        """Give many keys their values, in this order. Raises: BadEntry, and none was taken."""
        pairs = pairs if isinstance(pairs, list) else list(pairs)
        words: list[bytes] = []
        for key, value in pairs:
            if type(key) is not bytes or type(value) is not bytes:
                raise TypeError("keys and values are bytes")
            if len(key) + len(value) > LARGEST:
                size = len(key) + len(value)
                raise BadEntry(f"an entry of {size} bytes is too large: {LARGEST} at most", hint="split it")
            words += b"PUT", key, value
        self._add(storage, words, version)

    def remove(self, storage: int, key: bytes, *, version: tuple[int, int] | None = None) -> None:
        """Take a key away. Raises: BadEntry, and nothing was taken; BadOption for a version."""
        if type(key) is not bytes:
            raise TypeError("keys and values are bytes")
        if len(key) > LARGEST:
            raise BadEntry(f"an entry of {len(key)} bytes is too large: {LARGEST} at most", hint="split it")
        self._add(storage, [b"DEL", key], version)

    def clear_storage(self, storage: int, *, version: tuple[int, int] | None = None) -> None:
        """Every entry of the storage is gone. Raises: BadEntry; BadOption for a version."""
        self._add(storage, [b"CLEAR"], version)

    def add_storage(self, storage: int, *, version: tuple[int, int] | None = None) -> None:
        """The storage is there, also while it is empty. Raises: BadEntry; BadOption for a version."""
        self._add(storage, [b"ADD"], version)

    def remove_storage(self, storage: int, *, version: tuple[int, int] | None = None) -> None:
        """The storage is gone with every entry. Raises: BadEntry; BadOption for a version."""
        self._add(storage, [b"DROP"], version)

    def give_up(self) -> None:
        """Nothing of it will be there."""
        self._is_open = False

    def end(self) -> list[Word]:
        """The words of its command; none if there is nothing in it. Nothing more is taken."""
        self._is_open = False
        words, self._words = self._words, []
        return words

    def _add(self, storage: int, words: list[bytes], version: tuple[int, int] | None) -> None:
        if not self._is_open:
            raise BadEntry("the session has ended", hint="begin another one")
        if version is not None:
            raise only_inside(_CHOSEN, "a server stamps entries itself")
        if type(storage) is not int or not 0 <= storage <= MOST:
            raise BadEntry(f"{storage!r} is no storage", hint=f"give a number from 0 to {MOST}")
        if not words:
            return
        size = sum(map(len, words)) + _AROUND * len(words)
        if self.size + size > MOST_BYTES:
            raise BadEntry(f"the session has more than {MOST_BYTES} bytes", hint="split it: it is sent as one command")
        if len(self._words) + len(words) > _MOST_WORDS:
            raise BadEntry(f"the session has more than {_MOST_WORDS // 3} entries", hint="split it")
        self.size += size
        if self._storage is None:
            self._words = ["S.WRITE", storage]
        elif self._storage != storage:
            self._words += "IN", storage
        self._storage = storage
        self._words += words
