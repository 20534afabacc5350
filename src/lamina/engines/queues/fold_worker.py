"""Folding in a process of its own, so that the server's has all its time for clients (elsewhere.py)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from lamina.clock import Clock
from lamina.engines import elsewhere
from lamina.engines.elsewhere import EndedEarly
from lamina.engines.elsewhere import Stopper as Stopper
from lamina.engines.queues import store_files
from lamina.engines.queues.folding import FoldReport, FoldStopped, fold
from lamina.engines.queues.restoring import RestoreRefused, StoreWarning
from lamina.errors import DiskError, DiskFull, LaminaError, StorageError
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles

_MODULE: Final = "lamina.engines.queues.fold_worker"
_ERRORS: Final[dict[str, type[StorageError]]] = {
    error.code: error for error in (DiskFull, DiskError, FoldStopped, StorageError)
}


def fold_elsewhere(
    files: Files,
    folder: str,
    number: int,
    *,
    now: int,
    ttl: int,
    keeps_messages: bool = True,
    force: bool = False,
    clock: Clock | None = None,
    step: Callable[[str], None] = lambda name: None,
    stopper: Stopper | None = None,
) -> FoldReport:
    """``fold`` in another process if the files are real, else here; only here ``step`` is told. Raises: as ``fold``."""
    stopper = Stopper() if stopper is None else stopper
    if type(files) is not RealFiles:
        return fold(
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
    task = {"folder": folder, "number": number, "now": now, "ttl": ttl, "keeps_messages": keeps_messages}
    return FoldReport(**_ask(files, {**task, "force": force}, stopper))


def _ask(files: Files, task: dict[str, Any], stopper: Stopper) -> dict[str, Any]:
    try:
        answer = elsewhere.ask(_MODULE, task, stopper, "writes the dump")
    except EndedEarly:
        _remove_saving(files, str(task["folder"]), int(task["number"]))
        if stopper.is_stopped:
            raise FoldStopped("the dump was given up") from None
        raise
    if "report" in answer:
        report: dict[str, Any] = answer["report"]
        return report
    error = answer["error"]
    if "kind" in error:
        raise RestoreRefused([StoreWarning(error["kind"], error["file"], error["record"], error["message"])])
    raise _ERRORS.get(error["code"], StorageError)(error["message"], hint=error["hint"])


def _remove_saving(files: Files, folder: str, number: int) -> None:
    """What a process leaves that was killed."""
    with suppress(OSError):
        files.remove(join(folder, store_files.saving_name(number)))


# -- the other process -----------------------------------------------------------------------------------------------


def main() -> int:
    try:
        report = fold(RealFiles(), **elsewhere.take_task())
        elsewhere.tell({"report": asdict(report)})
    except RestoreRefused as error:
        elsewhere.tell({"error": {**error.as_dict(), "kind": error.kind}})
    except LaminaError as error:
        elsewhere.tell({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
    except KeyboardInterrupt:
        return 1  # nobody waits for an answer, and nothing was left behind
    return 0


if __name__ == "__main__":
    sys.exit(main())
