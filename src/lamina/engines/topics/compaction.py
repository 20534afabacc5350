"""Sealed files of a topic written anew without what is dead, so that one entry that stays keeps only itself.

What is dead: entries that were deleted or trimmed; what said so, once no older file has the entry; and what was known
of the topic when the newest of it is written behind all of them. Which files: those of which at least half is dead,
where that is worth it, and those in which nothing is alive. A file with nothing left in it goes, and the one before
stands in for it: it says that the log reached so far (log/rewrite.py), as of files named by time none may be missing
between two others. Where that one is large, the first of them stays as a stub for all.

How, so that the log gives the same whenever the power is cut, with a checkpoint or without one:

    1 write the new file under another name         3 sync that, and keep a checkpoint
    2 write what is known of the topic, and that    4 put the new file in place, synced
      files are without what was dead by then       5 remove those that it stands in for, one by one

From the oldest file on, so that a deletion is dropped only when its entry has gone. A cut behind 4 leaves files that
say nothing: they go the next time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Final, NamedTuple

from lamina.engines.topics import checkpoint, codec
from lamina.engines.topics.codec import BadRecord, Items
from lamina.engines.topics.entries import entry_id
from lamina.engines.topics.ids import FIRST, LAST, EntryId
from lamina.engines.topics.ranges import IdRanges, Range
from lamina.engines.topics.sealed import Facts, SealedFiles, Stopped
from lamina.engines.topics.state import State
from lamina.engines.topics.topic import Topic
from lamina.errors import DiskFull
from lamina.log import rewrite
from lamina.log.files import join
from lamina.log.naming import TIMED, FileName
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading
from lamina.log.writer import Log
from lamina.units import KIB, MIB

LEAST: Final = 64 * KIB
"""A file with something alive in it is not written anew below this."""
_SMALL: Final = MIB  # a file that is written anew to stand in for others, whatever is alive in it
_SYNC_EVERY: Final = 4 * MIB
_AT_ONCE: Final = 50_000  # deleted ids that are looked for in older files together
_RANGES: Final = 1000  # that are forgotten at a time
_RECORDS: Final = 4096  # between two looks whether to stop


class Waste(NamedTuple):
    """A sealed file that is worth it, and what was dead when that was found."""

    name: FileName
    facts: Facts
    floor: EntryId
    """Ids of older files are not past this one."""
    since_ns: int
    """The newest record by then: what was deleted or trimmed later is taken to be alive."""
    trimmed_to: EntryId
    gone: IdRanges
    is_dead: bool
    """No entry of it was alive."""
    bytes: int
    """What could be freed, about."""

    def drops(self, id: EntryId) -> bool:
        """The entry with this id, if it is in this file, goes with what is dead."""
        last = self.facts.last_id
        return last is not None and self.floor < id <= last and self._is_dead(id)

    def _is_dead(self, id: EntryId) -> bool:
        return id <= self.trimmed_to or id in self.gone


class Compacted(NamedTuple):
    """What was done."""

    rewritten: int = 0
    removed: int = 0
    bytes: int = 0
    """That were given back."""


@dataclass(slots=True)
class _Run:
    """Files that become one: the first with what is left of it, the others have nothing left."""

    name: FileName
    facts: Facts
    waste: Waste | None = None
    """None: all of it stays."""
    needed: set[EntryId] = field(default_factory=set)
    """Ids of deletions that are needed, as older files have the entries."""
    empty: list[Waste] = field(default_factory=list)

    def drops(self, id: EntryId) -> bool:
        wastes = [*self.empty, *([] if self.waste is None else [self.waste])]
        return any(waste.drops(id) for waste in wastes)


class Compaction:
    """Of one topic. Threads: one at a time has ``topic.at_work``, beside those who use the topic."""

    def __init__(self, topic: Topic, files: SealedFiles) -> None:
        self._topic = topic
        self._files = files
        self._state: State | None = None
        self._seen: tuple[int, EntryId, Sequence[FileName]] | None = None
        self._wastes: dict[FileName, Waste] = {}
        self._tried: dict[FileName, int] = {}
        """Files of which it turned out that less is dead than it seemed, and how much that was."""
        self._fronts: dict[FileName, EntryId] = {}
        """Of files with dead entries in front, the first behind those when it was last looked."""

    # -- deciding ----------------------------------------------------------------------------------------------------

    def wastes(self, should_stop: Callable[[], bool], *, keeps_past: bool = False) -> list[Waste]:
        """Files that are worth it, oldest first. ``keeps_past``: as they were when that was first found.

        One that is being emptied from its front is left alone until that rests, or is done: it would be for nothing.
        Reads a file once at most, and only if much in it was deleted. Raises: Corruption, DiskError; Stopped.
        """
        topic = self._topic
        sealed, _ = self._files.names()
        with topic.lock:
            state = topic.state
            if state is not self._state:
                self._state, self._seen = state, None
                self._wastes.clear()
                self._tried.clear()
            seen = topic.removed_at, state.trimmed_to, sealed
            if seen == self._seen:
                return list(self._wastes.values())
            known, since_ns = checkpoint.copy_of(state), self.newest_ns()
        fronts, self._fronts = self._fronts, {}
        found: dict[FileName, Waste] = {}
        floor, newest_dead = FIRST, max(known.deleted.last() or FIRST, known.trimmed_to)
        for name in sealed if newest_dead else ():
            if should_stop():
                raise Stopped
            if floor > newest_dead:
                break  # all behind it is alive
            facts = self._files.facts(name)
            former = self._wastes.get(name) if keeps_past else None
            waste = former or self._waste(name, facts, floor, known, since_ns, fronts, should_stop)
            if waste is not None:
                found[name] = waste
            floor = max(floor, facts.last_id or FIRST)
        self._wastes = found
        self._seen = seen if fronts == self._fronts else None
        return list(found.values())

    def newest_ns(self) -> int:
        """Time of the newest record: what is dead died by then."""
        return self._topic.newest_position() or self._log.written

    def _waste(
        self,
        name: FileName,
        facts: Facts,
        floor: EntryId,
        known: State,
        since_ns: int,
        fronts: Mapping[FileName, EntryId],
        should_stop: Callable[[], bool],
    ) -> Waste | None:
        first, last, deleted = facts.first_id, facts.last_id, known.deleted
        if first is None or last is None:
            is_dead, freed = True, facts.bytes
        else:
            front = deleted.next_outside(EntryId(max(first, known.trimmed_to + 1)))
            is_dead, freed = front > last, facts.bytes
            if not is_dead:
                self._fronts[name] = front
                if facts.bytes < LEAST or (front != first and fronts.get(name) != front):
                    return None
                freed = self._freed(name, facts, front, deleted, should_stop)
                if freed * 2 < facts.bytes:
                    return None
        if freed - self._tried.get(name, -facts.bytes) < facts.bytes // 8:
            return None
        gone = IdRanges() if first is None or last is None else deleted.part(EntryId(first - 1), last)
        return Waste(name, facts, floor, since_ns, known.trimmed_to, gone, is_dead, freed)

    def _freed(
        self,
        name: FileName,
        facts: Facts,
        front: EntryId,
        deleted: IdRanges,
        should_stop: Callable[[], bool],
    ) -> int:
        """Bytes of a file that may be dead: of its entries, and of other records. None before ``front`` is alive."""
        assert facts.last_id is not None
        until = deleted.last_outside(facts.last_id)  # none past it is
        between = deleted.between(EntryId(front - 1), until)
        if between * 4 < facts.records and front == facts.first_id and until == facts.last_id:
            return 0  # not worth reading it
        tally = self._files.tally(name, should_stop)
        before = tally.entries - tally.at_most_behind(EntryId(front - 1))
        dead = min(before + between + tally.at_least_behind(until), tally.entries)
        return facts.bytes - tally.bytes + tally.bytes * dead // max(tally.entries, 1)

    # -- doing it ----------------------------------------------------------------------------------------------------

    def compact(self, wastes: Iterable[Waste], should_stop: Callable[[], bool]) -> Compacted:
        """Write these files anew, all of which ``wastes`` gave. Asked to stop, it has done some of them.

        Raises: Corruption, DiskFull, DiskError, LogFailed; Stopped. What was done before is right then.
        """
        by_name = {waste.name: waste for waste in wastes}
        if not by_name:
            return Compacted()
        time_ns = max(waste.since_ns for waste in by_name.values())
        total = Compacted()
        run: _Run | None = None
        sealed, _ = self._files.names()
        for name in sealed:
            if should_stop():
                raise Stopped
            waste = by_name.get(name)
            if waste is None:
                total = self._finish(run, time_ns, total, should_stop)
                facts = self._files.facts(name)
                run = _Run(name, facts) if facts.bytes <= _SMALL else None
                continue
            needed = self._needed(waste, run, should_stop)
            if run is not None and waste.is_dead and not needed:
                run.empty.append(waste)
                continue
            if run is not None:
                total = self._finish(run, time_ns, total, should_stop)
                needed = self._needed(waste, None, should_stop)  # it may not have been worth it
            run = _Run(name, waste.facts, waste, needed)
        total = self._finish(run, time_ns, total, should_stop)
        if total.rewritten:
            self._tried.clear()  # what was needed for entries that are gone now may go, too
            self._seen = None
        return total

    def _needed(self, waste: Waste, run: _Run | None, should_stop: Callable[[], bool]) -> set[EntryId]:
        """Ids that the deletions in a file tell of, and that older files still have when ``run`` is done."""
        needed: set[EntryId] = set()
        if waste.floor <= waste.trimmed_to:
            return needed  # there is nothing in older files
        wanted: set[EntryId] = set()

        def look() -> None:
            found = self._files.find(sorted(wanted), should_stop)
            needed.update(id for id in found if run is None or not run.drops(id))
            wanted.clear()

        with closing(open_for_reading(self._log.reader.files, self._topic.folder, waste.name.name)) as file:
            scan = FileScan(file)
            for batch in scan:
                if should_stop():
                    raise Stopped
                for number, offset in enumerate(batch.offsets):
                    if _kind(batch.data, offset, batch.lengths[number]) != codec.DELETED:
                        continue
                    for id in _deleted_ids(batch.payload(number)):
                        if waste.trimmed_to < id <= waste.floor:
                            wanted.add(id)
                    if len(wanted) >= _AT_ONCE:
                        look()
            look()
        return needed

    def _finish(self, run: _Run | None, time_ns: int, total: Compacted, should_stop: Callable[[], bool]) -> Compacted:
        """Have the files of a run become one."""
        if run is None or (run.waste is None and not run.empty):
            return total
        if not run.empty and not run.facts.newest_ns:
            return total  # a stub already
        files, folder, name = self._log.reader.files, self._topic.folder, run.name
        staged = join(folder, name.name + TIMED.temporary_suffix)
        reach = max([run.facts.reach_ns, *(waste.facts.reach_ns for waste in run.empty)])
        try:
            report = rewrite.stage_without(
                files,
                folder,
                name,
                TIMED,
                self._keeps(run, time_ns, should_stop),
                staged,
                self._log.options.max_payload,
                reach_ns=reach,
                sync_every=_SYNC_EVERY,
            )
            is_worth_it = bool(run.empty) or report.bytes_after * 2 <= report.bytes_before
            if not is_worth_it or should_stop() or not self._announce(time_ns):
                self._discard(staged)
                if is_worth_it:
                    raise Stopped
                assert run.waste is not None
                self._tried[name] = run.waste.bytes
                self._wastes.pop(name, None)
                return total
            self._put_in_place(run, report, staged)
        except BaseException:
            self._discard(staged)
            raise
        self._forget(run)
        freed = report.bytes_before - report.bytes_after + sum(waste.facts.bytes for waste in run.empty)
        return Compacted(total.rewritten + 1, total.removed + len(run.empty), total.bytes + freed)

    def _keeps(self, run: _Run, time_ns: int, should_stop: Callable[[], bool]) -> Callable[[int, bytes], bool]:
        """What decides about the records of the first file of a run."""
        waste, needed = run.waste, run.needed
        if waste is None:
            return lambda time_ns, payload: True
        let_go_to, numbers = self._topic.state.let_go_to, count(1)
        floor, last, trimmed_to, gone = waste.floor, waste.facts.last_id or FIRST, waste.trimmed_to, waste.gone

        def keeps(_: int, payload: bytes) -> bool:
            if next(numbers) % _RECORDS == 0 and should_stop():
                raise Stopped
            try:
                id = entry_id(payload)
                if id is not None:
                    return not (floor < id <= last and (id <= trimmed_to or id in gone))  # as ``Waste.drops``
                items = Items(payload)
                kind = items.number()
                if kind == codec.DELETED:
                    return bool(needed) and not needed.isdisjoint(_deleted_ids(payload))
                if kind == codec.TRIMMED:
                    id, note = items.id(), codec.trim_note(payload)
                    return note > time_ns or (note == codec.LET_GO and id == let_go_to)
            except BadRecord:
                return True  # told by who reads it
            return kind != codec.SET

        return keeps

    def _announce(self, time_ns: int) -> bool:
        """Write what is known, so that the log can do without the records that go.

        Durability: when it returns, that is synced, and so is all that was taken to be dead. False: it may not be any
        more, as the disk refused it.
        """
        topic = self._topic
        with topic.lock:
            topic.push()
            state = topic.state
            if state is not self._state:
                return False
            known = codec.encode_set(state.last_id, state.added, state.max_deleted)
            position = topic._append(known, before=codec.encode_compacted(state.trimmed_to, time_ns))
        topic.sync(position)
        with suppress(DiskFull):  # a start without it takes longer
            topic.checkpoint()
        return topic.state is state

    def _put_in_place(self, run: _Run, report: rewrite.RewriteReport, staged: str) -> None:
        topic, files = self._topic, self._log.reader.files
        finder = topic._contents.finder
        newest = self._log.reader.segments()[-1]
        # Invariant: what was written instead is in a newer file.
        assert all(name < newest for name in (run.name, *(waste.name for waste in run.empty)))
        with topic.lock:
            finder.begin_change()
        try:
            rewrite.commit_staged(files, topic.folder, run.name, report, staged)
        finally:
            # Whoever reads holds the lock: from here on nobody reads what was in place before, nor what is to go.
            with topic.lock:
                finder.end_change(waste.name for waste in run.empty)
        self._files.forget(run.name)
        try:
            for waste in run.empty:
                with topic.removal:
                    rewrite.remove(files, topic.folder, [waste.name.name])
                self._files.forget(waste.name)
        finally:
            with topic.lock:
                finder.end_change()

    def _forget(self, run: _Run) -> None:
        """No file has the entries any more: nor need it be known that they are dead."""
        for waste in [*run.empty, *([] if run.waste is None else [run.waste])]:
            self._wastes.pop(waste.name, None)
            self._tried.pop(waste.name, None)
            last = waste.facts.last_id
            pairs = zip(waste.gone.packed(), waste.gone, strict=True)
            whole = [pair for pair in pairs if pair[1].after >= waste.floor and pair[1].last <= (last or FIRST)]
            for at in range(0, len(whole), _RANGES):
                self._forget_ranges(whole[at : at + _RANGES])

    def _forget_ranges(self, ranges: Sequence[tuple[bytes, Range]]) -> None:
        topic = self._topic
        with topic.lock:
            groups = topic.opened_groups
            if topic.state is not self._state or groups is None:
                return
            pending = [group.pending for group in groups.state.groups.values()]
            # Whoever remembers an entry asks by these ranges whether it is there.
            topic.forget_read()
            topic.state.deleted.discard(
                packed
                for packed, (after, last, _) in ranges
                if last < topic.tail.first_id
                and all(next(each.keys(EntryId(after + 1)), LAST) > last for each in pending)
            )

    def _discard(self, staged: str) -> None:
        with suppress(OSError):
            self._log.reader.files.remove(staged)

    @property
    def _log(self) -> Log:
        assert isinstance(self._topic.log, Log)
        return self._topic.log


def _kind(data: memoryview, offset: int, length: int) -> int:
    """Of a record: its first item, behind the head of an array. -1: it is none of a topic."""
    head = data[offset] if length else 0
    at = 1 if head & 0xF0 == 0x90 else 3 if head == 0xDC else 5
    return data[offset + at] if at < length else -1


def _deleted_ids(payload: bytes) -> list[EntryId]:
    """Of a record that tells of deletions; none for any other. Raises: BadRecord."""
    items = Items(payload)
    if items.number() != codec.DELETED:
        return []
    return [items.id() for _ in range(items.left // 2)]
