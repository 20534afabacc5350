"""A new generation: what is new is copied, what the backup has already is shared, then its manifest gets its name.

    1 read a share of the old contents again (reread.py)     2 which files, and where each is cut (collecting.py)
    3 heal what is rotten from these files                   4 contents that are not there yet, each synced, and checked
    5 sync the folder of contents                            6 the manifest: write, sync, rename, sync the folder
    7 remove contents that no generation has

Commit: step 6. A backup that is killed before leaves the former generations as they were, or healed, and whole contents
that the next one uses. A file that was taken away or rewritten between 2 and 4 is noticed, and all is looked at anew.

A file is taken for the one that was copied before if it has the same device and inode, and the last bytes that were
copied are still where they were: those hold times of records, and their checksums. Sealed files never change, and
files that grow only grow. ``is_full`` reads and compares all of them all the same.

What is copied is read as a log before it counts: a file that was damaged in the data folder is kept as it is, every
byte of it, and the report and the manifest say so. If it was copied while it was whole, those bytes are kept instead.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from lamina.errors import BadOption, Corruption, StorageError, WrongFormat
from lamina.log.files import Files, read_at
from lamina.log.files.real import RealFiles
from lamina.pipeline.backing import checking, collecting, place, reread
from lamina.pipeline.backing.checking import Bad
from lamina.pipeline.backing.collecting import Collected, Time
from lamina.pipeline.backing.manifest import SUFFIX, BackedFile, Content, Damaged, Generation, shown
from lamina.pipeline.backing.place import GENERATIONS, Backup
from lamina.pipeline.backing.reread import Rot, Use
from lamina.pipeline.backing.sources import Changed, Source
from lamina.pipeline.running import Progress

_TRIES: Final = 20
_TAIL: Final = 4096
_MOST_CONTENTS: Final = 64
"""Of one file: then it is copied anew, as one."""


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What was made."""

    backup: str
    generation: str
    moment_ns: int
    """What was written up to then is in it."""
    logs: int
    files: int
    bytes: int
    """Of all files."""
    copied_bytes: int
    """That the backup did not have yet."""
    removed: int
    """Contents that no generation has, of backups that were killed."""
    tries: int
    """How often files were taken away or rewritten meanwhile, and it was looked anew; and one more."""
    is_verified: bool
    reread_bytes: int
    """Of old contents, that were read again."""
    damage: list[Damaged] = field(default_factory=list)
    """Files that are damaged in the data folder."""
    kept_whole: list[str] = field(default_factory=list)
    """Those of them that the generation has whole, from a former one."""
    rot: list[Rot] = field(default_factory=list)
    """What the disk of the backup did not give back as it was written, and what became of it."""
    notes: list[str] = field(default_factory=list)
    """What is not in it."""
    seconds: float = 0.0

    @property
    def is_whole(self) -> bool:
        """Nothing is damaged, in the data folder or in any generation, but what was healed."""
        return not self.damage and all(each.is_healed for each in self.rot)

    def as_dict(self) -> dict[str, object]:
        return {**asdict(self), "is_whole": self.is_whole}


def back_up(
    data: str,
    to: str,
    *,
    is_full: bool = False,
    is_moved: bool = False,
    verify: bool = False,
    shares: int = reread.SHARES,
    progress: Progress = lambda done, total: None,
    disk: Files | None = None,
    files: Files | None = None,
    clock: Time = Time(),  # noqa: B008
) -> BackupReport:
    """Add a generation to the backup ``to``, which is made if need be: all logs under ``data``, as of one moment.

    It needs no lock on ``data`` and works beside a server; nothing there is changed. Old contents are read again, all
    of them in ``shares`` backups, and healed; ``is_full``: all of them now.
    Durability: what was acknowledged before it was called, at whatever level, is in the generation, which is synced
        when it returns.
    Raises: BadOption (no data folder; a target that is something else, or in it; a backup of another folder);
        LogLocked if another run changes the backup; StorageError if files change too quickly; Corruption, WrongFormat,
        DiskFull, DiskError. Then the former generations are as they were.
    """
    start = time.monotonic()
    disk, files = disk or RealFiles(), files or RealFiles()
    if isinstance(disk, RealFiles):
        data, to = os.path.abspath(data), os.path.abspath(to)
        _check_outside(data, to)
    if not 1 <= shares <= reread.MOST_SHARES:
        hint = f"1 (all old contents each time) to {reread.MOST_SHARES}"
        raise BadOption(f"invalid number of backups to re-read all contents in: {shares}", hint=hint, option="reread")
    if place.is_backup(disk, data):
        raise BadOption(f"{data} is a backup itself", hint="name the data folder; copy a backup with any tool")
    backup = Backup(files, to)
    with backup.changing():
        former = backup.newest()
        if former is not None and former.data != data and not is_moved:
            raise BadOption(
                f"{to} holds a backup of {former.data}, not of {data}",
                hint="back up to another folder; or, if the data folder was moved, say so with --moved",
            )
        making = _Making(disk, backup, former, is_full, progress)
        making.look_at_old(1 if is_full else shares)
        generation = making.run(data, clock)
        backup.commit(generation)
        notes = list(generation.notes)
        removed = 0
        if making.unreadable:
            notes.append(f"nothing was removed, as a generation cannot be read: {making.unreadable[0][1].message}")
        else:
            removed, _ = backup.contents.sweep({*making.old, *generation.contents()})
    if verify:
        checking.check_generation(backup, generation, progress=progress)
    return BackupReport(
        backup=to,
        generation=generation.name,
        moment_ns=generation.moment_ns,
        logs=len(generation.logs),
        files=len(generation.files),
        bytes=generation.bytes,
        copied_bytes=making.copied,
        removed=removed,
        tries=making.tries,
        is_verified=verify,
        reread_bytes=making.reread_bytes,
        damage=[replace(each, path=shown(each.path)) for each in making.damage],
        kept_whole=[shown(path) for path in making.kept_whole],
        rot=making.rot(),
        notes=notes,
        seconds=round(time.monotonic() - start, 3),
    )


class _Making:
    """Contents of one generation, which may take several looks; and old ones, read again."""

    def __init__(
        self, disk: Files, backup: Backup, former: Generation | None, is_full: bool, progress: Progress
    ) -> None:
        self._disk, self._backup, self._former = disk, backup, former
        self._is_full, self._progress = is_full, progress
        self._known: dict[tuple[int, int], BackedFile] = {}
        """What was copied before, by the file that it was copied from, and was whole there."""
        damaged = {each.path for each in former.damage} if former else set()
        for file in former.files if former else ():
            if file.path not in damaged:
                self._know(file)
        self._before = dict(self._known)
        self.old: dict[str, Content] = {}
        """What generations have that can be read."""
        self.unreadable: list[tuple[str, StorageError]] = []
        self.damage: list[Damaged] = []
        self.kept_whole: list[str] = []
        self.copied = self.tries = self.reread_bytes = 0
        self._reread = (0, 1)
        self._rotten: dict[str, str] = {}
        """What is wrong with contents, by digest."""
        self._uses: dict[str, list[Use]] = {}
        self._healed: dict[str, Rot] = {}

    # -- old contents ------------------------------------------------------------------------------------------------

    def look_at_old(self, shares: int) -> None:
        """Read a share of them again, and those that were rotten the last time. Raises: DiskError."""
        for found in self._backup.each():
            if isinstance(found, Generation):
                self.old.update(found.contents())
            else:
                self.unreadable.append(found)
        begin, before = (self._former.reread, self._former.rotten) if self._former else ((0, 1), ())
        chosen, self._reread = reread.share_of(self.old.values(), begin, shares, reread.AT_LEAST)
        again = {content.sha256 for content in chosen}
        chosen += [self.old[digest] for digest in before if digest in self.old and digest not in again]
        total = sum(content.bytes for content in chosen)
        for content in chosen:
            if problem := self._backup.contents.problem_with(content):
                self._rotten[content.sha256] = problem
            self.reread_bytes += content.bytes
            self._progress(self.reread_bytes, total)
        self._find_uses(self._rotten)

    def _find_uses(self, digests: Collection[str]) -> None:
        if digests:
            generations = (found for found in self._backup.each() if isinstance(found, Generation))
            self._uses.update(reread.uses(self._backup, generations, digests))

    def _heal(self, data: str, found: Collected) -> None:
        sources: dict[object, Source] = {}
        for source in found.sources if self._rotten else ():
            sources[source.path] = source
            if source.identity != (0, 0):
                sources[source.identity] = source
        for digest in [*self._rotten]:
            used = self._uses[digest]
            healed = reread.heal(self._backup, self._disk, data, sources, self.old[digest], used)
            if healed is not None:
                use, byte = healed
                self._note_healed(self.old[digest], use.file.path, byte)

    def _note_healed(self, content: Content, path: str, byte: int) -> None:
        if content.sha256 not in self._uses:
            self._find_uses([content.sha256])
        self._rotten.pop(content.sha256, None)
        self._healed[content.sha256] = reread.healed(content, self._uses[content.sha256], path, byte)

    def rot(self) -> list[Rot]:
        """All that was found in the backup."""
        left = [
            reread.rot(self._backup, self.old[digest], self._uses[digest], problem)
            for digest, problem in self._rotten.items()
        ]
        for name, error in self.unreadable:
            if not isinstance(error, WrongFormat):  # of a later version
                byte = error.offset if isinstance(error, Corruption) else 0
                left.append(Rot([name.removesuffix(SUFFIX)], f"{GENERATIONS}/{name}", "", byte, error.message, False))
        return [*self._healed.values(), *left]

    # -- the new generation ------------------------------------------------------------------------------------------

    def run(self, data: str, clock: Time) -> Generation:
        """Raises: as ``back_up``."""
        later_than = 0 if self._former is None else self._former.moment_ns
        for number in range(_TRIES):
            self.tries += 1
            is_patient = number < collecting.PATIENCE
            try:
                found = collecting.collect(self._disk, data, later_than=later_than, is_patient=is_patient, clock=clock)
                self._heal(data, found)
                return self._generation(data, found, clock)
            except Changed:
                if number == _TRIES - 1:
                    raise
        raise AssertionError

    def _generation(self, data: str, found: Collected, clock: Time) -> Generation:
        total, done = self.reread_bytes + found.bytes, self.reread_bytes
        made: list[BackedFile] = []
        self.damage, self.kept_whole = [], []
        for source in found.sources:
            file, bad = self._take(source)
            made.append(file)
            if bad is None:
                self._know(file)
            else:
                self.damage.append(Damaged(file.path, *bad))
            done += source.size
            self._progress(done, total)
        made = self._check_queues(made)
        return Generation(
            moment_ns=found.moment_ns,
            began_ns=found.began_ns,
            made_ns=clock.now_ns(),
            data=data,
            logs=tuple((log.path, log.kind) for log in found.logs),
            files=tuple(made),
            notes=tuple(found.notes),
            damage=tuple(each for each in self.damage if each.path not in self.kept_whole),
            reread=self._reread,
            rotten=tuple(self._rotten),
        )

    def _check_queues(self, made: Sequence[BackedFile]) -> list[BackedFile]:
        """The store of queues says only as a whole what is missing. Returns what the generation is to have."""
        bad = self._queue_problems(made)
        if not bad:
            return [*made]
        former = [file if file.path not in bad else self._whole_before(file) or file for file in made]
        still = self._queue_problems(former)
        for path, what in bad.items():
            self.damage.append(Damaged(path, *what))
            if path not in still:
                self.kept_whole.append(path)
        if {*still} < {*bad}:
            made = former
        for file in made:
            if file.path in still:
                self._known.pop(file.identity, None)
            elif file.path in bad:
                self._know(file)
        return [*made]

    def _queue_problems(self, files: Sequence[BackedFile]) -> dict[str, Bad]:
        ours = checking.queue_files(files)
        read_just_now = {content.sha256 for file in ours for content in file.contents}
        return checking.queue_problems(self._backup, ours, read_just_now)

    def _whole_before(self, file: BackedFile) -> BackedFile | None:
        """The file as it was backed up the last time, if it was as long and the backup has it whole."""
        before = self._before.get(file.identity)
        if before is None or before.bytes != file.bytes or before.contents == file.contents:
            return None
        problems = (self._backup.contents.problem_with(content) for content in before.contents)
        if any(problems) or checking.log_problem(self._backup, before) is not None:
            return None
        return BackedFile(file.path, before.contents, file.identity)

    def _know(self, file: BackedFile) -> None:
        if file.identity != (0, 0):
            self._known[file.identity] = file

    def _take(self, source: Source) -> tuple[BackedFile, Bad | None]:
        """The file as it is to be in the generation, and what is wrong with it in the data folder."""
        if source.data is not None:
            return BackedFile(source.path, (self._add(source),)), None
        known = self._shared(source)
        if known is not None and not self._is_full and self._ends_the_same(source, known):
            more = () if known.bytes == source.end else (self._add(source, known.bytes),)
            file = BackedFile(source.path, (*known.contents, *more), source.identity)
            bad = checking.log_problem(self._backup, file, known.bytes) if more else None
            return file, bad
        file = BackedFile(source.path, (self._add(source),), source.identity)
        bad = checking.log_problem(self._backup, file)
        if bad is not None and (before := self._whole_before(file)) is not None:
            self.kept_whole.append(source.path)
            return before, bad
        return file, bad

    def _shared(self, source: Source) -> BackedFile | None:
        """What the backup has of the file already, with nothing missing that is known to be."""
        known = self._known.get(source.identity)
        if known is None or not known.bytes or known.bytes > source.end or len(known.contents) >= _MOST_CONTENTS:
            return None
        has_all = all(
            content.sha256 not in self._rotten and self._backup.contents.has(content) for content in known.contents
        )
        return known if has_all else None  # else it is copied again

    def _ends_the_same(self, source: Source, known: BackedFile) -> bool:
        start = max(known.bytes - _TAIL, 0)
        try:
            kept = self._backup.contents.open(known)
            try:
                ours = read_at(kept, start, known.bytes - start)
            finally:
                kept.close()
        except StorageError:
            return False  # the backup's disk cannot read it
        file = source.open(self._disk)
        try:
            return ours == read_at(file, start, known.bytes - start)
        finally:
            file.close()

    def _add(self, source: Source, start: int = 0) -> Content:
        content, is_new, healed_at = self._backup.contents.add(source.chunks(self._disk, start))
        self.copied += content.bytes if is_new else 0
        if healed_at is not None and content.sha256 in self.old:
            self._note_healed(content, source.path, start + healed_at)
        self._rotten.pop(content.sha256, None)
        return content


def _check_outside(data: str, to: str) -> None:
    ours, theirs = os.path.realpath(to), os.path.realpath(data)
    if ours == theirs or ours.startswith(theirs + os.sep) or theirs.startswith(ours + os.sep):
        raise BadOption(f"{to} and {data} are in one another", hint="back up to a folder elsewhere", option="to")
