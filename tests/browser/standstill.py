"""Work that a server has a process do for it, made to stand still while somebody looks at it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def children(pid: int) -> set[int]:
    """Processes that any thread of ``pid`` has begun."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):
            found.update(map(int, (task / "children").read_text().split()))
    return found


@contextmanager
def stopped_children(pid: int) -> Iterator[None]:
    """Each that begins meanwhile is stopped at once; they go on when the block ends."""
    before, over = children(pid), threading.Event()

    def watch() -> None:
        while not over.is_set():
            for child in children(pid) - before:
                with suppress(OSError):
                    os.kill(child, signal.SIGSTOP)
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    watcher.start()
    _watchers[pid] = (over, watcher)
    try:
        yield
    finally:
        go_on(pid)


_watchers: dict[int, tuple[threading.Event, threading.Thread]] = {}


def go_on(pid: int) -> None:
    """Let them."""
    over, watcher = _watchers[pid]
    over.set()
    watcher.join()
    for child in children(pid):
        with suppress(OSError):
            os.kill(child, signal.SIGCONT)
