"""A dump is made from files, not from memory: the dump before it and the logs since, folded into one.

So nobody waits for it, and a mistake in memory cannot get into it. It needs memory for the logs only: their records are
sorted by queue first, then the dump before is read queue by queue, and each is written as those records leave it.

The times of its records mean nothing by themselves. They rise, and the last one is the time of the newest record that
was folded: so a dump says how far the log had come, as the log itself did.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from lamina.clock import Clock, SystemClock
from lamina.engines.queues import codec, store_files
from lamina.engines.queues.dump_check import FOLLOWED, BrokenDump, DumpCheck, lacks_log, time_of_end
from lamina.engines.queues.message import NO_TTL, Message
from lamina.engines.queues.restoring import ABOUT_MESSAGES, RestoreRefused, StoreWarning, leave_out_expired
from lamina.engines.queues.state import State, records
from lamina.engines.queues.store_files import Plan
from lamina.engines.queues.store_reading import (
    BAD_RECORD,
    LOST_AT_END,
    LOST_RECORDS,
    StoreReading,
    reached_before,
)
from lamina.errors import StorageError, from_os
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join
from lamina.log.formats import QUEUE_STORE
from lamina.log.frame import MIN_RECORD
from lamina.log.naming import STORED
from lamina.log.segment import open_for_reading

_CHUNK: Final = 256 << 10  # bytes that are written at once
_SYNC_EVERY: Final = 1 << 20  # and synced


@dataclass(frozen=True, slots=True)
class FoldReport:
    """What a dump holds."""

    number: int
    queues: int
    messages: int
    expired: int
    """Messages that were left out."""
    bytes: int
    seconds: float


class FoldStopped(StorageError):
    """The dump was given up before it was done; nothing was changed."""

    code = "stopped"


def fold(
    files: Files,
    folder: str,
    number: int,
    *,
    now: int,
    ttl: int,
    keeps_messages: bool = True,
    force: bool = False,
    clock: Clock | None = None,
    step: Callable[[str], None] = lambda name: None,
    is_stopped: Callable[[], bool] = lambda: False,
) -> FoldReport:
    """Write dump ``number`` from the dump before it and the logs up to ``number``, which are sealed.

    ``now`` and ``ttl`` (of the server) in seconds say which messages have expired. ``force``: pass over what cannot be
    read, for a store that was restored so.
    Durability: when it returns, the dump is synced under its name; nothing else was changed.
    Raises: RestoreRefused, WrongFormat; DiskFull, DiskError; FoldStopped. Then nothing is left of it.
    """
    clock = SystemClock() if clock is None else clock
    start = clock.monotonic()
    try:
        names = files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    broken: set[int] = set()
    while True:
        plan = store_files.plan(names, broken=broken, up_to=number)
        if plan.missing and not force:
            file = store_files.log_name(plan.missing[0]).name
            raise RestoreRefused([StoreWarning("missing_log", file, None, f"{file}: the log is missing")])
        lacking = None if force else lacks_log(files, folder, plan)
        if lacking is not None:
            text = f"{lacking.file}: {lacking.reason}"
            raise RestoreRefused([StoreWarning("missing_log", lacking.file, None, text)])
        folding = _Folding(files, folder, plan, now, ttl, keeps_messages=keeps_messages, force=force)
        folding.is_stopped, folding.step, folding.is_followed = is_stopped, step, is_followed(names, number)
        if force and plan.base is not None:  # as restoring does: what is left of a dump that has no way round it
            folding.takes_broken = bool(store_files.plan(names, broken={*broken, plan.base}, up_to=number).missing)
        try:
            written = folding.write(number)
        except BrokenDump as problem:
            broken.add(problem.number)
            continue
        seconds = clock.monotonic() - start
        expired = folding.survivors.expired
        return FoldReport(number, written.queues, written.messages, expired, written.bytes, seconds)


def is_followed(names: Iterable[str], number: int) -> bool:
    """The log after this one was begun: a rotation makes it, with its first record and its name, before a dump."""
    return store_files.log_name(number + 1).name in names


class Edits:
    """What logs do to queues. Of each queue only the records since it was last created or deleted matter."""

    def __init__(self) -> None:
        self.by_queue: dict[bytes, list[bytes]] = {}
        """For queues that the dump before may have: records in order."""
        self.fresh = State()
        """Queues that were created since."""
        self.void: set[bytes] = set()
        """Queues that were created or deleted since: what the dump before has of them counts no more."""
        self.records = 0

    def take(self, payload: bytes, values: list[Any]) -> None:
        self.records += 1
        kind, rid = values[0], values[1]
        if kind == codec.CREATE or kind == codec.DELETE:
            self.by_queue.pop(rid, None)
            self.void.add(rid)
            self.fresh.apply_values(values)
        elif rid in self.void:
            self.fresh.apply_values(values)
        elif kind != codec.END:
            self.by_queue.setdefault(rid, []).append(payload)


class BaseQueue(NamedTuple):
    """A queue of the dump before."""

    place: int
    """Where it stands there; for who has to know."""
    payloads: list[bytes]
    """Its CREATE, then its messages."""
    decoded: list[list[Any]]
    """The same."""


class Survivors:
    """What a dump holds of each queue, and how much went."""

    def __init__(self, now: int, ttl: int, *, keeps_messages: bool) -> None:
        self._now, self._ttl, self._keeps_messages = now, ttl, keeps_messages
        self.expired = 0

    def of_base(self, queues: Iterable[BaseQueue], edits: Edits) -> Iterator[tuple[int, list[bytes]]]:
        """Queues that the dump before has, in its order: the place of each, and its records."""
        for queue in queues:
            rid = queue.decoded[0][1]
            if rid in edits.void:
                continue
            changes = edits.by_queue.pop(rid, None)
            if changes is None:
                yield queue.place, self._unexpired(queue.payloads, queue.decoded)
            else:
                yield queue.place, self._changed(rid, queue.payloads, changes)

    def fresh(self, edits: Edits) -> Iterator[tuple[bytes, list[bytes]]]:
        """Queues that came since, in the order in which they were created: the id of each, and its records."""
        self.expired += leave_out_expired(edits.fresh, self._now, self._ttl)
        for queue in edits.fresh.queues.values():
            yield queue.rid, list(records(queue))

    def _unexpired(self, payloads: list[bytes], decoded: list[list[Any]]) -> list[bytes]:
        """A queue that no log has touched: its records as they are, but for messages that have expired."""
        if not self._keeps_messages:
            return payloads[:1]
        create = decoded[0]
        ttl = create[7] if len(create) > 7 else self._ttl
        kept = payloads[:1]
        for payload, values in zip(payloads[1:], decoded[1:], strict=True):
            if values[0] == codec.MSG:
                own = values[6] if len(values) > 6 else NO_TTL
                if Message(values[2], values[3], b"", b"", own).has_expired(self._now, ttl):
                    self.expired += 1
                    continue
            kept.append(payload)
        return kept

    def _changed(self, rid: bytes, payloads: list[bytes], changes: list[bytes]) -> list[bytes]:
        one = State()
        for payload in payloads if self._keeps_messages else payloads[:1]:
            one.apply(payload)
        for payload in changes:
            one.apply(payload)
        self.expired += leave_out_expired(one, self._now, self._ttl)
        return list(records(one.queues[rid]))


class _Folding:
    def __init__(
        self, files: Files, folder: str, plan: Plan, now: int, ttl: int, *, keeps_messages: bool, force: bool
    ) -> None:
        self._files, self._folder, self._plan = files, folder, plan
        self._keeps_messages, self._force = keeps_messages, force
        self._last = self._most = self._read_to = 0
        self.survivors = Survivors(now, ttl, keeps_messages=keeps_messages)
        self.takes_broken = self.is_followed = False
        self.is_stopped: Callable[[], bool] = lambda: False
        self.step: Callable[[str], None] = lambda name: None

    def write(self, number: int) -> DumpWriting:
        """Returns what was written. Raises: BrokenDump, if the one before turns out to be; as ``fold``."""
        if self._plan.base is not None:
            self._look_at_base(self._plan.base)
        edits = Edits()
        for log in self._plan.logs:
            self._sort(store_files.log_name(log).name, edits)
        self._check_end(number)
        writing = DumpWriting(self._last, self._most + edits.records, is_followed=self.is_followed)
        writing.write(self._files, self._folder, number, self._queues(edits), self.is_stopped, self.step)
        return writing

    # -- reading -----------------------------------------------------------------------------------------------------

    def _look_at_base(self, number: int) -> None:
        """How far it says that the log had come, and how many records it has at most."""
        name = store_files.dump_name(number)
        try:
            file = open_for_reading(self._files, self._folder, name)
        except OSError as error:
            raise from_os(error, "open the file", join(self._folder, name)) from error
        try:
            time_ns = time_of_end(file)
            self._most = file.size() // MIN_RECORD
        finally:
            file.close()
        if time_ns is None and not self.takes_broken:
            raise BrokenDump(number, None, 0, "its last record is missing")
        self._last = time_ns or 0

    def _sort(self, name: str, edits: Edits) -> None:
        """Read a log."""
        reading = StoreReading(self._files, self._folder, name, self._last, self._teller(name))
        for payloads in reading:
            if self.is_stopped():
                raise FoldStopped("the dump was given up")
            number = reading.records
            for payload in payloads:
                number += 1
                try:
                    values: list[Any] = codec.decode(payload)
                except codec.BadRecord as error:
                    self._teller(name)(BAD_RECORD, number, reading.done, str(error))
                    continue
                if self._keeps_messages or values[0] not in ABOUT_MESSAGES:
                    edits.take(payload, values)
        self._last, self._read_to = reading.last, reading.done

    def _check_end(self, number: int) -> None:
        """What is bad at the end of a log looks like the torn tail of a crash. The log behind it, which was begun when
        this one was whole and synced, knows better.
        """
        behind = store_files.log_name(number + 1).name
        if reached_before(self._files, self._folder, behind) > self._last:
            name = store_files.log_name(number).name
            self._teller(name)(LOST_RECORDS, None, self._read_to, LOST_AT_END)

    def _teller(self, name: str) -> Callable[[str, int | None, int, str], None]:
        def tell(kind: str, record: int | None, offset: int, reason: str) -> None:
            if kind in (BAD_RECORD, LOST_RECORDS) and not self._force:
                place = f"{name}, byte {offset}" if record is None else f"{name}, record {record}"
                raise RestoreRefused([StoreWarning(kind, name, record, f"{place}: {reason}")], offset)

        return tell

    def _base(self, number: int) -> Iterator[BaseQueue]:
        """The dump before, queue by queue."""
        name = store_files.dump_name(number)

        def broken(kind: str, record: int | None, offset: int, reason: str) -> None:
            if not self.takes_broken:
                raise BrokenDump(number, record, offset, reason)

        check = DumpCheck()
        payloads: list[bytes] = []
        decoded: list[list[Any]] = []
        reading = StoreReading(self._files, self._folder, name, 0, broken)
        for batch in reading:
            record = reading.records
            for payload in batch:
                record += 1
                try:
                    values: list[Any] = codec.decode(payload)
                except codec.BadRecord as error:
                    broken(BAD_RECORD, record, reading.done, str(error))
                    continue
                if reason := check.take(values):
                    broken(BAD_RECORD, record, reading.done, reason)
                    continue
                if values[0] == codec.CREATE or values[0] == codec.END:
                    if payloads:
                        yield BaseQueue(0, payloads, decoded)
                    payloads, decoded = [], []
                if values[0] != codec.END:
                    payloads.append(payload)
                    decoded.append(values)
        if payloads:
            yield BaseQueue(0, payloads, decoded)
        if not check.is_ended:
            broken(BAD_RECORD, None, reading.bytes, "its last record is missing")

    def _queues(self, edits: Edits) -> Iterator[list[bytes]]:
        """What the dump holds, queue by queue."""
        if self._plan.base is not None:
            for _, payloads in self.survivors.of_base(self._base(self._plan.base), edits):
                yield payloads
        for _, payloads in self.survivors.fresh(edits):
            yield payloads


# -- writing ---------------------------------------------------------------------------------------------------------


class DumpWriting:
    """The bytes of a dump. The newest record that was folded gives its last one the time."""

    def __init__(self, last: int, most: int, *, is_followed: bool) -> None:
        """``last``: the time of that record. ``most``: so many records were folded, or more. ``is_followed``: the log
        after it was begun, and is safe on the disk (dump_check.py)."""
        self._last, self._most, self._is_followed = last, most, is_followed
        self.queues = self.messages = self.bytes = 0

    def write(
        self,
        files: Files,
        folder: str,
        number: int,
        queues: Iterable[list[bytes]],
        is_stopped: Callable[[], bool],
        step: Callable[[str], None],
    ) -> None:
        """Make it dump ``number`` of a folder, in one step. Raises: DiskFull, DiskError; FoldStopped."""

        def chunks() -> Iterator[bytes]:
            for chunk in self._chunks(queues):
                if is_stopped():
                    raise FoldStopped("the dump was given up")
                self.bytes += len(chunk)
                yield chunk
            step("saving written")

        # The commit point of every dump.
        rewrite.replace(files, folder, store_files.dump_name(number), chunks(), STORED, sync_every=_SYNC_EVERY)

    def _chunks(self, queues: Iterable[list[bytes]]) -> Iterator[bytes]:
        yield QUEUE_STORE.header
        time_ns = self._last - self._most - 1
        pending: list[bytes] = []
        size = 0
        for queue in queues:
            self.queues += 1
            self.messages += len(queue) - 1
            pending += queue
            size += sum(map(len, queue))
            if size >= _CHUNK:
                yield kernel.encode_many(time_ns, pending)
                time_ns += len(pending)
                pending, size = [], 0
        yield kernel.encode_many(time_ns, pending)
        assert time_ns + len(pending) <= self._last, "a dump has no more records than what was folded"
        if self._is_followed and self._last:
            yield kernel.encode_many(self._last - 1, [FOLLOWED])
        yield kernel.encode_many(self._last, [codec.end(self.queues, self.messages)])
