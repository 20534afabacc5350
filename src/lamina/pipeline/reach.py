"""How far back the files of a log reach: what cleaning has taken from their front cannot be had any more."""

from __future__ import annotations

from collections.abc import Sequence

from lamina.engines.topics.group_snapshot import Loader
from lamina.errors import TooOld
from lamina.log.files import Files
from lamina.log.frame import MAX_PAYLOAD
from lamina.log.naming import TIMED, parse
from lamina.log.reader import Reader, Segment, attested_at_head
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
    if attests_more(disk, oldest):
        raise too_old(place, until_ns, oldest.first_ns)


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
