"""The files of a topic as retention sees them: how large, how old, up to which entry, and how many entries.

A sealed file never changes, so what was found out about one is remembered. Nothing here holds the lock of the topic for
longer than it takes to look at numbers.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Final, NamedTuple

from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.finding import Finder, read_piece
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.ranges import IdRanges
from lamina.engines.topics.topic import Topic
from lamina.errors import StorageError
from lamina.log.frame import record_size
from lamina.log.naming import FileName
from lamina.log.reader import Segment
from lamina.log.scan import FileScan
from lamina.log.writer import Log

_MOST_IDS: Final = 4096  # of a file that are remembered


class Stopped(Exception):
    """Whoever asked does not want to know any more."""


class Facts(NamedTuple):
    """Of one file."""

    bytes: int
    records: int
    newest_ns: int
    """When its newest record was written; 0: it has none any more."""
    last_id: EntryId | None
    """Of its newest entry; None: it has none."""
    first_id: EntryId | None = None
    """Of its oldest entry."""
    reach_ns: int = 0
    """How far the log has come in it. It may stand in for records that are gone."""


class Tally(NamedTuple):
    """The entries of one file, deleted and trimmed ones included."""

    entries: int
    every: list[EntryId]
    """The id of the first, and of those behind it that are as far apart as the next says."""
    apart: int
    bytes: int
    """What their records take of the file."""

    def at_most_behind(self, id: EntryId) -> int:
        """Entries past ``id``; a few more may be said."""
        marks = bisect_right(self.every, id)
        return self.entries - ((marks - 1) * self.apart + 1 if marks else 0)

    def at_least_behind(self, id: EntryId) -> int:
        """Entries past ``id``; a few less may be said."""
        return max(self.entries - bisect_right(self.every, id) * self.apart, 0)


class SealedFiles:
    """Of one topic. Threads: one at a time, beside those who use the topic."""

    def __init__(self, topic: Topic) -> None:
        self._topic = topic
        assert isinstance(topic.log, Log)
        self._log = topic.log
        self._reader = topic.log.reader
        self._finder = Finder(self._reader)
        self._sizes: dict[FileName, int] = {}
        self._facts: dict[FileName, Facts] = {}
        self._tallies: dict[FileName, Tally] = {}

    def names(self) -> tuple[list[FileName], FileName | None]:
        """Those that are sealed, oldest first, and the one that grows, if there is one."""
        readable = self._log.readable
        names = self._reader.segments()
        sealed = names if readable is None or readable[1] is None else [name for name in names if name < readable[0]]
        grows = names[len(sealed)] if len(sealed) < len(names) else None
        for gone in self._sizes.keys() - set(names):
            self.forget(gone)
        return sealed, grows

    def forget(self, name: FileName) -> None:
        """It has gone."""
        self._sizes.pop(name, None)
        self._facts.pop(name, None)
        self._tallies.pop(name, None)
        self._reader.forget(name)
        self._finder.end_change()

    def facts(self, name: FileName) -> Facts:
        """Of a sealed file. Raises: Corruption, DiskError."""
        known = self._facts.get(name)
        if known is None:
            known = self._facts[name] = self.look(name)
        return known

    def look(self, name: FileName) -> Facts:
        """The same for any file, as it is now."""
        segment = self._open(name)
        with closing(segment.file):
            index = self._reader.index_of(segment)
            pieces = index.ranges()
            first = last = None
            newest_ns = 0
            for piece in reversed(pieces):
                newest_ns = newest_ns or _newest_record(segment, *piece)
                if found := read_piece(segment, *piece):
                    first, last = found[0].id, found[-1].id
                    break
            for piece in pieces if last is not None else ():
                if found := read_piece(segment, *piece):
                    first = found[0].id
                    break
            return Facts(segment.end, index.records, newest_ns, last, first, index.last_data)

    def size(self) -> int:
        """Of all files together, in bytes. Raises: DiskError."""
        sealed, grows = self.names()
        for name in sealed:
            if name not in self._sizes:
                self._sizes[name] = self._size_of(name)
        return sum(self._sizes.values()) + (0 if grows is None else self._size_of(grows))

    def _size_of(self, name: FileName) -> int:
        segment = self._open(name)
        with closing(segment.file):
            return segment.end

    def tally(self, name: FileName, should_stop: Callable[[], bool]) -> Tally:
        """Of a sealed file, all of which is read for it, once. Raises: Corruption, DiskError; Stopped."""
        known = self._tallies.get(name)
        if known is not None:
            return known
        entries, size, apart, every = 0, 0, 1, list[EntryId]()
        segment = self._open(name)
        with closing(segment.file):
            scan = FileScan(segment.file, end=segment.end)
            for batch in scan:
                if should_stop():
                    raise Stopped
                for number in range(len(batch.times)):
                    id = entry_id(batch.payload(number))
                    if id is not None:
                        if entries % apart == 0:
                            if len(every) == _MOST_IDS:
                                apart *= 2
                                del every[1::2]
                            if entries % apart == 0:
                                every.append(id)
                        entries += 1
                        size += record_size(batch.lengths[number])
            self._reader.check_stop(segment, scan)
        self._tallies[name] = Tally(entries, every, apart, size)
        return self._tallies[name]

    def count(self, after: EntryId, last: EntryId, gone: IdRanges, should_stop: Callable[[], bool]) -> int:
        """Entries past ``after`` and up to ``last`` that are not ``gone``. Raises: Corruption, DiskError; Stopped."""
        count, reached = 0, after if after < last else None
        while reached is not None:
            if should_stop():
                raise Stopped
            some, _, reached = self._finder.records(EntryId(reached + 1), last, sys.maxsize, gone)
            count += len(some)
        return count

    def find(self, wanted: Sequence[EntryId], should_stop: Callable[[], bool]) -> Iterator[EntryId]:
        """Those of the ids, different ones in order, that entries of the files have. Raises: as ``count``."""
        while wanted:
            if should_stop():
                raise Stopped
            found, _, done = self._finder.by_id(wanted)
            yield from [id for id, _, _ in found]
            wanted = wanted[done:]

    def _open(self, name: FileName) -> Segment:
        segment = self._reader.open(name, is_newest=False)
        if segment is None:
            raise StorageError(f"{self._topic.folder}: {name.name} is not there any more", hint="it is tried again")
        return segment


def _newest_record(segment: Segment, start: int, end: int) -> int:
    """When the newest record of a part of a file was written that is no mark of the kernel; 0: there is none."""
    newest = 0
    for batch in FileScan(segment.file, start, end):
        for number in range(len(batch.times) - 1, -1, -1):
            if not segment.format.is_mark(batch.payload(number)):
                newest = batch.times[number]
                break
    return newest
