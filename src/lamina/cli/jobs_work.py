"""Doing the work of a job with a command: payload in, result out, the lease kept meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

from lamina.cli.render import err
from lamina.engines.jobs.api import MAX_PAYLOAD
from lamina.errors import BadOption, Disconnected, DiskError, JobError, LaminaError

if TYPE_CHECKING:
    from lamina.cli.jobs_place import Place

_GRACE_S: Final = 3.0
_SHORTEST_S: Final = 0.02


class Leased(Protocol):
    """A job in our hands, from a server or a folder."""

    @property
    def id(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def ttr_s(self) -> float: ...
    @property
    def payload(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Ending:
    """How the command ended, and what the job is told."""

    exit_code: int
    is_success: bool
    told: bytes
    """The result, or the error."""


def check_command(command: Sequence[str]) -> None:
    """Before a job is leased for it. Raises: BadOption."""
    if not command:
        raise BadOption("there is no command behind --", hint="lamina jobs lease NAME -- COMMAND ARGS...")
    if shutil.which(command[0]) is None:
        raise BadOption(f"{command[0]}: no such command", hint="nothing was leased")


def work(place: Place, job: Leased, command: Sequence[str]) -> Ending:
    """Run the command for the job, extending its lease, and end the job as the command did.

    If the command cannot be started, or we are interrupted, the job goes back as if nobody had had it.
    Raises: JobError if somebody else has or ended the job; a command that still runs is stopped then.
    """
    try:
        ending = _run(command, job.payload, lambda: _keep(place, job), max(job.ttr_s / 3, _SHORTEST_S))
        _tell(place, job, ending)
    except JobError as error:  # the command is over, or was stopped
        raise type(error)(f"job {job.id} is not ours any more: {error.message}", hint=error.hint) from error
    except OSError as error:
        place.release(job.id)
        reason = f"{command[0]}: cannot be run: {error.strerror}"
        raise DiskError(reason, hint="the job was given back to its queue") from error
    except KeyboardInterrupt:
        with suppress(LaminaError):
            place.release(job.id)
        raise
    return ending


def _tell(place: Place, job: Leased, ending: Ending) -> None:
    tell = place.complete if ending.is_success else place.fail
    try:
        tell(job.id, ending.told)
    except Disconnected:  # the server may have been started anew: its leases go on
        try:
            place.touch(job.id, job.ttr_s)  # told twice, a fail would count twice
        except JobError:
            told = place.result(job.id)
            if told is None or (told.is_success, told.result) != (ending.is_success, ending.told):
                raise
            return
        tell(job.id, ending.told)


def _keep(place: Place, job: Leased) -> None:
    try:
        place.touch(job.id, job.ttr_s)
    except JobError:
        raise
    except LaminaError as error:  # the lease lasts a while without us, and the work is worth something
        err.print(f"the lease could not be extended: {error.message}", markup=False)


def _run(command: Sequence[str], payload: bytes, keep: Callable[[], None], every_s: float) -> Ending:
    pipe = subprocess.PIPE
    process: subprocess.Popen[bytes] | None = None
    given: bytes | None = payload
    with stoppable():
        try:
            with undisturbed():  # in a group of its own, so that whatever it started can be stopped with it
                process = subprocess.Popen(list(command), stdin=pipe, stdout=pipe, stderr=pipe, process_group=0)  # noqa: S603
            while True:
                try:
                    result, complaints = process.communicate(given, timeout=every_s)
                    break
                except subprocess.TimeoutExpired:
                    given = None
                    keep()
        except BaseException:
            if process is not None:
                _stop(process)
            raise
    sys.stderr.buffer.write(complaints)
    sys.stderr.flush()
    code = process.returncode
    if code == 0 and len(result) <= MAX_PAYLOAD:
        return Ending(code, True, result)
    reason = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
    if code == 0:
        complaints, reason = b"", f"the result has {len(result)} bytes, at most {MAX_PAYLOAD} are kept"
    return Ending(code, False, complaints[-MAX_PAYLOAD:] or reason.encode())


def _stop(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):  # the second also for what it started and left behind
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()


@contextmanager
def stoppable() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does, so that what it started is not left behind."""

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM, signal.SIGHUP):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Interrupts come behind the block: one that starts a process then knows it, and can end it."""
    came: list[int] = []
    with _handled(lambda number, frame: came.append(number), signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        yield
    if came:
        raise KeyboardInterrupt


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], object], *numbers: signal.Signals) -> Iterator[None]:
    heard = [number for number in numbers if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)
