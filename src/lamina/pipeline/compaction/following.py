"""Between the first steps: whether the pieces of each input lie end to end, and whether the inputs are sound.

What is wrong is found in the order in which one process would find it, and told in the same words.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lamina.engines.store import codec, hints
from lamina.engines.store.compaction_task import Task
from lamina.engines.store.fold import Fold, why_not
from lamina.engines.store.gathering import check_rest
from lamina.engines.store.reading import check_end
from lamina.errors import Corruption
from lamina.log.files import Files
from lamina.log.segment import open_for_reading
from lamina.pipeline.compaction.piece import Gather, Gathered, Piece
from lamina.pipeline.compaction.plan import Stretch
from lamina.pipeline.running import from_plain


def follow(works: Sequence[Gather], results: list[Gathered]) -> list[Gather]:
    """Follow each input from piece to piece. Results of pieces in which nothing begins are emptied.

    Returns the pieces that began at a wrong place, one of each input at most, to be done again from the right one.
    """
    again: list[Gather] = []
    source, end = -1, None
    is_open = False  # where the next piece of this input begins is not known yet
    for at, work in enumerate(works):
        stretch = work.stretches[0]
        if stretch.source != source:  # the first piece of an input, or whole inputs: they begin where they begin
            source, is_open = stretch.source, False
        elif is_open:
            continue
        elif end is None or end >= stretch.border:
            results[at] = Gathered((Piece(),))
            continue
        elif results[at].pieces[0].start != end:
            again.append(replace(work, stretches=(replace(stretch, start=end),)))
            is_open = True
            continue
        end = results[at].pieces[0].end if len(work.stretches) == 1 else None
    return again


@dataclass(slots=True)
class _Input:
    """What was read of an input so far."""

    newest_epoch: int = 0
    last_ns: int = 0


def check(files: Files, task: Task, works: Sequence[Gather], results: Sequence[Gathered]) -> int:
    """See that all inputs are sound, now that the pieces lie end to end. Returns the entries that count.

    Raises: Corruption, WrongFormat, DiskError: the first that there is.
    """
    taken, source, known = 0, -1, _Input()
    for work, result in zip(works, results, strict=True):
        # Behind a problem there may be fewer pieces; then it is raised before that matters.
        for stretch, piece in zip(work.stretches, result.pieces, strict=False):
            if stretch.source != source:
                source, known = stretch.source, _Input()
            _check_piece(files, task, stretch, piece, known)
            taken += piece.taken
    return taken


def _check_piece(files: Files, task: Task, stretch: Stretch, piece: Piece, known: _Input) -> None:
    fold = Fold(task.after, task.until, task.voids)
    fold.newest_epoch = known.newest_epoch
    if piece.first_epoch and piece.first_epoch < known.newest_epoch:
        assert piece.start is not None
        reason = f"not a record of a store: {why_not(codec.begin(piece.first_epoch), fold)}"
        raise Corruption(stretch.name, piece.start, reason, hint=hints.DAMAGED)
    if piece.problem is not None:
        raise from_plain(piece.problem)
    known.newest_epoch = max(known.newest_epoch, piece.newest_epoch)
    known.last_ns = max(known.last_ns, piece.last_ns)
    if piece.found is None:
        return
    found = replace(piece.found, last_ns=known.last_ns)
    if found.whole:  # else not even the header is whole, and nothing was read
        fold.newest_epoch, fold.epoch, fold.counts = known.newest_epoch, piece.open_epoch, piece.open_counts
        file = open_for_reading(files, task.folder, stretch.name)
        try:
            check_end(file, stretch.name, found, fold, may_be_torn=True)
        finally:
            file.close()
    if found.is_torn:
        check_rest(files, task, stretch.name, found)
