"""What is new in the logs since an export: files from its positions on, and whether anything before them is missing.

Only what was written counts, in the order of writing. What engines made of it later, in an order of their own (sorted
files of the store, dumps of the queues), is passed over: it would be there twice. But files that these stand for are
read as long as they are there. Of the store only closed files are read, and whole ones: before that it is not decided
which entries count.

The cost is that of what is new, and of a list of names: older files are found by halving, not by opening all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file
from lamina.errors import Gap, from_os
from lamina.log import consumers
from lamina.log.files import Files
from lamina.log.naming import FileName, sort_out
from lamina.log.reader import Reader, attested_at_head
from lamina.pipeline import places, snapshot
from lamina.pipeline.pieces import Times
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile, Snapshot
from lamina.units import show_time

_MAIN: Final = ("numbered", "timed", "stored")
"""Streams of which a folder has only one."""
_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class Lost:
    """Records that were removed before they were exported."""

    log: str
    after_ns: int | None
    """None: nobody knows."""
    until_ns: int | None
    why: str

    def as_error(self) -> Gap:
        after, until = ("some time" if each is None else show_time(each) for each in (self.after_ns, self.until_ns))
        return Gap(
            after,
            until,
            why=f"of {self.log}, {self.why}",
            hint="accept that with --allow-gaps; with --consumer NAME cleaning waits for the export from then on",
        )


@dataclass(slots=True)
class New:
    """One log: what of it is new."""

    key: str
    """As the manifest names it."""
    place: LogPlace
    stream: str
    snapshot: Snapshot
    times: Times
    position: int | None
    """That to save: time of the last record of it, as far as is known before it is read."""


@dataclass(slots=True)
class Found:
    """All logs."""

    news: list[New] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)


def pin_new(
    disk: Files,
    path: str,
    logs: list[LogPlace],
    positions: Mapping[str, int],
    epochs: Mapping[str, int],
    times: Times,
    consumer: str | None,
    now_ns: int,
) -> Found:
    """``times``: of logs that were never exported, from when on; and of all, up to when.

    Raises: Corruption, WrongFormat, DiskError.
    """
    found = Found()
    for place in logs:
        is_held = _is_held(disk, place, consumer, now_ns)
        for tries_left in range(_TRIES - 1, -1, -1):
            try:
                one = _pin_log(disk, path, place, positions, epochs, times, is_held=is_held)
            except FileNotFoundError as error:
                if not tries_left:
                    raise from_os(error, "read the log", place.folder) from error
                continue  # cleaned since the folder was listed: look again what is missing now
            found.news += one.news
            found.lost += one.lost
            found.epochs |= one.epochs
            break
    return found


def _pin_log(
    disk: Files,
    path: str,
    place: LogPlace,
    positions: Mapping[str, int],
    epochs: Mapping[str, int],
    times: Times,
    *,
    is_held: bool,
) -> Found:
    """Raises: FileNotFoundError if a file went meanwhile."""
    found = Found()
    # What was compacted is asked first: then the files that are listed afterwards are all those since.
    store = _Store(disk, place) if place.kind == places.STORE else None
    streams = sort_out(_list(disk, place.folder)).streams()
    if store is not None:
        store.check(found, streams, epochs.get(place.path), is_held=is_held)
    for stream, names in streams.items():
        if stream == epoch_file.NAME or names[0].is_part or names[0].name.endswith(".dump"):
            continue
        key = place.path if stream in _MAIN else f"{place.path}/{stream}"
        position = positions.get(key, None if times.since is None else times.since - 1)
        new = New(key, place, stream, Snapshot(path, ()), Times(until=times.until), position)
        if store is not None:
            store.pin(new, names)
        else:
            _pin(disk, new, names, found, was_exported=key in positions)
        if new.snapshot.files or new.position != positions.get(key):
            found.news.append(new)
    return found


def _pin(disk: Files, new: New, names: list[FileName], found: Found, *, was_exported: bool) -> None:
    reader = Reader(new.place.folder, stream=new.stream, files=disk)
    first, after = 0, new.position
    if after is not None:
        if was_exported and (lost := _lost(reader, names[0], new.key, after)) is not None:
            found.lost.append(lost)
        first = reader.file_for(names, after + 1)
    pinned = list(_pin_files(disk, new.place, names[first:]))
    until = new.times.until
    newest = pinned[-1].last_ns if pinned else None
    if newest is not None:
        # Up to there and not further, whatever is written meanwhile: that is what the position will say.
        until = newest + 1 if until is None else min(until, newest + 1)
    new.times = Times(None if after is None else after + 1, until)
    if until is not None and newest is not None and until - 1 > (after or 0):
        new.position = until - 1
    if not new.times.is_empty:
        new.snapshot = replace(new.snapshot, files=tuple(pinned))


def _pin_files(disk: Files, place: LogPlace, names: list[FileName]) -> Iterator[PinnedFile]:
    witness = snapshot.witness_of(disk, place.folder, _list(disk, place.folder))
    for name in names:
        file = snapshot.pin_file(disk, place, name, name == names[-1] and not name.is_closed, False, witness)
        if file is not None and file.first_ns is not None:
            yield file


def _lost(reader: Reader, oldest: FileName, log: str, after: int) -> Lost | None:
    """The oldest file vouches for records that came before it and after the position."""
    segment = reader.open(oldest, is_newest=True)
    if segment is None:
        return None  # empty, or gone: who reads it sees that
    try:
        attested = attested_at_head(segment, reader.max_payload)
    finally:
        segment.file.close()
    if attested is None or attested <= after:
        return None
    return Lost(log, after, attested, f"which now begins with {oldest.name}")


class _Store:
    """The channels of a store."""

    def __init__(self, disk: Files, place: LogPlace) -> None:
        self._disk, self._place = disk, place
        self._merged = catalogs.load(disk, place.folder).epoch
        found = epoch_file.read(disk, place.folder, _list(disk, place.folder))
        self._durable, self._voids = found.durable, tuple(found.voids)

    def check(self, found: Found, streams: Mapping[str, list[FileName]], before: int | None, *, is_held: bool) -> None:
        """Compaction tells nobody which files it has removed: what it may have, counts as lost unless it was held."""
        if before is not None and self._merged > before and not is_held:
            why = f"whose entries of epochs {before + 1} to {self._merged} were compacted"
            found.lost.append(Lost(self._place.path, None, None, why))
        closed = [name.order[1] for names in streams.values() for name in names if self._is_read(name)]
        found.epochs[self._place.path] = max([before or 0, self._merged, *closed])

    def _is_read(self, name: FileName) -> bool:
        return (
            name.stream.startswith("pwal_") and name.is_closed and not name.is_part and name.order[1] <= self._durable
        )

    def pin(self, new: New, names: list[FileName]) -> None:
        closed = [name for name in names if self._is_read(name)]
        reader = Reader(new.place.folder, stream=new.stream, files=self._disk)
        after = new.position
        first = 0 if after is None else reader.file_for(closed, after + 1)
        files = [
            file
            for file in _pin_files(self._disk, new.place, closed[first:])
            if after is None
            or (file.first_ns or 0) >= after  # each file begins with a mark of the last record before it
        ]
        until, new.times = new.times.until, Times()
        if until is not None:
            files = [file for file in files if (file.first_ns or 0) < until]
        if files:
            new.snapshot = Snapshot(new.snapshot.path, tuple(files), self._durable, self._voids)
            new.position = self._last(reader, closed, files[-1].name) or files[-1].first_ns

    def _last(self, reader: Reader, closed: list[FileName], last: str) -> int | None:
        segment = reader.open(next(name for name in closed if name.name == last), is_newest=False)
        if segment is None:
            return None
        try:
            return reader.index_of(segment).last
        finally:
            segment.file.close()


def _is_held(disk: Files, place: LogPlace, consumer: str | None, now_ns: int) -> bool:
    return consumer is not None and any(
        one.name == consumer and one.damage is None for one in consumers.holding(disk, place.folder, now_ns)
    )


def _list(disk: Files, folder: str) -> list[str]:
    try:
        return disk.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
