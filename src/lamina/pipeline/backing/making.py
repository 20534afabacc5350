"""A new generation: what is new is copied, what the backup has already is shared, then its manifest gets its name.

    1 which files, and where each is cut (collecting.py)     2 contents that are not there yet, each synced
    3 sync the folder of contents                            4 the manifest: write, sync, rename, sync the folder
    5 remove contents that no generation has

Commit: step 4. A backup that is killed before leaves the former generations as they were, and whole contents that the
next one uses. A file that was taken away or rewritten between 1 and 2 is noticed, and all is looked at anew.

A file is taken for the one that was copied before if it has the same device and inode, and the last bytes that were
copied are still where they were: those hold times of records, and their checksums. Sealed files never change, and
files that grow only grow. ``is_full`` reads and compares all of them all the same.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict, dataclass, field
from typing import Final

from lamina.errors import BadOption, StorageError
from lamina.log.files import File, Files, read_at
from lamina.log.files.real import RealFiles
from lamina.pipeline.backing import checking, collecting, place
from lamina.pipeline.backing.collecting import Collected, Time
from lamina.pipeline.backing.manifest import BackedFile, Content, Generation
from lamina.pipeline.backing.place import Backup
from lamina.pipeline.backing.sources import Changed, Source
from lamina.pipeline.running import Progress

_TRIES: Final = 20
_TAIL: Final = 4096
_MOST_CONTENTS: Final = 64
"""Of one file: then it is copied anew, as one."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was made."""

    backup: str
    generation: str
    moment_ns: int
    """What was written up to then is in it."""
    logs: int
    files: int
    bytes: int
    """Of all files."""
    copied_bytes: int
    """That the backup did not have yet."""
    removed: int
    """Contents that no generation has, of backups that were killed."""
    tries: int
    """How often files were taken away or rewritten meanwhile, and it was looked anew; and one more."""
    is_verified: bool
    notes: list[str] = field(default_factory=list)
    """What is not in it."""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def back_up(
    data: str,
    to: str,
    *,
    is_full: bool = False,
    is_moved: bool = False,
    verify: bool = False,
    progress: Progress = lambda done, total: None,
    disk: Files | None = None,
    files: Files | None = None,
    clock: Time = Time(),  # noqa: B008
) -> BackupReport:
    """Add a generation to the backup ``to``, which is made if need be: all logs under ``data``, as of one moment.

    It needs no lock on ``data`` and works beside a server; nothing there is changed.
    Durability: what was acknowledged before it was called, at whatever level, is in the generation, which is synced
        when it returns.
    Raises: BadOption (no data folder; a target that is something else, or in it; a backup of another folder);
        LogLocked if another run changes the backup; StorageError if files change too quickly; Corruption, WrongFormat,
        DiskFull, DiskError. Then the former generations are as they were.
    """
    start = time.monotonic()
    disk, files = disk or RealFiles(), files or RealFiles()
    if isinstance(disk, RealFiles):
        data, to = os.path.abspath(data), os.path.abspath(to)
        _check_outside(data, to)
    if place.is_backup(disk, data):
        raise BadOption(f"{data} is a backup itself", hint="name the data folder; copy a backup with any tool")
    backup = Backup(files, to)
    with backup.changing():
        former = backup.newest()
        if former is not None and former.data != data and not is_moved:
            raise BadOption(
                f"{to} holds a backup of {former.data}, not of {data}",
                hint="back up to another folder; or, if the data folder was moved, say so with --moved",
            )
        making = _Making(disk, backup, former, is_full, progress)
        generation = making.run(data, clock)
        backup.commit(generation)
        notes = list(generation.notes)
        try:
            removed, _ = backup.sweep()
        except StorageError as error:
            removed = 0
            notes.append(f"nothing was removed, as a generation cannot be read: {error.message}")
    if verify:
        checking.check_generation(backup, generation)
    return BackupReport(
        backup=to,
        generation=generation.name,
        moment_ns=generation.moment_ns,
        logs=len(generation.logs),
        files=len(generation.files),
        bytes=generation.bytes,
        copied_bytes=making.copied,
        removed=removed,
        tries=making.tries,
        is_verified=verify,
        notes=notes,
        seconds=round(time.monotonic() - start, 3),
    )


class _Making:
    """Contents of one generation, which may take several looks."""

    def __init__(
        self, disk: Files, backup: Backup, former: Generation | None, is_full: bool, progress: Progress
    ) -> None:
        self._disk, self._backup, self._former = disk, backup, former
        self._is_full, self._progress = is_full, progress
        self._known: dict[tuple[int, int], BackedFile] = {}
        """What was copied before, by the file that it was copied from."""
        for file in former.files if former else ():
            self._know(file)
        self.copied = self.tries = 0

    def run(self, data: str, clock: Time) -> Generation:
        """Raises: as ``back_up``."""
        later_than = 0 if self._former is None else self._former.moment_ns
        for number in range(_TRIES):
            self.tries += 1
            is_patient = number < collecting.PATIENCE
            try:
                found = collecting.collect(self._disk, data, later_than=later_than, is_patient=is_patient, clock=clock)
                return self._generation(data, found, clock)
            except Changed:
                if number == _TRIES - 1:
                    raise
        raise AssertionError

    def _generation(self, data: str, found: Collected, clock: Time) -> Generation:
        total, done, made = found.bytes, 0, []
        for source in found.sources:
            file = self._take(source)
            made.append(file)
            self._know(file)
            done += source.size
            self._progress(done, total)
        logs = tuple((log.path, log.kind) for log in found.logs)
        return Generation(found.moment_ns, found.began_ns, clock.now_ns(), data, logs, tuple(made), tuple(found.notes))

    def _know(self, file: BackedFile) -> None:
        if file.identity != (0, 0):
            self._known[file.identity] = file

    def _take(self, source: Source) -> BackedFile:
        if source.data is not None:
            return BackedFile(source.path, (self._add(source),))
        known = None if self._is_full else self._known.get(source.identity)
        if known is not None and known.bytes <= source.end and len(known.contents) < _MOST_CONTENTS:
            if not all(self._backup.contents.has(content) for content in known.contents):
                known = None  # somebody took it out of the backup: it is copied again
        else:
            known = None
        if known is None or not known.bytes:
            return BackedFile(source.path, (self._add(source),), source.identity)
        file = source.open(self._disk)
        try:
            if not self._ends_the_same(file, known):
                return BackedFile(source.path, (self._add(source),), source.identity)
        finally:
            file.close()
        more = () if known.bytes == source.end else (self._add(source, known.bytes),)
        return BackedFile(source.path, (*known.contents, *more), source.identity)

    def _ends_the_same(self, file: File, known: BackedFile) -> bool:
        start = max(known.bytes - _TAIL, 0)
        kept = self._backup.contents.open(known)
        try:
            return read_at(kept, start, known.bytes - start) == read_at(file, start, known.bytes - start)
        finally:
            kept.close()

    def _add(self, source: Source, start: int = 0) -> Content:
        content, is_new = self._backup.contents.add(source.chunks(self._disk, start))
        self.copied += content.bytes if is_new else 0
        return content


def _check_outside(data: str, to: str) -> None:
    ours, theirs = os.path.realpath(to), os.path.realpath(data)
    if ours == theirs or ours.startswith(theirs + os.sep) or theirs.startswith(ours + os.sep):
        raise BadOption(f"{to} and {data} are in one another", hint="back up to a folder elsewhere", option="to")
