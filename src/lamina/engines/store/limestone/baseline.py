"""The compacted file: one snippet of epoch 0 with puts only, sorted, each of version (0, 0).

It was not synced when the catalog came to name it, so after a power cut it can be short, empty or zeros. What it holds
is nowhere else: then the folder is refused.
"""

from __future__ import annotations

from lamina.engines.store.limestone.entries import NAMES, PUT, PUT_WITH_BLOBS
from lamina.engines.store.limestone.newest import Newest
from lamina.engines.store.limestone.snippets import SnippetScan, State
from lamina.engines.store.limestone.source import Source, damaged


def read_baseline(source: Source, name: str, durable: int, newest: Newest) -> None:
    """Take its entries. Raises: Corruption if it is not whole, as far as that can be told."""
    file = source.open(name)
    try:
        snippets = 0
        before: bytes | None = None
        for snippet, entry in SnippetScan(file, name, durable):
            if entry is None:
                snippets += snippet.state is State.COUNTS
                continue
            if entry.kind not in (PUT, PUT_WITH_BLOBS):
                raise damaged(name, entry.offset, f"{NAMES[entry.kind]}, where only puts can be")
            place = entry.storage.to_bytes(8, "little") + entry.key
            if before is not None and place < before:
                raise damaged(name, entry.offset, "keys are out of order")
            if place != before:  # of entries of one key the first one counts here
                newest.take(entry)
            before = place
        if not snippets:
            raise damaged(name, 0, "the compacted file holds nothing, not even its begin mark")
    finally:
        file.close()
