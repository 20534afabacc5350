"""Compaction: rotated files and the parts of the store become new parts.

The places of all parts lie in order, and each part owns those from its first one up to the first one of the next. Where
nothing new falls into its range, and no clear concerns it, a part is kept as it is. What is rewritten is cut into parts
anew, across the borders of neighbours that are rewritten too: a part ends with the record that brings it to its size,
or where a part follows that is kept. A small one that follows an open one is not kept but taken along. So where parts
are cut follows from the sizes of the records alone, whoever does the work (pipeline/compaction).

Entries that a newer one of the same key or a clear has made void are left out. So are removes and clears up to the
boundary: everything older is here, and the store takes nothing older any more.

Nothing that is there is changed, and nothing counts before a catalog names it, which is the caller's to write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import codec, compaction_progress
from lamina.engines.store.catalog import Part
from lamina.engines.store.columns import Columns
from lamina.engines.store.compaction_progress import Done
from lamina.engines.store.compaction_task import Outcome as Outcome
from lamina.engines.store.compaction_task import Progress
from lamina.engines.store.compaction_task import Task as Task
from lamina.engines.store.gathering import Gathering
from lamina.engines.store.merging import Feed, Run, culled, merged
from lamina.engines.store.sorted_file import EMPTY, SortedFile, SortedWriter
from lamina.engines.store.storages import Storages
from lamina.errors import LogLocked, Stopped, from_os
from lamina.log.files import Files, FolderLock, file_size, join
from lamina.log.segment import open_for_reading

_SMALL: Final = 4  # a part is small below this fraction of its size
Range = tuple[Part | None, bytes, bytes | None]
"""A part, and where its range begins and ends; no part where there is none at all."""


def compact(
    files: Files,
    task: Task,
    *,
    progress: Progress = lambda done, total: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Outcome:
    """Write the parts of a new generation, going on from where the same task was cut short.

    Durability: when it returns, all parts are synced, and so is the folder; the catalog was not touched. What was done
        stays noted until ``compaction_progress.remove``, which the caller owes once the catalog is committed.
    Raises: Corruption, WrongFormat, DiskFull, DiskError; Stopped; LogLocked if another process is at it. Then nothing
        is left but finished parts, from which the same task goes on; another one removes them.
    """
    lock = lock_for(files, task)
    try:
        done = compaction_progress.remove_leftovers(files, task)
        try:
            return _Compaction(files, task, done, progress, is_stopped).run()
        except BaseException:
            compaction_progress.clean_up_quietly(files, task)
            raise
    finally:
        lock.release()


def lock_for(files: Files, task: Task) -> FolderLock:
    """Never two compactions of one folder at once. Raises: LogLocked, DiskError."""
    path = compaction_progress.lock_path(task.folder)
    try:
        lock = files.lock(path)
    except OSError as error:
        raise from_os(error, "lock the folder", path) from error
    if isinstance(lock, str):
        raise LogLocked(f"{task.folder}: {lock} is compacting", hint="wait until it is done, or has ended")
    return lock


class _Compaction:
    def __init__(
        self, files: Files, task: Task, done: Done, progress: Progress, is_stopped: Callable[[], bool]
    ) -> None:
        self._files, self._task, self._progress, self._is_stopped = files, task, progress, is_stopped
        self._done = done
        self._parts = list(done.parts)
        self._writer: SortedWriter | None = None
        self._next_number = sum(catalogs.part_generation(part.name) == task.generation for part in done.parts)
        self._input_bytes = sum(size_of(files, task.folder, name) for name in task.inputs)
        self._old_bytes = old_bytes(task)
        self._new_entries = self._new_taken = 0
        self._old_done = 0

    def run(self) -> Outcome:
        if self._done.start is None:
            assert self._done.storages is not None
            return self._outcome(self._done.storages, 0)
        gathering = Gathering(self._files, self._task, self._step)
        try:
            gathering.gather()
            storages = Storages()
            storages.add(self._task.catalog.storages)
            storages.add(gathering.storages)
            self._new_entries = gathering.entries()
            self._merge(self._counted(culled(gathering.run(self._done.start), storages)), storages, self._done.start)
        finally:
            if self._writer is not None:
                self._writer.abandon()
            gathering.close()
        kept = still_needed(storages, self._task.until)
        if len(self._parts) > self._kept():
            compaction_progress.save(self._files, self._task, Done(tuple(self._parts), None, kept))
        return self._outcome(kept, gathering.read)

    # -- merging -----------------------------------------------------------------------------------------------------

    def _merge(self, new: Run, storages: Storages, start: bytes) -> None:
        feed = Feed(new)
        cleared = newly_cleared(self._task, storages)
        for part, begin, end in ranges(self._task):
            if end is not None and end <= start:
                continue  # done before it was cut short
            first = feed.first()
            is_touched = (
                part is None
                or begin < start
                or (first is not None and (end is None or first < end))
                or is_concerned(part, cleared)
                # A small one is taken along with what stands before it.
                or (self._writer is not None and is_small(self._task, part))
            )
            if part is not None and not is_touched:
                self._finish_part()
                self._parts.append(part)
            elif part is None:
                self._write(culled(feed.before(end), storages, self._task.until))
            else:
                self._rewrite(part, max(begin, start), feed.before(end), storages)
            self._old_done += part.bytes if part else 0
            self._tell()
        self._finish_part()

    def _rewrite(self, part: Part, start: bytes, new: Run, storages: Storages) -> None:
        file = SortedFile.open(self._files, self._task.folder, part.name, part)
        try:
            runs = [file.batches(start), new]
            self._write(culled(merged(runs), storages, self._task.until))
        finally:
            file.close()

    def _counted(self, run: Run) -> Run:
        for piece in run:
            self._new_taken += len(piece[0])
            yield piece

    # -- writing -----------------------------------------------------------------------------------------------------

    def _write(self, run: Run) -> None:
        for piece in run:
            self._tell()
            self._write_piece(piece)

    def _write_piece(self, piece: Columns) -> None:
        places, items = piece
        while places:
            writer = self._writer or self._new_part()
            taken = writer.add_many(places, items, full(self._task))
            places, items = places[taken:], items[taken:]
            if writer.bytes >= full(self._task):
                self._finish_part()

    def _new_part(self) -> SortedWriter:
        name = catalogs.part_name(self._task.generation, self._next_number)
        path = join(self._task.folder, name)
        self._writer = SortedWriter(self._files, path, generation=self._task.generation, part=self._next_number)
        self._next_number += 1
        return self._writer

    def _finish_part(self) -> None:
        if self._writer is not None:
            self._parts.append(self._writer.finish())
            self._writer = None
            # Behind the last place: nothing is between a place and the same with a zero behind it.
            start = self._parts[-1].last + b"\0"
            compaction_progress.save(self._files, self._task, Done(tuple(self._parts), start))

    # -- what is said of it ------------------------------------------------------------------------------------------

    def _step(self, done: int) -> None:
        self._check()
        self._progress(done, 2 * self._input_bytes + self._old_bytes)

    def _tell(self) -> None:
        self._check()
        share = self._new_taken / self._new_entries if self._new_entries else 1
        done = int(self._input_bytes * (1 + min(share, 1))) + self._old_done
        self._progress(done, 2 * self._input_bytes + self._old_bytes)

    def _check(self) -> None:
        if self._is_stopped():
            raise Stopped("the compaction was given up", hint="the next one goes on from there")

    def _kept(self) -> int:
        return sum(catalogs.part_generation(part.name) != self._task.generation for part in self._parts)

    def _outcome(self, storages: Storages, read: int) -> Outcome:
        return outcome_of(self._task, self._parts, storages, read, self._input_bytes)


# -- the rules, which hold for whoever does the work ------------------------------------------------------------------


def ranges(task: Task) -> Iterator[Range]:
    """The parts that hold something, in order, and the range of places of each; together all places."""
    old = [part for part in task.catalog.parts if part.entries]
    if not old:
        yield None, b"", None
    for number, part in enumerate(old):
        yield part, part.first if number else b"", old[number + 1].first if number + 1 < len(old) else None


def full(task: Task) -> int:
    """A part ends with the record that brings it to so many bytes, index and tail not counted: one at least."""
    return max(task.part_bytes, EMPTY + 1)


def is_small(task: Task, part: Part) -> bool:
    return part.bytes < task.part_bytes // _SMALL


def newly_cleared(task: Task, storages: Storages) -> set[bytes]:
    """Storages, in 8 bytes, that were cleared since the parts were written."""
    before = task.catalog.storages.cleared
    newer = (storage for storage, version in storages.cleared.items() if version > before.get(storage, b""))
    return set(map(codec.NUMBER.pack, newer))


def is_concerned(part: Part, cleared: Collection[bytes]) -> bool:
    """One of these storages may have entries in the part."""
    return any(part.first[:8] <= storage <= part.last[:8] for storage in cleared)


def size_of(files: Files, folder: str, name: str) -> int:
    """Bytes of an input. Raises: DiskError, also if it is not there."""
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError as error:
        raise from_os(error, "open the file", join(folder, name)) from error
    try:
        return file_size(file)
    finally:
        file.close()


def old_bytes(task: Task) -> int:
    return sum(part.bytes for part in task.catalog.parts if part.entries)


def outcome_of(task: Task, parts: Sequence[Part], storages: Storages, read: int, input_bytes: int) -> Outcome:
    """``storages``: without what is not needed any more; ``read``: entries of the inputs that counted."""
    kept = sum(catalogs.part_generation(part.name) != task.generation for part in parts)
    return Outcome(
        parts=tuple(parts),
        storages=storages,
        entries_read=read,
        entries_live=sum(part.entries for part in parts),
        bytes_before=input_bytes + old_bytes(task),
        bytes_after=sum(part.bytes for part in parts),
        parts_kept=kept,
        parts_written=len(parts) - kept,
    )


def still_needed(storages: Storages, until: int) -> Storages:
    """Without clears up to the boundary, and without storages that were dropped up to there."""
    boundary = codec.NUMBER.pack(until)
    needed = Storages()
    needed.cleared = {storage: version for storage, version in storages.cleared.items() if version[:8] > boundary}
    needed.there = {
        storage: (version, is_there)
        for storage, (version, is_there) in storages.there.items()
        if is_there or version[:8] > boundary
    }
    return needed
