"""The load on a job server: the same loop for every server, only the bytes sent and expected differ.

It must cost far less than the server does, or it measures itself. So one process serves all connections, requests are
built before the clock starts, and while it runs replies are only kept and their lines counted; what they say is
checked afterwards, all of it. A socket wakes the driver when half a window is answered and not for every reply: with a
server that writes each reply on its own the driver was busy for 98 % of the time, now it is for a third.
``python -m bench.job_driver`` shows what the loop alone can do.
"""

from __future__ import annotations

import os
import re
import select
import socket
import statistics
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import accumulate

from bench.rivals import Address, stand_in

PHASES = ("add", "lease", "complete")
CONNECTIONS = 8
IN_FLIGHT = 16  # commands a connection has sent and not seen answered, at most
PAYLOAD = 100
ROOM = 1 << 16  # more than a full window of replies
STALL_SECONDS = 20.0

WORKERS = 64
QUEUES = 16  # of the wake-up run
STEPS = (0, 1, 5, 11)  # worker i waits at the queues i + step: each queue has 16 workers, each of them 3 others


@dataclass(frozen=True)
class Reply:
    """What a server answers. No payload has a line end in it, so the lines of a reply are always as many."""

    pattern: re.Pattern[bytes]
    shortest: bytes

    @property
    def lines(self) -> int:
        return self.shortest.count(b"\n")


@dataclass(frozen=True)
class Dialect:
    """A protocol, as requests to fill in and replies to expect."""

    add: bytes
    added: Reply
    """Has the id as a group if the server chooses it."""
    lease: bytes
    leased: Reply
    """Has the id and the payload as groups."""
    complete: bytes
    completed: Reply


_OK = Reply(re.compile(rb"\+OK\r\n"), b"+OK\r\n")
_BODY = rb"%d\r\n([^\r\n]{%d})\r\n" % (PAYLOAD, PAYLOAD)
_SOME_BODY = b"%d\r\n%s\r\n" % (PAYLOAD, b"." * PAYLOAD)

WORKQ = Dialect(
    add=b"add %%(id)s bench 60000 600000 %d\r\n%%(payload)s\r\n" % PAYLOAD,
    added=_OK,
    lease=b"lease bench 1000\r\n",
    leased=Reply(
        re.compile(rb"\+OK 1\r\n([0-9a-f-]{36}) bench 60000 " + _BODY),
        b"+OK 1\r\n%s bench 60000 " % (b"0" * 36) + _SOME_BODY,
    ),
    complete=b"complete %(id)s 0\r\n\r\n",
    completed=_OK,
)
BEANSTALK = Dialect(
    add=b"put 0 0 60 %d\r\n%%(payload)s\r\n" % PAYLOAD,
    added=Reply(re.compile(rb"INSERTED (\d+)\r\n"), b"INSERTED 1\r\n"),
    lease=b"reserve\r\n",
    leased=Reply(re.compile(rb"RESERVED (\d+) " + _BODY), b"RESERVED 1 " + _SOME_BODY),
    complete=b"delete %(id)s\r\n",
    completed=Reply(re.compile(rb"DELETED\r\n"), b"DELETED\r\n"),
)


@dataclass
class Pace:
    """How fast a phase went."""

    commands: int = 0
    seconds: float = 0.0
    used: float = 0.0
    """Seconds that the driver itself was on a core."""

    @property
    def rate(self) -> float:
        return self.commands / self.seconds

    @property
    def busy(self) -> float:
        """Near 1, the rate is the driver's and not the server's."""
        return self.used / self.seconds

    def add(self, other: Pace) -> None:
        self.commands += other.commands
        self.seconds += other.seconds
        self.used += other.used


def run(address: Address, dialect: Dialect, jobs: int, held: int | None = None) -> dict[str, Pace]:
    """Add all jobs, then lease all, then complete all; each connection does an equal share of each phase.

    With ``held``, a connection completes what it has whenever it has leased so many, until all are done; the phases
    are still timed one by one. A job is completed by the connection that leased it: beanstalkd allows no other.

    Raises: RuntimeError if any reply is wrong, or any job was not leased exactly once with its own payload.
    """
    each = max(jobs // CONNECTIONS, 1)
    paces = {phase: Pace() for phase in PHASES}
    with _connected(address, CONNECTIONS) as sockets:
        waiting = _add_all(sockets, dialect, each, paces["add"])
        for done in range(0, each, held or each):
            share = min(held or each, each - done)
            answers = drive(sockets, [[dialect.lease] * share] * CONNECTIONS, dialect.leased, paces["lease"])
            leased = [[_take(waiting, *job) for job in found] for found in _read(answers, dialect.leased, share)]
            requests = [[dialect.complete % {b"id": id} for id in ids] for ids in leased]
            answers = drive(sockets, requests, dialect.completed, paces["complete"])
            _read(answers, dialect.completed, share)
    return paces


def _add_all(sockets: Sequence[socket.socket], dialect: Dialect, each: int, pace: Pace) -> dict[bytes, bytes]:
    """Returns the payloads by the ids of their jobs."""
    payloads = [[_payload(lane * each + number) for number in range(each)] for lane in range(CONNECTIONS)]
    ids = [[_new_id() for _ in range(each)] for _ in range(CONNECTIONS)]
    requests = [
        [dialect.add % {b"id": id, b"payload": payload} for id, payload in zip(*share, strict=True)]
        for share in zip(ids, payloads, strict=True)
    ]
    replies = _read(drive(sockets, requests, dialect.added, pace), dialect.added, each)
    if dialect.added.pattern.groups:
        ids = [[id for (id,) in found] for found in replies]
    waiting = dict(
        zip((id for share in ids for id in share), (one for share in payloads for one in share), strict=True)
    )
    if len(waiting) != each * CONNECTIONS:
        raise RuntimeError(f"{each * CONNECTIONS} jobs were added under {len(waiting)} ids")
    return waiting


class _Lane:
    """One connection in one phase."""

    __slots__ = ("count", "ends", "kept", "lines", "recv", "send", "sent", "socket", "stream")

    def __init__(self, to: socket.socket, requests: Sequence[bytes], reply: Reply) -> None:
        self.socket, self.recv, self.send = to, to.recv, to.sendall  # it would raise, not wait, if there were no room
        self.stream = memoryview(b"".join(requests))
        self.ends = [0, *accumulate(map(len, requests))]
        self.count, self.sent, self.lines = len(requests), 0, 0
        self.kept: list[bytes] = []
        self._wake_at(len(reply.shortest) * IN_FLIGHT // 2)

    def top_up(self, answered: int) -> None:
        until = min(answered + IN_FLIGHT, self.count)
        if until > self.sent:
            self.send(self.stream[self.ends[self.sent] : self.ends[until]])
            self.sent = until
            if until == self.count:
                self._wake_at(1)  # what is still to come may be less than half a window

    def _wake_at(self, size: int) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)


def drive(
    sockets: Sequence[socket.socket], requests: Sequence[Sequence[bytes]], reply: Reply, pace: Pace
) -> list[bytes]:
    """Send each socket its requests, never more than a window ahead, and add to ``pace`` what it took.

    Returns what each socket received, which may be too little: then a reply was wrong or the server stopped.
    """
    lanes = {to.fileno(): _Lane(to, share, reply) for to, share in zip(sockets, requests, strict=True)}
    lines, running = reply.lines, len(lanes)
    with select.epoll() as poll:
        for handle in lanes:
            poll.register(handle, select.EPOLLIN)
        used, started = time.process_time(), time.perf_counter()
        for lane in lanes.values():
            lane.top_up(0)
        while running and (ready := poll.poll(STALL_SECONDS)):
            for handle, _ in ready:
                lane = lanes[handle]
                data = lane.recv(ROOM)
                lane.kept.append(data)
                lane.lines += data.count(b"\n")
                answered = lane.lines // lines
                lane.top_up(answered)
                if answered >= lane.count or not data:
                    poll.unregister(handle)
                    running -= 1
        seconds, used = time.perf_counter() - started, time.process_time() - used
    for lane in lanes.values():
        with suppress(BlockingIOError):  # nothing, in an orderly run; else it tells what is wrong
            lane.kept.append(lane.recv(ROOM))
    pace.add(Pace(sum(lane.count for lane in lanes.values()), seconds, used))
    return [b"".join(lane.kept) for lane in lanes.values()]


def wake_ups(address: Address, adds: int) -> list[float]:
    """Seconds from sending an add until the job is at one of many waiting workers, for one job after another.

    The worker completes the job and waits again before the next is added.

    Raises: RuntimeError if a reply is wrong, or a job came to nobody, to two, or to a worker that had not asked for it.
    """
    times = []
    with _connected(address, WORKERS + 1) as (adder, *workers), select.epoll() as poll:
        sockets = {to.fileno(): to for to in (adder, *workers)}
        asked = {
            to.fileno(): [b"w%d" % ((number + step) % QUEUES) for step in STEPS] for number, to in enumerate(workers)
        }
        leases = {handle: b"lease %s 60000\r\n" % b" ".join(names) for handle, names in asked.items()}
        for handle, to in sockets.items():
            poll.register(handle, select.EPOLLIN)
            to.sendall(leases.get(handle, b""))
        time.sleep(0.3)  # until all wait; no reply would tell
        for turn in range(adds):
            id, name, payload = _new_id(), b"w%d" % (turn * 7 % QUEUES), _payload(turn)
            request = b"add %s %s 60000 600000 %d\r\n%s\r\n" % (id, name, PAYLOAD, payload)
            started = time.perf_counter()
            adder.sendall(request)
            got = _collect(poll, sockets, lines=4)  # one for the adder, three for a worker
            answer, _ = got.pop(adder.fileno(), (b"", 0.0))
            if answer != b"+OK\r\n" or len(got) != 1:
                raise RuntimeError(f"add {turn} was answered {answer!r} and the job came to {len(got)} workers: {got}")
            [(worker, (reply, at))] = got.items()
            if reply != b"+OK 1\r\n%s %s 60000 %d\r\n%s\r\n" % (id, name, PAYLOAD, payload):
                raise RuntimeError(f"the job of {request!r} came as {reply!r}")
            if name not in asked[worker]:
                raise RuntimeError(f"a job of {name!r} came to a worker that waits at {asked[worker]}")
            times.append(at - started)
            sockets[worker].sendall(b"complete %s 0\r\n\r\n" % id + leases[worker])
            done = {handle: reply for handle, (reply, _) in _collect(poll, sockets, lines=1).items()}
            if done != {worker: b"+OK\r\n"}:
                raise RuntimeError(f"complete was answered {list(done.values())}")
    return times


def _collect(poll: select.epoll, sockets: dict[int, socket.socket], lines: int) -> dict[int, tuple[bytes, float]]:
    """What arrives until it has so many lines, and when its last byte came, by socket."""
    got: dict[int, tuple[bytes, float]] = {}
    while lines > 0:
        ready = poll.poll(STALL_SECONDS)
        data = b""
        for handle, _ in ready:
            data = sockets[handle].recv(ROOM)
            got[handle] = (got.get(handle, (b"", 0.0))[0] + data, time.perf_counter())
            lines -= data.count(b"\n")
        if not data:
            raise RuntimeError(f"the server went silent, {lines} lines are missing; last came {list(got.values())}")
    return got


def _read(answers: Sequence[bytes], reply: Reply, count: int) -> list[list[tuple[bytes, ...]]]:
    """The groups of every reply, by connection.

    Raises: RuntimeError if what a connection received is not so many such replies and nothing else.
    """
    found = []
    for lane, answer in enumerate(answers):
        groups: list[tuple[bytes, ...]] = []
        at = 0
        while match := reply.pattern.match(answer, at):
            groups.append(match.groups())
            at = match.end()
        if len(groups) != count or at != len(answer):
            rest = answer[at : at + 200] or "missing"
            raise RuntimeError(f"connection {lane}: reply {len(groups) + 1} (of {count}) is {rest!r}")
        found.append(groups)
    return found


def _take(waiting: dict[bytes, bytes], id: bytes, payload: bytes) -> bytes:
    """Raises: RuntimeError if no such job was added, it was leased before, or its payload is not the one sent."""
    if id not in waiting:
        raise RuntimeError(f"job {id!r} was leased twice or never added")
    if waiting.pop(id) != payload:
        raise RuntimeError(f"job {id!r} came with another payload: {payload!r}")
    return id


@contextmanager
def _connected(address: Address, count: int) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(address, timeout=10)) for _ in range(count)]
        for to in sockets:
            to.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            to.setblocking(False)
        yield sockets


def _new_id() -> bytes:
    return str(uuid.uuid4()).encode()


def _payload(number: int) -> bytes:
    """A different one for each number, without a line end."""
    return (b"%08d" % number + os.urandom(PAYLOAD // 2).hex().encode())[:PAYLOAD]


def show_ceiling() -> None:
    """Print what the loop does against a process that only counts lines and answers."""
    add = WORKQ.add % {b"id": _new_id(), b"payload": _payload(0)}
    for what, request, reply in (("add", add, WORKQ.added), ("lease", WORKQ.lease, WORKQ.leased)):
        for batched, how in ((True, "a window at once"), (False, "each in a send of its own")):
            paces = []
            with (
                stand_in(request.count(b"\n"), reply.shortest, batched) as address,
                _connected(address, CONNECTIONS) as sockets,
            ):
                for _ in range(5):
                    paces.append(Pace())
                    drive(sockets, [[request] * 10_000] * CONNECTIONS, reply, paces[-1])
            rate, busy = statistics.median(p.rate for p in paces), statistics.median(p.busy for p in paces)
            print(
                f"{what:<5} answered {how:<25} {rate:>9,.0f}/s, driver busy {busy:>4.0%}: {rate / busy:>9,.0f}/s alone"
            )


if __name__ == "__main__":
    show_ceiling()
