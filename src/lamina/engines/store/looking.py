"""Looking at a store without its lock and without a change: also while another process writes there.

What is in the parts is read from them, block by block. What is not is read from the files of the channels into memory;
beyond ``memory_bytes`` it is spilled to a folder that the caller gives, never to the store's own.

A rotation, a compaction or a clean-up may come in between. So what is durable is asked first: the files that are listed
afterwards hold it. Those are opened, all of them, before any is read; then it is asked whether the list is still the
same, and the catalog from which reading begins still there. If so, nothing was missed, and whatever happens now does
not concern what is open. Else it is looked again.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from dataclasses import dataclass
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, epoch_file, hints, inputs
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.epoch_file import Epochs
from lamina.engines.store.inputs import LayerReader, Layers, Progress, channel_files
from lamina.engines.store.opening import check_attested, check_reached, check_there, lost_of_epochs
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.pinning import Pinned
from lamina.engines.store.table import Table
from lamina.engines.store.view import Snapshot
from lamina.errors import BadEntry, Corruption, DiskError, StorageError, TooOld, from_os
from lamina.log.files import Files, join

_TRIES: Final = 64  # each takes as long as opening the files does, not reading them
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Looked:
    """What a store held."""

    snapshot: Snapshot
    epoch: int
    """Everything of sessions up to this epoch is in it, and nothing else."""
    durable: int
    """The last epoch that was durable when it was looked."""
    _layers: Layers
    _files: Files
    _folder: str

    def close(self) -> None:
        """Let go of the files; the snapshot cannot be read any more."""
        self._layers.close(self._files, self._folder)

    def __enter__(self) -> Looked:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()


def look(
    files: Files,
    folder: str,
    *,
    epoch: int | None = None,
    time_ns: int | None = None,
    memory_bytes: int = StoreOptions().memory_bytes,
    spill_to: str | None = None,
    progress: Progress = lambda done, total: None,
) -> Looked:
    """What is durable in the store, or what was when ``epoch`` was the last durable one, or at a moment.

    ``spill_to``: a folder for what does not fit into ``memory_bytes``; None: all of it is held in memory.
    Raises: TooOld; BadEntry if the epoch is not over; Corruption, WrongFormat (with file and byte); DiskError.
    """
    look_once = _Look(files, folder, epoch, time_ns, memory_bytes, spill_to, progress)
    for left in reversed(range(_TRIES)):
        before = _names(files, folder)
        try:
            return look_once.all()
        except (Corruption, DiskError, _Changed) as error:
            # Damage is what is there both times; what a writer changed meanwhile is another matter.
            if left and (isinstance(error, _Changed) or _names(files, folder) != before):
                continue
            raise
    raise AssertionError


def epoch_at(files: Files, folder: str, time_ns: int) -> int:
    """The last epoch that was durable at a moment. Raises: TooOld, Corruption, WrongFormat, DiskError."""
    times = sorted(epoch_file.history(files, folder, _names(files, folder)))
    at = bisect_right(times, (time_ns, 1 << 64)) - 1
    if at >= 0:
        return times[at][1]
    oldest = _bases(files, folder, catalogs.load(files, folder))[0]
    if oldest.epoch:
        raise TooOld(0, oldest.epoch, oldest.time_ns)
    return 0


def last_epoch(files: Files, folder: str) -> int:
    """The last epoch that is durable. Raises: Corruption, WrongFormat, DiskError."""
    for left in reversed(range(_TRIES)):
        try:
            return _epochs(files, folder).durable
        except (DiskError, _Changed):
            if not left:
                raise
    raise AssertionError


class _Changed(StorageError):
    """What it was read from is not the newest any more, or was cleaned up."""

    code = StorageError.code


class _Look:
    def __init__(
        self,
        files: Files,
        folder: str,
        epoch: int | None,
        time_ns: int | None,
        memory_bytes: int,
        spill_to: str | None,
        progress: Progress,
    ) -> None:
        self._files, self._folder = files, folder
        self._epoch, self._time_ns = epoch, time_ns
        self._memory_bytes, self._spill_to, self._progress = memory_bytes, spill_to, progress

    def all(self) -> Looked:
        files, folder = self._files, self._folder
        epochs = _epochs(files, folder)
        catalog = catalogs.load(files, folder, at_least=epochs.generation)
        if epochs.durable < catalog.epoch:
            reason = f"the durable epoch is {epochs.durable}, but the catalog is of epoch {catalog.epoch}"
            raise Corruption(epoch_file.NAME, 0, reason, hint=hints.DAMAGED)
        epoch = self._wanted(epochs)
        bases = [catalog] if epoch >= catalog.epoch else _bases(files, folder, catalog)
        base = next((known for known in reversed(bases) if known.epoch <= epoch), None)
        if base is None:
            raise TooOld(epoch, bases[0].epoch, bases[0].time_ns)
        layers = self._read(base, epochs, epoch, is_present=base is catalog)
        return Looked(Snapshot(layers.layers, layers.storages), epoch, epochs.durable, layers, files, folder)

    def _wanted(self, epochs: Epochs) -> int:
        epoch = self._epoch
        if self._time_ns is not None:
            epoch = min(epoch_at(self._files, self._folder, self._time_ns), epochs.durable)
        if epoch is None:
            return epochs.durable
        if not 0 <= epoch <= epochs.durable:
            raise BadEntry(f"epoch {epoch} is not durable yet", hint=f"the last one is {epochs.durable}")
        return epoch

    def _read(self, base: Catalog, epochs: Epochs, epoch: int, *, is_present: bool) -> Layers:
        files, folder = self._files, self._folder
        pinned = Pinned(files)
        reader = _Reader(pinned, folder, self._memory_bytes, self._spill_to, self._progress)
        try:
            reader.parts(base)
            names = _names(files, folder)
            found = [name for name in channel_files(names, base.merged) if _may_hold(name.name, base)]
            pinned.pin(folder, [name.name for name in found])
            if channel_files(_names(files, folder), base.merged) != channel_files(names, base.merged):
                raise _Changed(f"{folder}: files were rotated while they were opened", hint="try again")
            if not _is_still_there(files, folder, base):
                raise _Changed(f"{folder}: files were cleaned up while they were opened", hint="try again")
            active = {name.name for name in found if not name.is_closed}
            reader.read(found, base.epoch, epoch, epochs.voids, active)
            if is_present:
                check_there(epochs, base, set(names))
                check_attested(found, reader.result, epochs, base)
            if lost_of_epochs(reader.result.reached, epochs):  # or a writer has gone on since the epoch file was read
                check_reached(reader.result.reached, _epochs(files, folder))
        except FileNotFoundError as error:
            reader.done().close(files, folder)
            raise _Changed(f"{folder}: a file was taken away while it was opened", hint="try again") from error
        except BaseException:
            reader.done().close(files, folder)
            raise
        finally:
            pinned.close()
        return reader.done()


class _Reader(LayerReader):
    """Reads what is pinned, and spills elsewhere."""

    def __init__(
        self, pinned: Pinned, folder: str, memory_bytes: int, spill_to: str | None, progress: Progress
    ) -> None:
        most = memory_bytes if spill_to is not None else 1 << 62
        super().__init__(pinned.as_files(), folder, most, lambda: f"{inputs.RUN}l{next(_numbers)}", progress)
        self._spill_to = spill_to

    def _spill(self) -> Table:
        assert self._spill_to is not None
        name = self._run_name()
        self.result.layers.insert(0, inputs.spill(self._files, self._spill_to, name, self._table))
        inputs.remove_quietly(self._files, join(self._spill_to, name))  # open, and readable until it is closed
        self._table = Table()
        self._table.storages = self.result.storages
        return self._table


def _epochs(files: Files, folder: str) -> Epochs:
    """What is durable now. Raises: as ``epoch_file.read``."""
    names = _names(files, folder)
    epochs = epoch_file.read(files, folder, names)
    if epoch_file.names_of(_names(files, folder)) != epoch_file.names_of(names):
        # It was rotated: the file that was read may be the new one, with nothing in it, and the one before not listed.
        raise _Changed(f"{folder}: the epoch file was rotated while it was read", hint="try again")
    return epochs


def _names(files: Files, folder: str) -> list[str]:
    try:
        return sorted(files.list(folder))
    except OSError as error:
        raise from_os(error, "list the folder", folder) from error


def _bases(files: Files, folder: str, catalog: Catalog) -> list[Catalog]:
    """Catalogs that a read can begin at, oldest first."""
    generations = (catalogs.former_generation(name) for name in _names(files, folder))
    formers = [cleaning.usable_former(files, folder, each) for each in generations if each is not None]
    known = [catalog, *(former for former in formers if former is not None)]
    return sorted(known, key=lambda each: (each.epoch, each.generation))


def _may_hold(name: str, base: Catalog) -> bool:
    """A rotated file holds epochs up to that in its name."""
    epoch = catalogs.rotated_epoch(name)
    return epoch is None or epoch > base.epoch


def _is_still_there(files: Files, folder: str, base: Catalog) -> bool:
    """While a catalog is there, present or former, so is everything behind its epoch (cleaning.py)."""
    if catalogs.load(files, folder).generation == base.generation:
        return True
    return catalogs.load_former(files, folder, base.generation) is not None
