"""What became of each query's batches: which are published, and which one is being published, and how far it is.

    <place>/publications/<query>.publication      one record of JSON, replaced in one step (log/rewrite.py)
    <place>/publications/lamina.lock              held by who publishes

A batch becomes pending when its file names it: that is the commit point. From then on it is what its staged files say,
whoever completes it. Batches that are done are kept as ranges, so the file does not grow with a stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from lamina.engines.topics.ids import EntryId
from lamina.engines.topics.messages import show_name, to_name
from lamina.errors import Corruption, LogLocked, from_os
from lamina.log import lock
from lamina.log.files import Files, join
from lamina.log.folders import folder_name
from lamina.log.naming import TIMED
from lamina.pipeline.sinking.sink_options import PUBLICATIONS
from lamina.pipeline.sinking.sink_parts import read_json, write_json

T = TypeVar("T")

_SUFFIX: Final = ".publication"
_POLL_S: Final = 0.05
PATIENCE_S: Final = 600.0
"""How long one waits for others who publish: as long as a large batch may take."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A topic at one moment."""

    last: EntryId
    added: int
    length: int

    @property
    def gone(self) -> int:
        """Entries that were deleted or trimmed."""
        return self.added - self.length

    def has_lost_since(self, then: Seen) -> bool:
        """Entries went since then, or the topic itself."""
        return self.gone != then.gone or self.added < then.added or self.last < then.last


@dataclass(frozen=True, slots=True)
class Chunk:
    """What is on its way into topics: perhaps all of it is there, perhaps nothing."""

    first: int
    """Number of its first entry; all before it are published."""
    count: int
    ms: int
    there: frozenset[int] = frozenset()
    """Numbers of entries that are known to be published."""
    seen: Mapping[bytes, Seen] = field(default_factory=dict)
    """The topics, just before."""


@dataclass(frozen=True, slots=True)
class Pending:
    """A batch that has to be published, and is so in part."""

    batch: int
    staged: str
    chunk: Chunk | None = None


@dataclass(frozen=True, slots=True)
class Standing:
    """Of one query."""

    done: tuple[tuple[int, int], ...] = ()
    """Ranges of batches, first and last."""
    pending: Pending | None = None

    def is_done(self, batch: int) -> bool:
        return any(first <= batch <= last for first, last in self.done)

    def with_done(self, batch: int) -> Standing:
        """Nothing is pending then."""
        merged: list[tuple[int, int]] = []
        for first, last in sorted([*self.done, (batch, batch)]):
            if merged and first <= merged[-1][1] + 1:
                merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
            else:
                merged.append((first, last))
        return Standing(tuple(merged))


class Publications:
    """All that is known at a place."""

    def __init__(self, files: Files, place: str) -> None:
        self._files = files
        self.folder = join(place, PUBLICATIONS)

    @contextmanager
    def locked(self, patience_s: float = PATIENCE_S) -> Iterator[None]:
        """Nobody else publishes from here meanwhile. Raises: LogLocked when others take too long; DiskError."""
        try:
            self._files.make_folder(self.folder)
        except OSError as error:
            raise from_os(error, "make the folder", self.folder) from error
        held = patiently(lambda: lock.take(self._files, self.folder, TIMED.lock_name), patience_s)
        try:
            yield
        finally:
            held.release()

    def holder(self) -> str | None:
        """Who publishes now."""
        return self._files.lock_holder(join(self.folder, TIMED.lock_name))

    def read(self, query: str) -> Standing:
        """Raises: Corruption, DiskError."""
        name = _file_name(query)
        try:
            return _from_plain(join(self.folder, name), read_json(self._files, self.folder, name))
        except FileNotFoundError:
            return Standing()

    def write(self, query: str, standing: Standing) -> None:
        """Durability: when it returns, it is synced. Raises: DiskFull, DiskError."""
        write_json(self._files, self.folder, _file_name(query), _to_plain(query, standing))

    def all_pending(self) -> set[str]:
        """Staged folders that count, of all queries. Raises: Corruption, DiskError."""
        try:
            names = [name for name in self._files.list(self.folder) if name.endswith(_SUFFIX)]
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise from_os(error, "list the folder", self.folder) from error
        found = set()
        for name in names:
            standing = _from_plain(join(self.folder, name), read_json(self._files, self.folder, name))
            if standing.pending is not None:
                found.add(standing.pending.staged)
        return found


def patiently(take: Callable[[], T], patience_s: float) -> T:
    """What ``take`` gives, as soon as nobody has the lock. Raises: LogLocked when the time is up."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return take()
        except LogLocked:
            if time.monotonic() >= until:
                raise
        time.sleep(_POLL_S)


# -- as plain values ---------------------------------------------------------------------------------------------------


def _file_name(query: str) -> str:
    return folder_name(query.encode("utf-8", "surrogateescape")) + _SUFFIX


def _to_plain(query: str, standing: Standing) -> dict[str, object]:
    facts: dict[str, object] = {"query": query, "done": standing.done}
    if standing.pending is not None:
        pending, chunk = standing.pending, standing.pending.chunk
        facts |= {"pending": {"batch": pending.batch, "staged": pending.staged}}
        if chunk is not None:
            facts |= {
                "chunk": {
                    "first": chunk.first,
                    "count": chunk.count,
                    "ms": chunk.ms,
                    "there": sorted(chunk.there),
                    "seen": {show_name(name): (at.last, at.added, at.length) for name, at in chunk.seen.items()},
                }
            }
    return facts


def _from_plain(path: str, facts: Any) -> Standing:
    try:
        done = tuple((int(first), int(last)) for first, last in facts["done"])
        if "pending" not in facts:
            return Standing(done)
        chunk = None
        if "chunk" in facts:
            plain = facts["chunk"]
            seen = {
                to_name(name): Seen(EntryId(last), added, length)
                for name, (last, added, length) in plain["seen"].items()
            }
            chunk = Chunk(plain["first"], plain["count"], plain["ms"], frozenset(plain["there"]), seen)
        return Standing(done, Pending(facts["pending"]["batch"], facts["pending"]["staged"], chunk))
    except (KeyError, TypeError, ValueError) as error:
        raise Corruption(path, 0, f"this is not what is known of a publication: {error!r}") from error
