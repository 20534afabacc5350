"""What a read sees: the files of the logs, and how far each counts, pinned once when the read is made.

Spark plans one DataFrame several times (a filter makes a copy of it): all of them see this. The end of a file that is
being written is that of its last whole record. What happens to the files later does not matter: a file that was
rewritten has lost records to cleaning but kept the times of the others (reading.py), and one that was renamed is found.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from lamina.engines.queues import store_files
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file, inputs
from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log import frame
from lamina.log import index as indexes
from lamina.log.attest import is_attested
from lamina.log.files import File, Files, read_at
from lamina.log.formats import Format, identify
from lamina.log.frame import REASONS, Stop
from lamina.log.index import Index
from lamina.log.naming import FileName, parse, sort_out
from lamina.log.scan import HEADER_SIZE
from lamina.log.segment import header_is_torn, open_for_reading
from lamina.pipeline import places
from lamina.pipeline.places import LogPlace

_HEAD = HEADER_SIZE + frame.TIME.size + frame.MAX_UVARINT


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
        if place.kind == places.STORE:
            # What is durable is asked first: the files that are listed afterwards hold it.
            epochs = epoch_file.read(files, place.folder, _names(files, place.folder))
            durable, voids = epochs.durable, tuple(epochs.voids)
        pinned += _pin_log(files, place, is_permissive)
    return Snapshot(path, tuple(pinned), durable, voids, time.time_ns())


def _pin_log(files: Files, place: LogPlace, is_permissive: bool) -> list[PinnedFile]:
    chosen = _choose(files, place, _names(files, place.folder))
    newest = {name.stream: name for name in chosen if not name.is_closed}
    found = []
    for name in chosen:
        is_newest = newest.get(name.stream) == name
        try:
            file = _pin_file(files, place, name, is_newest, is_permissive)
        except FileNotFoundError:
            continue  # cleaned since the folder was listed
        if file is not None:
            found.append(file)
    return found


def _choose(files: Files, place: LogPlace, names: list[str]) -> list[FileName]:
    """The files that hold the log, each record in one of them."""
    if place.kind == places.QUEUES:
        return [parsed for name in store_files.plan(names).load_order if (parsed := parse(name)) is not None]
    if place.kind == places.STORE:
        catalog = catalogs.load(files, place.folder)
        parts = [parsed for part in catalog.parts if (parsed := parse(part.name)) is not None]
        return [*parts, *inputs.channel_files(names, catalog.merged)]
    return sort_out(names).segments


def _pin_file(files: Files, place: LogPlace, name: FileName, is_newest: bool, is_permissive: bool) -> PinnedFile | None:
    file = open_for_reading(files, place.folder, name.name)
    try:
        size = file.size()
        head = read_at(file, 0, _HEAD)
        if is_newest and (header_is_torn(head[:HEADER_SIZE], None) or len(head) < HEADER_SIZE):
            return None  # it was only just made
        if len(head) < HEADER_SIZE:
            raise Corruption(name.name, 0, "the header is cut short")
        try:
            format = identify(name.name, head[:HEADER_SIZE])
        except WrongFormat:
            if not is_permissive or identify_kind(place) is None:
                raise
            format = identify_kind(place)  # type: ignore[assignment]
        first = frame.decode_head(head, HEADER_SIZE, len(head)) if len(head) > HEADER_SIZE else Stop.END
        first_ns = first.time_ns if isinstance(first, frame.Head) else None
        is_ordered = not name.is_part and not name.name.endswith(".dump")
        if not is_newest:
            return PinnedFile(place, name.name, format, file.identity, size, first_ns, None, is_ordered)
        index = _index(files, place.folder, name, file, format, size, is_permissive)
        points = tuple(zip(index.times, index.offsets, strict=True))
        return PinnedFile(
            place, name.name, format, file.identity, index.bytes, first_ns, index.last, is_ordered, points
        )
    finally:
        file.close()


def identify_kind(place: LogPlace) -> Format | None:
    """What the files of a log should be."""
    return next((format for format, kind in places.OF_FORMAT.items() if kind == place.kind), None)


def _index(
    files: Files, folder: str, name: FileName, file: File, format: Format, size: int, is_permissive: bool
) -> Index:
    """Up to the last whole record of the file that is being written. Raises: Corruption if what follows is damage."""
    index = indexes.load(files, folder, name.name, file, may_end_early=True) or Index()
    scan = indexes.extend(index, file, format, size)
    if is_permissive or scan.stop >= size:
        return index
    if is_attested(file, scan.stop, size, index.last_data, format, frame.MAX_PAYLOAD):
        raise Corruption(name.name, scan.stop, f"{REASONS[scan.why or Stop.TRUNCATED]}, though it was once synced")
    return index


def _names(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error
