"""The tasks of one application: what ``lm.task`` writes down and ``lamina worker module:lm`` reads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from lamina.errors import BadOption
from lamina.tasks.task import Task, TaskOptions
from lamina.tasks.tickets import GivesJobs

P = ParamSpec("P")
R = TypeVar("R")


class Decorator(Protocol):
    """Makes a task of a function, or of a coroutine function."""

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...

    @overload
    def __call__(self, function: Callable[P, R], /) -> Task[P, R, R]: ...


class TaskBook(Mapping[str, Task[Any, Any, Any]]):
    """Tasks by name; called, it gives a decorator that adds one."""

    def __init__(self, jobs: Callable[[], GivesJobs]) -> None:
        """``jobs``: where the calls go. It is asked when the first one is put, not before."""
        self._jobs = jobs
        self._tasks: dict[str, Task[Any, Any, Any]] = {}

    def __call__(self, *, name: str | None = None, **options: Any) -> Decorator:
        """A decorator: ``@lm.task(queue="mail", max_fails=5)``.

        ``name``: of the task, in its jobs; that of the function unless it is given. Options: ``TaskOptions``.
        Raises: BadOption, BadJob, for what cannot be.
        """

        def decorate(function: Callable[..., Any]) -> Task[Any, Any, Any]:
            task = make_task(self._jobs, function, name=name, **options)
            if _home(self._tasks.get(task.name, task)) != _home(task):  # the same place again is a cell that ran twice
                hint = f"give one of them another: task(name={task.name + '2'!r})"
                raise BadOption(f"there are two tasks {task.name!r}", hint=hint)
            self._tasks[task.name] = task
            return task

        return decorate

    @property
    def jobs(self) -> GivesJobs:
        """Where the calls go."""
        return self._jobs()

    def __getitem__(self, name: str) -> Task[Any, Any, Any]:
        return self._tasks[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tasks)

    def __len__(self) -> int:
        return len(self._tasks)

    def __repr__(self) -> str:
        return f"<TaskBook {', '.join(self._tasks) or 'without tasks'}>"


def make_task(
    jobs: Callable[[], GivesJobs], function: Callable[..., Any], *, name: str | None = None, **options: Any
) -> Task[Any, Any, Any]:
    """A task of the function. Raises: BadOption, BadJob, for what cannot be."""
    if not callable(function):
        raise BadOption(f"{function!r} is no function", hint="write @lm.task() with its brackets")
    made = TaskOptions().changed(options)
    own_name: str = getattr(function, "__qualname__", type(function).__name__)
    return Task(jobs, function, name or own_name, made)


def _home(task: Task[Any, Any, Any]) -> tuple[object, object]:
    """Where its function was written."""
    function = task.function
    return getattr(function, "__module__", None), getattr(function, "__qualname__", None)
