"""Looking through every byte of the queues of a folder, changing nothing: what a start would say, all of it at once.

The files are read as a start reads them (restoring.py), with the same words for the same places: what it refuses is
damage here, what it passes over is not needed. Nothing is held but one record at a time. Needs no lock: beside a
server files come and go meanwhile, so what is odd is looked at once more before it is called so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Final

from lamina.engines.queues import codec, ids, migration_mark, store_files
from lamina.engines.queues.dump_check import DumpCheck, lacks_log, time_of_end
from lamina.engines.queues.journal import moving, paths
from lamina.engines.queues.journal import verify as journal
from lamina.engines.queues.journal.home import no_path
from lamina.engines.queues.opening import JOURNALS
from lamina.engines.queues.store_reading import (
    BAD_RECORD,
    GAP,
    LOST_AT_END,
    TORN_TAIL,
    StoreReading,
    reached_before,
)
from lamina.errors import BadOption, Corruption, DiskError, StorageError, WrongFormat, from_os
from lamina.log.files import Files, file_size, join
from lamina.log.manifest import Witness, lost_files
from lamina.log.naming import STORED, parse, sort_out
from lamina.log.segment import open_for_reading
from lamina.log.survey import Damage, Progress, Torn

_TRIES: Final = 3
_BRING_BACK: Final = "bring it back from a backup; with --force-restore the queues start without what cannot be read"
_NO_WAY_ROUND: Final = (
    "bring it back from a backup, or the dump before it and all logs since, if they are kept anywhere; it is never "
    "repaired in part. With --force-restore the queues start with what can be read of it"
)
_MEND: Final = 'bring it back from a backup, or see "lamina log repair {folder}"'
_GO_ROUND: Final = "nothing: the start loads {base} and the logs since, which are whole, and writes a new dump"
_HEALS: Final = "bring the folder back from a backup, or start: what is whole is delivered, the recipient is told"
_PAST: Final = "nothing: only the past of the queues needs it; keep it aside if you want to look into it"


@dataclass(slots=True)
class QueuesLooked:
    """The queues of a folder, looked through."""

    files: int = 0
    records: int = 0
    bytes: int = 0
    damage: list[Damage] = field(default_factory=list)
    torn: list[Torn] = field(default_factory=list)
    notes: list[Damage] = field(default_factory=list)
    """Good to know: nothing is damaged."""
    newest: tuple[str, int] | None = None
    """The file with the newest record, and its time."""
    holder: str | None = None

    @property
    def is_sound(self) -> bool:
        """A start would not refuse."""
        return not any(damage.is_needed for damage in self.damage)


def verify(
    files: Files,
    folder: str,
    progress: Progress = lambda done, total: None,
    *,
    beside_writer: bool = True,
    journals: bool = True,
) -> QueuesLooked:
    """Look through the queues of ``folder``; ``journals``: and their folders of messages.

    Raises: DiskError; damage is reported, never raised.
    """
    for left in reversed(range(_TRIES)):
        names = _list(files, folder)
        looked = QueuesLooked(holder=files.lock_holder(join(folder, STORED.lock_name)) if beside_writer else None)
        try:
            _Store(files, folder, names, looked, progress).look()
        except (FileNotFoundError, DiskError) as error:
            if not left or set(_list(files, folder)) == set(names):
                if isinstance(error, DiskError):
                    raise
                raise from_os(error, "look through the queues", folder) from error
            continue
        # Beside a server a dump may just have taken files away.
        if not looked.damage or looked.holder is None or not left or set(_list(files, folder)) == set(names):
            break
    _look_at_migration(files, folder, looked)
    if journals:
        _look_at_journals(files, join(folder, JOURNALS), looked)
    return looked


def _list(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def needs(files: Files, folder: str) -> list[Damage]:
    """What should be there and is not, and dumps without their end: from names and ends alone, for a quick look.

    Raises: DiskError.
    """
    looked = QueuesLooked()
    names = _list(files, folder)
    try:
        _Store(files, folder, names, looked, lambda done, total: None).look_quickly()
    except (FileNotFoundError, DiskError):
        if set(_list(files, folder)) == set(names):
            raise
        return []  # a server has just written a dump
    return looked.damage if set(_list(files, folder)) == set(names) else []


class _Store:
    """Logs and dumps."""

    def __init__(self, files: Files, folder: str, names: list[str], looked: QueuesLooked, progress: Progress) -> None:
        self._files, self._folder, self._names, self._looked = files, folder, names, looked
        self._found = store_files.find(names)
        self._sizes: dict[str, int] = {}
        self._progress = progress
        self._witness = Witness(files, folder)
        self._broken: dict[int, list[Damage]] = {}
        self._ends: dict[int, int] = {}
        self._strange: set[str] = set()

    def look(self) -> None:
        dumps = [store_files.dump_name(number) for number in self._found.dumps]
        logs = [store_files.log_name(number).name for number in self._found.logs]
        for name in [*dumps, *logs]:
            self._sizes[name] = self._size(name)
        for number in self._found.dumps:
            self._dump(number)
        self._judge(self._logs)

    def look_quickly(self) -> None:
        for number in self._found.dumps:
            name = store_files.dump_name(number)
            file = open_for_reading(self._files, self._folder, name)
            try:
                end = time_of_end(file)
                if end is None:
                    damage = Damage(name, file_size(file), file_size(file), "its last record is missing", False)
                    self._broken[number] = [damage]
            finally:
                file.close()
        self._judge(lambda base: None)

    def _judge(self, read_logs: Callable[[int | None], None]) -> None:
        lost = lost_files(self._files, self._folder, sort_out(self._names))
        plan = store_files.plan(self._names, broken=set(self._broken), lost=[problem.file for problem in lost])
        for number, found in self._broken.items():
            is_tried = number > (-1 if plan.base is None else plan.base)
            # Of another kind or a later version: a start does not go round that, it may be whole for somebody else.
            is_needed = is_tried and (store_files.dump_name(number) in self._strange or bool(plan.missing))
            do = _NO_WAY_ROUND if is_needed else _PAST
            if is_tried and not is_needed:
                first = plan.load_order[0] if plan.load_order else "the logs"
                do = _GO_ROUND.format(base=first)
            self._looked.damage += [replace(damage, is_needed=is_needed, do=do) for damage in found]
        for number in plan.missing:
            self._bad(store_files.log_name(number).name, 0, "the log is missing", do=_BRING_BACK)
        read_logs(plan.base)
        lacking = lacks_log(self._files, self._folder, plan)
        if lacking is not None:
            name = lacking.file
            self._looked.torn = [torn for torn in self._looked.torn if torn.file != name]
            if all(damage.file != name for damage in self._looked.damage):
                self._bad(name, 0, lacking.reason, do=_BRING_BACK)
        for problem in lost:
            if all(damage.file != problem.file for damage in self._looked.damage):
                self._bad(
                    problem.file, 0, problem.reason, is_needed=problem.file.endswith(".dump") and bool(plan.missing)
                )
        for name in self._names:
            self._hold_against_manifest(name, is_needed=name in plan.load_order)

    def _hold_against_manifest(self, name: str, *, is_needed: bool) -> None:
        """What is not as it was synced, and does not show otherwise."""
        if parse(name) is None or any(damage.file == name for damage in self._looked.damage):
            return
        file = open_for_reading(self._files, self._folder, name)
        try:
            wrong = self._witness.differs(name, file)
        finally:
            file.close()
        if wrong is not None:
            self._looked.torn = [torn for torn in self._looked.torn if torn.file != name]
            self._bad(name, wrong.offset, wrong.reason, is_needed=is_needed, do=_BRING_BACK)

    def _bad(self, name: str, offset: int, reason: str, *, is_needed: bool = True, do: str = "") -> None:
        do = (do or _MEND.format(folder=self._folder)) if is_needed else _PAST
        self._looked.damage.append(Damage(name, offset, offset, reason, False, is_needed, do))

    # -- dumps -------------------------------------------------------------------------------------------------------

    def _dump(self, number: int) -> None:
        name = store_files.dump_name(number)
        found: list[Damage] = []

        def tell(kind: str, record: int | None, offset: int, reason: str) -> None:
            found.append(Damage(name, offset, self._sizes[name], reason, False))

        check = DumpCheck()
        for record, offset, values, reason in self._records(name, StoreReading(*self._place, name, 0, tell)):
            reason = reason or (None if found else check.take(values))
            if reason:
                found.append(Damage(name, offset, self._sizes[name], f"record {record}: {reason}", False))
        if not check.is_ended and not found:
            found.append(Damage(name, self._sizes[name], self._sizes[name], "its last record is missing", False))
        if found:
            self._broken[number] = found
            return
        file = open_for_reading(self._files, self._folder, name)
        try:
            self._ends[number] = time_of_end(file) or 0
        finally:
            file.close()

    # -- logs --------------------------------------------------------------------------------------------------------

    def _logs(self, base: int | None) -> None:
        """The chain of logs: each says at its head how far those before it had come."""
        before, last = -2, 0
        for number in self._found.logs:
            if base is not None and number == base + 1:
                last = self._ends[base]
            elif number != before + 1:
                last = self._start_of(number)
            last = self._log(number, last, is_needed=base is None or number > base)
            self._looked.newest = store_files.log_name(number).name, last
            before = number

    def _start_of(self, number: int) -> int:
        """How far the log had come when this one was begun, where the files before it are gone: that they should not be
        is said once, of them (lacks_log)."""
        return reached_before(*self._place, store_files.log_name(number).name)

    def _log(self, number: int, last: int, *, is_needed: bool) -> int:
        name = store_files.log_name(number).name
        size = self._sizes[name]

        def tell(kind: str, record: int | None, offset: int, reason: str) -> None:
            if kind == TORN_TAIL:
                is_written = self._looked.holder is not None and number == self._found.logs[-1]
                if not is_written:
                    self._looked.torn.append(Torn(name, offset, size - offset, reason))
            elif kind == GAP:
                self._looked.notes.append(Damage(name, offset, offset, reason))
            else:
                self._bad(name, offset, reason, is_needed=is_needed)

        reading = StoreReading(*self._place, name, last, tell)
        for record, offset, _, reason in self._records(name, reading):
            if reason:
                self._bad(name, offset, f"record {record}: {reason}", is_needed=is_needed)
        if reached_before(*self._place, store_files.log_name(number + 1).name) > reading.last:
            self._looked.torn = [torn for torn in self._looked.torn if torn.file != name]
            self._bad(name, reading.done, LOST_AT_END, is_needed=is_needed)
            return reached_before(*self._place, store_files.log_name(number + 1).name)  # said once is enough
        return reading.last

    # -- reading -----------------------------------------------------------------------------------------------------

    @property
    def _place(self) -> tuple[Files, str]:
        return self._files, self._folder

    def _records(self, name: str, reading: StoreReading) -> Iterator[tuple[int, int, list[object], str | None]]:
        """Number, place (of its window's end), values and what is wrong with it, of each record."""
        looked = self._looked
        looked.files += 1
        try:
            for payloads in reading:
                for number, payload in enumerate(payloads, reading.records + 1):
                    try:
                        yield number, reading.done, codec.decode(payload), None
                    except codec.BadRecord as error:
                        yield number, reading.done, [], str(error)
                looked.records += len(payloads)
                self._progress(looked.bytes + reading.done, sum(self._sizes.values()))
        except (Corruption, WrongFormat) as error:
            self._strange.add(name)
            reading.tell(BAD_RECORD, None, error.offset, error.reason)
        looked.bytes += self._sizes[name]

    def _size(self, name: str) -> int:
        file = open_for_reading(self._files, self._folder, name)
        try:
            return file_size(file)
        finally:
            file.close()


def _look_at_migration(files: Files, folder: str, looked: QueuesLooked) -> None:
    try:
        mark = migration_mark.read(files, folder)
    except Corruption as error:
        looked.damage.append(Damage(error.file, error.offset, error.offset, error.reason, False, True, _BRING_BACK))
        return
    if mark is not None:
        reason = f"a migration to the store {mark.to} is under way: run it again, it goes on where it was"
        looked.notes.append(Damage(migration_mark.NAME, 0, 0, reason))


# -- journals ---------------------------------------------------------------------------------------------------------


def _look_at_journals(files: Files, root: str, looked: QueuesLooked) -> None:
    """Folder by folder; queues are named by their handles, for a path is half of a capability."""
    try:
        if not files.list(root):
            return
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise from_os(error, "list the folder", root) from error
    layouts: Iterable[paths.Layout] | None = None
    try:
        layouts = paths.read_layout(files, root)
        if layouts is None:
            reason = "it is missing; the folders themselves say how they are made"
            looked.notes.append(Damage(f"{JOURNALS}/{paths.LAYOUT}", 0, 0, reason))
    except (Corruption, BadOption) as error:
        reason = error.reason if isinstance(error, Corruption) else error.message
        do = f"remove it: the folders themselves say how they are made ({_shown(moving.guess(files, root))})"
        looked.damage.append(Damage(f"{JOURNALS}/{paths.LAYOUT}", 0, 0, reason, False, True, do))
    if layouts is None:
        guessed = moving.guess(files, root)
        layouts = () if guessed is None else (guessed,)
    for layout in dict.fromkeys(layouts):
        for rid in moving.walk(files, root, layout):
            _look_at_journal(files, layout.folder(root, rid), rid, looked)


def _shown(layout: paths.Layout | None) -> str:
    return "none is there" if layout is None else f"parts={layout.parts} chars={layout.chars}"


def _look_at_journal(files: Files, folder: str, rid: bytes, looked: QueuesLooked) -> None:
    try:
        with no_path(rid, "verify"):
            verify_journal(files, folder, looked, f"queue {ids.handle(rid)}, ")
    except StorageError as error:
        looked.damage.append(Damage(f"queue {ids.handle(rid)}", 0, 0, error.message, False))


def verify_journal(files: Files, folder: str, looked: QueuesLooked, whose: str = "") -> None:
    """Look through the folder of one queue. Raises: DiskError."""
    try:
        found = journal.verify(files, folder)
        left = [name for name in files.list(folder) if name.startswith("left.")]
    except FileNotFoundError:
        return  # deleted meanwhile
    except OSError as error:
        raise from_os(error, "read the folder", folder) from error
    looked.files += found.files
    looked.records += found.messages
    looked.bytes += found.bytes
    for name in left:
        reason = "messages of which nobody could say where they belong: keep them until you know what they are"
        looked.notes.append(Damage(f"{whose}{name}", 0, 0, reason))
    for bad in found.bad:
        name = f"{whose}{bad.file}"
        if not bad.is_torn:
            looked.damage.append(Damage(name, bad.offset, bad.end, bad.reason, False, True, _HEALS))
        elif looked.holder is None:
            looked.torn.append(Torn(name, bad.offset, bad.end - bad.offset, bad.reason))
