"""What is known of a topic without reading its entries: a state machine over the records of its log.

No clock, no disk. Live commands and replay go through the same methods, so a restart shows what was there before it.
Ids of entries only ever grow; what is trimmed is always a prefix of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Final

from lamina.engines.topics import codec
from lamina.engines.topics.ids import FIRST, EntryId
from lamina.engines.topics.ranges import IdRanges

_MOST_COUNTED: Final[int] = codec.MOST_COUNTED  # a number of C in the compiled twin


class Counts:
    """What happened to a topic since it was opened. It is no part of the state, and is not built anew with it."""

    def __init__(self) -> None:
        self.added = 0
        self.read = 0
        """Entries that were given out, by whatever read them."""


class Watch:
    """How many of the entries up to an id go from now on."""

    def __init__(self, last: EntryId) -> None:
        self.last = last
        self.gone = 0


class State:
    """Counters and ids of one topic."""

    def __init__(self) -> None:
        self.last_id = FIRST
        self.added = 0
        """Entries that were ever added, up to ``codec.MOST_COUNTED``."""
        self.length = 0
        """Entries that are there: neither deleted nor trimmed."""
        self.max_deleted = FIRST
        self.trimmed_to = FIRST
        """No entry up to this id is there any more."""
        self.let_go_to = FIRST
        """Up to this id retention took entries away."""
        self.deleted = IdRanges()
        """Where entries after ``trimmed_to`` were deleted one by one, and none is alive."""
        self.watch: Watch | None = None
        self.exists = False

    def apply(self, payload: bytes) -> None:
        """Take a record of the log. Raises: BadRecord; then nothing was changed."""
        items = codec.Items(payload)
        kind = items.number()
        if kind == codec.ENTRY:
            self.add(items.id())
        elif kind == codec.DELETED:
            if not items.left or items.left % 2:
                raise codec.BadRecord("no id, or half of one")
            self.delete(sorted([items.id() for _ in range(items.left // 2)]))
        elif kind == codec.TRIMMED:
            id, count = items.id(), items.number()
            is_let_go = bool(items.left) and items.number() == 1
            items.end()
            self.trim(id, count)
            if is_let_go:
                self.let_go_to = id
        elif kind == codec.SET:
            last, added, max_deleted = items.id(), items.number(), items.id()
            items.end()
            self.set(last, added, max_deleted)
        else:
            raise codec.BadRecord(f"a record of the unknown kind {kind}")
        self.exists = True

    def add(self, id: EntryId, count: int = 1) -> None:
        """Entries were added, the last of them under ``id``."""
        self.last_id = id
        self.added += min(count, _MOST_COUNTED - self.added)
        self.length += count
        self.exists = True

    def delete(self, ids: Sequence[EntryId], before: Iterable[EntryId | None] = repeat(None)) -> None:
        """These are there, and in order. ``before``: the entry in front of each, dead or alive; None: nobody knows."""
        self.deleted.add_all(
            [(EntryId(id - 1) if front is None else front, id) for id, front in zip(ids, before, strict=False)]
        )
        if self.watch is not None:
            last = self.watch.last
            self.watch.gone += len([id for id in ids if id <= last])
        self.length -= len(ids)
        self.max_deleted = max(self.max_deleted, ids[-1])

    def trim(self, id: EntryId, count: int) -> None:
        """All up to ``id`` go; ``count`` of them were there."""
        self.trimmed_to = id
        self.length -= count
        self.deleted.forget_to(id)
        if self.watch is not None and id <= self.watch.last:
            self.watch.gone += count

    def set(self, last: EntryId, added: int, max_deleted: EntryId) -> None:
        self.last_id, self.added, self.max_deleted = last, min(added, codec.MOST_COUNTED), max_deleted
        self.exists = True

    def has(self, id: EntryId) -> bool:
        """An entry that was once added under this id is still there."""
        return id > self.trimmed_to and id not in self.deleted
