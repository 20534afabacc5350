"""Closing things: every step is taken, whatever the others raise.

    with Teardown(folder) as teardown:
        teardown.step(groups.close)
        teardown.step(log.close)

A lock that stays taken because an earlier step failed keeps everybody out for as long as the process lives. So what
went wrong first is raised when all is done, and what else went wrong is logged with the name of what was being closed:
nothing is lost in silence. An interruption (Ctrl-C, a signal while engines are restored) counts before every error.

It opens things, too: what is to be closed if a later step of the opening fails is said with ``later``.

    with Teardown(folder) as teardown:
        log = Log.open(folder)
        teardown.later(log.close)
        engine = Engine(log)
        teardown.cancel()
        return engine
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self, TypeVar

from lamina.errors import LaminaError, StorageError

logger = logging.getLogger("lamina.log")

Act = Callable[[], object]
T = TypeVar("T")


class Teardown:
    """A context manager. Of one thread.

    Raises at its end: the first error of the block and its steps. A LaminaError comes as it is; what is none, a mistake
    of ours or no memory, is the cause of a StorageError that names what was being closed.
    """

    def __init__(self, what: str) -> None:
        """``what`` is being closed: a folder, or a name that people know it by."""
        self._what = what
        self._later: list[tuple[Act, bool]] = []
        self._failed: BaseException | None = None  # what broke the block off
        self._first: BaseException | None = None
        self._known: list[BaseException] = []

    def step(self, act: Act) -> None:
        """Do it now. What it raises waits until all is done."""
        try:
            act()
        except BaseException as error:
            self.add(error)

    def try_to(self, act: Act, or_else: str) -> None:
        """Do what nothing depends on; ``or_else`` says what comes of it where it fails, which is logged."""
        try:
            act()
        except Exception as error:
            if not self._is_known(error):
                logger.warning("%s: %s: %s", self._what, or_else, shown(error))
                _log_trace(self._what, error)
        except BaseException as error:
            self.add(error)

    def later(self, act: Act, *, unless_failed: bool = False) -> None:
        """Do it at the end; what was said last comes first. ``unless_failed``: not if the block was broken off."""
        self._later.append((act, unless_failed))

    def enter(self, manager: AbstractContextManager[T]) -> T:
        """Enter it now, and leave it at the end."""
        value = manager.__enter__()

        def leave() -> None:
            failed = self._failed
            if failed is None:
                manager.__exit__(None, None, None)
            else:
                manager.__exit__(type(failed), failed, failed.__traceback__)

        self.later(leave)
        return value

    def cancel(self) -> None:
        """All went well: nothing of ``later`` has to be done."""
        self._later.clear()

    def add(self, error: BaseException) -> None:
        """Something went wrong, and is raised at the end or logged."""
        if self._is_known(error):
            return
        self._known.append(error)
        first = self._first
        if first is None:
            self._first = error
        elif _is_interruption(error) and not _is_interruption(first):
            self._first = error
            self._log(first)
        else:
            self._log(error)

    def _is_known(self, error: BaseException) -> bool:
        """It was raised by another step already: a log that failed says the same to everybody."""
        return any(error is known for known in self._known)

    def _log(self, error: BaseException) -> None:
        logger.error("closing %s: %s", self._what, shown(error))
        _log_trace(self._what, error)

    def close(self) -> None:
        """Do now what was left for the end."""
        self.__exit__(None, None, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._failed = error
            self.add(error)
        while self._later:
            act, unless_failed = self._later.pop()
            if error is None or not unless_failed:
                self.step(act)
        first, self._first, self._failed = self._first, None, None
        self._known.clear()
        try:
            if first is None or first is error:
                return
            if isinstance(first, LaminaError) or _is_interruption(first):
                raise first
            _log_trace(self._what, first)
            raise not_in_order(self._what, first) from first
        finally:
            del first, error  # else error and frame would keep each other, and all that was to be let go


def not_in_order(what: str, error: BaseException) -> StorageError:
    """For an error that nobody expects: it says at least what it befell, and what to do."""
    return StorageError(
        f"{what}: not closed in order: {shown(error)}", hint="open it again: what its files hold is recovered"
    )


def shown(error: BaseException) -> str:
    """A LaminaError says it all; of others the class is half of what there is to say."""
    return str(error) if isinstance(error, LaminaError) else repr(error)


def _is_interruption(error: BaseException) -> bool:
    return not isinstance(error, Exception)


def _log_trace(what: str, error: BaseException) -> None:
    """Where it came from, for who looks for a mistake of ours; to everybody else one line says more."""
    if not isinstance(error, LaminaError):
        logger.debug("%s", what, exc_info=error)
