"""Clean-up: taking away the files that a compaction left, which nothing needs any more.

What goes: rotated files that the catalog calls merged, and rotated epoch files up to its epoch; parts that no catalog
names; former catalogs; working files and parts that a compaction which was cut short left.

What stays, whatever the catalog says: what somebody reads, rotated files that a consumer of the log has yet to read
(log/consumers.py), what reads as of an earlier epoch need, what an unfinished compaction goes on from, and the newest
rotated epoch file, from which the durable epoch is known should the active one be lost.

Reading as of epoch X begins with a catalog of an epoch up to X and goes on with the rotated files behind that epoch.
Invariant: while a former catalog is there, its parts are, and so is every rotated file behind its epoch. So former
catalogs go first, and the rest only when they are gone for good. The names leave the catalog last: a name in it whose
file is gone does no harm, a file that is merged and not named would be one to wonder about.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from lamina.clock import SystemClock
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file
from lamina.engines.store.catalog import PROGRESS, Catalog
from lamina.errors import Corruption, WrongFormat, from_os
from lamina.log import consumers, rewrite
from lamina.log.consumer_file import Consumer
from lamina.log.files import Files, file_size, join, read_at
from lamina.log.history import Base, History
from lamina.log.naming import parse, sort_out
from lamina.log.reader import Reader
from lamina.log.segment import open_for_reading
from lamina.log.unread import unread

_RUN: Final = re.compile(r"run(?:\.[a-z]?[0-9]+)+")
_IN_PROGRESS: Final = re.compile(rb"pwal_compacted\.[0-9]+\.[0-9]+|run(?:\.[a-z]?[0-9]+)+")


@dataclass(frozen=True, slots=True)
class CleanUp:
    """What was done."""

    removed: list[str]
    bytes: int
    """Of the files that were removed."""
    kept: list[str]
    """Would have gone, but is being read, or yet to be read, or within the reach of reads as of an earlier epoch."""
    catalog: Catalog
    """The catalog now."""


@dataclass(slots=True)
class _Plan:
    formers: list[str]
    """Catalogs, which go first."""
    others: list[str]
    kept: list[str]


def obsolete(
    files: Files,
    folder: str,
    catalog: Catalog,
    *,
    keep: Collection[str] = (),
    keep_after_epoch: int | None = None,
    history: History | None = None,
    now_ns: int | None = None,
) -> list[tuple[str, int]]:
    """What ``clean_up`` would remove: names and bytes. Changes nothing. Raises: DiskError."""
    now_ns = SystemClock().now_ns() if now_ns is None else now_ns
    holding = consumers.holding(files, folder, now_ns)
    plan = _Planning(files, folder, catalog).plan(keep, keep_after_epoch, history, now_ns, holding)
    return [
        (name, size) for name in [*plan.formers, *plan.others] if (size := size_of(files, folder, name)) is not None
    ]


def clean_up(
    files: Files,
    folder: str,
    catalog: Catalog,
    *,
    keep: Collection[str] = (),
    keep_after_epoch: int | None = None,
    history: History | None = None,
    now_ns: int | None = None,
) -> CleanUp:
    """Remove what is obsolete. ``catalog`` is the present one, and no compaction is running.

    ``keep``: names of files that somebody reads, the working files (``run...``) of an open store among them.
    ``keep_after_epoch``: reads as of this epoch and later ones stay possible, if they are now; ``history``: those that
        it asks for, as far as they have room.
    ``now_ns``: by which consumers' positions expire; None: by the clock of the machine.

    Durability: when it returns, the files are gone for good. A crash at any point leaves a store with the same content.
    Raises: Corruption if a part is not there or has not its size: then nothing was removed; ValueError if ``catalog``
        is not the present one; DiskError, DiskFull: then some are removed, and trying again goes on from there.
    """
    if catalogs.load(files, folder).generation != catalog.generation:
        raise ValueError(f"generation {catalog.generation} is not that of the catalog in {folder}")
    catalogs.check_parts(files, folder, catalog)
    now_ns = SystemClock().now_ns() if now_ns is None else now_ns
    holding = consumers.tidy(files, folder, now_ns)
    plan = _Planning(files, folder, catalog).plan(keep, keep_after_epoch, history, now_ns, holding)
    freed = 0
    for names in (plan.formers, plan.others):
        if names:
            sizes = [size_of(files, folder, name) or 0 for name in names]
            rewrite.remove(files, folder, names)
            freed += sum(sizes)
    there = set(_list(files, folder))
    left = tuple(name for name in catalog.merged if name in there)
    if left != catalog.merged:
        catalog = replace(catalog, merged=left)
        catalogs.replace(files, folder, catalog)
    return CleanUp([*plan.formers, *plan.others], freed, plan.kept, catalog)


class _Planning:
    """What goes and what stays, by the names in the folder and by what catalogs say."""

    def __init__(self, files: Files, folder: str, catalog: Catalog) -> None:
        self._files, self._folder, self._catalog = files, folder, catalog
        self._names = _list(files, folder)
        self._formers = _formers(files, folder, self._names)

    def plan(
        self,
        keep: Collection[str],
        keep_after_epoch: int | None,
        history: History | None,
        now_ns: int,
        holding: Sequence[Consumer],
    ) -> _Plan:
        catalog, names = self._catalog, self._names
        bases: list[Catalog] = []
        if keep_after_epoch is not None:
            known = [former for former in self._formers.values() if former is not None]
            bases = [_oldest_needed([*known, catalog], keep_after_epoch)]
        elif history is not None:
            bases = self._recent(history, now_ns)
        oldest = min([*(base.epoch for base in bases), catalog.epoch])
        generations = {base.generation for base in bases}
        present = {part.name for part in catalog.parts}
        needed = present | {part.name for base in bases for part in base.parts}
        needed |= in_progress(self._files, self._folder)
        newest_epoch_file = max(
            (parsed for name in names if name.startswith("epoch.") and (parsed := parse(name)) is not None),
            default=None,
        )
        could_go: list[str] = []
        within_reach: list[str] = []
        merged = set(catalog.merged)
        for name in names:
            epoch = catalogs.rotated_epoch(name)
            if epoch is not None:
                is_merged = name in merged or (not catalogs.is_rotated_pwal(name) and epoch <= catalog.epoch)
                if not is_merged or (newest_epoch_file is not None and name == newest_epoch_file.name):
                    continue
                (within_reach if epoch > oldest else could_go).append(name)
            elif catalogs.part_generation(name) is not None:
                if name not in needed:
                    could_go.append(name)
                elif name not in present:
                    within_reach.append(name)
            elif name in self._formers:
                former = self._formers[name]
                is_base = former is not None and former.generation in generations
                (within_reach if is_base else could_go).append(name)
            elif _RUN.fullmatch(name) and name not in needed:
                could_go.append(name)
        keep = {*keep, *_yet_to_be_read(self._files, self._folder, could_go, holding)}
        goes = [name for name in could_go if name not in keep]
        # Oldest first.
        goes.sort(key=lambda name: (catalogs.rotated_epoch(name) or catalogs.part_generation(name) or 0, name))
        kept = sorted({*within_reach, *(name for name in could_go if name in keep)})
        return _Plan(
            [name for name in goes if name in self._formers],
            [name for name in goes if name not in self._formers],
            kept,
        )

    def _recent(self, history: History, now_ns: int) -> list[Catalog]:
        """Former catalogs that stay for the recent past."""
        catalog = self._catalog
        known = [former for former in self._formers.values() if former is not None and former.epoch <= catalog.epoch]
        formers = sorted(known, key=lambda former: (former.epoch, former.generation)) if history.keep_s else []
        if not formers:
            history.forget(self._folder)
            return []
        present = {part.name for part in catalog.parts}
        rotated = [(epoch, name) for name in self._names if (epoch := catalogs.rotated_epoch(name)) is not None]
        later = [0] * len(formers)  # bytes of files up to the next of them
        for epoch, name in rotated:
            if formers[0].epoch < epoch <= catalog.epoch:
                at = sum(former.epoch < epoch for former in formers) - 1
                later[at] += size_of(self._files, self._folder, name) or 0
        bases = []
        for former, later_bytes in zip(formers, later, strict=True):
            name = catalogs.former_name(former.generation)
            its = {part.name: part.bytes for part in former.parts if part.name not in present}
            its[name] = size_of(self._files, self._folder, name) or 0
            bases.append(Base(self._shows_since(former), its, later_bytes))
        kept = history.bases(self._folder, bases, self._shows_since(catalog), now_ns)
        return [formers[number] for number in kept]

    def _shows_since(self, catalog: Catalog) -> int:
        """From when on each moment is known by an epoch that the catalog reaches back to: the first record of the epoch
        file that was begun when it was."""
        if not catalog.epoch:
            return 0
        later = [name for name in epoch_file.names_of(self._names) if _is_later(name.name, catalog.epoch)]
        since = epoch_file.begun_at(self._files, self._folder, later[0].name) if later else None
        return catalog.time_ns if since is None else since


def _is_later(name: str, epoch: int) -> bool:
    rotated = catalogs.rotated_epoch(name)
    return rotated is None or rotated > epoch


def _yet_to_be_read(files: Files, folder: str, names: list[str], holding: Sequence[Consumer]) -> Iterator[str]:
    """Rotated files that a consumer waits for."""
    if holding:
        rotated = sort_out(name for name in names if catalogs.rotated_epoch(name) is not None)
        for stream, its in rotated.streams().items():
            yield from (name.name for name in unread(Reader(folder, stream=stream, files=files), its, holding))


def _formers(files: Files, folder: str, names: list[str]) -> dict[str, Catalog | None]:
    """Former catalogs by file name; None for one from which nothing can be read."""
    formers: dict[str, Catalog | None] = {}
    for name in names:
        generation = catalogs.former_generation(name)
        if generation is not None:
            formers[name] = usable_former(files, folder, generation)
    return formers


def usable_former(files: Files, folder: str, generation: int) -> Catalog | None:
    try:
        former = catalogs.load_former(files, folder, generation)
        if former is not None:
            catalogs.check_parts(files, folder, former)
    except (Corruption, WrongFormat):
        return None
    return former


def _oldest_needed(known: list[Catalog], epoch: int) -> Catalog:
    """The catalog from which a read as of ``epoch`` begins; if none reaches back so far, the one that does the most."""
    known = sorted(known, key=lambda catalog: (catalog.epoch, catalog.generation))
    reaching = [catalog for catalog in known if catalog.epoch <= epoch]
    return reaching[-1] if reaching else known[0]


def in_progress(files: Files, folder: str) -> set[str]:
    """Files that a compaction goes on from, by what it wrote down."""
    try:
        file = open_for_reading(files, folder, PROGRESS)
    except FileNotFoundError:
        return set()
    try:
        text = read_at(file, 0, file_size(file))
    finally:
        file.close()
    return {match.decode("ascii") for match in _IN_PROGRESS.findall(text)}


def _list(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def size_of(files: Files, folder: str, name: str) -> int | None:
    """None: the file is not there."""
    try:
        file = open_for_reading(files, folder, name)
    except FileNotFoundError:
        return None
    try:
        return file.size()
    except OSError as error:
        raise from_os(error, "look at the file", join(folder, name)) from error
    finally:
        file.close()
