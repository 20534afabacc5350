"""A compaction whose steps are tasks of a runner: the same outcome as ``compact``, byte for byte.

It goes on from nothing that another one has left: what tasks stage is gone with the job. Parts get their names when all
of them are there; before a catalog names them they count for nobody (compactions.py has that commit point), and who
opens the store removes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from lamina.engines.elsewhere import Stopper
from lamina.engines.store import catalog as catalogs
from lamina.engines.store import compaction_progress
from lamina.engines.store.catalog import Part
from lamina.engines.store.compacting import lock_for, outcome_of, ranges, size_of, still_needed
from lamina.engines.store.compaction_task import Outcome, Progress, Task
from lamina.engines.store.storages import Storages
from lamina.errors import Stopped, from_os
from lamina.log.files import Files, join
from lamina.pipeline.compaction.cutting import NewPart, cut
from lamina.pipeline.compaction.following import check, follow
from lamina.pipeline.compaction.piece import Combine, Gather, Gathered, RunFile, combine, gather
from lamina.pipeline.compaction.plan import Shared, Sizes, divide
from lamina.pipeline.compaction.ranges import choose, merge
from lamina.pipeline.compaction.writing import Write, write
from lamina.pipeline.running import Runner
from lamina.pipeline.staging import staging

JOB: Final = "compact"
_STEPS: Final = ((0, 6), (6, 8), (8, 10))  # of ten: how much of the time gathering, merging and writing take, about


def compact_with(runner: Runner, sizes: Sizes | None = None) -> Callable[[Files, Task, Progress, Stopper], Outcome]:
    """What does a task on that runner: for ``Store.compact(compact=...)``."""

    def compact(files: Files, task: Task, progress: Progress, stopper: Stopper) -> Outcome:
        """Durability: when it returns, all parts are synced, and so is the folder; the catalog was not touched.

        Raises: Corruption, WrongFormat, DiskFull, DiskError; Stopped; LogLocked. Then nothing is left of it.
        """
        lock = lock_for(files, task)
        try:
            # What one process had done so far would be found again: it is the same.
            compaction_progress.remove(files, task.folder)
            compaction_progress.remove_leftovers(files, task)
            try:
                with staging(files, task.folder, JOB) as folder:
                    return _Distributed(runner, files, task, folder, sizes or Sizes(), progress, stopper).run()
            except BaseException:
                compaction_progress.clean_up_quietly(files, task)
                raise
        finally:
            lock.release()

    return compact


class _Distributed:
    def __init__(
        self,
        runner: Runner,
        files: Files,
        task: Task,
        folder: str,
        sizes: Sizes,
        progress: Progress,
        stopper: Stopper,
    ) -> None:
        self._runner, self._files, self._task, self._folder, self._sizes = runner, files, task, folder, sizes
        self._shared = Shared.of(files, task, folder)
        self._progress, self._stopper = progress, stopper
        self._input_bytes = 0

    def run(self) -> Outcome:
        task = self._task
        input_sizes = [size_of(self._files, task.folder, name) for name in task.inputs]
        self._input_bytes = sum(input_sizes)
        results, read = self._gather(input_sizes)
        storages = Storages()
        storages.add(task.catalog.storages)
        for result in results:
            storages.add(result.storages)
        runs = self._fewer([run for result in results for run in result.runs])
        works = choose(task, self._shared, runs, storages, self._sizes.range_entries)
        kept = [one for found in self._runner.map(merge, works, self._step(1)) for one in found]
        self._check()
        made = cut(self._files, task, self._folder, storages, kept)
        parts = self._write(made)
        return outcome_of(task, parts, still_needed(storages, task.until), read, self._input_bytes)

    def _gather(self, input_sizes: list[int]) -> tuple[list[Gathered], int]:
        task = self._task
        groups = divide(task.inputs, input_sizes, self._sizes.piece_bytes)
        works = [Gather(number, self._shared, group) for number, group in enumerate(groups)]
        results = self._runner.map(gather, works, self._step(0))
        while again := follow(works, results):
            self._check()
            for work, result in zip(again, self._runner.map(gather, again), strict=True):
                works[work.number], results[work.number] = work, result
        return results, check(self._files, task, works, results)

    def _fewer(self, runs: list[RunFile]) -> list[RunFile]:
        """As many as can be merged at once, each of them of neighbours."""
        most = max(self._sizes.most_runs, 2)
        while len(runs) > most:
            self._check()
            groups = [tuple(runs[at : at + most]) for at in range(0, len(runs), most)]
            works = [Combine(number, self._shared, group) for number, group in enumerate(groups)]
            runs = self._runner.map(combine, works)
        return runs

    def _write(self, made: list[Part | NewPart]) -> list[Part]:
        task = self._task
        sources = (*task.inputs, *(part.name for part, _, _ in ranges(task) if part is not None))
        works = [Write(self._shared, part, sources) for part in made if isinstance(part, NewPart)]
        staged = iter(self._runner.map(write, works, self._step(2)))
        self._check()
        parts: list[Part] = []
        for part in made:
            parts.append(part if isinstance(part, Part) else self._name(part, next(staged)))
        if works:
            try:
                self._files.sync_folder(task.folder)
            except OSError as error:
                raise from_os(error, "sync the folder", task.folder) from error
        return parts

    def _name(self, new: NewPart, staged: Part) -> Part:
        """Of several attempts at a part the one that was told of gets its name."""
        name = catalogs.part_name(self._task.generation, new.number)
        path = join(self._task.folder, name)
        try:
            self._files.rename(join(self._folder, staged.name), path)
        except OSError as error:
            raise from_os(error, "rename the file", path) from error
        return replace(staged, name=name)

    # -- how far it is -----------------------------------------------------------------------------------------------

    def _step(self, number: int) -> Callable[[int, int], None]:
        start, end = _STEPS[number]

        def told(done: int, total: int) -> None:
            self._check()
            whole = self._input_bytes
            self._progress(whole * (start * total + (end - start) * done) // (10 * max(total, 1)), whole)

        return told

    def _check(self) -> None:
        if self._stopper.is_stopped:
            raise Stopped("the compaction was given up", hint="run it again")
