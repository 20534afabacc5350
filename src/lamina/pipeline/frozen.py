"""A log as it was pinned, or at an earlier time: a disk on which its files end there, for the engine's own loaders.

All files are opened before any is read, and then it is looked whether they are still the same: a cleaner that goes from
file to file takes the end of a job behind its beginning, so files of different moments together would bring back the
dead. Once open, a file stays what it is. Checkpoints are not shown: they may know more than the log did at that time,
and the log alone gives the same.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import suppress
from itertools import zip_longest
from typing import Final, cast

from lamina.errors import StorageError
from lamina.log import index as indexes
from lamina.log.files import File, Files
from lamina.log.naming import CHECKPOINT, parse
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.segment import open_for_reading
from lamina.pipeline import places
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile

_TRIES: Final = 64


class Frozen:
    """The files of one log. Use it with ``with``; ``files`` is what loaders take. Threads: one at a time."""

    def __init__(self, disk: Files, place: LogPlace, pinned: Sequence[PinnedFile], until_ns: int | None = None) -> None:
        """``until_ns``: only what was written up to this time, and at it.

        Raises: StorageError if the read has to be begun anew; DiskError.
        """
        self._disk, self.place, self.folder = disk, place, place.folder
        self._held: dict[str, tuple[File, int]] = {}
        """By name: the file, and where it ends."""
        opened = self._open_all(pinned)
        try:
            self._held = self._choose(pinned, opened, until_ns)
        except BaseException:
            self._close(opened)
            raise
        self._close({name: file for name, file in opened.items() if name not in self._held})

    @property
    def files(self) -> Files:
        """For those who open and list files, and no more."""
        return cast("Files", self)

    @property
    def is_empty(self) -> bool:
        return not self._held

    def close(self) -> None:
        self._close({name: file for name, (file, _) in self._held.items()})
        self._held = {}

    def __enter__(self) -> Frozen:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    # -- as a disk ---------------------------------------------------------------------------------------------------

    def list(self, folder: str) -> list[str]:
        return [*self._held] if folder == self.folder else self._disk.list(folder)

    def open(self, path: str, *, write: bool = False) -> File:
        if write:
            raise OSError(errno.EROFS, "a state is only read", path)
        folder, _, name = path.rpartition("/")
        if folder != self.folder.rstrip("/"):
            return self._disk.open(path)
        held = self._held.get(name)
        if held is not None:
            return cast("File", _Cut(*held))
        if name == CHECKPOINT or parse(name) is not None:
            raise FileNotFoundError(errno.ENOENT, "not there at that time", path)
        return self._disk.open(path)

    def lock_holder(self, path: str) -> str | None:
        return self._disk.lock_holder(path)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _open_all(self, pinned: Sequence[PinnedFile]) -> dict[str, File]:
        """Those that are there, all of one moment."""
        for _ in range(_TRIES):
            opened = self._try_open(pinned)
            again: dict[str, File] = {}
            try:
                again = self._try_open(pinned)
                if _identities(opened) == _identities(again):
                    self._check_there(pinned, opened)
                    return opened
            except BaseException:
                self._close(opened)
                raise
            finally:
                self._close(again)
            self._close(opened)
        raise StorageError(f"{self.place.path} is cleaned too quickly to be read", hint="read again")

    def _try_open(self, pinned: Sequence[PinnedFile]) -> dict[str, File]:
        opened: dict[str, File] = {}
        try:
            for file in pinned:
                with suppress(FileNotFoundError):
                    opened[file.name] = open_for_reading(self._disk, self.folder, file.name)
        except BaseException:
            self._close(opened)
            raise
        return opened

    def _check_there(self, pinned: Sequence[PinnedFile], opened: dict[str, File]) -> None:
        """What cleaning has taken of other logs was of nobody's any more; of queues it is in a dump now."""
        if self.place.kind == places.TOPIC:
            for file in pinned:
                held = opened.get(file.name)
                if held is not None and held.identity != file.identity:
                    raise StorageError(
                        f"{file.name} of {self.place.path} was written anew since the read was made",
                        hint="read again: it is without what was dead by then",
                        file=file.name,
                    )
        if self.place.kind != places.QUEUES:
            return
        for file in pinned:
            if file.name not in opened or opened[file.name].identity != file.identity:
                raise StorageError(
                    f"{file.name} of {self.place.path} was taken into a dump since the read was made",
                    hint="read again: what it held is there",
                    file=file.name,
                )

    def _choose(
        self, pinned: Sequence[PinnedFile], opened: dict[str, File], until_ns: int | None
    ) -> dict[str, tuple[File, int]]:
        chosen: dict[str, tuple[File, int]] = {}
        for known, following in zip_longest(pinned, pinned[1:]):
            file = opened.get(known.name)
            if file is None:
                continue
            is_same = file.identity == known.identity
            end = known.end if is_same else file.size()
            limits = [until_ns] if is_same else [until_ns, known.last_ns]
            limit = min((each for each in limits if each is not None), default=None)
            if limit is not None and known.is_ordered:
                if known.first_ns is not None and known.first_ns > limit:
                    break  # and so are all that follow; one without records stays: in a row of numbers none may miss
                begins_ns = None if following is None else following.first_ns
                if begins_ns is None or begins_ns > limit:
                    end = self._end_at(known.name, file, limit, end)
            chosen[known.name] = file, end
        return chosen

    def _end_at(self, name: str, file: File, limit_ns: int, end: int) -> int:
        """Where the last record of that time ends. Times rise within a file."""
        index = indexes.load(self._disk, self.folder, name, file, may_end_early=True)
        start = HEADER_SIZE if index is None else index.seek(limit_ns + 1)
        scan = FileScan(file, start, end)
        for batch in scan:
            at = bisect_right(batch.times, limit_ns)
            if at < len(batch.times):
                return batch.record_offset(at)
        return end  # whoever reads it meets what is wrong with it, if something is

    @staticmethod
    def _close(files: dict[str, File]) -> None:
        for file in files.values():
            file.close()


class _Cut:
    """A file that ends earlier, and that whoever borrows it does not close."""

    def __init__(self, file: File, end: int) -> None:
        self.path, self.identity = file.path, file.identity
        self._file, self._end = file, end

    def size(self) -> int:
        return self._end

    def read_into(self, buffer: memoryview, offset: int) -> int:
        left = self._end - offset
        return self._file.read_into(buffer[:left], offset) if left > 0 else 0

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


def _identities(opened: dict[str, File]) -> dict[str, tuple[int, int]]:
    return {name: file.identity for name, file in opened.items()}
