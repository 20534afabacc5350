"""Work in a process of its own, so that the server's has all its time for clients.

The process is told what to do in one line of JSON on its standard input, and answers in lines of JSON on its standard
output: as many as it likes on how far it is, and one at the end. It ends when its input does: a server that is gone has
no use for it.
"""

from __future__ import annotations

import _thread
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from lamina.errors import Corruption, DiskError, DiskFull, LaminaError, LogLocked, Stopped, StorageError, WrongFormat

_NICE: Final = ("nice", "-n", "10")
Answer = dict[str, Any]
_ERRORS: Final[dict[str, type[LaminaError]]] = {
    error.code: error for error in (DiskFull, DiskError, LogLocked, Stopped, StorageError)
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


class EndedEarly(StorageError):
    """The other process ended without an answer: it was killed, by ``Stopper`` or somebody else."""


def ask(
    module: str,
    task: Answer,
    stopper: Stopper,
    what: str,
    is_last: Callable[[Answer], bool] = lambda answer: True,
) -> Answer:
    """Run ``main`` of a module in another process; returns the last line of its answer.

    ``is_last`` is shown every line. ``what`` the process does is for messages.
    Raises: EndedEarly; StorageError if it cannot be started. In any case it is gone then.
    """
    process = _start(module, what)
    answer: Answer | None = None
    try:
        assert process.stdin is not None and process.stdout is not None
        stopper.ends_by(process.kill)
        with suppress(BrokenPipeError):  # it says why below, or nothing
            process.stdin.write(json.dumps(task).encode() + b"\n")
            process.stdin.flush()
        while (line := process.stdout.readline()).endswith(b"\n"):
            found: Answer = json.loads(line)
            if is_last(found):
                answer = found
                process.wait()
                break
    finally:
        stopper.ends_by(None)
        if process.poll() is None and answer is None:
            process.kill()
        process.communicate()
    if answer is None:
        raise EndedEarly(f"the process that {what} ended with {process.returncode}")
    return answer


def _start(module: str, what: str) -> subprocess.Popen[bytes]:
    command = (sys.executable, "-P", "-m", module)
    try:
        return subprocess.Popen([*_NICE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)  # noqa: S603 our own words
    except FileNotFoundError:  # a machine without nice
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0)  # noqa: S603
    except OSError as error:
        raise StorageError(f"cannot start the process that {what}: {error}") from error


def error_of(facts: Answer) -> LaminaError:
    """What another process raised, by its ``as_dict``."""
    if facts["code"] == Corruption.code:
        return Corruption(facts["file"], facts["offset"], facts["reason"], hint=facts["hint"])
    if facts["code"] == WrongFormat.code:
        return WrongFormat(facts["file"], facts["reason"], hint=facts["hint"])
    message, hint, code = facts.pop("message"), facts.pop("hint"), facts.pop("code")
    return _ERRORS.get(code, StorageError)(message, hint=hint, **facts)


# -- the other process -----------------------------------------------------------------------------------------------


def take_task() -> Answer:
    """What to do. From now on this process is interrupted when whoever asked is gone."""
    task: Answer = json.loads(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    return task


def _end_with_input() -> None:
    # The raw stream: a buffered one would still be locked when the process wants to end.
    if not sys.stdin.buffer.raw.read(1):  # type: ignore[union-attr]
        _thread.interrupt_main()


def tell(answer: Answer) -> None:
    """One line of the answer."""
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
