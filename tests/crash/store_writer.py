"""A process that writes to a store and says what was promised to it, until it is killed (test_store_kill.py).

    python store_writer.py <folder> <seed>

Each thread has keys of its own, and after its session number i they are as ``state(thread, i)`` says. A line on
standard output, "<thread> <i>", means that its sessions up to i were told to be durable.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time

import lamina
from lamina.engines.store.api import Store
from lamina.engines.store.options import StoreOptions
from lamina.errors import LaminaError
from lamina.log.files.real import RealFiles

THREADS = 3
KEYS = 20
AT_ONCE = 4
"""Sessions of one thread that may be under way."""
OPTIONS = StoreOptions(epoch_ms=3, memory_bytes=20_000, part_bytes=4096)
STORAGE = 100


def value(thread: int, number: int) -> bytes:
    return b"%d %d " % (thread, number) + b"x" * (number * 37 % 200)


def state(thread: int, number: int) -> dict[bytes, bytes]:
    """What a thread's storage holds after its session ``number``; none with 0."""
    found: dict[bytes, bytes] = {}
    for each in range(max(number - 3 * KEYS, 1), number + 1):
        found[b"key %d" % (each % KEYS)] = value(thread, each)
        found.pop(b"key %d" % (each * 7 % KEYS), None)
    if number:
        found[b"number"] = b"%d" % number
    return found


def write(store: Store, thread: int, number: int, *, wait: bool) -> int:
    """Session ``number``. Returns its epoch."""
    with store.session(wait=wait) as session:
        session.put(STORAGE + thread, b"key %d" % (number % KEYS), value(thread, number))
        session.remove(STORAGE + thread, b"key %d" % (number * 7 % KEYS))
        session.put(STORAGE + thread, b"number", b"%d" % number)
    return session.epoch


def say(thread: int, number: int) -> None:
    os.write(1, b"%d %d\n" % (thread, number))


def go_on(store: Store, thread: int, rng: random.Random) -> None:
    found = store.get(STORAGE + thread, b"number")
    number = int(found or b"0")
    while True:
        ahead = rng.choice([1, 1, AT_ONCE])
        for each in range(ahead):
            number += 1
            epoch = write(store, thread, number, wait=each == ahead - 1)
        store.wait_durable(epoch)
        say(thread, number)


class OwnFiles(RealFiles):
    """Not exactly ``RealFiles``: compactions run in this process, and are cut short with it more often."""


def look_after(store: Store, rng: random.Random) -> None:
    while True:
        time.sleep(rng.random() * 0.05)
        try:
            act = rng.choice([store.rotate, store.compact, store.compact, store.clean_up])
            act()
        except LaminaError as error:  # one that a killed process began may not be over
            if error.code != "log_locked":
                raise


def main() -> None:
    folder, seed = sys.argv[1:]
    rng = random.Random(seed)
    store = lamina.open(folder, store=OPTIONS, files=rng.choice([OwnFiles(), OwnFiles(), RealFiles()])).store
    os.write(1, b"open\n")
    jobs = [threading.Thread(target=go_on, args=(store, each, random.Random(rng.random()))) for each in range(THREADS)]
    jobs.append(threading.Thread(target=look_after, args=(store, random.Random(rng.random()))))
    threading.excepthook = lambda problem: os.write(2, f"{problem.exc_type}: {problem.exc_value}\n".encode()) and None
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()


if __name__ == "__main__":
    main()
