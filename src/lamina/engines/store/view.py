"""What the store holds, as readers see it: layers of entries in memory and in sorted files, read as one.

Of the entries of a key the one with the largest version counts, in whichever layer it is. Every layer knows the largest
version it has, and they are looked at newest first: so most are passed over once an entry was found.
"""

from __future__ import annotations

import builtins
import heapq
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Protocol

from lamina.engines.store import codec
from lamina.engines.store.baseline import Baseline
from lamina.engines.store.codec import OLDEST
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table
from lamina.errors import BadEntry
from lamina.log.frame import MIN_RECORD
from lamina.log.packed import Packed

_MOST_CURSORS: Final = 1024
_SAMPLE: Final = 256  # entries of each layer that are looked at


class Layer(Protocol):
    """Items by place (codec.py)."""

    @property
    def highest(self) -> builtins.bytes:
        """The largest version in it."""

    @property
    def bytes(self) -> int:
        """How large it is, about, in memory or as a file."""

    def find(self, place: builtins.bytes) -> builtins.bytes | None: ...

    def sample(self, count: int) -> list[builtins.bytes]:
        """Places that cut it into pieces of about one size, so many at most, in order."""

    def walk(
        self, start: builtins.bytes = b"", end: builtins.bytes | None = None
    ) -> Iterator[tuple[builtins.bytes, builtins.bytes]]: ...


@dataclass(frozen=True, slots=True)
class Found:
    """An entry that is there."""

    storage: int
    key: bytes
    value: bytes
    version: codec.Version
    time_ns: int

    @classmethod
    def of(cls, place: bytes, item: bytes) -> Found:
        version = codec.version(codec.version_of(item))
        return cls(codec.storage_of(place), place[8:], codec.value_of(item), version, codec.time_of(item))


Known = tuple[bool, Found | None]
"""Whether memory alone can say what the entry is, and what it is."""


class Snapshot:
    """Layers that do not change, read as one. Threads: safe from any thread."""

    def __init__(self, layers: Sequence[Layer], storages: Storages) -> None:
        self.layers = tuple(layers)
        """Newest first."""
        self.storages = storages
        """What is said of storages in all layers."""

    def get(self, storage: int, key: bytes) -> bytes | None:
        """The value of a key, None if it has none. Raises: Corruption, DiskError."""
        found = self.entry(storage, key)
        return None if found is None else found.value

    def entry(self, storage: int, key: bytes) -> Found | None:
        """The same with its version and time."""
        return find(self.layers, codec.place(storage, key), self.storages.cleared.get(storage, b""))

    def known(self, storage: int, key: bytes) -> Known:
        """The same from memory alone."""
        return known(self.layers, codec.place(storage, key), self.storages.cleared.get(storage, b""))

    def scan(self, storage: int | None = None, start: bytes = b"", end: bytes | None = None) -> Iterator[Found]:
        """Entries in order of storage and key, from ``start`` up to but without ``end``; all storages if none is given.

        Raises: Corruption, DiskError.
        """
        first, last = _range(storage, start, end)
        # A generator of its own: it keeps the snapshot, and its files, while it is read.
        yield from _entries(_newest([layer.walk(first, last) for layer in self.layers]), self.storages.cleared)

    def cursors(self, count: int) -> list[Iterator[Found]]:
        """Cut into ``count`` iterators for as many readers: each gives a range of its own, all of them everything once.

        None waits for another. Raises: BadEntry; Corruption, DiskError.
        """
        if not isinstance(count, int) or not 1 <= count <= _MOST_CURSORS:
            raise BadEntry(f"{count!r} cursors cannot be", hint=f"ask for 1 to {_MOST_CURSORS}")
        found = sorted({place for layer in self.layers for place in layer.sample(8 * count)})
        cuts = [found[number * len(found) // count] for number in range(1, count)] if found else [b""] * (count - 1)
        borders: list[bytes | None] = [b"", *cuts, None]
        return [self.scan(None, first or b"", last) for first, last in pairwise(borders)]


def find(layers: Sequence[Layer], place: bytes, cleared: bytes) -> Found | None:
    """The entry of a place, unless it is older than ``cleared``. Raises: Corruption, DiskError."""
    return _found(_newest_of(layers, place), place, cleared)


def _newest_of(layers: Sequence[Layer], place: bytes) -> bytes | None:
    """The item of a place. Raises: Corruption, DiskError."""
    best: bytes | None = None
    for layer in layers:
        if best is not None and codec.version_of(best) >= layer.highest:
            continue
        item = layer.find(place)
        if item is not None and (best is None or codec.version_of(item) > codec.version_of(best)):
            best = item
    return best


def _found(best: bytes | None, place: bytes, cleared: bytes) -> Found | None:
    if best is None or not codec.is_put(best) or codec.version_of(best) < cleared:
        return None
    return Found.of(place, best)


def known(layers: Sequence[Layer], place: bytes, cleared: bytes) -> Known:
    """``find`` in layers that are in memory, if none that is in files can have a newer one."""
    best = _newest_of([layer for layer in layers if isinstance(layer, Table)], place)
    for layer in layers:
        if isinstance(layer, Table) or (best is not None and codec.version_of(best) > layer.highest):
            continue
        assert isinstance(layer, SortedFile | Baseline)
        if layer.may_have(place):
            return False, None
    return True, _found(best, place, cleared)


class View:
    """The same while entries come in. Threads: safe from any thread."""

    def __init__(self, layers: Sequence[Layer] = (), storages: Storages | None = None) -> None:
        self.lock = threading.RLock()
        """Held while entries are taken, so that a reader sees an epoch whole or not at all."""
        self.storages = Storages() if storages is None else storages
        self.layers: list[Layer] = list(layers)
        """All but the table that grows, newest first."""
        self._old = len(self.layers)  # so many of them, the last, are not to be made one with newer ones
        self.table = self._new_table()
        """Where new entries go."""
        self._moved: list[tuple[Layer, Layer]] = []  # of layers that are frozen: what stands in the place of which

    def _new_table(self) -> Table:
        table = Table()
        table.storages = self.storages
        return table

    def take(self, sessions: Iterable[tuple[int, Packed]]) -> None:
        """Entries of sessions (table.py). The caller holds the lock."""
        self.table.take(sessions)

    def get(self, storage: int, key: bytes) -> Found | None:
        """The entry of a key. Raises: Corruption, DiskError."""
        place = codec.place(storage, key)
        with self.lock:
            cleared = self.storages.cleared.get(storage, b"")
            if self.table.find(place) is not None:
                return find((self.table, *self.layers), place, cleared)
            layers = self.layers
        return find(layers, place, cleared)  # without the lock: they do not change

    def known(self, storage: int, key: bytes) -> Known:
        """The same from memory alone, without waiting for who takes entries."""
        if not self.lock.acquire(blocking=False):
            return False, None
        try:
            cleared = self.storages.cleared.get(storage, b"")
            return known((self.table, *self.layers), codec.place(storage, key), cleared)
        finally:
            self.lock.release()

    def snapshot(self) -> Snapshot:
        """What there is now, and stays so."""
        self.join()
        with self.lock:
            self.seal()
            return Snapshot(self.layers, self.storages.copy())

    def join(self) -> None:
        """Make fewer layers of what is in memory. Nobody waits for it: epochs are taken and read meanwhile."""
        with self.lock:
            self.seal()
        while True:
            with self.lock:
                if not self._may_be_one():
                    return
                newer, older = self.layers[:2]
            assert isinstance(newer, Table) and isinstance(older, Table)
            both = older.with_newer(newer)  # another object: who reads the two goes on reading them
            with self.lock:
                at = next((at for at, layer in enumerate(self.layers) if layer is newer), -1)
                if at < 0 or at + 1 >= len(self.layers) - self._old or self.layers[at + 1] is not older:
                    return  # they were frozen or spilled
                self.layers = [*self.layers[:at], both, *self.layers[at + 2 :]]

    def seal(self) -> None:
        """Later entries go to another table. The caller holds the lock."""
        if len(self.table):
            self.layers = [self.table, *self.layers]
            self.table = self._new_table()

    def _may_be_one(self) -> bool:
        """The two newest layers are tables of about one size: one is read faster, and each entry moves seldom."""
        if len(self.layers) - self._old < 2:
            return False
        newer, older = self.layers[0], self.layers[1]
        return isinstance(newer, Table) and isinstance(older, Table) and 2 * len(newer) >= len(older)

    def tables(self) -> list[Table]:
        """Layers that are in memory, the one that grows too."""
        with self.lock:
            return [self.table, *(layer for layer in self.layers if isinstance(layer, Table))]

    def freeze(self) -> list[Layer]:
        """Later entries stay apart from those that are there. Returns the layers that hold these."""
        with self.lock:
            self.seal()
            self._old = len(self.layers)
            self._moved = []
            return list(self.layers)

    def replace(self, gone: Sequence[Layer], there: Sequence[Layer]) -> list[Layer]:
        """Put ``there`` in the place of the layers ``gone``, or what was put in the place of these since they were
        frozen, which hold the same. Returns what went."""
        with self.lock:
            gone = [*gone, *(new for old, new in self._moved if any(old is each for each in gone))]
            self._moved = [pair for pair in self._moved if not any(pair[0] is each for each in gone)]
            first_old = len(self.layers) - self._old
            left = [layer for layer in self.layers if not any(layer is each for each in gone)]
            newer = sum(not any(layer is each for each in gone) for layer in self.layers[:first_old])
            self.layers = [*left, *there]
            self._old = len(self.layers) - newer
            return list(gone)

    def swap(self, table: Layer, there: Layer) -> bool:
        """Put ``there`` in the place of one layer that holds the same. False if that is none of them any more."""
        with self.lock:
            if not any(layer is table for layer in self.layers):
                return False
            if any(layer is table for layer in self.layers[len(self.layers) - self._old :]):
                self._moved.append((table, there))
            self.layers = [there if layer is table else layer for layer in self.layers]
            return True

    def alive(self, baseline: Baseline, cleared_before: Mapping[int, builtins.bytes]) -> int:
        """Bytes that all entries would take in sorted files, by a sample of those that are not in ``baseline`` yet.

        ``cleared_before`` says up to where storages had been cleared when ``baseline`` was written.
        Raises: Corruption, DiskError.
        """
        snapshot = self.snapshot()
        cleared = snapshot.storages.cleared
        newly = {name: version for name, version in cleared.items() if version > cleared_before.get(name, b"")}
        newer: list[Layer] = []
        alive = replaced = 0.0
        for layer in snapshot.layers:
            if not isinstance(layer, Table | SortedFile):
                continue  # the baseline
            its, of_baseline, places = 0, 0, layer.sample(_SAMPLE)
            for place in places:
                item = layer.find(place)
                if item is None or any(other.find(place) is not None for other in newer):
                    continue
                if codec.is_put(item) and codec.version_of(item) >= cleared.get(codec.storage_of(place), b""):
                    its += _size(item)
                former = baseline.find(place)
                if former is not None and codec.version_of(former) >= newly.get(codec.storage_of(place), b""):
                    of_baseline += _size(former)
            if places:
                count = (len(layer) if isinstance(layer, Table) else layer.entries) / len(places)
                alive, replaced = alive + its * count, replaced + of_baseline * count
            newer.append(layer)
        return int(alive + max(baseline.bytes - baseline.bytes_of(newly) - replaced, 0))

    @property
    def highest(self) -> bytes:
        """The largest version of all entries and storages."""
        with self.lock:
            layers = [self.table.highest, *(layer.highest for layer in self.layers)]
            there = [version for version, _ in self.storages.there.values()]
            return max([*layers, *there, *self.storages.cleared.values()], default=OLDEST)


def _size(item: bytes) -> int:
    """Bytes of its record."""
    return MIN_RECORD + len(item) - codec.TIME_SIZE


def _range(storage: int | None, start: bytes, end: bytes | None) -> tuple[bytes, bytes | None]:
    if storage is None:
        return start, end
    first = codec.place(storage, start)
    if end is not None:
        return first, codec.place(storage, end)
    return first, None if storage == codec.MOST else codec.place(storage + 1, b"")


_Head = tuple[bytes, bytes]


def _newest(streams: Sequence[Iterator[_Head]]) -> Iterator[_Head]:
    """Of each place the item with the largest version."""
    if len(streams) == 1:
        yield from streams[0]
        return
    heads = [(stream, next(stream, None)) for stream in streams]
    # Streams in order: of equal versions the one of the first stream, which is the newer one, counts.
    queue = [(head[0], number, head[1], stream) for number, (stream, head) in enumerate(heads) if head is not None]
    heapq.heapify(queue)
    while queue:
        place, number, best, stream = queue[0]
        _go_on(queue, number, stream)
        while queue and queue[0][0] == place:
            _, number, item, stream = queue[0]
            if codec.version_of(item) > codec.version_of(best):
                best = item
            _go_on(queue, number, stream)
        yield place, best


def _go_on(queue: list[tuple[bytes, int, bytes, Iterator[_Head]]], number: int, stream: Iterator[_Head]) -> None:
    following = next(stream, None)
    if following is None:
        heapq.heappop(queue)
    else:
        heapq.heapreplace(queue, (following[0], number, following[1], stream))


def _entries(items: Iterator[_Head], cleared: dict[int, bytes]) -> Iterator[Found]:
    for place, item in items:
        if codec.is_put(item) and not (cleared and codec.version_of(item) < cleared.get(codec.storage_of(place), b"")):
            yield Found.of(place, item)
