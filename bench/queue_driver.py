"""The load on queues, and the same on lists of Redis: one loop for both, which only counts bytes while the clock runs.

Every answer has a length that is known before, so nothing is parsed on the way: the answers to 16 sends are also,
with a few bytes between them, the 16 acknowledgements. All that came is kept, and checked afterwards. ``Pace.busy``
says how much of a core the driver itself took.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Sequence
from typing import Protocol

from bench import job_driver
from bench.job_driver import Pace
from bench.queue_folder import BODY, body_of
from bench.rivals import Address
from bench.topic_servers import Wire, Wrong, command

PIPELINED = 16
ROOM = 1 << 16
STALL_SECONDS = 20.0

OK = b"+OK\r\n"
_ID = b"$32\r\n"  # how an id begins, in a command and in an answer
ID_SIZE = len(_ID) + 32 + 2
_MESSAGE_HEAD = len(b"*4\r\n") + ID_SIZE + len(b":1700000000\r\n$0\r\n\r\n")
_VALUE_SIZE = len(b"$%d\r\n" % BODY) + BODY + 2
MESSAGE_SIZE = _MESSAGE_HEAD + _VALUE_SIZE

# -- what is said -----------------------------------------------------------------------------------------------------


def new_queue(wire: Wire) -> tuple[bytes, bytes]:
    """The two ids of a queue that asks for no key."""
    answer = bytes(wire.take(command("Q.NEW"), 4 + 2 * ID_SIZE))
    return answer[9:41], answer[48:80]


def send(sid: bytes, number: int) -> bytes:
    return command("Q.SEND", sid, body_of(number))


def get(rid: bytes) -> bytes:
    return command("Q.GET", rid)


def acknowledge(rid: bytes, sent: bytes) -> bytes:
    """All messages that were sent: ``sent`` are the answers to that."""
    head = b"*3\r\n$5\r\nQ.ACK\r\n%b%b\r\n" % (_ID, rid)
    return sent.replace(_ID, head + _ID)


def check_message(answer: bytes, sent: bytes, number: int) -> None:
    """Raises: Wrong unless ``answer`` is that message, and ``sent`` was the answer when it was sent."""
    value = b"$%d\r\n%b\r\n" % (BODY, body_of(number))
    if answer[4 : 4 + ID_SIZE] != sent or answer[_MESSAGE_HEAD:] != value:
        raise Wrong(f"message {number} came as {answer!r}")


# -- who says it ------------------------------------------------------------------------------------------------------


class Lane(Protocol):
    """One connection."""

    wanted: int
    """Bytes of the answer that comes next."""

    def first(self) -> bytes:
        """What to send first."""

    def answered(self, data: bytes) -> bytes:
        """Take an answer. Returns what to send next; nothing: it is done."""

    def check(self) -> None:
        """Raises: Wrong if something that came was not what it has to be."""


class QueueLane:
    """16 sends, then one Q.GET and 16 acknowledgements, each of which is answered with the next message."""

    def __init__(self, ids: tuple[bytes, bytes], first: int, turns: int) -> None:
        self._rid, sid = ids
        self._numbers = range(first, first + PIPELINED)
        self._sends = b"".join(send(sid, number) for number in self._numbers)
        self._get, self._turns = get(self._rid), turns
        self._sizes = PIPELINED * ID_SIZE, PIPELINED * MESSAGE_SIZE + len(OK)
        self.wanted = self._sizes[0]
        self._kept: list[bytes] = []

    def first(self) -> bytes:
        return self._sends

    def answered(self, data: bytes) -> bytes:
        self._kept.append(data)
        if self.wanted == self._sizes[0]:
            self.wanted = self._sizes[1]
            return self._get + acknowledge(self._rid, data)
        self.wanted = self._sizes[0]
        self._turns -= 1
        return self._sends if self._turns else b""

    def check(self) -> None:
        for sent, came in zip(self._kept[::2], self._kept[1::2], strict=True):
            for place, number in enumerate(self._numbers):
                at = place * MESSAGE_SIZE
                id = sent[place * ID_SIZE : (place + 1) * ID_SIZE]
                check_message(came[at : at + MESSAGE_SIZE], id, number)
            if not came.endswith(OK):
                raise Wrong(f"the last acknowledgement was answered {came[-len(OK) :]!r}")


class ListLane:
    """16 LPUSH, then 16 RPOP."""

    def __init__(self, key: bytes, first: int, turns: int) -> None:
        bodies = [body_of(number) for number in range(first, first + PIPELINED)]
        self._pushes = b"".join(command("LPUSH", key, body) for body in bodies)
        self._pops = command("RPOP", key) * PIPELINED
        self._expected = (
            b"".join(b":%d\r\n" % (place + 1) for place in range(PIPELINED)),
            b"".join(b"$%d\r\n%b\r\n" % (BODY, body) for body in bodies),
        )
        self._turns = turns
        self.wanted = len(self._expected[0])
        self._kept: list[bytes] = []

    def first(self) -> bytes:
        return self._pushes

    def answered(self, data: bytes) -> bytes:
        self._kept.append(data)
        if len(self._kept) % 2:
            self.wanted = len(self._expected[1])
            return self._pops
        self.wanted = len(self._expected[0])
        self._turns -= 1
        return self._pushes if self._turns else b""

    def check(self) -> None:
        for place, data in enumerate(self._kept):
            if data != self._expected[place % 2]:
                raise Wrong(f"{data[:200]!r} was answered")


class SendLane:
    """One send after another, each answered before the next."""

    def __init__(self, ids: tuple[bytes, bytes], first: int, turns: int) -> None:
        self._send, self._turns = send(ids[1], first), turns
        self.wanted = ID_SIZE
        self._kept: list[bytes] = []

    def first(self) -> bytes:
        return self._send

    def answered(self, data: bytes) -> bytes:
        self._kept.append(data)
        return self._send if len(self._kept) < self._turns else b""

    def check(self) -> None:
        if any(not data.startswith(_ID) for data in self._kept) or len(set(self._kept)) != self._turns:
            raise Wrong(f"{self._turns} messages were sent and answered with {len(set(self._kept))} ids")


def drive(address: Address, lanes: Sequence[Lane], pace: Pace) -> None:
    """Let all lanes come to their end, and add to ``pace`` the seconds that took. Raises: Wrong."""
    with job_driver._connected(address, len(lanes)) as sockets, select.epoll() as poll:
        by_handle = {to.fileno(): (to, lane) for to, lane in zip(sockets, lanes, strict=True)}
        # Woken when an answer of the shorter kind may be whole; the longer come in one piece as a rule.
        least = min(lane.wanted for lane in lanes)
        for to in sockets:
            _wake_at(to, least)
            poll.register(to.fileno(), select.EPOLLIN)
        parts: dict[int, bytes] = {}
        running = len(lanes)
        used, started = time.process_time(), time.perf_counter()
        for to, lane in by_handle.values():
            to.sendall(lane.first())
        while running:
            ready = poll.poll(STALL_SECONDS)
            if not ready:
                raise Wrong(f"{running} connections wait for answers; {_rest(by_handle, parts)}")
            for handle, _ in ready:
                to, lane = by_handle[handle]
                more = to.recv(ROOM)
                data = more
                if handle in parts:
                    data = parts.pop(handle) + more
                    _wake_at(to, least)
                if len(data) == lane.wanted:
                    request = lane.answered(data)
                    if request:
                        to.sendall(request)
                        continue
                    poll.unregister(handle)
                    running -= 1
                elif more and len(data) < lane.wanted:
                    parts[handle] = data
                    _wake_at(to, lane.wanted - len(data))
                else:
                    raise Wrong(f"an answer of {lane.wanted} bytes was expected, {len(data)} came: {data[:200]!r}")
        pace.seconds += time.perf_counter() - started
        pace.used += time.process_time() - used
    for lane in lanes:
        lane.check()


def _wake_at(to: socket.socket, size: int) -> None:
    to.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def _rest(by_handle: dict[int, tuple[socket.socket, Lane]], parts: dict[int, bytes]) -> str:
    """What came of an answer that is not complete."""
    for handle, (to, _) in by_handle.items():
        try:
            return f"one has {parts.get(handle, b'') + to.recv(200)!r}"
        except BlockingIOError:
            continue
    return f"they have {list(parts.values())[:1]}"
