"""One topic: entries in a log, the newest of them in memory too, and what is known of all.

A command returns the position of its record. It must not be answered before the log says that this position has the
level its policy promises (``settle``, ``settled``). What is read may be newer than that as well: reading returns the
position its answer has to wait for.

When the disk refuses a record the state is built again from the log (engines/logged.py).
Threads: every method is safe from any thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from lamina.clock import Clock, SystemClock
from lamina.engines import logged, loops
from lamina.engines.topics import checkpoint, codec, entries, ids
from lamina.engines.topics.contents import Contents
from lamina.engines.topics.entries import Picked
from lamina.engines.topics.finding import check_size
from lamina.engines.topics.front import Front
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.state import Counts, State
from lamina.engines.topics.tail import MOST_BYTES, Tail
from lamina.errors import (
    BadTopic,
    Corruption,
    InputError,
    LaminaError,
    LogClosed,
    RecordTooLarge,
    StorageError,
)
from lamina.log.commit import Committer, FolderSyncs
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.formats import TOPIC
from lamina.log.measured import Measured
from lamina.log.naming import TIMED
from lamina.log.options import LogOptions
from lamina.log.positions import Position
from lamina.log.reserve import Reserve
from lamina.log.sync import Level
from lamina.log.teardown import Teardown
from lamina.log.writer import Log
from lamina.units import KIB

if TYPE_CHECKING:
    from lamina.engines.topics.groups import Groups

_LAST = ids.LAST
_KEPT_AT_START: Final = 16 * KIB  # of the newest entries: most of what is asked for is among them
_QUICK_RECORDS: Final = 200  # to be replayed
_QUICK_BYTES: Final = 256 * KIB
GROUPS = "groups"
"""The folder of its groups' log, in its own."""

Entry = tuple[EntryId, list[bytes]]
"""Id and fields: name, value, name, value."""


class Topic(logged.Logged):
    """Open it with ``Topic.open``."""

    def __init__(
        self, log: Log, files: Files, folder: str, clock: Clock, tail_bytes: int, open_groups: Callable[[Topic], Groups]
    ) -> None:
        """Use ``Topic.open``."""
        super().__init__(log, clock)
        self._log = log
        self._max_payload = log.options.max_payload
        self._open_groups = open_groups
        self._groups: Groups | None = None
        self.folder = folder
        self.waiters: dict[Callable[[], None], None] = {}
        """Called once each when an entry was added, with the lock held; then they are taken off."""
        self._files = files
        self._tail_bytes = tail_bytes
        self._contents = Contents(self, log.reader)
        self.at_work = threading.RLock()
        """Held while a checkpoint is written or files go. Taken before ``lock``, never behind it."""
        self.removal = threading.Lock()
        """Held while a file is removed: building the state must not meet one that is just going. Taken last."""
        self.counts = Counts()
        self._has_no_groups = False  # since it was made, nobody has asked for them
        self.was_used = False
        """Somebody has asked for it since it was last looked at."""
        self.own_references = 0
        """To it, when nobody has it (open_topics.py)."""
        self.is_closing = False
        """Whoever is at work comes to an end."""
        self._is_closed = False
        self._now_ms = -1
        self._first_of_now = ids.FIRST
        """The first id of that millisecond."""
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
        is_covered: bool = False,
        is_new: FolderSyncs | None = None,
    ) -> Topic:
        """Open a topic, making its folder if need be. ``is_covered``, ``is_new``: as ``Log.open``.

        Raises: what ``Log.open`` does; Corruption for a record that is none of a topic.
        """
        disk, time = files or RealFiles(), clock or SystemClock()
        log = Log.open(
            folder,
            options=options or LogOptions(),
            family=TIMED,
            format=TOPIC,
            files=disk,
            clock=time,
            committer=committer,
            threaded=threaded,
            is_covered=is_covered,
            is_new=is_new,
        )

        def open_groups(topic: Topic) -> Groups:
            from lamina.engines.topics.groups import Groups

            return Groups.open(
                topic,
                join(folder, GROUPS),
                options=log.options,
                files=disk,
                clock=time,
                committer=committer,
                threaded=threaded,
                is_covered=is_covered,
            )

        with Teardown(folder) as teardown:
            teardown.later(log.close)
            topic = cls(log, disk, folder, time, tail_bytes, open_groups)
            topic._has_no_groups = is_new is not None
            if is_new is None:
                with suppress(LaminaError):  # who asks for them is told
                    topic.groups  # noqa: B018 - what they have to forget they forget before anything is added
            teardown.cancel()
        return topic

    def _load(self) -> None:
        with self.removal:
            if self._log.is_new and self._log.readable is None:
                known = checkpoint.Loaded(State(), 0, 0)
            else:
                known = checkpoint.load(self._files, self.folder, self._log.reader)
        self.state, self.checkpointed, self.replayed = known
        self._covered = self._log.stats.records, self._log.stats.bytes
        self.tail = Tail(self.state.last_id, self._tail_bytes)
        if self.state.length:
            with suppress(StorageError, codec.BadRecord):  # whoever reads it is told
                self._contents.fill(self.tail, min(_KEPT_AT_START, self._tail_bytes))
        self.removed_at = 0
        """Position of what last took entries away: who does not see them rests on it."""
        self.forget_read()

    def forget_read(self) -> None:
        """What was read from files is read again when it is asked for."""
        self._contents.forget()
        self._front = Front(self.state, self._contents.ids_from)

    @property
    def groups(self) -> Groups:
        """The groups of the topic, opened when they are first asked for. Raises: what opening a log does."""
        if self._groups is None:
            loops.must_wait()
            with self.lock:
                self._groups = self._groups or self._open_groups(self)
                self._groups.reserve = self.reserve
        return self._groups

    def use_reserve(self, reserve: Reserve | None) -> None:
        """Who says whether there is room for what is new; what is acknowledged, deleted or trimmed goes on."""
        self.reserve = reserve
        if self._groups is not None:
            self._groups.reserve = reserve

    def measure_with(self, measured: Measured) -> None:
        """Have what its logs write counted there. For who has just opened it."""
        self._log.stats.measure_with(measured)
        if self._groups is not None:
            self._groups.measure_with(measured)

    @property
    def opened_groups(self) -> Groups | None:
        """The same if somebody has asked for them."""
        return self._groups

    def has_groups(self) -> bool:
        """There is at least one, or it is not known."""
        groups = self._groups
        return bool(groups.state.groups) if groups is not None else not self._has_no_groups

    @property
    def failure(self) -> LaminaError | None:
        """Why its log, or that of its groups, refuses writes, if one does."""
        groups = None if self._groups is None else self._groups.log
        return self._log.failure or (groups.failure if isinstance(groups, Log) else None)

    def close(self, *, is_idle: bool = False) -> None:
        """Write and sync everything. Raises: what kept records out of a log; both are closed all the same.

        ``is_idle``: it may soon be opened again, and many are closed: no sync is made but for what is not synced, and a
        checkpoint is written only where opening it would take long without.
        """
        self.is_closing = True
        if self._groups is not None:
            self._groups.give_up()
        with self.at_work, Teardown(self.folder) as teardown:
            if self._groups is not None:
                teardown.step(partial(self._groups.close, with_mark=not is_idle))
            if not self._is_closed:
                teardown.step(self.all_written)
                if not is_idle or self._takes_long():
                    teardown.try_to(self.checkpoint, "no checkpoint, so the next start takes longer")
            self._is_closed = True  # its folder may soon be that of another topic
            self._contents.forget()
            teardown.step(partial(self._log.close, with_mark=not is_idle))

    def _takes_long(self) -> bool:
        """To open it without a newer checkpoint."""
        stats, (records, bytes) = self._log.stats, self._covered
        return self.replayed + stats.records - records > _QUICK_RECORDS or stats.bytes - bytes > _QUICK_BYTES

    def is_at_rest(self) -> bool:
        """Nobody waits for it, and its logs take what it has. For who alone has it."""
        engines = [self] if self._groups is None else [self, self._groups]
        return not self.waiters and all(each.refusal is None and not each.journal.is_careful for each in engines)

    def let_go_of_parts(self) -> None:
        """It was closed, and nobody has it: give its memory back at once, as parts of it refer to each other."""
        for each in (self, self._groups):
            if each is not None and isinstance(each.log, Log):
                each.log.reader.live = None
        self._contents = self._front = self._groups = None  # type: ignore[assignment]

    def tell_all(self) -> None:
        """Call whoever waits for an entry."""
        with self.lock:
            waiters, self.waiters = self.waiters, {}
            for tell in waiters:
                tell()

    # -- adding ------------------------------------------------------------------------------------------------------

    def next_id(self, now_ns: int = 0) -> EntryId:
        """The id that an entry gets which comes now. Raises: BadTopic when there is none left."""
        now_ms = (now_ns or self.clock.now_ns()) // 1_000_000
        if now_ms != self._now_ms:
            self._now_ms, self._first_of_now = now_ms, ids.make(now_ms, 0)
        last = self.state.last_id
        if last < self._first_of_now:
            return self._first_of_now
        if last == _LAST:
            raise BadTopic("The stream has exhausted the last possible ID, unable to add more items")
        return last + 1  # type: ignore[return-value]  # a call to say that it is an id would cost as much again

    def add(self, fields: Sequence[bytes], id: EntryId | None = None) -> tuple[EntryId, int]:
        """Add an entry. Returns its id and the position of its record.

        Raises: BadTopic if the id is not larger than the last one, or zero.
        """
        with self.lock:
            now_ns = self.clock.now_ns()
            self._freshen(now_ns)
            if id is None:
                id = self.next_id(now_ns)
            elif id <= self.state.last_id:
                text = "must be greater than 0-0" if not id else "is equal or smaller than the target stream top item"
                raise BadTopic(f"The ID specified in XADD {text}")
            if self.reserve is not None:
                size = 0
                for field in fields:
                    size += len(field)
                logged.check_room(self.reserve, size)
            position = self._add(id, fields)
            self._has_grown()
            return id, position

    def add_many(self, many: Sequence[Sequence[bytes]]) -> tuple[list[EntryId], list[int]]:
        """Add entries one behind the other, with ids by the clock. Returns their ids and positions.

        It ends at the first that cannot be added: ``add`` tells why. What was added before may be refused yet, as any.
        """
        added: list[EntryId] = []
        positions: list[int] = []
        with self.lock:
            now_ns = self.clock.now_ns()
            self._freshen(now_ns)
            try:
                if self.reserve is not None:
                    size = 0
                    for fields in many:
                        for field in fields:
                            size += len(field)
                    logged.check_room(self.reserve, size)
                for fields in many:
                    id = self.next_id(now_ns)
                    positions.append(self._add(id, fields))
                    added.append(id)
            except (InputError, StorageError):
                pass
            self._has_grown()
        return added, positions

    def _add(self, id: EntryId, fields: Sequence[bytes]) -> int:
        record = entries.encode(id, fields)
        if len(record) > self._max_payload:
            raise RecordTooLarge(0, len(record), self._max_payload)
        position = self._put(record)
        self.state.add(id)
        self.counts.added += 1
        self.tail.add(id, position, record)
        return position

    def _has_grown(self) -> None:
        loops.has_changed()
        if self.tail.bytes > 2 * self.tail.most_bytes:
            self.tail.forget(self._log.readable_position)
        if self.waiters:
            self.tell_all()

    # -- taking away -------------------------------------------------------------------------------------------------

    def delete(self, wanted: Sequence[EntryId]) -> tuple[int, int]:
        """Delete those entries that are there. Returns how many were, and the position."""
        with self.lock:
            self._freshen()
            found, _ = self.fetch(ids.different(wanted))
            if not found:
                return 0, 0
            there = [id for id, _, _ in found]
            position = self.removed_at = self._append(codec.encode_deleted(there))
            self.state.delete(there, [before for _, _, before in found])
            return len(there), position

    def trim_to(self, id: EntryId, most: int | None = None, by: int = 1) -> tuple[int, int]:
        """Let all entries before ``id`` go, at most so many of them, and a multiple of ``by`` unless none is left.
        Returns how many went, and the position.
        """
        with self.lock:
            self._freshen()
            return self._trim(*self._front.take(most, id, by))

    def edge(self, count: int) -> EntryId | None:
        """The id of the so-maniest of the oldest entries; None: there are fewer. It is quick as long as none goes."""
        with self.lock:
            if self.state.length != count:
                return self._front.edge(count)
            newest, _ = self.looked_at(ids.FIRST, ids.LAST, 1, newest_first=True)  # in memory, where it was just added
            return entries.entry_id(newest[0]) if newest else None

    def trim_length(self, length: int, most: int | None = None) -> tuple[int, int]:
        """Keep only the newest ``length`` entries; let at most ``most`` go. Returns how many went, and the position."""
        with self.lock:
            self._freshen()
            excess = max(self.state.length - length, 0)
            if not length and (most is None or most >= excess):
                return self._trim_all() if excess else (0, 0)
            most = excess if most is None else min(most, excess)
            kept = self.state.length - most
            if kept < most:  # found sooner from the other end
                return self._trim(self._contents.newest_but(kept), most)
            return self._trim(*self._front.take(most))

    def can_trim_at_once(self, most: int | None, before: EntryId | None = None) -> bool:
        """Letting so many of the oldest entries go, or all before an id, needs no file."""
        with self.lock:
            state = self.state
            oldest = state.deleted.next_outside(EntryId(state.trimmed_to + 1))
            return oldest >= self.tail.first_id or self._front.knows(most, before)

    def _trim(self, last: EntryId, count: int) -> tuple[int, int]:
        if not count:
            return 0, 0
        try:
            position = self.removed_at = self._append(codec.encode_trimmed(last, count))
        except StorageError:
            self._front.forget()
            raise
        self.state.trim(last, count)
        return count, position

    def _trim_all(self) -> tuple[int, int]:
        return self._trim(self.state.last_id, self.state.length)

    def let_go(self, last: EntryId, alive: int) -> tuple[int, int]:
        """Trim all up to ``last``, so that files which hold no more than that can go: what is known is written, too.

        ``alive``: so many entries of those are there. The caller holds the lock since it knows that. Returns how many
        went, and the position.
        """
        state = self.state
        border = max(state.trimmed_to, last)
        # Invariant: what goes was there.
        assert 0 <= alive <= state.length
        known = codec.encode_set(state.last_id, state.added, state.max_deleted)
        trimmed = codec.encode_trimmed(border, alive, is_let_go=alive > 0)
        position = self.removed_at = self._append(known, before=trimmed)
        self.state.trim(border, alive)
        if alive:
            self.state.let_go_to = border
        return alive, position

    def set_id(self, last: EntryId, added: int | None = None, max_deleted: EntryId | None = None) -> int:
        """Set the last id, and what else is known. Returns the position. The caller checks that it can be so.

        Raises: BadTopic if ``added`` leaves no room to count on.
        """
        if added is not None:
            codec.check_counted(added, "ENTRIESADDED")
        with self.lock:
            self._freshen()
            added = self.state.added if added is None else added
            max_deleted = self.state.max_deleted if max_deleted is None else max_deleted
            position = self._append(codec.encode_set(last, added, max_deleted))
            self.state.set(last, added, max_deleted)
            # What comes now may have smaller ids than what was the last one: it is in memory all the same.
            self.tail.first_id = min(self.tail.first_id, EntryId(last + 1))
            return position

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(
        self, start: EntryId, end: EntryId = ids.LAST, count: int | None = None, *, newest_first: bool = False
    ) -> tuple[list[Entry], int]:
        """Entries with ids from ``start`` to ``end``, and the position that their answer has to wait for."""
        records, position = self.records(start, end, count, newest_first=newest_first)
        try:
            return [entries.decode(record) for record in records], position
        except codec.BadRecord as error:
            raise self._cannot_be_read(error) from error

    def records(
        self, start: EntryId, end: EntryId = ids.LAST, count: int | None = None, *, newest_first: bool = False
    ) -> tuple[list[bytes], int]:
        """The same as they are in the log."""
        found, position = self.looked_at(start, end, count, newest_first=newest_first)
        self.counts.read += len(found)
        return found, position

    def looked_at(
        self, start: EntryId, end: EntryId = ids.LAST, count: int | None = None, *, newest_first: bool = False
    ) -> tuple[list[bytes], int]:
        """The same for who only looks: it is not counted as read.

        Much is read in pieces: unless the caller holds the lock, others may go on in between. What they take away is
        not shown then; of what they add, what comes behind the place that was reached.
        """
        found, position, _ = self.first(start, end, count, newest_first=newest_first)
        return found, position

    def first(
        self,
        start: EntryId,
        end: EntryId = ids.LAST,
        count: int | None = None,
        *,
        newest_first: bool = False,
        enough: int = sys.maxsize,
    ) -> tuple[list[bytes], int, bool]:
        """The same, no more than it takes to have ``enough`` bytes of entries. The third says whether that is all."""
        most = sys.maxsize if count is None else count
        found: list[bytes] = []
        position = size = 0
        known = None
        try:
            while True:
                with self.lock:
                    if known is not None and known != (self.state, self.removed_at):
                        found = [record for record in found if self._has_record(record)]
                    known = self.state, self.removed_at
                    piece, at, rest = self._contents.piece(
                        start, end, most - len(found), newest_first=newest_first, enough=enough
                    )
                found += piece
                position = max(position, at, known[1])
                size += sum(map(len, piece))
                check_size(size)
                if rest is None or size >= enough:
                    break
                start, end = rest
                loops.make_way()
            self._check_open()
        except codec.BadRecord as error:
            raise self._cannot_be_read(error) from error
        return found, position, rest is None

    def fetch(self, wanted: Sequence[EntryId]) -> tuple[list[Picked], int]:
        """Those of the entries that are there, in order, and the position that showing them has to wait for. ``wanted``
        are different ids in order. Many are read in pieces as well.
        """
        found: list[Picked] = []
        position = size = 0
        try:
            while wanted:
                with self.lock:
                    piece, at, done = self._contents.by_id(wanted)
                    position = max(position, at, self.removed_at)
                found += piece
                size += sum([len(record) for _, record, _ in piece])
                check_size(size)
                wanted = wanted[done:]
                if wanted:
                    loops.make_way()
            self._check_open()
        except codec.BadRecord as error:
            raise self._cannot_be_read(error) from error
        return found, position

    def _check_open(self) -> None:
        """Behind reading. Raises: LogClosed if the topic was closed meanwhile: its files may have been elsewhere."""
        if self._is_closed:
            raise LogClosed(f"{self.folder}: the topic was closed", hint="open it again")

    def _has_record(self, record: bytes) -> bool:
        id = entries.entry_id(record)
        return id is not None and self.state.has(id)

    def _cannot_be_read(self, error: codec.BadRecord) -> Corruption:
        return Corruption(self.folder, 0, f"an entry of this topic cannot be read: {error}")

    def has(self, id: EntryId) -> bool:
        return bool(self.fetch([id])[0])

    def first_id(self) -> EntryId | None:
        """Of the oldest entry that is there."""
        with self.lock:
            return self._front.first()

    def next_id_from(self, start: EntryId) -> EntryId | None:
        """Of the first entry that is there at ``start`` or behind it. It may have to be looked for in a file."""
        with self.lock:
            return next(iter(self._contents.ids_from(start, 1)), None)

    # -- the log -----------------------------------------------------------------------------------------------------

    def _freshen(self, now_ns: int = 0) -> None:
        """What gathered for long goes to the log first: positions are times."""
        if self.refusal is not None or (self.journal.pending and self.journal.is_old(now_ns or self.clock.now_ns())):
            with suppress(StorageError):
                self.push()

    def rebuild(self) -> None:
        self._load()
        if self._groups is not None:  # before the log goes on: ids that were lost may come again
            self._groups.go_back()

    def sync(self, position: int) -> None:
        """Return when all up to ``position`` is synced, whatever the policy. Raises: DiskFull, DiskError, LogFailed.

        Nothing of the topic waits meanwhile.
        """
        self.push()
        try:
            self._log.wait(Position(position), Level.SYNCED)
        except LaminaError as error:
            self.undo_refused(error)
            raise

    def checkpoint(self) -> None:
        """Keep what is known, so that a start need not read the whole log. Raises: DiskFull, DiskError, LogFailed."""
        with self.at_work:
            if self._is_closed:
                return
            with self.lock:
                position = self.handed_over()
                if position <= self.checkpointed:
                    return
                known = checkpoint.copy_of(self.state)
                covered = self._log.stats.records, self._log.stats.bytes
            self.sync(position)
            checkpoint.save(self._files, self.folder, known, position)
            self.checkpointed, self.replayed = position, 0
            self._covered = covered
