"""The newest file of a log, watched from another process: how far it reaches, at the cost of what was added."""

from __future__ import annotations

import time
from typing import Final

from lamina.errors import Corruption
from lamina.log import frame
from lamina.log import index as indexes
from lamina.log.attest import is_attested, next_record
from lamina.log.files import File, Files
from lamina.log.formats import Format
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index
from lamina.log.naming import FileName
from lamina.log.reader import Segment

_AGAIN_S: Final = 0.2
"""A tail that is not whole is looked at again after so long, though the file has not grown."""


class Growing:
    """One file, kept open. ``index`` is of all whole records that were seen."""

    def __init__(self, disk: Files, folder: str, segment: Segment, *, is_permissive: bool) -> None:
        self.name: FileName = segment.name
        self.file: File = segment.file
        self.format: Format = segment.format
        self._is_permissive = is_permissive
        self._seen = -1
        self._again_at: float | None = None
        self.index = indexes.load(disk, folder, self.name.name, self.file, may_end_early=True) or Index()

    def grow(self) -> None:
        """Look at what was added. Raises: Corruption for bytes that were whole once; DiskError."""
        size = self.file.size()
        if size == self._seen and (self._again_at is None or time.monotonic() < self._again_at):
            return
        if size < self.index.bytes:  # cut back: a write had failed, or the writer has died
            self.index = Index()
        while True:
            scan = indexes.extend(self.index, self.file, self.format, size)
            if scan.stop >= size or not self._is_damage(scan.stop, size):
                break
            if not self._is_permissive:
                reason = f"{REASONS[scan.why or Stop.TRUNCATED]}, though it was once synced"
                raise Corruption(self.name.name, scan.stop, reason)
            found = next_record(self.file, scan.stop, size, self.index.last_data)
            if found is None:
                break
            self.index.bytes = found
        self._seen = size
        self._again_at = None if self.index.bytes >= size else time.monotonic() + _AGAIN_S

    def _is_damage(self, at: int, size: int) -> bool:
        return is_attested(self.file, at, size, self.index.last_data, self.format, frame.MAX_PAYLOAD)

    def close(self) -> None:
        self.file.close()
