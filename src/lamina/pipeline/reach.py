"""How far back the files of a log reach: what cleaning has taken from their front cannot be had any more."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.engines.topics import codec
from lamina.engines.topics.codec import BadRecord
from lamina.engines.topics.group_snapshot import Loader
from lamina.errors import TooOld
from lamina.log import index as indexes
from lamina.log.files import Files
from lamina.log.frame import MAX_PAYLOAD
from lamina.log.naming import TIMED, FileName, parse
from lamina.log.reader import Reader, Segment, attested_at_head
from lamina.log.scan import HEADER_SIZE
from lamina.log.segment import open_for_reading
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile
from lamina.units import show_time


def check_reach(disk: Files, place: LogPlace, pinned: Sequence[PinnedFile], until_ns: int) -> None:
    """Raises: TooOld if the files begin after that time, and something was before them."""
    oldest = next((file for file in pinned if file.is_ordered and file.first_ns is not None), None)
    if oldest is None or oldest.first_ns is None or oldest.first_ns <= until_ns or pinned[0] is not oldest:
        return
    if began_by(oldest, until_ns) or attests_more(disk, oldest):
        raise too_old(place, until_ns, oldest.first_ns)


def began_by(oldest: PinnedFile, time_ns: int) -> bool:
    """The file had records at that time, whatever is left of them: one named by time keeps its name."""
    name = parse(oldest.name)
    return name is not None and name.family == TIMED.name and name.number <= time_ns


def compacted_ns(disk: Files, place: LogPlace, pinned: Sequence[PinnedFile]) -> int:
    """What was dead at that time may be gone from files of a topic that stayed; 0: nothing is.

    Raises: Corruption, DiskError; StorageError if the read has to be begun anew.
    """
    with Frozen(disk, place, pinned) as held:
        reader = Reader(held.folder, family=TIMED, files=held.files)
        names = reader.segments()
        first = next((at for at, name in enumerate(names[:-1]) if _is_rewritten(disk, place, name)), None)
        if first is None:
            return 0
        newest = 0
        for segment, batch in reader.batches(begin=(names[first + 1], HEADER_SIZE), names=names):
            for number in range(len(batch.times)):
                payload = batch.payload(number)
                try:
                    newest = max(newest, 0 if segment.format.is_mark(payload) else codec.trim_note(payload))
                except BadRecord:
                    continue  # told by who folds it
        return newest if newest > codec.LET_GO else 0


def _is_rewritten(disk: Files, place: LogPlace, name: FileName) -> bool:
    """A sealed file has the index that it was sealed with; writing it anew takes that away."""
    try:
        file = open_for_reading(disk, place.folder, name.name)
    except FileNotFoundError:
        return True
    try:
        return indexes.load(disk, place.folder, name.name, file) is None
    finally:
        file.close()


def check_compacted(disk: Files, place: LogPlace, pinned: Sequence[PinnedFile], until_ns: int) -> None:
    """Raises: TooOld if what was alive in a topic at that time may be gone from its files."""
    oldest = compacted_ns(disk, place, pinned)
    if oldest > until_ns and any(began_by(file, until_ns) for file in pinned):
        raise too_old(place, until_ns, oldest)


def attests_more(disk: Files, oldest: PinnedFile) -> bool:
    """The file says at its head that records were before it, which are gone."""
    name = parse(oldest.name)
    try:
        file = open_for_reading(disk, oldest.place.folder, oldest.name)
    except FileNotFoundError:
        return True  # gone itself
    try:
        assert name is not None
        segment = Segment(name, file, oldest.format, file.size(), is_newest=False)
        return bool(attested_at_head(segment, MAX_PAYLOAD))
    finally:
        file.close()


def too_old(place: LogPlace, asked_ns: int, oldest_ns: int) -> TooOld:
    """The same error as of the store, which counts in epochs."""
    error = TooOld(0, 0, oldest_ns)
    error.message = f"the files of {place.path} do not reach back to {show_time(asked_ns)}"
    error.args = (error.message,)
    error.hint = f"the earliest time that can be had is {show_time(oldest_ns)}"
    error.facts = {"log": place.path, "oldest_time_ns": oldest_ns}
    return error


def check_groups(disk: Files, place: LogPlace, pinned: Sequence[PinnedFile], until_ns: int) -> None:
    """Raises: TooOld if all groups were written anew later than that, and what came before was removed."""
    if attests_more(disk, pinned[0]) and (whole := groups_whole_from(disk, place, pinned)) and whole > until_ns:
        raise too_old(place, until_ns, whole)


def groups_whole_from(disk: Files, place: LogPlace, pinned: Sequence[PinnedFile]) -> int | None:
    """The time of the record with which the first snapshot is whole, None if there is none."""
    loader = Loader()
    with Frozen(disk, place, pinned) as held:
        for segment, batch in Reader(held.folder, family=TIMED, files=held.files).batches():
            for number in range(len(batch.times)):
                payload = batch.payload(number)
                if not segment.format.is_mark(payload):
                    loader.take(payload, (segment.name.name, 0))
                    if loader.snapshot_bytes:
                        return batch.times[number]
    return None
