"""Where the files are: this machine's disk, or shared storage that Arrow reaches (S3, HDFS, GCS), to be read.

A path without a scheme is local. ``s3://``, ``gs://``, ``hdfs://``, ``file://`` go through ``pyarrow.fs``, which takes
its credentials from the environment as its documentation says.
"""

from __future__ import annotations

import errno
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from lamina.errors import BadOption
from lamina.log.files import Files
from lamina.log.files.real import RealFiles

if TYPE_CHECKING:
    from pyarrow.fs import FileInfo, FileSystem


def open_storage(path: str) -> tuple[Files, str]:
    """The disk that a path is on, and the path there. Raises: BadOption for a scheme that nobody knows."""
    if "://" not in path:
        return RealFiles(), path.rstrip("/") or "/"
    if path.startswith("file://"):
        return RealFiles(), path.removeprefix("file://").rstrip("/") or "/"
    return _arrow(path.rstrip("/"))


@lru_cache(maxsize=64)
def _arrow(uri: str) -> tuple[Files, str]:
    import pyarrow.fs

    try:
        system, path = pyarrow.fs.FileSystem.from_uri(uri)
    except (ValueError, OSError, NotImplementedError) as error:
        raise BadOption(f"{uri} cannot be reached: {error}", hint="a local path, or s3://, gs://, hdfs://") from error
    return cast("Files", ArrowFiles(system)), path


class ArrowFile:
    """An object of shared storage, open to be read."""

    def __init__(self, system: FileSystem, path: str) -> None:
        self.path = path
        facts: FileInfo = system.get_file_info(path)
        if not facts.is_file:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        self._size: int = facts.size
        self.identity = (facts.size, facts.mtime_ns or 0)
        self._file = system.open_input_file(path)

    def size(self) -> int:
        return self._size

    def read_into(self, buffer: memoryview, offset: int) -> int:
        data = self._file.read_at(min(len(buffer), max(self._size - offset, 0)), offset)
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()


class ArrowFiles:
    """Shared storage as the disk that the log's readers know: open and list. It is never written to here."""

    def __init__(self, system: FileSystem) -> None:
        self._system = system

    def open(self, path: str, *, write: bool = False) -> ArrowFile:
        if write:
            raise OSError(errno.EROFS, "shared storage is only read here", path)
        return ArrowFile(self._system, path)

    def list(self, folder: str) -> list[str]:
        import pyarrow.fs

        return [facts.base_name for facts in self._system.get_file_info(pyarrow.fs.FileSelector(folder))]

    def lock_holder(self, path: str) -> str | None:
        return None
