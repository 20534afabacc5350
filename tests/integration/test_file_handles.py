"""A server that has few file handles: whatever one client uses up, the others go on."""

from __future__ import annotations

import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.lamina_server import LaminaServer
from integration.resp_wire import Error, Wire

FEW = 700


def handles_of(server: LaminaServer) -> int:
    return len(os.listdir(f"/proc/{server._process.pid}/fd"))


def put_job(path: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(path)
        client.sendall(b"add %s q 1000 100000 2\r\nhi\r\n" % str(uuid.uuid4()).encode())
        return client.recv(100)


@pytest.fixture
def short() -> Iterator[str]:
    """A folder for sockets, whose names must be short."""
    with tempfile.TemporaryDirectory(prefix="lamina-") as folder:
        yield folder


def test_a_client_that_makes_topics_leaves_the_others_their_files(tmp_path: Path, short: str) -> None:
    names = [f"topic-{number}" for number in range(1500)]
    flags = ("--segment-bytes", "65536", "--workq", f"unix:{short}/workq")
    with LaminaServer(tmp_path, "--sync", "os", *flags, files=FEW) as server:
        with Wire(server.port) as client:
            for value in range(200):
                client.ask("XADD", "first", f"1-{value + 1}", "f", "x" * 3000)
            for at in range(0, len(names), 100):
                answers = client.ask_all([("XADD", name, "*", "f", name) for name in names[at : at + 100]])
                assert all(isinstance(answer, bytes) and b"-" in answer for answer in answers), answers
                assert handles_of(server) < FEW // 2
            assert client.ask("XRANGE", "first", "-", "+", "COUNT", "1")[0][0] == b"1-1"
            for value in range(5):  # new files of a log
                client.ask("XADD", "first", f"2-{value + 1}", "f", "x" * 30_000)
            assert client.ask("XGROUP", "CREATE", names[0], "g", "0") == b"OK"
            assert client.ask("DEL", names[1]) == 1
            closed = [
                int(line[14:]) for line in client.ask("INFO", "topics").split(b"\r\n") if line[:14] == b"topics_closed:"
            ]
            assert closed and closed[0] > len(names) // 2
            assert put_job(f"{short}/workq") == b"+OK\r\n"
        with Wire(server.port) as other:
            assert other.ask("PING") == b"PONG"
            assert other.ask("DBSIZE") == len(names)
            for name in (names[0], names[700], names[-1]):
                assert other.ask("XRANGE", name, "-", "+")[0][1] == [b"f", name.encode()]
    with LaminaServer(tmp_path, files=FEW) as server, Wire(server.port) as client:
        assert client.ask("DBSIZE") == len(names)
        for at in range(2, len(names), 100):
            assert client.ask_all([("XLEN", name) for name in names[at : at + 100]]) == [1] * len(names[at : at + 100])
        assert handles_of(server) < FEW // 2


def test_journals_of_more_queues_than_there_are_handles(tmp_path: Path) -> None:
    with (
        LaminaServer(tmp_path, "--sync", "os", "--queues", "journal", files=300) as server,
        Wire(server.port) as client,
    ):
        queues = client.ask_all([("Q.NEW",)] * 400)
        sent = client.ask_all([("Q.SEND", sid, b"hello") for _, sid in queues])
        assert not [answer for answer in sent if isinstance(answer, Error)]
        assert handles_of(server) < 300
        got = client.ask_all([("Q.GET", rid) for rid, _ in queues])
        assert all(b"hello" in repr(answer).encode() for answer in got)
