"""Compacting in a process of its own, so that the server's has all its time for clients (elsewhere.py)."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import Any, Final, Protocol

from lamina.engines import elsewhere
from lamina.engines.elsewhere import EndedEarly
from lamina.engines.elsewhere import Stopper as Stopper
from lamina.engines.store import compaction_progress
from lamina.engines.store.compacting import Outcome, Task, compact, old_bytes, size_of
from lamina.engines.store.compaction_task import Progress
from lamina.errors import LaminaError, Stopped
from lamina.log.files import Files
from lamina.log.files.real import RealFiles
from lamina.units import MIB

_MODULE: Final = "lamina.engines.store.compaction_worker"
_STEPS: Final = 200  # lines about how far it is, at most
SMALL: Final = 2 * MIB
"""Bytes to read that take less time than starting a process."""


class Compact(Protocol):
    """Does a task: as ``compact_elsewhere``, wherever."""

    def __call__(self, files: Files, task: Task, progress: Progress, stopper: Stopper, /) -> Outcome: ...


def compact_elsewhere(
    files: Files,
    task: Task,
    progress: Progress = lambda done, total: None,
    stopper: Stopper | None = None,
) -> Outcome:
    """``compact`` in another process if the files are real and there is much to do, else here. Raises: as ``compact``.

    Durability: as ``compact``.
    """
    stopper = Stopper() if stopper is None else stopper
    if type(files) is not RealFiles or _bytes(files, task) <= SMALL:
        return compact(files, task, progress=progress, is_stopped=lambda: stopper.is_stopped)

    def is_last(answer: dict[str, Any]) -> bool:
        if "progress" in answer:
            progress(*answer["progress"])
        return "progress" not in answer

    try:
        answer = elsewhere.ask(_MODULE, task.as_dict(), stopper, "compacts", is_last)
    except EndedEarly:
        _clean_up(files, task)
        if stopper.is_stopped:
            raise Stopped("the compaction was given up", hint="the next one goes on from there") from None
        raise
    if "outcome" in answer:
        return Outcome.from_dict(answer["outcome"])
    raise elsewhere.error_of(answer["error"])


def _bytes(files: Files, task: Task) -> int:
    return sum(size_of(files, task.folder, name) for name in task.inputs) + old_bytes(task)


def _clean_up(files: Files, task: Task) -> None:
    """What a process leaves that was killed."""
    with suppress(OSError):
        lock = files.lock(compaction_progress.lock_path(task.folder))
        if not isinstance(lock, str):
            compaction_progress.clean_up_quietly(files, task)
            lock.release()


# -- the other process -----------------------------------------------------------------------------------------------


class _Teller:
    """Says how far it is, and not too often."""

    def __init__(self) -> None:
        self._said = -1

    def __call__(self, done: int, total: int) -> None:
        share = done * _STEPS // max(total, 1)
        if share > self._said:
            self._said = share
            try:
                elsewhere.tell({"progress": [done, total]})
            except BrokenPipeError:  # nobody is there any more
                raise KeyboardInterrupt from None


def main() -> int:
    try:
        outcome = compact(RealFiles(), Task.from_dict(elsewhere.take_task()), progress=_Teller())
        elsewhere.tell({"outcome": outcome.as_dict()})
    except LaminaError as error:
        elsewhere.tell({"error": error.as_dict()})
    except KeyboardInterrupt:
        return 1  # nobody waits for an answer, and nothing was left behind but what the next one goes on from
    return 0


if __name__ == "__main__":
    sys.exit(main())
