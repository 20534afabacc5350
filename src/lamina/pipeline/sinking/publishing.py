"""Publishing what tasks staged, once: begun at one point, completed by whoever comes next, repeated by nobody.

    1 what is pending of the query is completed          2 a batch that is done already is thrown away
    3 the manifest of the staged parts is synced         4 the batch is noted as pending     <- commit point
    5 for each chunk: topics as they are now are noted, the chunk is added, and is durable
    6 the batch is noted as done                         7 the staged parts are removed

A crash before 4 leaves nothing that counts. Behind it the next attempt goes on with the chunk that was on its way: an
outlet can tell which of its entries are there, and only the others are added. Only of entries that went meanwhile
(deleted, trimmed) can nobody tell; that is an error unless one chose (``inDoubt``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from itertools import islice
from typing import Final, Protocol

from lamina.clock import Clock, SystemClock
from lamina.engines.topics import ids
from lamina.engines.topics.messages import show_name, to_name
from lamina.errors import BadTopic, LaminaError, StorageError
from lamina.log.files import Files, join
from lamina.log.naming import STAGING
from lamina.pipeline.sinking import sink_parts
from lamina.pipeline.sinking.publications import Chunk, Pending, Publications, Seen, Standing
from lamina.pipeline.sinking.sink_columns import Entry
from lamina.pipeline.sinking.sink_options import FAIL, SKIP
from lamina.pipeline.sinking.sink_parts import Part, check_whole, does_not_grow, mark_of, read_entries
from lamina.units import MIB

MOST_ENTRIES: Final = 8192
MOST_BYTES: Final = 4 * MIB
MOST_TOPICS: Final = 128
"""Of a chunk: what is in memory at once, and what is looked for after a crash."""
_FORGOTTEN_MS: Final = 7 * 86_400_000

Numbered = list[tuple[int, Entry]]
"""Entries with their numbers in the publication."""


class Outlet(Protocol):
    """Where topics are."""

    def look(self, topics: Iterable[bytes]) -> dict[bytes, Seen]:
        """The topics as they are now."""

    def find(self, entries: Numbered, chunk: Chunk, staged: str) -> set[int]:
        """Which of these are there, of what was added as ``chunk``. Nothing more comes of an earlier attempt."""

    def add(self, entries: Numbered, chunk: Chunk, staged: str) -> None:
        """Durability: when it returns, they survive a power cut. Raises: the refusal; then some may be there."""


class Publisher:
    """Publishes from one place."""

    def __init__(
        self,
        files: Files,
        place: str,
        open_outlet: Callable[[], AbstractContextManager[Outlet]],
        in_doubt: str = FAIL,
        clock: Clock | None = None,
    ) -> None:
        self._files, self._place, self._open_outlet, self._in_doubt = files, place, open_outlet, in_doubt
        self._clock = clock or SystemClock()
        self.publications = Publications(files, place)

    def staged_folder(self, staged: str) -> str:
        return join(join(self._place, STAGING), staged)

    def commit(self, query: str | None, batch: int, staged: str, parts: Sequence[Part], of: str) -> None:
        """Publish a batch of a query, unless it is published already. Without a query: what is staged, now.

        ``of``: as it was staged for. Durability: when it returns, all of it survives a power cut.
        Raises: BadTopic for chosen ids that cannot be, then nothing was published; LogLocked; the refusal of the disk
            or the server: then the next attempt goes on.
        """
        with self.publications.locked():
            standing = Standing() if query is None else self.publications.read(query)
            if standing.pending is not None or (parts and not standing.is_done(batch)):
                with self._open_outlet() as outlet:
                    if query is not None and standing.pending is not None:
                        standing = self._complete(outlet, query, standing, standing.pending)
                    if parts and not standing.is_done(batch):
                        self._begin(outlet, query, Pending(batch, staged), standing, parts)
            self._sweep(staged, of)

    def abort(self, query: str | None, staged: str) -> None:
        """Throw away what was staged, unless it counts already."""
        with suppress(LaminaError):
            standing = Standing() if query is None else self.publications.read(query)
            if standing.pending is None or standing.pending.staged != staged:
                self._remove(staged)

    # -- one publication ---------------------------------------------------------------------------------------------

    def _begin(
        self, outlet: Outlet, query: str | None, pending: Pending, standing: Standing, parts: Sequence[Part]
    ) -> None:
        folder = self.staged_folder(pending.staged)
        check_whole(self._files, folder, parts)
        _check_chosen(outlet, parts)
        if query is None:
            self._publish(outlet, pending, parts, lambda chunk: None)
            return
        sink_parts.write_manifest(self._files, folder, parts)
        standing = Standing(standing.done, pending)
        self.publications.write(query, standing)  # the commit point
        self._complete(outlet, query, standing, pending)

    def _complete(self, outlet: Outlet, query: str, standing: Standing, pending: Pending) -> Standing:
        def note(chunk: Chunk) -> None:
            now = Pending(pending.batch, pending.staged, chunk)
            self.publications.write(query, Standing(standing.done, now))

        parts = sink_parts.read_manifest(self._files, self.staged_folder(pending.staged))
        self._publish(outlet, pending, parts, note)
        done = standing.with_done(pending.batch)
        self.publications.write(query, done)
        self._remove(pending.staged)
        return done

    def _publish(self, outlet: Outlet, pending: Pending, parts: Sequence[Part], note: Callable[[Chunk], None]) -> None:
        chunk = pending.chunk
        number = 0 if chunk is None else chunk.first
        entries = read_entries(self._files, self.staged_folder(pending.staged), parts, number)
        if chunk is not None:  # an attempt ended while this was on its way
            taken = list(enumerate(islice(entries, chunk.count), number))
            there = self._there(outlet, taken, chunk, pending.staged)
            self._add(outlet, taken, there, pending.staged, note)
            number += len(taken)
        for some in _cut(entries):
            self._add(outlet, list(enumerate(some, number)), frozenset(), pending.staged, note)
            number += len(some)

    def _add(
        self,
        outlet: Outlet,
        taken: Numbered,
        there: frozenset[int],
        staged: str,
        note: Callable[[Chunk], None],
    ) -> None:
        missing = [(number, entry) for number, entry in taken if number not in there]
        if missing:
            seen = outlet.look({entry[0] for _, entry in missing})
            chunk = Chunk(taken[0][0], len(taken), self._clock.now_ns() // 1_000_000, there, seen)
            note(chunk)
            outlet.add(missing, chunk, staged)

    def _there(self, outlet: Outlet, taken: Numbered, chunk: Chunk, staged: str) -> frozenset[int]:
        """Numbers of entries that count as published. Raises: StorageError if nobody can tell."""
        asked = [(number, entry) for number, entry in taken if number not in chunk.there]
        found = chunk.there | outlet.find(asked, chunk, staged)
        missing = {number: entry[0] for number, entry in asked if number not in found}
        now = outlet.look(set(missing.values()))
        lost = {name for name, seen in now.items() if seen.has_lost_since(chunk.seen[name])}
        doubtful = {number for number, name in missing.items() if name in lost}
        if doubtful and self._in_doubt == FAIL:
            raise StorageError(
                f"{len(doubtful)} entries for the topic {show_name(min(lost))} were perhaps published when a former "
                f"attempt broke off, and entries of it were deleted or trimmed since",
                hint='option("inDoubt", "skip") takes them as published, "publish" publishes them, perhaps again',
                staged=staged,
            )
        return found | doubtful if self._in_doubt == SKIP else found

    # -- what is left ------------------------------------------------------------------------------------------------

    def _remove(self, staged: str) -> None:
        """Failing is no error: nothing in there counts any more."""
        with suppress(OSError):
            self._files.remove_folder(self.staged_folder(staged))

    def _sweep(self, staged: str, of: str) -> None:
        """Remove what was staged, what dead attempts at the same left, and what nobody came back for in a week."""
        self._remove(staged)
        with suppress(OSError, LaminaError):
            names = self._files.list(join(self._place, STAGING))
            ours = f"{sink_parts.PREFIX}{mark_of(of)}-"
            old = self._clock.now_ns() // 1_000_000 - _FORGOTTEN_MS
            left = [name for name in names if name.startswith(ours) or 0 < sink_parts.made_ms(name) < old]
            counting = self.publications.all_pending() if left else set()
            for name in left:
                if name not in counting:
                    self._remove(name)
            self._files.remove_empty_folder(join(self._place, STAGING))


def _check_chosen(outlet: Outlet, parts: Sequence[Part]) -> None:
    """Chosen ids can be added one behind the other. Raises: BadTopic; nothing was changed."""
    names = {name for part in parts for name in part.chosen}
    last = {name: seen.last for name, seen in outlet.look({to_name(name) for name in names}).items()} if names else {}
    for part in parts:
        for name, (first, end) in part.chosen.items():
            topic, id = to_name(name), ids.parse(first.encode())
            if id <= last[topic]:
                hint = 'choose larger ids and sort by them over all partitions: df.orderBy("id")'
                raise BadTopic(does_not_grow(topic, id, last[topic]), hint=hint)
            last[topic] = ids.parse(end.encode())


def _cut(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    """Into chunks."""
    some: list[Entry] = []
    size, topics = 0, set[bytes]()
    for entry in entries:
        some.append(entry)
        size += sum(map(len, entry[2]))
        topics.add(entry[0])
        if len(some) >= MOST_ENTRIES or size >= MOST_BYTES or len(topics) >= MOST_TOPICS:
            yield some
            some, size, topics = [], 0, set()
    if some:
        yield some
