"""A log as it was pinned, or at an earlier time: a disk on which its files end there, for the engine's own loaders.

All files are looked at before any is read, and then it is looked whether they are still the same: a cleaner that goes
from file to file takes the end of a job behind its beginning, so files of different moments together would bring back
the dead. Once open, a file stays what it is. Of a log with very many files some are open at a time; one that was closed
meanwhile, or not opened yet, has to be the same when it is needed, or the read is begun anew. Checkpoints are not
shown: they may know more than the log did at that time, and the log alone gives the same.
"""

from __future__ import annotations

import errno
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final, NamedTuple, cast

from lamina.errors import StorageError
from lamina.log import index as indexes
from lamina.log.files import File, Files
from lamina.log.naming import CHECKPOINT, INDEX_SUFFIX, MANIFEST, parse
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.segment import open_for_reading
from lamina.pipeline import places
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile

_TRIES: Final = 64
_MOST_OPEN: Final = 128
"""Files of one log that are kept open at the same time."""


class _Facts(NamedTuple):
    """By which a file is known again."""

    identity: tuple[int, int]
    size: int


class Frozen:
    """The files of one log. Use it with ``with``; ``files`` is what loaders take. Threads: one at a time."""

    def __init__(self, disk: Files, place: LogPlace, pinned: Sequence[PinnedFile], until_ns: int | None = None) -> None:
        """``until_ns``: only what was written up to this time, and at it.

        Raises: StorageError if the read has to be begun anew; DiskError.
        """
        self._disk, self.place, self.folder = disk, place, place.folder
        self._open: OrderedDict[str, File] = OrderedDict()  # who was asked for longest ago is first
        self._facts: dict[str, _Facts] = {}
        self._held: dict[str, int] = {}
        """By name: where the file ends."""
        try:
            self._look_at_all(pinned)
            self._held = self._choose(pinned, until_ns)
        except BaseException:
            self.close()
            raise
        for name in [name for name in self._open if name not in self._held]:
            self._open.pop(name).close()

    @property
    def files(self) -> Files:
        """For those who open and list files, and no more."""
        return cast("Files", self)

    @property
    def is_empty(self) -> bool:
        return not self._held

    def close(self) -> None:
        self._close_all()
        self._held, self._facts = {}, {}

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
        end = self._held.get(name)
        if end is not None:
            return cast("File", _Cut(self, name, path, end))
        if name in (CHECKPOINT, MANIFEST) or parse(name) is not None or self._is_of_later(name):
            raise FileNotFoundError(errno.ENOENT, "not there at that time", path)
        return self._disk.open(path)

    def _is_of_later(self, name: str) -> bool:
        """The index of a file that had not come so far, or was not there."""
        of = name.removesuffix(INDEX_SUFFIX)
        return of != name and (of not in self._held or self._held[of] != self._facts[of].size)

    def lock_holder(self, path: str) -> str | None:
        return self._disk.lock_holder(path)

    # -- opening -----------------------------------------------------------------------------------------------------

    def _look_at_all(self, pinned: Sequence[PinnedFile]) -> None:
        """At those that are there, all of one moment."""
        first = {each.name for each in pinned[:_MOST_OPEN]}
        for _ in range(_TRIES):
            self._facts = found = self._look(pinned)
            if not all(self._is_open(name) for name in found if name in first):
                self._close_all()
                continue
            again = self._look(each for each in pinned if each.name not in first)
            rest = {name: facts.identity for name, facts in found.items() if name not in first}
            if rest == {name: facts.identity for name, facts in again.items()}:
                self._check_there(pinned, found)
                return
            self._close_all()
        raise StorageError(f"{self.place.path} is cleaned too quickly to be read", hint="read again")

    def _look(self, pinned: Iterable[PinnedFile]) -> dict[str, _Facts]:
        found: dict[str, _Facts] = {}
        for each in pinned:
            try:
                file = open_for_reading(self._disk, self.folder, each.name)
            except FileNotFoundError:
                continue
            try:
                found[each.name] = _Facts(file.identity, file.size())
            finally:
                file.close()
        return found

    def file(self, name: str) -> File:
        """One that is held, open. Raises: StorageError if it is another one now, or gone; DiskError."""
        if name not in self._facts:
            raise OSError(errno.EBADF, "not held any more", name)
        if not self._is_open(name):
            problem = f"{name} of {self.place.path} was cleaned or removed while the log was read"
            raise StorageError(problem, hint="read again", file=name)
        return self._open[name]

    def _is_open(self, name: str) -> bool:
        """False if it is another file now, or gone; else it is open from here on, and perhaps another one is not."""
        if name in self._open:
            self._open.move_to_end(name)
            return True
        try:
            file = open_for_reading(self._disk, self.folder, name)
        except FileNotFoundError:
            return False
        known = self._facts[name]
        if file.identity != known.identity or file.size() < known.size:  # the newest grows
            file.close()
            return False
        if len(self._open) >= _MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        self._open[name] = file
        return True

    def _close_all(self) -> None:
        for file in self._open.values():
            file.close()
        self._open.clear()

    def _check_there(self, pinned: Sequence[PinnedFile], opened: dict[str, _Facts]) -> None:
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

    def _choose(self, pinned: Sequence[PinnedFile], until_ns: int | None) -> dict[str, int]:
        chosen: dict[str, int] = {}
        for known, following in zip_longest(pinned, pinned[1:]):
            found = self._facts.get(known.name)
            if found is None:
                continue
            is_same = found.identity == known.identity
            end = known.end if is_same else found.size
            limits = [until_ns] if is_same else [until_ns, known.last_ns]
            limit = min((each for each in limits if each is not None), default=None)
            if limit is not None and known.is_ordered:
                if known.first_ns is not None and known.first_ns > limit:
                    break  # and so are all that follow; one without records stays: in a row of numbers none may miss
                begins_ns = None if following is None else following.first_ns
                if begins_ns is None or begins_ns > limit:
                    end = self._end_at(known.name, self.file(known.name), limit, end)
            chosen[known.name] = end
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


class _Cut:
    """A file that ends earlier, and that whoever borrows it does not close."""

    def __init__(self, frozen: Frozen, name: str, path: str, end: int) -> None:
        self.path, self.identity = path, frozen.file(name).identity
        self._frozen, self._name, self._end = frozen, name, end

    def size(self) -> int:
        return self._end

    def read_into(self, buffer: memoryview, offset: int) -> int:
        left = self._end - offset
        return self._frozen.file(self._name).read_into(buffer[:left], offset) if left > 0 else 0

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
