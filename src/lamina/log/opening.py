"""Becoming the writer of a folder: the lock, what a crash left, and the end where the log goes on."""

from __future__ import annotations

from lamina.clock import Clock
from lamina.errors import from_os
from lamina.log import lock
from lamina.log.files import Files, FolderLock
from lamina.log.formats import Format
from lamina.log.naming import Family
from lamina.log.options import LogOptions
from lamina.log.recovery import Recovered, recover
from lamina.log.tail import Tail


def become_writer(
    folder: str, files: Files, clock: Clock, options: LogOptions, family: Family, format: Format, *, salvage: bool
) -> tuple[FolderLock, Recovered, Tail]:
    """Raises: LogLocked; Corruption, WrongFormat (nothing was changed); DiskError, DiskFull."""
    family.next_name(None, 0)  # refuses families whose files are made by their engine
    try:
        files.make_folder(folder)
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    held = lock.take(files, folder, family.lock_name)
    try:
        if salvage:
            from lamina.log.repair import repair_held

            repair_held(files, folder, clock, options.max_payload)
        recovered = recover(files, folder, family, format, clock, options.max_payload)
        return held, recovered, Tail(folder, files, clock, options, family, format, recovered)
    except BaseException:
        held.release()
        raise
