"""PWAL files that a compaction did not see: their older entries must not win over the baseline.

A compaction of limestone takes the files of the channels that its process has. If an earlier process had more, files
stay behind that it neither merges nor names. Merged entries lose their versions (they become (0, 0)) and removes are
dropped, so whatever is in a file left behind looks newer: old values and removed keys come back.

As long as detached files are there the real versions are known from them: of each key the baseline is as new as the
newest entry of it in a snippet that was merged. An entry left behind that is older is outdated and is left out. Without
them nothing can be told; then versions decide as they do for limestone.

A file is looked at for its sessions with an epoch up to the boundary of the compaction. That alone says nothing: epochs
in which nobody wrote are forgotten at a restart, so sessions after it can have such epochs too.
"""

from __future__ import annotations

from lamina.engines.store.limestone.entries import CLEAR_STORAGE, OLDEST, REMOVE_STORAGE, Entry
from lamina.engines.store.limestone.newest import Newest, Place


class Overlooked:
    """Entries of sessions up to the boundary, from files that the catalog does not name.

    Take all of them, then compare with all that was merged, then settle.
    """

    def __init__(self, boundary: int) -> None:
        self._boundary = boundary
        self._left: dict[str, Newest] = {}
        self._lowest: dict[str, int] = {}
        self._places: set[Place] = set()
        self._storages: set[int] = set()
        self._merged = Newest()

    def take(self, name: str, epoch: int, entry: Entry) -> None:
        self._left.setdefault(name, Newest()).take(entry)
        self._lowest[name] = min(epoch, self._lowest.get(name, epoch))
        if entry.kind in (CLEAR_STORAGE, REMOVE_STORAGE):
            self._storages.add(entry.storage)
        else:
            self._places.add((entry.storage, entry.key))

    def compare(self, entry: Entry) -> None:
        """``entry`` is in a snippet of a detached file that was merged."""
        is_clear = entry.kind in (CLEAR_STORAGE, REMOVE_STORAGE)
        if is_clear or entry.storage in self._storages or (entry.storage, entry.key) in self._places:
            self._merged.take(entry)

    def settle(self, newest: Newest) -> list[str]:
        """Give ``newest`` all that is not known to be outdated. Returns what was, by file."""
        for place, merged in self._merged.entries.items():
            newest.date_baseline(place, merged.version)
        losses = []
        for name, left in sorted(self._left.items()):
            outdated = self._settle_file(left, newest)
            # In the epoch of the boundary itself sessions can rightly be before and behind the rotation.
            if outdated and self._lowest[name] < self._boundary:
                losses.append(
                    f"{name}, byte 0: the compaction up to epoch {self._boundary} overlooked this file: {outdated} of "
                    "its entries are older than merged ones and were left out, though limestone itself shows them; "
                    "other keys of it can have been removed since"
                )
        return losses

    def _settle_file(self, left: Newest, newest: Newest) -> int:
        outdated = 0
        merged = self._merged
        for place, entry in left.entries.items():
            known = merged.entries.get(place)
            is_cleared = entry.version < merged.clears.get(entry.storage, OLDEST)
            if is_cleared or (known is not None and entry.version < known.version):
                outdated += 1
            else:
                newest.take(entry)
        for storage, version in left.clears.items():
            if version < merged.clears.get(storage, OLDEST):
                outdated += 1
                continue
            newest.clear(storage, version)
            # Baseline entries that are newer than it have their versions again, and stay.
            outdated += any(place[0] == storage and item.version > version for place, item in merged.entries.items())
        return outdated
