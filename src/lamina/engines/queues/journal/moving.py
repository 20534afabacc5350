"""Folders of queues from one depth to another, one by one or all at once, while queues are used.

A folder is renamed, in one step: a queue is wholly in one place at any time. Who looks for a queue looks at the new
place, then at the old one. That all are at the new place is recorded when it is so. If a queue has a folder in both
places, nobody can say which is right: that queue is refused, and neither is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from lamina.engines.lock import Lock
from lamina.engines.queues import ids
from lamina.engines.queues.journal import paths
from lamina.engines.queues.journal.home import Home, no_path
from lamina.engines.queues.journal.paths import TEXT_CHARS, Layout
from lamina.errors import BadOption, StorageError, from_os
from lamina.log.files import Files, join

_GONE: Final = ".gone-"
_NAME_BYTES: Final = 12


@dataclass(slots=True)
class Moved:
    """What moving all folders did."""

    moved: int = 0
    refused: int = 0
    """Queues that have a folder in either place."""


def begin(files: Files, root: str, wanted: Layout) -> Layout | None:
    """Record how folders are made, or that they are to be made otherwise. Returns how they were made, if otherwise.

    Raises: BadOption, if a move to yet another layout was begun; StorageError.
    """
    recorded = paths.read_layout(files, root)
    if recorded is None:
        found = guess(files, root)
        old, target = (wanted if found is None else found), wanted
        if old == wanted:
            paths.write_layout(files, root, wanted)
            return None
    else:
        old, target = recorded
    if target != old and target != wanted:
        raise BadOption(
            f"folders of queues are on their way to {target.parts} parts of {target.chars} characters",
            hint="start with those until all are there",
            option="path_parts",
        )
    if old == wanted:
        return None
    if recorded is None or target == old:
        paths.write_layout(files, root, old, wanted)
    return old


def guess(files: Files, root: str) -> Layout | None:
    """How the folders in there are made, from the first that is one of a queue; None if there is none."""
    return next(_leaves_of_any(files, root, root, []), None)


def _leaves_of_any(files: Files, root: str, folder: str, pieces: list[str]) -> Iterator[Layout]:
    for name in _names(files, folder):
        length = sum(map(len, pieces)) + len(name)
        if name.startswith(".") or length > TEXT_CHARS:
            continue
        if length == TEXT_CHARS:
            if ids.parse("".join([*pieces, name]).encode()) is not None:
                yield Layout(len(pieces) + 1, len(pieces[0]) if pieces else 2)
        elif not pieces or len(name) == len(pieces[0]):
            yield from _leaves_of_any(files, root, join(folder, name), [*pieces, name])


def walk(files: Files, root: str, layout: Layout) -> Iterator[bytes]:
    """Ids of all queues that have a folder there. What else is there is passed over. Raises: DiskError."""
    try:
        yield from _walk(files, root, layout, [])
    except OSError as error:
        raise from_os(error, "look through the folders of queues", root) from None


def _walk(files: Files, folder: str, layout: Layout, pieces: list[str]) -> Iterator[bytes]:
    is_last = len(pieces) == layout.parts - 1
    for name in sorted(_names(files, folder)):
        if is_last:
            rid = ids.parse("".join([*pieces, name]).encode("utf-8", "replace"))
            if rid is not None:
                yield rid
        elif len(name) == layout.chars and not name.startswith("."):
            yield from _walk(files, join(folder, name), layout, [*pieces, name])


def _names(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except (FileNotFoundError, NotADirectoryError):
        return []


def move_queue(home: Home, rid: bytes, old: Layout, new: Layout) -> bool:
    """Bring its folder to where it should be. Returns whether it was elsewhere.

    Raises: StorageError, if it is in both places; OSError.
    """
    files, here, there = home.files, old.folder(home.root, rid), new.folder(home.root, rid)
    if not _names(files, here):
        return False
    if _names(files, there):
        home.told(rid, "folder_in_two_places", is_error=True)
        raise StorageError(
            f"queue {ids.handle(rid)} has a folder in two places: one from before the layout was changed",
            hint="neither was touched; take one of them away",
        )
    files.remove_empty_folder(there)
    files.make_folder(paths.parents_of(home.root, there)[0] if new.parts > 1 else home.root)
    files.rename_folder(here, there)
    _remove_empty_parents(files, home.root, here)
    return True


def move_all(home: Home, old: Layout, new: Layout, progress: Callable[[int], None], lock: Lock) -> Moved:
    """Move every queue, holding the lock for one at a time, then record it. Raises: StorageError; nothing is lost."""
    report = Moved()
    for rid in list(walk(home.files, home.root, old)):
        with lock, no_path(rid, "move its folder"):
            try:
                report.moved += move_queue(home, rid, old, new)
            except StorageError:
                report.refused += 1
        progress(report.moved)
    if not report.refused:
        paths.write_layout(home.files, home.root, new)
    return report


def remove_queue(home: Home, rid: bytes, layout: Layout) -> None:
    """Its folder goes in one step, by another name; then what is in it. Raises: OSError."""
    files, root = home.files, home.root
    path = layout.folder(root, rid)
    gone = join(root, _GONE + home.random(_NAME_BYTES).hex())
    try:
        files.rename_folder(path, gone)
    except FileNotFoundError:
        return
    files.remove_folder(gone)
    _remove_empty_parents(files, root, path)
    files.sync_folder(root)


def set_aside(home: Home, rid: bytes, layout: Layout, name: str) -> bool:
    """Its folder goes, in one step, to where ``name`` in the root has a folder for it. Returns whether there was one.

    Raises: OSError.
    """
    files, path = home.files, layout.folder(home.root, rid)
    if not _names(files, path):
        return False
    there = layout.folder(join(home.root, name), rid)
    files.make_folder(there.rpartition("/")[0])
    files.rename_folder(path, there)
    _remove_empty_parents(files, home.root, path)
    files.sync_folder(home.root)
    return True


def aside(files: Files, root: str) -> Iterator[tuple[bytes, str]]:
    """Queues whose folders were set aside, the newest first: their ids, and where they are now. Raises: DiskError."""
    try:
        for name in sorted((name for name in _names(files, root) if name.startswith(paths.ASIDE)), reverse=True):
            yield from _leaves(files, join(root, name), "")
    except OSError as error:
        raise from_os(error, "look through the folders of queues", root) from None


def _leaves(files: Files, folder: str, before: str) -> Iterator[tuple[bytes, str]]:
    for name in sorted(_names(files, folder)):
        text = before + name
        rid = ids.parse(text.encode("utf-8", "replace")) if len(text) == TEXT_CHARS else None
        if rid is not None:
            yield rid, join(folder, name)
        elif len(text) < TEXT_CHARS:
            yield from _leaves(files, join(folder, name), text)


def bring_back(home: Home, rid: bytes, path: str, layout: Layout) -> bool:
    """The folder at ``path`` becomes that of the queue again, unless it has one. Raises: OSError."""
    files, there = home.files, layout.folder(home.root, rid)
    if _names(files, there):
        return False
    files.remove_empty_folder(there)
    files.make_folder(there.rpartition("/")[0])
    files.rename_folder(path, there)
    _remove_empty_parents(files, home.root, path)
    return True


def sweep(files: Files, root: str) -> int:
    """Remove what a crash left of deleted queues. Returns how many. Raises: DiskError."""
    count = 0
    try:
        for name in files.list(root):
            if name.startswith(_GONE):
                files.remove_folder(join(root, name))
                count += 1
    except OSError as error:
        raise from_os(error, "remove what is left of deleted queues", root) from None
    return count


def _remove_empty_parents(files: Files, root: str, folder: str) -> None:
    changed = None
    for above in paths.parents_of(root, folder):
        if not files.remove_empty_folder(above):
            break
        changed = above
    if changed is not None:
        files.sync_folder(changed.rpartition("/")[0])
