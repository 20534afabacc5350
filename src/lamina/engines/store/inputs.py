"""Which files hold what the store held at some epoch, and reading them into layers.

Everything up to the catalog's epoch is in its parts. The rest is in active files, and in rotated ones that the catalog
does not call merged; of those the sessions count that are later than the catalog's epoch, durable, and not void.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from lamina.engines.store import catalog as catalogs
from lamina.engines.store import hints
from lamina.engines.store.baseline import Baseline
from lamina.engines.store.catalog import Catalog
from lamina.engines.store.codec import NOTHING_REACHED, Reached
from lamina.engines.store.fold import Fold
from lamina.engines.store.merging import run_of
from lamina.engines.store.reading import FileRead, fold_file
from lamina.engines.store.sorted_file import SortedFile, SortedWriter
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table
from lamina.engines.store.view import Layer
from lamina.errors import Corruption, DiskFull
from lamina.log.files import Files, join
from lamina.log.naming import FileName, sort_out
from lamina.log.teardown import Teardown

Progress = Callable[[int, int], None]
"""Called with the bytes done and the bytes in all."""
RUN: Final = "run."

logger = logging.getLogger("lamina.store")


def channel_files(names: Sequence[str], merged: Sequence[str]) -> list[FileName]:
    """Rotated and active files of channels that are in no part yet, oldest first within a channel."""
    gone = frozenset(merged)
    found = sort_out(names).segments
    return [name for name in found if name.stream.startswith("pwal_") and not is_part(name) and name.name not in gone]


def is_part(name: FileName) -> bool:
    return catalogs.part_generation(name.name) is not None


def channel_of(name: FileName) -> int:
    return int(name.stream[5:9])


@dataclass(slots=True)
class Layers:
    """What files held, in layers."""

    layers: list[Layer] = field(default_factory=list)
    """Newest first."""
    baseline: Baseline | None = None
    """The last of them: the parts."""
    storages: Storages = field(default_factory=Storages)
    read: dict[str, FileRead] = field(default_factory=dict)
    reached: Reached = NOTHING_REACHED
    """How far the epoch file had come, by what the files say."""
    newest_epoch: int = 0
    """Largest epoch of any session, whether it counts or not."""
    entries: int = 0
    sessions: int = 0
    runs: list[str] = field(default_factory=list)

    def close(self, files: Files, folder: str) -> None:
        """Let go of files, and remove what was only made to be read."""
        with Teardown(folder) as teardown:
            let_go(teardown, self.layers, self.runs, files, folder)


class LayerReader:
    """Reads files of channels into a table, and spills it to a sorted file whenever it has grown too large."""

    def __init__(
        self, files: Files, folder: str, memory_bytes: int, run_name: Callable[[], str], progress: Progress
    ) -> None:
        self._files, self._folder = files, folder
        self._memory_bytes, self._run_name, self._progress = memory_bytes, run_name, progress
        self.result = Layers()
        self._table = Table()
        self._table.storages = self.result.storages

    def parts(self, catalog: Catalog) -> None:
        """Open the parts of a catalog. Raises: Corruption, WrongFormat, DiskError."""
        self.result.storages.add(catalog.storages)
        self.result.baseline = Baseline.open(self._files, self._folder, catalog)
        self.result.layers.append(self.result.baseline)

    def read(
        self, names: Sequence[FileName], after: int, until: int, voids: Sequence[tuple[int, int]], torn: set[str]
    ) -> None:
        """Take what counts of the files; those in ``torn`` may end as a crash left them. Raises: Corruption, ..."""
        total, done = sum(self._size(name.name) for name in names), 0
        for name in names:

            def step(at: int, done: int = done) -> Table | None:
                self._progress(done + at, total)
                return self._spill() if self._table.bytes >= self._memory_bytes else None

            fold = Fold(after, until, voids)
            try:
                read = fold_file(
                    self._files, self._folder, name.name, fold, self._table, may_be_torn=name.name in torn, step=step
                )
            except FileNotFoundError:
                raise Corruption(name.name, 0, "the file is not there any more", hint=hints.MISSING) from None
            result = self.result
            result.read[name.name] = read
            result.reached = result.reached.joined(read.reached)
            result.newest_epoch = max(result.newest_epoch, fold.newest_epoch)
            result.entries += fold.taken
            result.sessions += fold.sessions
            done += read.bytes

    def _size(self, name: str) -> int:
        try:
            file = self._files.open(join(self._folder, name))
        except OSError:
            return 0  # reading it will say why
        try:
            return file.size()
        finally:
            file.close()

    def _spill(self) -> Table | None:
        """Returns the next table; None: this one goes on growing, for the disk is full."""
        name = self._run_name()
        try:
            run = spill(self._files, self._folder, name, self._table)
        except DiskFull as error:
            logger.warning("entries stay in memory: %s", error)
            self._memory_bytes = 2 * self._table.bytes  # not again at once
            return None
        self.result.runs.append(name)
        self.result.layers.insert(0, run)
        self._table = Table()
        self._table.storages = self.result.storages
        return self._table

    def done(self) -> Layers:
        if len(self._table):
            self.result.layers.insert(0, self._table)
        return self.result


def spill(files: Files, folder: str, name: str, table: Table) -> SortedFile:
    """Write the entries of a table to a sorted file, and open it. Raises: DiskFull, DiskError; then nothing is left."""
    writer = SortedWriter(files, join(folder, name))
    try:
        for places, items in run_of(table):
            writer.add_many(places, items)
        writer.finish()
    except BaseException:
        writer.abandon()
        raise
    return SortedFile.open(files, folder, name, None)


def let_go(teardown: Teardown, layers: Iterable[Layer], runs: Iterable[str], files: Files, folder: str) -> None:
    """Steps of it."""
    for layer in layers:
        if isinstance(layer, SortedFile | Baseline):
            teardown.step(layer.close)
    for name in runs:
        teardown.step(partial(remove_quietly, files, join(folder, name)))


def remove_quietly(files: Files, path: str) -> None:
    """Of working files: what is left of one is removed when the store is opened."""
    try:
        files.remove(path)
    except OSError:
        return
