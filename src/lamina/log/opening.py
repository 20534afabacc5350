"""Becoming the writer of a folder: the lock, what a crash left, and the end where the log goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from lamina.clock import Clock
from lamina.errors import Corruption, DiskFull, from_os
from lamina.log import lock, manifest
from lamina.log.commit import Committer, FolderSyncs
from lamina.log.files import Files, FolderLock
from lamina.log.formats import Format
from lamina.log.naming import Family, FileName
from lamina.log.options import LogOptions
from lamina.log.reader import Reader
from lamina.log.recovery import Recovered, RecoveryReport, recover
from lamina.log.tail import Tail
from lamina.log.teardown import Teardown

if TYPE_CHECKING:
    from lamina.log.writer import Log


def become_writer(
    folder: str,
    files: Files,
    clock: Clock,
    options: LogOptions,
    family: Family,
    format: Format,
    *,
    salvage: bool,
    is_covered: bool,
) -> tuple[FolderLock, Recovered, Tail]:
    """Raises: LogLocked; Corruption, WrongFormat (nothing was changed); DiskError, DiskFull."""
    family.next_name(None, 0)  # refuses families whose files are made by their engine
    try:
        files.make_folder(folder)
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    with Teardown(folder) as teardown:
        held = (lock.covered if is_covered else lock.take)(files, folder, family.lock_name)
        teardown.later(held.release)
        if salvage:
            from lamina.log.repair import repair_held

            repair_held(files, folder, clock, options.max_payload)
        recovered = recover(files, folder, family, format, clock, options.max_payload)
        tail = Tail(folder, files, clock, options, family, format, recovered)
        teardown.cancel()
    return held, recovered, tail


def begin_new(
    folder: str, files: Files, clock: Clock, options: LogOptions, family: Family, format: Format, names: FolderSyncs
) -> tuple[FolderLock, Recovered, Tail]:
    """The same for a folder that is not there, below one whose lock is held: nothing is touched before a write."""
    family.next_name(None, 0)
    recovered = Recovered(RecoveryReport())
    return lock.COVERED, recovered, Tail(folder, files, clock, options, family, format, recovered, names)


def reader_of(folder: str, files: Files, options: LogOptions, family: Family) -> Callable[[Log], Reader]:
    """What reads a log that is being written, once there is one."""
    return lambda log: Reader(folder, family=family, files=files, live=log, max_payload=options.max_payload)


def made(make: Callable[[], Log], folder: str, held: FolderLock, tail: Tail) -> Log:
    """The log, now that there is all it needs; else the folder is let go."""
    with Teardown(folder) as teardown:
        teardown.later(held.release)
        teardown.later(tail.abandon)
        log = make()
        teardown.cancel()
    return log


def start(
    cls: type[Log],
    folder: str,
    name: FileName,
    *,
    last: int,
    held: FolderLock,
    options: LogOptions,
    family: Family,
    format: Format,
    files: Files,
    clock: Clock,
    committer: Committer | None = None,
    threaded: bool = True,
    may_be_later: bool = False,
    accepts_loss: bool = False,
) -> Log:
    """Go on in a new file ``name`` behind records that the caller has recovered and synced; nothing is read.

    ``last`` is the time of the newest of them (0: there is none): positions go on from there. The caller took the lock
    of the folder; ``close`` lets it go. ``may_be_later``: on a full disk the file is made by the first record.
    ``accepts_loss``: what the newest file has lost is not asked for any more.
    Durability: when it returns, the file is there for good, unless the disk is full.
    Raises: Corruption if the newest file is not as it was synced; DiskError, DiskFull, LogFailed; then the lock is
        still the caller's.
    """
    recovered = Recovered(RecoveryReport(segments=1))
    recovered.index.last = recovered.index.last_data = last
    try:
        checked = manifest.check(files, folder, family, files.list(folder))
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    except Corruption:
        if not accepts_loss:
            raise
        checked = manifest.Checked(None)
    recovered.manifest_bytes = manifest.go_on(files, folder, family, checked, None)
    tail = Tail(folder, files, clock, options, family, format, recovered)
    try:
        tail.begin(name)
    except DiskFull:
        if not may_be_later:
            raise
        tail.begin_later(name)
    reader = reader_of(folder, files, options, family)

    def make() -> Log:
        return cls(tail, reader, held, clock, options, format, recovered, committer, threaded=threaded)

    return made(make, folder, held, tail)
