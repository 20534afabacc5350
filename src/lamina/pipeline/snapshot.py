"""What a read sees: the files of the logs, and how far each counts, pinned once when the read is made.

Spark plans one DataFrame several times (a filter makes a copy of it): all of them see this. The end of a file that is
being written is that of its last whole record. What happens to the files later does not matter: a file that was
rewritten has lost records to cleaning but kept the times of the others (reading.py), and one that was renamed is found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from lamina.engines.queues import store_files
from lamina.engines.queues.dump_check import lacks_log, time_of_end
from lamina.engines.queues.store_reading import LOST_AT_END, reached_before
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file, inputs
from lamina.engines.store.epoch_file import Epochs
from lamina.errors import Corruption, StorageError, WrongFormat, from_os
from lamina.log import frame
from lamina.log import index as indexes
from lamina.log.attest import is_attested, torn_or_not
from lamina.log.files import File, Files, read_at
from lamina.log.formats import QUEUE_STORE, Format, identify
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index
from lamina.log.manifest import Witness, ends_early, lost_files
from lamina.log.naming import Ending, FileName, parse, sort_out
from lamina.log.scan import HEADER_SIZE
from lamina.log.segment import header_is_torn, open_for_reading
from lamina.pipeline import places
from lamina.pipeline.places import LogPlace

_LISTINGS: Final = 5
_TRIES: Final = 30
_HEAD: Final = HEADER_SIZE + frame.TIME.size + frame.MAX_UVARINT


@dataclass(frozen=True, slots=True)
class PinnedFile:
    """One file, up to ``end``, which is the end of a record."""

    place: LogPlace
    name: str
    format: Format
    identity: tuple[int, int]
    end: int
    first_ns: int | None = None
    """Time of its first record; None: it has none."""
    last_ns: int | None = None
    """Time of its last one, if that is known without reading it: of the file that is being written."""
    is_ordered: bool = True
    """Times rise from record to record, and from file to file of the log."""
    points: tuple[tuple[int, int], ...] = ()
    """Of the file that is being written: where records begin (time, offset)."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Files of some logs, in the order of the logs and within each in the order of writing."""

    path: str
    files: tuple[PinnedFile, ...]
    durable: int = 0
    """Of the store: the last epoch that was durable."""
    voids: tuple[tuple[int, int], ...] = ()
    """And epochs that never came to be."""
    time_ns: int = 0
    """When it was pinned: what a state shows that follows from the clock alone is as of then."""

    def bytes(self) -> int:
        return sum(file.end for file in self.files)


def pin(files: Files, path: str, logs: Iterable[LogPlace], *, is_permissive: bool = False) -> Snapshot:
    """Raises: Corruption, WrongFormat, DiskError. ``is_permissive``: damage is told by who reads it."""
    pinned: list[PinnedFile] = []
    durable = 0
    voids: tuple[tuple[int, int], ...] = ()
    for place in logs:
        found, epochs = _pin_steadily(files, place, is_permissive)
        pinned += found
        if epochs is not None:
            durable, voids = epochs.durable, tuple(epochs.voids)
    return Snapshot(path, tuple(pinned), durable, voids, time.time_ns())


MERGED: Final = (places.STORE, places.QUEUES)
"""Kinds of log in which a file that goes has become part of another."""


def _pin_steadily(files: Files, place: LogPlace, is_permissive: bool) -> tuple[list[PinnedFile], Epochs | None]:
    """The files of a log at one moment.

    What cleaning removes meanwhile is gone, and no loss. But where files are merged or renamed, what one of them held
    is elsewhere then: so it is looked again whether all is as it was, and if not, it is begun anew.
    """
    for left in reversed(range(_TRIES)):
        names = _names(files, place.folder)
        try:
            # What is durable is asked first: the files that are listed afterwards hold it.
            epochs = epoch_file.read(files, place.folder, names) if place.kind == places.STORE else None
            names = _names(files, place.folder)
            found = _pin_log(files, place, names, is_permissive)
            if place.kind not in MERGED or set(_names(files, place.folder)) == set(names):
                return found, epochs
        except (FileNotFoundError, StorageError):
            # Damage is what is there both times.
            if not left or place.kind not in MERGED or set(_names(files, place.folder)) == set(names):
                raise
    raise StorageError(f"{place.path} changes faster than it can be looked at", hint="read again")


def _pin_log(files: Files, place: LogPlace, names: list[str], is_permissive: bool) -> list[PinnedFile]:
    chosen = _choose(files, place, names, is_permissive=is_permissive)
    newest = {name.stream: name for name in chosen if name.ending in (Ending.GROWS, Ending.EACH)}
    witness = None
    if not is_permissive:
        # Of queues what is missing is needed, or not: the choice says so.
        is_queues = place.kind == places.QUEUES
        witness = Witness(files, place.folder) if is_queues else witness_of(files, place.folder, names)
    found = []
    for name in chosen:
        is_newest = newest.get(name.stream) == name
        try:
            file = pin_file(files, place, name, is_newest, is_permissive, witness)
        except FileNotFoundError:
            if place.kind in MERGED:
                raise
            continue  # cleaned since the folder was listed
        if file is not None:
            found.append(file)
    return found


def _choose(files: Files, place: LogPlace, names: list[str], *, is_permissive: bool) -> list[FileName]:
    """The files that hold the log, each record in one of them. Raises: Corruption if one of them is missing."""
    if place.kind == places.QUEUES:
        lost = [] if is_permissive else lost_files(files, place.folder, sort_out(names))
        plan = store_files.plan(names, lost=(each.file for each in lost))
        if plan.missing and lost and not is_permissive:
            raise lost[0].error()
        if not is_permissive:
            _check_whole(files, place.folder, plan)
        return [parsed for name in plan.load_order if (parsed := parse(name)) is not None]
    if place.kind == places.STORE:
        catalog = catalogs.load(files, place.folder)
        parts = [parsed for part in catalog.parts if (parsed := parse(part.name)) is not None]
        return [*parts, *inputs.channel_files(names, catalog.merged)]
    return sort_out(names).segments


def _check_whole(files: Files, folder: str, plan: store_files.Plan) -> None:
    """A start would refuse the queues without these. Raises: Corruption, DiskError."""
    for number in plan.missing:
        raise Corruption(store_files.log_name(number).name, 0, "the log is missing")
    lacking = lacks_log(files, folder, plan)
    if lacking is not None:
        raise Corruption(lacking.file, 0, lacking.reason)
    last = 0  # a log may hold nothing, as a crash leaves it: then those before it reach as far
    for number in plan.logs[:-1]:
        name = store_files.log_name(number).name
        end, newest = _end_of(files, folder, name)
        last = max(last, newest, reached_before(files, folder, name))
        if reached_before(files, folder, store_files.log_name(number + 1).name) > last:
            raise Corruption(name, end, LOST_AT_END)


def _end_of(files: Files, folder: str, name: str) -> tuple[int, int]:
    """The end of its whole records, and the time of the newest of them."""
    file = open_for_reading(files, folder, name)
    try:
        if header_is_torn(read_at(file, 0, HEADER_SIZE), None):
            return 0, 0
        index = indexes.load(files, folder, name, file) or Index()
        indexes.extend(index, file, QUEUE_STORE)
        return index.bytes, index.last_data
    finally:
        file.close()


def witness_of(files: Files, folder: str, names: Iterable[str]) -> Witness:
    """What the files of a folder are held against. Raises: Corruption if one of them is missing; DiskError."""
    for lost in lost_files(files, folder, sort_out(names)):
        raise lost.error()
    return Witness(files, folder)


def pin_file(
    files: Files,
    place: LogPlace,
    name: FileName,
    is_newest: bool,
    is_permissive: bool,
    witness: Witness | None = None,
) -> PinnedFile | None:
    """One file; None if there is nothing in it yet. Raises: Corruption, WrongFormat, DiskError; FileNotFoundError."""
    file = open_for_reading(files, place.folder, name.name)
    try:
        if witness is not None and not name.is_dump:
            # A start holds every log of queues against the manifest, by what it ends with, too.
            wrong = witness.differs(name.name, file, deep=is_newest or place.kind == places.QUEUES)
            if wrong is not None:
                raise wrong.error()
        size = file.size()
        head = read_at(file, 0, _HEAD)
        promised = 0 if is_permissive or not is_newest else indexes.promised(files, place.folder, name.name)
        if promised > size:
            raise ends_early(name.name, size, promised).error()
        is_torn = not promised and (header_is_torn(head[:HEADER_SIZE], None) or len(head) < HEADER_SIZE)
        if is_torn and (name.ending is Ending.EACH or (name.ending is Ending.GROWS and is_newest)):
            return None  # it was only just made
        was_whole = promised > 0 or (name.is_dump and not is_permissive)
        if len(head) < HEADER_SIZE or (was_whole and header_is_torn(head[:HEADER_SIZE], None)):
            raise Corruption(name.name, 0, "the header is cut short")
        try:
            format = identify(name.name, head[:HEADER_SIZE])
        except WrongFormat:
            if not is_permissive or identify_kind(place) is None:
                raise
            format = identify_kind(place)  # type: ignore[assignment]
        first = frame.decode_head(head, HEADER_SIZE, len(head)) if len(head) > HEADER_SIZE else Stop.END
        first_ns = first.time_ns if isinstance(first, frame.Head) else None
        is_ordered = name.ending is not Ending.WHOLE
        if name.is_dump:
            ended = time_of_end(file)
            if ended is None and not is_permissive:
                raise Corruption(name.name, size, "it is cut short: its last record is missing")
            return PinnedFile(place, name.name, format, file.identity, size, first_ns, ended, is_ordered)
        if not is_newest:
            return PinnedFile(place, name.name, format, file.identity, size, first_ns, None, is_ordered)
        index = _index(files, place.folder, name, file, format, size, is_permissive=is_permissive)
        points = tuple(zip(index.times, index.offsets, strict=True))
        return PinnedFile(
            place, name.name, format, file.identity, index.bytes, first_ns, index.last, is_ordered, points
        )
    finally:
        file.close()


def is_same(file: File, pinned: PinnedFile) -> bool:
    """It is the very file that was pinned. Its number alone does not tell: another may have been given it since."""
    if file.identity != pinned.identity:
        return False
    size = file.size()
    # One that was being written may have grown; a rewritten one has lost records.
    if size < pinned.end or (size > pinned.end and pinned.last_ns is None):
        return False
    head = read_at(file, 0, _HEAD)
    first = frame.decode_head(head, HEADER_SIZE, len(head)) if len(head) > HEADER_SIZE else Stop.END
    return (first.time_ns if isinstance(first, frame.Head) else None) == pinned.first_ns


def identify_kind(place: LogPlace) -> Format | None:
    """What the files of a log should be."""
    return next((format for format, kind in places.OF_FORMAT.items() if kind == place.kind), None)


def _index(
    files: Files, folder: str, name: FileName, file: File, format: Format, size: int, *, is_permissive: bool
) -> Index:
    """Up to the last whole record of the file that is being written. Raises: Corruption if what follows is damage."""
    index = indexes.load(files, folder, name.name, file, may_end_early=True) or Index()
    scan = indexes.extend(index, file, format, size)
    if is_permissive or scan.stop >= size:
        return index
    if scan.stop < indexes.promised(files, folder, name.name):
        raise Corruption(name.name, scan.stop, f"{REASONS[scan.why or Stop.TRUNCATED]}, though it was once synced")
    if name.ending is Ending.EACH:
        is_torn = torn_or_not(file, scan.stop, size, index.last_data, format)[0]
        if not is_torn:
            raise Corruption(name.name, scan.stop, REASONS[scan.why or Stop.TRUNCATED])
    if is_attested(file, scan.stop, size, index.last_data, format, frame.MAX_PAYLOAD):
        raise Corruption(name.name, scan.stop, f"{REASONS[scan.why or Stop.TRUNCATED]}, though it was once synced")
    return index


def _names(files: Files, folder: str) -> list[str]:
    """What is in a folder at one moment.

    A listing is not of one moment: it may show a file that was made meanwhile and not the one before it. Two that are
    equal are. Where files come faster than that, of each log those are certain that are not newer than the newest
    which was there a listing before.
    """
    try:
        earlier = files.list(folder)
        for _ in range(_LISTINGS):
            names = files.list(folder)
            if set(names) == set(earlier):
                return names
            before, earlier = earlier, names
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
    newest = {name.stream: name for name in sort_out(before).segments}
    late = {name.name for name in sort_out(names).segments if name.stream not in newest or name > newest[name.stream]}
    return [name for name in names if name not in late]
