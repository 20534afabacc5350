"""PWAL files that the catalog names as contained in the baseline: what is not, and what shows that data was lost.

A compaction renames files while sessions of later epochs can be open on them. Such a session still goes into the
renamed file, which the catalog names DETACHED all the same, so limestone never reads it again. Snippets of epochs above
the boundary (MAX_EPOCH_ID) are therefore looked for here:

    begin mark, whole     the session was committed and is in no other file: taken back
    void begin mark       the compaction met the session half written and marked it as not durable; when its epoch
                          became durable later, its entries were lost: a loss

Void snippets elsewhere are no loss. Opening a folder marks what was not durable after a crash, and records the epochs
of what it marked as durable afterwards; a compaction that comes later has a boundary that is not below them. So above
the boundary, in a detached file, only the compaction itself can have marked. A void session without an end mark (since
format 6) was not acknowledged either: its process ended in the middle of it.

One doubt stays: if the process died between the end of the session and the recording of its epoch, and the number of
the epoch was used again, the session was never promised. That looks the same.

Nothing else in these files is needed, so damage in them is told but refuses nothing.
"""

from __future__ import annotations

from lamina.engines.store.limestone.entries import Entry
from lamina.engines.store.limestone.manifest import END_MARKS_SINCE
from lamina.engines.store.limestone.newest import Newest
from lamina.engines.store.limestone.overlooked import Overlooked
from lamina.engines.store.limestone.snippets import Snippet, SnippetScan, State
from lamina.engines.store.limestone.source import Source
from lamina.errors import Corruption


class DetachedFiles:
    """Reads them one by one."""

    def __init__(
        self,
        source: Source,
        *,
        boundary: int,
        durable: int,
        format_version: int,
        newest: Newest,
        overlooked: Overlooked,
    ) -> None:
        self._source = source
        self._boundary = boundary
        self._durable = durable
        self._has_end_marks = format_version >= END_MARKS_SINCE
        self._newest = newest
        self._overlooked = overlooked
        self.repairs: list[str] = []
        self.losses: list[str] = []
        self.max_epoch = 0

    def read(self, name: str) -> None:
        """Raises: DiskError."""
        file = self._source.open(name)
        scan = SnippetScan(file, name, self._durable)
        held: list[Entry] = []  # a session counts when it is seen to be whole
        try:
            for snippet, entry in scan:
                if entry is None:
                    self._close(name, snippet, held)
                    held.clear()
                elif snippet.epoch > self._boundary:
                    held.append(entry)
                else:
                    self._overlooked.compare(entry)
        except Corruption as damage:
            self.repairs.append(
                f"{name}, byte {damage.offset}: {damage.reason}: the rest was not read; the compaction up to epoch "
                f"{self._boundary} had merged this file"
            )
        finally:
            file.close()
        self.max_epoch = max(self.max_epoch, scan.max_epoch)

    def _close(self, name: str, snippet: Snippet, held: list[Entry]) -> None:
        if not self._boundary < snippet.epoch <= self._durable or not snippet.entries:
            return
        where = f"{name}, byte {snippet.offset}: the session of epoch {snippet.epoch}"
        is_whole = snippet.is_ended or not self._has_end_marks
        if snippet.state is State.VOID:
            if is_whole:
                self.losses.append(
                    f"{where} was marked void by the compaction up to epoch {self._boundary}, but its epoch became "
                    f"durable: its {snippet.entries} entries are lost"
                )
        elif is_whole:
            for entry in held:
                self._newest.take(entry)
            self.repairs.append(
                f"{where} is above the compaction up to epoch {self._boundary}, which set its file aside: its "
                f"{snippet.entries} entries were taken back"
            )
        else:
            self.repairs.append(f"{where} never came to its end: left out")
