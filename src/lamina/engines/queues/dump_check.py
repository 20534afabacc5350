"""Is it a dump? Queues, each followed by its messages, and at the end how many of both there were."""

from __future__ import annotations

from typing import Any, Final

from lamina.engines.queues import codec, store_files
from lamina.errors import StorageError
from lamina.log.files import File
from lamina.log.frame import MIN_RECORD, Stop
from lamina.log.scan import HEADER_SIZE, read_whole

_LONGEST_END: Final = len(codec.end((1 << 64) - 1, (1 << 64) - 1))


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


def time_of_end(file: File) -> int | None:
    """Time of the last record of a dump, found from behind; None if it is not there, so that the dump is broken."""
    size = file.size()
    for length in range(len(codec.end(0, 0)), _LONGEST_END + 1):
        at = size - MIN_RECORD - length
        found = read_whole(file, at, size) if at >= HEADER_SIZE else Stop.END
        if isinstance(found, Stop) or len(found[1]) != length:
            continue
        try:
            return found[0].time_ns if codec.decode(found[1])[0] == codec.END else None
        except codec.BadRecord:
            return None
    return None
