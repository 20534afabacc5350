"""Is a backup whole? Every byte of every generation is read: its digest, and the checksums of the log itself.

A digest says that the bytes are those which were copied; the checksums that they are a log, whose records are whole up
to the end, also where a file was put together from several contents.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Final

from lamina.errors import Corruption, StorageError
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import parse
from lamina.log.scan import FileScan
from lamina.log.segment import check_header
from lamina.pipeline.backing.contents import FOLDER
from lamina.pipeline.backing.manifest import BackedFile, Content, Generation
from lamina.pipeline.backing.place import GENERATIONS, Backup
from lamina.pipeline.running import Progress


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is wrong."""

    generations: list[str]
    """That have it."""
    file: str
    """Of the backup."""
    path: str
    """Of the data folder, as far as it is known."""
    reason: str


@dataclass(slots=True)
class Verified:
    """What was looked at."""

    generations: int = 0
    contents: int = 0
    bytes: int = 0
    unneeded: int = 0
    """Contents that no generation has: a backup that was killed left them, and the next one removes them."""
    damage: list[Damage] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        return not self.damage

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "is_whole": self.is_whole}


def verify(backup: Backup, progress: Progress = lambda done, total: None) -> Verified:
    """Read all of it. Changes nothing. Raises: BadOption if it is no backup; DiskError if it cannot be listed."""
    backup.check()
    found, generations = Verified(), []
    for name in backup.names():
        try:
            generations.append(backup.load(name))
        except StorageError as error:
            found.damage.append(Damage([name.removesuffix(".json")], f"{GENERATIONS}/{name}", "", error.message))
    found.generations = len(generations) + len(found.damage)
    files: dict[tuple[str, ...], tuple[BackedFile, list[str]]] = {}
    for generation in generations:
        for file in generation.files:
            key = (file.path, *(content.sha256 for content in file.contents))
            files.setdefault(key, (file, []))[1].append(generation.name)
    total = sum({content.sha256: content.bytes for file, _ in files.values() for content in file.contents}.values())
    checked: dict[str, str] = {}
    for file, having in files.values():
        is_read = True
        for content in file.contents:
            if content.sha256 not in checked:
                checked[content.sha256] = _problem(backup, content)
                found.contents, found.bytes = found.contents + 1, found.bytes + content.bytes
                progress(found.bytes, total)
            if problem := checked[content.sha256]:
                is_read = False
                found.damage.append(Damage(having, f"{FOLDER}/{content.sha256}", file.path, problem))
        if is_read and (problem := log_problem(backup, file)):
            found.damage.append(Damage(having, "", file.path, problem))
    found.unneeded = backup.contents.would_sweep({*checked})[0]
    return found


def _problem(backup: Backup, content: Content) -> str:
    try:
        return backup.contents.problem_with(content)
    except StorageError as error:
        return error.message


def log_problem(backup: Backup, file: BackedFile) -> str:
    """What the checksums of the log say; nothing if all records are whole, or if it is no file of a log."""
    name = file.path.rpartition("/")[2]
    if parse(name) is None:
        return ""
    try:
        opened = backup.contents.open(file)
        try:
            check_header(opened, name)
            scan = FileScan(opened)
            for _ in scan:
                pass
            return "" if scan.why is Stop.END else f"byte {scan.stop}: {REASONS[scan.why or Stop.TRUNCATED]}"
        finally:
            opened.close()
    except StorageError as error:
        return error.message


def check_generation(backup: Backup, generation: Generation) -> None:
    """Read all of one generation. Raises: Corruption, naming the first file that is not whole; DiskError."""
    for file in generation.files:
        for content in file.contents:
            if problem := backup.contents.problem_with(content):
                raise Corruption(file.path, 0, f"{FOLDER}/{content.sha256} {problem}", hint=_AGAIN)
        if problem := log_problem(backup, file):
            raise Corruption(file.path, 0, problem, hint=_AGAIN)


_AGAIN: Final = "the disk of the backup does not give back what was written to it: back up to another one"
