"""The first half of a compaction: the entries of rotated files, sorted, in memory and in working files."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from lamina.engines.store import codec, hints
from lamina.engines.store.codec import BEGIN
from lamina.engines.store.compaction_progress import run_name
from lamina.engines.store.compaction_task import Task
from lamina.engines.store.fold import Fold
from lamina.engines.store.merging import Run, merged, run_of
from lamina.engines.store.reading import FileRead, fold_file
from lamina.engines.store.sorted_file import SortedFile, SortedWriter
from lamina.engines.store.storages import Storages
from lamina.engines.store.table import Table
from lamina.errors import Corruption, from_os
from lamina.log.attest import next_record
from lamina.log.files import Files, join
from lamina.log.frame import REASONS, Stop
from lamina.log.scan import FileScan
from lamina.log.segment import open_for_reading

_MOST_RUNS: Final = 32  # open at once; then they are made one


class Gathering:
    """Entries of the inputs that count: a table, and runs in working files that came before it."""

    def __init__(self, files: Files, task: Task, step: Callable[[int], None]) -> None:
        """``step`` is told the bytes of the inputs that were read, and may raise to give it up."""
        self._files, self._task, self._step = files, task, step
        self._table = Table()
        self._runs: list[SortedFile] = []
        self._made = 0
        self._before = 0  # bytes of the inputs before this one
        self.storages = Storages()
        self.read = 0
        """Entries of sessions that count."""

    def gather(self) -> None:
        """Read all inputs.

        Raises: Corruption with file, byte and epoch, WrongFormat; DiskFull, DiskError; what ``step`` does.
        """
        for name in self._task.inputs:
            self._gather(name)
        self.storages.add(self._table.storages)

    def entries(self) -> int:
        """How many there are at most: some may be there more than once."""
        return len(self._table) + sum(run.entries for run in self._runs)

    def run(self, start: bytes = b"") -> Run:
        """All of them from a place on, in order, the newest of each."""
        return merged([*(run.batches(start) for run in self._runs), run_of(self._table, start)])

    def close(self) -> None:
        """Remove the working files."""
        for run in self._runs:
            run.close()
            with suppress(OSError):
                self._files.remove(join(self._task.folder, run.name))
        self._runs = []

    def _gather(self, name: str) -> None:
        task = self._task
        fold = Fold(task.after, task.until, task.voids)
        try:
            found = fold_file(self._files, task.folder, name, fold, self._table, may_be_torn=True, step=self._stepped)
        except FileNotFoundError as error:
            raise from_os(error, "open the file", join(task.folder, name)) from error
        if found.is_torn:
            check_rest(self._files, task, name, found)
        self.read += fold.taken
        self._before += found.bytes

    def _stepped(self, done: int) -> Table | None:
        self._step(self._before + done)
        if self._table.bytes < self._task.memory_bytes:
            return None
        self.storages.add(self._table.storages)
        self._spill(run_of(self._table))
        self._table = Table()
        if len(self._runs) >= _MOST_RUNS:
            many = list(self._runs)
            self._spill(merged([run.batches() for run in many]))
            self._runs = self._runs[len(many) :]
            for run in many:
                run.close()
                with suppress(OSError):
                    self._files.remove(join(self._task.folder, run.name))
        return self._table

    def _spill(self, run: Run) -> None:
        task = self._task
        name = run_name(task.generation, self._made)
        writer = SortedWriter(self._files, join(task.folder, name), generation=task.generation, part=self._made)
        self._made += 1
        try:
            for places, items in run:
                writer.add_many(places, items)
            writer.finish()
            self._runs.append(SortedFile.open(self._files, task.folder, name))
        except BaseException:
            writer.abandon()
            raise


def check_rest(files: Files, task: Task, name: str, found: FileRead) -> None:
    """A rest that cannot be read is passed over only if nothing in it counts. Raises: Corruption."""
    file = open_for_reading(files, task.folder, name)
    try:
        behind = next_record(file, found.whole, found.bytes, found.last_ns)
        if behind is None:
            return
        for batch in FileScan(file, behind, found.bytes):
            for number in range(len(batch.times)):
                payload = batch.payload(number)
                if payload[:1] != bytes([BEGIN]):
                    continue
                with suppress(codec.BadRecord):
                    session = Fold(task.after, task.until, task.voids)
                    session.take(payload)
                    if session.counts:
                        reason = REASONS.get(found.why, REASONS[Stop.TRUNCATED])
                        reason = f"{reason}, and a session of epoch {session.epoch} is behind it"
                        raise Corruption(name, found.whole, reason, hint=hints.DAMAGED)
    finally:
        file.close()
