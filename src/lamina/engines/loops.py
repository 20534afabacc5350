"""What an event loop does at once, and what it must not: wait for a disk, or for whoever holds a lock meanwhile.

A server runs a command on its loop as long as the command finds what it needs in memory. Where an engine has to touch
the disk it says ``must_wait()`` first, before anything is changed. On the loop that breaks the command off; the server
then runs it from its start in a worker thread, where the same call does nothing. So engines have one way of doing
things, and whoever calls them from a thread of its own knows nothing of this.

Compiled as it stands (setup.py), and run as plain Python where it is not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

_SHORT_S: Final = 0.0002


class MustWait(BaseException):
    """The command would have to wait, and has changed nothing yet. No error: only the loop's own code catches it."""


# What a thread may do: anything, as most do; nothing that waits, as a loop runs it; or wait after all, as a command of
# the loop has changed something and cannot be run again.
_ANYTHING: Final = 0
_AT_ONCE: Final = 1
_CHANGED: Final = 2


class State:
    """Of one thread."""

    def __init__(self) -> None:
        self.may = _ANYTHING


class _Thread(threading.local):
    def __init__(self) -> None:
        self.state = State()


_thread = _Thread()


def must_wait() -> None:
    """What comes next may wait for the disk. Raises: MustWait where a loop runs this.

    Say it before anything is changed. A command that has changed something cannot be run again: it waits, on the loop.
    """
    if _thread.state.may == _AT_ONCE:
        raise MustWait


def begin_command() -> None:
    """Nothing is changed yet. A loop says so before each command that it may have to run again."""
    state: State = _thread.state
    if state.may == _CHANGED:
        state.may = _AT_ONCE


def has_changed() -> None:
    """Something is changed now: an engine says so."""
    state: State = _thread.state
    if state.may == _AT_ONCE:
        state.may = _CHANGED


def make_way() -> None:
    """Between two pieces of what takes long, without the lock: whoever waits for it gets it only if others run as well.

    Raises: MustWait where a loop runs this, as ``must_wait``: it is too long for that.
    """
    must_wait()
    time.sleep(0)


def is_at_once() -> bool:
    """A loop runs this."""
    return bool(_thread.state.may)


def begin_at_once() -> int:
    """From now on this thread may not wait: what a loop does comes between this and ``end_at_once``.

    Returns what that is to be given.
    """
    state: State = _thread.state
    was, state.may = state.may, _AT_ONCE
    return was


def end_at_once(was: int) -> None:
    _thread.state.may = was


def may_wait() -> int:
    """This thread may wait from now on, whatever the loop does with it: what was begun is finished.

    Returns what ``end_at_once`` is to be given.
    """
    state: State = _thread.state
    was, state.may = state.may, _ANYTHING
    return was


class Lock:
    """A lock that a thread may take more than once. On a loop it is waited for no longer than it takes to have a thread
    wait for it instead; then that is ``must_wait``.
    """

    def __init__(self) -> None:
        lock = threading.RLock()
        self.acquire = lock.acquire
        self.release = lock.release
        self.is_mine: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]
        """This thread has it."""

    def __enter__(self) -> None:
        if self.acquire(False):
            return
        if _thread.state.may == _AT_ONCE and self.acquire(True, _SHORT_S):
            return
        must_wait()
        self.acquire()

    def __exit__(self, kind: object, problem: object, trace: object) -> None:
        self.release()
