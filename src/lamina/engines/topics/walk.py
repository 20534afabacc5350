"""The entries of a range as they were at one moment, a piece at a time, for who takes long to take them all.

What is deleted or trimmed meanwhile is still given, what comes is not. Between two pieces nothing is held: neither the
topic, nor its files, nor the entries.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from lamina.engines import loops
from lamina.engines.topics.codec import BadRecord
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.topic import Topic
from lamina.errors import StorageError


class Walk:
    """Threads: one at a time."""

    def __init__(self, topic: Topic, start: EntryId, end: EntryId, most: int | None, *, newest_first: bool) -> None:
        """``most``: no more entries than that."""
        self._topic = topic
        self._newest_first = newest_first
        self._most = sys.maxsize if most is None else most
        with topic.lock:
            state = topic.state
            self._state = state
            first, last = EntryId(state.trimmed_to + 1), state.last_id
            self._length = min(state.length, self._most) if start <= first and end >= last else None
            start, end = max(start, first), min(end, last)
            self._rest = (start, end) if state.length and start <= end and self._most else None
            self._gone = state.deleted.part(EntryId(start - 1), end) if self._rest and state.deleted else None
            self._removed_at = topic.removed_at
            newest = topic.newest_position()
        self._begin = self._rest
        self.position = 0 if self._length is None else newest
        """Of the newest entry that was given so far; an answer waits for it, and for what was taken away before."""
        self.given = 0

    @property
    def is_over(self) -> bool:
        return self._rest is None

    def next(self, enough: int) -> list[bytes]:
        """Some records that come next: it ends when so many bytes were read, and may have found none then.

        Blocks on the disk. Raises: Corruption, DiskError; LogClosed; StorageError if the disk refused entries that were
        to be given.
        """
        if self._rest is None:
            return []
        topic = self._topic
        try:
            with topic.lock:
                topic._check_open()
                if topic.state is not self._state:
                    raise StorageError(
                        f"{topic.folder}: the disk refused entries that were being read", hint="read again"
                    )
                records, at, self._rest = topic._contents.piece_but(
                    self._gone, *self._rest, self._most - self.given, newest_first=self._newest_first, enough=enough
                )
                topic._check_open()
        except BadRecord as error:
            raise topic._cannot_be_read(error) from error
        self.position = max(self.position, at, self._removed_at)
        self.given += len(records)
        if self.given == self._most:
            self._rest = None
        return records

    def count(self, enough: int, should_stop: Callable[[], bool]) -> int | None:
        """How many entries there are in all; None if it had to stop. Then it begins anew.

        Blocks on the disk, unless that is all of the topic; between two pieces others go on. Raises: as ``next``.
        """
        if self._length is not None:
            return self._length
        while not self.is_over:
            if should_stop():
                return None
            self.next(enough)
            loops.make_way()
        count, self.given, self._rest = self.given, 0, self._begin
        return count
