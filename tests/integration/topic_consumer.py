"""A consumer of a group that is killed over and over: run it with PORT FILE, and it starts one for each line it reads.

Starting an interpreter takes long, so this one loads the client once and forks: what is killed is a process of its own
with a connection of its own. Each works as such programs do: first what it was given before and has not acknowledged,
then what is new. What it sees and what it acknowledges goes to FILE before anything else happens:

    start      it is connected
    seen ID N  the entry with the number N came
    acked ID   the server said that it is acknowledged
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import random
import signal
import sys
import time
from typing import Any

import redis

HOST = "127.0.0.1"
KEY, GROUP, NAME = "s", "g", "worker"
_DIE_WITH_PARENT = 1
_LIBC = ctypes.CDLL(None)


def consume(port: int, file: int, seed: str) -> None:
    """For ever."""
    rng = random.Random(seed)
    client: Any = redis.Redis(host=HOST, port=port, socket_timeout=60)
    client.ping()
    os.write(file, b"start\n")
    since = "0"  # what was given to this name before; then what is new
    while True:
        reply = client.xreadgroup(GROUP, NAME, {KEY: since}, count=rng.choice([1, 5, 20]), block=1000)
        entries = reply[0][1] if reply else []
        if not entries:
            since = ">"
        later: list[bytes] = []
        for id, fields in entries:
            os.write(file, b"seen %b %b\n" % (id, fields[b"n"]))
            time.sleep(rng.choice([0, 0, 0.001]))
            if rng.random() < 0.9:
                acknowledge(client, file, [id])
            else:
                later.append(id)
        acknowledge(client, file, later)


def acknowledge(client: Any, file: int, ids: list[bytes]) -> None:
    """Say so to the server, then to the file."""
    if ids:
        assert client.xack(KEY, GROUP, *ids) == len(ids)
    os.write(file, b"".join(b"acked %b\n" % id for id in ids))


def main(port: int, path: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number, _ in enumerate(sys.stdin):
        child = os.fork()
        if not child:
            _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)
            with contextlib.suppress(redis.ConnectionError):  # the server was stopped
                consume(port, file, f"{number}")
            os._exit(0)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
