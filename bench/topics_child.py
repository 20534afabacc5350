"""What cases of topics do in a fresh process: ``python -m bench.topics_child ORDER ...``, answered with a JSON line."""

from __future__ import annotations

import json
import os
import select
import socket
import sys
import time
from collections.abc import Callable

from bench.rivals import Address
from bench.topic_entries import VALUE, id_of, value
from bench.topic_servers import TOPIC, Wrong, command
from lamina.clock import ManualClock
from lamina.engines.topics.topic import Topic
from lamina.log import OS, Log, LogOptions

BATCH = 1000
ROOM = 1 << 20
STALL_SECONDS = 60.0
_VALUE_HEAD = b"$%d\r\n" % VALUE


def fill(folder: str, total: str) -> dict[str, float]:
    """A topic of so many bytes, closed in order. The clock stands still, so that its ids are known."""
    topic = Topic.open(folder, options=LogOptions(sync=OS), clock=ManualClock())
    entries, log = 0, topic.log
    assert isinstance(log, Log)
    while log.stats.bytes < int(total):
        _, positions = topic.add_many([[b"f", value(entries + more)] for more in range(BATCH)])
        topic.settle(positions[-1])
        entries += BATCH
    topic.close()
    return {"entries": entries, "bytes": log.stats.bytes}


def append_only_file(folder: str, entries: str) -> dict[str, float]:
    """The same entries as Redis 7 keeps them: one file of commands, and one that names it."""
    inside = os.path.join(folder, "appendonlydir")
    os.makedirs(inside)
    with open(os.path.join(inside, "appendonly.aof.1.incr.aof"), "wb") as out:
        out.write(command("SELECT", "0"))
        for number in range(int(entries)):
            out.write(command("XADD", TOPIC, id_of(number), b"f", value(number)))
    with open(os.path.join(inside, "appendonly.aof.manifest"), "w") as out:
        out.write("file appendonly.aof.1.incr.aof seq 1 type i\n")
    return {}


def subscribe(host: str, port: str, subscribers: str, entries: str, after: str) -> dict[str, float]:
    """Read everything behind an id with so many connections that wait for it.

    Light, for it shares the machine with the server: entries are counted, and the last of each answer is checked.
    """
    readers = [_Subscriber((host, int(port)), after.encode()) for _ in range(int(subscribers))]
    with select.epoll() as poll:
        for reader in readers:
            poll.register(reader.socket.fileno(), select.EPOLLIN)
            reader.ask()
        time.sleep(0.3)  # until all wait; no reply would tell
        print("waiting", flush=True)
        by_handle = {reader.socket.fileno(): reader for reader in readers}
        missing = len(readers)
        while missing:
            ready = poll.poll(STALL_SECONDS)
            if not ready:
                raise Wrong(f"{missing} subscribers wait for entries that do not come")
            for handle, _ in ready:
                reader = by_handle[handle]
                if reader.receive() and reader.entries >= int(entries):
                    poll.unregister(handle)
                    missing -= 1
                elif not reader.kept:
                    reader.ask()
    return {"entries": sum(reader.entries for reader in readers)}


class _Subscriber:
    """One connection. Its entries have their numbers in their values."""

    def __init__(self, address: Address, after: bytes) -> None:
        self.socket = socket.create_connection(address, timeout=STALL_SECONDS)
        self.last_id = after
        self.entries = 0
        self.kept = b""
        """Of an answer that is not complete."""

    def ask(self) -> None:
        self.socket.sendall(command("XREAD", "COUNT", "1000", "BLOCK", "0", "STREAMS", TOPIC, self.last_id))

    def receive(self) -> bool:
        """Take what is there. True if an answer is complete. Raises: Wrong if it is not what comes next."""
        more = self.socket.recv(ROOM)
        if not more:
            raise Wrong("the server hung up")
        data = self.kept = self.kept + more
        head = data[:64].split(b"\r\n", 5)  # *1, *2, $1, s, *count
        if len(head) < 6:
            return False
        count, last = int(head[4][1:]), data.rfind(_VALUE_HEAD)
        if len(data) < last + len(_VALUE_HEAD) + VALUE + 2 or data.count(_VALUE_HEAD) < count:
            return False
        self.entries += count
        if data[last + len(_VALUE_HEAD) :] != value(self.entries - 1) + b"\r\n":
            raise Wrong(f"entry {self.entries - 1} came as {data[last:]!r}")
        self.last_id = data[data.rfind(b"*2\r\n$", 0, data.rfind(b"*2\r\n", 0, last)) :].split(b"\r\n", 3)[2]
        self.kept = b""
        return True


def await_deliveries(host: str, port: str, kind: str, readers: str, messages: str) -> dict[str, float]:
    """Milliseconds from the time in an entry to when it is here, of so many messages for each of so many readers."""
    waits: list[int] = []
    with select.epoll() as poll:
        asking: dict[int, tuple[socket.socket, bytes]] = {}
        for number in range(int(readers)):
            to = socket.create_connection((host, int(port)), timeout=STALL_SECONDS)
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            poll.register(to.fileno(), select.EPOLLIN)
            last = ("COUNT", "1", "BLOCK", "0", "STREAMS", TOPIC)
            group = command("XREADGROUP", "GROUP", f"g{number}", "c", *last, ">")
            asking[to.fileno()] = to, group if kind == "xreadgroup" else b""
            to.sendall(group if kind == "xreadgroup" else _xread_behind(b"$"))
        time.sleep(0.3)  # until all wait; no reply would tell
        print("waiting", flush=True)
        while len(waits) < int(readers) * int(messages):
            ready = poll.poll(STALL_SECONDS)
            if not ready:
                raise Wrong("a message did not come")
            for handle, _ in ready:
                to, again = asking[handle]
                answer = to.recv(ROOM)
                waits.append(time.monotonic_ns() - int(answer[answer.rindex(b"\r\n", 0, -2) + 2 : -2]))
                to.sendall(again or _xread_behind(answer.split(b"\r\n", 8)[7]))
    waits.sort()
    return {f"p{part}": waits[len(waits) * part // 100] / 1e6 for part in (50, 99)}


def _xread_behind(id: bytes) -> bytes:
    return command("XREAD", "COUNT", "1", "BLOCK", "0", "STREAMS", TOPIC, id)


ORDERS: dict[str, Callable[..., dict[str, float]]] = {
    "fill": fill,
    "append_only_file": append_only_file,
    "subscribe": subscribe,
    "await_deliveries": await_deliveries,
}

if __name__ == "__main__":
    print(json.dumps(ORDERS[sys.argv[1]](*sys.argv[2:])), flush=True)
