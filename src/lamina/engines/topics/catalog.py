"""The names of topics: which are known, in which order a scan goes over them, and of which it is sure that they exist.

A topic exists from its first record on. Its folder is there before that, and a crash may leave it without a record: so
a name is known first, and sure when a record of the topic is as safe as the policy promises. What is sure stays so
until the topic is deleted, and whoever asks then looks at no file and at no topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from lamina.engines.topics.sorted_map import SortedMap
from lamina.errors import Corruption, WrongFormat
from lamina.log.files import Files, join
from lamina.log.naming import CHECKPOINT, INDEX_SUFFIX, TIMED, sort_out
from lamina.log.options import LogOptions
from lamina.log.reader import Reader
from lamina.log.writer import Log

if TYPE_CHECKING:
    from lamina.engines.topics.topic import Topic

PLACES: Final = 1 << 40
"""Places are numbers from 1 to this."""


def place_of(name: bytes) -> int:
    """Where a name stands among all: anywhere, so nobody who sees places can tell names by them.

    Another process has other places. Two names may have the same.
    """
    return hash(name) % PLACES + 1


class Doubt(Enum):
    """What is known of a name that is not sure."""

    UNSEEN = "nobody has looked into its folder yet"
    EMPTY = "there was no record in its folder"


class Catalog:
    """Not locked: whoever changes it, or asks for more than one name, has the lock of the topics."""

    def __init__(self, names: Iterable[tuple[bytes, Doubt | None]]) -> None:
        """With what is known of each; None: it is sure."""
        found = dict(names)
        self._names = set(found)
        self._order: SortedMap[tuple[int, bytes], None] = SortedMap(((place_of(name), name), None) for name in found)
        self._doubts = {name: doubt for name, doubt in found.items() if doubt is not None}

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: bytes) -> bool:
        return name in self._names

    def note(self, name: bytes, doubt: Doubt | None) -> None:
        """The name is known from now on, if it was not before, and so much is known of it; None: it is sure."""
        if name not in self._names:
            self._names.add(name)
            self._order.add((place_of(name), name), None)
        if doubt is None:
            self._doubts.pop(name, None)
        else:
            self._doubts[name] = doubt

    def forget(self, name: bytes) -> None:
        if name in self._names:
            self._names.remove(name)
            self._order.pop((place_of(name), name))
            self._doubts.pop(name, None)

    def doubt(self, name: bytes) -> Doubt | None:
        """About a name that is known; None: it is sure."""
        return self._doubts.get(name)

    def unsure(self) -> list[bytes]:
        """Those that are not sure; they tend to be few."""
        return list(self._doubts)

    def names(self) -> list[bytes]:
        """All, in no order."""
        return list(self._names)

    def page(self, place: int, count: int) -> tuple[list[tuple[int, bytes]], int]:
        """Names from a place on, with their places, and the place where to go on; 0: there are no more.

        They are ``count``, or a few more: those at one place come together.
        """
        rest = self._order.keys((place, b""))
        found = list(islice(rest, count))
        for one in rest:
            if one[0] != found[-1][0]:
                return found, one[0]
            found.append(one)
        return found, 0


# -- finding out -----------------------------------------------------------------------------------------------------


def doubt_by_names(files: Collection[str]) -> Doubt | None:
    """About a topic, as far as the names of its files tell."""
    segments = sort_out(files).segments
    if len(segments) > 1 or CHECKPOINT in files:
        return None
    if not segments:
        return Doubt.EMPTY
    # All there is of it may be the torn beginning of its first file; an index is of records that were synced.
    return None if segments[0].name + INDEX_SUFFIX in files else Doubt.UNSEEN


def doubt_about(topic: Topic) -> Doubt | None:
    """About an open topic."""
    log = topic.log
    return None if topic.state.exists and isinstance(log, Log) and log.readable_position else Doubt.UNSEEN


def has_record(files: Files, folder: str, options: LogOptions) -> bool:
    """There is one that opening the topic would keep, or something that keeps it from being opened.

    Durability: then it is synced, as if it had been opened. Raises: OSError, DiskError.
    """
    try:
        for segment, batch in Reader(folder, family=TIMED, files=files, max_payload=options.max_payload).batches():
            if any(not segment.format.is_mark(batch.payload(number)) for number in range(len(batch.times))):
                file = files.open(join(folder, segment.name.name), write=True)
                try:
                    file.sync()
                finally:
                    file.close()
                files.sync_folder(folder)
                return True
    except (Corruption, WrongFormat):
        return True
    return False
