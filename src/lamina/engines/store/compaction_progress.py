"""What a compaction has done so far, so that the next one goes on from there if this one is cut short.

    lamina compaction progress 1 <task> <place>     checksum of what was being done; everything before the place is done
    lamina compaction catalog 1                     then a catalog (catalog.py) of the parts, as far as they are
    ...
    crc 5e6f7a8b                                    CRC-32C of everything before

The place is in hexadecimal digits, ``-`` for the very first, ``end`` when all is done. The file is replaced in one step
whenever a part is finished and synced. It is no promise: one that does not fit is thrown away with what it names.
"""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store.catalog import PROGRESS, Catalog, Part
from lamina.engines.store.compaction_task import Task
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.storages import Storages
from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log import kernel, rewrite
from lamina.log.files import Files, join, read_at
from lamina.log.naming import PWAL
from lamina.log.segment import open_for_reading

_TITLE: Final = re.compile(rb"lamina compaction progress 1 ([0-9a-f]{8}) (-|end|(?:[0-9a-f]{2})+)\n")
_CRC: Final = re.compile(rb"crc ([0-9a-f]{8})\n")
_CRC_SIZE: Final = len(b"crc 00000000\n")
_RUN: Final = re.compile(r"run\.[0-9]+\.[0-9]+")


@dataclass(frozen=True, slots=True)
class Done:
    """How far a compaction has come."""

    parts: tuple[Part, ...] = ()
    """Finished or kept, in order."""
    start: bytes | None = b""
    """The place from which on nothing is done; None: all is."""
    storages: Storages | None = None
    """Known when all is done."""


def run_name(generation: int, number: int) -> str:
    """Working files of a compaction."""
    return f"run.{generation}.{number}"


def save(files: Files, task: Task, done: Done) -> None:
    """Durability: when it returns, it is there for good, and so are all names in the folder.

    The parts must be synced. Raises: DiskFull, DiskError.
    """
    place = "end" if done.start is None else done.start.hex() or "-"
    made = Catalog(task.generation, task.until, done.parts, done.storages or Storages(), task.inputs)
    text = f"lamina compaction progress 1 {task.identity():08x} {place}\n".encode() + catalogs.encode(made)
    rewrite.replace(files, task.folder, PROGRESS, [text + b"crc %08x\n" % kernel.crc32c(text)], PWAL)


def load(files: Files, task: Task) -> Done | None:
    """How far this very task was brought, if the parts that were finished are there. Raises: DiskError."""
    found = _read(files, task.folder)
    if found is None or found[0] != task.identity():
        return None
    _, place, made = found
    try:
        for part in made.parts:
            SortedFile.open(files, task.folder, part.name, part).close()
    except (Corruption, WrongFormat):
        return None
    if place == "end":
        return Done(made.parts, None, made.storages)
    return Done(made.parts, b"" if place == "-" else bytes.fromhex(place))


def unfinished(files: Files, folder: str) -> Catalog | None:
    """What a compaction that was cut short was making: its generation, epoch (``Task.until``) and inputs (``merged``).

    A task with the same goes on from there. Raises: DiskError.
    """
    found = _read(files, folder)
    return None if found is None else found[2]


def _read(files: Files, folder: str) -> tuple[int, str, Catalog] | None:
    """Identity of the task, place and parts; None if there is nothing that could be gone on with."""
    try:
        file = open_for_reading(files, folder, PROGRESS)
    except FileNotFoundError:
        return None
    try:
        text = read_at(file, 0, file.size())
    finally:
        file.close()
    title, crc = _TITLE.match(text), _CRC.fullmatch(text[-_CRC_SIZE:])
    if not title or not crc or int(crc[1], 16) != kernel.crc32c(text[:-_CRC_SIZE]):
        return None
    try:
        made = catalogs.decode(text[title.end() : -_CRC_SIZE], PROGRESS)
    except (Corruption, WrongFormat):
        return None
    return int(title[1], 16), title[2].decode(), made


def remove(files: Files, folder: str) -> None:
    """Forget how far a compaction came: its catalog was committed, or nobody goes on with it.

    Durability: when it returns, it is gone for good. Raises: DiskError.
    """
    rewrite.remove(files, folder, [PROGRESS])


def remove_leftovers(files: Files, task: Task) -> Done:
    """Remove what compactions left that were cut short, but for what this task goes on from. Returns how far that is.

    Only files of generations that were never committed go. Raises: DiskError.
    """
    done = load(files, task)
    named = {part.name for part in done.parts} if done else set()
    try:
        names = files.list(task.folder)
    except OSError as error:
        raise from_os(error, "list the folder", task.folder) from error
    gone = [name for name in names if _is_leftover(name, task.catalog.generation) and name not in named]
    if done is None and PROGRESS in names:
        gone.append(PROGRESS)
    if gone:
        rewrite.remove(files, task.folder, sorted(gone))
    return done or Done()


def clean_up_quietly(files: Files, task: Task) -> None:
    """The same after another error, which is the one to report."""
    with suppress(Exception):
        remove_leftovers(files, task)


def _is_leftover(name: str, committed: int) -> bool:
    generation = catalogs.part_generation(name)
    if generation is not None:
        return generation > committed
    return _RUN.fullmatch(name) is not None or name == PROGRESS + PWAL.temporary_suffix


def lock_path(folder: str) -> str:
    """Never two compactions at once, also not beside one that a server left that is gone."""
    return join(folder, "compaction.lock")
