"""The newest entry of each key, whatever order they are met in, and what is left of them in the end.

Kept small and apart: it holds all keys and values in memory, and a table that spills to disk can take its place.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.engines.store.limestone.entries import (
    CLEAR_STORAGE,
    OLDEST,
    PUT,
    PUT_WITH_BLOBS,
    REMOVE,
    REMOVE_STORAGE,
    Entry,
    Version,
)

Place = tuple[int, bytes]
"""Storage and key."""


class Newest:
    """Of each key the entry with the largest version; of equal ones the one that came later.

    Iterating gives the live entries as (storage, key, value), by storage, then by the bytes of the key.
    """

    def __init__(self) -> None:
        self.entries: dict[Place, Entry] = {}
        """Puts and removes."""
        self.clears: dict[int, Version] = {}
        """Of each storage the newest record that emptied it: only entries of that version or a later one are left."""

    def take(self, entry: Entry) -> None:
        if entry.kind in (PUT, PUT_WITH_BLOBS, REMOVE):
            place = (entry.storage, entry.key)
            known = self.entries.get(place)
            if known is None or known.version <= entry.version:
                self.entries[place] = entry
        elif entry.kind in (CLEAR_STORAGE, REMOVE_STORAGE):
            self.clear(entry.storage, entry.version)

    def clear(self, storage: int, version: Version) -> None:
        self.clears[storage] = max(version, self.clears.get(storage, version))

    def date_baseline(self, place: Place, version: Version) -> None:
        """If the baseline's entry of this key, which lost its version there, is the newest: it is so new at least."""
        known = self.entries.get(place)
        if known is not None and known.version == OLDEST:
            self.entries[place] = known._replace(version=version)

    def is_live(self, entry: Entry) -> bool:
        return entry.kind != REMOVE and entry.version >= self.clears.get(entry.storage, OLDEST)

    def __iter__(self) -> Iterator[tuple[int, bytes, bytes]]:
        for place in sorted(self.entries):
            entry = self.entries[place]
            if self.is_live(entry):
                yield entry.storage, entry.key, entry.value

    def __len__(self) -> int:
        return sum(map(self.is_live, self.entries.values()))

    def blobs(self) -> int:
        """How many references to blobs live entries have."""
        return sum(entry.blobs for entry in self.entries.values() if self.is_live(entry))
