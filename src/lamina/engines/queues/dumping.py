"""Dumps: the log is rotated, which is the only pause; then all up to there is folded into one file, and the rest goes.

    1 rotate the log: N is sealed, N+1 goes on     2 fold all up to N into N.dump.saving, sync, rename, sync the folder
    3 remove dumps before N                        4 remove logs up to N            5 remove unfinished dumps up to N

Logs that a consumer has yet to read (log/consumers.py) stay at 4 until it has, or for as long as it asked for: behind a
dump they count no more, so they do no harm.

Nothing is removed before the new dump is safe under its name. Whatever fails, and wherever a crash comes, the files
that are there give the same queues; the next dump removes what was left over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from lamina.clock import Clock
from lamina.engines.logged import Logged
from lamina.engines.queues import store_files
from lamina.engines.queues.dump_check import time_of_end
from lamina.engines.queues.fold_worker import Stopper, fold_elsewhere
from lamina.engines.queues.folding import FoldReport, FoldStopped
from lamina.errors import StorageError, from_os
from lamina.log import consumers, rewrite
from lamina.log.files import Files, file_size, join
from lamina.log.history import Base, History
from lamina.log.measured import Work
from lamina.log.naming import STORED, parse
from lamina.log.reader import Reader
from lamina.log.sync import Level
from lamina.log.unread import unread
from lamina.log.writer import Log
from lamina.units import MIB

_PIECE: Final = 4 * MIB  # of a file that is given back at once
_BETWEEN_S: Final = 0.002  # and how long others have the disk then

logger = logging.getLogger("lamina.queues")


@dataclass(frozen=True, slots=True)
class DumpReport:
    """What a dump did."""

    number: int
    queues: int
    messages: int
    expired: int
    """Messages that were left out."""
    bytes: int
    pause: float
    """Seconds in which no command could run."""
    seconds: float
    """All of it."""
    removed: list[str]

    def __str__(self) -> str:
        removed = ", ".join(self.removed) or "nothing"
        return (
            f"dump {self.number}: {self.queues} queues, {self.messages} messages, {self.expired} expired left out, "
            f"{self.bytes} bytes, paused {self.pause:.3f} s, took {self.seconds:.3f} s, removed {removed}"
        )


class Fold(Protocol):
    """As ``fold_elsewhere``."""

    def __call__(
        self,
        files: Files,
        folder: str,
        number: int,
        *,
        now: int,
        ttl: int,
        keeps_messages: bool,
        force: bool,
        clock: Clock,
        step: Callable[[str], None],
        stopper: Stopper,
    ) -> FoldReport: ...


class Dumper:
    """Writes the dumps of one engine. Threads: every method is safe from any thread."""

    def __init__(
        self,
        engine: Logged,
        files: Files,
        folder: str,
        clock: Clock,
        *,
        ttl: int,
        keeps_messages: bool = True,
        force: bool = False,
        history: History | None = None,
        fold: Fold = fold_elsewhere,
        before_fold: Callable[[], None] = lambda: None,
        removal: AbstractContextManager[object] | None = None,
        step: Callable[[str], None] = lambda name: None,
        piece: int = _PIECE,
    ) -> None:
        """``force``: the engine was restored with force (Restored.was_forced): the first dump passes over the same.

        ``before_fold`` does what has to be done before records of the log go. ``removal`` is held while a file is
        removed: a state that is being built from the files must not meet one that is just going. ``history`` says which
        files that a newer dump stands for stay; None: none does.

        ``step`` is called at places where a test may want to stop: "rotated", "saving written", "renamed",
        "dumps removed", "logs removed".
        """
        self._engine, self._files, self._folder, self._clock = engine, files, folder, clock
        self._ttl, self._keeps_messages, self._force = ttl, keeps_messages, force
        self._fold, self._before_fold, self._step = fold, before_fold, step
        self.history = history or History(keep_s=0)
        self._piece = piece
        self._removal: AbstractContextManager[object] = removal or engine.lock
        self.dumped = Work()
        self._removed_bytes = 0  # since the last dump began
        self._at_work = threading.Lock()
        self._stopper = Stopper()
        self._is_cancelled = threading.Event()

    def dump(self, *, at_stop: bool = False) -> DumpReport | None:
        """Write a dump now. Returns None if one is being written, or after ``cancel`` (unless ``at_stop``).

        Durability: the dump is synced before anything that it stands for is removed.
        Raises: StorageError; then the queues go on as before, and so can the next dump.
        """
        if not self._at_work.acquire(blocking=False):
            return None
        try:
            self._stopper = Stopper()  # before the look: then whoever cancels stops this one, or is seen
            if self._is_cancelled.is_set() and not at_stop:
                return None
            self._removed_bytes = 0
            report = self._dump()
            self.dumped.note(self._removed_bytes - report.bytes)
        except FoldStopped:
            logger.info("a dump was given up")
            raise
        except StorageError as error:
            logger.error("no dump: %s", error)
            raise
        finally:
            self._at_work.release()
        logger.info("%s", report)
        return report

    def cancel(self) -> None:
        """Give up the dump that is being written, and begin no other."""
        self._is_cancelled.set()
        self._stopper.stop()

    def _dump(self) -> DumpReport:
        start = self._clock.monotonic()
        number, pause = self._rotate()
        self._step("rotated")
        self._before_fold()
        folded = self._fold(
            self._files,
            self._folder,
            number,
            now=self._clock.now_ns() // 10**9,
            ttl=self._ttl,
            keeps_messages=self._keeps_messages,
            force=self._force,
            clock=self._clock,
            step=self._step,
            stopper=self._stopper,
        )
        self._force = False  # what was passed over is not needed any more
        self._step("renamed")
        removed = self._remove_up_to(number, self._clock.now_ns())
        return DumpReport(
            number,
            folded.queues,
            folded.messages,
            folded.expired,
            folded.bytes,
            pause,
            self._clock.monotonic() - start,
            removed,
        )

    def _rotate(self) -> tuple[int, float]:
        """Returns the number of the log that ended, and how long nobody else had the engine."""
        engine, log = self._engine, self._engine.log
        assert isinstance(log, Log)
        log.wait(log.written, Level.SYNCED)  # most of the sync, while commands go on
        with engine.lock:
            start = self._clock.monotonic()
            engine.all_written()
            # None: the disk was full when the queues were opened, so that the log is begun only now.
            sealed = log.rotate(begin_next=True) or log.rotate(begin_next=True)
            pause = self._clock.monotonic() - start
        name = parse(sealed or "")
        assert name is not None, "a store log is begun before it is rotated"
        return name.number, pause

    def tidy(self) -> list[str]:
        """Remove files that were kept for the past for long enough, or have to give way. Returns their names.

        Raises: StorageError; then the next call goes on from there.
        """
        if not self.history.keep_s or not self._at_work.acquire(blocking=False):
            return []
        try:
            dumps = [each for each in _found(self._files, self._folder).dumps if self._is_whole(each)]
            return self._remove_up_to(dumps[-1], self._clock.now_ns()) if dumps else []
        finally:
            self._at_work.release()

    def _is_whole(self, number: int) -> bool:
        return _ended_at(self._files, self._folder, number) is not None

    def _remove_up_to(self, number: int, now_ns: int) -> list[str]:
        dumps, logs, savings = obsolete(self._files, self._folder, number, now_ns, self.history)
        self._remove(dumps)
        self._step("dumps removed")
        self._remove(logs)
        self._step("logs removed")
        self._remove(savings)
        return [*dumps, *logs, *savings]

    def _remove(self, names: list[str]) -> None:
        for name in names:
            with self._removal:
                self._shrink(join(self._folder, name))
                rewrite.remove(self._files, self._folder, [name])

    def _shrink(self, path: str) -> None:
        """Give the room of a large file back piece by piece: all at once, other writes would wait for the disk.

        It is only worth trying: the file goes in any case, and nobody reads it any more.
        """
        with suppress(OSError):
            file = self._files.open(path, write=True)
            try:
                self._removed_bytes += file.size()
                for size in range(file.size() - self._piece, 0, -self._piece):
                    file.truncate(size)
                    self._is_cancelled.wait(_BETWEEN_S * self._piece / _PIECE)
            finally:
                file.close()


def obsolete(
    files: Files, folder: str, number: int, now_ns: int, history: History | None = None
) -> tuple[list[str], list[str], list[str]]:
    """What dump ``number`` stands for, once it is safe: dumps, logs and unfinished dumps, to be removed in this order.

    ``history``: what gives the queues as they were in the time that it keeps stays, as far as it has room.
    Raises: DiskError.
    """
    found = _found(files, folder)
    kept = [] if history is None else _kept_bases(files, folder, found, number, now_ns, history)
    oldest = min(kept, default=number)
    dumps = [store_files.dump_name(each) for each in found.dumps if each < number and each not in kept]
    logs = [store_files.log_name(each) for each in found.logs if each <= oldest]
    savings = [store_files.saving_name(each) for each in found.savings if each <= number]
    held = unread(Reader(folder, family=STORED, files=files), logs, consumers.tidy(files, folder, now_ns))
    return dumps, [name.name for name in logs if name not in held], savings


_BEGINNING: Final = -1  # the number of no dump: before the first log there was nothing


def _kept_bases(
    files: Files, folder: str, found: store_files.Found, newest: int, now_ns: int, history: History
) -> list[int]:
    """Numbers of older dumps that stay, and ``_BEGINNING`` if all logs do."""
    ended = {each: _ended_at(files, folder, each) for each in found.dumps if each <= newest} if history.keep_s else {}
    numbers = [each for each in ended if each < newest and ended[each] is not None]
    if 0 in found.logs:
        numbers.insert(0, _BEGINNING)
    bases = []
    for number, following in pairwise([*numbers, newest]):
        name = store_files.dump_name(number)
        own = {} if number == _BEGINNING else {name: _size(files, folder, name)}
        logs = [store_files.log_name(each).name for each in found.logs if number < each <= following]
        bases.append(Base(ended.get(number) or 0, own, sum(_size(files, folder, log) for log in logs)))
    kept = history.bases(folder, bases, ended.get(newest) or now_ns, now_ns)
    return [numbers[each] for each in kept]


def _found(files: Files, folder: str) -> store_files.Found:
    try:
        return store_files.find(files.list(folder))
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def _ended_at(files: Files, folder: str, number: int) -> int | None:
    """Up to when a dump shows what happened; None: it is broken."""
    path = join(folder, store_files.dump_name(number))
    try:
        file = files.open(path)
    except OSError as error:
        raise from_os(error, "open the file", path) from error
    try:
        return time_of_end(file)
    finally:
        file.close()


def _size(files: Files, folder: str, name: str) -> int:
    path = join(folder, name)
    try:
        file = files.open(path)
    except OSError as error:
        raise from_os(error, "open the file", path) from error
    try:
        return file_size(file)
    finally:
        file.close()
