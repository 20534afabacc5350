"""Which place each new part gets, and what the manifest says of its day then."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lamina.log.files import Files, join
from lamina.pipeline.exporting.manifest import Day
from lamina.pipeline.exporting.merging import Group, is_small
from lamina.pipeline.exporting.parts import SUFFIX, Part

Moves: TypeAlias = list[tuple[str, str]]
"""Of parts: where they are, and where they belong."""


def place(
    view: str,
    staged: str,
    batch: int,
    groups: Sequence[tuple[Group, Part]],
    days: Mapping[str, Day],
    merge_below: int,
) -> tuple[Moves, dict[str, Day]]:
    """``staged``: the folder of the parts. All paths are from the folder of the export on."""
    after = dict(days)
    moves = []
    for number, (group, part) in enumerate(groups):
        name = group.name or f"part-{batch:08d}-{number:05d}{SUFFIX}"
        folder = f"{view}/date={group.day}" if group.day else view
        moves.append((f"{staged}/{part.path.rpartition('/')[2]}", f"{folder}/{name}"))
        after[group.day] = _with(after.get(group.day, Day()), group, part, name, merge_below)
    return moves, after


def _with(day: Day, group: Group, part: Part, name: str, merge_below: int) -> Day:
    if is_small(part.rows, part.bytes, merge_below):
        is_open = (name, part.rows, part.bytes)
    elif group.name:
        is_open = ("", 0, 0)  # it has grown enough
    else:
        is_open = (day.open, day.open_rows, day.open_bytes)
    rows, size = day.rows + part.rows, day.bytes + part.bytes
    if not group.name:
        return Day(day.files + 1, rows, size, *is_open)
    taken_in = group.parts[0]
    return Day(day.files, rows - taken_in.rows, size - taken_in.bytes, *is_open)


def gather(files: Files, to: str, view: str, staged: str, moves: Moves) -> str:
    """The parts as a folder that can take the place of the view's. Durability: it is synced. Raises: OSError."""
    tree = f"{staged}/tree"
    folders = {tree: None}
    files.make_folder(join(to, tree))
    for at, final in moves:
        path = tree + final.removeprefix(view)
        folder = path.rpartition("/")[0]
        folders[folder] = None
        files.make_folder(join(to, folder))
        files.rename(join(to, at), join(to, path))
    for folder in folders:
        files.sync_folder(join(to, folder))
    return tree
