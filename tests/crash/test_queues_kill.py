"""A real server of queues, killed over and over under load and during dumps, against an oracle outside of it.

Each client has a queue of its own and remembers what it was told. Whatever the policy, a killed process loses nothing
it answered: what was confirmed and not acknowledged is there once, in order; what was acknowledged is not. Of what it
did not answer, either may be so. ``LAMINA_CAMPAIGN=10`` kills ten times as often.
"""

from __future__ import annotations

import os
import random
import threading
import time
from pathlib import Path

import pytest

from integration.lamina_server import LaminaServer
from integration.resp_wire import OK, Error, Wire

CYCLES = 5 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
CLIENTS = 4
QUOTA = 20


class Mailbox(threading.Thread):
    """One client and its queue, over many lives of the server."""

    def __init__(self, number: int, seed: str) -> None:
        super().__init__(daemon=True)
        self.rng = random.Random(f"{seed} {number}")
        self.rid = self.sid = b""
        self.waiting: list[bytes] = []
        """Bodies that were confirmed and not acknowledged, in order."""
        self.maybe_sent: list[bytes] = []
        """Sent last, without an answer: they may be there, behind all others."""
        self.maybe_gone = 0
        """So many at the head were acknowledged without an answer."""
        self.answered = 0
        self.port = 0
        self.count = 0
        self.number = number
        self.problem: BaseException | None = None

    def live(self, port: int) -> Mailbox:
        """The same client in another life."""
        again = Mailbox(self.number, "")
        again.__dict__.update({name: value for name, value in vars(self).items() if not name.startswith("_")})
        again.port, again.problem = port, None
        return again

    def run(self) -> None:
        try:
            with Wire(self.port) as wire:
                while True:
                    self._turn(wire)
        except (ConnectionError, OSError):
            pass  # the server was killed
        except BaseException as problem:
            self.problem = problem

    def _turn(self, wire: Wire) -> None:
        if not self.rid:
            self.rid, self.sid = wire.ask("Q.NEW")
        if self.rng.random() < 0.5:
            self._send(wire, self.rng.randint(1, 8))
        else:
            self._receive(wire, self.rng.randint(1, 8))

    def _send(self, wire: Wire, count: int) -> None:
        bodies = [b"%d-%d" % (self.number, self.count + each) for each in range(min(count, QUOTA - len(self.waiting)))]
        self.count += len(bodies)
        self.maybe_sent = list(bodies)
        wire.send_raw(b"".join(_packed(b"Q.SEND", self.sid, body) for body in bodies))
        for body in bodies:
            answer = wire.read()
            assert not isinstance(answer, Error), answer
            self.waiting.append(body)
            self.maybe_sent.remove(body)
            self.answered += 1

    def _receive(self, wire: Wire, count: int) -> None:
        message = wire.ask("Q.GET", self.rid)
        while isinstance(message, list) and count:
            assert message[3] == self.waiting[0], "a message is lost, repeated or out of order"
            count -= 1
            self.maybe_gone = 1
            message = wire.ask("Q.ACK", self.rid, message[0])
            assert not isinstance(message, Error), message
            self.maybe_gone = 0
            self.waiting.pop(0)
            self.answered += 1

    def check(self, wire: Wire) -> None:
        """Everything that has to be there is, once and in order. What it finds is what counts from now on."""
        if not self.rid:
            return
        found: list[bytes] = []
        message = wire.ask("Q.GET", self.rid)
        while isinstance(message, list):
            found.append(message[3])
            message = wire.ask("Q.ACK", self.rid, message[0])
        assert message is None or message == OK, message
        possible = [
            self.waiting[gone:] + self.maybe_sent[:sent]
            for gone in range(self.maybe_gone + 1)
            for sent in range(len(self.maybe_sent) + 1)
        ]
        assert found in possible, f"queue {self.number}: {found} is none of {possible}"
        self.waiting, self.maybe_sent, self.maybe_gone = [], [], 0


def _packed(*words: bytes) -> bytes:
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in words)


@pytest.mark.parametrize("store", ["memory", "journal"])
@pytest.mark.parametrize("policy", ["always", "interval:1000"])
def test_l52_restart_storm(tmp_path: Path, policy: str, store: str) -> None:
    seed = f"{policy} {store}"
    rng = random.Random(seed)
    boxes = [Mailbox(number, seed) for number in range(CLIENTS)]
    flags = ("--sync", policy, "--queues", store, "--reserve-bytes", 0, "--queue", "dump_every_s=0.1")
    settings = ("--queue", f"quota={QUOTA}", "--queue", "max_file_messages=24", "--queue", "most_open=3")
    for _ in range(CYCLES):
        with LaminaServer(tmp_path, *flags, *settings) as server:
            with Wire(server.port) as wire:
                for box in boxes:
                    box.check(wire)
            boxes = [box.live(server.port) for box in boxes]
            for box in boxes:
                box.start()
            time.sleep(rng.uniform(0.15, 0.5))
            server.kill()
            for box in boxes:
                box.join(30)
                assert not box.is_alive()
                if box.problem is not None:
                    raise box.problem
    with LaminaServer(tmp_path, *flags, *settings) as server, Wire(server.port) as wire:
        for box in boxes:
            box.check(wire)
    assert sum(box.answered for box in boxes) > 20 * CYCLES, "the storm was a breeze"
