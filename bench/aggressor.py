"""A client that sends legal commands as fast as answers come: ``python -m bench.aggressor FAMILY RESP WORKQ ENTRIES``.

Each connection of a family (families.py) has a thread. It says "ready" when all are connected, begins when a line
comes in, and ends when its input is closed, when there is nothing more to send, or when a command takes too long;
then it writes as JSON what it did.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import hiredis

from bench.bystander import CAP_S
from bench.rivals import HOST
from bench.topic_servers import Wrong, command

ROOM: Final = 1 << 20
PIPELINED: Final = 1000

_RESP_MARK: Final = command("ECHO", "all-of-it-was-answered"), b"$22\r\nall-of-it-was-answered\r\n"
_WORKQ_MARK: Final = b"all-of-it\r\n", b"-CLIENT-ERROR Unknown command\r\n"
_ERROR: Final = re.compile(rb"\n(-[A-Z-]{3,}[ \r][^\r\n]*)")


class Client:
    """One connection of either kind."""

    def __init__(self, port: int, *, is_workq: bool = False) -> None:
        self.socket = socket.create_connection((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.port = port
        self._mark, self._marked = _WORKQ_MARK if is_workq else _RESP_MARK
        self._room = memoryview(bytearray(ROOM))
        self._reader = hiredis.Reader()
        self.commands = 0
        self.errors = 0
        self.error = b""
        """The first of them."""
        self.longest = 0.0
        """Seconds that the answers to one call took to come."""

    def say(self, *commands: bytes) -> None:
        """Send commands all at once, and pass over the answers until the last one is there.

        A mark is sent behind them: an answer of 150 MB is not parsed, for that would measure the parser.
        """
        started = time.perf_counter()
        self.socket.sendall(b"".join(commands) + self._mark)
        last = b"\n"
        self.errors -= self._marked.startswith(b"-")
        while not last.endswith(self._marked):
            size = self.socket.recv_into(self._room)
            if not size:
                raise Wrong("the server hung up")
            came = last[-1:] + self._room[:size]
            if b"\n-" in came and (found := _ERROR.findall(came)):  # an id of a queue may begin with a dash, too
                self.errors += len(found)
                self.error = self.error or next((each for each in found if not self._marked.startswith(each)), b"")
            last = last[-len(self._marked) :] + came[1:][-len(self._marked) :]
        self._answered(len(commands), started)

    def ask(self, *words: str | bytes) -> Any:
        """The answer to one command."""
        [answer] = self.ask_all(command(*words))
        return answer

    def ask_all(self, *commands: bytes) -> list[Any]:
        started = time.perf_counter()
        self.socket.sendall(b"".join(commands))
        answers: list[Any] = []
        while len(answers) < len(commands):
            answer = self._reader.gets()
            if answer is False:
                size = self.socket.recv_into(self._room)
                if not size:
                    raise Wrong("the server hung up")
                self._reader.feed(self._room, 0, size)
                continue
            if isinstance(answer, hiredis.ReplyError):
                self.errors += 1
                self.error = self.error or str(answer).encode()
            answers.append(answer)
        self._answered(len(commands), started)
        return answers

    def _answered(self, commands: int, started: float) -> None:
        self.commands += commands
        self.longest = max(self.longest, time.perf_counter() - started)

    def say_many(self, commands: Iterable[bytes]) -> None:
        """The same for more commands than are sent at once."""
        batch: list[bytes] = []
        for each in commands:
            batch.append(each)
            if len(batch) == PIPELINED:
                self.say(*batch)
                batch.clear()
        if batch:
            self.say(*batch)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *problem: object) -> None:
        self.socket.close()


class _Lane:
    """One connection and its thread."""

    def __init__(self, to: Client, turns: Iterator[None], over: threading.Event) -> None:
        self.to = to
        self._turns, self._over = turns, over
        self.problem = ""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.start, self.join = self._thread.start, self._thread.join

    def _run(self) -> None:
        try:
            for _ in self._turns:
                if self._over.is_set():
                    break
        except Exception as problem:
            self.problem = f"{type(problem).__name__}: {problem}"
        finally:
            self._over.set()  # one that has no more to send ends the others, too


def run(lanes: Iterable[tuple[Client, Iterator[None]]], wait: Callable[[threading.Event], None]) -> dict[str, Any]:
    """Send on all connections until ``wait`` returns, which is given the event that ends them."""
    over = threading.Event()
    made = [_Lane(to, turns, over) for to, turns in lanes]
    for lane in made:
        lane.start()
    wait(over)
    ended = time.monotonic()
    over.set()
    for lane in made:
        lane.join(max(ended + CAP_S - time.monotonic(), 0))
    return {
        "ended": ended,
        "commands": sum(lane.to.commands for lane in made),
        "longest ms": max(lane.to.longest for lane in made) * 1000,
        "errors": sum(lane.to.errors for lane in made),
        "error": next((lane.to.error.decode(errors="replace") for lane in made if lane.to.errors), ""),
        "problem": next((lane.problem for lane in made if lane.problem), ""),
    }


def main() -> None:
    from bench.families import FAMILIES, Lane

    name, resp, workq, entries = sys.argv[1:]
    family = FAMILIES[name]
    port = int(workq if family.is_workq else resp)
    lanes = [Lane(number, family.connections, int(entries), int(resp)) for number in range(family.connections)]
    clients = [Client(port, is_workq=family.is_workq) for _ in lanes]
    print("ready", flush=True)
    sys.stdin.readline()

    def wait(over: threading.Event) -> None:
        threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
        over.wait()

    found = run([(to, family.turns(to, lane)) for to, lane in zip(clients, lanes, strict=True)], wait)
    print(json.dumps(found), flush=True)
    os._exit(0)  # a thread may be waiting for an answer yet


if __name__ == "__main__":
    main()
