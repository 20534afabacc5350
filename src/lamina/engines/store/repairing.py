"""Making a damaged store one that opens again, losing as little as can be and saying what.

    leftovers, working files         removed, as when the store is opened
    catalog, or one of its parts     the newest former catalog takes its place, or the older copy that is there, if its
                                     parts are whole and every rotated file after its epoch is there: then nothing is
                                     lost
    epoch file                       completed by what files of channels say of it, if they say it of all sessions that
                                     are in no part (after an orderly close they do): then nothing is lost
    file of a channel                rewritten with its whole sessions; damaged bytes are kept aside     only if the
    epoch file otherwise             rewritten with its whole records; the same                          loss is
    file that is not there           an empty one is put in its place                                    accepted

Torn tails are left to opening, which cuts them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from lamina.clock import Clock
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file, salvage, verifying
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.epoch_file import Epochs
from lamina.engines.store.inputs import RUN
from lamina.engines.store.salvage import Bad, Whole
from lamina.engines.store.verifying import Damage, VerifyReport, counts, verify
from lamina.errors import Corruption, StorageError, WrongFormat, from_os
from lamina.log import kernel, lock, rewrite
from lamina.log.files import File, Files, read_at
from lamina.log.formats import EPOCH, Format
from lamina.log.formats import PWAL as CHANNEL
from lamina.log.naming import PWAL, sort_out
from lamina.log.recovery import chunks_of, keep_aside
from lamina.log.scan import FileScan
from lamina.log.segment import check_header, open_for_reading

_ROTATED: Final = re.compile(rb"(?:pwal_[0-9]{4}|epoch)\.[0-9]{14}\.[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Lost:
    """Bytes that were taken out of a file, and what they may have held."""

    file: str
    offset: int
    bytes: int
    reason: str
    kept_as: str
    """Where the bytes are now; empty: there were none."""
    after_epoch: int
    until_epoch: int
    """Sessions of epochs above the one up to the other are gone: at least one, at most all of this channel."""

    def __str__(self) -> str:
        epochs = (
            f"epoch {self.until_epoch}"
            if self.until_epoch == self.after_epoch + 1
            else f"epochs {self.after_epoch + 1} to {self.until_epoch}"
        )
        kept = f"{self.bytes} bytes kept in {self.kept_as}" if self.kept_as else "no bytes to keep"
        return f"{self.file}, byte {self.offset}: {self.reason}; sessions of {epochs} may be lost; {kept}"


@dataclass(slots=True)
class RepairReport:
    """What was done, what is lost, and what could not be repaired."""

    done: list[str] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """In words: the damage, and what repairing it would cost."""
    left_alone: list[str] = field(default_factory=list)
    """Damage in files that only reads as of an earlier epoch may miss, if anyone: clean-up removes them."""

    @property
    def is_sound(self) -> bool:
        return not self.left


def repair(files: Files, folder: str, clock: Clock, *, accept_loss: bool = False) -> RepairReport:
    """Repair a store that nobody has open. Without ``accept_loss`` only what costs nothing.

    Durability: when it returns, what was done is on the disk. A crash leaves each file as it was, or repaired.
    Raises: LogLocked; DiskError, DiskFull.
    """
    held = lock.take(files, folder, PWAL.lock_name)
    try:
        return repair_held(files, folder, clock, accept_loss=accept_loss)
    finally:
        held.release()


def repair_held(files: Files, folder: str, clock: Clock, *, accept_loss: bool = False) -> RepairReport:
    """The same for who holds the lock of the folder."""
    try:
        work = _Repair(files, folder, clock, accept_loss=accept_loss)
        work.remove_leftovers()
        work.baseline()
        work.other_files()
        return work.report
    except OSError as error:
        raise from_os(error, "repair the store in", folder) from error


class _Repair:
    def __init__(self, files: Files, folder: str, clock: Clock, *, accept_loss: bool) -> None:
        self._files, self._folder, self._clock, self._accept_loss = files, folder, clock, accept_loss
        self.report = RepairReport()

    def remove_leftovers(self) -> None:
        names = self._files.list(self._folder)
        gone = sorted([*sort_out(names).leftovers, *(name for name in names if name.startswith(RUN))])
        gone = list(dict.fromkeys(gone))
        rewrite.remove_leftovers(self._files, self._folder, gone)
        self.report.done += [f"{name}: removed what a crash left behind" for name in gone]

    # -- catalog and parts -------------------------------------------------------------------------------------------

    def baseline(self) -> None:
        """Go back to a former catalog if the present one, or a part of it, is damaged."""
        found = self._verified()
        broken = [damage for damage in found.damage if damage.is_needed and _is_of_baseline(damage)]
        if not broken:
            return
        problems = [_words(damage) for damage in broken]
        formers = sorted(
            (
                generation
                for name in self._files.list(self._folder)
                if (generation := catalogs.former_generation(name)) is not None
            ),
            reverse=True,
        )
        older = self._older_copy()
        while formers or older is not None:
            if older is not None and (not formers or older.generation > formers[0]):
                generation, why_not, name = older.generation, self._take_copy(older), catalogs.NAME
                older = None
            else:
                generation = formers.pop(0)
                why_not, name = self._go_back_to(generation), catalogs.former_name(generation)
            if not why_not:
                self.report.done += [f"{problem}: generation {generation} is in its place" for problem in problems]
                return
            problems.append(f"{name}: generation {generation} cannot take its place: {why_not}")
        if len(problems) == len(broken):
            problems.append("there is no former catalog to go back to; bring back the file from a backup")
        self.report.left += problems
        self._accept_loss = False  # what else is damaged is told; the files may be needed as they are

    def _go_back_to(self, generation: int) -> str:
        """Returns why that cannot be; nothing if it was done."""
        try:
            former = catalogs.load_former(self._files, self._folder, generation)
        except (Corruption, WrongFormat) as error:
            return error.message
        if former is None:
            return "it is not there"
        missing = self._needed_by(former) - set(self._files.list(self._folder))
        if missing:
            return f"what is in {', '.join(sorted(missing)[:3])} would be lost ({len(missing)} files are gone)"
        return self._put_catalog(former)

    def _put_catalog(self, former: Catalog) -> str:
        damaged = {damage.file: damage for damage in self._verified(former).damage}
        for part in former.parts:
            if part.name in damaged:
                return _words(damaged[part.name])
        self._keep_catalog_aside()
        # No later generation may take a name that is taken, and none is older than the epoch file says.
        parts = (catalogs.part_generation(name) or 0 for name in self._files.list(self._folder))
        newest = max([former.generation, self._epochs().generation, *parts])
        catalogs.replace(self._files, self._folder, replace(former, generation=newest))
        return ""

    def _older_copy(self) -> Catalog | None:
        """The catalog that is there though the epoch file knows a later one; that of a new store if there is none."""
        epochs = self._epochs()
        try:
            catalog = catalogs.load(self._files, self._folder)
        except Corruption:
            catalog = Catalog()
        except WrongFormat:
            return None
        return catalog if catalog.generation < max(epochs.generation, 1) and epochs.generation >= 0 else None

    def _take_copy(self, older: Catalog) -> str:
        """Returns why that cannot be; nothing if it was done. Nothing keeps for it what it needs, as for a former one:
        the heads of epoch files say what there was."""
        needed = {name for name in self._needed_by(older) if catalogs.is_rotated_pwal(name)}
        begun_at = -1
        before = 0
        for name in epoch_file.names_of(self._files.list(self._folder)):
            one = Epochs()
            try:
                epoch_file.read_file(self._files, self._folder, name, one, may_be_torn=name.name == epoch_file.NAME)
            except (Corruption, WrongFormat) as error:
                return error.message
            if not one.records:
                continue
            if one.begun_with is None or one.begun_with > epoch_file.through_voids(before, one.voids) or one.has_gap:
                begun_at = -1  # what is before it is not known
            if one.begun_with is not None and one.begun_with <= older.epoch:
                begun_at = one.begun_with
            needed |= {each for each in one.files if (catalogs.rotated_epoch(each) or 0) > older.epoch}
            before = one.durable
        if begun_at < 0:
            return f"which files there were after its epoch {older.epoch} is not known any more"
        missing = needed - set(self._files.list(self._folder))
        if missing:
            return f"what is in {', '.join(sorted(missing)[:3])} would be lost ({len(missing)} files are gone)"
        return self._put_catalog(older)

    def _needed_by(self, former: Catalog) -> set[str]:
        """Rotated files behind its epoch, by all that the catalog and the epoch files say."""
        known = {match.decode("ascii") for match in _ROTATED.findall(self._read(catalogs.NAME))}
        known |= set(self._epochs().files)
        pwals = {name for name in known if catalogs.is_rotated_pwal(name)}
        return {name for name in pwals if (catalogs.rotated_epoch(name) or 0) > former.epoch}

    def _keep_catalog_aside(self) -> None:
        try:
            file = open_for_reading(self._files, self._folder, catalogs.NAME)
        except FileNotFoundError:
            return
        try:
            keep_aside(self._files, self._folder, file, catalogs.NAME, 0, file.size(), clock=self._clock, what="broken")
        finally:
            file.close()

    def _read(self, name: str) -> bytes:
        try:
            file = open_for_reading(self._files, self._folder, name)
        except FileNotFoundError:
            return b""
        try:
            return read_at(file, 0, file.size())
        finally:
            file.close()

    def _epochs(self) -> Epochs:
        try:
            return epoch_file.read(self._files, self._folder, self._files.list(self._folder))
        except StorageError:
            return Epochs()

    def _verified(self, catalog: Catalog | None = None) -> VerifyReport:
        return verify(self._files, self._folder, catalog=catalog, beside_writer=False)

    # -- files of channels, epoch files ------------------------------------------------------------------------------

    def other_files(self) -> None:
        # Epoch files first: which sessions count is known by them.
        self._complete_epochs(self._verified())
        for is_epochs in (True, False):
            found = self._verified()
            by_file: dict[str, list[Damage]] = {}
            for damage in found.damage:
                if not _is_of_baseline(damage) and damage.file.startswith(epoch_file.NAME) == is_epochs:
                    by_file.setdefault(damage.file, []).append(damage)
            for name, damages in by_file.items():
                self._mend(name, damages, found)

    def _complete_epochs(self, found: VerifyReport) -> None:
        """Put back what the epoch file lost, if files of channels say all of it."""
        damages = [each for each in found.damage if each.is_needed and each.file.startswith(epoch_file.NAME)]
        reached = found.reached
        if len({damage.file for damage in damages}) != 1 or found.catalog is None or not reached.time_ns:
            return
        name = damages[0].file
        try:
            others = [each for each in self._files.list(self._folder) if each != name]
            before = epoch_file.read(self._files, self._folder, others)
        except (Corruption, WrongFormat):
            return
        was_used = any(file.is_active and file.last_epoch for file in found.files if file.kind == verifying.CHANNEL)
        says_nothing = name == epoch_file.NAME and before.last_ns >= reached.time_ns and not was_used
        if not says_nothing and _newest_epoch(found) > max(reached.epoch, before.durable, found.catalog.epoch):
            return
        pieces, size = self._pieces_of_epochs(name)
        if pieces and isinstance(pieces[0], Whole) and any(damage.offset == 0 for damage in damages):
            pieces = [Bad(0, size, damages[0].reason, 0)]  # an older copy
        kept = self._keep_bad_aside(name, pieces)
        self._write_epochs(name, pieces, before, found)
        place = f", {', '.join(kept)} has the damaged bytes" if kept else ""
        words = "; ".join(_words(damage) for damage in damages)
        self.report.done.append(f"{words}: put back from what files of channels say, no session is lost{place}")

    def _pieces_of_epochs(self, name: str) -> tuple[list[Whole | Bad], int]:
        """And the size of the file."""
        try:
            file = open_for_reading(self._files, self._folder, name)
        except FileNotFoundError:
            return [], 0
        try:
            size = file.size()
            return [*salvage.epoch_records(file, size, has_header=bool(_has_header(file, name, EPOCH)))], size
        finally:
            file.close()

    def _keep_bad_aside(self, name: str, pieces: list[Whole | Bad]) -> list[str]:
        bad = [piece for piece in pieces if isinstance(piece, Bad) and piece.end > piece.start]
        if not bad:
            return []
        file = open_for_reading(self._files, self._folder, name)
        try:
            return [
                keep_aside(self._files, self._folder, file, name, piece.start, piece.end, self._clock, "broken")
                for piece in bad
            ]
        finally:
            file.close()

    def _write_epochs(self, name: str, pieces: list[Whole | Bad], before: Epochs, found: VerifyReport) -> None:
        """The whole records, and what all that is known says of the end."""
        said = self._said(name, pieces)
        reached, catalog = found.reached, found.catalog or Catalog()
        durable = max(said.durable, before.durable, reached.epoch, catalog.epoch)
        voids = sorted({*before.voids, *reached.voids} - {*said.voids})
        if said.records:
            more = [*(epoch_file.void(*each) for each in voids), epoch_file.durable(durable, ())]
        else:
            names = set(self._files.list(self._folder)) - set(catalog.merged)
            rotated = sorted(each for each in names if catalogs.is_rotated_pwal(each))
            more = [epoch_file.head(durable, sorted(voids), rotated)]
        reach_ns = max(reached.time_ns, before.last_ns + 1)
        if not pieces:
            chunks: Iterable[bytes] = [EPOCH.header, kernel.encode_many(max(reach_ns, self._clock.now_ns()), more)]
            rewrite.replace(self._files, self._folder, name, chunks, PWAL)
            return
        file = open_for_reading(self._files, self._folder, name)
        try:
            rewrite.replace(self._files, self._folder, name, _rest(file, pieces, EPOCH, reach_ns, more), PWAL)
        finally:
            file.close()

    def _said(self, name: str, pieces: list[Whole | Bad]) -> Epochs:
        said = Epochs()
        whole = [piece for piece in pieces if isinstance(piece, Whole)]
        if whole:
            file = open_for_reading(self._files, self._folder, name)
            try:
                for piece in whole:
                    for batch in FileScan(file, piece.start, piece.end):
                        for at, time_ns in enumerate(batch.times):
                            epoch_file.take(said, time_ns, batch.payload(at))
            finally:
                file.close()
        return said

    def _mend(self, name: str, damages: list[Damage], found: VerifyReport) -> None:
        merged = found.catalog.merged if found.catalog is not None else ()
        is_needed = any(damage.is_needed for damage in damages)
        is_spare = name in merged or catalogs.former_generation(name) is not None
        is_spare = is_spare or all(damage.is_between for damage in damages)
        if not is_needed and (is_spare or not self._accept_loss):
            self.report.left_alone += [f"{_words(damage)}: the store does without it" for damage in damages]
        elif not self._accept_loss:
            self.report.left += [f"{_words(damage)}: repairing it loses what was there" for damage in damages]
        elif any(damage.is_missing for damage in damages):
            self._put_in_place(name, damages[0], found)
        else:
            self._rewrite(name, damages, found)

    def _put_in_place(self, name: str, damage: Damage, found: VerifyReport) -> None:
        """An empty file, so that what is missing is known and accepted."""
        if _format_of(name) is EPOCH:
            self._put_epochs_in_place(name, damage, found)
            return
        mark = kernel.encode_many(max(self._attested(name), 1), (CHANNEL.gap(0),))
        rewrite.replace(self._files, self._folder, name, [CHANNEL.header, mark], PWAL)
        until = catalogs.rotated_epoch(name) or found.durable
        after = found.catalog.epoch if found.catalog is not None else 0
        self.report.lost.append(Lost(name, 0, 0, damage.reason, "", min(after, until - 1), until))
        self.report.done.append(f"{name}: {damage.reason}; an empty file is in its place")

    def _put_epochs_in_place(self, name: str, damage: Damage, found: VerifyReport) -> None:
        """What was durable is not known any more: every whole session is taken for that, void ones too."""
        catalog_epoch = found.catalog.epoch if found.catalog is not None else 0
        newest = max(_newest_epoch(found), catalog_epoch, found.reached.epoch)
        known = self._epochs()
        voids = sorted({*known.voids, *found.reached.voids})
        records = [*(epoch_file.void(*each) for each in voids), epoch_file.durable(max(newest, known.durable), ())]
        time_ns = max(self._clock.now_ns(), known.last_ns + 1, found.reached.time_ns)
        chunks = [EPOCH.header, kernel.encode_many(time_ns, records)]
        rewrite.replace(self._files, self._folder, name, chunks, PWAL)
        self.report.done.append(
            f"{name}: {damage.reason}; a new one says that all up to epoch {newest} is durable: sessions that a crash "
            "had made void may be back"
        )

    def _rewrite(self, name: str, damages: list[Damage], found: VerifyReport) -> None:
        """Take the damaged bytes out."""
        format = _format_of(name)
        try:
            file = open_for_reading(self._files, self._folder, name)
        except FileNotFoundError:
            self.report.left += [_words(damage) for damage in damages]
            return
        try:
            has_header = _has_header(file, name, format)
            if has_header is None:
                self.report.left += [f"{_words(damage)}: it may be whole for another program" for damage in damages]
                return
            read: Callable[..., Iterator[Whole | Bad]]
            read = salvage.epoch_records if format is EPOCH else salvage.sessions
            pieces = [
                piece
                for piece in read(file, file.size(), has_header=has_header)
                if not (isinstance(piece, Bad) and piece.is_unfinished)
                or counts(piece.epoch, found.durable, found.voids)
            ]
            lost = self._lost(name, file, pieces, damages, found)
            reach_ns, more = self._attested(name), self._end_of_epochs(name, pieces, found)
            if more:
                reach_ns = max(reach_ns, found.reached.time_ns)
            chunks = _rest(file, pieces, format, reach_ns, more)
            rewrite.replace(self._files, self._folder, name, chunks, PWAL)
        finally:
            file.close()
        self.report.lost += lost
        self.report.done += [str(each) for each in lost]

    def _lost(
        self, name: str, file: File, pieces: list[Whole | Bad], damages: list[Damage], found: VerifyReport
    ) -> list[Lost]:
        """Keep the damaged bytes aside."""
        lost = []
        last = catalogs.rotated_epoch(name) or found.durable
        before = found.catalog.epoch + 1 if found.catalog is not None else 0
        if _format_of(name) is EPOCH:
            last, before = _newest_epoch(found), 0
        for number, piece in enumerate(pieces):
            if isinstance(piece, Whole):
                before = piece.epoch
                continue
            following = next((each.epoch for each in pieces[number:] if isinstance(each, Whole)), last)
            # The epoch before may have had more sessions in this file, and so may the one after.
            after, until = (piece.epoch - 1, piece.epoch) if piece.epoch else (max(before - 1, 0), following)
            kept_as = ""
            if piece.end > piece.start:
                kept_as = keep_aside(
                    self._files, self._folder, file, name, piece.start, piece.end, self._clock, "broken"
                )
            size = piece.end - piece.start
            lost.append(Lost(name, piece.start, size, piece.reason, kept_as, after, max(until, after + 1)))
        if not lost:  # the end is gone, and nothing else is wrong with what is there
            damage = damages[0]
            after = max(before - 1, 0)
            lost.append(Lost(name, damage.offset, 0, damage.reason, "", after, max(last, after + 1)))
        return lost

    def _end_of_epochs(self, name: str, pieces: list[Whole | Bad], found: VerifyReport) -> list[bytes]:
        """What the newest epoch file has to say beyond its whole records. What the parts hold is durable; and if its
        end is lost, so is every whole session for all that is known."""
        names = sort_out(self._files.list(self._folder)).of_stream(epoch_file.NAME)
        if found.catalog is None or not names or names[-1].name != name:
            return []
        whole = [piece for piece in pieces if isinstance(piece, Whole)]
        said, last_ns = max((each.epoch for each in whole), default=0), max((each.last_ns for each in whole), default=0)
        reached = found.reached
        if said < reached.epoch or last_ns < reached.time_ns:
            durable = max(_newest_epoch(found), reached.epoch, found.catalog.epoch)
            return [*(epoch_file.void(*each) for each in reached.voids), epoch_file.durable(durable, ())]
        return [epoch_file.durable(found.catalog.epoch, ())] if said < found.catalog.epoch else []

    def _attested(self, name: str) -> int:
        """The time that the newest file of a channel has to reach; 0 if the file is not that, or nothing vouches."""
        files = sort_out(self._files.list(self._folder)).of_stream(name[:9])
        if files and files[-1].name != name:
            return 0
        channel = int(name[5:9]) if name.startswith("pwal_") else -1
        return self._epochs().attested.get(channel, (0, 0))[0]


def _rest(
    file: File, pieces: list[Whole | Bad], format: Format, reach_ns: int, more: Sequence[bytes] = ()
) -> Iterator[bytes]:
    """The whole pieces, a gap mark for each of the others, and ``more`` records."""
    yield format.header
    last_ns = 0
    for piece in pieces:
        if isinstance(piece, Whole):
            yield from chunks_of(file, piece.start, piece.end)
            last_ns = piece.last_ns
        else:
            last_ns += 1
            yield kernel.encode_many(last_ns, (format.gap(piece.end - piece.start),))
    if more:
        yield kernel.encode_many(max(last_ns + 1, reach_ns), more)
    elif last_ns < reach_ns:
        # Stands in for the last record (Format.reaches): that it is missing is known now.
        yield kernel.encode_many(reach_ns, (format.watermark(reach_ns),))


def _has_header(file: File, name: str, format: Format) -> bool | None:
    """None: it is the header of something else."""
    try:
        check_header(file, name, format)
    except Corruption:
        return False
    except WrongFormat:
        return None
    return True


def _format_of(name: str) -> Format:
    return EPOCH if name.startswith(epoch_file.NAME) else CHANNEL


def _newest_epoch(found: VerifyReport) -> int:
    """Of any whole session that is in no part."""
    files = (file for file in found.files if file.kind == verifying.CHANNEL and not file.is_merged)
    return max((file.last_epoch for file in files), default=0)


def _is_of_baseline(damage: Damage) -> bool:
    return damage.file == catalogs.NAME or catalogs.part_generation(damage.file) is not None


def _words(damage: Damage) -> str:
    return f"{damage.file}, byte {damage.offset}: {damage.reason}"
