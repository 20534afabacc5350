"""Looking through every byte of a store, changing nothing: what ``lamina store verify`` and ``inspect`` show.

Needs no lock. Beside a running store files are rotated and removed meanwhile: what is missing is asked for once more
before it is called so, and the end of an active file is not looked at too closely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file, hints, salvage
from lamina.engines.store.catalog import Catalog, Part
from lamina.engines.store.cleaning import obsolete
from lamina.engines.store.codec import NOTHING_REACHED, Reached
from lamina.engines.store.epoch_file import Epochs
from lamina.engines.store.fold import Fold
from lamina.engines.store.inputs import RUN
from lamina.engines.store.opening import lost_of_epochs
from lamina.engines.store.reading import FileRead, fold_file
from lamina.engines.store.salvage import Bad
from lamina.engines.store.sorted_file import SortedFile
from lamina.engines.store.table import Table
from lamina.engines.store.targets import MANIFEST
from lamina.errors import Corruption, DiskError, StorageError, WrongFormat, from_os
from lamina.log import kernel
from lamina.log.files import Files, file_size, join
from lamina.log.formats import PWAL as FORMAT
from lamina.log.frame import REASONS
from lamina.log.naming import PWAL, FileName, Listing, sort_out
from lamina.log.recovery import chunks_of
from lamina.log.segment import check_header, open_for_reading
from lamina.log.survey import Progress, Torn

CHANNEL: Final = "channel"
EPOCHS: Final = "epochs"
PART: Final = "part"


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that was whole once and is not, or is not there."""

    file: str
    offset: int
    end: int
    reason: str
    is_needed: bool = True
    """False: the store does without it; only reads as of an earlier epoch may miss it."""
    is_missing: bool = False
    is_between: bool = False
    """What is missing is whole files before this one, whose names nobody knows."""
    error: DiskError | None = None
    """The disk refused to read it: whether it is damaged is not known."""


@dataclass(slots=True)
class FileFacts:
    """One file, looked through."""

    name: str
    kind: str
    """CHANNEL, EPOCHS or PART."""
    bytes: int = 0
    sessions: int = 0
    """That count: durable, and not void."""
    entries: int = 0
    first_epoch: int = 0
    last_epoch: int = 0
    """Of all sessions, also those that do not count; of an epoch file: the last durable one."""
    last_ns: int = 0
    vouches_ns: int = 0
    """How far it says that the file before it reached."""
    reached: Reached = NOTHING_REACHED
    """How far it says that the epoch file had come."""
    is_active: bool = False
    is_merged: bool = False


@dataclass(slots=True)
class VerifyReport:
    """A store, looked through."""

    folder: str
    holder: str | None = None
    """The process that writes here, if one does."""
    catalog: Catalog | None = None
    """None: it cannot be read."""
    durable: int = 0
    """Everything of sessions up to this epoch is on the disk."""
    reached: Reached = NOTHING_REACHED
    """How far the epoch file had come, by what files of channels say that are in no part."""
    voids: list[tuple[int, int]] = field(default_factory=list)
    files: list[FileFacts] = field(default_factory=list)
    torn: list[Torn] = field(default_factory=list)
    damage: list[Damage] = field(default_factory=list)
    dead_bytes: int = 0
    """Of files that clean-up would remove; 0 if something is damaged: then it removes nothing."""
    leftovers: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    is_backup: bool = False
    """It has a manifest: ``backup.check_backup`` compares it with that."""

    @property
    def is_sound(self) -> bool:
        """Nothing that the store needs is damaged. Torn tails are what a crash leaves."""
        return not any(damage.is_needed for damage in self.damage)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    @property
    def channels(self) -> list[str]:
        return sorted({file.name[:9] for file in self.files if file.kind == CHANNEL})


def verify(
    files: Files,
    folder: str,
    progress: Progress = lambda done, total: None,
    *,
    catalog: Catalog | None = None,
    beside_writer: bool = True,
    is_quick: bool = False,
) -> VerifyReport:
    """Look through all files of a store. ``catalog``: as if that was its catalog.

    ``beside_writer``: whoever holds the lock may be writing; False: the caller holds it, and is not.
    ``is_quick``: only what a start reads: sessions that are in no part, the newest epoch file, and of parts the size.
    Raises: DiskError; damage is reported, never raised.
    """
    names = _list(files, folder)
    listing = sort_out(names)
    report = VerifyReport(folder, files.lock_holder(join(folder, PWAL.lock_name)) if beside_writer else None)
    report.leftovers, report.is_backup = listing.leftovers, MANIFEST in names
    report.foreign = [name for name in listing.foreign if name != MANIFEST]
    total = sum(_size(files, folder, name.name) for name in listing.segments)
    look = _Look(files, report, listing, lambda done: progress(done, total), is_quick=is_quick)
    epochs = look.at_epochs()  # before the channels: what is durable now will be found in them
    look.at_catalogs(names, catalog, epochs)
    look.at_parts()
    look.at_channels(epochs)
    look.for_missing(epochs, set(names))
    if report.catalog is not None and report.is_sound and not is_quick:
        working = [name for name in names if name.startswith(RUN)] if report.holder else []
        report.dead_bytes = sum(size for _, size in obsolete(files, folder, report.catalog, keep=working))
    return report


class _Look:
    def __init__(
        self,
        files: Files,
        report: VerifyReport,
        listing: Listing,
        progress: Callable[[int], None],
        *,
        is_quick: bool,
    ) -> None:
        self._files, self._folder = files, report.folder
        self._report, self._listing, self._progress = report, listing, progress
        self._is_quick = is_quick
        self._gaps: list[tuple[int, Damage]] = []  # in what epoch files say, each with the epoch that is known again
        self._ends: dict[str, int] = {}  # of rotated files: the time that each has to reach
        self._formers: list[Catalog] = []  # those that can be read

    def _add(self, facts: FileFacts) -> None:
        self._report.files.append(facts)
        self._progress(self._report.bytes)

    # -- epochs ------------------------------------------------------------------------------------------------------

    def at_epochs(self) -> Epochs:
        """All epoch files. Returns what the newest says that holds a record."""
        newest = Epochs()
        before = 0
        last: FileName | None = None
        is_whole = True  # the one before
        streams = self._listing.of_stream(epoch_file.NAME)
        for name in streams[-2:] if self._is_quick else streams:
            one = Epochs()
            is_active = name.name == epoch_file.NAME
            is_newest = name is streams[-1]
            facts = FileFacts(name.name, EPOCHS, _size(self._files, self._folder, name.name), is_active=is_active)
            try:
                epoch_file.read_file(self._files, self._folder, name, one, may_be_torn=is_active)
                if one.records and one.durable < before:
                    reason = f"it ends with epoch {one.durable}, the file before it with {before}"
                    raise Corruption(name.name, 0, reason, hint=hints.DAMAGED)
                if one.records and last is not None:
                    epoch_file.check_follows(self._files, self._folder, name.name, one, last.name)
                if one.records:
                    if is_whole:
                        self._look_for_gap(name.name, one, before, is_first=last is None)
                    last, is_whole = name, not one.has_gap
            except FileNotFoundError:
                continue  # removed or rotated since the folder was listed
            except (Corruption, WrongFormat) as error:
                is_whole = False
                self._bad(error, facts.bytes, is_needed=is_newest)
            except DiskError as error:
                is_whole = False
                self._unreadable(name.name, error, is_needed=is_newest)
            self._ends |= one.ends
            if one.torn_at is not None and self._report.holder is None:
                self._report.torn.append(
                    Torn(name.name, one.torn_at, facts.bytes - one.torn_at, "the last record is not whole")
                )
            facts.entries, facts.last_epoch, facts.last_ns = one.records, one.durable, one.last_ns
            facts.first_epoch = one.history[0][1] if one.history else 0
            before = max(before, one.durable)
            if one.records:
                one.last_ns = max(one.last_ns, newest.last_ns)
                newest = one
            newest.last_ns = max(one.last_ns, newest.last_ns)
            newest.active_end = one.active_end if is_active else None
            self._add(facts)
        self._report.durable, self._report.voids = newest.durable, list(newest.voids)
        return newest

    def _look_for_gap(self, name: str, one: Epochs, before: int, *, is_first: bool) -> None:
        """Each file begins with the epoch with which the one before it ended, but for void ones."""
        head = one.begun_with
        if head is None or (is_first and self._is_quick):
            return
        if epoch_file.through_voids(before, one.voids) < head:
            what = "files before it are missing" if is_first else f"the file before it ends with epoch {before}"
            reason = f"it begins with epoch {head}, {what}: when epochs became durable is not known"
            self._gaps.append((head, Damage(name, 0, 0, reason, is_needed=False, is_between=True)))

    def _bad(self, error: Corruption | WrongFormat, end: int, *, is_needed: bool = True) -> None:
        self._report.damage.append(Damage(error.file, error.offset, max(end, error.offset), error.reason, is_needed))

    def _unreadable(self, name: str, error: DiskError, *, is_needed: bool) -> None:
        self._report.damage.append(Damage(name, 0, 0, error.message, is_needed, error=error))

    # -- the baseline ------------------------------------------------------------------------------------------------

    def at_catalogs(self, names: Iterable[str], given: Catalog | None, epochs: Epochs) -> None:
        try:
            self._report.catalog = given or catalogs.load(self._files, self._folder, at_least=epochs.generation)
        except (Corruption, WrongFormat) as error:
            self._bad(error, error.offset)
        catalog = self._report.catalog
        for name in () if self._is_quick else sorted(names):
            generation = catalogs.former_generation(name)
            if generation is not None:
                try:
                    former = catalogs.load_former(self._files, self._folder, generation)
                except (Corruption, WrongFormat) as error:
                    self._bad(error, error.offset, is_needed=False)
                else:
                    self._formers += [] if former is None else [former]
        if catalog is not None and catalog.epoch > self._report.durable:
            reason = f"the durable epoch is {self._report.durable}, but the catalog is of epoch {catalog.epoch}"
            self._report.damage.append(Damage(self._newest_epoch_file(), 0, 0, reason))
        oldest = self._oldest()
        self._report.damage += [damage for head, damage in self._gaps if head > oldest]  # else they were cleaned up

    def _oldest(self) -> int:
        """The epoch back to which everything should be there."""
        known = [] if self._report.catalog is None else [self._report.catalog]
        return min((catalog.epoch for catalog in [*known, *self._formers]), default=0)

    def _newest_epoch_file(self) -> str:
        known = self._listing.of_stream(epoch_file.NAME)
        return known[-1].name if known else epoch_file.NAME

    def at_parts(self) -> None:
        catalog = self._report.catalog or Catalog()
        named = {part.name: part for part in catalog.parts}
        for part in catalog.parts:
            self._at_part(part.name, part)
        if self._is_quick:
            return
        formers = {part.name: part for former in self._formers for part in former.parts if part.name not in named}
        for part in formers.values():
            self._at_part(part.name, part, is_needed=False)
        for name in self._listing.segments:
            if name.is_part and name.name not in named and name.name not in formers:
                self._at_part(name.name, None, is_needed=False)

    def _at_part(self, name: str, part: Part | None, *, is_needed: bool = True) -> None:
        facts = FileFacts(name, PART, is_merged=not is_needed)
        try:
            facts.bytes = _size(self._files, self._folder, name)
            self._look_at_part(name, part, facts)
        except FileNotFoundError:
            if part is None or self._is_outdated() or not (is_needed or self._has_all_formers()):
                return
            reason = f"{'the' if is_needed else 'a former'} catalog names this file, and it is not there"
            self._report.damage.append(Damage(name, 0, 0, reason, is_needed, is_missing=True))
        except (Corruption, WrongFormat) as error:
            self._bad(error, facts.bytes, is_needed=is_needed)
        except DiskError as error:
            self._unreadable(name, error, is_needed=is_needed)
        self._add(facts)

    def _look_at_part(self, name: str, part: Part | None, facts: FileFacts) -> None:
        """Raises: Corruption, WrongFormat, FileNotFoundError, DiskError."""
        if self._is_quick:
            SortedFile.open(self._files, self._folder, name, part).close()
            if part is not None and part.bytes != facts.bytes:
                reason = f"the file has {facts.bytes} bytes, the catalog says {part.bytes}"
                raise Corruption(name, min(part.bytes, facts.bytes), reason, hint=hints.DAMAGED)
            return
        file = open_for_reading(self._files, self._folder, name)
        try:
            crc = 0
            for chunk in chunks_of(file, 0, file.size()):
                crc = kernel.crc32c(chunk, crc)
        except OSError as error:
            raise from_os(error, "read the file", join(self._folder, name)) from error
        finally:
            file.close()
        opened = SortedFile.open(self._files, self._folder, name, part)
        try:
            for places, _ in opened.batches():
                facts.entries += len(places)
        finally:
            opened.close()
        if facts.entries != opened.entries:
            reason = f"{facts.entries} entries are in it, its end says {opened.entries}"
            raise Corruption(name, 0, reason, hint=hints.DAMAGED)
        if part is not None and part.crc != crc:
            raise Corruption(name, 0, "the checksum of the file is not that in the catalog", hint=hints.DAMAGED)

    def _has_all_formers(self) -> bool:
        """None was cleaned up meanwhile: clean-up takes them before it takes what they need."""
        names = set(_list(self._files, self._folder))
        return all(catalogs.former_name(former.generation) in names for former in self._formers)

    def _is_outdated(self) -> bool:
        """Another generation was committed meanwhile."""
        catalog = self._report.catalog
        try:
            return catalog is not None and catalogs.load(self._files, self._folder).generation != catalog.generation
        except StorageError:
            return False

    # -- channels ----------------------------------------------------------------------------------------------------

    def at_channels(self, epochs: Epochs) -> None:
        merged = set(self._report.catalog.merged if self._report.catalog else ())
        for name in self._listing.segments:
            if not name.stream.startswith("pwal_") or name.is_part or (self._is_quick and name.name in merged):
                continue
            self._at_channel(name, epochs, is_merged=name.name in merged)

    def _at_channel(self, name: FileName, epochs: Epochs, *, is_merged: bool) -> None:
        facts = FileFacts(name.name, CHANNEL, is_active=not name.is_closed, is_merged=is_merged)
        fold = Fold(0, epochs.durable, epochs.voids)
        try:
            facts.bytes = _size(self._files, self._folder, name.name)
            try:
                read = fold_file(
                    self._files,
                    self._folder,
                    name.name,
                    fold,
                    Table(),
                    may_be_torn=facts.is_active,
                    step=lambda at: Table(),  # only looked through, so that memory does not grow with the file
                )
            except Corruption as error:
                self._all_damage(name.name, error, facts, fold)
            else:
                self._note(facts, fold, read)
        except FileNotFoundError:
            return  # rotated or removed since the folder was listed
        except WrongFormat as error:
            self._bad(error, facts.bytes, is_needed=not is_merged)
        except DiskError as error:
            self._unreadable(name.name, error, is_needed=not is_merged)
        self._add(facts)

    def _note(self, facts: FileFacts, fold: Fold, read: FileRead) -> None:
        facts.sessions, facts.entries = fold.sessions, fold.taken
        facts.first_epoch, facts.last_epoch, facts.last_ns = fold.first_epoch, fold.newest_epoch, read.last_ns
        facts.vouches_ns, facts.reached = read.vouches_ns, read.reached
        if read.is_torn and self._report.holder is None:
            self._report.torn.append(Torn(facts.name, read.whole, read.bytes - read.whole, REASONS[read.why]))

    def _all_damage(self, name: str, error: Corruption, facts: FileFacts, fold: Fold) -> None:
        """The first damage is ``error``; look for where the file goes on, and for more of it."""
        file = open_for_reading(self._files, self._folder, name)
        found: list[Damage] = []
        try:
            facts.reached = salvage.reached(file, file_size(file))
            has_header = _has_header(self._files, self._folder, name)
            for each in salvage.sessions(file, file_size(file), has_header=has_header):
                if isinstance(each, Bad):
                    if not each.is_unfinished or counts(each.epoch, fold.until, fold.voids):
                        found.append(Damage(name, each.start, each.end, each.reason, not facts.is_merged))
                    continue
                facts.first_epoch = facts.first_epoch or each.epoch
                facts.last_epoch, facts.last_ns = each.epoch, each.last_ns
                if counts(each.epoch, fold.until, fold.voids):
                    facts.sessions, facts.entries = facts.sessions + 1, facts.entries + each.entries
        finally:
            file.close()
        if not found:
            found.append(Damage(name, error.offset, facts.bytes, error.reason, not facts.is_merged))
        self._report.damage += found

    # -- what is not there -------------------------------------------------------------------------------------------

    def for_missing(self, epochs: Epochs, names: set[str]) -> None:
        """Files that the epoch file knows, and ends of files that it vouches for."""
        catalog = self._report.catalog or Catalog()
        now = set(_list(self._files, self._folder)) if self._report.holder else names
        for name in epochs.files:
            is_in_parts = name in catalog.merged or (catalogs.rotated_epoch(name) or 0) <= catalog.epoch
            if name not in now and not is_in_parts and not self._is_outdated():
                reason = "the epoch file names this file, and it is not there"
                self._report.damage.append(Damage(name, 0, 0, reason, is_missing=True))
        newest = max((facts.last_epoch for facts in self._report.files if facts.kind == CHANNEL), default=0)
        if newest and not epochs.records and not self._report.holder:
            # Its first record is synced before the first session is written.
            reason = f"no epoch file says what is durable, though there are sessions up to epoch {newest}"
            self._report.damage.append(Damage(self._newest_epoch_file(), 0, 0, reason, is_missing=True))
        for facts in self._report.files:
            if facts.kind == CHANNEL and not facts.is_merged:
                self._report.reached = self._report.reached.joined(facts.reached)
        self._for_end_of_epochs(epochs)
        if not self._is_quick and self._has_all_formers() and not self._is_outdated():
            self._for_merged(catalog, now)
        damaged = {damage.file[:9] for damage in self._report.damage}
        for channel, (time_ns, epoch) in epochs.attested.items():
            stream = f"pwal_{channel:04d}"
            its = [facts for facts in self._report.files if facts.kind == CHANNEL and facts.name.startswith(stream)]
            was, is_now = ({name for name in some if name.startswith(stream)} for some in (names, now))
            if epoch <= catalog.epoch or stream in damaged or was != is_now:
                continue
            for before, facts in pairwise(its):
                if before.last_ns < facts.vouches_ns and not before.is_merged:
                    reason = f"the end of the file is gone, {facts.name} vouches for more"
                    self._report.damage.append(Damage(before.name, before.bytes, before.bytes, reason))
            if max((facts.last_ns for facts in its), default=0) < time_ns:
                last = its[-1] if its else FileFacts(stream, CHANNEL)
                reason = f"the end of the file is gone, though epoch {epoch} is durable"
                self._report.damage.append(Damage(last.name, last.bytes, last.bytes, reason, is_missing=not its))

    def _for_merged(self, catalog: Catalog, now: set[str]) -> None:
        """Files that only reads as of an earlier epoch need; ends of rotated files that nothing else vouches for."""
        report, oldest = self._report, self._oldest()
        for name in catalog.merged:
            if name not in now and (catalogs.rotated_epoch(name) or 0) > oldest:
                reason = "the file is not there, though a former catalog is that needs it"
                report.damage.append(Damage(name, 0, 0, reason, is_needed=False, is_missing=True))
        known = {damage.file for damage in report.damage}
        for facts in report.files:
            if facts.name not in known and facts.kind == CHANNEL and facts.last_ns < self._ends.get(facts.name, 0):
                reason = "the end of the file is gone, an epoch file vouches for more"
                report.damage.append(Damage(facts.name, facts.bytes, facts.bytes, reason, not facts.is_merged))

    def _for_end_of_epochs(self, epochs: Epochs) -> None:
        """That it reaches as far as the channels say."""
        reached, report = self._report.reached, self._report
        if lost_of_epochs(reached, epochs) and report.holder:  # it has gone on since
            try:
                epochs = epoch_file.read(self._files, self._folder, _list(self._files, self._folder))
            except (Corruption, WrongFormat, DiskError):
                return  # told, or rotated this moment
        reason = lost_of_epochs(reached, epochs)
        is_known = any(damage.file.startswith(epoch_file.NAME) and damage.is_needed for damage in report.damage)
        if reason and not is_known:
            at = epochs.active_end or 0
            report.damage.append(Damage(epoch_file.NAME, at, at, reason, is_missing=epochs.active_end is None))


def counts(epoch: int, durable: int, voids: Iterable[tuple[int, int]]) -> bool:
    """A session of that epoch is one of the store's."""
    return 0 < epoch <= durable and not any(first <= epoch <= last for first, last in voids)


def _has_header(files: Files, folder: str, name: str) -> bool:
    file = open_for_reading(files, folder, name)
    try:
        check_header(file, name, FORMAT)
    except (Corruption, WrongFormat):
        return False
    finally:
        file.close()
    return True


def _list(files: Files, folder: str) -> list[str]:
    try:
        return files.list(folder)
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def _size(files: Files, folder: str, name: str) -> int:
    """0 if it is not there, or cannot be opened: reading it says why."""
    try:
        file = open_for_reading(files, folder, name)
    except (FileNotFoundError, DiskError):
        return 0
    try:
        return file_size(file)
    finally:
        file.close()


def as_dict(report: VerifyReport) -> dict[str, object]:
    """What ``lamina store verify --json`` prints."""
    catalog = report.catalog
    return {
        "folder": report.folder,
        "writer": report.holder,
        "sound": report.is_sound,
        "durable_epoch": report.durable,
        "void_epochs": [list(each) for each in report.voids],
        "generation": catalog.generation if catalog else None,
        "compacted_epoch": catalog.epoch if catalog else None,
        "channels": report.channels,
        "bytes": report.bytes,
        "dead_bytes": report.dead_bytes,
        "files": [
            {
                "file": file.name,
                "kind": file.kind,
                "bytes": file.bytes,
                "sessions": file.sessions,
                "entries": file.entries,
                "first_epoch": file.first_epoch,
                "last_epoch": file.last_epoch,
                "active": file.is_active,
                "merged": file.is_merged,
            }
            for file in report.files
        ],
        "torn": [
            {"file": torn.file, "offset": torn.offset, "bytes": torn.bytes, "reason": torn.reason}
            for torn in report.torn
        ],
        "damage": [
            {
                "file": damage.file,
                "offset": damage.offset,
                "end": damage.end,
                "reason": damage.reason,
                "needed": damage.is_needed,
            }
            for damage in report.damage
        ],
        "leftovers": report.leftovers,
        "foreign": report.foreign,
    }
