"""The files of the store as of one moment: the epoch file is cut there, and that is what decides.

What is durable is asked first: the files that are listed afterwards hold it. Files of channels are cut where the epoch
file says that what is durable ends: what follows may speak of later epochs. Former catalogs and what they need are
taken along, so that a backup reaches as far back as the store does. A store that would not open is not backed up.
"""

from __future__ import annotations

from collections.abc import Iterator

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, epoch_file, hints
from lamina.engines.store.epoch_file import Epochs
from lamina.engines.store.inputs import channel_files, channel_of
from lamina.engines.store.verifying import verify
from lamina.errors import Corruption
from lamina.log.files import Files, join
from lamina.log.naming import FileName, parse
from lamina.log.segment import open_for_reading
from lamina.pipeline import snapshot
from lamina.pipeline.backing.sources import Changed, Source, index_of, left_of, of_file
from lamina.pipeline.frozen import Frozen
from lamina.pipeline.places import LogPlace
from lamina.pipeline.snapshot import PinnedFile


def newest_ns(disk: Files, place: LogPlace) -> int:
    """When the last epoch became durable. Raises: Changed; Corruption, WrongFormat, DiskError."""
    return epoch_file.read(disk, place.folder, disk.list(place.folder)).last_ns


def collect(disk: Files, place: LogPlace, moment_ns: int) -> list[Source]:
    """Raises: Changed; Corruption, WrongFormat, DiskError."""
    names = sorted(disk.list(place.folder))
    _check(disk, place, names)
    try:
        epochs, sources = _epochs(disk, place, names, moment_ns)
        durable = epochs.durable
        catalog = catalogs.load(disk, place.folder)
        if durable < catalog.epoch:
            raise Changed(place.path)  # compacted since that moment
        generations = [number for name in names if (number := catalogs.former_generation(name)) is not None]
        formers = [each for number in generations if (each := cleaning.usable_former(disk, place.folder, number))]
        whole = {catalogs.NAME, *(catalogs.former_name(former.generation) for former in formers)}
        whole |= {part.name for known in (catalog, *formers) for part in known.parts}
        for name in sorted(whole):
            sources.append(_whole(disk, place, name))
        for channel in channel_files(names, () if formers else catalog.merged):
            sources += _log(disk, place, channel, epochs)
        if sorted(disk.list(place.folder)) != names or catalogs.load(disk, place.folder) != catalog:
            raise Changed(place.path)
    except FileNotFoundError:
        raise Changed(place.path) from None
    return sources


def _check(disk: Files, place: LogPlace, names: list[str]) -> None:
    """What a start would refuse is refused here. Raises: Changed; Corruption, DiskError."""
    report = verify(disk, place.folder, is_quick=True)
    damage = next((each for each in report.damage if each.is_needed), None)
    if damage is None:
        return
    if sorted(disk.list(place.folder)) != names:
        raise Changed(place.path)
    raise Corruption(damage.file, damage.offset, damage.reason, hint=hints.DAMAGED)


def _epochs(disk: Files, place: LogPlace, names: list[str], moment_ns: int) -> tuple[Epochs, list[Source]]:
    """What was durable at the moment, and the epoch files, cut there."""
    pinned = [file for name in epoch_file.names_of(names) if (file := _pin(disk, place, name)) is not None]
    with Frozen(disk, place, pinned, moment_ns) as frozen:
        held = frozen.list(place.folder)
        if len(held) != len(pinned):
            raise Changed(place.path)  # rotated since that moment
        epochs = epoch_file.read(frozen.files, place.folder, held)
        sources = []
        for name in held:
            cut = frozen.open(join(place.folder, name))
            sources.append(of_file(f"{place.path}/{name}", place.folder, cut))
    return epochs, sources


def _log(disk: Files, place: LogPlace, name: FileName, epochs: Epochs) -> Iterator[Source]:
    pinned = _pin(disk, place, name)
    if pinned is None:
        return
    if not name.is_closed:
        left_of(disk, pinned)  # sessions at its end that no epoch made durable yet are void anyway
    path = f"{place.path}/{name.name}"
    boundary = catalogs.rotated_epoch(name.name)
    if boundary is None or boundary > epochs.durable:
        until_ns, _ = epochs.attested.get(channel_of(name), (0, 0))
        with Frozen(disk, place, [pinned], until_ns) as frozen:
            for held in frozen.list(place.folder):
                yield of_file(path, place.folder, frozen.open(join(place.folder, held)))
        return
    yield Source(path, place.folder, name.name, pinned.identity, pinned.end)
    if name.is_closed:
        file = open_for_reading(disk, place.folder, name.name)
        try:
            index = index_of(disk, path, place.folder, file)
        finally:
            file.close()
        if index is not None:
            yield index


def _whole(disk: Files, place: LogPlace, name: str) -> Source:
    file = open_for_reading(disk, place.folder, name)
    try:
        return of_file(f"{place.path}/{name}", place.folder, file)
    finally:
        file.close()


def _pin(disk: Files, place: LogPlace, name: FileName) -> PinnedFile | None:
    assert parse(name.name) is not None
    return snapshot.pin_file(disk, place, name, is_newest=not name.is_closed, is_permissive=False)
