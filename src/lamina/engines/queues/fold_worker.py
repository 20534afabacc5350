"""Folding in a process of its own, so that the server's has all its time for clients.

The process is told what to do in one line of JSON on its standard input, and answers in one line on its standard
output. It ends when its input does: a server that is gone has no use for it.
"""

from __future__ import annotations

import _thread
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from typing import Any, Final

from lamina.clock import Clock
from lamina.engines.queues import store_files
from lamina.engines.queues.folding import FoldReport, FoldStopped, fold
from lamina.engines.queues.restoring import RestoreRefused, StoreWarning
from lamina.errors import DiskError, DiskFull, LaminaError, StorageError
from lamina.log.files import Files, join
from lamina.log.files.real import RealFiles

_COMMAND: Final = (sys.executable, "-P", "-m", "lamina.engines.queues.fold_worker")
_NICE: Final = ("nice", "-n", "10")
_ERRORS: Final[dict[str, type[StorageError]]] = {
    error.code: error for error in (DiskFull, DiskError, FoldStopped, StorageError)
}


class Stopper:
    """Something that goes on elsewhere, and that somebody may want to end."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._end: Callable[[], None] | None = None
        self.is_stopped = False

    def stop(self) -> None:
        with self._lock:
            self.is_stopped = True
            if self._end is not None:
                self._end()

    def ends_by(self, end: Callable[[], None] | None) -> None:
        """From now on ``end`` is what ends it; None: nothing has to be ended any more."""
        with self._lock:
            self._end = end
            if end is not None and self.is_stopped:
                end()


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
    process = _start()
    try:
        assert process.stdin is not None and process.stdout is not None
        stopper.ends_by(process.kill)
        with suppress(BrokenPipeError):  # it says why below, or nothing
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        line = process.stdout.readline()
        process.wait()
    finally:
        stopper.ends_by(None)
        if process.poll() is None:
            process.kill()
        process.communicate()
    if not line.endswith(b"\n"):
        _remove_saving(files, str(task["folder"]), int(task["number"]))
        if stopper.is_stopped:
            raise FoldStopped("the dump was given up")
        raise StorageError(f"the process that writes the dump ended with {process.returncode}")
    answer: dict[str, Any] = json.loads(line)
    if "report" in answer:
        report: dict[str, Any] = answer["report"]
        return report
    error = answer["error"]
    if "kind" in error:
        raise RestoreRefused([StoreWarning(error["kind"], error["file"], error["record"], error["message"])])
    raise _ERRORS.get(error["code"], StorageError)(error["message"], hint=error["hint"])


def _start() -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen([*_NICE, *_COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)  # noqa: S603 our own words
    except FileNotFoundError:  # a machine without nice
        return subprocess.Popen(_COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)  # noqa: S603
    except OSError as error:
        raise StorageError(f"cannot start the process that writes the dump: {error}") from error


def _remove_saving(files: Files, folder: str, number: int) -> None:
    """What a process leaves that was killed."""
    with suppress(OSError):
        files.remove(join(folder, store_files.saving_name(number)))


# -- the other process -----------------------------------------------------------------------------------------------


def _end_with_input() -> None:
    # The raw stream: a buffered one would still be locked when the process wants to end.
    if not sys.stdin.buffer.raw.read(1):  # type: ignore[union-attr]
        _thread.interrupt_main()


def main() -> int:
    task = json.loads(sys.stdin.buffer.readline())
    try:
        threading.Thread(target=_end_with_input, daemon=True).start()
        report = fold(RealFiles(), **task)
        answer: dict[str, Any] = {"report": asdict(report)}
    except RestoreRefused as error:
        answer = {"error": {**error.as_dict(), "kind": error.kind}}
    except LaminaError as error:
        answer = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
    except KeyboardInterrupt:
        return 1  # nobody waits for an answer, and nothing was left behind
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
