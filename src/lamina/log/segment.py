"""One file of a log: opening it to read, and growing it while it is the active one."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Final

from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log.files import File, Files, join, read_at
from lamina.log.formats import Format, identify
from lamina.log.index import Index
from lamina.log.naming import FileName
from lamina.log.scan import HEADER_SIZE

MAX_PARTS: Final = 512


def open_for_reading(files: Files, folder: str, name: str) -> File:
    """Raises: DiskError naming the file. FileNotFoundError stays itself: the file may just have been removed."""
    path = join(folder, name)
    try:
        return files.open(path)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise from_os(error, "open the file", path) from error


def read_header(file: File) -> bytes:
    return read_at(file, 0, HEADER_SIZE)


def header_is_torn(header: bytes, format: Format | None) -> bool:
    """The header never wholly reached the disk: it is a beginning of the right one, then nothing or zeros.

    With no ``format`` known only an empty or all-zero header counts.
    """
    rest = header.rstrip(b"\0")
    if format is None or not rest:
        return not rest
    return header != format.header and format.header.startswith(rest)


def check_header(file: File, name: str, expected: Format | None = None) -> Format:
    """Tell what kind of file it is. Raises: Corruption for a torn header; WrongFormat."""
    header = read_header(file)
    if header_is_torn(header, expected) or len(header) < HEADER_SIZE:
        raise Corruption(name, 0, "the file is empty" if not header else "the header is cut short")
    format = identify(name, header)
    if expected is not None and format is not expected:
        raise WrongFormat(name, f"a {format.name} file where a {expected.name} file was expected")
    return format


class AppendFailed(Exception):
    """An append did not fit. ``kept`` parts of it are in the file; the rest is not."""

    def __init__(self, kept: int, cause: OSError, *, is_cut: bool) -> None:
        super().__init__(str(cause))
        self.kept = kept
        self.cause = cause
        self.is_cut = is_cut
        """The file was cut back to its last whole part. If not, its end is unknown."""


class ActiveSegment:
    """The file that grows.

    Threads: one at a time; the log's commit lock sees to it.
    """

    def __init__(self, name: FileName, file: File, index: Index) -> None:
        self.name = name
        self.file = file
        self.index = index
        self.synced_bytes = index.bytes

    @classmethod
    def create(cls, files: Files, folder: str, name: FileName, format: Format) -> ActiveSegment:
        """Make the file and write its header. A failure leaves no file behind. Raises: OSError."""
        path = join(folder, name.name)
        file = files.create(path)
        try:
            taken = file.append([format.header])
            if taken != HEADER_SIZE:
                raise OSError(errno.ENOSPC, "no room for the header", path)
        except OSError:
            file.close()
            files.remove(path)
            raise
        segment = cls(name, file, Index())
        segment.synced_bytes = 0
        return segment

    @property
    def size(self) -> int:
        return self.index.bytes

    @property
    def is_empty(self) -> bool:
        return self.index.records == 0

    def append(self, parts: Sequence[bytes]) -> None:
        """Write whole parts at the end: all of them, or AppendFailed and only whole parts stay."""
        total = sum(map(len, parts))
        done = 0
        try:
            done = self.file.append(parts[:MAX_PARTS])
            while done < total:
                taken = self.file.append([_rest(parts, done)])
                if taken <= 0:
                    raise OSError(errno.ENOSPC, "the disk took no bytes", self.file.path)
                done += taken
        except OSError as error:
            kept, kept_bytes = _whole_parts(parts, self._taken(done))
            raise AppendFailed(kept, error, is_cut=self._cut_back(self.size + kept_bytes)) from error

    def _taken(self, known: int) -> int:
        """How much of an append really is in the file: a failing call may have taken some bytes."""
        try:
            return max(known, self.file.size() - self.size)
        except OSError:
            return known

    def _cut_back(self, size: int) -> bool:
        try:
            self.file.truncate(size)
        except OSError:
            return False
        return True

    def sync(self) -> None:
        """Raises: OSError. Never call it again after that: the pages that failed may be gone."""
        size = self.size
        self.file.sync()
        self.synced_bytes = size


def _rest(parts: Sequence[bytes], done: int) -> bytes:
    """What is left of ``parts`` behind ``done`` bytes, at most MAX_PARTS of them joined."""
    for number, part in enumerate(parts):
        if done < len(part):
            return part[done:] + b"".join(parts[number + 1 : number + MAX_PARTS])
        done -= len(part)
    return b""


def _whole_parts(parts: Sequence[bytes], done: int) -> tuple[int, int]:
    """How many parts lie wholly within ``done`` bytes, and their size."""
    size = 0
    for number, part in enumerate(parts):
        if size + len(part) > done:
            return number, size
        size += len(part)
    return len(parts), size
