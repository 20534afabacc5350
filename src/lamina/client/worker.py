"""A worker: leases the jobs of tasks, makes their calls, extends their leases meanwhile, and tells how they ended.

A function runs in a thread, a coroutine function on a loop that all of them share. When it is stopped it leases no
more, lets what runs come to its end for a while, and gives the rest back: that attempt does not count. A server that
goes away is waited for, for ever; what was done meanwhile is told to it when it is back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from lamina.client.jobs import RemoteJobs
from lamina.client.keeping import LeaseKeeper
from lamina.client.worker_parts import Crew, LeasedJob, Tally
from lamina.engines.jobs.api import check_count, check_name, check_payload, error_text
from lamina.errors import BadJob, BadOption, Disconnected, JobError, LaminaError, LogClosed, LogFailed, StorageError
from lamina.tasks import Task
from lamina.tasks.packing import read_call

_WAIT_S: Final = 1.0  # of one lease: how long a stop may take to be seen
_REST_S: Final = 0.5  # before a server that is away is asked again
_GIVING_BACK_S: Final = 2.0  # how long a server that is away is waited for when we stop
_FOR_EVER_S: Final = 10 * 365 * 86_400.0

_OVER: Final = (LogClosed, LogFailed)  # of a folder: that does not mend itself

Tasks = Mapping[str, Task[Any, Any, Any]]


class Worker:
    """Of the tasks of one application."""

    def __init__(
        self,
        jobs: Any,
        tasks: Tasks,
        *,
        queues: Sequence[str] = (),
        concurrency: int = 4,
        grace_s: float = 30,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``jobs``: of ``lamina.open`` or ``lamina.connect``. ``queues``: those of the tasks unless given.

        ``say`` is told in a line what happens; never what is in a job. Raises: BadOption, BadJob.
        """
        if not tasks:
            raise BadOption("there are no tasks", hint="make some with @lm.task() in the module, or one it imports")
        for task in tasks.values():
            task.form.check()
        self.queues = [check_name(name) for name in queues] or sorted({task.options.queue for task in tasks.values()})
        self.tally = Tally()
        self._size = check_count("concurrency", concurrency, 1, 1000)
        self._tasks, self._grace_s, self._told = tasks, grace_s, say
        self._own = [jobs.lasting(_FOR_EVER_S), jobs.lasting(_GIVING_BACK_S)] if isinstance(jobs, RemoteJobs) else []
        self._jobs: Any = self._own[0] if self._own else jobs
        self._jobs_at_end: Any = self._own[1] if self._own else jobs
        self._lease = getattr(self._jobs, "lease_once", self._jobs.lease_many)
        self._keeper = LeaseKeeper(self._jobs.touch, lambda lost: self._say(f"job {lost}: the lease is lost"))
        self._changed = threading.Condition(threading.RLock())  # a signal may come while it is held
        self._running: dict[tuple[str, int], LeasedJob] = {}
        """By id and attempt: a job whose lease got lost may come again while it is still at work here."""
        self._telling = 0
        self._stops_at: float | None = None
        self._is_lost = False

    def stop(self) -> None:
        """Lease no more; a second time: give back at once what runs. From any thread, or a signal handler."""
        with self._changed:
            is_second = self._stops_at is not None
            self._stops_at = time.monotonic() + (0 if is_second else self._grace_s)
            self._changed.notify_all()

    def run(self, *, until_empty: bool = False, most: int | None = None) -> Tally:
        """Work until ``stop``; or until no job is ready, or ``most`` jobs were begun. Raises: LaminaError."""
        crew = Crew(self._size)
        begun = 0
        try:
            while self._stops_at is None and (most is None or begun < most):
                free = self._free(self._size if most is None else min(self._size, most - begun))
                if not free or self._stops_at is not None:
                    continue
                found = self._leased(free, 0 if until_empty or most is not None else _WAIT_S)
                for job in found:
                    self._begin(crew, job)
                begun += len(found)
                if not found and not self._is_lost and (until_empty or most is not None):
                    with self._changed:
                        if not self._running and not self._telling:
                            break
                        self._changed.wait(_WAIT_S)
        finally:
            self._end(crew)
        return self.tally

    def _say(self, line: str) -> None:
        with suppress(Exception):  # nobody reads it any more: jobs go on
            self._told(line)

    # -- leasing ---------------------------------------------------------------------------------------------------

    def _free(self, most: int) -> int:
        """How many more may be begun; 0 when none was free for a while."""
        with self._changed:
            is_full = len(self._running) + self._telling >= self._size
            if is_full and not self._changed.wait(_WAIT_S) and self._telling >= self._size:
                self._is_away("the ends of jobs cannot be told, trying again")
            return max(min(self._size - len(self._running) - self._telling, most), 0)

    def _leased(self, most: int, wait_s: float) -> Sequence[LeasedJob]:
        try:
            found: Sequence[LeasedJob] = self._lease(*self.queues, most=most, wait=wait_s)
        except (Disconnected, StorageError) as error:
            if isinstance(error, _OVER):
                raise
            self._is_away(f"no jobs can be had, trying again: {error.message}")
            with self._changed:
                if self._stops_at is None:
                    self._changed.wait(_REST_S)
            return ()
        if self._is_lost:
            self._is_lost = False
            self._say("jobs can be had again")
        return found

    def _is_away(self, line: str) -> None:
        """The server does not answer: that is said once, until it does again."""
        if not self._is_lost:
            self._is_lost = True
            self._say(line)

    # -- working ---------------------------------------------------------------------------------------------------

    def _begin(self, crew: Crew, job: LeasedJob) -> None:
        if self._stops_at is not None:  # it came when we were told to stop
            self._release(job)
            return
        with self._changed:
            self._running[job.id, job.attempt] = job
        self._keeper.keep(job)
        crew.give(partial(self._work, crew, job))

    def _work(self, crew: Crew, job: LeasedJob) -> None:
        tell, kind, text, line = self._outcome(crew, job)
        with self._changed:
            if self._running.pop((job.id, job.attempt), None) is None:
                return  # it was given back
            self._telling += 1
        try:
            self._tell(tell, text)
        except JobError as error:
            kind, line = "not_ours", f"is not ours any more: {error.message}"
        except LaminaError as error:
            kind, line = "not_ours", f"how it ended could not be told: {error.message}"
        finally:
            self._keeper.let_go(job)
            with self._changed:
                self._telling -= 1
                setattr(self.tally, kind, getattr(self.tally, kind) + 1)
                self._changed.notify_all()
        self._say(f"job {job.id} of {job.name} {line}")

    def _tell(self, tell: Callable[[bytes], None], text: bytes) -> None:
        """A server whose disk refuses to write has not done it: it is told again."""
        while True:
            try:
                return tell(text)
            except StorageError as error:
                if isinstance(error, _OVER) or self._stops_at is not None:
                    raise
            time.sleep(_REST_S)

    def _outcome(self, crew: Crew, job: LeasedJob) -> tuple[Callable[[bytes], None], str, bytes, str]:
        """What to tell the server of the job, how to count that, and a line about it."""
        started = time.monotonic()
        task: Task[Any, Any, Any] | None = None
        try:
            call = read_call(job.payload)
            task = self._tasks.get(call.task)
            if task is None:
                raise BadJob(f"this worker has no task {call.task[:100]!r}")
            given = task.form.unpack(call.arguments)
        except Exception as error:  # BadJob, or what a class of an argument may come up with
            return job.bury, "buried", error_text(error), "is buried: it is no call of a task of this worker"
        try:
            value = task.function(*given.args, **given.kwargs)
            if task.is_async:
                value = crew.wait_for(value)
        except BaseException as error:  # also SystemExit: it is the end of the call, not ours
            line = f"failed, {task.name}, attempt {job.attempt}: {type(error).__name__}"
            return job.fail, "failed", error_text(error), line
        try:
            result = check_payload(task.form.pack_result(value))
        except Exception as error:
            return job.bury, "buried", error_text(error), f"is buried, {task.name}: its result cannot be kept"
        return job.complete, "done", result, f"done, {task.name}, {time.monotonic() - started:.3f} s"

    # -- the end ---------------------------------------------------------------------------------------------------

    def _end(self, crew: Crew) -> None:
        with self._changed:
            if self._stops_at is None:
                self._stops_at = time.monotonic() + _FOR_EVER_S
            while (self._running or self._telling) and (left := self._stops_at - time.monotonic()) > 0:
                self._changed.wait(min(left, _WAIT_S))
            rest, self._running, is_idle = self._running, {}, not self._running and not self._telling
        self._keeper.stop()
        for job in rest.values():
            self._release(job)
        crew.dismiss(is_idle=is_idle)
        for jobs in self._own:
            jobs.close()

    def _release(self, job: LeasedJob) -> None:
        try:
            self._jobs_at_end.release(job.id)
        except LaminaError as error:
            self._say(f"job {job.id} of {job.name} could not be given back: {error.message}")
            return
        self.tally.released += 1
        self._say(f"job {job.id} of {job.name} is given back")
