"""Putting changes of many queues on disk, in the order that keeps them whole, and taking back what it refuses.

Threads: the store's lock guards it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import Final

from lamina.engines.queues.journal import records, state_log
from lamina.engines.queues.journal.folder import QueueFolder
from lamina.engines.queues.journal.home import Home, Stats, without_path
from lamina.engines.queues.journal.open_queues import UNKNOWN, OpenQueues
from lamina.engines.queues.journal.refusals import Refusals
from lamina.engines.queues.journal.syncing import Failure, Left, SyncPool
from lamina.errors import LaminaError, StorageError, let_go_of_frames
from lamina.log.files import join
from lamina.log.measured import Measured
from lamina.log.teardown import Teardown

_MANY_FILES: Final = 4  # of a queue that nobody needs any more


class Pushing:
    """The part of a store that writes."""

    def __init__(self, home: Home, queues: OpenQueues) -> None:
        self.home = home
        self.rebuilds = 0
        """How often changes were taken back: what was answered from them may not be so."""
        self._queues = queues
        self._dirty: dict[bytes, QueueFolder] = {}
        self._refusals = Refusals()
        self._position = 0
        """Of the newest change."""
        self._synced_to = 0
        """All up to this position went through ``sync``."""
        self._pool = SyncPool(home.options.sync_threads)
        self.failure: LaminaError | None = None
        """None: what goes wrong concerns one queue, which is opened anew."""
        self.write_error: LaminaError | None = None
        """What kept the last changes out of the files; None: they got through."""
        self.measured = Measured()
        """What writing costs: a push is one write, whatever the number of files."""

    @property
    def stats(self) -> Stats:
        return self.home.stats

    def _push(self, folders: list[QueueFolder], *, must_sync: bool) -> None:
        changes = sum(len(folder.positions) for folder in folders)
        size = sum(folder.pending_bytes for folder in folders)
        began, synced = perf_counter(), 0.0
        try:
            left = self._each(folders, QueueFolder.write_messages)
            if must_sync:
                before = perf_counter()
                left = self._synced(left, QueueFolder.sync_messages, QueueFolder.messages_are_synced)
                left = self._with_synced_names(left)
                synced += perf_counter() - before
            left = self._each(left, QueueFolder.write_lines)
            if must_sync:
                before = perf_counter()
                left = self._synced(left, QueueFolder.sync_log, QueueFolder.log_is_synced)
                left = self._with_synced_names(left)
                synced += perf_counter() - before
            now = self.home.clock.monotonic()
            self.measured.wrote(self, changes, size, perf_counter() - began - synced, now)
            if must_sync:
                self.measured.synced(self, synced, now)
            for folder in left:
                self.write_error = None
                self._dirty.pop(folder.rid, None)
                folder.are_safe()
        except BaseException as error:  # out of memory, interrupted: what is on disk of it nobody knows
            broken = StorageError(f"the write was broken off by {type(error).__name__}")
            with Teardown(self.home.root) as teardown:
                for folder in folders:
                    if folder.is_dirty and self._queues.folders.get(folder.rid) is folder:
                        teardown.try_to(partial(self._refuse, folder, broken), "a queue is opened anew")
            raise
        if must_sync:
            for folder in left:
                self._tidy(folder)

    def _each(self, folders: list[QueueFolder], act: Callable[[QueueFolder], None]) -> list[QueueFolder]:
        """Those with which it went well."""
        done = []
        for folder in folders:
            try:
                act(folder)
                done.append(folder)
            except (OSError, StorageError) as error:
                self._refuse(folder, error)
        return done

    def _synced(
        self, folders: list[QueueFolder], act: Callable[[QueueFolder], None], then: Callable[[QueueFolder], None]
    ) -> list[QueueFolder]:
        """The same, of many at a time."""
        done = []
        for folder, error in zip(folders, self._pool.run(act, folders), strict=True):
            if error is None:
                then(folder)
                done.append(folder)
            else:
                self._refuse(folder, error)
        return done

    def _with_synced_names(self, folders: list[QueueFolder]) -> list[QueueFolder]:
        """Those whose new names are on disk. A folder that has new names of many is synced once."""
        failures = self._pool.sync_folders(
            self.home.files, [name for each in folders for name in each.unsynced_folders]
        )
        done = []
        for folder in folders:
            error = next((failures[name] for name in folder.unsynced_folders if name in failures), None)
            if error is None:
                folder.names_are_synced()
                done.append(folder)
            else:
                self._refuse(folder, error)
        return done

    def _tidy(self, folder: QueueFolder) -> None:
        """Everything is synced: queue.log may become short, and files go that nobody needs."""
        try:
            if folder.needs_compaction():
                folder.compact()
            folder.remove_obsolete()
        except (OSError, StorageError) as error:
            reason = without_path(error, folder.rid, "tidy its folder")
            self.home.told(folder.rid, "tidying_failed", detail=reason.message)
            self._queues.suspect[folder.rid] = None
            self._queues.drop(folder)

    def _refuse(self, folder: QueueFolder, error: OSError | StorageError) -> None:
        """Take back what is pending: the queue is what the disk has of it, and is opened anew when it is needed."""
        reason = without_path(error, folder.rid, "write to its folder")
        let_go_of_frames(reason)
        self.write_error = reason
        self._refusals.add(folder.positions, reason)
        if not folder.positions:  # what it was about was answered before
            self._doubt_unsynced(reason)
        self.stats.refused += len(folder.positions)
        self.rebuilds += 1
        self._queues.suspect[folder.rid] = folder.log_size_before if folder.is_new or folder.log_size_before else None
        self._dirty.pop(folder.rid, None)
        folder.queue.size = UNKNOWN
        try:
            with suppress(OSError):  # if not now, then when it is opened: that is what is remembered
                self._cut_back(folder)
        finally:
            self._queues.drop(folder)
        self._queues.told(folder.rid, True)
        self.home.told(folder.rid, "write_refused", is_error=True, detail=reason.message)

    def _cut_back(self, folder: QueueFolder) -> None:
        """Nothing that was refused may count after a restart."""
        if not folder.is_new:
            if folder.log.exists:
                folder.log.cut_back(folder.log_size_before)
            folder.close_write()
            for id, size in folder.grown.items():
                self._cut_back_file(folder.file_path(id), size)
            return
        for name in self.home.files.list(folder.path):
            if name == state_log.NAME or records.NAME.fullmatch(name):
                self.home.files.remove(join(folder.path, name))

    def _cut_back_file(self, path: str, size: int) -> None:
        if not size:
            with suppress(FileNotFoundError):
                self.home.files.remove(path)
            return
        file = self.home.files.open(path, write=True)
        try:
            if file.size() > size:
                file.truncate(size)
        finally:
            file.close()

    # -- after a sync by the clock -----------------------------------------------------------------------------------

    def _sync_left(self) -> None:
        left = self._queues.take_left()
        self._after_sync_of_left(left, self._run_all(left))

    def _run_all(self, parts: list[Left]) -> list[Failure]:
        began = perf_counter()
        try:
            errors = self._pool.run_all(self.home.files, parts)
            if parts:
                self.measured.synced(self, perf_counter() - began, self.home.clock.monotonic())
            return errors
        except Exception as problem:  # no memory, no thread: what was synced nobody knows
            broken = StorageError(f"the sync was broken off by {type(problem).__name__}")
            return [broken for _ in parts]

    def _after_sync_of_left(self, left: list[Left], errors: list[Failure]) -> None:
        for part, error in zip(left, errors, strict=True):
            if error is not None:
                self._sync_failed(part.rid, error)

    def _after_sync(self, folder: QueueFolder, part: Left, error: Failure) -> None:
        folder.is_syncing = False
        if folder.is_abandoned:
            folder.close()
        elif error is not None:
            if folder.is_dirty:
                self._refuse(folder, error)
            self._queues.drop(folder)
            folder.queue.size = UNKNOWN
            self._queues.told(folder.rid, True)
            self._sync_failed(folder.rid, error)
        else:
            folder.obsolete = [*part.obsolete, *folder.obsolete]
            if not (folder.is_dirty or folder.unsynced_files or folder.is_log_unsynced):
                self._tidy(folder)
            elif folder.needs_compaction() or len(folder.obsolete) > _MANY_FILES:
                self._push([folder], must_sync=True)  # one that is never at rest must not grow without end

    def _doubt_unsynced(self, reason: LaminaError) -> None:
        """Which changes it concerns is forgotten: nobody is told of any of them that it is safe."""
        self._refusals.add_all(self._synced_to + 1, self._position, reason)

    def _sync_failed(self, rid: bytes, error: OSError | StorageError) -> None:
        """Never tried again: a second sync may say that all is well when it is not."""
        reason = without_path(error, rid, "sync its folder")
        let_go_of_frames(reason)
        self.write_error = reason
        self._queues.suspect.setdefault(rid, None)
        self.rebuilds += 1
        self._doubt_unsynced(reason)
        self.home.told(rid, "sync_failed", is_error=True, detail=reason.message)
