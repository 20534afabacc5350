"""Is a backup whole? Every byte of every generation is read: its digest, and the checksums of the log itself.

A digest says that the bytes are those which were copied; the checksums that they are a log, whose records are whole up
to the end, also where a file was put together from several contents. ``log_problem`` and ``queue_problems`` are all
that is known here of kinds of files and of how each may end.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from lamina.engines.queues import codec, store_files
from lamina.engines.queues.dump_check import DumpCheck
from lamina.engines.queues.store_reading import BAD_RECORD, LOST_RECORDS, StoreReading
from lamina.errors import Corruption, StorageError, WrongFormat
from lamina.log.files import Files
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import parse
from lamina.log.scan import HEADER_SIZE, FileScan
from lamina.log.segment import check_header
from lamina.pipeline.backing.contents import FOLDER
from lamina.pipeline.backing.disk import GenerationDisk
from lamina.pipeline.backing.manifest import SUFFIX, BackedFile, Generation, shown
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
    byte: int
    """In that file: where it is wrong, or where the content begins that is."""
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
    newest_whole: str | None = None
    """The newest generation that has none of it; None: there is none."""

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
            byte = error.offset if isinstance(error, Corruption) else 0
            at = Damage([name.removesuffix(SUFFIX)], f"{GENERATIONS}/{name}", "", byte, error.message)
            found.damage.append(at)
    found.generations = len(generations) + len(found.damage)
    files: dict[tuple[str, ...], tuple[BackedFile, list[str]]] = {}
    for generation in generations:
        for file in generation.files:
            files.setdefault(_key([file]), (file, []))[1].append(generation.name)
    total = sum({content.sha256: content.bytes for file, _ in files.values() for content in file.contents}.values())
    checked: dict[str, str] = {}
    for file, having in files.values():
        is_read, offset = True, 0
        for content in file.contents:
            if content.sha256 not in checked:
                checked[content.sha256] = backup.contents.problem_with(content)
                found.contents, found.bytes = found.contents + 1, found.bytes + content.bytes
                progress(found.bytes, total)
            if problem := checked[content.sha256]:
                is_read = False
                found.damage.append(Damage(having, f"{FOLDER}/{content.sha256}", file.shown, offset, problem))
            offset += content.bytes
        if is_read and (bad := log_problem(backup, file)):
            found.damage.append(Damage(having, "", file.shown, *bad))
    whole = {digest for digest, problem in checked.items() if not problem}
    queues: dict[tuple[str, ...], dict[str, Damage]] = {}
    for generation in generations:
        ours = [file for file in queue_files(generation.files) if whole.issuperset(_key([file])[1:])]
        key = _key(ours)
        if key not in queues:
            bad_ones = queue_problems(backup, ours, whole)
            queues[key] = {path: Damage([], "", path, *bad) for path, bad in bad_ones.items()}
            found.damage += queues[key].values()
        for damage in queues[key].values():
            damage.generations.append(generation.name)
    broken = {name for damage in found.damage for name in damage.generations}
    found.newest_whole = max((each.name for each in generations if each.name not in broken), default=None)
    found.unneeded = backup.contents.would_sweep({*checked})[0]
    return found


def _key(files: Iterable[BackedFile]) -> tuple[str, ...]:
    return tuple(word for file in files for word in (file.path, *(content.sha256 for content in file.contents)))


# -- what a log says of itself -----------------------------------------------------------------------------------------


class Bad(NamedTuple):
    """Where a file is not what its kind has to be."""

    byte: int
    reason: str


def log_problem(backup: Backup, file: BackedFile, start: int = 0) -> Bad | None:
    """What the checksums of the log say of the records from ``start`` on; None if all are whole, if it is no file of a
    log, or one of the store of queues (queue_problems).
    """
    parsed = parse(file.path.rpartition("/")[2])
    return None if parsed is None or parsed.family == _STORED else first_bad_record(backup, file, start)


def first_bad_record(backup: Backup, file: BackedFile, start: int = 0) -> Bad | None:
    """The first record from ``start`` on that is not whole, torn by a crash or not; None too if it is no log."""
    name = file.path.rpartition("/")[2]
    if parse(name) is None:
        return None
    try:
        opened = backup.contents.open(file)
        try:
            check_header(opened, name)
            scan = FileScan(opened, max(start, HEADER_SIZE))
            for _ in scan:
                pass
            return None if scan.why is Stop.END else Bad(scan.stop, REASONS[scan.why or Stop.TRUNCATED])
        finally:
            opened.close()
    except (Corruption, WrongFormat) as error:
        return Bad(error.offset, error.reason)
    except StorageError as error:
        return Bad(0, error.message)


_STORED: Final = "stored"


def queue_files(files: Iterable[BackedFile]) -> list[BackedFile]:
    """Those of the store of queues, its dump first, then its logs in the order of writing."""
    found = {}
    for file in files:
        parsed = parse(file.path.rpartition("/")[2])
        if parsed is not None and parsed.family == _STORED:
            found[parsed.name] = file
    return [found[name] for name in store_files.plan(found).load_order]


def queue_problems(backup: Backup, files: Sequence[BackedFile], checked: Collection[str] = ()) -> dict[str, Bad]:
    """What is wrong with them, by path. A dump is complete or broken. Each log may end as a crash left it, as a start
    of the server begins a new one; what is missing then is told by the next. ``checked``: digests that are right.
    """
    disk = GenerationDisk(backup, Generation(0, 0, 0, "", (), tuple(files)), checked).files
    found: dict[str, Bad] = {}
    last = 0
    for file in files:
        folder, _, name = f"{backup.folder}/{file.path}".rpartition("/")
        dump = DumpCheck() if name.endswith(".dump") else None
        try:
            last = _read_queue_file(disk, folder, name, last, dump, is_after_damage=bool(found))
        except _Broken as broken:
            found[file.path] = broken.bad
        except (Corruption, WrongFormat) as error:
            found[file.path] = Bad(error.offset, error.reason)
        except StorageError as error:
            found[file.path] = Bad(0, error.message)
    return found


class _Broken(Exception):
    def __init__(self, byte: int, reason: str) -> None:
        self.bad = Bad(byte, reason)


def _read_queue_file(
    disk: Files, folder: str, name: str, last: int, dump: DumpCheck | None, *, is_after_damage: bool
) -> int:
    """Returns the time of its last record. Raises: _Broken; StorageError."""

    def tell(kind: str, record: int | None, byte: int, reason: str) -> None:
        if kind == LOST_RECORDS and is_after_damage:
            return  # nobody knows what the damaged one had
        if dump is not None or kind in (BAD_RECORD, LOST_RECORDS):
            raise _Broken(byte, reason)

    reading = StoreReading(disk, folder, name, last, tell)
    for payloads in reading:
        if dump is not None:
            _take(dump, payloads, reading)
    if dump is not None and not dump.is_ended:
        raise _Broken(reading.bytes, "the last record of the dump is missing")
    return reading.last


def _take(dump: DumpCheck, payloads: Sequence[bytes], reading: StoreReading) -> None:
    for payload in payloads:
        try:
            values: list[Any] = codec.decode(payload)
        except codec.BadRecord as error:
            raise _Broken(reading.done, str(error)) from None
        if reason := dump.take(values):
            raise _Broken(reading.done, reason)


# -- one generation ----------------------------------------------------------------------------------------------------


def check_generation(
    backup: Backup,
    generation: Generation,
    checked: set[str] | None = None,
    progress: Progress = lambda done, total: None,
) -> None:
    """Read all of one generation, but of what is in ``checked``, which is added to.

    Raises: Corruption, naming the first file that is not as it was in the data folder.
    """
    checked = set() if checked is None else checked
    known = {each.path for each in generation.damage}
    done = 0
    for file in generation.files:
        offset = 0
        for content in file.contents:
            if content.sha256 not in checked:
                if problem := backup.contents.problem_with(content):
                    raise Corruption(file.shown, offset, f"{FOLDER}/{content.sha256} {problem}", hint=_AGAIN)
                checked.add(content.sha256)
            offset += content.bytes
        if file.path not in known and (bad := log_problem(backup, file)):
            raise Corruption(file.shown, *bad, hint=_AGAIN)
        done += file.bytes
        progress(done, generation.bytes)
    for path, bad in queue_problems(backup, queue_files(generation.files), checked).items():
        if path not in known:
            raise Corruption(path, *bad, hint=_AGAIN)


_AGAIN: Final = "the disk of the backup does not give back what was written to it: back up to another one"


def refuse_damaged(generation: Generation, without: Collection[str] = ()) -> None:
    """Raises: Corruption if it holds files, but in parts that are left out, which were damaged in the data folder."""
    for each in generation.damage:
        if each.path.partition("/")[0] not in without:
            reason = f"{each.reason}; it was so in the data folder that was backed up"
            raise Corruption(shown(each.path), each.byte, reason, hint=AS_IT_WAS)


AS_IT_WAS: Final = "--with-damage restores it as it was, to be repaired"


def newest_whole(backup: Backup, progress: Progress = lambda done, total: None) -> str | None:
    """The newest generation that is whole, every byte looked at. Raises: DiskError."""
    checked: set[str] = set()
    for name in reversed(backup.names()):
        try:
            generation = backup.load(name)
            refuse_damaged(generation)
            check_generation(backup, generation, checked, progress)
        except StorageError:
            continue
        return generation.name
    return None


def restore_command(backup: str, to: str, generation: str) -> str:
    """What a shell takes."""
    return f"lamina restore {shlex.quote(backup)} --to {shlex.quote(to)} --generation {generation}"
