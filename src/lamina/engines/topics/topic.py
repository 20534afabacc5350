"""One topic: entries in a log, the newest of them in memory too, and what is known of all.

A command returns the position of its record. It must not be answered before the log says that this position has the
level its policy promises (``settle``, ``settled``). What is read may be newer than that as well: reading returns the
position its answer has to wait for.

When the disk refuses a record the state is built again from the log (engines/logged.py).
Threads: every method is safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from lamina.clock import Clock, SystemClock
from lamina.engines.logged import Logged
from lamina.engines.topics import checkpoint, codec, ids
from lamina.engines.topics.finding import Finder, Found
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.tail import MOST_BYTES, Tail
from lamina.errors import BadTopic, LaminaError, StorageError
from lamina.log.commit import Committer
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.formats import TOPIC
from lamina.log.naming import TIMED
from lamina.log.options import LogOptions
from lamina.log.sync import Level, interval
from lamina.log.writer import Log

DEFAULT_OPTIONS = LogOptions(sync=interval(1000))

Entry = tuple[EntryId, list[bytes]]
"""Id and fields: name, value, name, value."""


class Topic(Logged):
    """Open it with ``Topic.open``."""

    def __init__(self, log: Log, files: Files, folder: str, clock: Clock, tail_bytes: int) -> None:
        """Use ``Topic.open``."""
        super().__init__(log, clock)
        self._log = log
        self.folder = folder
        self.waiters: dict[Callable[[], None], None] = {}
        """Called once each when an entry was added, with the lock held; then they are taken off."""
        self._files = files
        self._tail_bytes = tail_bytes
        self._finder = Finder(log.reader)
        self._load()

    @classmethod
    def open(
        cls,
        folder: str,
        *,
        options: LogOptions | None = None,
        files: Files | None = None,
        clock: Clock | None = None,
        committer: Committer | None = None,
        threaded: bool = True,
        tail_bytes: int = MOST_BYTES,
    ) -> Topic:
        """Open a topic, making its folder if need be.

        Raises: what ``Log.open`` does; Corruption for a record that is none of a topic.
        """
        disk, time = files or RealFiles(), clock or SystemClock()
        log = Log.open(
            folder,
            options=options or DEFAULT_OPTIONS,
            family=TIMED,
            format=TOPIC,
            files=disk,
            clock=time,
            committer=committer,
            threaded=threaded,
        )
        try:
            return cls(log, disk, folder, time, tail_bytes)
        except BaseException:
            log.close()
            raise

    def _load(self) -> None:
        self.state, self.checkpointed = checkpoint.load(self._files, self.folder, self._log.reader)
        self.tail = Tail(self.state.last_id, self._tail_bytes)

    def close(self) -> None:
        """Write and sync everything. Raises: what kept records out of the log."""
        with suppress(StorageError):
            self.push()
        with suppress(LaminaError):  # a start without it takes longer, that is all
            self.checkpoint()
        self.log.close()

    # -- adding ------------------------------------------------------------------------------------------------------

    def next_id(self) -> EntryId:
        """The id that an entry gets which comes now. Raises: BadTopic when there is none left."""
        last = self.state.last_id
        if last == ids.LAST:
            raise BadTopic("The stream has exhausted the last possible ID, unable to add more items")
        return max(ids.make(self.clock.now_ns() // 1_000_000, 0), EntryId(last + 1))

    def add(self, fields: Sequence[bytes], id: EntryId | None = None) -> tuple[EntryId, int]:
        """Add an entry. Returns its id and the position of its record.

        Raises: BadTopic if the id is not larger than the last one, or zero.
        """
        with self.lock:
            self._freshen()
            if id is None:
                id = self.next_id()
            elif id <= self.state.last_id:
                text = "must be greater than 0-0" if not id else "is equal or smaller than the target stream top item"
                raise BadTopic(f"The ID specified in XADD {text}")
            record = codec.encode_entry(id, fields)
            position = self._append(record)
            self.state.add(id)
            self.tail.add(id, position, record, self._log.readable_position)
            waiters, self.waiters = self.waiters, {}
            for tell in waiters:
                tell()
            return id, position

    # -- taking away -------------------------------------------------------------------------------------------------

    def delete(self, wanted: Sequence[EntryId]) -> tuple[int, int]:
        """Delete those entries that are there. Returns how many were, and the position."""
        with self.lock:
            self._freshen()
            there = [id for id in dict.fromkeys(wanted) if self.has(id)]
            if not there:
                return 0, 0
            position = self._append(codec.encode_deleted(there))
            self.state.delete(there)
            return len(there), position

    def trim_to(self, id: EntryId, most: int | None = None) -> tuple[int, int]:
        """Let all entries before ``id`` go, at most so many of them. Returns how many went, and the position."""
        with self.lock:
            self._freshen()
            if not id:
                return 0, 0
            return self._trim(self._entries(ids.FIRST, EntryId(id - 1)), most)

    def trim_length(self, length: int, most: int | None = None) -> tuple[int, int]:
        """Keep only the newest ``length`` entries; let at most ``most`` go. Returns how many went, and the position."""
        with self.lock:
            self._freshen()
            excess = max(self.state.length - length, 0)
            if not length and (most is None or most >= excess):
                return self._trim_all() if excess else (0, 0)
            most = excess if most is None else min(most, excess)
            return self._trim(self._entries(ids.FIRST, ids.LAST), most)

    def _trim(self, entries: Iterator[Found], most: int | None) -> tuple[int, int]:
        count, last = 0, ids.FIRST
        for found in islice(entries, most):
            count, last = count + 1, found.id
        if not count:
            return 0, 0
        position = self._append(codec.encode_trimmed(last, count))
        self.state.trim(last, count)
        return count, position

    def _trim_all(self) -> tuple[int, int]:
        count, last = self.state.length, self.state.last_id
        position = self._append(codec.encode_trimmed(last, count))
        self.state.trim(last, count)
        return count, position

    def set_id(self, last: EntryId, added: int | None = None, max_deleted: EntryId | None = None) -> int:
        """Set the last id, and what else is known. Returns the position. The caller checks that it can be so."""
        with self.lock:
            self._freshen()
            added = self.state.added if added is None else added
            max_deleted = self.state.max_deleted if max_deleted is None else max_deleted
            position = self._append(codec.encode_set(last, added, max_deleted))
            self.state.set(last, added, max_deleted)
            return position

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(
        self, start: EntryId, end: EntryId = ids.LAST, count: int | None = None, *, newest_first: bool = False
    ) -> tuple[list[Entry], int]:
        """Entries with ids from ``start`` to ``end``, and the position that their answer has to wait for."""
        with self.lock:
            found = list(islice(self._entries(start, end, newest_first=newest_first), count))
        newest = max((entry.position for entry in found), default=0)
        return [codec.decode_entry(entry.payload) for entry in found], newest

    def has(self, id: EntryId) -> bool:
        with self.lock:
            return any(True for _ in self._entries(id, id))

    def first_id(self) -> EntryId | None:
        """Of the oldest entry that is there."""
        with self.lock:
            return next((found.id for found in self._entries(ids.FIRST, ids.LAST)), None)

    def _entries(self, start: EntryId, end: EntryId, *, newest_first: bool = False) -> Iterator[Found]:
        """Those that are there: from the files what is not in memory any more, the rest from there."""
        state, border = self.state, self.tail.first_id
        start, end = max(start, EntryId(state.trimmed_to + 1)), min(end, state.last_id)
        if start > end or not state.length:
            return
        file_end = min(end, EntryId(border - 1))
        if newest_first:
            yield from (found for found in reversed(self._in_memory(start, end)) if state.has(found.id))
            if start <= file_end:
                yield from (found for found in self._finder.backwards(start, file_end) if state.has(found.id))
            return
        if start <= file_end:
            yield from (found for found in self._finder.entries(start, file_end) if state.has(found.id))
        yield from (found for found in self._in_memory(start, end) if state.has(found.id))

    def _in_memory(self, start: EntryId, end: EntryId) -> list[Found]:
        found, kept = self.tail.between(start, end)
        return [Found(id, *one) for id, one in zip(found, kept, strict=True)]

    # -- the log -----------------------------------------------------------------------------------------------------

    def _freshen(self) -> None:
        """What gathered for long goes to the log first: positions are times."""
        if self.journal.pending and self.journal.is_old(self.clock.now_ns()):
            with suppress(StorageError):
                self.push()

    def rebuild(self) -> None:
        self._load()

    def checkpoint(self) -> None:
        """Keep what is known, so that a start need not read the whole log. Raises: DiskFull, DiskError, LogFailed."""
        with self.lock:
            position = self.all_written()
            if position <= self.checkpointed:
                return
            self._log.wait(position, Level.SYNCED)
            checkpoint.save(self._files, self.folder, self.state, position)
            self.checkpointed = position
