"""Parts of an export: Parquet files that are staged, synced, and count only when the manifest says so.

The same rows in the same batches give the same bytes: where a row group ends depends on nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from lamina.errors import from_os
from lamina.log.files import File, Files, join, write_all
from lamina.pipeline.staging import part_name
from lamina.units import MIB

_GROUP_ROWS: Final = 1 << 17
_GROUP_BYTES: Final = 32 * MIB
_MOST_BYTES: Final = 128 * MIB
"""That wait for their row groups, in all parts that a task has open."""
_MOST_OPEN: Final = 64

SUFFIX: Final = ".parquet"


@dataclass(frozen=True, slots=True)
class Part:
    """A staged file."""

    path: str
    day: str
    """``2026-11-16``; nothing for a table without days."""
    rows: int
    bytes: int
    first_ns: int | None = None
    last_ns: int | None = None


class _Stream:
    """A file as Arrow writes one."""

    def __init__(self, file: File) -> None:
        self._file, self.size, self.closed = file, 0, False
        self.is_given_up = False

    def write(self, data: bytes) -> int:
        taken = bytes(data)
        if not self.is_given_up:
            write_all(self._file, [taken])
        self.size += len(taken)
        return len(taken)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return False


class _Open:
    """A part that is being written."""

    def __init__(self, files: Files, path: str, day: str, schema: pa.Schema) -> None:
        self.path, self.day, self.schema = path, day, schema
        self._file = files.create(path)
        self._stream = _Stream(self._file)
        self._writer = pq.ParquetWriter(self._stream, schema, compression="zstd")
        self._waiting: list[pa.RecordBatch] = []
        self.waiting_rows = self.waiting_bytes = self.rows = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None

    def add(self, batch: pa.RecordBatch) -> None:
        self._waiting.append(batch)
        self.waiting_rows += batch.num_rows
        self.waiting_bytes += batch.nbytes
        if self.waiting_rows >= _GROUP_ROWS or self.waiting_bytes >= _GROUP_BYTES:
            self.write()

    def write(self) -> None:
        """What has gathered, as a row group."""
        if self.waiting_rows:
            table = pa.Table.from_batches(self._waiting, self.schema)
            self._writer.write_table(table, row_group_size=self.waiting_rows)
        self.rows += self.waiting_rows
        self._waiting, self.waiting_rows, self.waiting_bytes = [], 0, 0

    def note(self, first_ns: int, last_ns: int) -> None:
        self.first_ns = first_ns if self.first_ns is None else min(self.first_ns, first_ns)
        self.last_ns = last_ns if self.last_ns is None else max(self.last_ns, last_ns)

    def finish(self) -> Part:
        self.write()
        self._writer.close()
        self._file.sync()
        return Part(self.path, self.day, self.rows, self._stream.size, self.first_ns, self.last_ns)

    def close(self) -> None:
        """Whether it was finished or not."""
        self._stream.is_given_up = True  # Arrow would write the end of the file when it forgets the writer
        with suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._file.close()


class Parts:
    """The parts that one task writes: one a day, or a few if the days take turns too often."""

    def __init__(self, files: Files, folder: str, task: int, schema: pa.Schema) -> None:
        self._files, self._folder, self._task, self._schema = files, folder, task, schema
        self._open: dict[str, _Open] = {}
        self.done: list[Part] = []

    def add(self, day: str, batch: pa.RecordBatch, first_ns: int | None = None, last_ns: int | None = None) -> None:
        part = self._open.get(day)
        if part is None:
            if len(self._open) >= _MOST_OPEN:
                self._finish(next(iter(self._open)))
            path = join(self._folder, part_name(self._task) + SUFFIX)
            part = self._open[day] = _Open(self._files, path, day, self._schema)
        part.add(batch)
        if first_ns is not None and last_ns is not None:
            part.note(first_ns, last_ns)
        if sum(each.waiting_bytes for each in self._open.values()) > _MOST_BYTES:
            for each in self._open.values():
                each.write()

    def _finish(self, day: str) -> None:
        part = self._open.pop(day)
        try:
            self.done.append(part.finish())
        finally:
            part.close()

    def finish(self) -> None:
        for day in list(self._open):
            self._finish(day)

    def close(self) -> None:
        for part in self._open.values():
            part.close()


@contextmanager
def writing(files: Files, folder: str, task: int, schema: pa.Schema) -> Iterator[Parts]:
    """Durability: at the end of the block all parts are synced. Raises: DiskFull, DiskError."""
    parts = Parts(files, folder, task, schema)
    try:
        yield parts
        parts.finish()
    except OSError as error:
        raise from_os(error, "write a part to", folder) from error
    finally:
        parts.close()


def read_part(path: str, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """The rows of a part. Raises: DiskError, also if it is no Parquet file any more."""
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(1 << 16):
                yield pa.RecordBatch.from_arrays([batch.column(name) for name in schema.names], schema=schema)
    except (OSError, pa.ArrowException) as error:
        problem = error if isinstance(error, OSError) else OSError(5, str(error), path)
        raise from_os(problem, "read the part", path) from error
