"""Many subscribers of one topic: each gets every entry, in order, once, while a publisher sends ahead.

``LAMINA_CAMPAIGN=10`` has all 200 of them, and 10 000 entries.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration import topic_subscribers
from integration.lamina_server import IS_STANDIN, topic_server
from integration.resp_wire import Wire

IS_CAMPAIGN = int(os.environ.get("LAMINA_CAMPAIGN", "1")) > 1
SUBSCRIBERS, ENTRIES = (200, 10_000) if IS_CAMPAIGN else (40, 2000)
BEFORE = 100
"""Entries that are there before anybody subscribes: nobody asked for them."""
PIPELINED = 16
PATIENCE_S = 300


def publish(wire: Wire, bodies: list[bytes]) -> list[bytes]:
    """Send ahead of the answers, never more than so many. Returns the ids."""
    ids: list[bytes] = []
    for start in range(0, len(bodies), PIPELINED):
        ids += wire.ask_all([("XADD", "s", "*", "n", body) for body in bodies[start : start + PIPELINED]])
    return ids


@pytest.mark.slow
@pytest.mark.parametrize("size", [10, 3_000_000 // ENTRIES], ids=["from-memory", "from-files"])
def test_every_subscriber_gets_every_entry_once_and_in_order(tmp_path: Path, size: int) -> None:
    """When all are more than memory keeps of a topic, those who fall behind have to be served from files."""
    with topic_server(tmp_path / "data", sync="interval") as server, Wire(server.port) as wire:
        publish(wire, [b"old:"] * BEFORE)
        words = [topic_subscribers.__file__, server.port, "s", SUBSCRIBERS, ENTRIES]
        child = subprocess.Popen([sys.executable, *map(str, words)], stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "waiting\n"
            ids = publish(wire, [b"%d:%b" % (number, b"x" * size) for number in range(ENTRIES)])
            report = json.loads(child.communicate(timeout=PATIENCE_S)[0])
        finally:
            child.kill()
            child.wait()
        assert report["problems"] == {}
        assert report["counts"] == [ENTRIES]
        assert report["ids"] == [hashlib.sha256(b"".join(ids)).hexdigest()]
        assert wire.ask("XLEN", "s") == BEFORE + ENTRIES
        assert IS_STANDIN or server.complaints() == ""
