"""Threads that stay where they are for as long as a test wants, so that it sees what others can do meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lamina.testing import FaultyFiles

PATIENCE_S = 20.0


@contextmanager
def held_at(files: FaultyFiles, operation: str, what: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """Whoever comes there stays until the second event is set; the first says that somebody is there."""
    reached, goes_on = threading.Event(), threading.Event()

    def hold(called: str, path: str) -> None:
        if called == operation and what in path and not goes_on.is_set():
            reached.set()
            assert goes_on.wait(PATIENCE_S)

    files.before = hold
    try:
        yield reached, goes_on
    finally:
        goes_on.set()


@contextmanager
def in_thread(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """What came of it is in the list at the end: a result, or an error."""
    done: list[Any] = []

    def run() -> None:
        try:
            done.append(work())
        except Exception as error:
            done.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield done
    finally:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
