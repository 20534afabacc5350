"""Closing cannot fail halfway: whatever is raised on the way, locks and files are let go, and it is told."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from closing_lab import ERRORS, KINDS, Kind, Striking, assert_let_go
from lamina.errors import LaminaError

EVERY_KIND = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
EVERY_ERROR = pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
_MOST = 400
"""Operations of one closing, or opening; there are fewer."""


def used(kind: Kind, files: Striking) -> object:
    opened = kind.open(files)  # type: ignore[arg-type]
    kind.use(opened)
    return opened


@EVERY_KIND
@EVERY_ERROR
def test_whichever_step_of_a_closing_fails_everything_is_let_go(
    kind: Kind, error: Callable[[], BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    for nth in range(1, _MOST):
        files = Striking()
        opened = used(kind, files)
        before = set(kind.holds(opened))
        caplog.clear()
        files.arm(nth, error)
        told: BaseException | None = None
        try:
            opened.close()  # type: ignore[attr-defined]
        except BaseException as problem:
            told = problem
        assert_let_go(files)
        assert told is None or isinstance(told, LaminaError | KeyboardInterrupt)
        if not files.struck:
            break
        is_told = told is not None or any(each.levelno >= logging.WARNING for each in caplog.records)
        files.arm(0, error)
        opened.close()  # type: ignore[attr-defined]
        again = kind.open(files)  # type: ignore[arg-type]
        assert is_told or before <= set(kind.holds(again)), f"lost in silence: {files.struck}"
        again.close()
        assert_let_go(files)
    assert nth > 1 and not files.struck


@EVERY_KIND
@EVERY_ERROR
def test_whichever_step_of_an_opening_fails_everything_is_let_go(
    kind: Kind, error: Callable[[], BaseException]
) -> None:
    before = Striking()
    used(kind, before)
    contents = before.disk.contents()  # as after a kill: there is something to recover
    for nth in range(1, _MOST):
        files = Striking(type(before.disk)(contents))
        files.arm(nth, error)
        try:
            opened = kind.open(files)  # type: ignore[arg-type]
        except BaseException:
            opened = None
        files.arm(0, error)
        if opened is not None:
            opened.close()
        assert_let_go(files)
        if not files.struck:
            break
    assert nth > 1 and not files.struck
