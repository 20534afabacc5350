"""One file of a log: opening it to read, and growing it while it is the active one."""

from __future__ import annotations

import errno
from collections.abc import Sequence

from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log.files import File, Files, join, read_at
from lamina.log.formats import Format, identify
from lamina.log.index import Index
from lamina.log.naming import FileName
from lamina.log.scan import HEADER_SIZE
from lamina.log.teardown import Teardown


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


def check_header(
    file: File, name: str, expected: Format | None = None, header: bytes | None = None, *, hint: str = ""
) -> Format:
    """Tell what kind of file it is (``header``: if it is known). Raises: Corruption for a torn one; WrongFormat."""
    header = read_header(file) if header is None else header
    if header_is_torn(header, expected) or len(header) < HEADER_SIZE:
        raise Corruption(name, 0, "the file is empty" if not header else "the header is cut short", hint=hint)
    format = identify(name, header)
    if expected is not None and format is not expected:
        raise WrongFormat(name, f"a {format.name} file where a {expected.name} file was expected")
    return format


class AppendFailed(Exception):
    """An append went wrong after ``taken`` bytes. They are in the file: cut it back before going on."""

    def __init__(self, taken: int, cause: OSError) -> None:
        super().__init__(str(cause))
        self.taken = taken
        self.cause = cause


class ActiveSegment:
    """The file that grows.

    Threads: one at a time; the log's commit lock sees to it.
    """

    def __init__(self, name: FileName, file: File, index: Index) -> None:
        self.name = name
        self.file = file
        self.index = index
        self.synced_bytes = index.bytes
        self.was_cut = False
        """A failed write was cut off since the last sync: until the next a power cut may bring it back."""

    @classmethod
    def create(cls, files: Files, folder: str, name: FileName, format: Format) -> ActiveSegment:
        """Make the file and write its header. A failure leaves no file behind. Raises: OSError."""
        path = join(folder, name.name)
        with Teardown(path) as teardown:
            file = files.create(path)
            teardown.later(lambda: files.remove(path))
            teardown.later(file.close)
            taken = file.append([format.header])
            if taken != HEADER_SIZE:
                raise OSError(errno.ENOSPC, "no room for the header", path)
            segment = cls(name, file, Index())
            segment.synced_bytes = 0
            teardown.cancel()
        return segment

    @property
    def size(self) -> int:
        return self.index.bytes

    @property
    def is_empty(self) -> bool:
        return self.index.records == 0

    def append(self, *parts: bytes | memoryview) -> None:
        """Write at the end, going on after short writes; ``index`` is the caller's to update. Raises: AppendFailed."""
        rest: Sequence[bytes | memoryview] = parts
        left = sum(map(len, rest))
        done = 0
        try:
            while True:
                taken = self.file.append(rest)
                if taken == left:
                    return
                if taken <= 0:
                    raise OSError(errno.ENOSPC, "the disk took no bytes", self.file.path)
                done += taken
                left -= taken
                rest = _behind(rest, taken)
        except OSError as error:
            # What the failing call itself may have left is not trusted, whatever the size of the file says.
            raise AppendFailed(done, error) from error

    def cut_back(self, size: int) -> bool:
        """Cut off what a failed append left. False if that failed too: then the end of the file is unknown."""
        self.was_cut = True
        try:
            self.file.truncate(size)
        except OSError:
            return False
        return True

    def sync(self) -> None:
        """Raises: OSError. Never call it again after that: the pages that failed may be gone."""
        size = self.size
        self.file.sync()
        self.synced_bytes, self.was_cut = size, False


def _behind(parts: Sequence[bytes | memoryview], done: int) -> list[bytes | memoryview]:
    """What is left of ``parts`` behind ``done`` bytes."""
    for number, part in enumerate(parts):
        if done < len(part):
            return [memoryview(part)[done:], *parts[number + 1 :]]
        done -= len(part)
    return []
