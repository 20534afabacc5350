"""How far back each log of a data folder, or of a generation, can be restored: one line for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

from lamina.engines.queues import store_files
from lamina.engines.queues.dump_check import time_of_end
from lamina.engines.queues.looking import layouts_of
from lamina.engines.store import epoch_file
from lamina.engines.topics import codec
from lamina.engines.topics.codec import BadRecord, Items
from lamina.log.files import Files
from lamina.log.naming import TIMED
from lamina.log.reader import Reader
from lamina.log.segment import open_for_reading
from lamina.pipeline import places, snapshot
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.places import LogPlace
from lamina.pipeline.reach import attests_more, groups_whole_from
from lamina.pipeline.restoring.planning import Plan, note_cleaned, store_reach
from lamina.pipeline.snapshot import PinnedFile

JOURNALS: Final = "messages are in journals, which keep the present only"
_LET_GO: Final = "older entries were let go"
_ANEW: Final = "groups were written anew then"
_DUMPED: Final = "back to a dump; messages that had expired when it was written are not in it"
_COMPACTED: Final = "back to the oldest catalog that is kept"
_CLEANED: Final = "of jobs that are over by now, cleaning may have removed all records"


@dataclass(frozen=True, slots=True)
class Reach:
    """Of one log."""

    log: str
    kind: str
    earliest_ns: int | None
    """The earliest time that it can be had of; None: none but now."""
    newest_ns: int | None
    """Its last record, if that is known."""
    note: str = ""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def reach(disk: Files, data: str, without: frozenset[str] = frozenset()) -> list[Reach]:
    """Raises: BadOption if nothing of lamina's is there; Corruption, WrongFormat, DiskError."""
    return [_reach(disk, place) for place in places.find(disk, data, without)]


def _reach(disk: Files, place: LogPlace) -> Reach:
    if place.kind == places.STORE:
        first, oldest, reached = store_reach(disk, place)
        newest = epoch_file.read(disk, place.folder, disk.list(place.folder)).last_ns or None
        return Reach(place.path, place.kind, reached if oldest else first, newest, _COMPACTED if oldest else "")
    files = snapshot.pin(disk, place.folder, [place]).files
    newest = max((file.last_ns for file in files if file.last_ns is not None), default=None)
    first = next((file.first_ns for file in files if file.first_ns is not None), None)
    note = ""
    if place.kind == places.QUEUES:
        first, note = _queues(disk, place, first)
    elif place.kind == places.JOBS and files:
        note = _CLEANED if _is_cleaned(disk, place, files) else ""
    elif place.kind == places.TOPIC and files and attests_more(disk, files[0]):
        first, note = _topic_known_from(disk, place, files), _LET_GO
    elif place.kind == places.GROUPS and files and attests_more(disk, files[0]):
        first, note = groups_whole_from(disk, place, files) or first, _ANEW
    return Reach(place.path, place.kind, first, newest, note)


def reaches(disk: Files, place: LogPlace, files: Sequence[PinnedFile], moment_ns: int) -> bool:
    """These files of a log, which is not the store, can be cut at that moment. Raises: Corruption, DiskError."""
    first = next((file for file in files if file.first_ns is not None), None)
    if first is None:
        return True
    if place.kind == places.QUEUES:
        dump = store_files.find([first.name]).dumps
        return not dump or (_ended(disk, place, dump[0]) or 0) <= moment_ns
    if not attests_more(disk, files[0]):
        return True  # all that ever was is there
    known: int | None = first.first_ns
    if place.kind == places.TOPIC:
        known = _topic_known_from(disk, place, files)
    elif place.kind == places.GROUPS:
        known = groups_whole_from(disk, place, files)
    return known is None or known <= moment_ns


def _is_cleaned(disk: Files, place: LogPlace, files: Sequence[PinnedFile]) -> bool:
    found = Plan()
    note_cleaned(disk, place, files, 1 << 63, found)
    return bool(found.notes)


def _topic_known_from(disk: Files, place: LogPlace, files: Sequence[PinnedFile]) -> int | None:
    """The first record that says what the last id was (planning.py)."""
    with Frozen(disk, place, files) as pinned:
        for segment, batch in Reader(pinned.folder, family=TIMED, files=pinned.files).batches():
            for number, at in enumerate(batch.times):
                payload = batch.payload(number)
                if segment.format.is_mark(payload):
                    continue
                try:
                    kind = Items(payload).number()
                except BadRecord:
                    continue  # told by who opens it
                if kind in (codec.ENTRY, codec.SET):
                    return at
    return None


def _queues(disk: Files, place: LogPlace, first: int | None) -> tuple[int | None, str]:
    if layouts_of(disk, place.folder):
        return None, JOURNALS
    found = store_files.find(disk.list(place.folder))
    newest, logs = max(found.logs, default=-1), set(found.logs)
    if logs and not found.dumps and logs.issuperset(range(newest + 1)):
        return first, ""
    for number in found.dumps:
        if logs.issuperset(range(number + 1, newest + 1)) and (ended := _ended(disk, place, number)) is not None:
            return ended, _DUMPED
    return first, ""


def _ended(disk: Files, place: LogPlace, number: int) -> int | None:
    try:
        file = open_for_reading(disk, place.folder, store_files.dump_name(number))
    except FileNotFoundError:
        return None
    try:
        return time_of_end(file)
    finally:
        file.close()
