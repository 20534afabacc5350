"""One log as a stream follows it: how far it reaches, where it begins, and which files hold a range of its times.

How far it reaches is asked a hundred times a second. As long as neither the folder nor the newest file has changed, the
answer costs two calls of the operating system; else what was added is looked at. Names are listed when the folder has
changed. On shared storage, which does not tell, that is so once a second.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from lamina.errors import StorageError, from_os
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.log.frame import MAX_PAYLOAD
from lamina.log.naming import FileName, follows
from lamina.log.reader import Reader, Segment, attested_at_head
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile
from lamina.pipeline.streaming.growing import Growing

_SETTLED_NS: Final = 50_000_000
"""A folder that changed more recently may change again without another time."""
_TRIES: Final = 100
_NEVER: Final = (1 << 63) - 1
_WITH_NUMBERS: Final = ("numbered", "stored")
"""Families whose names show that a file is missing."""


class Hole(NamedTuple):
    """Files that are gone from the middle of a log, and with them records."""

    first: int
    """Number of the first file."""
    last: int
    after: int
    """Their records are later than this,"""
    until: int
    """and this was the time of the last one."""


class Track:
    """Of one log. Threads: one at a time."""

    def __init__(self, disk: Files, place: LogPlace, stream: str, key: str, *, is_permissive: bool) -> None:
        self.place, self.key, self.stream = place, key, stream
        self._disk, self._is_permissive = disk, is_permissive
        self._reader = Reader(place.folder, stream=stream, files=disk)
        self._stamp: int | None = None
        self._growing: Growing | None = None
        self._reach = 0

    @property
    def growing(self) -> Growing | None:
        """The newest file, as the last look found it."""
        return self._growing

    # -- how far -----------------------------------------------------------------------------------------------------

    def look(self) -> int:
        """Time of the last whole record; 0: there is none. It never falls. Raises: Corruption, DiskError."""
        stamp = self._folder_stamp()
        if stamp is None or stamp != self._stamp:
            self._look_for_files()
            self._stamp = stamp
        if self._growing is not None:
            self._growing.grow()
            self._reach = max(self._reach, self._growing.index.last_data)
        return self._reach

    def _folder_stamp(self) -> int | None:
        """What changes when a name in the folder does; None: it may have."""
        if not isinstance(self._disk, RealFiles):
            return int(time.monotonic())
        try:
            changed = os.stat(self.place.folder).st_mtime_ns
        except OSError as error:
            raise from_os(error, "look at the folder", self.place.folder) from error
        return changed if time.time_ns() - changed > _SETTLED_NS else None

    def _look_for_files(self) -> None:
        names = self._reader.segments()
        newest = self._open(names[-1]) if names else None
        if newest is not None:
            self._reader.forget(newest.name)  # channels of the store give their name to the next file
            before, self._growing = self._growing, newest
            if before is not None:
                before.grow()  # what came since the last look
                self._reach = max(self._reach, before.index.last_data)
                before.close()
            newest.grow()
        if newest is None or not newest.index.last_data:
            self._look_back(names[:-1] if names else [])

    def _open(self, name: FileName) -> Growing | None:
        """The newest file; None: it is gone, only just made, or the one that is being watched."""
        segment = self._reader.open(name, is_newest=True)
        if segment is None:
            return None
        known = self._growing
        is_known = known is not None and (known.name, known.file.identity) == (name, segment.file.identity)
        if is_known and isinstance(self._disk, RealFiles):  # elsewhere an open file does not grow
            segment.file.close()
            return None
        return Growing(self._disk, self.place.folder, segment, is_permissive=self._is_permissive)

    def _look_back(self, names: list[FileName]) -> None:
        """The newest file has no record yet: the last one is in a file before it."""
        for name in reversed(names):
            if self._reach:
                return
            segment = self._reader.open(name, is_newest=False)
            if segment is not None:
                try:
                    self._reach = self._reader.index_of(segment).last_data
                finally:
                    segment.file.close()

    # -- where it begins ---------------------------------------------------------------------------------------------

    def begins_after(self) -> int:
        """Time of the last record before the oldest that is there, as far as the log knows it; 0: nothing was removed.

        Raises: Corruption, WrongFormat, DiskError.
        """
        for _ in range(_TRIES):
            names = self._reader.segments()
            for place, name in enumerate(names):
                segment = self._reader.open(name, is_newest=place == len(names) - 1)
                if segment is None:
                    break  # removed since the folder was listed, or only just made
                try:
                    return attested_at_head(segment, MAX_PAYLOAD) or 0
                finally:
                    segment.file.close()
            if self._reader.segments() == names:
                return 0
        return 0

    def holes(self, after: int, until: int) -> list[Hole]:
        """Where whole files with records of that range are gone from the middle, as far as their numbers show it.

        Logs with other names have no such: in topics only the oldest file goes without a trace, and the store merges
        the oldest of a channel first. Raises: Corruption, WrongFormat, DiskError.
        """
        for _ in range(_TRIES):
            names = self._names()
            found = self._holes(names, after, until) if names and names[0].family in _WITH_NUMBERS else []
            if self._names() == names:
                return found
        raise self._too_fast()

    def _holes(self, names: list[FileName], after: int, until: int) -> list[Hole]:
        found = []
        for place in range(self._reader.file_for(names, after + 1) + 1, len(names)):
            before, name = names[place - 1], names[place]
            if follows(before, name):
                continue
            attested = self._ask(name, lambda segment: attested_at_head(segment, MAX_PAYLOAD) or 0)
            if attested <= after:
                continue
            last = max(after, self._ask(before, lambda segment: self._reader.index_of(segment).last_data))
            if last >= until:
                break
            if last < attested:
                found.append(Hole(before.number + 1, name.number - 1, last, attested))
        return found

    def gone_after(self, after: int) -> list[tuple[int, int, int]]:
        """Files that are missing from the middle past a time: the numbers of the first and the last of them in a row,
        and the time of their last record, or one that never comes if nothing says it yet.
        """
        names = self._names()
        if not names or names[0].family not in _WITH_NUMBERS:
            return []
        found = []
        for place in range(self._reader.file_for(names, after + 1) + 1, len(names)):
            before, name = names[place - 1], names[place]
            if not follows(before, name):
                attested = self._ask(name, lambda segment: attested_at_head(segment, MAX_PAYLOAD) or 0) or _NEVER
                found.append((before.number + 1, name.number - 1, attested))
        return found

    def _ask(self, name: FileName, question: Callable[[Segment], int]) -> int:
        """0: the file is gone, or only just made."""
        segment = self._reader.open(name, is_newest=True)
        if segment is None:
            return 0
        try:
            return question(segment)
        finally:
            segment.file.close()

    # -- files -------------------------------------------------------------------------------------------------------

    def pin(self, after: int, until: int) -> list[PinnedFile]:
        """The files with records past ``after`` and up to ``until``. Raises: Corruption, WrongFormat, DiskError."""
        self.look()
        return self._pin_steadily(after, until)

    def _pin_steadily(self, after: int, until: int) -> list[PinnedFile]:
        """As of the last look. Raises: StorageError if the files change faster than they can be looked at."""
        for _ in range(_TRIES):
            names = self._names()
            found = list(self._pin(names, after, until))
            if self._names() == names:
                return found
            # Files were rotated or removed meanwhile.
        raise self._too_fast()

    def _too_fast(self) -> StorageError:
        return StorageError(f"{self.place.path}: its files change too fast to be read", hint="start the stream again")

    def files(self, after: int, until: int) -> Iterator[PinnedFile]:
        """The same, one at a time, for who may stop early. What is removed meanwhile is left out."""
        self.look()
        yield from self._pin(self._names(), after, until)

    def _names(self) -> list[FileName]:
        names = self._reader.segments()
        if names and names[-1].family == "pwal":
            self._reader.forget(names[-1])
        return names

    def _pin(self, names: list[FileName], after: int, until: int) -> Iterator[PinnedFile]:
        known = self._growing
        for place in range(self._reader.file_for(names, after + 1), len(names)):
            # Between a rotation and the next record the newest file is one that is closed: all of it counts, though the
            # last look may have missed it, which looked for it under the name it had.
            name, is_newest = names[place], place == len(names) - 1 and not names[place].is_closed
            first = self._reader.first_time(name)
            if first is not None and first > until:
                return
            segment = self._reader.open(name, is_newest=is_newest)
            if segment is None:
                continue
            try:
                # Without a first record a file is new, or damaged: then who reads it tells.
                facts = (self.place, name.name, segment.format, segment.file.identity)
                if known is not None and known.file.identity == segment.file.identity:  # its name may be another now
                    points = tuple(zip(known.index.times, known.index.offsets, strict=True))
                    end = known.index.bytes if is_newest else segment.end
                    last = known.index.last if is_newest else None
                    yield PinnedFile(*facts, end, first, last, points=points)
                elif not is_newest:
                    yield PinnedFile(*facts, segment.end, first)
                # else it is newer than the last look, and so are its records
            finally:
                segment.file.close()

    # -- where to stop -----------------------------------------------------------------------------------------------

    def settle(self, time_ns: int, until: int) -> int:
        """Where a batch may end that should end at a time: there, or somewhat later, but not past ``until``."""
        return time_ns

    def settle_back(self, time_ns: int) -> int:
        """Where a stream may begin that should begin after a time: there, or somewhat earlier."""
        return time_ns

    def close(self) -> None:
        if self._growing is not None:
            self._growing.close()
            self._growing = None
