"""Where the tasks of a job run: one after the other in this process, or on the executors of a Spark session.

A job is written once against ``Runner.map``. How it is divided into tasks never depends on who runs them, so that the
result has the same bytes. A task may be run twice at the same time (speculation) and again after it failed: it writes
only to files of its own (staging.py), and only what the job commits counts.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from lamina import errors
from lamina.errors import BadOption, LaminaError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

Progress = Callable[[int, int], None]
"""Called with the tasks (or bytes) done and those in all."""
ENGINES: Final = ("auto", "local", "spark")


class Runner(Protocol):
    """Runs tasks."""

    name: str
    """``local`` or ``spark``."""

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Progress = lambda done, total: None
    ) -> list[R]:
        """The results of all tasks, in their order.

        Raises: what a task raised, if it is a LaminaError: such a task is not tried again.
        """


class LocalRunner:
    """In this process, one after the other."""

    name = "local"

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Progress = lambda done, total: None
    ) -> list[R]:
        results = []
        for task in tasks:
            results.append(function(task))
            progress(len(results), len(tasks))
        return results


class SparkRunner:
    """On the executors of a session, which have to reach the same files and have lamina installed."""

    name = "spark"

    def __init__(self, spark: SparkSession) -> None:
        try:
            self._context = spark.sparkContext
        except Exception as error:  # a Connect session refuses with an error of its own
            raise BadOption(
                "this session is one of Spark Connect, which can read but not run the jobs of lamina",
                hint="use lamina.pipeline.session(), or any session with a SparkContext",
            ) from error

    def map(
        self, function: Callable[[T], R], tasks: Sequence[T], progress: Progress = lambda done, total: None
    ) -> list[R]:
        if not tasks:
            return []

        def guarded(task: T) -> tuple[bool, Any]:
            try:
                return True, function(task)
            except LaminaError as error:
                return False, to_plain(error)  # as a value: Spark would try three times more

        done = 0
        results: list[R] = [None] * len(tasks)  # type: ignore[list-item]
        numbered = self._context.parallelize(list(enumerate(tasks)), len(tasks))
        # A tag and no group: the session may be one of others, who keep the group they have set.
        tag = f"lamina-{uuid.uuid4().hex}"
        self._context.addJobTag(tag)
        try:
            found = numbered.map(lambda pair: (pair[0], *guarded(pair[1]))).collect()
        except KeyboardInterrupt:
            self._context.cancelJobsWithTag(tag)
            raise
        finally:
            self._context.removeJobTag(tag)
        for number, is_fine, value in found:
            if not is_fine:
                raise from_plain(value)
            results[number] = value
            done += 1
        progress(done, len(tasks))
        return results


# -- errors between processes ----------------------------------------------------------------------------------------


def to_plain(error: LaminaError) -> dict[str, Any]:
    """An error as values that any process can take."""
    known = next(kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return {"class": known.__name__, "values": dict(vars(error))}


def from_plain(plain: dict[str, Any]) -> LaminaError:
    """The opposite of ``to_plain``. No constructor is asked: some take other values than they keep."""
    kind: type[LaminaError] = getattr(errors, plain["class"])
    found = kind.__new__(kind, plain["values"]["message"])
    vars(found).update(plain["values"])
    return found
