"""What the tasks of a compaction are told, and how the inputs are divided: by their sizes alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lamina.engines.store.compaction_task import Task
from lamina.errors import BadOption
from lamina.log.files import Files
from lamina.log.scan import HEADER_SIZE
from lamina.pipeline.compaction.spots import MOST_BYTES, MOST_FILES
from lamina.units import MIB

_PIECES: Final = 4  # at least, of inputs that are worth it: the fewer, the more of them is found out of date in a task
_RANGES: Final = 8
_LEAST: Final = 16 * MIB
_MOST: Final = 256 * MIB
_FEWEST_ENTRIES: Final = 200_000
_MOST_ENTRIES: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Shared:
    """What all tasks have to know."""

    files: Files
    folder: str
    staging: str
    """Where they put what they make."""
    after: int
    until: int
    voids: tuple[tuple[int, int], ...]
    generation: int
    memory_bytes: int
    """Each task takes so much, about."""

    @classmethod
    def of(cls, files: Files, task: Task, staging: str) -> Shared:
        return cls(files, task.folder, staging, task.after, task.until, task.voids, task.generation, task.memory_bytes)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large tasks are. The result does not depend on it."""

    piece_bytes: int = 0
    """Of inputs; 0: a quarter of all, but not too few nor too many."""
    range_entries: int = 0
    """Of runs; 0: an eighth."""
    most_runs: int = 128
    """That are merged at once; more are made fewer first."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of an input: the sessions that begin from ``begin`` on and before ``border``."""

    source: int
    name: str
    size: int
    """Of the file when the compaction began."""
    begin: int
    border: int
    start: int | None
    """Where its first session begins; None: not known, it has to be looked for."""


Group = tuple[Stretch, ...]
"""One task: a piece of a large file, or several whole files one behind the other."""


def divide(names: Sequence[str], sizes: Sequence[int], piece_bytes: int = 0) -> list[Group]:
    """The inputs in pieces of about one size, in order. Raises: BadOption if there is too much of them."""
    if len(names) >= MOST_FILES or any(size >= MOST_BYTES for size in sizes):
        raise BadOption(
            f"a compaction takes less than {MOST_FILES} files of less than {MOST_BYTES} bytes",
            hint="compact more often, or in one process: lamina store compact",
        )
    piece_bytes = piece_bytes or min(max(sum(sizes) // _PIECES, _LEAST), _MOST)
    groups: list[Group] = []
    small: list[Stretch] = []
    for source, (name, size) in enumerate(zip(names, sizes, strict=True)):
        count = (size + piece_bytes // 2) // piece_bytes
        if count < 2:
            small.append(Stretch(source, name, size, HEADER_SIZE, size, HEADER_SIZE))
        if small and (count >= 2 or sum(stretch.size for stretch in small) >= piece_bytes):
            groups.append(tuple(small))
            small = []
        if count >= 2:
            borders = [max(size * number // count, HEADER_SIZE) for number in range(count)] + [size]
            groups += [
                (Stretch(source, name, size, borders[at], borders[at + 1], None if at else HEADER_SIZE),)
                for at in range(count)
            ]
    return [*groups, tuple(small)] if small else groups


def entries_of_range(total: int, asked: int = 0) -> int:
    """How many entries of runs a task merges, about."""
    return asked or min(max(total // _RANGES, _FEWEST_ENTRIES), _MOST_ENTRIES)
