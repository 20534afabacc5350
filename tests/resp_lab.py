"""A RESP door on the loop of a test: lines instead of sockets, a disk in memory, and a commit thread that is a hand."""

from __future__ import annotations

import asyncio
import errno
import functools
import io
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from integration.resp_wire import Error, Simple, Wire, packed
from lamina.engines.topics import ids
from lamina.engines.topics.topic import Topic
from lamina.engines.topics.topics import Topics
from lamina.log import ALWAYS, OS, LogOptions, Sync, interval
from lamina.log.commit import Committer
from lamina.log.files.faulty import Fault
from lamina.log.files.memory import Content
from lamina.log.measured import Measured
from lamina.log.writer import Log
from lamina.server.resp.door import Connection, RespDoor
from lamina.server.resp.session import House
from lamina.server.resp.settings import Settings
from lamina.server.security.gate import Gate
from lamina.testing import FaultyFiles, ManualClock, MemoryFiles

POLICIES: dict[str, Sync] = {"always": ALWAYS, "interval": interval(1000), "os": OS}
FOLDER = "topics"
PONG = Simple(b"PONG")
EVERY_POLICY = pytest.mark.parametrize("policy", POLICIES)
PATIENCE_S = 30.0
_TURNS = 40  # of the loop, until all that can be answered is


_in_threads: set[object] = set()
"""What loops wait for that threads do."""
_ends_of_threads = 0
"""How often one has done that."""
_to_thread = asyncio.to_thread


async def _watched(*call: Any, **more: Any) -> Any:
    global _ends_of_threads
    mark = object()
    _in_threads.add(mark)
    try:
        return await _to_thread(*call, **more)
    finally:
        _in_threads.discard(mark)
        _ends_of_threads += 1


asyncio.to_thread = _watched


def _looks_again() -> bool:
    """A thread does, for those who wait for messages of queues of which something was refused (queue_house.py)."""
    return any(thread.name == "lamina-queues-look" for thread in threading.enumerate())


def in_loop(test: Callable[..., Coroutine[object, object, None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: object, **more: object) -> None:
        asyncio.run(test(*arguments, **more))

    return run


def words(command: str | list[bytes]) -> list[bytes]:
    """A text is split at blanks."""
    return command.encode().split() if isinstance(command, str) else command


class _InNoTime(Measured):
    """A disk that is quick however busy the machine is: which thread writes does not depend on that."""

    def wrote(self, log: object, records: int, size: int, seconds: float, now: float) -> None:
        super().wrote(log, records, size, 0.0, now)

    def synced(self, log: object, seconds: float, now: float) -> None:
        super().synced(log, 0.0, now)


class Answers(Wire):
    """What was sent to a client, read as it would."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BufferedReader(io.BytesIO(data))  # type: ignore[arg-type]

    def all(self) -> list[Any]:
        found = []
        while self._file.peek(1):
            found.append(self.read())
        return found


def is_id(answer: object) -> bool:
    return type(answer) is bytes and b"-" in answer


def is_refusal(answer: object) -> bool:
    return isinstance(answer, Error) and answer.startswith(b"MISCONF ")


def kinds(answers: list[Any]) -> str:
    """A letter for each: i for an id, x for one the disk refused, . for all others."""
    return "".join("i" if is_id(each) else "x" if is_refusal(each) else "." for each in answers)


class Hand(Committer):
    """Runs rounds when told to, not by a thread."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[Any, None] = {}
        self.busy: set[Any] = set()

    def nudge(self, log: Any) -> None:
        self.asked[log] = None

    def come_again(self, log: Any, seconds: float) -> None:
        return

    def forget(self, log: Any) -> None:
        self.asked.pop(log, None)

    def run(self) -> None:
        """A round of each log somebody waits for, if nobody is at its disk."""
        for log in [log for log in self.asked if log not in self.busy]:
            del self.asked[log]
            with suppress(Exception):  # as the thread: it fails its own log and tells whoever waits there
                log.run_round()


class SyncedFiles(MemoryFiles):
    """Knows what a power cut would leave at least."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        super().__init__(contents)
        self.synced: dict[int, bytes] = {}

    def do_sync(self, content: Content) -> None:
        super().do_sync(content)
        self.synced[content.number] = bytes(content.data)


HIGH_WATER = 1 << 16  # bytes that a client has not taken, beyond which a transport says so


class Line:
    """The transport of a connection; keeps what was sent."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self._sent: list[bytes] = []
        self.is_closed = self.has_ended = self.is_paused = False
        self.on_write: Callable[[bytes], None] = lambda data: None
        self.protocol: Any = None
        self.takes = True
        """The client reads what it is sent."""
        self.untaken = bytearray()
        self.was_aborted = False

    @property
    def sent(self) -> bytes:
        self._sent = [b"".join(self._sent)]
        return self._sent[0]

    def write(self, data: bytes) -> None:
        assert not self.has_ended, "written behind the end"
        if self.is_closed:
            return
        if self.takes:
            self._sent.append(data)
        else:
            was_much = len(self.untaken) > HIGH_WATER
            self.untaken += data
            if len(self.untaken) > HIGH_WATER and not was_much:
                self.protocol.pause_writing()
        self.on_write(data)

    def take(self) -> None:
        """The client reads from now on."""
        was_much = len(self.untaken) > HIGH_WATER
        self._sent.append(bytes(self.untaken))
        self.untaken.clear()
        self.takes = True
        if was_much:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return len(self.untaken)

    def abort(self) -> None:
        self.was_aborted = True
        self.close()

    def write_eof(self) -> None:
        self.has_ended = True

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            asyncio.get_running_loop().call_soon(self.protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return self.is_closed

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def get_extra_info(self, name: str) -> object:
        return self.address if name == "peername" else None


class Caller:
    """A client."""

    def __init__(self, lab: Lab, number: int) -> None:
        self.lab = lab
        self.line = Line(("127.0.0.1", 50_000 + number))
        self.connection: Connection = lab.door()
        self.line.protocol = self.connection
        self.connection.connection_made(self.line)  # type: ignore[arg-type]
        self._read = 0

    def send(self, *commands: str | list[bytes]) -> None:
        """At once, in one piece."""
        self.send_raw(b"".join(packed([*words(command)]) for command in commands))

    def send_raw(self, data: bytes) -> None:
        self.connection.data_received(data)

    def got(self) -> list[Any]:
        """The answers that came since this was asked last."""
        sent, self._read = self.line.sent[self._read :], len(self.line.sent)
        return Answers(sent).all()

    async def ask(self, *commands: str | list[bytes]) -> list[Any]:
        """The answers to commands that are sent at once, when all that can come has come."""
        self.send(*commands)
        await self.lab.settle()
        return self.got()

    async def ask_one(self, command: str | list[bytes]) -> Any:
        (answer,) = await self.ask(command)
        return answer


class Lab:
    """A house with a door. Make it on the loop."""

    def __init__(
        self,
        sync: Sync = OS,
        *,
        password: bytes | None = None,
        gate: Gate | None = None,
        clock: ManualClock | None = None,
        **shown: Any,
    ) -> None:
        self.disk, self.clock, self.hand = SyncedFiles(), clock or ManualClock(), Hand()
        self.files = FaultyFiles(self.disk)
        self.options = LogOptions(sync=sync)
        self.topics = self.opened(self.files)
        self.house = House(self.topics, self.clock, Settings(**shown), password=password, gate=gate)
        self.door = RespDoor(self.house)
        self._callers = 0
        self.holds_threads = False
        """The test has one wait for it: that is not waited for."""

    def opened(self, files: MemoryFiles | FaultyFiles) -> Topics:
        topics = Topics.open(FOLDER, files=files, clock=self.clock, options=self.options, committer=self.hand)
        topics.measured = _InNoTime()
        return topics

    def caller(self) -> Caller:
        self._callers += 1
        return Caller(self, self._callers)

    async def settle(self) -> None:
        """Until all is answered that can be. Takes no time of the clock."""
        done = self.door.workers.done, _ends_of_threads
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self.hand.run()
        if (self.door.workers.done, _ends_of_threads) != done:  # what follows from that may not be done
            await self.settle()
        while self.door.waiting._round is not None or await self._is_at_work():
            await asyncio.sleep(0.001)  # those who wait are served later when a round took long
            await self.settle()

    async def _is_at_work(self) -> bool:
        """Threads had something to do. One that waits for a disk somebody else is at is not waited for."""
        end = time.monotonic() + (0.05 if self.hand.busy or self.holds_threads else PATIENCE_S)
        had_work = False
        while (_in_threads or _looks_again() or not self.door.workers.is_idle) and time.monotonic() < end:
            had_work = True
            await asyncio.sleep(0.0005)
            self.hand.run()
        return had_work and time.monotonic() < end

    def make(self, *names: str) -> None:
        """Topics that are open, so that what is done with them is done at once."""
        for name in names:
            self.topic(name)

    # -- the disk ----------------------------------------------------------------------------------------------------

    def topic(self, name: str) -> Topic:
        return self.topics.get_or_make(name.encode())

    def log(self, name: str) -> Log:
        log = self.topic(name).log
        assert isinstance(log, Log)
        return log

    @contextmanager
    def at_the_disk(self, *logs: str | Log) -> Iterator[None]:
        """Somebody else writes or syncs these logs, for as long. Who has to wait for that waits no time at all."""
        busy = [self.log(log) if isinstance(log, str) else log for log in logs]
        for log in busy:
            log.try_round = lambda **how: False  # type: ignore[method-assign]
        self.hand.busy.update(busy)
        try:
            yield
        finally:
            self.hand.busy.difference_update(busy)
            for log in busy:
                del log.try_round  # type: ignore[method-assign]

    def full(self, name: str, times: int = 1) -> Fault:
        """The disk has no room for what comes next for this topic."""
        return self.files.fail("append", error=errno.ENOSPC, times=times, only=f"{FOLDER}/{name}/")

    def safe(self) -> bytes:
        """All that is as safe as the policy promises, in one piece."""
        if self.options.sync is ALWAYS:
            return b"".join(self.disk.synced.values())
        return b"".join(self.disk.contents().values())

    def values(self, name: str) -> list[bytes]:
        """The value of each entry that a killed server finds again when it starts."""
        topic = self.opened(MemoryFiles(self.disk.contents())).get(name.encode())
        return [fields[1] for _, fields in topic.read(ids.FIRST)[0]] if topic is not None else []


async def turn(lab: Lab) -> None:
    await asyncio.sleep(0)
    lab.hand.run()
