"""The task of a restore: one log, as it was, into a folder of its own.

Of logs the bytes are copied up to the end of the last record of the time, so each record stays what it was. Indexes and
checkpoints are not: they know what came later, and opening makes them anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lamina.errors import StorageError, from_os
from lamina.log.files import File, Files, join
from lamina.log.recovery import chunks_of
from lamina.log.rewrite import write_new
from lamina.pipeline import places, storage
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.restoring import store
from lamina.pipeline.restoring.planning import LogPlan
from lamina.pipeline.staging import part_name


@dataclass(frozen=True, slots=True)
class Copy:
    """What to copy, and where tasks put what they make."""

    number: int
    data: str
    plan: LogPlan
    time_ns: int
    folder: str


@dataclass(frozen=True, slots=True)
class Copied:
    """What was made."""

    folder: str
    """Where it is now."""
    path: str
    """Where it belongs in the data folder."""
    files: int
    bytes: int


def copy(task: Copy) -> Copied:
    """Durability: all files are synced, and their folder too.

    Raises: TooOld; Corruption, WrongFormat, DiskFull, DiskError; StorageError if it has to be begun anew.
    """
    return copy_from(storage.open_storage(task.data)[0], storage.open_storage(task.folder)[0], task)


def copy_from(disk: Files, to: Files, task: Copy) -> Copied:
    """The same from a disk that has no address: a generation of a backup."""
    folder = join(task.folder, part_name(task.number))
    place = task.plan.place
    try:
        to.make_folder(folder)
        if place.kind == places.STORE:
            made = store.make(disk, place.folder, task.plan.epoch, task.time_ns, to, folder)
            return Copied(folder, place.path, made.files, made.bytes)
        files = size = 0
        with Frozen(disk, place, task.plan.files, task.time_ns) as frozen:
            _check_same(frozen, task)
            for name in frozen.list(frozen.folder):
                size += _copy(frozen.open(join(frozen.folder, name)), to, join(folder, name))
                files += 1
        to.sync_folder(folder)
        return Copied(folder, place.path, files, size)
    except OSError as error:
        raise from_os(error, "restore to", folder) from error


def _check_same(frozen: Frozen, task: Copy) -> None:
    """Raises: StorageError if cleaning or retention came in between: what was planned is not so any more."""
    held = frozen.list(frozen.folder)
    for file in task.plan.files:
        if file.is_ordered and (file.first_ns is None or file.first_ns > task.time_ns):
            continue
        if file.name not in held or frozen.open(join(frozen.folder, file.name)).identity != file.identity:
            raise StorageError(
                f"{file.name} of {task.plan.place.path} was cleaned while it was restored", hint="try again"
            )


def _copy(file: File, to: Files, path: str) -> int:
    def chunks() -> Iterator[bytes]:
        yield from chunks_of(file, 0, file.size())

    return write_new(to, path, chunks())
