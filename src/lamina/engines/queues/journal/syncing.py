"""Syncing many files at a time, and what of a queue is yet to be synced."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from lamina.engines.queues.journal.folder import QueueFolder
from lamina.engines.queues.journal.state_log import NAME
from lamina.errors import StorageError
from lamina.log.files import Files, join

T = TypeVar("T")
Failure = OSError | StorageError | None


@dataclass(slots=True)
class Left:
    """What of one queue is written and not synced. Its files are found by name: they may be closed meanwhile."""

    rid: bytes
    messages: list[str]
    log: str | None
    folders: list[str]
    obsolete: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, folder: QueueFolder) -> Left:
        messages = [folder.file_path(id) for id in folder.unsynced_files]
        log = join(folder.path, NAME) if folder.is_log_unsynced else None
        return cls(folder.rid, messages, log, list(folder.unsynced_folders), list(folder.obsolete))

    def with_more(self, other: Left) -> Left:
        """The same queue was open again meanwhile."""
        return Left(
            self.rid,
            list(dict.fromkeys([*self.messages, *other.messages])),
            other.log or self.log,
            list(dict.fromkeys([*self.folders, *other.folders])),
        )

    def take_over(self, folder: QueueFolder) -> None:
        """What is here is no longer the folder's to see to."""
        folder.unsynced_files, folder.unsynced_folders, folder.obsolete = {}, [], []
        folder.is_log_unsynced = False
        folder.is_syncing = True

    def sync_messages(self, files: Files) -> None:
        for path in self.messages:
            sync_file(files, path)

    def sync_log(self, files: Files) -> None:
        if self.log is not None:
            sync_file(files, self.log)


def sync_file(files: Files, path: str) -> None:
    """If it is there: it may be gone with its queue. Raises: OSError."""
    try:
        file = files.open(path, write=True)
    except FileNotFoundError:
        return
    try:
        file.sync()
    finally:
        file.close()


def sync_names(files: Files, folder: str) -> None:
    """If it is there: it may be gone with the last of its queues. Raises: OSError."""
    try:
        files.sync_folder(folder)
    except FileNotFoundError:
        return


class SyncPool:
    """Some threads: a sync waits for the disk, and the disk can do several at a time."""

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None

    def run(self, act: Callable[[T], None], items: Sequence[T]) -> list[Failure]:
        """Do it with each. Returns what went wrong with which."""

        def one(item: T) -> Failure:
            try:
                act(item)
            except (OSError, StorageError) as error:
                return error
            return None

        if len(items) < 2 or self._threads < 2:
            return [one(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, "lamina-journal-sync")
        return list(self._pool.map(one, items))

    def sync_folders(self, files: Files, folders: Iterable[str]) -> dict[str, OSError | StorageError]:
        """Each of them once. Returns what went wrong with which."""
        names = list(dict.fromkeys(folders))
        errors = self.run(lambda name: sync_names(files, name), names)
        return {name: error for name, error in zip(names, errors, strict=True) if error is not None}

    def run_all(self, files: Files, parts: Sequence[Left]) -> list[Failure]:
        """All messages first, then the names that lead to them, then all states."""
        errors = self.run(lambda part: part.sync_messages(files), parts)
        failures = self.sync_folders(files, [name for part in parts for name in part.folders])
        for at, part in enumerate(parts):
            errors[at] = errors[at] or next((failures[name] for name in part.folders if name in failures), None)
        good = [part for part, error in zip(parts, errors, strict=True) if error is None]
        later = iter(self.run(lambda part: part.sync_log(files), good))
        return [next(later) if error is None else error for error in errors]

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()
