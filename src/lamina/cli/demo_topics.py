"""The topics of ``lamina demo``: a subscriber is cut off, messages go on, it comes back and misses nothing."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Final
from uuid import uuid4

from lamina.cli.demo_server import HOST, PATIENCE_S, Program, Server
from lamina.cli.jobs_work import stoppable
from lamina.client.resp import RespClient
from lamina.errors import LaminaError
from lamina.units import show_time

MESSAGES: Final = 600
CUT_AFTER: Final = 110  # messages that it has seen: in the middle of what it takes at once
_GROUP: Final = "mailers"

# Runs in a process of its own and says what it sees. First comes what it was given before and has not acknowledged,
# then what is new: this is how every subscriber begins. It ends with the last message, or when it is killed.
SUBSCRIBER: Final = """
import sys, time
from lamina.client.resp import RespClient
port, topic, group, last = sys.argv[1:]
take = "XREADGROUP", "GROUP", group, "ann", "COUNT", 20, "BLOCK", 1000, "STREAMS", topic
with RespClient("127.0.0.1", int(port)) as server:
    after, is_over = b"0", False
    while not is_over:
        found = server.ask(*take, after, wait=1)
        entries = found[0][1] if found else []
        if not entries and after != b">":
            after = b">"
        for id, (_, number) in entries:
            print(number.decode(), flush=True)
            time.sleep(0.001)
            is_over = is_over or number.decode() == last
        if entries:
            server.ask("XACK", topic, group, *(id for id, _ in entries))
"""


class Orders:
    """A topic, what was published there, and what its subscriber saw."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.topic = f"orders-{uuid4().hex[:8]}"  # a folder that was kept may hold those of the last time
        self.ids: list[bytes] = []
        self.is_cut_off = threading.Event()

    def client(self) -> RespClient:
        return RespClient(HOST, self.port)

    def publish(self) -> None:
        """All of them one by one; the second half once the subscriber is cut off."""
        with self.client() as client:
            for number in range(MESSAGES):
                if number == MESSAGES // 2:
                    self.is_cut_off.wait(PATIENCE_S)
                self.ids.append(client.ask("XADD", self.topic, "*", "order", number))

    @contextmanager
    def subscriber(self) -> Iterator[Program]:
        words = str(self.port), self.topic, _GROUP, str(MESSAGES - 1)
        with Program("-c", SUBSCRIBER, *words) as program:
            patience = threading.Timer(PATIENCE_S, program.end)  # then some are missing, and that is told
            patience.start()
            try:
                yield program
            finally:
                patience.cancel()


def topics_part(folder: Path, show: Callable[[str], None]) -> dict[str, object]:
    """Publish, kill the subscriber in the middle of it, publish on, let it come back; then look into the past."""
    show("\nA topic server, sync always: a publisher, and a subscriber whose process we kill with SIGKILL ...")
    with stoppable(), ThreadPoolExecutor(1) as pool, Server(folder, "resp") as server:
        orders = Orders(server.port)
        with orders.client() as client:
            client.ask("XGROUP", "CREATE", orders.topic, _GROUP, "$", "MKSTREAM")
            publishing = pool.submit(orders.publish)
            try:
                with orders.subscriber() as subscriber:
                    before = _numbers(islice(subscriber.said, CUT_AFTER))
                    subscriber.end()
                    before += _numbers(subscriber.said)
            finally:
                cut_ns = time.time_ns()
                orders.is_cut_off.set()
            pending = {id for id, *_ in client.ask("XPENDING", orders.topic, _GROUP, "-", "+", MESSAGES)}
            show(f"  it saw {len(before)} messages; {len(pending)} were given to it and not acknowledged")
            publishing.result()
            show(f"  it is away, and the publisher goes on: {len(orders.ids)} messages published")
            with orders.subscriber() as subscriber:
                after = _numbers(subscriber.said)
            seen = Counter(before + after)
            missing = MESSAGES - len(seen)
            twice = [orders.ids[number] for number, times in seen.items() if times > 1]
            undue = [id for id in twice if id not in pending]
            again = f"{len(twice)} of them for the second time, {missing} missing"
            show(f"  it comes back and sees {len(after)} messages, {again}")
            as_of = _as_of(client, orders, cut_ns // 10**6, show)
    return {
        "published": len(orders.ids),
        "seen_before": len(before),
        "pending": len(pending),
        "seen_after": len(after),
        "twice": len(twice),
        "undue": len(undue),
        "missing": missing,
        "as_of": as_of,
    }


def _numbers(lines: Iterable[str]) -> list[int]:
    """What a subscriber said it saw. Raises: LaminaError with what else it said."""
    found: list[int] = []
    for line in lines:
        if not line.strip().isdigit():
            raise LaminaError(f"the subscriber failed: {line.strip()}")
        found.append(int(line))
    return found


def _as_of(client: RespClient, orders: Orders, moment_ms: int, show: Callable[[str], None]) -> dict[str, object]:
    """Read the topic as of the moment in which the subscriber was cut off: an id is a time."""
    started = time.perf_counter()
    found = client.ask("XRANGE", orders.topic, moment_ms, "+")
    took_ms = (time.perf_counter() - started) * 1000
    wanted = [id for id in orders.ids if int(id.partition(b"-")[0]) >= moment_ms]
    assert [id for id, _ in found] == wanted
    number = int(found[0][1][1])
    since = show_time(moment_ms * 10**6)
    show(f"  since {since}, when it was killed: {len(found)} messages from number {number} on ({took_ms:.1f} ms)")
    return {"time_ms": moment_ms, "messages": len(found), "first": number, "found_ms": round(took_ms, 2)}
