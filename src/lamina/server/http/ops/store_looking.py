"""Looking at the store over HTTP: its storages, entries now and as they were, epochs and files, and its compactions."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from lamina.engines.store import as_of, cleaning
from lamina.engines.store import catalog as catalogs
from lamina.engines.store.api import Store, check_place
from lamina.engines.store.compactions import Run
from lamina.engines.store.view import Found
from lamina.errors import DiskError, from_os
from lamina.server.http.names import Shown, read_name, show_name, shown
from lamina.server.http.operations import Asks, Gives, Limit, Place
from lamina.server.http.ops.store_place import (
    AsOf,
    Counted,
    Key,
    ShownStorage,
    Storage,
    View,
    counts_of,
    moment_of,
    shown_storage,
    store_of,
    view_of,
)

RIGHT: Final = ("store", "read")
_MOST_BYTES: Final = 4 << 20  # of values in one answer
_MOST_FILES: Final = 2000


# -- all of it ---------------------------------------------------------------------------------------------------------


class StorageFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One storage."""

    storage: ShownStorage
    keys: int
    bytes: int
    """Of keys and values."""
    is_all: bool
    """False: there are more keys, and bytes, than could be counted in a moment."""
    is_added: bool
    """It was added, and stays while it is empty."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that is going on."""

    began_ns: int
    done: int
    """Of ``total``; 0 of 0: it has yet to begin writing."""
    total: int


class StoreFacts(Gives, frozen=True, kw_only=True):
    """The store as it is."""

    is_open: bool
    """False: nobody has used it yet; it is made by the first write."""
    epoch: int = 0
    """The present one."""
    last_epoch: int = 0
    """Everything up to it is durable."""
    storages: list[StorageFacts] = msgspec.field(default_factory=list)
    """Those that you may read."""
    oldest_epoch: int = 0
    """As far back as reads as of an earlier epoch reach; 0: to the beginning."""
    oldest_time_ns: int = 0
    generation: int = 0
    """How many compactions there were."""
    compacted_epoch: int = 0
    """Everything up to it is in sorted files."""
    part_bytes: int | None = 0
    """Of sorted files. This and the next two are told to who may read all storages."""
    logged_bytes: int | None = 0
    """Of files that no compaction has taken yet."""
    memory_bytes: int | None = 0
    """Of entries in memory, about."""
    compacting: Running | None = None


async def show_store(place: Place, asked: Asks) -> StoreFacts:
    place.check_some(*RIGHT)
    if place.inside.find_store() is None and place.inside.life.phase == "ready":
        return StoreFacts(is_open=False)
    store = store_of(place)
    found = await place.in_thread(_facts, store)
    if place.user.may_all(*RIGHT):
        return found
    readable = [each for each in found.storages if place.may(*RIGHT, str(each.storage))]
    return msgspec.structs.replace(found, storages=readable, part_bytes=None, logged_bytes=None, memory_bytes=None)


def _storage_facts(counted: Counted) -> StorageFacts:
    return StorageFacts(**{**counted._asdict(), "storage": shown_storage(counted.storage)})


def _facts(store: Store) -> StoreFacts:
    engine = store.engine
    oldest, catalog = as_of.readable(engine)[0], engine.catalog
    return StoreFacts(
        is_open=True,
        epoch=store.epoch,
        last_epoch=store.last_epoch,
        storages=[_storage_facts(each) for each in counts_of(store).of(store)],
        oldest_epoch=oldest.epoch,
        oldest_time_ns=oldest.time_ns,
        generation=catalog.generation,
        compacted_epoch=catalog.epoch,
        part_bytes=sum(part.bytes for part in catalog.parts),
        logged_bytes=engine.logged_bytes(),
        memory_bytes=sum(table.bytes for table in engine.view.tables()),
        compacting=_running(store),
    )


def _running(store: Store) -> Running | None:
    run = store.compactions.running
    return None if run is None else Running(began_ns=run.began_ns, done=run.done, total=run.total)


# -- entries -----------------------------------------------------------------------------------------------------------


class ScanAsks(Asks, frozen=True, kw_only=True):
    """Which entries."""

    storage: Storage
    prefix: Key = ""
    """Of the key."""
    start: Key = ""
    """The first key; all before it are left out."""
    end: Key = ""
    """Keys before this one only; empty: to the end."""
    after: Key = ""
    """``next`` of the page before."""
    limit: Limit = 100
    as_of: AsOf = ""
    value_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 16)] = 256
    """Of each value that are shown."""


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One entry."""

    key: str
    """As text, or ``hex:`` and two digits a byte."""
    value: Shown
    version: str
    time_ns: int
    """When it was written."""


class Entries(Gives, frozen=True, kw_only=True):
    """Entries in order of their keys."""

    storage: ShownStorage
    epoch: int
    """As of which they are."""
    entries: list[Entry]
    next: str = ""
    """Ask with this as ``after`` for the next page; empty: there is none."""


async def scan(place: Place, asked: ScanAsks) -> Entries:
    place.check(*RIGHT, str(asked.storage))
    first, last = _range(asked)
    check_place(asked.storage, first)
    moment, store = moment_of(asked.as_of), store_of(place)
    return await place.in_thread(lambda: _scan(view_of(store, moment), asked, first, last))


def _range(asked: ScanAsks) -> tuple[bytes, bytes | None]:
    """From the first key on, up to the second. Raises: BadName."""
    prefix, after = read_name(asked.prefix), read_name(asked.after)
    first = max(prefix, read_name(asked.start), after + b"\0" if asked.after else b"")
    ends = [end for end in (_behind(prefix), read_name(asked.end) if asked.end else None) if end is not None]
    return first, min(ends, default=None)


def _behind(prefix: bytes) -> bytes | None:
    """The first key behind all that begin so; None: there is none."""
    cut = prefix.rstrip(b"\xff")
    return cut[:-1] + bytes([cut[-1] + 1]) if cut else None


def _scan(view: View, asked: ScanAsks, first: bytes, last: bytes | None) -> Entries:
    page: list[Entry] = []
    size, following = 0, ""
    if last is None or first < last:
        for found in view.snapshot.scan(asked.storage, first, last):
            if len(page) == asked.limit or size > _MOST_BYTES:
                following = page[-1].key
                break
            page.append(_entry(found, asked.value_bytes))
            size += min(len(found.value), asked.value_bytes) + len(found.key)
    return Entries(storage=shown_storage(asked.storage), epoch=view.epoch, entries=page, next=following)


def _entry(found: Found, most: int) -> Entry:
    return Entry(
        key=show_name(found.key),
        value=shown(found.value, most),
        version=".".join(map(str, found.version)),
        time_ns=found.time_ns,
    )


class KeyAsks(Asks, frozen=True, kw_only=True):
    """Which key, and when."""

    storage: Storage
    key: Key
    as_of: AsOf = ""
    value_bytes: Annotated[int, msgspec.Meta(ge=0, le=1 << 20)] = 1 << 16
    """Of the value that are shown."""


class KeyFacts(Gives, frozen=True, kw_only=True):
    """What a key holds."""

    storage: ShownStorage
    key: str
    epoch: int
    """As of which that is so."""
    entry: Entry | None = None
    """None: it holds nothing."""


async def show_key(place: Place, asked: KeyAsks) -> KeyFacts:
    place.check(*RIGHT, str(asked.storage))
    key = read_name(asked.key)
    check_place(asked.storage, key)
    moment, store = moment_of(asked.as_of), store_of(place)

    def look() -> KeyFacts:
        view = view_of(store, moment)
        found = view.snapshot.entry(asked.storage, key)
        entry = None if found is None else _entry(found, asked.value_bytes)
        return KeyFacts(storage=shown_storage(asked.storage), key=show_name(key), epoch=view.epoch, entry=entry)

    return await place.in_thread(look)


# -- files and compactions ---------------------------------------------------------------------------------------------


class FileFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One file of the store."""

    name: str
    kind: str
    """``active``, ``rotated``, ``merged`` (a compaction has taken it), ``part``, ``former part``, ``epochs``,
    ``catalog``, ``former catalog``, ``index``, ``lock`` or ``other``."""
    bytes: int
    epoch: int | None = None
    """Of a rotated one: nothing of a later epoch is in it."""


class Files(Gives, frozen=True, kw_only=True):
    """The files of the store, by name."""

    files: list[FileFacts]
    bytes: int
    """Of those that are listed."""
    is_cut: bool = False
    """There are more."""


async def list_files(place: Place, asked: Asks) -> Files:
    place.check(*RIGHT)  # of all storages: files do not tell them apart
    return await place.in_thread(_files, store_of(place))


def _files(store: Store) -> Files:
    """Raises: DiskError."""
    engine = store.engine
    try:
        names = sorted(engine.files.list(engine.folder))
    except OSError as error:
        raise from_os(error, "list the folder", engine.folder) from error
    parts, merged = {part.name for part in engine.catalog.parts}, frozenset(engine.catalog.merged)
    found = []
    for name in names[:_MOST_FILES]:
        try:
            size = cleaning.size_of(engine.files, engine.folder, name)
        except (OSError, DiskError):  # a folder
            continue
        if size is not None:
            epoch = catalogs.rotated_epoch(name)
            found.append(FileFacts(name=name, kind=_kind(name, parts, merged), bytes=size, epoch=epoch))
    return Files(files=found, bytes=sum(file.bytes for file in found), is_cut=len(names) > _MOST_FILES)


def _kind(name: str, parts: set[str], merged: frozenset[str]) -> str:
    if name.endswith((".index", ".lock")):
        return name.rpartition(".")[2]
    if name == catalogs.NAME:
        return "catalog"
    if catalogs.former_generation(name) is not None:
        return "former catalog"
    if catalogs.part_generation(name) is not None:
        return "part" if name in parts else "former part"
    if name.startswith("epoch"):
        return "epochs"
    if catalogs.rotated_epoch(name) is not None:
        return "merged" if name in merged else "rotated"
    return "active" if name.startswith("pwal_") else "other"


class Compaction(msgspec.Struct, frozen=True, kw_only=True):
    """One that has ended."""

    began_ns: int
    seconds: float
    outcome: str
    """``done``, ``nothing to do``, or the code of the error."""
    error: str = ""
    generation: int | None = None
    epoch: int | None = None
    files: int = 0
    """That were taken into sorted files."""
    entries_read: int = 0
    entries_live: int = 0
    bytes_before: int = 0
    bytes_after: int = 0
    parts_kept: int = 0
    parts_written: int = 0


class Generation(msgspec.Struct, frozen=True, kw_only=True):
    """What a compaction left, as its catalog says, which is on disk."""

    generation: int
    epoch: int
    time_ns: int
    """When it was committed."""
    parts: int
    entries: int
    bytes: int
    is_present: bool
    """Else it is a former one, kept for reads as of an earlier time until a clean-up removes it."""


class Compactions(Gives, frozen=True, kw_only=True):
    """Of the store: what the server has seen since its start, and what is on disk of earlier ones."""

    is_open: bool
    running: Running | None = None
    runs: list[Compaction] = msgspec.field(default_factory=list)
    """The last 100 since the start of the server, the newest first."""
    generations: list[Generation] = msgspec.field(default_factory=list)
    """The newest first."""


async def list_compactions(place: Place, asked: Asks) -> Compactions:
    place.check(*RIGHT)
    if place.inside.find_store() is None and place.inside.life.phase == "ready":
        return Compactions(is_open=False)
    return await place.in_thread(_compactions, store_of(place))


def _compactions(store: Store) -> Compactions:
    engine = store.engine
    generations = [
        Generation(
            generation=each.generation,
            epoch=each.epoch,
            time_ns=each.time_ns,
            parts=len(each.parts),
            entries=sum(part.entries for part in each.parts),
            bytes=sum(part.bytes for part in each.parts),
            is_present=each.generation == engine.catalog.generation,
        )
        for each in reversed(as_of.readable(engine))
        if each.generation
    ]
    runs = [_compaction(run) for run in reversed(list(store.compactions.runs))]
    return Compactions(is_open=True, running=_running(store), runs=runs, generations=generations)


def _compaction(run: Run) -> Compaction:
    seconds = ((run.ended_ns or run.began_ns) - run.began_ns) / 1e9
    report = run.report
    if report is None:
        return Compaction(began_ns=run.began_ns, seconds=seconds, outcome=run.code or "error", error=run.error)
    return Compaction(
        began_ns=run.began_ns,
        seconds=seconds,
        outcome="done" if report.inputs else "nothing to do",
        generation=report.generation,
        epoch=report.epoch,
        files=len(report.inputs),
        entries_read=report.entries_read,
        entries_live=report.entries_live,
        bytes_before=report.bytes_before,
        bytes_after=report.bytes_after,
        parts_kept=report.parts_kept,
        parts_written=report.parts_written,
    )
