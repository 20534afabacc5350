"""A few connections that send, get and acknowledge at a steady pace, and how long each of their commands waits."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from contextlib import ExitStack

from bench import job_driver
from bench.queue_driver import ID_SIZE, MESSAGE_SIZE, OK, acknowledge, check_message, get, new_queue, send
from bench.rivals import Address
from bench.topic_servers import Wire, Wrong

CONNECTIONS = 8
EVERY_S = 0.001  # a command, of all connections together
ROOM = 1 << 16
STALL_SECONDS = 120.0


class _Lane:
    """One connection with a queue of its own."""

    def __init__(self, to: socket.socket, ids: tuple[bytes, bytes], number: int) -> None:
        self.socket = to
        self._rid, sid = ids
        self._number = number
        self._send, self._get = send(sid, number), get(self._rid)
        self._step = 0
        self._sent = self._came = b""
        self._at = 0.0

    def ask(self) -> None:
        requests = self._send, self._get, acknowledge(self._rid, self._sent)
        self._came, self._at = b"", time.perf_counter()
        self.socket.sendall(requests[self._step])

    def take(self) -> float | None:
        """How long the answer took to come, in seconds; None if it is not complete. Raises: Wrong."""
        more = self.socket.recv(ROOM)
        wait = time.perf_counter() - self._at
        came = self._came = self._came + more
        wanted = (ID_SIZE, MESSAGE_SIZE, len(OK))[self._step]
        if not more or len(came) > wanted or came.startswith(b"-"):
            raise Wrong(f"step {self._step} was answered {came[:200]!r}")
        if len(came) < wanted:
            return None
        if self._step == 0:
            self._sent = came
        elif self._step == 1:
            check_message(came, self._sent, self._number)
        elif came != OK:
            raise Wrong(f"an acknowledgement was answered {came!r}")
        self._step = (self._step + 1) % 3
        return wait


class Traffic:
    """Goes on while ``beside`` or ``alone`` run. Use it as a context."""

    def __init__(self, address: Address) -> None:
        self._stack = ExitStack()
        with Wire(address) as wire:
            queues = [new_queue(wire) for _ in range(CONNECTIONS)]
        *sockets, self._other = self._stack.enter_context(job_driver._connected(address, CONNECTIONS + 1))
        self._lanes = [_Lane(to, ids, n) for n, (to, ids) in enumerate(zip(sockets, queues, strict=True))]

    def __enter__(self) -> Traffic:
        return self

    def __exit__(self, *problem: object) -> None:
        self._stack.close()

    def alone(self, seconds: float) -> list[float]:
        """Returns what each command waited, in seconds."""
        waits, _ = self._run(time.perf_counter() + seconds)
        return waits

    def beside(self, request: bytes) -> tuple[list[float], bytes]:
        """The same until another connection has the answer to ``request``, which is a bulk string; and that."""
        self._other.sendall(request)
        return self._run(None)

    def _run(self, end: float | None) -> tuple[list[float], bytes]:
        by_handle = {lane.socket.fileno(): lane for lane in self._lanes}
        waits, answer = list[float](), b""
        idle = deque(self._lanes)
        due = time.perf_counter()
        with select.epoll() as poll:
            for to in (self._other, *(lane.socket for lane in self._lanes)):
                poll.register(to.fileno(), select.EPOLLIN)
            while True:
                now = time.perf_counter()
                is_over = now >= end if end is not None else _is_whole(answer)
                if is_over and len(idle) == len(self._lanes):
                    return waits, answer
                while idle and due <= now and not is_over:
                    idle.popleft().ask()
                    due += EVERY_S
                if not idle:
                    due = max(due, now)  # what could not be sent in time is not made up for
                may_send = idle and not is_over
                ready = poll.poll(max(due - now, 0) if may_send else STALL_SECONDS)
                if not ready and not may_send:
                    raise Wrong(f"the server went silent; {len(self._lanes) - len(idle)} commands wait")
                for handle, _ in ready:
                    if handle == self._other.fileno():
                        answer += self._other.recv(ROOM)
                    elif (wait := by_handle[handle].take()) is not None:
                        waits.append(wait)
                        idle.append(by_handle[handle])


def _is_whole(answer: bytes) -> bool:
    """Raises: Wrong if it is no bulk string, or if that is nil."""
    head, separator, rest = answer.partition(b"\r\n")
    if not separator:
        return False
    if head[:1] != b"$" or head == b"$-1":
        raise Wrong(f"it was answered {answer[:200]!r}")
    return len(rest) == int(head[1:]) + 2
