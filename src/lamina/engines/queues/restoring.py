"""Restoring the queues: the newest dump, then every log behind it, record by record.

Torn tails are dropped with a warning. What cannot be explained by a crash (a damaged record, a missing log) refuses to
start and names the place, unless it is forced: then it is skipped, with a warning. A dump that is not whole is passed
over if the one before it and all logs since are still there, as a crash leaves them.

Messages that have expired meanwhile are left out at the end, not on the way: so what acknowledges them finds them.
A refusal changes nothing. What is served afterwards was synced before.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from lamina.engines.queues import codec, ids, state, store_files
from lamina.engines.queues.dump_check import BrokenDump, DumpCheck, lacks_log
from lamina.engines.queues.message import NO_TTL
from lamina.engines.queues.state import State
from lamina.engines.queues.store_files import Ignored, Plan
from lamina.engines.queues.store_reading import (
    BAD_RECORD,
    GAP,
    LOST_AT_END,
    LOST_RECORDS,
    TORN_TAIL,
    StoreReading,
    reached_before,
)
from lamina.errors import Corruption, StorageError, from_os
from lamina.log import consumers
from lamina.log.files import Files, join
from lamina.log.manifest import Witness, lost_files
from lamina.log.naming import sort_out
from lamina.log.segment import open_for_reading

IGNORED_FILE: Final = "ignored_file"
BROKEN_DUMP: Final = "broken_dump"
MISSING_LOG: Final = "missing_log"
_MOST_WARNINGS: Final = 1000  # that are kept; the rest is counted

_Rid = bytes
ABOUT_MESSAGES: Final = frozenset({codec.MSG, codec.QUOTA, codec.ACK, codec.EXPIRE})
_WORDS: Final = {
    state.UNKNOWN_QUEUE: "there is no such queue",
    state.NOT_HEAD: "the message is not at the head of its queue",
    state.DUPLICATE: "the message is in its queue already",
}


class StoreWarning(NamedTuple):
    """Something odd about the files. The text names no queue but by its handle, and no message."""

    kind: str
    file: str
    record: int | None
    text: str
    offset: int = 0

    def __str__(self) -> str:
        return self.text


class RestoreRefused(Corruption):
    """The store is not what a crash leaves behind; nothing was changed. ``warnings`` ends with the reason."""

    def __init__(self, warnings: list[StoreWarning], offset: int = 0) -> None:
        problem = warnings[-1]
        hint = "bring back the file from a backup; with force, the store starts without what cannot be read"
        super().__init__(problem.file, offset, problem.text, hint=hint)
        self.message = problem.text
        self.facts["record"] = problem.record
        self.kind, self.record, self.warnings = problem.kind, problem.record, warnings


@dataclass(slots=True)
class Restored:
    """What was found."""

    state: State = field(default_factory=State)
    load_order: list[str] = field(default_factory=list)
    ignored: list[Ignored] = field(default_factory=list)
    warnings: list[StoreWarning] = field(default_factory=list)
    more_warnings: int = 0
    """How many there were beside those that are kept."""
    next_number: int = 0
    last_time: int = 0
    """Of the newest record, in nanoseconds: the next log goes on from there."""
    expired: int = 0
    """Messages that were left out."""
    left_out: list[tuple[bytes, bytes]] = field(default_factory=list)
    """Which: the ids of the queue and of the message, for each."""
    records: int = 0
    log_records: int = 0
    """Of these in logs: after an orderly stop there are none, for it ends with a dump."""
    bytes: int = 0
    deleted: set[_Rid] = field(default_factory=set)
    """Queues that the logs deleted: in the store ``journal``, their folders may still be there."""
    kept: frozenset[str] = frozenset()
    """Reasons for which a file is not loaded that a dump keeps all the same: somebody reads the log from outside, or
    the past is wanted.
    """

    @property
    def wants_dump(self) -> bool:
        """The files are not as a dump leaves them: one should be written, so that this does not last."""
        logs = sum(name.endswith(".log") for name in self.load_order)
        ignored = [one for one in self.ignored if one.reason not in self.kept]
        return logs > 1 or bool(ignored) or self.was_forced or self._has(TORN_TAIL, GAP)

    @property
    def was_forced(self) -> bool:
        """Something was passed over that is refused without force: reading the files again, or a dump, needs it too."""
        return self._has(BAD_RECORD, LOST_RECORDS, MISSING_LOG)

    def _has(self, *kinds: str) -> bool:
        return any(warning.kind in kinds for warning in self.warnings)


def restore(
    files: Files,
    folder: str,
    *,
    now: int,
    ttl: int,
    force: bool = False,
    keeps_messages: bool = True,
    keeps_history: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Restored:
    """Load the queues of ``folder``. ``now`` and ``ttl`` (of the server) in seconds say which messages have expired.

    ``keeps_messages``: False if messages are elsewhere; then records about them are passed over. ``keeps_history``:
    dumps leave older files there (log/history.py). ``progress`` is told how many bytes of how many were
    read.
    Durability: what was loaded is synced.
    Raises: RestoreRefused, WrongFormat: nothing was changed; DiskError.
    """
    try:
        names = files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    restorer = _Restorer(files, folder, names, force=force, keeps_messages=keeps_messages, progress=progress)
    with suppress(StorageError):  # the queues do not depend on it
        if consumers.holding(files, folder, now * 10**9):
            restorer.kept |= {store_files.COVERED}
    if keeps_history:
        restorer.kept |= {store_files.COVERED, store_files.OLDER}
    found = restorer.load()
    found.state.is_read()
    found.expired = leave_out_expired(found.state, now, ttl, found.left_out)
    return found


def leave_out_expired(state: State, now: int, ttl: int, gone: list[tuple[bytes, bytes]] | None = None) -> int:
    """Let every expired message go, wherever in its queue. Returns how many went; ``gone`` gets the ids of the queue
    and of the message for each.
    """
    before = state.messages
    for queue in state.queues.values():
        if queue.messages:
            lasts = ttl if queue.ttl == NO_TTL else queue.ttl
            kept = [message for message in queue.messages if not message.has_expired(now, lasts)]
            if gone is not None and len(kept) < len(queue.messages):
                staying = {message.id for message in kept}
                gone += [(queue.rid, message.id) for message in queue.messages if message.id not in staying]
            state.messages -= len(queue.messages) - len(kept)
            queue.messages = kept
    return before - state.messages


def _log_after(name: str) -> str:
    return store_files.log_name(store_files.find([name]).logs[0] + 1).name


class _Restorer:
    def __init__(
        self,
        files: Files,
        folder: str,
        names: list[str],
        *,
        force: bool,
        keeps_messages: bool,
        progress: Callable[[int, int], None] | None,
    ) -> None:
        self._files, self._folder, self._names = files, folder, names
        self._force, self._keeps_messages = force, keeps_messages
        self._progress = progress
        self._total = self._before = 0
        self.kept: frozenset[str] = frozenset()
        self.found = Restored()
        self._witness = Witness(files, folder)

    def load(self) -> Restored:
        broken: list[BrokenDump] = []
        lost = [problem.file for problem in lost_files(self._files, self._folder, sort_out(self._names))]
        while True:
            plan = store_files.plan(self._names, broken={problem.number for problem in broken}, lost=lost)
            self._begin(plan, broken, lost)
            try:
                read = self._load(plan)
            except BrokenDump as problem:
                broken.append(problem)
                continue
            for reading in read:
                reading.sync()
            self._sync_folder()
            return self.found

    def _begin(self, plan: Plan, broken: list[BrokenDump], lost: list[str]) -> None:
        found = self.found = Restored(load_order=plan.load_order, ignored=plan.ignored, next_number=plan.next_number)
        found.kept = self.kept
        expected = {store_files.BROKEN, *self.kept}
        for file, reason in plan.ignored:
            if reason not in expected:
                self._warn(IGNORED_FILE, file, None, f"{file}: not loaded ({reason})")
        for problem in broken:
            file = store_files.dump_name(problem.number)
            self._warn(BROKEN_DUMP, file, problem.record, f"{file}: not loaded, it is broken ({problem.reason})")
        if broken and plan.missing:
            gone = store_files.log_name(plan.missing[0]).name
            text = f"{found.warnings[-1].text}, and without {gone} there is no way round it"
            found.warnings[-1] = found.warnings[-1]._replace(text=text)
            raise RestoreRefused(found.warnings, broken[-1].offset)
        dumps = [file for file in lost if file.endswith(".dump")] if plan.missing else []
        for file in dumps or (store_files.log_name(number).name for number in plan.missing):
            self._warn(MISSING_LOG, file, None, f"{file}: the {'dump' if dumps else 'log'} is missing")
        if plan.missing and not self._force:
            raise RestoreRefused(found.warnings)

    def _load(self, plan: Plan) -> list[StoreReading]:
        self._before, self._total = 0, self._size_of(plan) if self._progress is not None else 0
        read = []
        if plan.base is not None:
            read.append(self._load_dump(plan.base))
        self._check_nothing_lacks(plan)
        for number in plan.logs:
            self._check_whole(name := store_files.log_name(number).name)
            read.append(self._load_log(name))
        return read

    def _check_whole(self, name: str) -> None:
        """Raises: RestoreRefused if the log is not as its manifest says that it was synced, unless it is forced."""
        try:
            file = open_for_reading(self._files, self._folder, name)
        except FileNotFoundError:
            return  # a dump took it away: who reads it next says so
        try:
            wrong = self._witness.differs(name, file)
        finally:
            file.close()
        if wrong is not None:
            self._warn(LOST_RECORDS, name, None, f"{name}, byte {wrong.offset}: {wrong.reason}")
            if not self._force:
                raise RestoreRefused(self.found.warnings, wrong.offset)

    # -- logs --------------------------------------------------------------------------------------------------------

    def _load_log(self, name: str) -> StoreReading:
        found = self.found
        reading = StoreReading(self._files, self._folder, name, found.last_time, self._teller(name))
        decode, apply, keeps_messages, deleted = (
            codec.decode,
            found.state.apply_values,
            self._keeps_messages,
            found.deleted,
        )
        for payloads in reading:
            number = reading.records
            for payload in payloads:
                number += 1
                try:
                    values: list[Any] = decode(payload)
                except codec.BadRecord as error:
                    self._teller(name)(BAD_RECORD, number, reading.done, str(error))
                    continue
                kind = values[0]
                if kind in ABOUT_MESSAGES:
                    if not keeps_messages:
                        continue
                elif kind == codec.DELETE:
                    deleted.add(values[1])
                elif kind == codec.CREATE:
                    deleted.discard(values[1])
                problem = apply(values)
                if problem is not None:
                    self._odd(problem, name, number, values)
            self._tell_progress(reading)
        reached = reached_before(self._files, self._folder, _log_after(name))
        if reached > reading.last:
            self._teller(name)(LOST_RECORDS, None, reading.done, LOST_AT_END)
            reading.last = reached
        self._note(reading)
        found.log_records += reading.records
        return reading

    def _odd(self, problem: str, name: str, number: int, values: list[Any]) -> None:
        if problem == state.NOT_HEAD and values[0] == codec.EXPIRE:
            return  # the dump left it out before the queue did
        text = f"{name}, record {number}: {values[0]} of queue {ids.handle(values[1])} has no effect: {_WORDS[problem]}"
        self._warn(problem, name, number, text)

    # -- dumps -------------------------------------------------------------------------------------------------------

    def _load_dump(self, number: int) -> StoreReading:
        name = store_files.dump_name(number)

        def broken(kind: str, record: int | None, offset: int, reason: str) -> None:
            raise BrokenDump(number, record, offset, reason)

        tell = self._teller(name) if self._force and self._is_last_resort(number) else broken
        found = self.found
        reading = StoreReading(self._files, self._folder, name, 0, tell)
        check = DumpCheck()
        decode, apply, keeps_messages = codec.decode, found.state.apply_values, self._keeps_messages
        for payloads in reading:
            record = reading.records
            for payload in payloads:
                record += 1
                try:
                    values: list[Any] = decode(payload)
                except codec.BadRecord as error:
                    tell(BAD_RECORD, record, reading.done, str(error))
                    continue
                if reason := check.take(values):
                    tell(BAD_RECORD, record, reading.done, reason)
                if values[0] in ABOUT_MESSAGES and not keeps_messages:
                    continue
                problem = apply(values)
                if problem is not None:
                    self._odd(problem, name, record, values)
            self._tell_progress(reading)
        if not check.is_ended:
            tell(TORN_TAIL, None, reading.bytes, "its last record is missing")
        self._note(reading)
        return reading

    def _check_nothing_lacks(self, plan: Plan) -> None:
        """What the files say of others of them. Raises: RestoreRefused."""
        lacking = lacks_log(self._files, self._folder, plan)
        if lacking is None:
            return
        self._warn(MISSING_LOG, lacking.file, None, f"{lacking.file}: {lacking.reason}")
        if not self._force:
            raise RestoreRefused(self.found.warnings)

    def _is_last_resort(self, number: int) -> bool:
        return bool(store_files.plan(self._names, broken={number, *self._newer_dumps(number)}).missing)

    def _newer_dumps(self, number: int) -> list[int]:
        return [each for each in store_files.find(self._names).dumps if each > number]

    # -- telling -----------------------------------------------------------------------------------------------------

    def _teller(self, name: str) -> Callable[[str, int | None, int, str], None]:
        def tell(kind: str, record: int | None, offset: int, reason: str) -> None:
            place = f"{name}, byte {offset}" if record is None else f"{name}, record {record}"
            self._warn(kind, name, record, f"{place}: {reason}")
            if kind in (BAD_RECORD, LOST_RECORDS) and not self._force:
                raise RestoreRefused(self.found.warnings, offset)

        return tell

    def _warn(self, kind: str, file: str, record: int | None, text: str) -> None:
        found = self.found
        if len(found.warnings) < _MOST_WARNINGS or kind not in _WORDS:
            found.warnings.append(StoreWarning(kind, file, record, text))
        else:
            found.more_warnings += 1

    def _note(self, reading: StoreReading) -> None:
        found = self.found
        found.last_time = reading.last
        found.records += reading.records
        found.bytes += reading.bytes
        self._before += reading.bytes

    def _tell_progress(self, reading: StoreReading) -> None:
        if self._progress is not None:
            self._progress(self._before + reading.done, self._total)

    def _size_of(self, plan: Plan) -> int:
        total = 0
        for name in plan.load_order:
            try:
                file = self._files.open(join(self._folder, name))
            except OSError as error:
                raise from_os(error, "open the file", join(self._folder, name)) from error
            try:
                total += file.size()
            finally:
                file.close()
        return total

    def _sync_folder(self) -> None:
        try:
            self._files.sync_folder(self._folder)
        except OSError as error:
            raise from_os(error, "sync the folder", self._folder) from error
