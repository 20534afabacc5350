"""What the store held at an earlier epoch, or moment: read from files, as far back as they reach.

A read begins at the newest catalog, present or former, that is not later than the epoch, and takes the sessions behind
it. Clean-up removes former catalogs before the files that they need: while one is there, so are those.
"""

from __future__ import annotations

import itertools
import weakref
from bisect import bisect_right
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import cleaning, epoch_file, inputs
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.engine import StoreEngine
from lamina.engines.store.inputs import LayerReader, channel_files
from lamina.engines.store.pinning import Pinned
from lamina.engines.store.view import Snapshot
from lamina.errors import BadEntry, Corruption, TooOld, from_os
from lamina.log.files import join
from lamina.log.naming import FileName

_TRIES: Final = 8  # a rotation or a compaction may come between listing the files and opening them
_numbers = itertools.count()


def as_of_epoch(engine: StoreEngine, epoch: int) -> Snapshot:
    """The store as it was when ``epoch`` had become durable. Reads the files: takes time and, for a while, memory.

    Raises: TooOld; BadEntry if the epoch is not over; Corruption, DiskError.
    """
    if not 0 <= epoch <= engine.last_epoch:
        raise BadEntry(f"epoch {epoch} is not durable yet", hint=f"the last one is {engine.last_epoch}")
    for attempt in itertools.count(1):
        try:
            return _read(engine, epoch)
        except Corruption:
            if attempt == _TRIES:
                raise
    raise AssertionError


def as_of_time(engine: StoreEngine, time_ns: int) -> Snapshot:
    """The store as it was at a moment: everything that had become durable by then. Raises: as ``as_of_epoch``."""
    if time_ns > engine.clock.now_ns():
        raise BadEntry("that moment is yet to come", hint="give a time that has passed")
    # The epoch file may know of one that is not told yet.
    return as_of_epoch(engine, min(epoch_at(engine, time_ns), engine.last_epoch))


def epoch_at(engine: StoreEngine, time_ns: int) -> int:
    """The last epoch that was durable at that moment. Raises: TooOld, Corruption, DiskError."""
    history = epoch_file.history(engine.files, engine.folder, _names(engine))
    times = sorted(history)
    at = bisect_right(times, (time_ns, 1 << 64)) - 1
    if at >= 0:
        return times[at][1]
    oldest = _bases(engine)[0]
    if oldest.epoch:
        raise TooOld(0, oldest.epoch, oldest.time_ns)
    return 0


def readable(engine: StoreEngine) -> list[Catalog]:
    """Catalogs, present and former, from which reads begin, oldest first: further back than the first none reaches.

    Raises: Corruption, DiskError.
    """
    return _bases(engine)


def _names(engine: StoreEngine) -> list[str]:
    try:
        return engine.files.list(engine.folder)
    except OSError as error:
        raise from_os(error, "list the folder", engine.folder) from error


def _bases(engine: StoreEngine) -> list[Catalog]:
    """Catalogs that a read can begin at, oldest first."""
    bases = [engine.catalog]
    for name in _names(engine):
        generation = catalogs.former_generation(name)
        if generation is not None:
            former = cleaning.usable_former(engine.files, engine.folder, generation)
            if former is not None:
                bases.append(former)
    return sorted(bases, key=lambda catalog: (catalog.epoch, catalog.generation))


def _read(engine: StoreEngine, epoch: int) -> Snapshot:
    bases = _bases(engine)
    base = next((catalog for catalog in reversed(bases) if catalog.epoch <= epoch), None)
    if base is None:
        raise TooOld(epoch, bases[0].epoch, bases[0].time_ns)
    files, folder = engine.files, engine.folder
    runs: list[str] = []

    def run_name() -> str:
        """Of a file that a clean-up leaves alone."""
        runs.append(f"{inputs.RUN}a{next(_numbers)}")
        engine.runs.append(runs[-1])
        return runs[-1]

    pinned = Pinned(files)
    reader = LayerReader(pinned.as_files(), folder, engine.options.memory_bytes, run_name, lambda done, total: None)
    try:
        reader.parts(base)
        names = channel_files(_names(engine), base.merged)
        found = [name for name in names if _may_hold(name, base)]
        pinned.pin(folder, [name.name for name in found])
        # What is open now stays what it is. If the list is the same, and what reading begins with is there, it was all.
        if channel_files(_names(engine), base.merged) != names or all(base != each for each in _bases(engine)):
            raise Corruption(folder, 0, "files were rotated or cleaned up while they were opened", hint="try again")
        active = {name.name for name in found if name.name == name.stream}
        reader.read(found, base.epoch, epoch, tuple(engine.voids), active)
    except FileNotFoundError as error:
        reader.done().close(files, folder)
        raise Corruption(folder, 0, "a file was taken away while it was opened", hint="try again") from error
    except BaseException:
        reader.done().close(files, folder)
        raise
    finally:
        pinned.close()
        for name in runs:  # open, and readable until it is closed
            inputs.remove_quietly(files, join(folder, name))
            engine.runs.remove(name)
    layers = reader.done()
    snapshot = Snapshot(layers.layers, layers.storages)
    weakref.finalize(snapshot, layers.close, files, folder)
    return snapshot


def _may_hold(name: FileName, base: Catalog) -> bool:
    """A rotated file holds epochs up to that in its name."""
    epoch = catalogs.rotated_epoch(name.name)
    return epoch is None or epoch > base.epoch
