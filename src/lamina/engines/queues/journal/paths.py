"""Where the folder of a queue is: its id, cut into short pieces so that no folder gets too many names.

    abcdefghijklmnopqrstuvwxyz012345  ->  <root>/ab/cd/ef/gh/ijklmnopqrstuvwxyz012345        5 parts of 2 characters

The file ``layout`` in the root says how they are cut. Names in the root that begin with a dot are no queues.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from lamina.engines.queues import ids
from lamina.errors import BadOption, Corruption, from_os
from lamina.log.files import Files, join, read_at, write_all

TEXT_CHARS: Final = 32
LAYOUT: Final = "layout"
ASIDE: Final = ".aside-"
"""Begins the names of folders in the root with queues that the log of the queues does not know."""
_LAYOUT_LINE: Final = re.compile(rb"parts=(\d{1,2}) chars=(\d)\n(?:to parts=(\d{1,2}) chars=(\d)\n)?")
_MOST: Final = 256
_PROBE: Final = (".lamina-case-probe", ".LAMINA-CASE-PROBE")


class Layout(NamedTuple):
    """How ids are cut."""

    parts: int = 5
    chars: int = 2

    def check(self) -> Layout:
        """Raises: BadOption, if an id has not so many characters."""
        if self.parts < 1 or self.chars < 1 or (self.parts - 1) * self.chars >= TEXT_CHARS:
            raise BadOption(
                f"an id of {TEXT_CHARS} characters cannot be cut into {self.parts} parts of {self.chars}",
                hint="5 parts of 2 characters do for billions of queues",
                option="path_parts",
            )
        return self

    def folder(self, root: str, rid: bytes) -> str:
        """Of a queue that has this id."""
        return folder_of(root, ids.show(rid), self.parts, self.chars)


def folder_of(root: str, rid_text: str, parts: int = 5, chars: int = 2) -> str:
    """The folder of the queue with this id. Raises: ValueError for what is no id: a path is never made from it."""
    if ids.parse(rid_text.encode("utf-8", "replace")) is None:
        raise ValueError("no id of a queue")
    pieces = [rid_text[at * chars : (at + 1) * chars] for at in range(parts - 1)]
    return join(root, "/".join([*pieces, rid_text[(parts - 1) * chars :]]))


def parents_of(root: str, folder: str) -> list[str]:
    """Folders between the root and that of a queue, the innermost first."""
    found = []
    above = folder.rpartition("/")[0]
    while len(above) > len(root):
        found.append(above)
        above = above.rpartition("/")[0]
    return found


def read_layout(files: Files, root: str) -> tuple[Layout, Layout] | None:
    """What the root says of itself: how folders are made, and how they will be; None if nothing.

    Raises: Corruption; DiskError.
    """
    path = join(root, LAYOUT)
    try:
        file = files.open(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise from_os(error, "open the file", path) from error
    try:
        found = _LAYOUT_LINE.fullmatch(read_at(file, 0, _MOST))
    finally:
        file.close()
    if found is None:
        raise Corruption(LAYOUT, 0, "this does not say how the folders of queues are made", hint="restore the file")
    old = Layout(int(found[1]), int(found[2])).check()
    return old, old if found[3] is None else Layout(int(found[3]), int(found[4])).check()


def write_layout(files: Files, root: str, layout: Layout, to: Layout | None = None) -> None:
    """In one step, and there to stay. ``to``: folders are being moved to that. Raises: DiskFull, DiskError."""
    content = b"parts=%d chars=%d\n" % layout
    if to is not None:
        content += b"to parts=%d chars=%d\n" % to
    try:
        replace_file(files, root, LAYOUT, content)
    except OSError as error:
        raise from_os(error, "write the file", join(root, LAYOUT)) from error


def replace_file(files: Files, folder: str, name: str, content: bytes) -> None:
    """Write-new, sync, rename, sync the folder: a power cut leaves one or the other, whole. Raises: OSError."""
    path = join(folder, name)
    new = path + ".new"
    try:
        file = files.create(new)
    except FileExistsError:
        files.remove(new)
        file = files.create(new)
    try:
        write_all(file, [content])
        file.sync()
    finally:
        file.close()
    files.rename(new, path)
    files.sync_folder(folder)


def check_case(files: Files, root: str) -> None:
    """Ids differ in case alone. Raises: BadOption where the file system does not tell such names apart; DiskError."""
    lower, upper = (join(root, name) for name in _PROBE)
    try:
        for path in (lower, upper):  # of a start that was killed just here
            _remove_if_there(files, path)
        files.create(lower).close()
        try:
            files.open(upper).close()
        except FileNotFoundError:
            return
        finally:
            files.remove(lower)
    except OSError as error:
        raise from_os(error, "try the file system", lower) from error
    raise BadOption(
        f"{root}: this file system takes names that differ in case for the same",
        hint="folders of two queues could become one: use another file system, or the store memory",
        option="store",
    )


def _remove_if_there(files: Files, path: str) -> None:
    try:
        files.remove(path)
    except FileNotFoundError:
        return
