"""Queues behind a RESP door on the loop of a test: clients on lines, a disk in memory that refuses when told to."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from integration.resp_wire import Error
from lamina.engines.lock import Lock
from lamina.engines.queues import ids
from lamina.engines.queues.deliveries import Deliveries
from lamina.engines.queues.message import Queue
from lamina.engines.queues.opening import open_engine
from lamina.engines.queues.options import QueueOptions
from lamina.engines.queues.upkeep import Upkeep
from lamina.log import OS, LogOptions, Sync
from lamina.log.files.faulty import Fault
from lamina.log.writer import Log
from lamina.server.resp.queue_house import let_in
from lamina.testing import MemoryFiles
from resp_lab import Caller, Lab

STORES = ("memory", "journal")
EVERY_STORE = pytest.mark.parametrize("store", STORES)
FOLDER = "/queues"
JOURNALS = f"{FOLDER}/messages"
RECORDS = f"{FOLDER}/smp-server-store"
"""How paths begin of files with records of queues, and in the store ``memory`` of messages."""
PATIENCE_S = 30.0


class Ids(NamedTuple):
    """Of a queue, as text: neither has a blank."""

    rid: str
    sid: str


class QueueDoors(Lab):
    """A house that serves queues. Make it on the loop."""

    def __init__(self, store: str = "memory", sync: Sync = OS, *, idle_s: int = 0, **options: Any) -> None:
        super().__init__(sync, idle_s=idle_s)
        self.queue_options = QueueOptions(store=store, **options)
        self.engine = open_engine(
            FOLDER,
            options=self.queue_options,
            log=self.options,
            files=self.files,
            clock=self.clock,
            committer=self.hand,
        )
        self.upkeep = Upkeep(self.engine)
        self.deliveries = Deliveries(self.engine)
        let_in(self.house, self.deliveries, self.upkeep)

    @property
    def store_log(self) -> Log:
        """The log with the records of queues."""
        assert isinstance(self.engine.log, Log)
        return self.engine.log

    @property
    def message_files(self) -> str:
        """How paths begin of files with messages."""
        return RECORDS if self.engine.keeper is self.engine else JOURNALS

    def refuse(self, times: int = 1, only: str = RECORDS) -> Fault:
        """The disk has no room for what comes next."""
        return self.files.fail("append", error=errno.ENOSPC, times=times, only=only)

    @contextmanager
    def syncing(self) -> Iterator[None]:
        """Whoever syncs the records of queues, or would write them, is not done for as long."""
        may_end = threading.Event()

        def hold(operation: str, path: str) -> None:
            if operation == "sync" and path.startswith(RECORDS):
                assert may_end.wait(PATIENCE_S)

        with self.at_the_disk(self.store_log):  # not on the loop, that is
            self.files.before = hold
            try:
                yield
            finally:
                self.files.before = lambda operation, path: None
                may_end.set()

    # -- clients -----------------------------------------------------------------------------------------------------

    async def new_queue(self, caller: Caller, *words: str) -> Ids:
        rid, sid = await caller.ask_one(" ".join(("Q.NEW", *words)))
        return Ids(rid.decode(), sid.decode())

    async def until(self, happened: Callable[[], object]) -> None:
        """For what another thread has a part in. Raises: TimeoutError."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                await asyncio.sleep(0.001)
                await self.settle()

    async def answers(self, caller: Caller, count: int) -> list[Any]:
        """So many, when another thread has a part in them."""
        found: list[Any] = []
        async with asyncio.timeout(PATIENCE_S):
            while len(found) < count:
                await asyncio.sleep(0.001)
                await self.settle()
                found += caller.got()
        return found

    # -- what is there -----------------------------------------------------------------------------------------------

    def queue(self, rid: str) -> Queue:
        id = ids.parse(rid.encode())
        assert id is not None
        return self.engine.state.queues[id]

    def has_folder(self, queue: Queue) -> bool:
        """Something of it is on disk, in the store ``journal``."""
        path = self.engine.keeper.layout.folder(JOURNALS, queue.rid)
        return any(name.startswith(path) for name in self.disk.contents())

    def bodies_after_a_kill(self, rid: str) -> list[bytes | None]:
        """Of the messages that a server finds which starts with what the disk has now."""
        again = open_engine(
            FOLDER,
            options=self.queue_options,
            log=LogOptions(),
            files=MemoryFiles(self.disk.contents()),
            clock=self.clock,
            threaded=False,
        )
        id = ids.parse(rid.encode())
        assert id is not None
        return [message.body for message in again.messages.messages(again.state.queues[id])]


class LockWithAQueue(Lock):
    """The lock of an engine that tells when somebody has to wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self.has_waiter = threading.Event()

    def __enter__(self) -> None:
        if not self.acquire(False):
            self.has_waiter.set()
            super().__enter__()


def is_error(answer: object) -> bool:
    return isinstance(answer, Error)


def pushed_body(push: Any) -> bytes:
    """Of a message that was pushed."""
    assert push[0] == b"q.msg", push
    body: bytes = push[5]
    return body
