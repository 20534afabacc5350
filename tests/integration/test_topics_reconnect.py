"""A consumer that is killed and comes back, again and again, while messages go on: it misses nothing.

``LAMINA_CAMPAIGN=10`` kills it 200 times.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from integration.lamina_server import topic_server
from integration.resp_wire import OK, Wire

pytest.importorskip("redis", reason="redis-py is not installed")

RESTARTS = 20 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
CONSUMER = Path(__file__).with_name("topic_consumer.py")
PATIENCE_S = 60.0


class Publisher(threading.Thread):
    """Sends numbered entries, one by one and several at a time, until it is told to stop."""

    def __init__(self, port: int, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.ids: list[bytes] = []
        """By number."""
        self.has_to_stop = threading.Event()
        self._port, self._rng = port, rng

    def run(self) -> None:
        with Wire(self._port) as wire:
            while not self.has_to_stop.wait(self._rng.choice([0, 0.002, 0.005])):
                numbers = range(len(self.ids), len(self.ids) + self._rng.choice([1, 1, 5]))
                self.ids += wire.ask_all([("XADD", "s", "*", "n", number) for number in numbers])


class Consumer:
    """At most one at a time (topic_consumer.py)."""

    def __init__(self, process: subprocess.Popen[str], journal: Path) -> None:
        self._process, self.journal = process, journal

    def start(self) -> int:
        """Returns its process."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        return int(self._said())

    def kill(self, process: int) -> None:
        """As if the power went; it is gone when this returns."""
        os.kill(process, signal.SIGKILL)
        assert self._said() == f"{-signal.SIGKILL}\n", "the consumer was not killed, and it ended"

    def has_ended(self) -> bool:
        """By itself: it must not."""
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], 0)[0])

    def starts(self) -> int:
        return self.journal.read_bytes().count(b"start\n")

    def lines(self) -> list[list[bytes]]:
        return [line.split() for line in self.journal.read_bytes().splitlines()]

    def _said(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def consumer(port: int, journal: Path) -> Iterator[Consumer]:
    journal.touch()
    words = [sys.executable, str(CONSUMER), str(port), str(journal)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Consumer(process, journal)
    finally:
        process.kill()
        process.communicate()


def until(worker: Consumer, is_so: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not is_so():
        assert not worker.has_ended(), "the consumer was not killed, and it ended"
        assert time.monotonic() < end, what
        time.sleep(0.002)


@pytest.mark.slow
def test_a_consumer_that_is_killed_and_comes_back_misses_nothing(tmp_path: Path) -> None:
    rng = random.Random(7)
    with (
        topic_server(tmp_path / "data", sync="interval") as server,
        Wire(server.port) as wire,
        consumer(server.port, tmp_path / "journal") as worker,
    ):
        assert wire.ask("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM") == OK
        publisher = Publisher(server.port, random.Random(8))
        publisher.start()
        for _ in range(RESTARTS):
            starts = worker.starts()
            process = worker.start()
            if rng.random() < 0.8:  # else it may die before it is connected
                until(worker, lambda: worker.starts() > starts, "the consumer does not get to work")  # noqa: B023
            time.sleep(rng.choice([0.002, 0.02, 0.08]) * rng.random())
            worker.kill(process)
        publisher.has_to_stop.set()
        publisher.join(PATIENCE_S)
        assert not publisher.is_alive()

        process = worker.start()
        until(worker, lambda: is_all_done(wire, publisher.ids[-1]), "the consumer does not come to the end")
        worker.kill(process)
        check(worker.lines(), publisher.ids)


def is_all_done(wire: Wire, last: bytes) -> bool:
    """The group has had everything, and acknowledged it."""
    [group] = wire.ask("XINFO", "GROUPS", "s")
    facts = dict(zip(group[::2], group[1::2], strict=True))
    return (facts[b"pending"], facts[b"last-delivered-id"]) == (0, last)


def check(lines: list[list[bytes]], ids: list[bytes]) -> None:
    """Every entry was seen, as it was sent, and only those again that had not been acknowledged."""
    numbers = {id: b"%d" % number for number, id in enumerate(ids)}
    acked: set[bytes] = set()
    seen: set[bytes] = set()
    again = 0
    newest = -1
    for what, *rest in lines:
        if what == b"acked":
            acked.add(rest[0])
        elif what == b"seen":
            id, number = rest
            assert id not in acked, f"{number!r} came again, though it was acknowledged"
            assert numbers.get(id) == number, f"{number!r} came under an id that is not its own"
            if id in seen:
                again += 1
            else:
                assert int(number) == newest + 1, f"{number!r} came after {newest}: some were left out, or not in order"
                newest = int(number)
            seen.add(id)
    assert seen == {*ids}
    assert again, "it was never killed between seeing and acknowledging: nothing was tried"
