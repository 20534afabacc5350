"""A new store from entries that come in order, such as those of a folder of limestone.

All of them go into parts of generation 1; an epoch file says up to which epoch they are durable, and the catalog, which
is written last, names the parts. So the new store has no sessions: it is what a compaction would have left.

    1 fill <target>.importing: parts, epoch file, catalog, each synced
    2 give the folder its name                                              <- commit point

Cut short before that, the target is as it was, and the next import removes what was left beside it. Blobs are not
imported, only the values that refer to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from lamina.clock import Clock
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import codec, epoch_file, targets
from lamina.engines.store.catalog import Catalog, Part
from lamina.engines.store.columns import Columns
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.sorted_file import SortedWriter
from lamina.errors import BadEntry, BadOption, StorageError, from_os
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join
from lamina.log.formats import EPOCH
from lamina.log.frame import MAX_PAYLOAD
from lamina.log.naming import PWAL, sort_out

IMPORTING: Final = ".importing"
"""Behind the name of the target while it is being filled."""
GENERATION: Final = 1
_AT_ONCE: Final = 1 << 20  # bytes of entries that are handed to a part together

Entries = Iterable[tuple[int, bytes, bytes]]
"""Storage, key and value, by storage, then by the bytes of the key."""


@dataclass(frozen=True, slots=True)
class Imported:
    """What a new store holds."""

    entries: int
    storages: int
    epoch: int
    """The last one that is durable in it; the next session has a later one."""
    parts: int
    bytes: int


def import_entries(
    files: Files,
    entries: Entries,
    epoch: int,
    to: str,
    *,
    clock: Clock,
    part_bytes: int = StoreOptions().part_bytes,
    progress: Callable[[int, int], None] = lambda entries, size: None,
) -> Imported:
    """Make ``to``, a folder that is empty or not there, a store that holds ``entries`` and goes on behind ``epoch``.

    ``progress`` is told how many entries are done, and the bytes that they take.
    Durability: when it returns, the store is on the disk. A crash leaves the target as it was, or whole.
    Raises: BadOption for a target that is not empty; BadEntry for an entry that is too large for a store, or an epoch
        behind which no other can come; ValueError if the entries are not in order; DiskFull, DiskError.
    """
    if not 0 <= epoch < codec.MOST:
        raise BadEntry(f"behind epoch {epoch} no other can come", hint="the source is not one that was ever used")
    targets.check_is_empty(files, to)
    filling = to.rstrip("/") + IMPORTING
    targets.remove_unfinished(files, filling, _is_ours)
    try:
        files.make_folder(filling)
        work = _Import(files, filling, clock, epoch, part_bytes, progress)
        imported = work.fill(entries)
        files.remove_empty_folder(to)
        files.rename_folder(filling, to)
    except OSError as error:
        _take_back(files, filling)
        raise from_os(error, "make the store", to) from error
    except BaseException:
        _take_back(files, filling)
        raise
    return imported


class _Import:
    def __init__(
        self, files: Files, folder: str, clock: Clock, epoch: int, part_bytes: int, progress: Callable[[int, int], None]
    ) -> None:
        self._files, self._folder, self._epoch = files, folder, epoch
        self._part_bytes, self._progress = part_bytes, progress
        self._now_ns = clock.now_ns()
        self._parts: list[Part] = []
        self._writer: SortedWriter | None = None
        self._entries = 0
        self._storages: set[int] = set()

    def fill(self, entries: Entries) -> Imported:
        files, folder = self._files, self._folder
        try:
            for piece in self._pieces(entries):
                self._write(piece)
            self._finish_part()
        finally:
            if self._writer is not None:
                self._writer.abandon()
        head = kernel.encode_many(self._now_ns, [epoch_file.head(self._epoch, (), ())])
        rewrite.replace(files, folder, epoch_file.NAME, [EPOCH.header, head], PWAL)
        files.sync_folder(folder)
        catalogs.replace(
            files,
            folder,
            Catalog(generation=GENERATION, epoch=self._epoch, parts=tuple(self._parts), time_ns=self._now_ns),
        )
        size = sum(part.bytes for part in self._parts)
        return Imported(self._entries, len(self._storages), self._epoch, len(self._parts), size)

    def _pieces(self, entries: Entries) -> Iterator[Columns]:
        """Entries as items of one version, which is below that of every later write; some at a time."""
        major = max(self._epoch, 1)
        places: list[bytes] = []
        items: list[bytes] = []
        size = 0
        for storage, key, value in entries:
            payload = codec.put(storage, key, value, major, 0)
            if len(payload) > MAX_PAYLOAD:
                raise BadEntry(
                    f"storage {storage}, key {key[:32].hex()}{'...' if len(key) > 32 else ''}: an entry of "
                    f"{len(payload)} bytes does not fit into a store",
                    hint=f"{MAX_PAYLOAD} bytes at most; nothing was imported",
                )
            self._storages.add(storage)
            places.append(codec.place(storage, key))
            items.append(codec.item(self._now_ns, payload))
            size += len(payload)
            if size >= _AT_ONCE:
                yield places, items
                places, items, size = [], [], 0
        yield places, items

    def _write(self, piece: Columns) -> None:
        places, items = piece
        while places:
            writer = self._writer or self._new_part()
            taken = writer.add_many(places, items, self._part_bytes)
            self._entries += taken
            places, items = places[taken:], items[taken:]
            if writer.bytes >= self._part_bytes:
                self._finish_part()
            self._progress(self._entries, sum(part.bytes for part in self._parts) + writer.bytes)

    def _new_part(self) -> SortedWriter:
        number = len(self._parts)
        path = join(self._folder, catalogs.part_name(GENERATION, number))
        self._writer = SortedWriter(self._files, path, generation=GENERATION, part=number)
        return self._writer

    def _finish_part(self) -> None:
        if self._writer is not None:
            self._parts.append(self._writer.finish())
            self._writer = None


def _is_ours(name: str) -> bool:
    is_whole = name in (catalogs.NAME, epoch_file.NAME) or catalogs.part_generation(name) == GENERATION
    return is_whole or bool(sort_out([name]).leftovers)


def _take_back(files: Files, folder: str) -> None:
    """Clean up after another error, which is the one to report."""
    try:
        targets.remove_unfinished(files, folder, _is_ours)
        files.remove_empty_folder(folder)
    except (OSError, StorageError, BadOption):
        return
