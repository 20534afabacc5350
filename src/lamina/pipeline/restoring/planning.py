"""Which files of which log make up a time, and whether they reach back to it.

As time is the position, a log as it was is its files, cut behind the last record of that time. That is all, unless
something was taken out since:

    jobs      jobs that are over by now may be gone with all their records; that is told, not refused: all that live
              to this day are as they were
    topics    entries that retention let go since are missing, and so may be those that were deleted since; that is
              told. Before the oldest file it is refused
    groups    back to when they were last written anew
    queues    back to the newest dump, and to an older one if it is still there; from the first log on to any time
    store     back to the oldest catalog that is kept (engines/store/looking.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lamina.engines.queues import store_files
from lamina.engines.queues.dump_check import time_of_end
from lamina.engines.queues.looking import layouts_of
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, epoch_file, looking
from lamina.engines.topics import codec, ids
from lamina.engines.topics.codec import BadRecord, Items
from lamina.engines.topics.ids import FIRST, EntryId
from lamina.errors import BadOption, TooOld, from_os
from lamina.log.files import Files
from lamina.log.naming import STORED, TIMED, FileName, parse
from lamina.log.reader import Reader
from lamina.log.segment import open_for_reading
from lamina.pipeline import places, reach, snapshot
from lamina.pipeline.auditing.holding import Held
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.places import LogPlace
from lamina.pipeline.reach import attests_more, too_old
from lamina.pipeline.snapshot import PinnedFile
from lamina.units import show_time

_DUMP: Final = ".dump"
_PATIENCE: Final = 5  # times that files may go while they are pinned


@dataclass(frozen=True, slots=True)
class LogPlan:
    """One log: what of it is copied."""

    place: LogPlace
    files: tuple[PinnedFile, ...] = ()
    """None for the store."""
    epoch: int = 0
    """Of the store."""


@dataclass(slots=True)
class Plan:
    """All logs that were there at the time."""

    logs: list[LogPlan] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What may not be as it was."""


def plan(disk: Files, path: str, time_ns: int, without: frozenset[str] = frozenset()) -> Plan:
    """``without``: parts of a data folder that are left out.

    Raises: TooOld, saying how far it reaches; BadOption if nothing was there yet; Corruption, DiskError."""
    found, firsts = Plan(), []
    for place in places.find(disk, path, without):
        first, log = (_plan_store if place.kind == places.STORE else _plan_log)(disk, place, time_ns, found)
        if log is not None:
            found.logs.append(log)
        elif first is not None:
            firsts.append(first)
    if not found.logs:
        hint = f"the first record is of {show_time(min(firsts))}" if firsts else "nothing was ever written"
        raise BadOption(f"nothing was in {path} at {show_time(time_ns)} yet", hint=hint)
    return found


_Planned = tuple[int | None, LogPlan | None]
"""Time of the first record, and what is copied; None: the log was not there yet."""


def _plan_log(disk: Files, place: LogPlace, time_ns: int, found: Plan) -> _Planned:
    files = _pin_queues(disk, place, time_ns) if place.kind == places.QUEUES else _pin(disk, place)
    first = next((file.first_ns for file in files if file.first_ns is not None), None)
    if not files or first is None:
        return None, None
    if place.kind == places.JOBS:
        note_cleaned(disk, place, files, time_ns, found)
    elif place.kind == places.TOPIC:
        _note_let_go(disk, place, files, time_ns, found)
    elif place.kind == places.GROUPS:
        reach.check_groups(disk, place, files, time_ns)
    if place.kind != places.QUEUES:
        reach.check_reach(disk, place, files, time_ns)
        if first > time_ns:
            return first, None
    elif not files[0].name.endswith(_DUMP):
        if first > time_ns:
            return first, None
    elif not _has_record(disk, place, files[1:], time_ns):
        text = f"messages that expired before {files[0].name} was written are missing; some may not have by then"
        found.notes.append(f"{place.path}: {text}")
    return first, LogPlan(place, files)


def _pin(disk: Files, place: LogPlace, names: Sequence[FileName] | None = None) -> tuple[PinnedFile, ...]:
    for left in range(_PATIENCE - 1, -1, -1):
        try:
            if names is None:
                return tuple(snapshot.pin(disk, place.folder, [place]).files)
            newest = max((name for name in names if name.stream == "stored"), default=None)
            pinned = [snapshot.pin_file(disk, place, name, name == newest, is_permissive=False) for name in names]
            return tuple(file for file in pinned if file is not None)
        except FileNotFoundError as error:
            if not left:
                raise from_os(error, "read the log", place.folder) from error
    raise AssertionError


# -- jobs ------------------------------------------------------------------------------------------------------------


def note_cleaned(disk: Files, place: LogPlace, files: Sequence[PinnedFile], time_ns: int, found: Plan) -> None:
    """Cleaning leaves a trace (auditing/holding.py)."""
    with Held(disk, place.folder) as held:
        ours = held.streams.get("numbered", [])
    firsts = {file.name: file.first_ns for file in files}
    before = [file for file in ours if (firsts.get(file.name.name) or 0) <= time_ns]
    numbers = [file.name.number for file in before]
    # The newest file is never cleaned; it may have no index yet.
    is_whole = all(file.is_sealed_whole or file.is_newest for file in before)
    if not is_whole or numbers != list(range(1, len(numbers) + 1)):
        text = f"{place.path}: of jobs that are over by now, cleaning may have removed all records"
        found.notes.append(text)


# -- topics ----------------------------------------------------------------------------------------------------------


def _note_let_go(disk: Files, place: LogPlace, files: Sequence[PinnedFile], time_ns: int, found: Plan) -> None:
    """Retention may have let files go since, whose entries were there at that time.

    Before it does, it writes what it trims and all that is known: one record directly behind the other.
    Raises: TooOld if not even the last id of that time is known any more.
    """
    compacted = reach.compacted_ns(disk, place, files)
    if not attests_more(disk, files[0]):
        if compacted > time_ns and reach.began_by(files[0], time_ns):
            _note_compacted(place, compacted, files[0], time_ns, found)
        return
    let_go: EntryId | None = None
    known_from: int | None = None
    trimmed = 0, FIRST
    with Frozen(disk, place, files) as pinned:
        for segment, batch in Reader(pinned.folder, family=TIMED, files=pinned.files).batches():
            for number, at in enumerate(batch.times):
                if at < time_ns and known_from is not None:
                    continue
                payload = batch.payload(number)
                if segment.format.is_mark(payload):
                    continue
                try:
                    items = Items(payload)
                    kind, id = items.number(), items.id()
                except BadRecord:
                    continue  # told by who opens it
                if kind == codec.TRIMMED and codec.trim_note(payload) <= codec.LET_GO:
                    trimmed = at, id
                elif kind == codec.SET and trimmed[0] == at - 1 and at > time_ns:
                    let_go = trimmed[1]
                if known_from is None and kind in (codec.ENTRY, codec.SET):
                    known_from = at
    if known_from is not None and known_from > time_ns:
        raise too_old(place, time_ns, known_from)
    if let_go is not None:
        text = f"up to {ids.show(let_go).decode()} were let go since, and are missing; counts are of what is left"
        found.notes.append(f"{place.path}: entries {text}")
    if compacted > time_ns:
        _note_compacted(place, compacted, files[0], time_ns, found)


def _note_compacted(place: LogPlace, compacted: int, oldest: PinnedFile, time_ns: int, found: Plan) -> None:
    """Files were written anew since, without what was dead. Raises: TooOld if nothing of that time is left."""
    if oldest.first_ns is None or oldest.first_ns > time_ns:
        raise too_old(place, time_ns, compacted)
    text = f"entries that were deleted by {show_time(compacted)} are missing, and counts and the last id may be less"
    found.notes.append(f"{place.path}: {text}")


# -- queues ----------------------------------------------------------------------------------------------------------


def _pin_queues(disk: Files, place: LogPlace, time_ns: int) -> tuple[PinnedFile, ...]:
    """The newest dump that is not newer than the time, and all logs since. Raises: TooOld, BadOption."""
    if layouts_of(disk, place.folder):
        raise BadOption(
            f"{place.path}: the messages are in journals, which keep the present only",
            hint="lamina restore --without queues leaves them out; a backup has them as of its generations",
        )
    found = store_files.find(disk.list(place.folder))
    newest, logs = max(found.logs, default=-1), set(found.logs)
    earliest: int | None = None
    for number in reversed(found.dumps):
        if not logs.issuperset(range(number + 1, newest + 1)):
            continue
        ended = _ended(disk, place, store_files.dump_name(number))
        if ended is not None and ended <= time_ns:
            return _pin(disk, place, _names(number, [each for each in found.logs if each > number]))
        earliest = ended if earliest is None or ended is None else min(earliest, ended)
    if logs and logs.issuperset(range(newest + 1)):
        return _pin(disk, place, _names(None, found.logs))
    if earliest is not None:
        raise too_old(place, time_ns, earliest)
    return _pin(disk, place)  # nothing that could be understood: who opens it says why


def _has_record(disk: Files, place: LogPlace, logs: Sequence[PinnedFile], time_ns: int) -> bool:
    """Something was written between the dump and that time, so that it had been begun by then."""
    if not logs:
        return False
    with Frozen(disk, place, logs, time_ns) as pinned:
        if pinned.is_empty:
            return False
        reader = Reader(pinned.folder, family=STORED, files=pinned.files)
        return next(iter(reader.read()), None) is not None


def _names(base: int | None, logs: Sequence[int]) -> list[FileName]:
    dump = [] if base is None else [parse(store_files.dump_name(base))]
    return [name for name in (*dump, *(store_files.log_name(number) for number in logs)) if name is not None]


def _ended(disk: Files, place: LogPlace, name: str) -> int | None:
    try:
        file = open_for_reading(disk, place.folder, name)
    except FileNotFoundError:
        return None
    try:
        return time_of_end(file)
    finally:
        file.close()


# -- store -----------------------------------------------------------------------------------------------------------


def _plan_store(disk: Files, place: LogPlace, time_ns: int, found: Plan) -> _Planned:
    first, oldest, reached = store_reach(disk, place)
    try:
        epoch = looking.epoch_at(disk, place.folder, time_ns)
    except TooOld:
        raise too_old(place, time_ns, reached) from None
    if first is None or (first > time_ns and not epoch):
        return first, None
    if epoch < oldest:
        raise too_old(place, time_ns, reached)
    return first, LogPlan(place, epoch=epoch)


def store_reach(disk: Files, place: LogPlace) -> tuple[int | None, int, int]:
    """When the first epoch that is known became durable; the oldest epoch that can be read, and since when it is."""
    names = disk.list(place.folder)
    history = epoch_file.history(disk, place.folder, names)
    formers = [generation for name in names if (generation := catalogs.former_generation(name)) is not None]
    known = [catalogs.load(disk, place.folder)]
    known += [each for number in formers if (each := cleaning.usable_former(disk, place.folder, number)) is not None]
    oldest = min(known, key=lambda each: each.epoch)
    reached = min((at for at, epoch in history if epoch >= oldest.epoch), default=oldest.time_ns)
    return min((at for at, _ in history), default=None), oldest.epoch, reached
