"""Bytes on the disk by what they are: from names and catalogs alone, nothing is read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lamina.engines.queues import store_files
from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import Catalog
from lamina.errors import Corruption, StorageError
from lamina.log import naming
from lamina.log.files import join
from lamina.log.naming import sort_out
from lamina.pipeline import places, storage

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

STATES: Final = {
    "active": ("being written", 1),
    "sealed": ("sealed", 2),
    "compacted": ("compacted parts", 7),
    "dump": ("dump", 5),
    "index": ("indexes", 9),
    "bookkeeping": ("checkpoints and catalogs", 8),
    "merged": ("merged, to be removed", 6),
    "temporary": ("half-done or left over", 3),
    "damaged": ("torn or broken", 4),
    "foreign": ("not lamina's", 10),
    "reserve": ("reserve for a full disk", 11),
}
"""What a file can be: what people call it, and its colour."""
_MESSAGES: Final = "messages"
_WORKING: Final = ("run.", catalogs.PROGRESS)


@dataclass(slots=True)
class Disk:
    """Bytes and files by part of the folder (jobs, topics …) and state."""

    bytes: dict[tuple[str, str], int] = field(default_factory=dict)
    files: dict[tuple[str, str], int] = field(default_factory=dict)
    catalog: Catalog | None = None
    """Of the store."""

    def add(self, part: str, state: str, size: int) -> None:
        self.bytes[part, state] = self.bytes.get((part, state), 0) + size
        self.files[part, state] = self.files.get((part, state), 0) + 1

    @property
    def parts(self) -> list[str]:
        return sorted({part for part, _ in self.bytes})

    def of_state(self, state: str) -> int:
        return sum(size for (_, each), size in self.bytes.items() if each == state)

    @property
    def total(self) -> int:
        return sum(self.bytes.values())


def look(data: str) -> Disk:
    """What is under a data folder, or in one log. A file that goes meanwhile does not count. Raises: BadOption."""
    disk = Disk()
    system, root = _system(data)
    files, path = storage.open_storage(data)
    only = [place for place in places.find(files, path) if place.folder == path]
    above = only[0].path if only else ""  # from the data folder on, as if all of it was asked for
    pending = [(root, above)]
    while pending:
        folder, inside = pending.pop()
        sizes, folders = _list(system, folder)
        pending += [
            (join(folder, name), join(inside, name)) for name in folders if not (inside == "" and name[0] == ".")
        ]
        for name, state in _states(disk, data, inside, sizes):
            disk.add(_part(inside), state, sizes[name])
    return disk


def _system(data: str) -> tuple[FileSystem, str]:
    import pyarrow.fs

    if "://" in data and not data.startswith("file://"):
        found: tuple[FileSystem, str] = pyarrow.fs.FileSystem.from_uri(data.rstrip("/"))
        return found
    return pyarrow.fs.LocalFileSystem(), storage.open_storage(data)[1]


def _list(system: FileSystem, folder: str) -> tuple[dict[str, int], list[str]]:
    """Files with their sizes, and folders; nothing if it is gone."""
    import pyarrow.fs

    try:
        found = system.get_file_info(pyarrow.fs.FileSelector(folder, allow_not_found=True))
    except OSError:
        return {}, []
    sizes = {info.base_name: info.size or 0 for info in found if info.is_file}
    return sizes, [info.base_name for info in found if info.type == pyarrow.fs.FileType.Directory]


def _part(inside: str) -> str:
    words = inside.split("/")
    if words[0] == "topics" and len(words) > 2 and words[2] == "groups":
        return "groups"
    return words[0] or "other"


def _states(disk: Disk, data: str, inside: str, names: Sequence[str] | dict[str, int]) -> Iterator[tuple[str, str]]:
    words = inside.split("/")
    if naming.STAGING in words:
        yield from ((name, "temporary") for name in names)
    elif naming.CONSUMERS in words or not inside:
        yield from ((name, "reserve" if name == naming.RESERVE else "bookkeeping") for name in names)
    elif words[:2] == ["queues", _MESSAGES]:  # all of a journal is in use
        yield from ((name, "active" if name.startswith("messages.") else "bookkeeping") for name in names)
    else:
        yield from _of_log(disk, data, inside, list(names))


def _of_log(disk: Disk, data: str, inside: str, names: list[str]) -> Iterator[tuple[str, str]]:
    listing = sort_out(names)
    newest = {name.stream: name.name for name in listing.segments if not name.is_closed}
    known = _of_store(disk, data, inside) if inside == "store" else {}
    if inside == "queues":
        plan = store_files.plan(names)
        known = {store_files.dump_name(plan.base): "dump"} if plan.base is not None else {}
        known |= {one.file: "temporary" if one.reason == store_files.IN_PROGRESS else "merged" for one in plan.ignored}
    for segment in listing.segments:
        default = "merged" if segment.is_part else "active" if newest.get(segment.stream) == segment.name else "sealed"
        yield segment.name, known.get(segment.name, default)
    for name in listing.companions:
        yield name, _of_companion(name)
    yield from ((name, "temporary") for name in listing.leftovers)
    yield from ((name, known.get(name, _of_foreign(inside, name))) for name in listing.foreign)


def _of_foreign(inside: str, name: str) -> str:
    if name == f".{naming.RESERVE}":
        return "reserve"
    # Of topics/ and logs/ themselves only the folders in them are known.
    return "bookkeeping" if inside in ("topics", "logs") or inside.count("/") > 1 else "foreign"


def _of_companion(name: str) -> str:
    if name.endswith(naming.INDEX_SUFFIX):
        return "index"
    if name == naming.RESERVE:
        return "reserve"
    if ".torn-" in name or ".broken-" in name:
        return "damaged"
    return "temporary" if name.startswith(_WORKING) else "bookkeeping"


def _of_store(disk: Disk, data: str, inside: str) -> dict[str, str]:
    files, path = storage.open_storage(data)
    folder = path if path.rpartition("/")[2] == inside else join(path, inside)
    try:
        disk.catalog = catalogs.load(files, folder)
    except (Corruption, StorageError):
        return {}  # the reading of the logs tells it
    parts = {part.name: "compacted" for part in disk.catalog.parts}
    return parts | dict.fromkeys(disk.catalog.merged, "merged")
