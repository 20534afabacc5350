"""A new data folder: from a generation of a backup, or from a data folder, as it is or as of a time.

    a generation, or the present          all its files, as they are: the past is in them as well
    as of a time                          logs cut at that time, the store at its epoch (pipeline/restoring/)

From a backup the time is looked for in the first generation that was made since: the one that lacks the least of it.
It is made beside its target, which it becomes with one rename (restoring/target.py).
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Final

from lamina.errors import BadOption, Corruption, TooOld, from_os
from lamina.log import mark
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles
from lamina.log.rewrite import write_new
from lamina.pipeline import places
from lamina.pipeline.backing import checking, collecting, manifest, reaching
from lamina.pipeline.backing.collecting import Time
from lamina.pipeline.backing.contents import identity_of
from lamina.pipeline.backing.disk import GenerationDisk
from lamina.pipeline.backing.manifest import Generation
from lamina.pipeline.backing.place import Backup, is_backup
from lamina.pipeline.backing.reaching import Reach
from lamina.pipeline.backing.sources import Changed, Source
from lamina.pipeline.restoring import asking, planning
from lamina.pipeline.restoring.copying import Copied, Copy, copy_from
from lamina.pipeline.restoring.gathering import copy_all, gather
from lamina.pipeline.restoring.planning import Plan
from lamina.pipeline.restoring.target import Making, making
from lamina.pipeline.running import Progress
from lamina.units import show_time

_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was made, or would be."""

    source: str
    to: str
    moment_ns: int
    """What was written up to then is in it."""
    generation: str | None
    """Of a backup."""
    logs: list[str]
    files: int
    bytes: int
    notes: list[str]
    """What is not in it, or may not be as it was."""
    is_dry_run: bool
    reach: list[Reach] = field(default_factory=list)
    """How far back each log could be had; of a dry run."""
    seconds: float = 0.0

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def restore(
    source: str,
    to: str,
    *,
    as_of: str | int | None = None,
    generation: str | None = None,
    without: Iterable[str] = (),
    is_dry_run: bool = False,
    with_damage: bool = False,
    progress: Progress = lambda done, total: None,
    clock: Time = Time(),  # noqa: B008
) -> RestoreReport:
    """Make ``to``, which is new, the data folder that ``source`` was: a data folder, or a backup of one.

    ``as_of``: a time; None: the newest state, or that of the ``generation``. ``without``: parts that are left out.
    ``with_damage``: also what was damaged already when it was backed up, as it was then.
    Durability: when it returns, the folder is there, synced. A crash leaves the target as it was, or whole.
    Raises: BadOption (a time to come, or before there was anything, or behind the newest generation; a target that is
        not new); TooOld if the files do not reach back to it, with ``facts["reach"]``; LogLocked if another run makes
        the same; Corruption, which names the newest generation that is whole; WrongFormat, DiskFull, DiskError. Then
        nothing was made.
    """
    start = time.monotonic()
    source = os.path.abspath(source)
    files, path = asking.target("to", to, source)
    asking.check_is_new(files, path)
    left_out = _checked(without)
    reach: list[Reach] = []
    with _offering_another(RealFiles(), source, to, progress):
        wanted = _From(RealFiles(), source, as_of, generation, left_out, clock)
        if not with_damage:
            wanted.refuse_damaged()
        if is_dry_run:
            made, reach = wanted.look(), reaching.reach(wanted.disk, source, wanted.without)
        else:
            with making(files, path) as target:
                made = wanted.make(target, progress)
                target.commit()
    return RestoreReport(
        source=source,
        to=path,
        moment_ns=made.moment_ns,
        generation=None if wanted.generation is None else wanted.generation.name,
        logs=made.logs,
        files=made.files,
        bytes=made.bytes,
        notes=made.notes,
        is_dry_run=is_dry_run,
        reach=reach,
        seconds=round(time.monotonic() - start, 3),
    )


@contextmanager
def _offering_another(disk: Files, source: str, to: str, progress: Progress) -> Iterator[None]:
    """Damage is raised with the generation to take instead, as a command."""
    try:
        yield
    except Corruption as error:
        if not is_backup(disk, source):
            raise
        name = checking.newest_whole(Backup(disk, source), progress)
        if name is None:
            hint = f"no generation is whole: lamina backup verify {shlex.quote(source)} names all damage"
        else:
            hint = f"the newest generation that is whole: {checking.restore_command(source, to, name)}"
        if error.hint == checking.AS_IT_WAS:
            hint += f"; {error.hint}"
        raise Corruption(error.file, error.offset, error.reason, hint=hint) from error


def _checked(without: Iterable[str]) -> frozenset[str]:
    found = frozenset(without)
    if unknown := sorted(found - places.PARTS):
        hint = f"one of {', '.join(sorted(places.PARTS))}"
        raise BadOption(f"{unknown[0]!r} is no part of a data folder", hint=hint, option="without")
    return found


@dataclass(slots=True)
class _Made:
    moment_ns: int
    logs: list[str]
    files: int
    bytes: int
    notes: list[str]


class _From:
    """What is to be restored, and the disk that it is read from."""

    def __init__(
        self,
        disk: Files,
        source: str,
        as_of: str | int | None,
        generation: str | None,
        without: frozenset[str],
        clock: Time,
    ) -> None:
        """Raises: BadOption; Corruption, DiskError."""
        self.disk, self.source, self.without, self._clock = disk, source, without, clock
        self.generation: Generation | None = None
        self.moment_ns = None if as_of is None else asking.moment(as_of, clock.sleep)
        if is_backup(disk, source):
            backup = Backup(disk, source)
            self.generation = self._choose(backup, generation)
            self.disk = GenerationDisk(backup, self.generation).files
            if self.moment_ns == self.generation.moment_ns:
                self.moment_ns = None  # as it is
        elif generation is not None:
            raise BadOption(f"{source} is no backup: it has no generations", hint="leave it out", option="generation")
        self._is_marked = mark.check(self.disk, source) > 0

    def _choose(self, backup: Backup, name: str | None) -> Generation:
        if name is not None and self.moment_ns is not None:
            raise BadOption("a generation and a time both say what to restore", hint="leave one out")
        if self.moment_ns is None:
            return backup.find(name)
        moments = {each: manifest.moment_of(each) or 0 for each in backup.names()}
        for each, moment_ns in moments.items():
            if moment_ns >= self.moment_ns:
                return backup.load(each)  # and no other: what is wrong with those is no matter here
        newest = backup.find(None)
        raise BadOption(
            f"{backup.folder} has nothing of {show_time(self.moment_ns)}",
            hint=f"its newest generation is of {show_time(newest.moment_ns)}",
        )

    def refuse_damaged(self) -> None:
        """Raises: Corruption if a generation is to be restored as it is that had damage when it was made."""
        if self.generation is not None and self.moment_ns is None:
            checking.refuse_damaged(self.generation, self.without)

    def look(self) -> _Made:
        """What would be made. Raises: as ``restore``."""
        if self.moment_ns is not None:
            plan = self._plan(self.moment_ns)
            sizes = [file.end for log in plan.logs for file in log.files]
            return self._of_plan(plan, self.moment_ns, len(sizes), sum(sizes))
        moment, sources, notes = self._sources()
        return self._of_sources(moment, sources, notes)

    def make(self, target: Making, progress: Progress) -> _Made:
        """Raises: as ``restore``."""
        if self.moment_ns is not None:
            return self._make_as_of(self.moment_ns, target, progress)
        for number in range(_TRIES):
            moment, sources, notes = self._sources(is_patient=number < collecting.PATIENCE)
            try:
                _copy(self.disk, sources, target, progress)
                return self._of_sources(moment, sources, notes)
            except Changed:
                if number == _TRIES - 1:
                    raise
                target.files.remove_folder(target.whole)
        raise AssertionError

    # -- as it is ----------------------------------------------------------------------------------------------------

    def _sources(self, *, is_patient: bool = True) -> tuple[int, list[Source], list[str]]:
        if self.generation is None:
            found = collecting.collect(
                self.disk, self.source, without=self.without, is_patient=is_patient, clock=self._clock
            )
            return found.moment_ns, found.sources, found.notes
        sources = []
        for file in self.generation.files:
            if file.path.partition("/")[0] not in self.without:
                folder, _, name = join(self.source, file.path).rpartition("/")
                sources.append(Source(file.path, folder, name, identity_of(file), file.bytes))
        return self.generation.moment_ns, sources, list(self.generation.notes)

    def _of_sources(self, moment_ns: int, sources: Sequence[Source], notes: list[str]) -> _Made:
        folders = {source.path.rpartition("/")[0] for source in sources if "/messages/" not in source.path}
        logs = sorted(folder for folder in folders if folder)
        return _Made(moment_ns, logs, len(sources), sum(source.size for source in sources), notes)

    # -- as of a time ------------------------------------------------------------------------------------------------

    def _plan(self, moment_ns: int) -> Plan:
        try:
            return planning.plan(self.disk, self.source, moment_ns, self.without)
        except TooOld as error:
            error.facts["reach"] = [each.as_dict() for each in reaching.reach(self.disk, self.source, self.without)]
            raise

    def _make_as_of(self, moment_ns: int, target: Making, progress: Progress) -> _Made:
        plan = self._plan(moment_ns)
        total = sum(file.end for log in plan.logs for file in log.files) or 1

        def run(tasks: Sequence[Copy]) -> list[Copied]:
            done, copied = 0, []
            for task in tasks:
                copied.append(copy_from(self.disk, target.files, task))
                done += sum(file.end for file in task.plan.files)
                progress(done, total)
            return copied

        plan, copied = copy_all(
            plan,
            lambda log, number: Copy(number, self.source, log, moment_ns, target.folder),
            run,
            lambda: self._plan(moment_ns),
        )
        gather(target.files, target, copied)
        if self._is_marked:
            mark.make(target.files, target.whole)
        return self._of_plan(plan, moment_ns, sum(one.files for one in copied), sum(one.bytes for one in copied))

    def _of_plan(self, plan: Plan, moment_ns: int, files: int, size: int) -> _Made:
        left_out = list(self.generation.notes) if self.generation else collecting.left_out(self.disk, self.source)
        return _Made(moment_ns, [log.place.path for log in plan.logs], files, size, [*left_out, *plan.notes])


def _copy(disk: Files, sources: Sequence[Source], target: Making, progress: Progress) -> None:
    """Durability: all files are synced, and their folders too. Raises: Changed; Corruption, DiskFull, DiskError."""
    files, total, done = target.files, sum(source.size for source in sources), 0
    folders = {target.whole}
    try:
        files.make_folder(target.whole)
        for source in sources:
            folder, _, name = join(target.whole, source.path).rpartition("/")
            if folder not in folders:
                files.make_folder(folder)
                folders.add(folder)
            done += write_new(files, join(folder, name), source.chunks(disk))
            progress(done, total)
        for folder in sorted(folders, reverse=True):
            files.sync_folder(folder)
    except OSError as error:
        raise from_os(error, "restore to", target.whole) from error
