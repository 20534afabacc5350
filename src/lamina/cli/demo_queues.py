"""The queues of ``lamina demo``: messages come and go, dumps are written, and the server is killed in each phase."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lamina.cli.demo_server import HOST, PATIENCE_S, Server
from lamina.cli.jobs_work import stoppable
from lamina.client.resp import RespClient, Word
from lamina.engines.queues.store_files import Found, find
from lamina.errors import Disconnected, LaminaError

QUEUES: Final = 4
_FIRST: Final = 40  # messages that are sent before a dump may be the last
_FLAGS: Final = ("--queues", "memory", "--queue", "quota=100000", "--queue", "dump_every_s=0")

# How each phase looks in the folder, from outside: ``newest`` was the newest log when the server had started.
PHASES: Final[dict[str, Callable[[Found, int], bool]]] = {
    "the log was rotated": lambda found, newest: max(found.logs) > newest,
    "the dump was being written": lambda found, newest: any(number >= newest for number in found.savings),
    "the dump had its name": lambda found, newest: any(number >= newest for number in found.dumps),
}


@dataclass
class Mail:
    """Queues, and what the server answered of their messages. The bodies are numbers."""

    ids: list[tuple[bytes, bytes]] = field(default_factory=list)
    sent: set[int] = field(default_factory=set)
    received: set[int] = field(default_factory=set)
    in_doubt: set[int] = field(default_factory=set)
    """Sent or acknowledged without an answer: the server was killed."""
    number: int = 0

    def make(self, client: RespClient) -> None:
        self.ids = [tuple(client.ask("Q.NEW")) for _ in range(QUEUES)]

    def come_and_go(self, port: int, are_enough: threading.Event) -> None:
        """Send, and receive every second one, until the server is gone."""
        start = self.number
        with suppress(Disconnected), RespClient(HOST, port) as client:
            while True:
                rid, sid = self.ids[self.number % QUEUES]
                self.number += 1
                number = self.number
                self._ask(number, client, "Q.SEND", sid, number)
                self.sent.add(number)
                if number % 2:
                    id, _, _, body = client.ask("Q.GET", rid)
                    self._ask(int(body), client, "Q.ACK", rid, id)
                    self.received.add(int(body))
                if number >= start + _FIRST:
                    are_enough.set()

    def _ask(self, number: int, client: RespClient, *words: Word) -> None:
        self.in_doubt.add(number)
        client.ask(*words)
        self.in_doubt.discard(number)

    def left(self, client: RespClient) -> list[list[int]]:
        """Receive all that is there, queue by queue."""
        found: list[list[int]] = []
        for rid, _ in self.ids:
            numbers: list[int] = []
            message = client.ask("Q.GET", rid)
            while isinstance(message, list):
                numbers.append(int(message[3]))
                message = client.ask("Q.ACK", rid, message[0])
            found.append(numbers)
        return found


def queues_part(folder: Path, show: Callable[[str], None]) -> dict[str, object]:
    """Kill the server in each phase of a dump, amid traffic, and look what the last one finds."""
    show("\nA queue server, sync always: messages come and go while it writes dumps, and we kill it with SIGKILL ...")
    mail, kills = Mail(), []
    with stoppable(), ThreadPoolExecutor(2) as pool:
        for phase, has_come in PHASES.items():
            left = _killed_when(has_come, folder, mail, pool)
            kills.append({"phase": phase, "left": left})
            show(f"  when {phase}; it leaves {', '.join(left)}")
        started = time.perf_counter()
        with Server(folder, "resp", *_FLAGS) as server, RespClient(HOST, server.port) as client:
            restarted_ms = (time.perf_counter() - started) * 1000
            found = mail.left(client)
    numbers = {number for queue in found for number in queue}
    lost = mail.sent - mail.received - mail.in_doubt - numbers
    undone = (mail.received & numbers) - mail.in_doubt
    disordered = sum(queue != sorted(queue) for queue in found)
    where = f"{len(mail.received)} were received and {len(numbers)} wait"
    show(f"  of {len(mail.sent)} messages that were sent {where}; {len(lost)} are lost")
    return {
        "sent": len(mail.sent),
        "received": len(mail.received),
        "waiting": len(numbers),
        "in_doubt": len(mail.in_doubt),
        "kills": kills,
        "restarted_ms": round(restarted_ms, 1),
        "lost": len(lost),
        "undone": len(undone),
        "disordered": disordered,
    }


def _killed_when(has_come: Callable[[Found, int], bool], data: Path, mail: Mail, pool: ThreadPoolExecutor) -> list[str]:
    """Serve, have dumps written while messages come and go, kill it in the phase. Returns the files that are left."""
    folder = data / "queues"
    with Server(data, "resp", *_FLAGS) as server:
        newest = max(find(os.listdir(folder)).logs)
        if not mail.ids:
            with RespClient(HOST, server.port) as client:
                mail.make(client)
        are_enough = threading.Event()
        try:
            traffic = pool.submit(mail.come_and_go, server.port, are_enough)
            are_enough.wait(PATIENCE_S)
            dumps = pool.submit(_dump, server.port)
            end = time.monotonic() + PATIENCE_S
            while not has_come(find(os.listdir(folder)), newest):
                if time.monotonic() > end:
                    raise LaminaError("the server writes no dump")
        finally:
            server.end()
        names = os.listdir(folder)
        traffic.result()
        dumps.result()
    return sorted(name.removeprefix("smp-server-store-") for name in names if name.startswith("smp-server-store-"))


def _dump(port: int) -> None:
    """One after the other, until the server is gone; it may be writing one of its own."""
    with suppress(Disconnected), RespClient(HOST, port) as client:
        while True:
            client.ask("L.DUMP", "queues")
            time.sleep(0.01)
