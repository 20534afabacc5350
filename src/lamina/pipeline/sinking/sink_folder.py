"""Publishing into a data folder that no server has: by the engine itself, which holds the lock meanwhile.

Entries get ids by a rule that anybody can follow again from what was noted (``ids_of``). While we hold the lock nobody
else adds, so what is there of a chunk that broke off is its beginning, right behind the last id that was noted. Ours
leave out every second id: an entry that somebody added between the crash and now has the next one, or one of a later
millisecond, and is not taken for ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from lamina.clock import Clock, SystemClock
from lamina.engines.topics import ids
from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import show_name
from lamina.engines.topics.topics import LOCK, Topics
from lamina.errors import BadTopic, LaminaError, LogLocked
from lamina.log.files import Files, join
from lamina.log.options import LogOptions
from lamina.log.sync import ALWAYS
from lamina.pipeline.sinking.publications import Chunk, Publications, Seen, patiently
from lamina.pipeline.sinking.publishing import Numbered

_PATIENCE_S: Final = 10.0  # for a program that has the topics for a moment; a server has them for long
_MOST_OPEN: Final = 256
_HINT: Final = 'publish through the server that has it: option("server", "host:port"), or stop that first'


class FolderOutlet:
    """The topics of a data folder."""

    def __init__(self, files: Files, data: str, clock: Clock | None = None) -> None:
        """Use ``opened``."""
        self._files, self._folder, self._clock = files, join(data, "topics"), clock or SystemClock()
        self._topics = self._open()

    def _open(self) -> Topics:
        def take() -> Topics:
            options = LogOptions(sync=ALWAYS)  # without threads: who waits does the work
            return Topics.open(self._folder, options=options, files=self._files, clock=self._clock, threaded=False)

        try:
            return patiently(take, _PATIENCE_S)
        except LogLocked as error:
            raise LogLocked(error.message, hint=_HINT, **error.facts) from error

    def close(self) -> None:
        """Raises: what kept records out of a log."""
        self._topics.close()

    def look(self, topics: Iterable[bytes]) -> dict[bytes, Seen]:
        if len(list(self._topics.opened())) > _MOST_OPEN:  # each has files open
            self._topics.close()
            self._topics = self._open()
        found = {}
        for name in topics:
            state = self._topics.get_or_make(name).state
            found[name] = Seen(state.last_id, state.added, state.length)
        return found

    def find(self, entries: Numbered, chunk: Chunk, staged: str) -> set[int]:
        expected: dict[bytes, list[tuple[int, EntryId, list[bytes]]]] = {}
        for (number, (name, _, flat)), id in zip(entries, ids_of(entries, chunk), strict=True):
            expected.setdefault(name, []).append((number, id, flat))
        found = set[int]()
        for name, ours in expected.items():
            behind = EntryId(chunk.seen[name].last + 1)
            there, _ = self._topics.get_or_make(name).read(behind, count=len(ours))
            for (number, id, flat), entry in zip(ours, there, strict=False):
                if (id, flat) != entry:
                    break
                found.add(number)
        return found

    def add(self, entries: Numbered, chunk: Chunk, staged: str) -> None:
        positions: dict[bytes, list[int]] = {}
        states = {name: self._topics.get_or_make(name).state for name in chunk.seen}
        for (_, (name, _, flat)), id in zip(entries, ids_of(entries, chunk), strict=True):
            positions.setdefault(name, []).append(self._topics.get_or_make(name).add(flat, id)[1])
        for name, added in positions.items():
            topic = self._topics.get_or_make(name)
            topic.settle(added[-1])
            if topic.state is not states[name]:  # records were refused meanwhile: perhaps ours
                for position in added:
                    topic.settle(position)


def ids_of(entries: Numbered, chunk: Chunk) -> Iterator[EntryId]:
    """The id of each: the chosen one; else of the moment of the chunk, or right behind the last, leaving one out.

    Raises: BadTopic when there is none left.
    """
    last = {name: seen.last for name, seen in chunk.seen.items()}
    first = ids.make(chunk.ms, 1)
    for _, (name, chosen, _) in entries:
        id = chosen or max(first, EntryId(last[name] + 2))
        if id > ids.LAST:
            raise BadTopic(f"the topic {show_name(name)} has used up its ids")
        last[name] = id
        yield id


@contextmanager
def opened(files: Files, data: str, clock: Clock | None = None) -> Iterator[FolderOutlet]:
    """Raises: LogLocked if a server has the topics; what opening them does."""
    outlet = FolderOutlet(files, data, clock)
    try:
        yield outlet
    except BaseException:
        with suppress(LaminaError):  # the first error is the one to report
            outlet.close()
        raise
    outlet.close()


def check_free(files: Files, data: str, patience_s: float = 2.0) -> None:
    """Say early that a server has the topics: not after hours of tasks. Raises: LogLocked."""
    folder, publications = join(data, "topics"), Publications(files, data)

    def look() -> None:
        holder = files.lock_holder(join(folder, LOCK))
        if holder is not None and publications.holder() is None:  # who publishes has them only for so long
            raise LogLocked(f"{folder}: {holder} is writing here", hint=_HINT, folder=folder, holder=holder)

    patiently(look, patience_s)
