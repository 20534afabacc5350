"""Where tasks run: errors that travel between processes, and what an interruption ends."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from typing import Any

import pytest

from lamina import errors
from lamina.errors import BadOption, Corruption, Gap, LaminaError, QuotaMet
from lamina.pipeline.running import SparkRunner, from_plain, to_plain

_VALUES = {"int": 7, "float": 1.5, "int | str": 5, "str": "x", "str | None": "1-1"}


_KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, LaminaError)]


def _make(kind: type[LaminaError]) -> LaminaError:
    """One with a value for everything that it takes."""
    taken = inspect.signature(kind).parameters.values()
    named = {one.name: _VALUES[one.annotation] for one in taken if one.kind is not inspect.Parameter.VAR_KEYWORD}
    facts = {"path": "data/jobs"} if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in taken) else {}
    make: Callable[..., LaminaError] = kind
    return make(**named, **facts)


@pytest.mark.parametrize("kind", _KINDS)
def test_every_error_arrives_as_it_was(kind: type[LaminaError]) -> None:
    error = _make(kind)
    found = from_plain(json.loads(json.dumps(to_plain(error))))
    assert type(found) is kind
    assert (str(found), found.args, vars(found)) == (str(error), error.args, vars(error))
    assert (found.code, found.retryable, found.as_dict()) == (error.code, error.retryable, error.as_dict())


def test_attributes_of_their_own_arrive_too() -> None:
    gap = from_plain(to_plain(Gap(1, 2, why="cleaned", resumes_at="3-0")))
    assert isinstance(gap, Gap) and (gap.after, gap.until, gap.resumes_at) == (1, 2, "3-0")
    full = from_plain(to_plain(QuotaMet(128, position=9)))
    assert isinstance(full, QuotaMet) and full.position == 9


def test_an_error_of_a_module_arrives_as_what_it_is_a_kind_of() -> None:
    class Refused(Corruption):
        """As engines have some."""

    found = from_plain(to_plain(Refused("a.log", 9, "no")))
    assert type(found) is Corruption and (found.file, found.offset) == ("a.log", 9)


# -- Spark -----------------------------------------------------------------------------------------------------------


class Context:
    """What is asked of a SparkContext."""

    def __init__(self, end: BaseException | None = None) -> None:
        self._end = end
        self.tags: set[str] = {"of the caller"}
        self.while_running: set[str] = set()
        self.cancelled: list[str] = []

    @property
    def sparkContext(self) -> Context:  # noqa: N802
        return self

    def parallelize(self, values: list[Any], _: int) -> Context:
        self._values = values
        return self

    def map(self, function: Callable[[Any], Any]) -> Context:
        self._values = [function(value) for value in self._values]
        return self

    def collect(self) -> list[Any]:
        self.while_running = set(self.tags)
        if self._end is not None:
            raise self._end
        return self._values

    def addJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.add(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802
        self.cancelled.append(tag)


def test_an_interruption_ends_the_jobs_of_this_run_and_no_others() -> None:
    context = Context(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        SparkRunner(context).map(abs, [-1])  # type: ignore[arg-type]
    (ours,) = context.while_running - {"of the caller"}
    assert context.cancelled == [ours]
    assert context.tags == {"of the caller"}


def test_what_the_caller_has_set_is_as_before() -> None:
    context = Context()
    assert SparkRunner(context).map(abs, [-1, -2]) == [1, 2]  # type: ignore[arg-type]
    assert context.cancelled == [] and context.tags == {"of the caller"}

    def fail(_: int) -> int:
        raise BadOption("no", hint="yes")

    with pytest.raises(BadOption, match="no; yes"):
        SparkRunner(context).map(fail, [1])  # type: ignore[arg-type]
    assert context.tags == {"of the caller"}
