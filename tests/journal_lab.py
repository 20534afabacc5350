"""A journal store on a disk in memory, for tests."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

from lamina.clock import ManualClock
from lamina.engines.queues import ids
from lamina.engines.queues.journal import copies, records
from lamina.engines.queues.journal.home import JournalOptions
from lamina.engines.queues.journal.problem import Problem
from lamina.engines.queues.journal.state_line import Parsed, parse
from lamina.engines.queues.journal.store import JournalStore
from lamina.engines.queues.message import NO_TTL, Message, Queue
from lamina.log import ALWAYS, Sync
from lamina.log.files import Files, join, read_at
from lamina.testing import FaultyFiles, MemoryFiles

ROOT = "messages"
DAY_S = 86_400
TTL_S = 21 * DAY_S
NOW = 1_700_000_000


def counted_random() -> Callable[[int], bytes]:
    """Distinct values, the same in every run."""
    numbers = count(1)
    return lambda size: next(numbers).to_bytes(size, "little")


def mid(number: int) -> bytes:
    """Id of a message."""
    return b"m%d" % number + bytes(24 - len(b"m%d" % number))


class JournalLab:
    """Quota 3 and file limit 4, unless a test says otherwise."""

    def __init__(self, files: Files | None = None, *, sync: Sync = ALWAYS, **options: Any) -> None:
        self.disk = FaultyFiles(MemoryFiles() if files is None else files)
        self.clock = ManualClock(NOW * 1_000_000_000)
        self.problems: list[Problem] = []
        self.sync = sync
        self.options = {"quota": 3, "max_file_messages": 4, "sync_threads": 1, "open_lines": 1, **options}
        self.random = counted_random()
        self.store = self.opened()
        self.rid = bytes(range(24))
        self.queue = self.new_queue()
        self.sent = 0

    def opened(self) -> JournalStore:
        return JournalStore(
            ROOT,
            self.disk,
            self.clock,
            self.random,
            sync=self.sync,
            options=JournalOptions(**self.options),
            tell=self.problems.append,
        )

    def new_queue(self, rid: bytes | None = None) -> Queue:
        return Queue(rid or self.rid, None, bytes(24), None)

    def restart(self, **options: Any) -> None:
        """As after a kill: nothing is closed."""
        self.options |= options
        self.problems.clear()
        self.store = self.opened()
        self.queue = self.new_queue()

    # -- commands ----------------------------------------------------------------------------------------------------

    def put(self, body: bytes | None = b"body", queue: Queue | None = None, ttl: int = NO_TTL) -> bytes:
        """Returns the id."""
        self.sent += 1
        now = self.clock.now_ns() // 1_000_000_000
        message = Message(mid(self.sent), now, b"", body, ttl)
        self.store.settle(self.store.put(queue or self.queue, message))
        return message.id

    def send(self) -> str:
        """With the quota, as the engine does."""
        store, queue = self.store, self.queue
        size = store.size(queue)
        if size and store.is_closed(queue):
            return "QUOTA"
        is_full = size >= int(self.options["quota"])
        self.put(None if is_full else b"body")
        return "QUOTA" if is_full else "OK"

    def receive(self, queue: Queue | None = None) -> int | None:
        """Deliver and acknowledge; the number of the message."""
        message = self.store.head(queue or self.queue)
        if message is None:
            return None
        self.store.settle(self.store.drop_head(queue or self.queue))
        return number_of(message)

    def drain(self) -> list[int]:
        got = []
        while (number := self.receive()) is not None:
            got.append(number)
        return got

    # -- the disk ----------------------------------------------------------------------------------------------------

    @property
    def folder(self) -> str:
        return self.store.layout.folder(ROOT, self.rid)

    def names(self) -> list[str]:
        try:
            return sorted(self.disk.inner.list(self.folder))
        except FileNotFoundError:
            return []

    def message_files(self) -> list[str]:
        return [name for name in self.names() if records.NAME.fullmatch(name)]

    def copies(self) -> list[str]:
        return copies.copies_among(self.names())

    def content(self, name: str) -> bytes:
        file = self.disk.inner.open(join(self.folder, name))
        data = read_at(file, 0, file.size())
        file.close()
        return data

    def put_content(self, name: str, data: bytes) -> None:
        assert isinstance(self.disk.inner, MemoryFiles)
        self.disk.inner.write(join(self.folder, name), data)

    def lines(self) -> list[bytes]:
        return self.content("queue.log").splitlines()

    def last_line(self) -> Parsed:
        parsed = parse(self.lines()[-1])
        assert parsed is not None
        return parsed

    def kinds(self) -> list[str]:
        return [problem.kind for problem in self.problems]

    def calls(self, operation: str, part: str = "") -> int:
        return sum(name == operation and part in path for name, path in self.disk.calls)


LOSS = -1
"""In place of its number: a marker of what was lost."""


def number_of(message: Message) -> int:
    return LOSS if message.is_loss else int(message.id.rstrip(b"\0")[1:])


def handle(lab: JournalLab) -> str:
    return ids.handle(lab.rid)
