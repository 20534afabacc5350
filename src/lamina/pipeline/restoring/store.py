"""The store at an epoch, made anew: what a compaction of that time would have left.

All entries go into sorted files, with the versions and times that they have; the catalog names those, and what was said
of whole storages; the epoch file says up to which epoch they are durable. So it has no sessions, and goes on behind
that epoch. As it is made from what is read at the epoch, it needs none of the files of later ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import codec, epoch_file, looking
from lamina.engines.store.catalog import Catalog, Part
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.sorted_file import SortedWriter
from lamina.engines.store.view import Found
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join
from lamina.log.formats import EPOCH
from lamina.log.naming import PWAL

_GENERATION: Final = 1
_AT_ONCE: Final = 1000  # entries


class Made(NamedTuple):
    """A store."""

    files: int
    bytes: int


def make(
    disk: Files,
    folder: str,
    epoch: int,
    time_ns: int,
    files: Files,
    to: str,
    *,
    part_bytes: int = StoreOptions().part_bytes,
) -> Made:
    """Make the empty folder ``to`` a store that holds what the one in ``folder`` did when ``epoch`` was durable.

    Durability: when it returns, all files are synced; the folder has still to get its name.
    Raises: TooOld; Corruption, WrongFormat; DiskFull, DiskError.
    """
    with looking.look(disk, folder, epoch=epoch, spill_to=to) as looked:
        parts = list(_write(files, to, looked.snapshot.scan(None), part_bytes))
        storages = looked.snapshot.storages.copy()
    head = kernel.encode_many(time_ns, [epoch_file.head(epoch, (), ())])
    rewrite.replace(files, to, epoch_file.NAME, [EPOCH.header, head], PWAL)
    catalog = Catalog(_GENERATION, epoch, tuple(parts), storages, (), time_ns)
    catalogs.replace(files, to, catalog)
    return Made(len(parts) + 2, sum(part.bytes for part in parts))


def _write(files: Files, to: str, entries: Iterable[Found], part_bytes: int) -> Iterator[Part]:
    writer: SortedWriter | None = None
    number = 0
    try:
        for places, items in _columns(entries):
            while places:
                if writer is None:
                    path = join(to, catalogs.part_name(_GENERATION, number))
                    writer = SortedWriter(files, path, generation=_GENERATION, part=number)
                taken = writer.add_many(places, items, part_bytes)
                places, items = places[taken:], items[taken:]
                if writer.bytes >= part_bytes:
                    yield writer.finish()
                    writer, number = None, number + 1
        if writer is not None:
            yield writer.finish()
            writer = None
    finally:
        if writer is not None:
            writer.abandon()


def _columns(entries: Iterable[Found]) -> Iterator[tuple[list[bytes], list[bytes]]]:
    places: list[bytes] = []
    items: list[bytes] = []
    for one in entries:
        places.append(codec.place(one.storage, one.key))
        items.append(codec.item(one.time_ns, codec.put(one.storage, one.key, one.value, *one.version)))
        if len(places) == _AT_ONCE:
            yield places, items
            places, items = [], []
    yield places, items
