"""A real topic server, killed over and over under load, against an oracle outside of it.

The clients speak RESP over sockets and remember what they were told (topics_clients.py). Whatever the policy, a killed
process loses nothing it answered; and of what it did not answer, nothing is there by halves.
``LAMINA_CAMPAIGN=10`` kills ten times as often.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import pytest

from crash.topics_clients import GROUPS, Client, reconcile
from crash.topics_model import Model, Words
from crash.topics_shared import ALL, SHARED, Shared
from integration.lamina_server import LaminaServer
from integration.resp_wire import OK, Wire
from prefork import Process

CYCLES = 12 * int(os.environ.get("LAMINA_CAMPAIGN", "1"))
CLIENTS = 4


class TopicServer(LaminaServer):
    """With files so small that there are many, and all that is written to be read again soon."""

    def __init__(self, folder: Path, policy: str) -> None:
        super().__init__(folder, "--sync", policy, "--segment-bytes", 20_000, "--reserve-bytes", 0, "--queues", "off")

    def start_in_vain(self, seconds: float) -> None:
        """It is killed so soon that it has hardly begun to recover."""
        with tempfile.TemporaryFile() as self._said:
            self._process = Process(self._words[1:], stderr=self._said)
            try:
                time.sleep(seconds)
            finally:
                self.__exit__()


class Storm:
    """Clients over many lives of a server."""

    def __init__(self, seed: str) -> None:
        self.rng = random.Random(seed)
        self.shared = Shared()
        self.models = [Model(b"own.%d" % number) for number in range(CLIENTS)]
        self.clients: list[Client] = []
        self.answered = 0

    def begin(self, port: int) -> None:
        """Make the topics and their groups."""
        with Wire(port) as wire:
            for model in self.models:
                for name in GROUPS:
                    words: Words = (b"XGROUP", b"CREATE", model.key, name, b"0", b"MKSTREAM")
                    assert wire.ask(*words) == OK == model.run(words)
            assert wire.ask("XGROUP", "CREATE", SHARED, ALL, "0", "MKSTREAM") == OK

    def rage(self, server: LaminaServer, seconds: float) -> None:
        """Let the clients work, and kill the server under them."""
        self.clients = [
            Client(number, model, self.shared, random.Random(self.rng.random()), server.port)
            for number, model in enumerate(self.models)
        ]
        for client in self.clients:
            client.start()
        time.sleep(seconds)
        server.kill()
        for client in self.clients:
            client.join(30)
            assert not client.is_alive()
            if client.problem is not None:
                raise client.problem
            self.answered += client.answered

    def check(self, server: LaminaServer) -> None:
        """All is as was told."""
        with Wire(server.port) as wire:
            for client in self.clients:
                reconcile(client, wire)
            self.shared.reconcile({client.consumer: client.in_flight_shared for client in self.clients}, wire)
        for client in self.clients:
            client.in_flight_shared = []
        assert server.complaints() == ""


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["always", "interval"])
def test_a_killed_server_has_done_everything_it_answered(tmp_path: Path, policy: str) -> None:
    storm, folder = Storm(policy), tmp_path / "data"
    rng = storm.rng
    with TopicServer(folder, policy) as server:
        storm.begin(server.port)
        server.kill()
    for _ in range(CYCLES):
        if rng.random() < 0.25:
            TopicServer(folder, policy).start_in_vain(rng.uniform(0, 0.15))
        with TopicServer(folder, policy) as server:
            storm.check(server)
            storm.rage(server, rng.choice([0.02, 0.1, 0.3, 0.6]) * rng.random() + 0.01)
    with TopicServer(folder, policy) as server:
        storm.check(server)
        server.stop()
    with TopicServer(folder, policy) as server:  # an orderly stop loses nothing either
        storm.check(server)
    assert storm.answered > CYCLES * 10
    assert storm.shared.acked and storm.shared.deleted, "hardly anything was done"
    segments = [path for path in folder.rglob("*") if path.is_file()]
    assert len(segments) > 3 * CLIENTS, f"no log was ever continued in another file: {segments}"
