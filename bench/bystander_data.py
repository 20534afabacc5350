"""What servers have before they are measured: said over the wire, the same to Lamina and to Redis, once for all cases.

Each server is started on a copy, so that no case finds what another one has left.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from bench.aggressor import Client
from bench.rivals import HOST
from bench.runner import Context
from bench.topic_entries import id_of, value
from bench.topic_servers import TOPIC, Server, Wrong, command, lamina, redis

ENTRIES = 1_000_000
LEAST = 2000
BYTES = 400 << 20  # of the largest data and its copy, about
BATCH = 1000
DONE = 0.6
"""Of the entries, how many went through the queue; and so on."""
SPARSE = 0.3
SPARSE_STEP = 100
STORED = 0.5
TOPICS = 0.006
JOBS = 0.1
PENDING = 0.2


def ids(first: int, end: int, step: int = 1) -> list[bytes]:
    return [id_of(number) for number in range(first, end, step)]


def key_of(number: int) -> bytes:
    """In the store."""
    return b"key%013d" % number


def job_id(number: int, whose: int = 0) -> bytes:
    return b"%08x-0000-4000-8000-%012x" % (whose, number)


def add_job(id: bytes, queue: bytes) -> bytes:
    return b"add %b %b 60000 600000 20\r\n%020d\r\n" % (id, queue, 0)


def adds(first: int, end: int) -> Iterator[bytes]:
    return (command("XADD", TOPIC, id_of(number), b"f", value(number)) for number in range(first, end))


def deliver(group: str, count: int) -> bytes:
    return command("XREADGROUP", "GROUP", group, "c", "COUNT", str(count), "STREAMS", TOPIC, ">")


def stream(to: Client, entries: int) -> None:
    """One topic. A fifth of it is pending for a consumer of one group; another group has been given nothing."""
    to.say_many(adds(0, entries))
    to.say(command("XGROUP", "CREATE", TOPIC, "g", "0"), command("XGROUP", "CREATE", TOPIC, "fresh", "0"))
    for first in range(0, int(entries * PENDING), BATCH):
        to.say(deliver("g", min(BATCH, int(entries * PENDING) - first)))


def done(to: Client, entries: int) -> None:
    """The usual queue on a stream: added, delivered, acknowledged, deleted; one entry is left."""
    to.say(command("XGROUP", "CREATE", TOPIC, "g", "0", "MKSTREAM"))
    count = int(entries * DONE)
    for first in range(0, count, BATCH):
        these = ids(first, min(first + BATCH, count))
        to.say(*adds(first, first + len(these)), deliver("g", BATCH))
        to.say(command("XACK", TOPIC, "g", *these), command("XDEL", TOPIC, *these))
    to.say(*adds(count, count + 1))


def stays(to: Client, entries: int) -> None:
    """All are deleted but the first one."""
    to.say(*adds(0, 1), command("XGROUP", "CREATE", TOPIC, "g", "0"))
    for first in range(1, entries, BATCH):
        end = min(first + BATCH, entries)
        to.say(*adds(first, end), command("XDEL", TOPIC, *ids(first, end)))


def sparse(to: Client, entries: int) -> None:
    """All are delivered, and all but one in a hundred are acknowledged."""
    count = int(entries * SPARSE)
    to.say_many(adds(0, count))
    to.say(command("XGROUP", "CREATE", TOPIC, "g", "0"))
    for first in range(0, count, BATCH):
        done = [id_of(number) for number in range(first, min(first + BATCH, count)) if number % SPARSE_STEP]
        to.say(deliver("g", BATCH), command("XACK", TOPIC, "g", *done))


def many(to: Client, entries: int) -> None:
    """Thousands of topics with an entry each."""
    to.say_many(command("XADD", b"topic-%d" % number, "*", "f", "v") for number in range(int(entries * TOPICS)))


def stored(to: Client, entries: int) -> None:
    """Keys in the store, compacted, and a tenth of them once more."""
    count = int(entries * STORED)
    for part in (count, count // 10):
        for first in range(0, part, BATCH):
            words: list[str | bytes] = []
            for number in range(first, min(first + BATCH, part)):
                words += ["PUT", key_of(number), value(number)]
            to.say(command("S.WRITE", "1", *words, "NOWAIT"))
        to.say(command("WAITAOF", "1", "0", "0"), *([command("S.COMPACT")] if part == count else []))


def jobs(to: Client, entries: int) -> None:
    """Jobs that wait in one queue."""
    to.say_many(add_job(job_id(number), b"mail") for number in range(int(entries * JOBS)))


DATA: dict[str, Callable[[Client, int], None]] = {
    "stream": stream,
    "done": done,
    "stays": stays,
    "sparse": sparse,
    "many": many,
    "store": stored,
    "jobs": jobs,
}
OF_WORKQ = {"jobs"}
_FLAGS = ("--workq", f"{HOST}:0", "--http", "off", "--reserve-bytes", "0")
_QUIET = ("--max-connections", "1000", "--log-level", "warning")


def entries_of(context: Context) -> int:
    return context.scaled(ENTRIES, LEAST)


@contextmanager
def server_on(
    context: Context, data: str, sync: str, flags: Sequence[str] = (), *, sync_ms: float = 0, is_redis: bool
) -> Iterator[Server]:
    """A server that has such data, on a disk whose syncs take so much longer."""
    made = _made(context, data, is_redis=is_redis)
    folder = context.fresh(f"on-{data}-{'redis' if is_redis else 'lamina'}")
    try:
        _copy(made, folder)
        with _server(folder, sync, flags, sync_ms, is_redis=is_redis) as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _server(
    folder: str, sync: str, flags: Sequence[str] = (), sync_ms: float = 0, *, is_redis: bool
) -> AbstractContextManager[Server]:
    if is_redis:
        return redis(folder, sync, sync_ms)
    return lamina(folder, sync, *_FLAGS, *_QUIET, *flags, sync_ms=sync_ms)


def _made(context: Context, data: str, *, is_redis: bool) -> str:
    """A folder of a server that has it, made when first asked for."""
    key = f"data-{data}-{'redis' if is_redis else 'lamina'}"
    if key not in context.kept:
        entries = entries_of(context)
        context.need_room(int(BYTES * entries / ENTRIES))
        context.say(f"making {key}")
        folder = context.fresh(key)
        with _server(folder, "os", is_redis=is_redis) as server:
            port = server.workq if data in OF_WORKQ else server.address[1]
            assert port is not None
            with Client(port, is_workq=data in OF_WORKQ) as to:
                DATA[data](to, entries)
                if to.errors:
                    raise Wrong(f"{key}: {to.error!r}")
                if is_redis:
                    _rewrite(to)
            server.stop()
        context.kept[key] = folder
    return context.kept[key]


def _rewrite(to: Client) -> None:
    """Have Redis keep it as one file that it loads quickly."""
    to.ask("BGREWRITEAOF")
    while b"aof_rewrite_in_progress:1" in (said := to.ask("INFO", "persistence")) or b"scheduled:1" in said:
        time.sleep(0.05)


def _copy(made: str, folder: str) -> None:
    """What is written back to the disk later would be in the way of those that wait for their syncs."""
    shutil.copytree(made, folder)
    for path, _, names in os.walk(folder):
        for name in names:
            handle = os.open(os.path.join(path, name), os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)
