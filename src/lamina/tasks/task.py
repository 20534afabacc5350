"""A function whose calls can be put into a queue, to be made by a worker.

@lm.task(queue="mail", max_fails=5, backoff=1)
def send(to: str, copies: int = 1) -> int: ...

send("you")                       # here and now, as ever
ticket = send.put("you")          # by a worker, as soon as one is free
ticket.result(wait=30)            # what it returned, an int
send.run("you", copies=2)         # both: put, and wait for the result
send.at(3600, "you")              # in an hour; or at a datetime
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import update_wrapper
from inspect import iscoroutinefunction
from typing import Any, Generic, ParamSpec, TypeVar

import msgspec

from lamina.engines.jobs.api import Seconds, job_fields, to_ms
from lamina.errors import BadJob, BadOption
from lamina.tasks.packing import Form
from lamina.tasks.tickets import AsyncHandle, GivesJobs, Handle

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C")
"""What calling the function gives: R, or a coroutine of it."""


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """How the jobs of a task are added; as ``Jobs.add`` takes them."""

    queue: str = "tasks"
    ttr: Seconds = 60
    """A worker that is not heard of for so long has lost the job. While the function runs the worker extends it."""
    ttl: Seconds = 86_400
    """How long a job and its result are kept."""
    priority: int = 0
    max_attempts: int = 0
    max_fails: int = 0
    """Exceptions until it is failed for good; 0: the first is final."""
    backoff: Seconds = 0
    unique: bool | Callable[..., str] = False
    """True: refused while an unfinished job with the same arguments is there. Or what makes a key of the arguments."""
    wait: Seconds = 60
    """How long ``run`` waits."""

    def of_jobs(self) -> dict[str, Any]:
        names = ("ttr", "ttl", "priority", "max_attempts", "max_fails", "backoff")
        return {name: getattr(self, name) for name in names}

    def changed(self, changes: dict[str, Any]) -> TaskOptions:
        """The same with other values. Raises: BadOption for what is no option."""
        known = self.__dataclass_fields__
        if wrong := ", ".join(sorted(changes.keys() - known.keys())):
            raise BadOption(f"a task has no option {wrong}", hint=f"name, {', '.join(known)}")
        return replace(self, **changes)

    def check(self) -> None:
        """Raises: BadJob."""
        job_fields(self.queue, b"", 0, **self.of_jobs())
        to_ms("wait", self.wait)


class Task(Generic[P, R, C]):
    """See the module. Threads: safe from any thread."""

    def __init__(
        self, jobs: Callable[[], GivesJobs], function: Callable[P, C], name: str, options: TaskOptions
    ) -> None:
        """Use ``lm.task(...)``. ``jobs`` is called when the first call is put: a module may be imported before."""
        options.check()
        self.name, self.options = name, options
        self.function, self.form = function, Form(function, name)
        self.is_async = iscoroutinefunction(function)
        self._jobs = jobs
        update_wrapper(self, function)

    def __call__(self, *positional: P.args, **named: P.kwargs) -> C:
        """Call the function here and now."""
        return self.function(*positional, **named)

    def __repr__(self) -> str:
        return f"<Task {self.name} in {self.options.queue}>"

    def put(self, *positional: P.args, **named: P.kwargs) -> Handle[R]:
        """Have a worker make this call. Raises: BadJob, before anything is sent; DuplicateJob; as ``Jobs.add``."""
        return self.handle(self._jobs().add(*self._packed(positional, named), **self._options(positional, named)))

    def at(self, when: datetime | Seconds, /, *positional: P.args, **named: P.kwargs) -> Handle[R]:
        """``put`` for a moment, or for so many seconds from now."""
        options = {**self._options(positional, named), **moment(when)}
        return self.handle(self._jobs().add(*self._packed(positional, named), **options))

    def run(self, *positional: P.args, **named: P.kwargs) -> R:
        """``put``, and wait for the result; how long is an option: ``task.with_options(wait=5).run(...)``.

        Raises: TaskFailed; TaskUnfinished: the job is still there.
        """
        return self.put(*positional, **named).result(self.options.wait)

    def put_many(self, calls: Iterable[tuple[Any, ...]]) -> list[Handle[R]]:
        """``put`` for each tuple of arguments, all at once. Raises: BadJob, before anything is sent; as ``put``."""
        if self.options.unique:
            return [self.put(*call) for call in self.checked(calls)]  # type: ignore[call-arg]
        payloads = [self.form.pack(call, {}) for call in self.checked(calls)]
        return [self.handle(id) for id in self._jobs().add_many(self.options.queue, payloads, **self.options.of_jobs())]

    def handle(self, id: str) -> Handle[R]:
        """Of a call that was put before, perhaps by another process."""
        return Handle(self._jobs, self.form, id)

    def with_options(self, **changes: Any) -> Task[P, R, C]:
        """The same task with other options, such as ``priority`` or ``wait``, for calls from here.

        Raises: BadOption.
        """
        return Task(self._jobs, self.function, self.name, self.options.changed(changes))

    @property
    def aio(self) -> AsyncTask[P, R]:
        """The same for coroutines."""
        return AsyncTask(self)

    def checked(self, calls: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """All of them fit. Raises: BadJob."""
        found: list[Any] = list(calls)
        for call in found:
            if not isinstance(call, tuple):
                hint = "one argument is (value,)"
                raise BadJob(f"{self.name}: a call is a tuple of its arguments, not {type(call).__name__}", hint=hint)
            self.form.pack(call, {})
        return found

    def _packed(self, positional: tuple[Any, ...], named: dict[str, Any]) -> tuple[str, bytes]:
        return self.options.queue, self.form.pack(positional, named)

    def _options(self, positional: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        options, unique = self.options.of_jobs(), self.options.unique
        if unique is True:
            call = msgspec.json.decode(self.form.pack(positional, named))
            key = hashlib.sha256(msgspec.json.encode(call, order="deterministic")).hexdigest()
            options["unique"] = f"{re.sub('[^A-Za-z0-9_.-]', '_', self.name[:180])}.{key}"
        elif unique:
            options["unique"] = unique(*positional, **named)
        return options


class AsyncTask(Generic[P, R]):
    """``task.aio``: ``put``, ``at``, ``run`` and ``put_many`` for coroutines."""

    def __init__(self, task: Task[P, R, Any]) -> None:
        self._task = task

    async def put(self, *positional: P.args, **named: P.kwargs) -> AsyncHandle[R]:
        return await self._add(positional, named, {})

    async def at(self, when: datetime | Seconds, /, *positional: P.args, **named: P.kwargs) -> AsyncHandle[R]:
        return await self._add(positional, named, moment(when))

    async def run(self, *positional: P.args, **named: P.kwargs) -> R:
        handle = await self._add(positional, named, {})
        return await handle.result(self._task.options.wait)

    async def put_many(self, calls: Iterable[tuple[Any, ...]]) -> list[AsyncHandle[R]]:
        task = self._task
        if task.options.unique:
            return [await self._add(call, {}, {}) for call in task.checked(calls)]
        payloads = [task.form.pack(call, {}) for call in task.checked(calls)]
        options = task.options.of_jobs()
        return [self.handle(id) for id in await task._jobs().aio.add_many(task.options.queue, payloads, **options)]

    def handle(self, id: str) -> AsyncHandle[R]:
        return AsyncHandle(self._task._jobs, self._task.form, id)

    async def _add(self, positional: tuple[Any, ...], named: dict[str, Any], more: dict[str, Any]) -> AsyncHandle[R]:
        task = self._task
        options = {**task._options(positional, named), **more}
        return self.handle(await task._jobs().aio.add(*task._packed(positional, named), **options))


def moment(when: datetime | Seconds) -> dict[str, Any]:
    """As ``Jobs.add`` takes it."""
    if isinstance(when, datetime):
        return {"at": when}
    return {"delay": when if isinstance(when, timedelta) else float(when)}
