"""The files of a data folder as of one moment, beside whoever writes there: which they are, and where each is cut.

The moment is when it was begun, or the newest record that was there, if that is later (a clock that was set back). So
all that was acknowledged before is in it. Then it is waited until what was stamped up to the moment is in the files,
and each log is cut behind the last record of it: all of them are of the same moment, not one behind the other. Where
files go so quickly that none are left to wait for, it is not waited: then logs are as they were within a few
milliseconds, each with all that was acknowledged before, which is told.

What follows from the files is left out: checkpoints, the indexes of files that grow. So are positions of consumers, who
say again where they are; and what is no log: users.json, whose tokens may have been withdrawn since.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, TypeVar

from lamina import runs
from lamina.engines.queues import migration_mark, store_files
from lamina.engines.queues.looking import layouts_of, look
from lamina.errors import DiskError, StorageError
from lamina.log import lock, mark
from lamina.log.files import Files, join, read_at
from lamina.log.naming import FAMILIES, RESERVE
from lamina.log.segment import open_for_reading
from lamina.pipeline import places, snapshot
from lamina.pipeline.backing import journals, reaching, store
from lamina.pipeline.backing.sources import Changed, Source, index_of, left_of, of_file
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.places import LogPlace

T = TypeVar("T")

SETTLES_S: Final = 1.0
"""A record is in its file that long after its time, at most, wherever a server writes as it should."""
_TRIES: Final = 20
PATIENCE: Final = 3
"""So many tries wait for what was stamped up to the moment."""
_APART: Final = "files changed so quickly that logs may be of moments some milliseconds apart"
_LOCKS: Final = (*{family.lock_name for family in FAMILIES.values()}, lock.OF_ALL)


@dataclass(slots=True)
class Collected:
    """All files of one moment."""

    moment_ns: int
    began_ns: int
    logs: list[LogPlace] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def bytes(self) -> int:
        return sum(source.size for source in self.sources)


@dataclass(frozen=True, slots=True)
class Time:
    """The clock, and waiting for it."""

    now_ns: Callable[[], int] = time.time_ns
    sleep: Callable[[float], None] = time.sleep


def collect(
    disk: Files,
    data: str,
    *,
    later_than: int = 0,
    without: frozenset[str] = frozenset(),
    is_patient: bool = True,
    clock: Time = Time(),  # noqa: B008
) -> Collected:
    """``without``: parts of a data folder that are left out. ``is_patient``: wait, so that all logs are of one moment.

    Raises: BadOption if nothing of lamina's is there; Changed if files change too quickly; Corruption, WrongFormat,
        DiskError.
    """
    mark.check(disk, data)
    began = moment = clock.now_ns()
    for number in range(_TRIES):
        try:
            newest = [_steadily(_newest, disk, place) for place in places.find(disk, data, without)]
            found = Collected(max(moment, later_than + 1, *newest), began)
            if _is_served(disk, data):
                if is_patient and number < PATIENCE:
                    clock.sleep(SETTLES_S)
                else:
                    found.notes.append(_APART)
            return _collect(disk, data, without, found)
        except Changed:
            if number == _TRIES - 1:
                raise
            moment = clock.now_ns()  # one that can still be had
    raise AssertionError


def _collect(disk: Files, data: str, without: frozenset[str], found: Collected) -> Collected:
    for place in places.find(disk, data, without):
        sources, notes = _steadily(lambda disk, place: _log(disk, place, found.moment_ns), disk, place)
        found.notes += notes
        if sources:
            found.logs.append(place)
            # Last looked at, first copied: of queues and the store, files become part of others.
            found.sources[:0] = sources
    found.sources.extend(_mark(disk, data))
    found.notes += left_out(disk, data)
    return found


def _mark(disk: Files, data: str) -> list[Source]:
    """What says which layout the folder has."""
    if not mark.check(disk, data):
        return []
    file = disk.open(join(data, mark.NAME))
    try:
        return [Source(mark.NAME, data=read_at(file, 0, file.size()))]
    finally:
        file.close()


def _log(disk: Files, place: LogPlace, moment_ns: int) -> tuple[list[Source], list[str]]:
    """The files of one log, and notes about them."""
    if place.kind == places.STORE:
        return store.collect(disk, place, moment_ns), []
    if place.kind == places.QUEUES:
        migration_mark.refuse_if_under_way(disk, place.folder)
    pinned = snapshot.pin(disk, place.folder, [place]).files
    sources, notes = [], []
    for file in pinned:
        if file.last_ns is not None and (left := left_of(disk, file)):
            notes.append(
                f"{place.path}/{file.name}: the last {left} bytes are left out: a torn tail, as a crash leaves it"
            )
    if not reaching.reaches(disk, place, pinned, moment_ns):
        raise Changed(place.path)  # written anew since that moment
    with Frozen(disk, place, pinned, moment_ns) as frozen:
        for name in frozen.list(place.folder):
            opened = frozen.open(join(place.folder, name))
            path = f"{place.path}/{name}"
            sources.append(of_file(path, place.folder, opened))
            if (index := index_of(disk, path, place.folder, opened)) is not None:
                sources.append(index)
        if place.kind == places.QUEUES:
            sources += _without_records(disk, place, frozen.list(place.folder))
        if place.kind == places.QUEUES and not frozen.is_empty and layouts_of(disk, place.folder):
            sources += journals.collect(disk, place, look(frozen.files, place.folder).state)
    return sources, notes


def _without_records(disk: Files, place: LogPlace, held: list[str]) -> list[Source]:
    """Logs of queues that a crash left without a header, among those that are ``held``: one that is missing in the row
    of numbers is taken for a loss.
    """
    order = store_files.plan(disk.list(place.folder)).load_order
    last = max((order.index(name) for name in held if name in order), default=0)
    found = []
    for name in order[:last]:
        if name not in held:
            file = open_for_reading(disk, place.folder, name)
            try:
                found.append(of_file(f"{place.path}/{name}", place.folder, file))
            finally:
                file.close()
    return found


def _newest(disk: Files, place: LogPlace) -> int:
    """The time of the newest record that is there."""
    if place.kind == places.STORE:
        return store.newest_ns(disk, place)
    return max((file.last_ns or 0 for file in snapshot.pin(disk, place.folder, [place]).files), default=0)


def _steadily(look_at: Callable[[Files, LogPlace], T], disk: Files, place: LogPlace) -> T:
    """Raises: Changed where files go while they are looked at; what else is wrong is there both times."""
    try:
        return look_at(disk, place)
    except FileNotFoundError:
        raise Changed(place.path) from None
    except DiskError as error:
        if error.facts.get("errno") != "ENOENT":
            raise
        raise Changed(place.path) from error
    except StorageError as error:
        if type(error) is not StorageError:
            raise
        raise Changed(place.path) from error


def _is_served(disk: Files, data: str) -> bool:
    """Somebody has one of the logs open to write."""
    folders = {
        folder for place in places.find(disk, data) for folder in (place.folder, place.folder.rpartition("/")[0])
    }
    return any(disk.lock_holder(join(folder, name)) is not None for folder in sorted(folders) for name in _LOCKS)


def left_out(disk: Files, data: str) -> list[str]:
    """What is in a data folder and no log, in words."""
    try:
        names = sorted(disk.list(data))
    except OSError:
        return []
    if not places.PARTS.intersection(names):
        return []  # one log
    known = {*places.PARTS, *_LOCKS, mark.NAME, runs.PART, RESERVE}
    others = [name for name in names if name not in known]
    return [f"{name} is left out: only logs are taken" for name in others]
