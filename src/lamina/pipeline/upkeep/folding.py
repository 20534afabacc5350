"""The fold of a dump and the logs since into the next dump, on a runner; the same bytes as the engine's own fold.

    1 survey: are the files whole, where can they be cut     2 sort: one task a piece, records into buckets by queue
    3 fold: one task a bucket                                4 merge the buckets by place, and commit

Only step 4 changes anything: the new dump is written, synced and renamed as the engine does (folding.DumpWriting), the
one commit point. How many pieces and buckets there are depends on the size of the files alone. Files that are not whole
are left to the engine's own fold, in this process: it refuses them, or passes over what it may, by its own rules.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from operator import itemgetter
from typing import Final, TypeVar

from lamina.clock import Clock
from lamina.engines.queues import folding as engine
from lamina.engines.queues import store_files
from lamina.engines.queues.dumping import Fold
from lamina.engines.queues.fold_worker import Stopper
from lamina.engines.queues.folding import DumpWriting, FoldReport, FoldStopped
from lamina.errors import LaminaError, from_os
from lamina.log.files import Files
from lamina.pipeline.running import Progress, Runner
from lamina.pipeline.staging import staging
from lamina.pipeline.upkeep import folding_tasks
from lamina.pipeline.upkeep.folding_parts import read_groups
from lamina.pipeline.upkeep.folding_survey import Odd, Surveyed, survey
from lamina.pipeline.upkeep.folding_tasks import Folded, Folding, Section, Sorted, Sorting
from lamina.units import MIB

T = TypeVar("T")
R = TypeVar("R")

JOB: Final = "dump"
_PIECE: Final = 32 * MIB
_BUCKET: Final = 64 * MIB
_MOST_BUCKETS: Final = 256  # files that are open at once while buckets are merged
_STEPS: Final = 3  # that are told: to sort, to fold, to merge
_TELL_EVERY: Final = 4096  # queues


def fold_on(
    runner: Runner,
    progress: Progress = lambda done, total: None,
    *,
    piece: int = _PIECE,
    bucket: int = _BUCKET,
) -> Fold:
    """A fold for a Dumper whose files are real, and in reach of the runner. Hold the lock of the folder.

    ``piece`` and ``bucket``: bytes of input for a task of either kind, about.
    """

    def fold(
        files: Files,
        folder: str,
        number: int,
        *,
        now: int,
        ttl: int,
        keeps_messages: bool,
        force: bool,
        clock: Clock,
        step: Callable[[str], None],
        stopper: Stopper,
    ) -> FoldReport:
        """As ``folding.fold``, and with the same result. Raises: the same."""
        start = clock.monotonic()
        work = _Distributed(files, folder, runner, progress, piece, bucket, stopper)
        try:
            with staging(files, folder, JOB) as place:
                written, expired = work.run(number, now, ttl, place, step, keeps_messages=keeps_messages)
        except Odd:
            return engine.fold(
                files,
                folder,
                number,
                now=now,
                ttl=ttl,
                keeps_messages=keeps_messages,
                force=force,
                clock=clock,
                step=step,
                is_stopped=lambda: stopper.is_stopped,
            )
        seconds = clock.monotonic() - start
        return FoldReport(number, written.queues, written.messages, expired, written.bytes, seconds)

    return fold


class _Distributed:
    def __init__(
        self,
        files: Files,
        folder: str,
        runner: Runner,
        progress: Progress,
        piece: int,
        bucket: int,
        stopper: Stopper,
    ) -> None:
        self._files, self._folder, self._runner, self._progress = files, folder, runner, progress
        self._piece, self._bucket, self._stopper = piece, bucket, stopper

    def run(
        self, number: int, now: int, ttl: int, place: str, step: Callable[[str], None], *, keeps_messages: bool
    ) -> tuple[DumpWriting, int]:
        """Returns what was written, and how many messages had expired. Raises: Odd: nothing was changed."""
        found = self._survey(number)
        buckets = max(1, min(-(-found.bytes // self._bucket), _MOST_BUCKETS))
        tasks = [
            Sorting(at, self._folder, piece, buckets, keeps_messages, place) for at, piece in enumerate(found.pieces)
        ]
        parts = self._map(folding_tasks.sort, tasks, found, 0)
        _check(parts)
        folds = [Folding(at, _sections(tasks, parts, at), now, ttl, keeps_messages, place) for at in range(buckets)]
        folded = self._map(folding_tasks.fold, folds, found, 1)
        most = found.most + sum(part.records for part in parts)
        writing = DumpWriting(found.last, most, is_followed=found.is_followed)
        with ExitStack() as open_files:
            queues = self._merged(folded, open_files, found)
            writing.write(self._files, self._folder, number, queues, lambda: self._stopper.is_stopped, step)
        return writing, sum(one.expired for one in folded)

    def _survey(self, number: int) -> Surveyed:
        try:
            names = self._files.list(self._folder)
        except OSError as error:
            raise from_os(error, "list the folder", self._folder) from error
        plan = store_files.plan(names, up_to=number)
        if plan.missing:
            raise Odd
        try:
            found = survey(self._files, self._folder, plan, self._piece, lambda done: self._check_stop())
        except (LaminaError, OSError) as error:
            if isinstance(error, FoldStopped):
                raise
            raise Odd from error  # whatever it is, the engine's own fold says it in its own words
        found.is_followed = engine.is_followed(names, number)
        return found

    def _map(self, function: Callable[[T], R], tasks: list[T], found: Surveyed, step: int) -> list[R]:
        self._check_stop()

        def tell(done: int, total: int) -> None:
            self._progress(found.bytes * step + found.bytes * done // total, found.bytes * _STEPS)

        return self._runner.map(function, tasks, tell)

    def _check_stop(self) -> None:
        if self._stopper.is_stopped:
            raise FoldStopped("the dump was given up")

    def _merged(self, folded: list[Folded], open_files: ExitStack, found: Surveyed) -> Iterator[list[bytes]]:
        """All queues that are left, in the order of their places."""
        buckets = [open_files.enter_context(closing(read_groups(self._files, one.path, 0))) for one in folded]
        for number, (place, payloads) in enumerate(heapq.merge(*buckets, key=itemgetter(0))):
            yield payloads
            if not number % _TELL_EVERY:
                self._progress(found.bytes * (_STEPS - 1) + place, found.bytes * _STEPS)
        self._progress(found.bytes * _STEPS, found.bytes * _STEPS)


def _check(parts: list[Sorted]) -> None:
    """The pieces of the dump before are one dump: at its end stands what was found. Raises: Odd if not."""
    if any(part.is_odd for part in parts):
        raise Odd
    ends = [(at, part.end) for at, part in enumerate(parts) if part.end is not None]
    of_base = [at for at, part in enumerate(parts) if part.queues or part.end is not None]
    if not of_base:
        return
    counted = (sum(part.queues for part in parts), sum(part.messages for part in parts))
    if ends != [(of_base[-1], counted)]:
        raise Odd


def _sections(tasks: list[Sorting], parts: list[Sorted], bucket: int) -> tuple[Section, ...]:
    found = []
    for task, part in zip(tasks, parts, strict=True):
        start = part.ends[bucket - 1] if bucket else 0
        if part.ends[bucket] > start:
            found.append(Section(part.path, start, part.ends[bucket], task.piece.is_base))
    return tuple(found)
