"""What the real workq server said on the wire, said again to ours: byte for byte, but for what was decided otherwise.

A transcript is a list of items, one a line. ``C2: b'...'`` is what client 2 sends (a connection opens when first
used), ``S2: b'...'`` all that it gets before the next item, ``S2: EOF`` that the server hangs up; ``CLOSE`` and
``SHUTDOWN`` are the client's doing, ``W: 0.5`` is a pause, ``A: >=95 <=160`` when the last answer came, in ms. Times
near the recording are moved to now in what is sent, and masked in what is compared.
"""

from __future__ import annotations

import ast
import os
import re
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import pytest

from integration.workq_server import HOST, Server

GOLDEN = Path(os.environ.get("LAMINA_GOLDEN", Path(__file__).parents[3] / "shared" / "golden")) / "workq-transcripts"
FILES = sorted(path.name for path in GOLDEN.glob("*.txt")) if GOLDEN.is_dir() else []
DAY_S = 86_400
EARLY_MS, LATE_MS = 5, 2000  # a busy machine may be late
SOON_S = 10.0

pytestmark = pytest.mark.skipif(not FILES, reason="no transcripts of workq here (set LAMINA_GOLDEN)")


class Ours(NamedTuple):
    """What our server says in a place where another answer was decided (wire.md)."""

    why: str
    answer: bytes | None = None
    """None: the recorded one."""
    closes: bool = False
    """The server hangs up behind it."""
    stays: bool = False
    """The server does not hang up, as recorded."""


def job(id: bytes, facts: str) -> bytes:
    """What ``inspect job`` shows, the facts that are nothing special left out."""
    lines = [b"+OK 1", id + b" 12", *facts.encode().split(b", "), b"created YYYY-MM-DDTHH:MM:SSZ", b""]
    return b"\r\n".join(lines)


_ONE, _THREE = b"00000001-0000-4000-8000-000000000001", b"00000003-0000-4000-8000-000000000003"
_BACK = job(
    _THREE,
    "name q1, ttr 1000, ttl 60000, payload-size 1, payload a, max-attempts 3, attempts 1, max-fails 3, fails 1, "
    "priority 0, state 3",
)
_ADDED = job(
    _ONE,
    "name zq, ttr 1000, ttl 60000, payload-size 1, payload a, max-attempts 0, attempts 0, max-fails 0, fails 0, "
    "priority 0, state 0",
)
_SERVER = b"+OK 1\r\nserver 3\r\nactive-clients N\r\nevicted-jobs 0\r\nstarted YYYY-MM-DDTHH:MM:SSZ\r\n"
_BAD_ID = b"-CLIENT-ERROR Invalid ID\r\n"
_NO_SIZE = Ours("nobody knows where the payload ends: closed, so that it is not run", closes=True)

DIFFERENCES: dict[str, Ours] = {
    "01:50": Ours("max-fails=3: the first fail puts the job back and is counted", _BACK),
    "01:52": Ours("so there is no result yet", b"-TIMEOUT\r\n"),
    "01:54": Ours("and it can be leased again", b"+OK 1\r\n%b q1 1000 1\r\na\r\n" % _THREE),
    **dict.fromkeys(("05:5", "05:7", "05:9", "05:12", "05:14", "05:16", "06:4", "06:6", "06:8", "06:10"), _NO_SIZE),
    "10:15": Ours("delete of an id that is not version 4 is refused", _BAD_ID),
    "11:4": Ours("inspect server says how many lines follow", _SERVER),
    "13:41": Ours("the payload of a refused line is read, not run", b"-CLIENT-ERROR Invalid command flags\r\n"),
    "18:18": Ours("no junk behind an id", _BAD_ID),
    "18:20": Ours("so that job was not added", b"-NOT-FOUND\r\n"),
    "90:7": Ours("CR and LF may come apart", b"+OK\r\n"),
    "90:8": Ours("so nothing is wrong", stays=True),
    "90:10": Ours("and the job is there", _ADDED),
    "91:13": Ours("all who wait for a result get it", b"+OK 1\r\n%b 1 2\r\nok\r\n" % _ONE),
}


# -- the items -----------------------------------------------------------------------------------------------------


class Item(NamedTuple):
    number: int
    kind: str
    client: int
    text: str


def items(text: str) -> Iterator[Item]:
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            tag, _, value = line.partition(": ")
            yield Item(number, tag[0], int(tag[1:] or 1), value)


def literal(text: str) -> bytes:
    """Bytes, written as literals that are added and multiplied."""

    def value(node: ast.expr) -> bytes | int:
        if isinstance(node, ast.Constant) and isinstance(node.value, bytes | int):
            return node.value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
            left, right = value(node.left), value(node.right)
            return left + right if isinstance(node.op, ast.Add) else left * right  # type: ignore[operator]
        raise ValueError(text[:80])

    found = value(ast.parse(text, mode="eval").body)
    assert isinstance(found, bytes)
    return found


_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?=Z)")


def seconds_of(found: re.Match[bytes]) -> float:
    try:
        return datetime.fromisoformat(found[0].decode()).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return float("inf")


def masked(data: bytes, near: float) -> bytes:
    data = _TIME.sub(lambda found: b"YYYY-MM-DDTHH:MM:SS" if abs(seconds_of(found) - near) < DAY_S else found[0], data)
    return re.sub(rb"active-clients \d+", b"active-clients N", data)


def moved(data: bytes, near: float, by: float) -> bytes:
    def move(found: re.Match[bytes]) -> bytes:
        then = seconds_of(found)
        if abs(then - near) >= DAY_S:
            return found[0]
        return datetime.fromtimestamp(then + by, UTC).strftime("%Y-%m-%dT%H:%M:%S").encode()

    return _TIME.sub(move, data)


# -- saying it again -----------------------------------------------------------------------------------------------


class Replay:
    """One transcript against one server."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.text = (GOLDEN / name).read_text()
        self.recorded = int(self.text.partition("recorded-at: ")[2].split()[0])
        self.started = time.time()
        self.address = HOST, port
        self.sockets: dict[int, socket.socket] = {}
        self.hung_up: set[int] = set()
        self.sent = time.monotonic()
        self.took_ms = 0.0
        self.was_ours = False
        self.wrong: list[str] = []
        self.used: set[str] = set()

    def run(self) -> None:
        try:
            for item in items(self.text):
                getattr(self, f"_{item.kind}")(item)
            for client, connection in self.sockets.items():
                if surplus := self._read(connection, 1 << 20, 0.05):
                    self.wrong.append(f"{self.name}: client {client} also got {surplus!r}")
        finally:
            for connection in self.sockets.values():
                connection.close()

    def _client(self, number: int) -> socket.socket:
        if number not in self.sockets:
            self.sockets[number] = socket.create_connection(self.address, SOON_S)
            self.sockets[number].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.sockets[number]

    def _C(self, item: Item) -> None:  # noqa: N802
        connection = self._client(item.client)
        if item.text == "CLOSE":
            self.sockets.pop(item.client).close()
        elif item.text == "SHUTDOWN":
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.sendall(moved(literal(item.text), self.recorded, int(self.started) - self.recorded))
        self.sent = time.monotonic()

    def _W(self, item: Item) -> None:  # noqa: N802
        time.sleep(float(item.text))
        self.sent = time.monotonic()

    def _A(self, item: Item) -> None:  # noqa: N802
        least, most = (int(word[2:]) for word in item.text.split())
        if self.was_ours:
            return
        if not least - EARLY_MS <= self.took_ms <= most + LATE_MS:
            self.wrong.append(f"{self.name}:{item.number} came after {self.took_ms:.0f} ms, not {item.text}")

    def _S(self, item: Item) -> None:  # noqa: N802
        where = f"{self.name[:2]}:{item.number}"
        ours = DIFFERENCES.get(where, Ours(""))
        self.was_ours = bool(ours.why)
        if ours.why:
            self.used.add(where)
        if item.text == "EOF":
            if item.client not in self.hung_up and not ours.stays:
                self._expect_end(item.client, where)
            self.hung_up.discard(item.client)
            return
        expected = masked(literal(item.text), self.recorded) if ours.answer is None else ours.answer
        got = self._answer(item.client, expected)
        self.took_ms = (time.monotonic() - self.sent) * 1000
        if got != expected:
            self.wrong.append(f"{where} wanted {expected[:300]!r}\n     got {got[:300]!r}")
        if ours.closes:
            self._expect_end(item.client, where)
            self.hung_up.add(item.client)

    def _answer(self, client: int, expected: bytes) -> bytes:
        """As many bytes as are expected. One too many is found at the next item."""
        got = b""
        while len(masked(got, self.started)) < len(expected):
            more = self._read(self._client(client), len(expected) - len(masked(got, self.started)), SOON_S)
            if not more:
                break
            got += more
        return masked(got, self.started)

    def _expect_end(self, client: int, where: str) -> None:
        got = self._read(self._client(client), 1, SOON_S)
        if got != b"":
            self.wrong.append(f"{where} the server did not hang up: {got!r}")
        self.sockets.pop(client).close()

    def _read(self, connection: socket.socket, most: int, seconds: float) -> bytes | None:
        """None if nothing came."""
        connection.settimeout(seconds)
        try:
            return connection.recv(most)
        except TimeoutError:
            return None
        except ConnectionError:
            return b""


def replayed(name: str) -> Replay:
    """Against a server of its own."""
    with Server() as server:
        replay = Replay(name, server.port)
        replay.run()
        assert server.is_alive and server.complaints() == ""
    return replay


@pytest.mark.parametrize("name", FILES)
def test_ours_says_what_the_real_server_said(name: str) -> None:
    replay = replayed(name)
    if replay.wrong:  # where the machine stalls for a second, the leases of a transcript run out
        replay = replayed(name)
    assert not replay.wrong, "\n".join(replay.wrong)
    known = {where for where in DIFFERENCES if where.startswith(name[:2])}
    assert replay.used == known, "a difference that is listed but was not met"
