"""Names of new folders: one sync of the folder above does for all that were made meanwhile, and none is missed."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from lamina.log.commit import FolderSyncs
from lamina.testing import MemoryFiles
from waiting import wait_until

PATIENCE_S = 30.0
OTHERS = 5


class Slow(MemoryFiles):
    """Syncing the folder above waits until it is let go; ``errors`` says how each ends."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = 0
        self.goes_on = threading.Semaphore(0)
        self.errors: dict[int, OSError] = {}

    def sync_folder(self, folder: str) -> None:
        if folder != "all":
            return
        self.begun += 1
        number = self.begun
        assert self.goes_on.acquire(timeout=PATIENCE_S)
        if number in self.errors:
            raise self.errors[number]


class Counting:
    """A lock that knows how many came for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.came = 0

    def __enter__(self) -> None:
        self.came += 1  # they come one after the other
        self._lock.acquire()

    def __exit__(self, *problem: object) -> None:
        self._lock.release()


def crowd(files: Slow, pool: ThreadPoolExecutor) -> tuple[Future[None], list[Future[None]]]:
    """One that syncs the folder above, and others whose names were made while it did."""
    syncs, lock = FolderSyncs(), Counting()
    syncs._lock = lock  # type: ignore[assignment]
    first = pool.submit(syncs.sync_new, files, "all/first")
    wait_until(lambda: files.begun == 1)
    others = []
    for number in range(OTHERS):
        others.append(pool.submit(syncs.sync_new, files, f"all/{number}"))
        wait_until(lambda: lock.came == 2 + len(others) - 1)
    assert not first.done() and not any(other.done() for other in others)
    return first, others


def test_those_that_came_while_one_was_under_way_share_the_next() -> None:
    files = Slow()
    with ThreadPoolExecutor(1 + OTHERS) as pool:
        first, others = crowd(files, pool)
        files.goes_on.release(2)
        for each in (first, *others):
            each.result(PATIENCE_S)
    assert files.begun == 2, "one that was under way is not theirs"


def test_one_that_fails_fails_for_all_that_rest_on_it() -> None:
    files = Slow()
    files.errors[2] = OSError(errno.EIO, "gone wrong")
    with ThreadPoolExecutor(1 + OTHERS) as pool:
        first, others = crowd(files, pool)
        files.goes_on.release(2)
        first.result(PATIENCE_S)
        for other in others:
            with pytest.raises(OSError, match="gone wrong"):
                other.result(PATIENCE_S)
    assert files.begun == 2


def test_one_that_fails_is_not_theirs_who_came_later() -> None:
    files = Slow()
    files.errors[1] = OSError(errno.EIO, "gone wrong")
    with ThreadPoolExecutor(1 + OTHERS) as pool:
        first, others = crowd(files, pool)
        files.goes_on.release(2)
        with pytest.raises(OSError, match="gone wrong"):
            first.result(PATIENCE_S)
        for other in others:
            other.result(PATIENCE_S)
    assert files.begun == 2
