"""Queues behind the commands of the RESP door, without a socket: for tests that speak as clients do."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any

from integration.resp_wire import Wire, Word
from lamina.clock import ManualClock
from lamina.engines.queues import ids
from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.engine import QueueEngine
from lamina.engines.queues.message import Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep
from lamina.engines.topics.topics import Topics
from lamina.log.files import Files
from lamina.log.files.memory import MemoryFiles
from lamina.log.options import LogOptions
from lamina.log.sync import Sync, interval
from lamina.server.resp import queue_commands
from lamina.server.resp.dispatch import HANDLERS, run
from lamina.server.resp.session import House, Wait

HANDLERS.update(queue_commands.COMMANDS)
FOLDER = "/queues"


class _Reader(Wire):
    """The client's reader, for what is at hand."""

    def __init__(self, answer: bytes) -> None:
        self._file = BytesIO(answer)  # type: ignore[assignment]


def read_all(data: bytes) -> list[Any]:
    reader, found = _Reader(data), []
    while reader._file.tell() < len(data):
        found.append(reader.read())
    return found


class Lab:
    """A server's queues on a disk in memory, quota 3 and file limit 4 as in the cases."""

    def __init__(
        self,
        store: str = "memory",
        *,
        files: Files | None = None,
        clock: ManualClock | None = None,
        sync: Sync | None = None,
        password: bytes | None = None,
        **options: Any,
    ) -> None:
        self.files: Any = MemoryFiles() if files is None else files
        self.clock = clock or ManualClock()
        self.sync = sync or interval(1000)
        self.options = QueueOptions(store=store, **{"quota": 3, "max_file_messages": 4, **options})
        self.password = password
        self.open()

    def open(self, *, force: bool = False) -> None:
        log = LogOptions(sync=self.sync)
        self.engine: QueueEngine = open_engine(
            FOLDER,
            options=self.options,
            log=log,
            files=self.files,
            clock=self.clock,
            threaded=False,
            force=force,
        )
        self.upkeep = Upkeep(self.engine)
        self.deliveries = Deliveries(self.engine)
        topics = Topics.open("/topics", files=MemoryFiles(), clock=self.clock, threaded=False)
        self.house = House(topics, self.clock)
        self.house.queues, self.house.queue_password = self.deliveries, self.password

    def restart(self, *, dump: bool = False) -> None:
        """An orderly stop and a start."""
        if dump:
            self.upkeep.dump()
        self.engine.close()
        self.open()

    def client(self, version: int = 2) -> Client:
        return Client(self, version)

    def queue(self, rid: bytes) -> Queue:
        """By the text of its id."""
        id = ids.parse(rid)
        assert id is not None
        return self.engine.state.queues[id]


class Client:
    """A connection: its answers, and what was pushed to it."""

    def __init__(self, lab: Lab, version: int) -> None:
        self.lab = lab
        self.session = lab.house.enter()
        self.session.version = version
        self._pushed: list[bytes] = []
        self.session.push = lambda reply, engine, position: self._pushed.append(reply)

    def ask(self, *words: Word) -> Any:
        """The answer; what is pushed along with it is kept for ``pushed``."""
        answer = self._run(words)
        assert isinstance(answer, bytes), "it waits"
        return self._settled(answer)

    def wait(self, *words: Word) -> Callable[[], Any]:
        """For a command that has to wait: tries again, None if there is no answer yet."""
        answer = self._run(words)
        assert isinstance(answer, Wait)
        attempt = answer.attempt

        def again() -> Any:
            found = attempt()
            return None if found is None else self._settled(found)

        return again

    def _run(self, words: tuple[Word, ...]) -> bytes | Wait:
        self.session.marks.clear()
        return run(self.session, [word if isinstance(word, bytes) else str(word).encode() for word in words])

    def _settled(self, answer: bytes) -> Any:
        for engine, position in self.session.marks:
            engine.settle(position)
        (value,) = read_all(answer)
        self._pushed += [reply for reply, _, _ in self.session.behind]
        self.session.behind = []
        return value

    def pushed(self) -> list[Any]:
        """What was pushed since it was last asked."""
        found = [value for data in self._pushed for value in read_all(data)]
        self._pushed = []
        return found

    def leave(self) -> None:
        self.lab.house.leave(self.session)

    # -- shorter ---------------------------------------------------------------------------------------------------

    def new(self, *words: Word) -> tuple[bytes, bytes]:
        rid, sid = self.ask("Q.NEW", *words)
        return rid, sid

    def send(self, sid: bytes, *bodies: Word) -> list[bytes]:
        return [self.ask("Q.SEND", sid, body) for body in bodies]
