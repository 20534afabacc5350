"""How far loading the jobs is: bytes of the checkpoint, and of the log behind it, as they are read.

Whoever loads reads through ``files`` and ``reader`` here, which pass everything on and count. So loading knows nothing
of it, and costs what it did when nobody asks.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Final, cast

from lamina.errors import LaminaError
from lamina.log.files import File, Files, join
from lamina.log.frame import Stop
from lamina.log.naming import CHECKPOINT
from lamina.log.reader import Reader, Segment
from lamina.log.scan import HEADER_SIZE, Batch, read_whole

Progress = Callable[[int, int], None]

_START: Final = struct.Struct(">cQ")  # the first record of a checkpoint: the position from which the log is replayed


class LoadProgress:
    """One load. What it says is an estimate; what cannot be read is told by whoever loads, not here."""

    def __init__(self, files: Files, folder: str, reader: Reader, tell: Progress) -> None:
        self._tell = tell
        checkpoint, position = _checkpoint(files, join(folder, CHECKPOINT))
        self._behind = checkpoint
        """Bytes that are through when the log begins."""
        self._sizes = _sizes(files, reader, position)
        self._total = checkpoint + sum(self._sizes.values())
        self.files = cast(Files, _ToldFiles(files, lambda at: self._say(min(at, checkpoint))))
        self.reader = cast(Reader, _ToldReader(reader, self._batch))
        tell(0, self._total)

    def _batch(self, segment: Segment, batch: Batch) -> None:
        name = segment.name.name
        for earlier in list(self._sizes):
            if earlier == name:
                break
            self._behind += self._sizes.pop(earlier)
        self._say(self._behind + batch.end)

    def _say(self, done: int) -> None:
        self._total = max(self._total, done)  # the log is longer than it was thought to be
        self._tell(done, self._total)

    def end(self) -> None:
        """All is loaded, also what there was no need to read."""
        self._tell(self._total, self._total)


class _ToldReader:
    """As much of a ``Reader`` as a replay uses."""

    def __init__(self, reader: Reader, tell: Callable[[Segment, Batch], None]) -> None:
        self._reader, self._tell = reader, tell

    def batches(self, *, after: int | None = None) -> Iterator[tuple[Segment, Batch]]:
        for segment, batch in self._reader.batches(after=after):
            yield segment, batch
            self._tell(segment, batch)


class _ToldFiles:
    """As much of ``Files`` as reading a checkpoint uses."""

    def __init__(self, files: Files, tell: Callable[[int], None]) -> None:
        self._files, self._tell = files, tell

    def open(self, path: str) -> File:
        return cast(File, _ToldFile(self._files.open(path), self._tell))


class _ToldFile:
    def __init__(self, file: File, tell: Callable[[int], None]) -> None:
        self._file, self._tell = file, tell
        self.path, self.size, self.close = file.path, file.size, file.close

    def read_into(self, buffer: memoryview, offset: int) -> int:
        taken = self._file.read_into(buffer, offset)
        self._tell(offset)  # what was asked for before is through now
        return taken


def _checkpoint(files: Files, path: str) -> tuple[int, int]:
    """Its size, and the position it covers; zeros if there is none that can be used."""
    try:
        file = files.open(path)
    except OSError:
        return 0, 0
    try:
        size = file.size()
        found = read_whole(file, HEADER_SIZE, size)
        if isinstance(found, Stop) or len(found[1]) != _START.size:
            return 0, 0
        return size, _START.unpack(found[1])[1]
    except (OSError, LaminaError):
        return 0, 0
    finally:
        file.close()


def _sizes(files: Files, reader: Reader, position: int) -> dict[str, int]:
    """By name: how large each file is that has to be read."""
    sizes = {}
    try:
        names = reader.segments()
        for name in names[reader.file_for(names, position + 1) if position else 0 :]:
            file = files.open(join(reader.folder, name.name))
            try:
                sizes[name.name] = file.size()
            finally:
                file.close()
    except (OSError, LaminaError):
        pass
    return sizes
