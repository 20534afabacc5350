"""What a session is made of: entries that are checked and packed one by one, and written together or not at all."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from lamina.engines.store import codec, packing
from lamina.engines.store.codec import ADD, CLEAR, DROP, MOST, PUT, REMOVE
from lamina.errors import BadEntry
from lamina.log.packed import Packed

if TYPE_CHECKING:
    from lamina.engines.store.engine import StoreEngine

Change: TypeAlias = "tuple[int, int, list[tuple[bytes, bytes]] | bytes]"
"""Its kind (codec.py), the storage, and what is put there in this order, the key that is removed, or nothing."""

AROUND: Final = 64
"""Bytes that an entry is counted with beside its own."""
LARGEST: Final = (64 << 20) - 64
"""Bytes of key and value together: what fits into a record."""


class Entries:
    """Threads: one at a time."""

    def __init__(self, store: StoreEngine, epoch: int) -> None:
        self.epoch = epoch
        """The epoch it belongs to: what it wrote is durable when that is."""
        self.size = 0
        """Bytes of all entries, about."""
        self.grows = False
        """Something is put there. What only removes is let through on a full disk."""
        self._store = store
        self._packed = Packed()
        self._packed.append(codec.begin(epoch))
        self._is_open = True

    @property
    def packed_bytes(self) -> int:
        """So far."""
        return len(self._packed.data)

    def _next_versions(self, count: int) -> tuple[int, int]:
        """The first of so many, which follow each other."""
        raise NotImplementedError

    def _check_version(self, version: tuple[int, int]) -> None:
        """Raises: BadEntry if it cannot be chosen."""
        raise NotImplementedError

    def put(self, storage: int, key: bytes, value: bytes, *, version: tuple[int, int] | None = None) -> None:
        """Give a key a value. Without ``version`` the entry is newer than all before it.

        Raises: BadEntry, and nothing was taken.
        """
        self._check(storage, len(key) + len(value))
        self.grows = True
        major, minor = self._version(version)
        packing.put(self._packed, storage, key, value, major, minor)

    def put_many(self, storage: int, pairs: Iterable[tuple[bytes, bytes]]) -> None:
        """Give many keys their values, in this order. Raises: BadEntry, and none was taken."""
        pairs = pairs if isinstance(pairs, list) else list(pairs)
        self._check(storage, 0)
        size = packing.size_of(pairs, LARGEST)
        if size < 0:
            raise _too_large(max(len(key) + len(value) for key, value in pairs))
        self._check(storage, size, each=len(pairs))
        self.grows = True
        major, minor = self._next_versions(len(pairs))
        packing.put_many(self._packed, storage, pairs, major, minor)

    def remove(self, storage: int, key: bytes, *, version: tuple[int, int] | None = None) -> None:
        """Take a key away. Raises: BadEntry, and nothing was taken."""
        if type(key) is not bytes:
            raise TypeError("keys and values are bytes")
        self._check(storage, len(key))
        major, minor = self._version(version)
        self._packed.append(codec.remove(storage, key, major, minor))

    def clear_storage(self, storage: int, *, version: tuple[int, int] | None = None) -> None:
        """Every entry of the storage with an older version is gone. Raises: BadEntry."""
        self._about_storage(CLEAR, storage, version)

    def add_storage(self, storage: int, *, version: tuple[int, int] | None = None) -> None:
        """The storage is there, also while it is empty. Raises: BadEntry."""
        self.grows = True
        self._about_storage(ADD, storage, version)

    def remove_storage(self, storage: int, *, version: tuple[int, int] | None = None) -> None:
        """The storage is gone with every entry of an older version. Raises: BadEntry."""
        self._about_storage(DROP, storage, version)

    def change(self, change: Change) -> None:
        """The same by its kind. Raises: BadEntry, and nothing was taken."""
        kind, storage, what = change
        if isinstance(what, list):
            self.put_many(storage, what)
        elif kind == REMOVE:
            self.remove(storage, what)
        else:
            self._about_storage(kind, storage, None)

    def _about_storage(self, kind: int, storage: int, version: tuple[int, int] | None) -> None:
        self._check(storage, 0)
        self._packed.append(codec.about_storage(kind, storage, *self._version(version)))

    def _version(self, version: tuple[int, int] | None) -> tuple[int, int]:
        if version is None:
            return self._next_versions(1)
        self._check_version(version)
        return version

    def _check(self, storage: int, size: int, each: int = 1) -> None:
        if not self._is_open:
            raise BadEntry("the session has ended", hint="begin another one")
        if type(storage) is not int or not 0 <= storage <= MOST:
            raise BadEntry(f"{storage!r} is no storage", hint=f"give a number from 0 to {MOST}")
        if each == 1 and size > LARGEST:
            raise _too_large(size)
        check_session(self.size + size + AROUND * each, self._store.options.max_session_bytes)
        self.size += size + AROUND * each


def check_session(size: int, limit: int) -> None:
    """Raises: BadEntry if a session cannot be as large."""
    if size > limit:
        raise BadEntry(f"the session has more than {limit} bytes", hint="split it, or raise max_session_bytes")


def measured(changes: list[Change], limit: int) -> tuple[int, int]:
    """How many entries they are, all of which can be written, and bytes that they need; none if all of them remove.

    Raises: BadEntry if they are too large; TypeError.
    """
    count, size, largest = packing.measure(changes)
    if largest > LARGEST:
        raise _too_large(largest)
    check_session(size + AROUND * count, limit)
    grows = any(kind in (PUT, ADD) for kind, _, _ in changes)
    return count, size + AROUND * count if grows else 0


def _too_large(size: int) -> BadEntry:
    return BadEntry(f"an entry of {size} bytes is too large: {LARGEST} at most", hint="split it")
