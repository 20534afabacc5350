"""Closing things: every step is taken, and what went wrong is told."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lamina.errors import DiskFull, LogFailed, StorageError
from lamina.log.teardown import Teardown

FULL, FAILED = DiskFull("a: the disk is full"), LogFailed("b: the sync failed")


class Steps:
    """Notes who was here."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def __call__(self, name: str, error: BaseException | None = None) -> Callable[[], None]:
        def act() -> None:
            self.taken.append(name)
            if error is not None:
                raise error

        return act


@pytest.fixture
def step() -> Steps:
    return Steps()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


@pytest.mark.parametrize("error", [FULL, RuntimeError("a mistake"), MemoryError(), KeyboardInterrupt(), SystemExit()])
def test_every_step_is_taken_whatever_the_others_raise(step: Steps, error: BaseException) -> None:
    with pytest.raises(BaseException), Teardown("data") as teardown:  # noqa: B017 - all kinds there are
        teardown.later(step("last"))
        teardown.later(step("behind", error))
        teardown.step(step("first", error))
        teardown.try_to(step("perhaps", error), "it takes longer")
        teardown.step(step("second"))
    assert step.taken == ["first", "perhaps", "second", "behind", "last"]


def test_the_first_error_is_raised_as_it_is_and_the_others_are_logged_with_what_was_closed(
    step: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(DiskFull) as told, Teardown("data") as teardown:
        teardown.step(step("a", FULL))
        teardown.step(step("b", FAILED))
        teardown.step(step("c", RuntimeError("a mistake")))
    assert told.value is FULL
    assert lines(caplog) == ["closing data: b: the sync failed", "closing data: RuntimeError('a mistake')"]


def test_an_error_that_nobody_expects_names_what_was_closed_and_what_to_do(step: Steps) -> None:
    mistake = OverflowError("int too large to convert")
    with pytest.raises(StorageError) as told, Teardown("data/t") as teardown:
        teardown.step(step("a", mistake))
    assert str(told.value).startswith(f"data/t: not closed in order: {mistake!r}; open it again")
    assert told.value.__cause__ is mistake


def test_an_error_that_many_steps_raise_is_told_once(step: Steps, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(LogFailed), Teardown("data") as teardown:
        teardown.step(step("a", FAILED))
        teardown.step(step("b", FAILED))
        teardown.try_to(step("c", FAILED), "it takes longer")
    assert lines(caplog) == []


def test_an_interruption_counts_before_every_error(step: Steps, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt), Teardown("data") as teardown:
        teardown.step(step("a", FULL))
        teardown.step(step("b", KeyboardInterrupt()))
        teardown.step(step("c", FAILED))
    assert lines(caplog) == ["closing data: a: the disk is full", "closing data: b: the sync failed"]


def test_what_nothing_depends_on_is_logged_with_what_comes_of_it(step: Steps, caplog: pytest.LogCaptureFixture) -> None:
    with Teardown("data") as teardown:
        teardown.try_to(step("a", RuntimeError("a mistake")), "the next start takes longer")
    assert lines(caplog) == ["data: the next start takes longer: RuntimeError('a mistake')"]


def test_what_broke_the_block_off_is_raised_as_it_is(step: Steps, caplog: pytest.LogCaptureFixture) -> None:
    mistake = OverflowError("int too large to convert")
    with pytest.raises(OverflowError) as told, Teardown("data") as teardown:
        teardown.later(step("close", FULL))
        raise mistake
    assert told.value is mistake and step.taken == ["close"]
    assert lines(caplog) == ["closing data: a: the disk is full"]


def test_what_went_well_is_not_undone(step: Steps) -> None:
    with Teardown("data") as teardown:
        teardown.later(step("undo"))
        teardown.cancel()
    assert step.taken == []


@pytest.mark.parametrize("fails", [False, True])
def test_what_is_for_an_orderly_end_is_left_out_when_the_block_failed(step: Steps, fails: bool) -> None:
    try:
        with Teardown("data") as teardown:
            teardown.later(step("close"))
            teardown.later(step("checkpoint"), unless_failed=True)
            teardown.later(step("stop", FULL))
            if fails:
                raise FAILED
    except StorageError as told:
        assert told is (FAILED if fails else FULL)
    assert step.taken == ["stop", "close"] if fails else ["stop", "checkpoint", "close"]


@pytest.mark.parametrize("error", [None, FULL, KeyboardInterrupt()])
def test_a_manager_that_is_entered_is_left_at_the_end_and_knows_how_it_came_to_it(
    step: Steps, error: BaseException | None
) -> None:
    seen: list[BaseException | None] = []

    @contextmanager
    def manager() -> Iterator[str]:
        try:
            yield "value"
        except BaseException as problem:
            seen.append(problem)
            raise
        seen.append(None)

    try:
        with Teardown("data") as teardown:
            teardown.later(step("close"))
            assert teardown.enter(manager()) == "value"
            if error is not None:
                raise error
    except BaseException as told:
        assert told is error
    assert seen == [error] and step.taken == ["close"]


def test_the_trace_of_a_mistake_is_there_for_who_looks_for_it(step: Steps, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(StorageError), Teardown("data") as teardown:
        teardown.step(step("a", RuntimeError("a mistake")))
    assert [each.levelname for each in caplog.records if each.exc_info] == ["DEBUG"]
