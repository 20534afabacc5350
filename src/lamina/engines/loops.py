"""What an event loop does at once, and what it must not: wait for a disk, or for whoever holds a lock meanwhile.

A server runs a command on its loop as long as the command finds what it needs in memory. Where an engine has to touch
the disk it says ``must_wait()`` first, before anything is changed. On the loop that breaks the command off; the server
then runs it from its start in a worker thread, where the same call does nothing. So engines have one way of doing
things, and whoever calls them from a thread of its own knows nothing of this.

Compiled as it stands (setup.py), and run as plain Python where it is not.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident
from typing import Final

_SHORT_S: Final = 0.0002  # less than it takes to have a thread wait instead


class MustWait(BaseException):
    """The command would have to wait, and has changed nothing yet. No error: only the loop's own code catches it."""


# What a thread may do: anything, as most do; nothing that waits, as a loop runs it; or wait after all, as a command of
# the loop has changed something and cannot be run again.
_ANYTHING: Final = 0
_AT_ONCE: Final = 1
_CHANGED: Final = 2


class Thread:
    """One that runs a loop, and what it may do now."""

    def __init__(self) -> None:
        self.may = _ANYTHING

    def begin_at_once(self) -> int:
        """From now on it may not wait: what a loop does comes between this and ``end_at_once``.

        Returns what that is to be given.
        """
        was, self.may = self.may, _AT_ONCE
        return was

    def end_at_once(self, was: int) -> None:
        self.may = was

    def begin_command(self) -> None:
        """Nothing is changed yet. A loop says so before each command that it may have to run again."""
        if self.may == _CHANGED:
            self.may = _AT_ONCE


_threads: dict[int, Thread] = {}  # those that run loops


def this_thread() -> Thread:
    """For who runs a loop: to keep, for it is asked for often."""
    return _threads.setdefault(get_ident(), Thread())


def must_wait() -> None:
    """What comes next may wait for the disk. Raises: MustWait where a loop runs this.

    Say it before anything is changed. A command that has changed something cannot be run again: it waits, on the loop.
    """
    thread: Thread | None = _threads.get(get_ident())
    if thread is not None and thread.may == _AT_ONCE:
        raise MustWait


def has_changed() -> None:
    """Something is changed now: an engine says so."""
    thread: Thread | None = _threads.get(get_ident())
    if thread is not None and thread.may == _AT_ONCE:
        thread.may = _CHANGED


def make_way() -> None:
    """Between two pieces of what takes long, without the lock: whoever waits for it gets it only if others run as well.

    Raises: MustWait where a loop runs this, as ``must_wait``: it is too long for that.
    """
    must_wait()
    time.sleep(0)


def is_at_once() -> bool:
    """A loop runs this."""
    thread: Thread | None = _threads.get(get_ident())
    return thread is not None and thread.may != _ANYTHING


@contextmanager
def at_once() -> Iterator[None]:
    """This thread may not wait meanwhile."""
    thread = this_thread()
    was = thread.begin_at_once()
    try:
        yield
    finally:
        thread.end_at_once(was)


@contextmanager
def may_wait() -> Iterator[None]:
    """This thread may wait meanwhile, whatever the loop does with it: what was begun is finished."""
    thread = _threads.get(get_ident())
    if thread is None:
        yield
        return
    was, thread.may = thread.may, _ANYTHING
    try:
        yield
    finally:
        thread.may = was


def wait_for(acquire: Callable[[float], bool]) -> None:
    """Wait for a lock that somebody else has. ``acquire`` tries for so many seconds at most; -1: for ever.

    Raises: MustWait where a loop runs this, unless the lock is free soon.
    """
    thread: Thread | None = _threads.get(get_ident())
    if thread is not None and thread.may == _AT_ONCE and acquire(_SHORT_S):
        return
    must_wait()
    acquire(-1)
