"""Is it a dump? Queues, each followed by its messages, and at the end how many of both there were.

A dump is complete or broken: it has no torn tail, for it gets its name when all of it is synced. Where the log after it
was begun before the dump was written, which is always so while the queues are open, a mark in front of its end says so:
then that log has to be there, with the record that it was begun with.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from lamina.engines.queues import codec, store_files
from lamina.engines.queues.store_files import Plan
from lamina.engines.queues.store_reading import reached_before
from lamina.errors import StorageError, from_os
from lamina.log.files import File, Files, join
from lamina.log.formats import QUEUE_STORE
from lamina.log.frame import MIN_RECORD, Stop
from lamina.log.scan import HEADER_SIZE, read_record, read_whole
from lamina.log.segment import open_for_reading

_LONGEST_END: Final = len(codec.end((1 << 64) - 1, (1 << 64) - 1))
FOLLOWED: Final = QUEUE_STORE.watermark(0)
"""The record in front of the end of a dump whose log after it was begun. It vouches for nothing: whoever does not know
it passes over it.
"""


class BrokenDump(StorageError):
    """A dump that is not whole."""

    def __init__(self, number: int, record: int | None, offset: int, reason: str) -> None:
        super().__init__(f"{store_files.dump_name(number)}: {reason}")
        self.number, self.record, self.offset, self.reason = number, record, offset, reason


class DumpCheck:
    """Is given every record of a dump in turn."""

    def __init__(self) -> None:
        self.queues = 0
        self.messages = 0
        self.is_ended = False
        self._rid: object = None

    def take(self, values: list[Any]) -> str | None:
        """Returns what is wrong with this record here, None if nothing is."""
        kind = values[0]
        if self.is_ended:
            return "something follows its last record"
        if kind == codec.MSG or kind == codec.QUOTA:
            self.messages += 1
            return None if values[1] == self._rid else "a message of another queue"
        if kind == codec.CREATE:
            self.queues += 1
            self._rid = values[1]
            return None
        if kind != codec.END:
            return "a record that belongs into a log"
        self.is_ended = True
        if values[1:] != [self.queues, self.messages]:
            return "it does not hold what its last record says"
        return None


class Lacking(NamedTuple):
    """A file without which the others are not all that there was."""

    file: str
    reason: str


def lacks_log(files: Files, folder: str, plan: Plan) -> Lacking | None:
    """What is not as the files that are loaded say of others: the dump of the log after it, or, where there is no dump,
    the first log of what was before it. None: they say nothing. Raises: DiskError.
    """
    if plan.base is None:
        return _before_first(files, folder, plan)
    if not _is_followed(files, folder, plan.base):
        return None
    name = store_files.log_name(plan.base + 1).name
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError:
        return Lacking(name, "the log is missing, the dump before it says that it was begun")
    try:
        is_begun = not isinstance(read_record(file, HEADER_SIZE, file.size()), Stop)
    except OSError as error:
        raise from_os(error, "read the file", join(folder, name)) from error
    finally:
        file.close()
    reason = "it was begun with a record, as the dump before it says, and holds none"
    return None if is_begun else Lacking(name, reason)


def _before_first(files: Files, folder: str, plan: Plan) -> Lacking | None:
    if not plan.logs:
        return None
    first = store_files.log_name(plan.logs[0]).name
    if not reached_before(files, folder, first):
        return None
    if not plan.logs[0]:
        return Lacking(first, "it says that there were records before it, and it is the first")
    reason = f"it is missing, and so are the logs up to its number, though {first} says that there were records"
    return Lacking(store_files.dump_name(plan.logs[0] - 1), reason)


def _is_followed(files: Files, folder: str, number: int) -> bool:
    name = store_files.dump_name(number)
    try:
        file = open_for_reading(files, folder, name)
    except OSError as error:
        raise from_os(error, "open the file", join(folder, name)) from error
    try:
        end = _find_end(file)
        if end is None:
            return False
        size = MIN_RECORD + len(FOLLOWED)
        found = read_whole(file, end[0] - size, end[0]) if end[0] - size >= HEADER_SIZE else Stop.END
        return not isinstance(found, Stop) and found[1] == FOLLOWED
    except OSError as error:
        raise from_os(error, "read the file", join(folder, name)) from error
    finally:
        file.close()


def time_of_end(file: File) -> int | None:
    """Time of the last record of a dump, found from behind; None if it is not there, so that the dump is broken."""
    end = _find_end(file)
    return None if end is None else end[1]


def _find_end(file: File) -> tuple[int, int] | None:
    """Where the last record of a dump begins, and its time."""
    size = file.size()
    for length in range(len(codec.end(0, 0)), _LONGEST_END + 1):
        at = size - MIN_RECORD - length
        found = read_whole(file, at, size) if at >= HEADER_SIZE else Stop.END
        if isinstance(found, Stop) or len(found[1]) != length:
            continue
        try:
            return (at, found[0].time_ns) if codec.decode(found[1])[0] == codec.END else None
        except codec.BadRecord:
            return None
    return None
