"""The lock of an engine, as plain Python and compiled: one thread at a time, again and again by the same, and no loop
waits for long."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import lamina.engines as package
from lamina.engines import lock as chosen
from lamina.engines import loops
from pure import load_pure

KINDS = [pytest.param(load_pure(package, "lock").Lock, id="python")]
if package.IS_COMPILED:
    KINDS.append(pytest.param(chosen.Lock, id="compiled"))
pytestmark = pytest.mark.parametrize("kind", KINDS)


class Holder:
    """A thread that has the lock until it is told to let it go."""

    def __init__(self, lock: Any) -> None:
        self._has_it, self._may_go = threading.Event(), threading.Event()
        self._lock = lock
        self._thread = threading.Thread(target=self._hold)
        self._thread.start()
        assert self._has_it.wait(10)

    def _hold(self) -> None:
        with self._lock:
            self._has_it.set()
            assert self._may_go.wait(10)

    def let_go(self) -> None:
        self._may_go.set()

    def end(self) -> None:
        self.let_go()
        self._thread.join()


def test_a_thread_takes_it_again_and_has_it_until_it_let_go_as_often(kind: type[Any]) -> None:
    lock = kind()
    assert not lock.is_mine()
    with lock, lock:
        assert lock.acquire() and lock.acquire(False) and lock.is_mine()
        lock.release()
        lock.release()
        assert lock.is_mine()
        other = []
        thread = threading.Thread(target=lambda: other.append((lock.is_mine(), lock.acquire(blocking=False))))
        thread.start()
        thread.join()
        assert other == [(False, False)]
    assert not lock.is_mine()


def test_who_does_not_have_it_cannot_release_it(kind: type[Any]) -> None:
    lock = kind()
    with pytest.raises(RuntimeError):
        lock.release()
    holder = Holder(lock)
    with pytest.raises(RuntimeError):
        lock.release()
    holder.end()
    assert lock.acquire(False)
    lock.release()


def test_it_is_tried_for_as_long_as_was_asked_and_free_afterwards(kind: type[Any]) -> None:
    lock = kind()
    holder = Holder(lock)
    assert not lock.acquire(False)
    assert not lock.acquire(True, 0.01)
    holder.end()
    assert lock.acquire(True, 0.01)
    lock.release()
    Holder(lock).end()


def test_a_loop_that_would_have_to_wait_gives_up_and_a_thread_waits(kind: type[Any]) -> None:
    lock = kind()
    holder = Holder(lock)
    with loops.at_once(), pytest.raises(loops.MustWait), lock:
        raise AssertionError("somebody else has it")
    assert not lock.is_mine()
    with loops.at_once():
        loops.has_changed()  # cannot be run again, so it waits
        threading.Timer(0.01, holder.let_go).start()
        with lock:
            assert lock.is_mine()
    holder.end()


def test_an_error_lets_it_go(kind: type[Any]) -> None:
    lock = kind()
    with pytest.raises(ValueError), lock:
        raise ValueError
    Holder(lock).end()


def test_many_threads_lose_no_count_and_all_get_it(kind: type[Any]) -> None:
    lock, times, threads = kind(), 300, 8
    counted = [0]
    inside: list[int] = []

    def count(number: int) -> None:
        for turn in range(times):
            if turn % 3 == 0:
                while not lock.acquire(True, 0.0001):
                    pass
            else:
                lock.acquire()
            try:
                inside.append(number)
                with lock:
                    before = counted[0]
                    if turn % 7 == 0:
                        threading.Event().wait(0)  # lets the others run
                    counted[0] = before + 1
                assert inside.pop() == number and not inside
            finally:
                lock.release()

    running = [threading.Thread(target=count, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    assert counted == [times * threads]
    assert lock.acquire(False)
    lock.release()
