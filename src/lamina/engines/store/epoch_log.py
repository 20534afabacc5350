"""The epoch file while it grows: a log of the kernel's with one record an epoch, each synced before it is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lamina.clock import Clock
from lamina.engines.store import epoch_file
from lamina.engines.store.channel import NoLock
from lamina.engines.store.codec import Reached
from lamina.errors import from_os
from lamina.log import index
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.formats import EPOCH
from lamina.log.measured import Measured
from lamina.log.naming import PWAL
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS, Level
from lamina.log.writer import Log

_OPTIONS = LogOptions(sync=ALWAYS, segment_bytes=1 << 62)


class EpochLog:
    """Threads: one at a time; the store's disk lock sees to it."""

    def __init__(
        self,
        files: Files,
        folder: str,
        clock: Clock,
        committer: Committer | None,
        last_ns: int,
        head: Callable[[], tuple[int, list[bytes]]],
        was_rotated: Callable[[str], None],
    ) -> None:
        """``head``: the durable epoch, and the first records of a file, which say it. ``was_rotated`` is called with
        each new name."""
        self._files, self._folder, self._clock, self._committer = files, folder, clock, committer
        self._last_ns, self._head, self._was_rotated = last_ns, head, was_rotated
        self._log: Log | None = None
        self.has_begun = False
        """There was a head, at least once: sessions may be written."""
        self.reached = Reached()
        """How far it has come, for good. Only synced records count: files of channels repeat it."""
        self.measured: Measured | None = None
        """Where what it writes is counted, with what the channels write."""
        self._goes_to: str | None = None  # the name of the present file as soon as it can be renamed
        self._is_renamed = False  # it has it, but the folder is not synced

    @property
    def log(self) -> Log | None:
        """That of the active file."""
        return self._log

    def begin(self) -> None:
        """Have a file with its head. Durability: when it returns, that is synced. Raises: StorageError; try again."""
        if self._goes_to is not None:
            self._rename(self._goes_to)
        if self._log is None:
            self._log = Log.start(
                self._folder,
                epoch_file.active(),
                last=self._last_ns,
                held=NoLock(),
                options=_OPTIONS,
                family=PWAL,
                format=EPOCH,
                files=self._files,
                clock=self._clock,
                committer=self._committer,
                threaded=False,
            )
            if self.measured is not None:
                self._log.stats.measure_with(self.measured)
            self._has_head = False
        if not self._has_head:
            epoch, records = self._head()
            self._append(epoch, records)
            self._has_head = self.has_begun = True

    def record(self, epoch: int, records: Sequence[bytes]) -> None:
        """Append records; with them everything up to ``epoch`` is durable.

        Durability: when it returns they are synced. Raises: StorageError, and none is there.
        """
        self.begin()
        self._append(epoch, records)

    def _append(self, epoch: int, records: Sequence[bytes]) -> None:
        assert self._log is not None
        position = self._log.append_many(records, until=Level.SYNCED)
        self.reached = Reached(epoch, position)

    def rotate(self, name: str) -> None:
        """Close the file, give it the name ``name`` and begin the next one. Raises: StorageError."""
        if self._log is not None:
            self._log.rotate()
            self._log.close()
            self._last_ns = self._log.position
            self._log = None
        self._goes_to = self._goes_to or name
        self.begin()

    def _rename(self, name: str) -> None:
        path = join(self._folder, epoch_file.NAME)
        try:
            if not self._is_renamed:
                self._files.rename(path, join(self._folder, name))
                self._is_renamed = True
                self._was_rotated(name)
            # Before there is another file of that name: a power cut could leave the new one alone.
            self._files.sync_folder(self._folder)
            self._goes_to, self._is_renamed = None, False
        except OSError as error:
            raise from_os(error, "rotate the file", path) from error
        index.discard(self._files, self._folder, epoch_file.NAME)

    def close(self) -> None:
        log, self._log = self._log, None
        if log is not None:
            log.close()
