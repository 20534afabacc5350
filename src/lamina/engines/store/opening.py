"""Opening a store: look at everything first, change nothing before all of it was found good.

    1 the lock, the catalog, the epoch file, the parts, and every file of a channel that is in no part: read and checked
    2 tails that a crash left are put aside and cut, files without a record removed
    3 active files of the last run are rotated: a file is written by one run of the program only
    4 the epoch file goes on in a new one, whose head says what is durable and which epochs are void    <- commit point
      (on a full disk when something is written: no session is, before that head)
    5 what a crash left of rewrites and compactions is removed

Cut short anywhere it comes to the same result when it is run again: epochs above the durable one are void until 4, and
void for good behind it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise

from lamina.clock import Clock
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import epoch_file, hints, inputs, strays
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.codec import Reached
from lamina.engines.store.epoch_file import Epochs
from lamina.engines.store.inputs import LayerReader, Layers, Progress, channel_files, channel_of
from lamina.engines.store.options import StoreOptions
from lamina.engines.store.reading import FileRead
from lamina.errors import Corruption, DiskFull, LaminaError, from_os
from lamina.log import foreign, index, lock, rewrite
from lamina.log.files import Files, FolderLock, is_full, join
from lamina.log.frame import REASONS, Stop
from lamina.log.naming import PWAL, FileName, sort_out
from lamina.log.recovery import TornTail, try_to_keep_aside
from lamina.log.scan import HEADER_SIZE
from lamina.log.teardown import Teardown

logger = logging.getLogger("lamina.store")


@dataclass(slots=True)
class Opened:
    """What the store goes on from."""

    held: FolderLock
    catalog: Catalog
    epochs: Epochs
    gathered: Layers
    last_epoch: int = 0
    last_ms: int = 0
    """The newest millisecond in a name."""
    last_ns: dict[int, int] = field(default_factory=dict)
    """By channel: time of its newest record."""
    rotated: list[str] = field(default_factory=list)
    """Rotated files, oldest first."""
    generation: int = -1
    """Of the catalog that is on the disk for good; -1: none is."""
    spent: str | None = None
    """The epoch file of a run in which nothing was written: the head of the next one says all that it does."""
    torn: list[TornTail] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def warnings(self) -> list[str]:
        foreign = [f"{name}: not a file of a store, left alone" for name in self.foreign]
        first, last = self.epochs.durable + 1, self.last_epoch
        void = [f"epochs {first} to {last} were not durable at the end, and are void"] if first <= last else []
        return [*(str(tail) for tail in self.torn), *foreign, *void]


def open_store(
    files: Files, folder: str, clock: Clock, options: StoreOptions, progress: Progress = lambda done, total: None
) -> Opened:
    """Become the writer of a store, making it if need be.

    Durability: what can be read after this is synced.
    Raises: LogLocked; Corruption, WrongFormat (with file and byte; nothing was changed); DiskError, DiskFull.
    """
    try:
        files.make_folder(folder)
        foreign.refuse(folder, files.list(folder))
    except OSError as error:
        raise from_os(error, "make the folder", folder) from error
    try:
        with Teardown(folder) as teardown:
            held = lock.take(files, folder, PWAL.lock_name)
            teardown.later(held.release)
            opened = _look(files, folder, held, options, progress)
            teardown.later(lambda: opened.gathered.close(files, folder))
            _Change(files, folder, clock, opened).all()
            teardown.cancel()
    except OSError as error:
        raise from_os(error, "open the store in", folder) from error
    return opened


def _look(files: Files, folder: str, held: FolderLock, options: StoreOptions, progress: Progress) -> Opened:
    """Step 1."""
    names = files.list(folder)
    epochs = epoch_file.read(files, folder, names)
    catalog = catalogs.load(files, folder, at_least=epochs.generation)
    if epochs.durable < catalog.epoch:
        reason = f"the durable epoch is {epochs.durable}, but the catalog is of epoch {catalog.epoch}"
        raise Corruption(epoch_file.NAME, 0, reason, hint=hints.DAMAGED)
    found = channel_files(names, catalog.merged)
    listing = sort_out(names)
    rotated = [name.name for name in listing.segments if is_rotated(name)]
    check_there(epochs, catalog, set(names))
    # Not those that a crash while opening left: nothing is removed before all was found good.
    runs = (run for number in range(1 << 30) if (run := f"{inputs.RUN}o{number}") not in names)
    gathering = LayerReader(files, folder, options.memory_bytes, lambda: next(runs), progress)
    with Teardown(folder) as teardown:
        teardown.later(lambda: gathering.done().close(files, folder))
        gathering.parts(catalog)
        active = {name.name for name in found if not name.is_closed}  # a closed file was synced before it got its name
        gathering.read(found, catalog.epoch, epochs.durable, epochs.voids, active)
        check_attested(found, gathering.result, epochs, catalog)
        check_reached(gathering.result.reached, epochs)
        teardown.cancel()
    gathered = gathering.done()
    opened = Opened(held, catalog, epochs, gathered, rotated=rotated, foreign=listing.foreign)
    # A rotation that was cut short has given names of an epoch that was not recorded: no later file may be of an
    # earlier one, or a compaction would not know it for one of its inputs.
    named = max((catalogs.rotated_epoch(name) or 0 for name in rotated), default=0)
    opened.last_epoch = max(epochs.durable, gathered.newest_epoch, named)
    for name in found:
        number = channel_of(name)
        opened.last_ns[number] = max(opened.last_ns.get(number, 0), gathered.read[name.name].last_ns)
    opened.last_ms = max((name.order[0] for name in listing.segments if is_rotated(name)), default=0)
    return opened


def is_rotated(name: FileName) -> bool:
    return name.family == "pwal" and name.name != name.stream and not inputs.is_part(name)


def check_there(epochs: Epochs, catalog: Catalog, names: set[str]) -> None:
    """Files that the epoch file knows, and that no compaction has taken, are there. Raises: Corruption."""
    for name in epochs.files:
        epoch = catalogs.rotated_epoch(name)
        if name not in names and name not in catalog.merged and (epoch is None or epoch > catalog.epoch):
            raise Corruption(name, 0, "the epoch file names this file, and it is not there", hint=hints.MISSING)


def check_attested(found: list[FileName], gathered: Layers, epochs: Epochs, catalog: Catalog) -> None:
    """No file of a channel ends before what is known to be safe. Raises: Corruption."""
    if gathered.newest_epoch and not epochs.records:
        # Its first record is synced before the first session is written.
        reason = f"no epoch file says what is durable, though there are sessions up to epoch {gathered.newest_epoch}"
        raise Corruption(epoch_file.NAME, 0, reason, hint=hints.MISSING)
    for before, behind in pairwise(found):  # of one channel they follow each other: a compaction takes the oldest
        read = gathered.read[before.name]
        if before.stream == behind.stream and read.last_ns < gathered.read[behind.name].vouches_ns:
            reason = f"the end of the file is gone, {behind.name} vouches for more"
            raise Corruption(before.name, read.whole, reason, hint=hints.MISSING)
    for channel, (time_ns, epoch) in epochs.attested.items():
        if epoch <= catalog.epoch:
            continue
        its = [name for name in found if channel_of(name) == channel]
        if max((gathered.read[name.name].last_ns for name in its), default=0) >= time_ns:
            continue
        name, at = (its[-1].name, gathered.read[its[-1].name].whole) if its else (f"pwal_{channel:04d}", 0)
        reason = f"the end of the file is gone, though epoch {epoch} is durable"
        raise Corruption(name, at, reason, hint=hints.MISSING)


def check_reached(reached: Reached, epochs: Epochs) -> None:
    """The epoch file did not lose what was in it when files of channels were written. Raises: Corruption."""
    reason = lost_of_epochs(reached, epochs)
    if reason:
        hint = hints.DAMAGED
        raise Corruption(epoch_file.NAME, epochs.active_end or 0, reason, hint=hint)


def lost_of_epochs(reached: Reached, epochs: Epochs) -> str:
    """In words; empty: nothing is."""
    if epochs.last_ns >= reached.time_ns and epochs.durable >= reached.epoch:
        return ""
    what = "the file is not there" if epochs.active_end is None else "the end of the file is gone"
    return f"{what}: epoch {epochs.durable} is the last one that is durable by it, epoch {reached.epoch} was before"


class _Change:
    """Steps 2 to 5. Raises: OSError, DiskError, DiskFull."""

    def __init__(self, files: Files, folder: str, clock: Clock, opened: Opened) -> None:
        self._files, self._folder, self._clock, self._opened = files, folder, clock, opened

    def all(self) -> None:
        opened = self._opened
        for name, read in opened.gathered.read.items():
            if read.is_torn:
                self._cut(name, read)
        self._rotate()
        # On a full disk both are done later: the first compaction does it, and whoever looks into the folder.
        with suppress(DiskFull):
            opened.catalog = catalogs.begin(self._files, self._folder)
            opened.generation = opened.catalog.generation
        self._remove_leftovers()
        try:
            self._files.make_folder(join(self._folder, "ctrl"))
        except OSError as error:
            if not is_full(error):
                raise

    def _cut(self, name: str, read: FileRead) -> None:
        files, folder = self._files, self._folder
        keep = read.whole if read.whole > HEADER_SIZE else 0
        file = files.open(join(folder, name), write=True)
        try:
            is_worth_keeping = read.bytes > max(keep, HEADER_SIZE)
            if is_worth_keeping:
                kept_as = try_to_keep_aside(files, folder, file, name, keep, read.bytes, self._clock)
            if keep:
                file.truncate(keep)
                file.sync()
        finally:
            file.close()
        if is_worth_keeping:
            self._opened.torn.append(TornTail(name, keep, read.bytes - keep, REASONS[read.why], kept_as))

    def _rotate(self) -> None:
        """Active files become rotated ones: of channels, and of epochs if it says more than where it starts."""
        opened, files, folder = self._opened, self._files, self._folder
        names = files.list(folder)
        for name in names:
            if name.startswith("pwal_") and len(name) == 9 and name in opened.gathered.read:
                read = opened.gathered.read[name]
                if read.whole <= HEADER_SIZE:
                    rewrite.remove(files, folder, [name])
                    continue
                self._sync(name)
                new = self._rotated_name(name)
                files.rename(join(folder, name), join(folder, new))
                index.discard(files, folder, name)
                opened.rotated.append(new)
        if epoch_file.NAME in names:
            if opened.epochs.in_active:
                self._put_epochs_aside(opened.epochs.torn_at)
            else:
                self._keep_epochs_aside(0)
                rewrite.remove(files, folder, [epoch_file.NAME])
        files.sync_folder(folder)

    def _put_epochs_aside(self, torn_at: int | None) -> None:
        opened, files, folder = self._opened, self._files, self._folder
        path = join(folder, epoch_file.NAME)
        if torn_at is not None:
            self._keep_epochs_aside(torn_at)
        file = files.open(path, write=True)
        try:
            if torn_at is not None:
                file.truncate(torn_at)
            file.sync()
        finally:
            file.close()
        new = self._rotated_name(epoch_file.NAME)
        files.rename(path, join(folder, new))
        index.discard(files, folder, epoch_file.NAME)
        if opened.epochs.in_active == 1:
            opened.spent = new
        else:
            opened.rotated.append(new)

    def _keep_epochs_aside(self, start: int) -> None:
        """A torn end of the epoch file: it may have said that an epoch is durable, and nobody is told more."""
        name = epoch_file.NAME
        file = self._files.open(join(self._folder, name))
        try:
            size = file.size()
            if size > max(start, HEADER_SIZE):
                kept_as = try_to_keep_aside(self._files, self._folder, file, name, start, size, self._clock)
                reason = REASONS[Stop.TRUNCATED] if start else "no record in it is whole"
                self._opened.torn.append(TornTail(name, start, size - start, reason, kept_as))
        finally:
            file.close()

    def _sync(self, name: str) -> None:
        file = self._files.open(join(self._folder, name))
        try:
            file.sync()
        finally:
            file.close()

    def _rotated_name(self, stream: str) -> str:
        opened = self._opened
        opened.last_ms = max(self._clock.now_ns() // 1_000_000, opened.last_ms + 1)
        return f"{stream}.{opened.last_ms:014d}.{opened.last_epoch}"

    def _remove_leftovers(self) -> None:
        opened = self._opened
        try:
            gone = strays.strays(self._files, self._folder, opened.catalog, opened.gathered.runs)
            rewrite.remove_leftovers(self._files, self._folder, gone)
        except LaminaError as error:  # nothing depends on it
            logger.warning("%s", error)
