"""Several runs of entries, each in order, read as one: of each place the item with the largest version.

A run is an iterator of columns (columns.py). Merging goes in rounds: everything up to the smallest of the last places
that are at hand can be merged at once, two runs at a time. So the cost of choosing is paid for thousands of entries
together, and a stretch that is in one run only passes as it is.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

from lamina.engines.store import codec, columns
from lamina.engines.store.columns import Columns
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table

Run = Iterator[Columns]
_AT_ONCE: Final = 2048  # entries of a table


def run_of(table: Table, start: bytes = b"", end: bytes | None = None) -> Run:
    """What a table holds. It may take nothing meanwhile."""
    first, last = table.between(start, end)
    for at in range(first, last, _AT_ONCE):
        yield table.columns(at, min(at + _AT_ONCE, last))


def merged(runs: Sequence[Run]) -> Run:
    """All runs as one; of equal versions that of the later run counts."""
    feeds = [Feed(run) for run in runs]
    while True:
        feeds = [feed for feed in feeds if feed.first() is not None]
        if not feeds:
            return
        limit = min(feed.last for feed in feeds)
        pieces = [piece for feed in feeds if (piece := feed.through(limit))[0]]
        while len(pieces) > 1:  # neighbours, so that the later run stays the later one
            pairs = [columns.merge(*pieces[at : at + 2]) for at in range(0, len(pieces) - 1, 2)]
            pieces = [*pairs, *pieces[len(pairs) * 2 :]]
        yield pieces[0]


def culled(run: Run, storages: Storages, boundary: int | None = None) -> Run:
    """Without what clears have made void, and without removes whose major version is at most ``boundary``.

    None: all removes stay.
    """
    cleared = {codec.NUMBER.pack(storage): version for storage, version in storages.cleared.items()}
    limit = b"" if boundary is None else codec.NUMBER.pack(boundary)
    for piece in run:
        left = columns.cull(piece, cleared, limit)
        if left[0]:
            yield left


class Feed:
    """A run that can be looked at before it is taken, piece by piece."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._places: list[bytes] = []
        self._items: list[bytes] = []
        self._at = 0

    def first(self) -> bytes | None:
        """The next place, None at the end."""
        while self._at == len(self._places):
            found = next(self._run, None)
            if found is None:
                return None
            self._places, self._items = found
            self._at = 0
        return self._places[self._at]

    @property
    def last(self) -> bytes:
        """The last place that is at hand; ask for the first one before."""
        return self._places[-1]

    def through(self, limit: bytes) -> Columns:
        """What is at hand up to that place and with it."""
        return self._take(bisect_right(self._places, limit, self._at))

    def before(self, end: bytes | None) -> Run:
        """What is before that place (None: all), leaving the rest."""
        while (first := self.first()) is not None and (end is None or first < end):
            yield self._take(len(self._places) if end is None else bisect_left(self._places, end, self._at))

    def _take(self, until: int) -> Columns:
        start, self._at = self._at, until
        if start == 0 and until == len(self._places):
            return self._places, self._items
        return self._places[start:until], self._items[start:until]
