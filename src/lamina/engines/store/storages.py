"""What is said of whole storages: cleared up to which version, there or not."""

from __future__ import annotations

from lamina.engines.store.codec import ADD, CLEAR


class Storages:
    """The newest word on each. Threads: one at a time."""

    def __init__(self) -> None:
        self.cleared: dict[int, bytes] = {}
        """Entries of the storage with a version below this one are gone."""
        self.there: dict[int, tuple[bytes, bool]] = {}
        """Version of the newest add or drop, and whether it was an add."""

    def take(self, kind: int, storage: int, version: bytes) -> None:
        if kind != ADD and version > self.cleared.get(storage, b""):
            self.cleared[storage] = version
        if kind != CLEAR:
            before = self.there.get(storage)
            if before is None or version >= before[0]:
                self.there[storage] = version, kind == ADD

    def add(self, other: Storages) -> None:
        """Take over what ``other`` knows."""
        for storage, version in other.cleared.items():
            self.take(CLEAR, storage, version)
        for storage, (version, is_there) in other.there.items():
            before = self.there.get(storage)
            if before is None or version >= before[0]:
                self.there[storage] = version, is_there

    def copy(self) -> Storages:
        twin = Storages()
        twin.cleared, twin.there = dict(self.cleared), dict(self.there)
        return twin

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Storages) and (self.cleared, self.there) == (other.cleared, other.there)

    __hash__ = None  # type: ignore[assignment]
