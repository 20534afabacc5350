"""The parts of a catalog as one layer: sorted files whose ranges of keys follow each other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.codec import OLDEST, storage_of
from lamina.engines.store.sorted_file import SortedFile
from lamina.log.files import Files
from lamina.log.teardown import Teardown

_SAMPLE: Final = 64  # places of a part, to know which storages it holds


class Baseline:
    """Threads: safe from any thread."""

    def __init__(self, parts: Sequence[SortedFile]) -> None:
        self.parts = tuple(parts)
        self._firsts = [part.first for part in self.parts]
        self.bytes = sum(part.bytes for part in self.parts)
        self.highest = max((part.highest for part in self.parts), default=OLDEST)

    @classmethod
    def open(cls, files: Files, folder: str, catalog: Catalog, known: Baseline | None = None) -> Baseline:
        """Open the parts that ``known`` has not open already. Raises: Corruption, WrongFormat, DiskError."""
        catalogs.check_parts(files, folder, catalog)
        is_open = {} if known is None else {part.name: part for part in known.parts}
        parts: list[SortedFile] = []
        try:
            for part in catalog.parts:
                parts.append(is_open.get(part.name) or SortedFile.open(files, folder, part.name, part))
        except BaseException:
            for opened in parts:
                if opened.name not in is_open:
                    opened.close()
            raise
        return cls(parts)

    def bytes_of(self, storages: Collection[int]) -> int:
        """How much of it is in these storages, about."""
        if not storages:
            return 0
        size = 0.0
        for part in self.parts:
            if part.entries:
                ends = {storage_of(part.first), storage_of(part.last)}
                seen = ends if len(ends) == 1 else list(map(storage_of, part.sample(_SAMPLE)))
                size += part.bytes * sum(each in storages for each in seen) / len(seen)
        return int(size)

    def may_have(self, place: bytes) -> bool:
        """Without reading: an entry of that place may be in it."""
        at = bisect_right(self._firsts, place) - 1
        return at >= 0 and self.parts[at].may_have(place)

    def find(self, place: bytes) -> bytes | None:
        """Raises: Corruption, DiskError."""
        at = bisect_right(self._firsts, place) - 1
        return self.parts[at].find(place) if at >= 0 else None

    def sample(self, count: int) -> list[bytes]:
        return [place for part in self.parts for place in part.sample(max(count // len(self.parts), 1))]

    def walk(self, start: bytes = b"", end: bytes | None = None) -> Iterator[tuple[bytes, bytes]]:
        """Raises: Corruption, DiskError."""
        for at in range(max(bisect_right(self._firsts, start) - 1, 0), len(self.parts)):
            if end is not None and self._firsts[at] >= end:
                return
            yield from self.parts[at].walk(start, end)

    def close(self) -> None:
        with Teardown("the parts of a store") as teardown:
            for part in self.parts:
                teardown.step(part.close)
