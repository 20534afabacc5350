"""A log that is nice to have: bounded, and whatever becomes of it, who writes to it goes on.

What is wrong with it is told once, and again only after it was well in between. Damage is quarantined (as ``lamina log
repair`` does it); a log that failed is opened anew after a while; where even that is refused, nothing is kept.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from lamina.clock import Clock
from lamina.errors import Corruption, LaminaError, LogClosed, from_os
from lamina.log import consumers, rewrite
from lamina.log.commit import Committer
from lamina.log.files import Files, join
from lamina.log.frame import LAST_TIME
from lamina.log.naming import FileName
from lamina.log.options import LogOptions
from lamina.log.reader import Record
from lamina.log.sync import Level, interval
from lamina.log.teardown import shown
from lamina.log.writer import Log
from lamina.units import MIB

logger = logging.getLogger("lamina.server")

_OPENED_AGAIN_S: Final = 300.0


class KeptLog:
    """Threads: safe from any; who writes waits for who mends."""

    def __init__(
        self,
        folder: str,
        files: Files,
        clock: Clock,
        committer: Committer | None,
        *,
        most_bytes: int = 64 * MIB,
        most_s: float | None = None,
        segment_bytes: int = 1 * MIB,
    ) -> None:
        """``most_bytes``, ``most_s``: whole files that are beyond go, the oldest first."""
        self.folder = folder
        self._files, self._clock, self._committer = files, clock, committer
        self._most_bytes, self._most_s = most_bytes, most_s
        self._options = LogOptions(sync=interval(1000), segment_bytes=segment_bytes)
        self._using = threading.RLock()
        self._is_closed = self._is_told = False
        self._tried_at = clock.monotonic()
        self._log: Log | None = self._open()

    # -- open or not -------------------------------------------------------------------------------------------------

    def _open(self) -> Log | None:
        try:
            try:
                return self._opened(salvage=False)
            except Corruption as damage:
                self.warn(f"{damage}; it is quarantined, and what is whole is kept")
                return self._opened(salvage=True)
        except Exception as error:  # whatever it is: it is no reason not to start
            self.warn(shown(error))
            return None

    def _opened(self, *, salvage: bool) -> Log:
        return Log.open(
            self.folder,
            options=self._options,
            files=self._files,
            clock=self._clock,
            committer=self._committer,
            threaded=False,
            salvage=salvage,
        )

    def _usable(self) -> Log | None:
        """The log; one that failed is opened again, but not all the time."""
        log = self._log
        if self._is_closed or (log is not None and log.failure is None):
            return None if self._is_closed else log
        if self._clock.monotonic() - self._tried_at < _OPENED_AGAIN_S:
            return None
        self._tried_at = self._clock.monotonic()
        if log is not None:
            _close_quietly(log)
        self._log = self._open()
        return self._log

    def warn(self, problem: str) -> None:
        """Say it, unless it was said."""
        if not self._is_told:
            logger.warning("%s is not kept as it should be, and the server goes on: %s", self.folder, problem)
        self._is_told = True

    # -- writing -----------------------------------------------------------------------------------------------------

    def append(self, payload: bytes, *, level: Level = Level.WRITTEN) -> bool:
        """Write a record. False: it is not kept, and that was told. Durability: ``level``, and synced in a second."""
        with self._using:
            log = self._usable()
            if log is None:
                return False
            try:
                log.append(payload, until=level)
            except LaminaError as error:
                self.warn(str(error))
                return False
            self._is_told = False
            return True

    def begin_segment(self) -> bool:
        """Let what comes next be the first record of a new file. False: it goes on in the old one."""
        with self._using:
            log = self._usable()
            try:
                if log is not None:
                    log.rotate()
            except LaminaError as error:
                self.warn(str(error))
                return False
            return log is not None

    def shed(self, *, keep_newest: bool = False) -> int:
        """Remove the files that are beyond the bounds; with ``keep_newest`` all but the newest. Returns how many went.

        Files that somebody who reads the log said to need stay.
        """
        with self._using:
            log = self._usable()
            if log is None:
                return 0
            try:
                going = list(self._beyond(log, keep_newest=keep_newest))
                if going:
                    rewrite.remove(self._files, self.folder, going)
            except LaminaError as error:
                self.warn(str(error))
                return 0
            return len(going)

    def _beyond(self, log: Log, *, keep_newest: bool) -> Iterator[str]:
        reader = log.reader
        names = reader.segments()
        sizes = {name.name: self._size(name.name) for name in names}
        total = sum(sizes.values())
        now = self._clock.now_ns()
        held = consumers.held_after(self._files, self.folder, now)
        for name, following in pairwise(names):
            begins = reader.first_time(following)
            is_old = self._most_s is not None and begins is not None and begins < now - self._most_s * 10**9
            is_held = held is not None and (begins is None or begins > held)
            if is_held or not (keep_newest or is_old or total > self._most_bytes):
                return
            total -= sizes[name.name]
            yield name.name

    def _size(self, name: str) -> int:
        try:
            file = self._files.open(join(self.folder, name))
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise from_os(error, "open the file", join(self.folder, name)) from error
        try:
            return file.size()
        finally:
            file.close()

    # -- reading -----------------------------------------------------------------------------------------------------

    def records(self, since_ns: int = 0, until_ns: int = LAST_TIME) -> Iterator[Record]:
        """What is kept of a time, oldest first. Damage that is found is told, quarantined and passed over."""
        is_repaired = False
        for name in self._segments():
            while True:
                try:
                    for record in self._read(name, since_ns, until_ns):
                        since_ns = record.time_ns + 1
                        yield record
                except LogClosed:
                    return
                except LaminaError as error:
                    # Once: what cannot be mended is left where it is, and only its file is passed over.
                    if isinstance(error, Corruption) and not is_repaired and self._repair(error):
                        is_repaired = True
                        continue
                    self.warn(str(error))
                break

    def _segments(self) -> list[FileName]:
        try:
            return [] if self._log is None else self._log.reader.segments()
        except LaminaError as error:
            self.warn(str(error))
            return []

    def _read(self, name: FileName, since_ns: int, until_ns: int) -> Iterator[Record]:
        log = self._log
        begins = None if log is None else log.reader.first_time(name)
        if log is None or begins is None or begins >= until_ns:
            return
        later = [each for each in log.reader.segments() if each > name]
        following = log.reader.first_time(later[0]) if later else None
        ends = until_ns if following is None else min(following, until_ns)
        since_ns = max(begins, since_ns)
        if since_ns < ends:
            yield from log.reader.read(since=since_ns, until=ends)

    def _repair(self, damage: Corruption) -> bool:
        """Quarantine what is damaged, beside those who write."""
        with self._using:
            if self._log is None or self._is_closed:
                return False
            self.warn(f"{damage}; it is quarantined, and what is whole is kept")
            _close_quietly(self._log)
            try:
                self._log = self._opened(salvage=True)
            except LaminaError:
                self._log = None
            return self._log is not None

    def close(self) -> None:
        """Durability: what was written is synced, or it is told that it is not."""
        with self._using:
            self._is_closed = True
            if self._log is not None:
                try:
                    self._log.close()
                except LaminaError as error:
                    self.warn(str(error))


def _close_quietly(log: Log) -> None:
    try:
        log.close()
    except LaminaError:
        return  # it has failed, and that was told
